//! The stores that the simulator's engines run on keep the contract: the memory behind a gate that lets everything through,
//! behind the tap of the checkers, and behind tap and road, as instances have it in good weather.

use std::sync::{Arc, Mutex};

use interlock_sim::{
    check::Checker,
    clockwork::Clockwork,
    files::Files,
    gated::{Gate, Gated, Passage},
    luck::{Luck, Profile},
    random::Random,
    road::Road,
    tap::Tap,
};
use interlock_store::{Store, StoreError, memory::MemoryStore};
use interlock_store_conformance::{START, Subject, check};
use jiff::SignedDuration;

/// Lets everything through, with a wait at each side that is over at once.
#[derive(Debug)]
struct Open;

impl Gate for Open {
    fn enter(&self, _verb: &'static str) -> Option<Passage<'_>> {
        Some(Box::pin(std::future::ready(Ok(()))))
    }

    fn leave(&self, _verb: &'static str) -> Option<Passage<'_>> {
        Some(Box::pin(std::future::ready(Ok(()))))
    }
}

/// Turns one kind of call back.
#[derive(Debug)]
struct Without(&'static str);

impl Gate for Without {
    fn enter(&self, verb: &'static str) -> Option<Passage<'_>> {
        let failure = Err(StoreError::retryable("it is turned back"));
        (verb == self.0).then(|| Box::pin(std::future::ready(failure)) as Passage<'_>)
    }

    fn leave(&self, _verb: &'static str) -> Option<Passage<'_>> {
        None
    }
}

/// A fresh memory behind something, with a hand on its clock.
fn subject<S: Store + 'static>(wrap: impl Fn(Arc<MemoryStore>, &Clockwork) -> S) -> Subject {
    let clockwork = Clockwork::new(START);
    let (clock, hands) = (clockwork.clone(), clockwork.clone());
    let memory = Arc::new(MemoryStore::new(4, Arc::new(move || clock.time())));
    let store = wrap(memory, &clockwork);
    let pass = move |time: SignedDuration| hands.pass(time);
    Subject::new(Arc::new(store), pass)
}

fn luck() -> Arc<Luck> {
    Arc::new(Luck::new(Profile::even()))
}

fn tapped(memory: Arc<MemoryStore>, clockwork: &Clockwork) -> Gated<Tap> {
    let checker = Checker::new(clockwork.clone(), Files::default(), luck());
    let tap = Tap::new(Arc::new(Mutex::new(checker)), Arc::clone(&memory), None);
    Gated::new(memory, tap)
}

#[test]
fn the_contract_is_kept_behind_an_open_gate() {
    check(|| subject(|memory, _| Gated::new(memory, Open)));
}

#[test]
fn the_contract_is_kept_behind_the_tap() {
    check(|| subject(tapped));
}

#[test]
fn the_contract_is_kept_by_what_instances_see_in_good_weather() {
    check(|| {
        subject(|memory, clockwork| {
            let clocks = (clockwork.clone(), clockwork.process(1));
            let road = Road::new(clocks, luck(), Random::of(1, "road"), Arc::new(|| {}));
            Gated::new(Arc::new(tapped(memory, clockwork)), road)
        })
    });
}

#[test]
fn a_gate_that_turns_calls_back_breaks_promises() {
    let checked = std::panic::catch_unwind(|| {
        check(|| subject(|memory, _| Gated::new(memory, Without("renew"))));
    });
    let text = *checked.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("\n  lease::") && !text.contains("\n  ledger::"), "{text}");
}
