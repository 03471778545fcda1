//! A worker that takes items from a queue: each item is progress, an empty queue is rest.

#![expect(clippy::print_stderr, reason = "an example says what it does")]

use std::{sync::mpsc, time::Duration};

use interlock_liveness::{Deadman, Ladder, Monitor, Phase};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let monitor = Monitor::builder()
        // Without a listener a program that hangs ends without a word.
        .on_event(|event| eprintln!("{event}"))
        // Off unless it is asked for: a process that is stopped, or held by a debugger, is killed by it.
        .deadman(Deadman::Kernel { slack: Duration::from_secs(10) })
        .start()?;
    let ladder = Ladder::hard(Duration::from_secs(30), Duration::from_secs(90));
    let watch = monitor.watch("worker", ladder).register()?;
    let (fetch, store) = (Phase::named("fetch"), Phase::named("store"));
    let (give, items) = mpsc::channel();
    for item in 0..100_u64 {
        give.send(item)?;
    }
    drop(give);
    let mut sum = 0;
    loop {
        // Waiting for work proves nothing, and need not.
        watch.disarm();
        let Ok(item) = items.recv() else { break };
        watch.arm();
        let fetched = {
            let _fetching = watch.phase(fetch);
            item * 2
        };
        let _storing = watch.phase(store);
        sum += fetched;
        // After the work, never before it.
        watch.kick();
    }
    assert_eq!(sum, 9_900);
    Ok(())
}
