//! Sensors: facts about data.

use std::sync::Arc;

use axum::response::Response;
use interlock_answers::{
    ErrorCode,
    model::request::{RequestAnswer, SensorRequest},
};
use interlock_core::sensor;
use interlock_store::record::InboxRecord;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    body::JsonBody,
    error::ApiError,
    question::AskedPath,
    surface::Surface,
    writing::{AskedWrite, WriteRequest},
};

/// Bytes of a sensor's key.
const SENSOR_KEY_MAX: usize = 200;

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(put_sensor))
}

/// Report a sensor.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/sensors/{key}", tag = "sensors",
    params(("pipeline" = String, Path), ("key" = String, Path)), request_body = SensorRequest,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn put_sensor(
    AskedPath((pipeline, key)): AskedPath<(String, String)>,
    request: WriteRequest,
    JsonBody { asked, .. }: JsonBody<SensorRequest>,
) -> Result<Response, ApiError> {
    if key.is_empty() || key.len() > SENSOR_KEY_MAX || key.chars().any(char::is_control) {
        let hint = format!("It has 1 to {SENSOR_KEY_MAX} bytes and no control characters.");
        let message = "the sensor's key is not accepted";
        return Err(ApiError::new(ErrorCode::BadSensorKey, message, hint));
    }
    let SensorRequest { value, at } = asked;
    let has_time = at.is_some();
    let at = match at {
        Some(at) => sensor::parse_time(&at).map_err(|error| {
            ApiError::new(ErrorCode::BadTime, error.to_string(), "Leave `at` out for now.")
        })?,
        None => request.now().await?,
    };
    let pipeline = request.pipeline(&pipeline).await?;
    let record = InboxRecord::Sensor { key, value, at };
    let fingerprint = record.fingerprint().map(|mut text| {
        // A repeat gets another time from us.
        if !has_time {
            text.truncate(text.find('.').unwrap_or(text.len()));
        }
        text
    });
    request.send(&pipeline, AskedWrite { record, fingerprint }).await
}
