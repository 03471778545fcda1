//! The fleet.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{Json, extract::State};
use interlock_answers::{
    ErrorCode, Reader,
    model::fleet::{FleetAnswer, FleetQuery},
};
use interlock_store::block_on;
use tokio::time::Instant;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

/// So long it is read for one page; what was not read is said, and read meanwhile.
const READ_FOR: Duration = Duration::from_millis(40);

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(fleet))
}

/// All pipelines or groups of them, each as a row: its state, what became of its slots by time, and what is planned.
#[utoipa::path(get, path = "/api/v1/fleet", tag = "pipelines", params(FleetQuery),
    responses((status = 200, body = FleetAnswer)))]
async fn fleet(
    State(surface): State<Arc<Surface>>,
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<FleetQuery>,
) -> Result<Json<FleetAnswer>, ApiError> {
    let fleet = surface.asked_fleet().await.clone();
    let permit = Arc::clone(&surface.fleet_pages).acquire_owned().await;
    let (store, declarations, now) = source.into_parts();
    // It reads for its rows: on a thread of its own, so that other requests are answered meanwhile.
    let work = move || {
        let _permit = permit;
        // From when it first reads: what came before is not time that a row can do without.
        let began = OnceLock::new();
        let is_time_left = || began.get_or_init(Instant::now).elapsed() < READ_FOR;
        let reader = Reader { store: &*store, declarations: &*declarations, now };
        block_on(reader.fleet(&fleet, &asked, &is_time_left))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => Ok(Json(answer?)),
        Err(broken) => Err(ApiError::new(
            ErrorCode::StoreUnreachable,
            format!("the page was not made: {broken}"),
            "Try again; the log says what happened.",
        )),
    }
}
