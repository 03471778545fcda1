//! A service on tokio: its workers are watched from outside, each of its loops has a watch, and its heartbeat goes wherever the
//! environment says (a supervisor, systemd, both or neither).

use std::time::Duration;

use interlock_liveness::{Ladder, Monitor, Systemd, heartbeat::inherited};

#[expect(clippy::disallowed_methods, reason = "a program of its own reads its own environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = Monitor::builder();
    for carrier in inherited(variable)? {
        builder = builder.beat(carrier);
    }
    if let Some(systemd) = Systemd::from_variables(variable)? {
        builder = builder.beat(systemd);
    }
    let monitor = builder.start()?;
    let handle = tokio::runtime::Handle::current();
    let _workers = monitor.watch_runtime("main", &handle, Duration::from_secs(5))?;
    let ladder = Ladder::hard(Duration::from_secs(10), Duration::from_secs(40));
    let watch = monitor.watch("poller", ladder).register()?;
    let poller = tokio::spawn(async move {
        watch.arm();
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            watch.kick();
        }
    });
    poller.await?;
    assert!(monitor.probe().is_live());
    Ok(())
}
