//! What many deliveries cost the store: a few writes for all of them, and no more than one look at each pipeline (S17).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use interlock_engine::{Notifier, NotifierParts, Patience, vitals::Pulse};
use interlock_sim::gated::{Gate, Gated, Passage};
use interlock_store::Store;

use crate::{
    holding::put_openings,
    incidents::{Stage, takes},
};

const COUNT: usize = 1_000;

/// Counts calls, and lets all of them through.
#[derive(Debug, Default, Clone)]
struct CallCounter(Arc<Mutex<BTreeMap<&'static str, usize>>>);

impl Gate for CallCounter {
    fn enter(&self, verb: &'static str) -> Option<Passage<'_>> {
        *self.0.lock().unwrap().entry(verb).or_default() += 1;
        None
    }

    fn leave(&self, _verb: &'static str) -> Option<Passage<'_>> {
        None
    }
}

#[test]
fn a_thousand_deliveries_are_a_few_writes_of_the_store() {
    let stage = Stage::new(&[("hook", takes)]);
    put_openings(&stage, COUNT);
    let counter = CallCounter::default();
    let store = Gated::new(Arc::clone(&stage.store) as Arc<dyn Store>, counter.clone());
    let notifier = Notifier::new(NotifierParts {
        world: Arc::new(stage.world.clone()),
        store: Arc::new(store),
        channels: Arc::new(stage.receivers.clone()),
        patience: Patience::default(),
        vitals: Arc::default(),
        pulse: Pulse::default(),
    });
    let mut running = Box::pin(notifier.run(Box::pin(std::future::pending())));
    let ended =
        stage.world.run(running.as_mut(), Stage::end(0) + jiff::SignedDuration::from_secs(3));
    assert!(ended.is_none(), "it goes on");
    let got = stage.receivers.got.lock().unwrap().clone();
    let keys: BTreeSet<&str> = got.iter().map(|(_, key, _)| key.as_str()).collect();
    assert_eq!((got.len(), keys.len()), (COUNT, COUNT), "each once");
    let calls = counter.0.lock().unwrap().clone();
    let made = |verb: &str| calls.get(verb).copied().unwrap_or(0);
    // One for the routing, one for each round of tries; it looks twice a second whether there is more.
    assert!(made("settle_many") <= 40, "{calls:?}");
    assert!(made("claim") <= 12, "{calls:?}");
    assert!(made("read_many") <= 20, "{calls:?}");
    let others: usize = calls.values().sum::<usize>() - made("settle_many") - made("claim");
    assert!(others <= 40, "{calls:?}");
}
