//! The beacons: addresses that expect to be called while everything is well, and raise an alarm when they are not.

use std::time::Duration;

use interlock_api::BeaconStanding;
use interlock_config::server::Beacon;
use interlock_core::pipeline::Secret;
use interlock_engine::wellness::Calls;
use interlock_trigger::web::{Call, Web, host_of};
use jiff::SignedDuration;
use tokio::{task::JoinHandle, time::Instant};

/// How long a call may take.
const CALL_IN: SignedDuration = SignedDuration::from_secs(10);

/// The beacons of a project.
pub(crate) struct Beacons {
    web: Web,
    all: Vec<Light>,
}

/// One of them.
struct Light {
    url: Secret,
    /// All of the address that may be shown.
    host: String,
    calls: Calls,
    call: Option<JoinHandle<Result<(), String>>>,
    answered_at: Option<Instant>,
    error: Option<String>,
}

impl Beacons {
    pub(crate) fn new(declared: &[Beacon], web: Web) -> Self {
        let all = declared.iter().map(|beacon| Light {
            url: beacon.url.clone(),
            host: host_of(beacon.url.expose()),
            calls: Calls::every(
                Duration::try_from(beacon.interval).unwrap_or(Duration::from_mins(1)),
            ),
            call: None,
            answered_at: None,
            error: None,
        });
        Self { web, all: all.collect() }
    }

    /// Calls those whose time has come.
    pub(crate) fn call(&mut self, now: Duration) {
        for light in &mut self.all {
            if light.call.is_none() && light.calls.is_time(now) {
                light.call = Some(tokio::spawn(call(self.web.clone(), light.url.clone())));
            }
        }
    }

    /// Takes up what came of calls.
    pub(crate) async fn take_up(&mut self, now: Instant) {
        for light in &mut self.all {
            if let Some(call) = light.call.take_if(|call| call.is_finished()) {
                light.answered(call.await.unwrap_or_else(|broken| Err(broken.to_string())), now);
            }
        }
    }

    /// How each of them stands, without what is secret.
    pub(crate) fn standing(&self, now: Instant) -> Vec<BeaconStanding> {
        let standing = self.all.iter().map(|light| BeaconStanding {
            host: light.host.clone(),
            answered_ago: light.answered_at.map(|at| now.saturating_duration_since(at)),
            error: light.error.clone(),
        });
        standing.collect()
    }
}

impl Light {
    fn answered(&mut self, answer: Result<(), String>, now: Instant) {
        match answer {
            Ok(()) => {
                if self.error.take().is_some() {
                    tracing::info!("the beacon {} answers again", self.host);
                }
                self.answered_at = Some(now);
            }
            Err(error) => {
                if self.error.is_none() {
                    tracing::warn!("the beacon {} cannot be called: {error}", self.host);
                }
                self.error = Some(error);
            }
        }
    }
}

async fn call(web: Web, url: Secret) -> Result<(), String> {
    let call = Call {
        method: "GET".to_owned(),
        url: url.expose().to_owned(),
        headers: vec![],
        body: None,
        timeout: CALL_IN,
    };
    let answer = web.send(&call).await.map_err(|failure| failure.message)?;
    if answer.is_success() { Ok(()) } else { Err(answer.sentence()) }
}
