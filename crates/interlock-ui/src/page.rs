//! The pages, one file each.

pub(crate) mod backfill;
mod fleet;
pub(crate) mod incident;
mod login;
pub(crate) mod pipeline;
mod run;
mod slot;
mod system;
pub(crate) mod trouble;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::header::ACCEPT,
    response::{IntoResponse as _, Response},
    routing::get,
};
use tower_service::Service as _;

use crate::{trouble::Trouble, visit::PagesState};

/// Where they are.
pub(crate) fn routes() -> Router<Arc<PagesState>> {
    Router::new()
        .route("/", get(fleet::fleet))
        .route("/login", get(login::login))
        .route("/pipelines/{pipeline}", get(pipeline::pipeline))
        .route("/pipelines/{pipeline}/slots/{schedule}/{instant}", get(slot::slot))
        .route("/pipelines/{pipeline}/resume", get(pipeline::resume))
        .route("/pipelines/{pipeline}/backfill", get(backfill::wizard))
        .route("/pipelines/{pipeline}/backfills/{id}", get(backfill::progress))
        .route("/runs", get(run::runs))
        .route("/runs/{id}", get(run::run))
        .route("/incidents", get(incident::inbox))
        .route("/incidents/{pipeline}/{key}", get(incident::incident))
        .route("/dead-letters", get(incident::dead_letters))
        .route("/silences", get(incident::silences))
        .route("/silences/new", get(incident::silence))
        .route("/backfills", get(backfill::backfills))
        .route("/system", get(system::system))
}

/// There is no such page. Programs get the API's own answer.
pub(crate) async fn not_found(State(state): State<Arc<PagesState>>, request: Request) -> Response {
    let takes_pages =
        |value: &axum::http::HeaderValue| value.to_str().is_ok_and(|it| it.contains("text/html"));
    if request.headers().get_all(ACCEPT).iter().any(takes_pages) {
        return Trouble::not_found(request.uri().path()).into_response();
    }
    let Ok(response) = state.api.clone().call(request).await;
    response
}
