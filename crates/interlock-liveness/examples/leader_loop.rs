//! A leader: it writes only under its term, and loses the term before anything else when it hangs.

use std::time::Duration;

use interlock_liveness::{BootInstant, FenceCell, Ladder, Monitor, Rung};

const LEASE: Duration = Duration::from_secs(15);
const LONGEST_WRITE: Duration = Duration::from_secs(2);

/// The store: it hands out tokens that only grow, and refuses whoever has an old one.
#[derive(Default)]
struct Store {
    token: u64,
    value: u64,
}

impl Store {
    fn acquire(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    fn write(&mut self, token: u64, value: u64) -> Result<(), &'static str> {
        if token < self.token {
            return Err("somebody else leads");
        }
        self.value = value;
        Ok(())
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let monitor = Monitor::builder().start()?;
    let fence = FenceCell::default();
    let ladder = Ladder::hard(Duration::from_secs(5), LEASE);
    let watch = monitor
        .watch("leader", ladder)
        .guards(&fence)
        // Give the lease back, so that the next leader need not wait. The term is void already, and if this hangs nothing
        // waits for it.
        .on(Rung::Release, |_expiry| {})
        .register()?;
    let mut store = Store::default();
    // Before asking: what the answer takes is not ours.
    let asked = BootInstant::now();
    let term = fence.grant(store.acquire(), asked.after(LEASE))?;
    watch.arm();
    for round in 0..10 {
        let permit = term.check(LONGEST_WRITE)?;
        store.write(permit.token(), round)?;
        // Only after a successful round.
        watch.kick();
        term.extend(BootInstant::now().after(LEASE))?;
    }
    assert_eq!(store.value, 9);
    fence.revoke();
    assert!(term.check(LONGEST_WRITE).is_err());
    Ok(())
}
