//! `/healthz`: do the loops come round? `/readyz`: can it do its work now?
//!
//! A process that is not healthy should be ended and started again; one that is not ready should be waited
//! for. So what comes and goes by itself (starting, stopping, a store that does not answer) is not ready,
//! and only a loop that stands still is not healthy.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use interlock_answers::{
    ErrorCode,
    model::health::{BeaconAnswer, HealthAnswer, LoopAnswer, ReadinessAnswer, SelfCheckAnswer},
};
use interlock_store::{Shard, Store};
use serde_json::json;
use tokio::time::Instant;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    loops::Standing,
    surface::{Phase, Surface, Wellness},
};

/// A store that takes longer to answer is not ready.
const STORE_ANSWERS_IN: Duration = Duration::from_secs(2);

pub(crate) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(healthz)).routes(routes!(readyz))
}

/// Whether every loop of the process comes round. End the process and start it again when it says 503.
#[utoipa::path(get, path = "/healthz", tag = "about", responses((status = 200, body = HealthAnswer)))]
async fn healthz(State(surface): State<Arc<Surface>>) -> Response {
    let standing = surface.loops.look(Instant::now());
    let loops: Vec<LoopAnswer> = standing.iter().map(shown).collect();
    let own = own(&surface.wellness());
    match late(&standing) {
        None => Json(HealthAnswer { status: "ok".to_owned(), loops, own }).into_response(),
        Some(error) => error.with("loops", json!(loops)).with("self", json!(own)).into_response(),
    }
}

/// What is wrong is for anybody to see; who hears of it is not, so beacons are only numbered.
fn own(wellness: &Wellness) -> SelfCheckAnswer {
    let beacons = wellness.beacons.iter().map(|beacon| BeaconAnswer {
        answered_seconds_ago: beacon.answered_ago.map(|ago| ago.as_secs()),
        failing: beacon.error.is_some(),
    });
    SelfCheckAnswer { complaints: wellness.complaints.clone(), beacons: beacons.collect() }
}

fn shown(standing: &Standing) -> LoopAnswer {
    LoopAnswer {
        name: standing.name.to_owned(),
        still_for_seconds: standing.still_for.as_secs_f64(),
        bound_seconds: standing.bound.as_secs_f64(),
        late: standing.is_late(),
    }
}

fn late(standing: &[Standing]) -> Option<ApiError> {
    let late = standing.iter().filter(|standing| standing.is_late()).map(|standing| {
        let (still, bound) = (standing.still_for.as_secs(), standing.bound.as_secs());
        format!("the loop `{}` has made no progress for {still} s (bound {bound} s)", standing.name)
    });
    let late: Vec<_> = late.collect();
    let hint = "End the process and start it again; running jobs go on and are taken up.";
    (!late.is_empty()).then(|| ApiError::new(ErrorCode::LoopLate, late.join("; "), hint))
}

/// Whether the process can do its work now: it has started, does not stop, and its store answers.
#[utoipa::path(get, path = "/readyz", tag = "about", responses((status = 200, body = ReadinessAnswer)))]
async fn readyz(State(surface): State<Arc<Surface>>) -> Response {
    let not_ready = match surface.phase() {
        Phase::Starting(busy) => {
            let message = format!("it is starting: {busy}");
            Some(ApiError::new(ErrorCode::Starting, message, "Ask again in a moment."))
        }
        Phase::Stopping(waiting) => {
            let message = format!("it is stopping: {waiting}");
            Some(ApiError::new(ErrorCode::Stopping, message, "Ask another instance."))
        }
        // The lease is renewed by the engine's loop and lasts as long as that loop's bound: a loop that is
        // not late holds it, one that lost it has ended.
        Phase::Serving => late(&surface.loops.look(Instant::now())),
    };
    let not_ready = match not_ready {
        None => store_answers(surface.store.get()).await.err(),
        found => found,
    };
    match not_ready {
        None => Json(ReadinessAnswer { status: "ready".to_owned() }).into_response(),
        Some(error) => error.into_response(),
    }
}

async fn store_answers(store: Option<&Arc<dyn Store>>) -> Result<(), ApiError> {
    let refused = |reason: String| {
        let hint = "`interlock doctor` looks closer.";
        ApiError::new(ErrorCode::StoreUnreachable, format!("the store: {reason}"), hint)
    };
    let Some(store) = store else { return Err(refused("it is not open".to_owned())) };
    // Where there is a roll it stands where the leases do. A part of the other shards may be away: whoever works on the rest is
    // ready for that.
    let asked = async {
        match store.roll().await? {
            Some(_roll) => Ok(()),
            None => store.agenda(Shard(0), None, 1).await.map(drop),
        }
    };
    match tokio::time::timeout(STORE_ANSWERS_IN, asked).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(refused(error.message)),
        Err(_elapsed) => Err(refused(format!("no answer in {} s", STORE_ANSWERS_IN.as_secs()))),
    }
}
