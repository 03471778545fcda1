//! A leader: it writes only under its term, and loses the term before anything else when it hangs.
//!
//! The order when it hangs: the fence is revoked here, at once and whatever else hangs; the lease is given back to the store, so that
//! the next leader need not wait for its end; the process leaves. And whatever the leader still sends, the store refuses: its
//! token is old.

#![expect(clippy::print_stdout, reason = "an example says what it does")]

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::Duration,
};

use interlock_liveness::{BootInstant, FenceCell, Ladder, Monitor, Rung};

const LEASE: Duration = Duration::from_secs(15);
const LONGEST_WRITE: Duration = Duration::from_secs(2);
/// Short, so that the example does not take long: a real one allows several rounds.
const ROUND_MAX: Duration = Duration::from_millis(300);

/// The store: it hands out tokens that only grow, and refuses whoever has an old one.
#[derive(Default)]
struct Store {
    last_token: u64,
    holder: Option<u64>,
    value: u64,
}

impl Store {
    fn acquire(&mut self) -> Result<u64, &'static str> {
        if self.holder.is_some() {
            return Err("somebody leads");
        }
        self.last_token += 1;
        self.holder = Some(self.last_token);
        Ok(self.last_token)
    }

    fn renew(&mut self, token: u64) -> Result<(), &'static str> {
        if self.holder == Some(token) { Ok(()) } else { Err("somebody else leads") }
    }

    /// Of this term only: a later one is not ours to give back.
    fn release(&mut self, token: u64) {
        self.holder = self.holder.filter(|held| *held != token);
    }

    fn write(&mut self, token: u64, value: u64) -> Result<(), &'static str> {
        if token < self.last_token {
            return Err("an old token: somebody else has led since");
        }
        self.value = value;
        Ok(())
    }
}

fn locked(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let monitor = Monitor::builder().on_event(|event| println!("{event}")).start()?;
    let store = Arc::new(Mutex::new(Store::default()));
    let fence = FenceCell::default();
    // Before asking: what the answer takes is not ours.
    let asked = BootInstant::now();
    let token = locked(&store).acquire()?;
    let term = fence.grant(token, asked.after(LEASE))?;
    println!("leading, with token {token}");
    let (tell, released) = mpsc::channel();
    let given_back = Arc::clone(&store);
    // A real leader uses `Ladder::hard`, whose last step ends the process.
    let watch = monitor
        .watch("leader", Ladder::soft(ROUND_MAX))
        .guards(&fence)
        // On a thread of its own. The term is void already, and if this hangs nothing waits for it.
        .on(Rung::Release, move |expiry| {
            locked(&given_back).release(token);
            let _nobody_waits = tell.send(expiry.to_string());
        })
        .register()?;
    watch.arm();
    for round in 0..10 {
        let permit = term.check(LONGEST_WRITE)?;
        locked(&store).write(permit.token(), round)?;
        // Only after a successful round.
        watch.kick();
        let asked = BootInstant::now();
        locked(&store).renew(token)?;
        term.extend(asked.after(LEASE))?;
    }
    println!("wrote ten rounds under it");
    // Now it hangs: no kick comes.
    println!("hung: {}; the lease is given back", released.recv()?);
    assert!(term.check(LONGEST_WRITE).is_err(), "the fence was revoked before that");
    println!("what it wants to write is stopped by its own fence");
    let next = locked(&store).acquire()?;
    println!("somebody else leads, with token {next}");
    let stale = locked(&store).write(token, 99);
    println!(
        "what it sent before it knew is refused by the store: {}",
        stale.expect_err("it is old")
    );
    assert_eq!(locked(&store).value, 9);
    Ok(())
}
