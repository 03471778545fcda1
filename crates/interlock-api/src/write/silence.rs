//! Silences: added and removed.

use std::sync::Arc;

use axum::response::Response;
use interlock_answers::{
    model::{plan::SilencePlanRequest, request::RequestAnswer},
    silence_of,
};
use interlock_config::silence::Silence;
use interlock_core::id::{PipelineId, fnv1a};
use interlock_store::record::InboxRecord;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    body::JsonBody,
    error::ApiError,
    plan::ExpectedPlan,
    question::{AskedPath, ReaderSource},
    surface::Surface,
    writing::{AskedWrite, WriteRequest},
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(add_silence)).routes(routes!(remove_silence))
}

/// Keep quiet about some alerts for a while, or at times that come again. What happens is recorded all the same.
#[utoipa::path(post, path = "/api/v1/silences", tag = "silences", request_body = SilencePlanRequest,
    params(("If-Match" = Option<String>, Header, description = "The `ETag` of the plan that is meant.")),
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn add_silence(
    source: ReaderSource,
    request: WriteRequest,
    expected: ExpectedPlan,
    JsonBody { mut asked, fingerprint }: JsonBody<SilencePlanRequest>,
) -> Result<Response, ApiError> {
    if let Some(answer) = request.repeated(&PipelineId::system(), &fingerprint).await? {
        return Ok(answer);
    }
    let now = request.now().await?;
    // The same for the same key, so that a repeat adds no second one.
    let own = || format!("s-{:06x}", fnv1a(request.key.stored.as_bytes()) & 0x00ff_ffff);
    asked.id.get_or_insert_with(own);
    let silence = silence_of(&asked, &request.asker.record.by, now)?;
    if expected.is_given() {
        let by = request.asker.record.by.clone();
        let plan = source.plan(async move |reader| reader.plan_silence(&asked, &by).await).await?;
        expected.check(request.shown_plans(), &plan.plan, &plan)?;
    }
    let said = Some(silence.to_json());
    let Silence { id, by, .. } = silence;
    let record = InboxRecord::Silence { id, silence: said, by };
    request.send(&PipelineId::system(), AskedWrite { record, fingerprint: Some(fingerprint) }).await
}

/// End a silence now.
#[utoipa::path(delete, path = "/api/v1/silences/{id}", tag = "silences", params(("id" = String, Path)),
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn remove_silence(
    AskedPath(id): AskedPath<String>,
    request: WriteRequest,
) -> Result<Response, ApiError> {
    let by = request.asker.record.by.clone();
    let record = InboxRecord::Silence { id, silence: None, by };
    request.send(&PipelineId::system(), AskedWrite { record, fingerprint: None }).await
}
