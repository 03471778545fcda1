//! Instances, and what they own.

use std::sync::Arc;

use axum::Json;
use interlock_answers::{
    Listing,
    model::instance::{InstanceAnswer, ShardAnswer},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{error::ApiError, question::ReaderSource, surface::Surface};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(instances)).routes(routes!(shards))
}

/// The instances that share the store, by name; those that are gone are last.
///
/// Each says what it is like every five seconds; one that has said nothing for fifteen is gone, and listed for a while.
#[utoipa::path(get, path = "/api/v1/instances", tag = "system",
    responses((status = 200, body = Listing<InstanceAnswer>)))]
async fn instances(source: ReaderSource) -> Result<Json<Listing<InstanceAnswer>>, ApiError> {
    Ok(Json(source.reader().instances().await?))
}

/// Every shard, and who owns it.
#[utoipa::path(get, path = "/api/v1/shards", tag = "system",
    responses((status = 200, body = Listing<ShardAnswer>)))]
async fn shards(source: ReaderSource) -> Result<Json<Listing<ShardAnswer>>, ApiError> {
    Ok(Json(source.reader().shards().await?))
}
