//! Tokens, for those who may change who may do what.

use std::sync::Arc;

use axum::Json;
use interlock_answers::{
    Listing,
    model::{page::PageQuery, token::TokenAnswer},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(tokens))
}

/// Tokens that the store keeps, by name. What opens anything is not shown.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "system", params(PageQuery),
    responses((status = 200, body = Listing<TokenAnswer>)))]
async fn tokens(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<PageQuery>,
) -> Result<Json<Listing<TokenAnswer>>, ApiError> {
    Ok(Json(source.reader().tokens(&asked).await?))
}
