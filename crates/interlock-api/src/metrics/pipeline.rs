//! Metrics of single pipelines, which are asked for by name.

use std::sync::Arc;

use interlock_answers::{
    ErrorCode, PipelineGauge, PipelineGauges, Reader, model::fleet::MetricsQuery,
};
use interlock_store::block_on;

use crate::{desk::refused, error::ApiError, exposition::Page, surface::Surface};

/// Writes those of the pipelines that are asked for.
pub(super) async fn write(
    surface: &Arc<Surface>,
    asked: MetricsQuery,
    page: &mut Page,
) -> Result<(), ApiError> {
    let store = Arc::clone(surface.open_store()?);
    let declarations = surface.declarations.get().cloned().ok_or_else(ApiError::starting)?;
    let now = store.now().await.map_err(refused)?;
    let fleet = surface.asked_fleet().await.clone();
    let permit = Arc::clone(&surface.fleet_pages).acquire_owned().await;
    let work = move || {
        let _permit = permit;
        let reader = Reader { store: &*store, declarations: &*declarations, now };
        block_on(reader.pipeline_gauges(&fleet, &asked.pipelines))
    };
    let PipelineGauges { pipelines, left_out } =
        tokio::task::spawn_blocking(work).await.map_err(|broken| {
            let message = format!("the pipelines were not measured: {broken}");
            ApiError::new(ErrorCode::StoreUnreachable, message, "Try again.")
        })??;
    let mut gauges = |name, help, value: &dyn Fn(&PipelineGauge) -> Option<f64>| {
        let series = pipelines.iter().filter_map(|it| Some((it.pipeline.as_str(), value(it)?)));
        page.gauges(name, help, "pipeline", series);
    };
    #[expect(clippy::cast_precision_loss, reason = "seconds and counts are far below 2^53")]
    let number = |number: i64| number as f64;
    gauges(
        "interlock_pipeline_overdue_seconds",
        "For how long its oldest slot is due that has not completed; 0 when all is well.",
        &|it| Some(number(it.overdue_seconds)),
    );
    gauges(
        "interlock_pipeline_last_success_timestamp_seconds",
        "When a run last completed.",
        &|it| it.last_success.map(number),
    );
    gauges(
        "interlock_pipeline_last_duration_seconds",
        "How long the last completed run took.",
        &|it| it.last_duration_seconds,
    );
    gauges("interlock_pipeline_open_incidents", "Incidents that are not resolved.", &|it| {
        Some(number(it.open_incidents as i64))
    });
    let help = "Pipelines that were asked for and are beyond the first thousand.";
    page.gauge("interlock_pipelines_left_out", help, None, left_out);
    Ok(())
}
