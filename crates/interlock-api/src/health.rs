//! `/healthz`: do the loops come round? `/readyz`: can it do its work now?
//!
//! A process that is not healthy should be ended and started again; one that is not ready should be waited
//! for. So what comes and goes by itself (starting, stopping, a store that does not answer) is not ready,
//! and only a loop that stands still is not healthy.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    response::{IntoResponse as _, Response},
    routing::get,
};
use interlock_store::{Shard, Store};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    error::ApiError,
    loops::Standing,
    surface::{Phase, Surface, Wellness},
};

/// A store that takes longer to answer is not ready.
const STORE_ANSWERS_IN: Duration = Duration::from_secs(2);

pub(crate) fn routes() -> Router<Arc<Surface>> {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz))
}

async fn healthz(State(surface): State<Arc<Surface>>) -> Response {
    let standing = surface.loops.look(Instant::now());
    let loops: Vec<Value> = standing.iter().map(shown).collect();
    let wellness = wellness(&surface.wellness());
    match late(&standing) {
        None => {
            let body = json!({ "status": "ok", "loops": loops, "self": wellness });
            Json(body).into_response()
        }
        Some(error) => {
            let mut body = error.body();
            (body["loops"], body["self"]) = (loops.into(), wellness);
            (error.status, Json(body)).into_response()
        }
    }
}

/// What is wrong is for anybody to see; who hears of it is not, so beacons are only numbered.
fn wellness(wellness: &Wellness) -> Value {
    let beacons = wellness.beacons.iter().map(|beacon| {
        let ago = beacon.answered_ago.map(|ago| ago.as_secs());
        json!({ "answeredSecondsAgo": ago, "failing": beacon.error.is_some() })
    });
    json!({ "complaints": wellness.complaints, "beacons": beacons.collect::<Vec<_>>() })
}

fn shown(standing: &Standing) -> Value {
    json!({
        "name": standing.name,
        "stillForSeconds": standing.still_for.as_secs_f64(),
        "boundSeconds": standing.bound.as_secs_f64(),
        "late": standing.is_late(),
    })
}

fn late(standing: &[Standing]) -> Option<ApiError> {
    let late = standing.iter().filter(|standing| standing.is_late()).map(|standing| {
        let (still, bound) = (standing.still_for.as_secs(), standing.bound.as_secs());
        format!("the loop `{}` has not come round for {still} s (bound {bound} s)", standing.name)
    });
    let late: Vec<_> = late.collect();
    let hint = "End the process and start it again; running jobs go on and are taken up.";
    (!late.is_empty()).then(|| ApiError::unavailable("loop_late", late.join("; "), hint))
}

async fn readyz(State(surface): State<Arc<Surface>>) -> Response {
    let not_ready = match surface.phase() {
        Phase::Starting(busy) => {
            let message = format!("it is starting: {busy}");
            Some(ApiError::unavailable("starting", message, "Ask again in a moment."))
        }
        Phase::Stopping(waiting) => {
            let message = format!("it is stopping: {waiting}");
            Some(ApiError::unavailable("stopping", message, "Ask another instance."))
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
        None => Json(json!({ "status": "ready" })).into_response(),
        Some(error) => error.into_response(),
    }
}

async fn store_answers(store: Option<&Arc<dyn Store>>) -> Result<(), ApiError> {
    let refused = |reason: String| {
        let hint = "`interlock doctor` looks closer.";
        ApiError::unavailable("store_unreachable", format!("the store: {reason}"), hint)
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
