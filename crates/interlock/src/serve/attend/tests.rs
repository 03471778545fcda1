//! An engine that does not end, and real signals to this very process.

use std::{process, time::Instant};

use interlock_wait::{BOUND, CommandWithin as _};

use super::*;

/// Attends an engine that never ends, and sends SIGTERM again and again until it is left.
fn leave_a_hung_engine(signals: usize) -> Duration {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let took = runtime.block_on(async {
        let mut ears = Signals::listen().unwrap();
        let hung = |stop| async {
            asked(stop).await;
            std::future::pending().await
        };
        let parties = Parties {
            surface: Arc::new(Surface::new("test")),
            interface: None,
            engine: Some(Loop::begin(&Handle::current(), hung)),
            watchdog: None,
            sentinel: None,
            guard: None,
            reload: mpsc::unbounded_channel().0,
            runtime: Beside::new().unwrap(),
            held: Held::default(),
        };
        let surface = Arc::clone(&parties.surface);
        let sending = tokio::spawn(async move {
            for _ in 0..signals {
                let pid = process::id().to_string();
                let sent = process::Command::new("kill").args(["-TERM", &pid]).status_within(BOUND);
                assert!(sent.unwrap().success());
                // Two at once would be one: the next is sent when the first was heard.
                let is_heard = async {
                    // Bounded: the timeout below ends it.
                    while !matches!(surface.phase(), Phase::Stopping(_)) {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                tokio::time::timeout(BOUND, is_heard).await.expect("the signal is heard");
            }
        });
        let began = now();
        assert_eq!(parties.attend(&mut ears).await.unwrap(), STOPPED);
        sending.await.unwrap();
        began.elapsed()
    });
    runtime.shutdown_background();
    took
}

#[expect(clippy::disallowed_methods, reason = "how long it really takes is what is tested")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_second_signal_ends_at_once() {
    let took = leave_a_hung_engine(2);
    assert!(took < END_IN, "it took {took:?}");
}

#[test]
fn an_engine_that_does_not_end_is_left_after_the_bound() {
    let took = leave_a_hung_engine(1);
    assert!(took >= END_IN && took < END_IN * 3, "it took {took:?}");
}
