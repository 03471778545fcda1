//! Routes that only read, one file for each thing that is asked about.

mod backfill;
mod coverage;
pub(crate) mod doctor;
mod event;
mod fleet;
mod incident;
mod instance;
mod log;
mod next_slot;
mod pause;
mod pipeline;
mod readiness;
mod run;
mod sensor;
mod silence;
mod slot;
mod token;
mod watermark;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;

use crate::surface::Surface;

/// Those for everybody who may look.
pub(crate) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default()
        .merge(backfill::routes())
        .merge(coverage::routes())
        .merge(event::routes())
        .merge(fleet::routes())
        .merge(incident::routes())
        .merge(doctor::routes())
        .merge(instance::routes())
        .merge(log::routes())
        .merge(next_slot::routes())
        .merge(pause::routes())
        .merge(pipeline::routes())
        .merge(readiness::routes())
        .merge(run::routes())
        .merge(sensor::routes())
        .merge(silence::routes())
        .merge(slot::routes())
        .merge(watermark::routes())
}

/// Those for other instances, which sign what they ask.
pub(crate) fn instance_routes() -> OpenApiRouter<Arc<Surface>> {
    log::instance_routes()
}

/// Those about who may do what.
pub(crate) fn admin_routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().merge(token::routes())
}
