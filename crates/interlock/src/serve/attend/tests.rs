//! An engine that does not end, and requests to stop that come in spite of that.
//!
//! The requests are handed in. A real signal would go to every test of this process, and end those that do not listen to it; what a
//! real one does to `serve` is tested with real processes, in `tests/serve`.

use std::time::Instant;

use super::*;

/// Requests that a test makes.
struct Handed(mpsc::UnboundedReceiver<Asked>);

impl Requests for Handed {
    async fn next(&mut self) -> Asked {
        // Bounded: `attend` leaves the engine after its own bound, whatever comes from here.
        match self.0.recv().await {
            Some(asked) => asked,
            None => std::future::pending().await,
        }
    }
}

/// Attends an engine that never ends, and asks it to stop so often until it is left.
fn leave_a_hung_engine(requests: usize) -> Duration {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let took = runtime.block_on(async {
        let (ask, asked_for) = mpsc::unbounded_channel();
        let hung = |stop| async {
            asked(stop).await;
            std::future::pending().await
        };
        let parties = Parties {
            surface: Arc::new(Surface::new("test")),
            interface: None,
            engine: Some(Loop::begin(&Handle::current(), hung)),
            watchdog: None,
            notifier: None,
            stands_in_for: None,
            sentinel: None,
            guard: None,
            reload: mpsc::unbounded_channel().0,
            runtime: Beside::new().unwrap(),
            held: Held::default(),
        };
        for _ in 0..requests {
            ask.send(Asked::Stop("SIGTERM")).unwrap();
        }
        let (surface, began) = (Arc::clone(&parties.surface), now());
        let ended = parties.attend(&mut Handed(asked_for)).await.unwrap();
        assert!(matches!(ended, ServeEnd::Stopped(STOPPED)), "{ended:?}");
        assert!(matches!(surface.phase(), Phase::Stopping(_)), "{:?}", surface.phase());
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
