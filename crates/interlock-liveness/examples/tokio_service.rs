//! A service on tokio: its workers are watched from outside, each of its loops has a watch, and its heartbeat goes wherever the
//! environment says (a supervisor, systemd, both or neither). Kubernetes asks a thread that no blocked worker can hold up.

#![expect(clippy::print_stderr, reason = "an example says what it does")]

use std::time::Duration;

use interlock_liveness::{Ladder, Monitor, Probes, Systemd, heartbeat::inherited};

#[expect(clippy::disallowed_methods, reason = "a program of its own reads its own environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Blocked workers end nobody by themselves: whoever listens here hears of them.
    let mut builder = Monitor::builder().on_event(|event| eprintln!("{event}"));
    for carrier in inherited(variable)? {
        builder = builder.beat(carrier);
    }
    if let Some(systemd) = Systemd::from_variables(variable)? {
        builder = builder.beat(systemd);
    }
    let monitor = builder.start()?;
    // `/livez` and `/readyz`; a real service has an address that the kubelet knows.
    let probes = Probes::listen("127.0.0.1:0", monitor.probe())?;
    eprintln!("probes are answered at {}", probes.address());
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
    // When the monitor is dropped, systemd hears STOPPING.
    Ok(())
}
