//! Routes that change something, one file for each thing that is changed. What is asked for goes through the inbox (`writing`).

mod alert;
mod backfill;
mod incident;
mod pipeline;
mod report;
mod request;
mod run;
mod sensor;
mod silence;
mod slot;
mod token;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;

use crate::{
    access::{Need, guarded},
    surface::Surface,
};

/// All of them, each with the scope that it needs.
pub(crate) fn routes() -> OpenApiRouter<Arc<Surface>> {
    let acting = OpenApiRouter::default()
        .merge(alert::routes())
        .merge(backfill::routes())
        .merge(incident::routes())
        .merge(pipeline::routes())
        .merge(run::routes())
        .merge(sensor::routes())
        .merge(silence::routes())
        .merge(slot::routes());
    OpenApiRouter::default()
        .merge(guarded(report::routes(), Need::Ping))
        .merge(guarded(request::routes(), Need::View))
        .merge(guarded(acting, Need::Operate))
        .merge(guarded(token::routes(), Need::Administer))
}
