//! What forms ask for: each is handed to the API, and leads back to a page that says what came of it.
//!
//! A form works without script; what another site sends is refused by the API, which sees where the request came from.

use std::sync::Arc;

use axum::{
    Router,
    extract::Path,
    response::Response,
    routing::{get, post},
};
use interlock_answers::model::{
    pipeline::PipelineDetailAnswer,
    plan::ResumePlanRequest,
    request::{
        CancelBackfillRequest, CancelRequest, IncidentRequest, PauseRequest, RerunRequest,
        RunRequest,
    },
};
use serde_json::{Value, json};

use crate::{
    api::Outcome,
    dress::see_other,
    form::Form,
    page::{backfill, pipeline},
    query::{Query, part},
    trouble::Trouble,
    visit::{PagesState, Visit},
};

pub(crate) fn routes() -> Router<Arc<PagesState>> {
    Router::new()
        .route("/pipelines/{pipeline}/run", post(run))
        .route("/pipelines/{pipeline}/pause", post(pause))
        .route("/pipelines/{pipeline}/resume", post(resume))
        .route("/pipelines/{pipeline}/catchup", post(catch_up))
        .route("/pipelines/{pipeline}/catchup/stop", post(stop_catchup))
        .route("/pipelines/{pipeline}/backfill", post(start_backfill))
        .route("/pipelines/{pipeline}/backfills/{id}", post(change_backfill))
        .route("/pipelines/{pipeline}/slots/{schedule}/{instant}/run", post(run_slot))
        .route("/pipelines/{pipeline}/slots/{schedule}/{instant}/rerun", post(rerun))
        .route("/pipelines/{pipeline}/slots/{schedule}/{instant}/cancel", post(cancel))
        .route("/backfill", get(choose_backfill))
        .route("/incidents", post(incidents))
        .route("/incidents/{pipeline}/{key}", post(incident))
        .route("/incidents/{pipeline}/{key}/send", post(send_again))
        .route("/dead-letters", post(send_dead_letter))
        .route("/silences", post(silence))
        .route("/silences/end", post(end_silence))
        .route("/system/bark", post(bark))
}

/// Back to a page, which says what came of it.
fn back(place: &str, outcome: &Outcome, word: &str) -> Response {
    let word = match outcome {
        Outcome::Done(_) => word,
        Outcome::Accepted => "accepted",
    };
    see_other(&Query::default().and("done", word).at(place))
}

fn api_pipeline(pipeline: &str) -> String {
    format!("/api/v1/pipelines/{}", part(pipeline))
}

fn page_pipeline(pipeline: &str) -> String {
    format!("/pipelines/{}", part(pipeline))
}

/// A slot, as paths name it.
type SlotPath = Path<(String, String, String)>;

async fn run(visit: Visit, Path(pipeline): Path<String>, form: Form) -> Result<Response, Trouble> {
    let asked = RunRequest { force: form.is_ticked("force"), ..RunRequest::default() };
    let done = visit.api.act(&format!("{}/run", api_pipeline(&pipeline)), &asked).await?;
    Ok(back(&page_pipeline(&pipeline), &done, "run"))
}

async fn run_slot(
    visit: Visit,
    Path((pipeline, schedule, at)): SlotPath,
    form: Form,
) -> Result<Response, Trouble> {
    let slot = Some(format!("{schedule}/{at}"));
    let asked = RunRequest { slot, force: form.is_ticked("force"), ..RunRequest::default() };
    let done = visit.api.act(&format!("{}/run", api_pipeline(&pipeline)), &asked).await?;
    Ok(back(&slot_page(&pipeline, &schedule, &at), &done, "slot-run"))
}

async fn rerun(
    visit: Visit,
    Path((pipeline, schedule, at)): SlotPath,
    form: Form,
) -> Result<Response, Trouble> {
    let asked = RerunRequest { reason: form.needed("reason", "Why")?.to_owned() };
    let path = format!("{}/slots/{}/{}/rerun", api_pipeline(&pipeline), part(&schedule), part(&at));
    let done = visit.api.act(&path, &asked).await?;
    Ok(back(&slot_page(&pipeline, &schedule, &at), &done, "rerun"))
}

async fn cancel(
    visit: Visit,
    Path((pipeline, schedule, at)): SlotPath,
    form: Form,
) -> Result<Response, Trouble> {
    let asked = CancelRequest { reason: form.text("reason").map(str::to_owned) };
    let path =
        format!("{}/slots/{}/{}/cancel", api_pipeline(&pipeline), part(&schedule), part(&at));
    let done = visit.api.act(&path, &asked).await?;
    Ok(back(&slot_page(&pipeline, &schedule, &at), &done, "cancelled"))
}

fn slot_page(pipeline: &str, schedule: &str, at: &str) -> String {
    format!("{}/slots/{}/{}", page_pipeline(pipeline), part(schedule), part(at))
}

async fn pause(
    visit: Visit,
    Path(pipeline): Path<String>,
    form: Form,
) -> Result<Response, Trouble> {
    let zone = visit.times.zone();
    let until = form.text("until").map(|text| {
        zone.read(text)
            .ok_or_else(|| Trouble::unusable("Until", "A time looks like 2026-10-25 09:41."))
    });
    let asked = PauseRequest {
        reason: form.needed("reason", "Why")?.to_owned(),
        until: until.transpose()?,
    };
    let done = visit.api.act(&format!("{}/pause", api_pipeline(&pipeline)), &asked).await?;
    Ok(back(&page_pipeline(&pipeline), &done, "paused"))
}

async fn resume(
    visit: Visit,
    Path(pipeline): Path<String>,
    form: Form,
) -> Result<Response, Trouble> {
    let asked = ResumePlanRequest { catchup: form.text("catchup").map(str::to_owned) };
    let path = format!("{}/resume", api_pipeline(&pipeline));
    let done = visit.api.apply(&path, &asked, form.text("plan").unwrap_or("*")).await;
    match done {
        Err(refusal) if refusal.is_another_plan() => {
            pipeline::draw_resume(&visit, &pipeline, &form.0, Some(refusal)).await
        }
        done => Ok(back(&page_pipeline(&pipeline), &done?, "resumed")),
    }
}

async fn catch_up(visit: Visit, Path(pipeline): Path<String>) -> Result<Response, Trouble> {
    let done = visit.api.act(&format!("{}/catchup", api_pipeline(&pipeline)), &json!({})).await?;
    Ok(back(&page_pipeline(&pipeline), &done, "caught-up"))
}

async fn stop_catchup(
    visit: Visit,
    Path(pipeline): Path<String>,
    form: Form,
) -> Result<Response, Trouble> {
    let asked = CancelRequest { reason: form.text("reason").map(str::to_owned) };
    let done = visit.api.act(&format!("{}/catchup/stop", api_pipeline(&pipeline)), &asked).await?;
    Ok(back(&page_pipeline(&pipeline), &done, "catchup-stopped"))
}

/// From the list of backfills to the wizard of a pipeline.
async fn choose_backfill(visit: Visit) -> Result<Response, Trouble> {
    let pipeline = visit.query.get("pipeline").map(str::trim);
    let pipeline = pipeline.ok_or_else(|| Trouble::unusable("the pipeline", "Name one."))?;
    Ok(see_other(&format!("{}/backfill", page_pipeline(pipeline))))
}

async fn start_backfill(
    visit: Visit,
    Path(pipeline): Path<String>,
    form: Form,
) -> Result<Response, Trouble> {
    let detail: PipelineDetailAnswer = visit.api.get(&api_pipeline(&pipeline)).await?;
    let zone = backfill::zone_of(&visit, &detail, form.text("schedule"));
    let asked = backfill::request(&backfill::fields(&form.0, &zone, visit.times.now), &zone)?;
    let etag = form.needed("plan", "the plan")?;
    let done =
        visit.api.apply(&format!("{}/backfills", api_pipeline(&pipeline)), &asked, etag).await;
    match done {
        Err(refusal) if refusal.is_another_plan() => {
            let before = form.text("total").and_then(|text| text.parse().ok()).unwrap_or(0);
            let fields = form.0.without("plan").without("total");
            backfill::draw(&visit, &pipeline, (fields, true), Some((before, refusal))).await
        }
        Err(refusal) => Err(refusal),
        Ok(Outcome::Accepted) => Ok(back("/backfills", &Outcome::Accepted, "accepted")),
        Ok(Outcome::Done(answer)) => {
            let id = answer
                .pointer("/result/backfill")
                .or_else(|| answer.pointer("/result/id"))
                .and_then(Value::as_u64);
            let place = id.map_or_else(
                || Query::default().and("pipeline", &pipeline).at("/backfills"),
                |id| format!("{}/backfills/{id}", page_pipeline(&pipeline)),
            );
            Ok(see_other(&place))
        }
    }
}

async fn change_backfill(
    visit: Visit,
    Path((pipeline, id)): Path<(String, u64)>,
    form: Form,
) -> Result<Response, Trouble> {
    let act = form.needed("act", "what is asked for")?;
    if !["pause", "resume", "cancel"].contains(&act) {
        return Err(Trouble::bad("what is asked for"));
    }
    let path = format!("{}/backfills/{id}/{act}", api_pipeline(&pipeline));
    let done = if act == "cancel" {
        let reason = form.text("reason").map(str::to_owned);
        let asked = CancelBackfillRequest { reason, ends_runs: form.is_ticked("endsRuns") };
        visit.api.act(&path, &asked).await?
    } else {
        visit.api.act(&path, &json!({})).await?
    };
    Ok(back(&format!("{}/backfills/{id}", page_pipeline(&pipeline)), &done, "backfill"))
}

/// What a hand is called in an address and when it is done.
fn hand(form: &Form) -> Result<(&'static str, &'static str), Trouble> {
    match form.text("hand") {
        Some("acknowledge") => Ok(("acknowledge", "acknowledged")),
        Some("resolve") => Ok(("resolve", "resolved")),
        Some("note") => Ok(("note", "noted")),
        _ => Err(Trouble::bad("what is asked for")),
    }
}

async fn incident(
    visit: Visit,
    Path((pipeline, key)): Path<(String, String)>,
    form: Form,
) -> Result<Response, Trouble> {
    let (act, word) = hand(&form)?;
    let asked = IncidentRequest { note: form.text("note").map(str::to_owned) };
    let place = format!("/incidents/{}/{}", part(&pipeline), part(&key));
    let done = visit.api.act(&format!("/api/v1{place}/{act}"), &asked).await?;
    Ok(back(&place, &done, word))
}

/// Many at once. Those that were dealt with stay so when one cannot be: the page says which.
async fn incidents(visit: Visit, form: Form) -> Result<Response, Trouble> {
    let (act, word) = hand(&form)?;
    let asked = IncidentRequest { note: form.text("note").map(str::to_owned) };
    let mut last = None;
    for name in form.0.all("incident") {
        let is_path = name.split('/').count() == 2 && !name.contains(['?', '#']);
        if !is_path {
            return Err(Trouble::bad("an incident"));
        }
        last = Some(visit.api.act(&format!("/api/v1/incidents/{name}/{act}"), &asked).await?);
    }
    let done =
        last.ok_or_else(|| Trouble::unusable("the choice", "Tick at least one incident."))?;
    Ok(back("/incidents", &done, word))
}

async fn send_again(
    visit: Visit,
    Path((pipeline, key)): Path<(String, String)>,
    form: Form,
) -> Result<Response, Trouble> {
    let name = form.needed("name", "the alert")?;
    let path = format!("/api/v1/notifications/{}/{}/send", part(&pipeline), part(name));
    let done = visit.api.act(&path, &json!({})).await?;
    Ok(back(&format!("/incidents/{}/{}", part(&pipeline), part(&key)), &done, "sent-again"))
}

async fn send_dead_letter(visit: Visit, form: Form) -> Result<Response, Trouble> {
    let (pipeline, name) =
        (form.needed("pipeline", "the pipeline")?, form.needed("name", "the alert")?);
    let path = format!("/api/v1/notifications/{}/{}/send", part(pipeline), part(name));
    let done = visit.api.act(&path, &json!({})).await?;
    Ok(back("/dead-letters", &done, "sent-again"))
}

async fn silence(visit: Visit, form: Form) -> Result<Response, Trouble> {
    let asked = crate::page::incident::silence_request(&form.0);
    let done = visit.api.act("/api/v1/silences", &asked).await?;
    Ok(back("/silences", &done, "silenced"))
}

async fn end_silence(visit: Visit, form: Form) -> Result<Response, Trouble> {
    let id = form.needed("id", "the silence")?;
    let done = visit.api.remove(&format!("/api/v1/silences/{}", part(id))).await?;
    Ok(back("/silences", &done, "unsilenced"))
}

async fn bark(visit: Visit) -> Result<Response, Trouble> {
    let done = visit.api.act("/api/v1/barks", &json!({})).await?;
    Ok(back("/system", &done, "barked"))
}
