//! `airflow`: a DAG run in Airflow 2 (`/api/v1`) or 3 (`/api/v2`).
//!
//! The run id is the `dag_run_id`: Airflow refuses a second one with 409, which is then looked up
//! and taken as ours. No logical date is given (Airflow 2 would refuse a second attempt at the same
//! one; Airflow 3 wants `null` said); what the run is about stands in `conf.interlock`. Every
//! request, polls included, carries the configured headers (facts D2-21).

use interlock_core::{
    id::fnv1a,
    pipeline::{AirflowTrigger, TriggerKind},
    retry::FailureCategory,
};
use serde_json::{Value, json};

use super::{
    Adapter, mismatch,
    polling::{self, Seen},
};
use crate::{
    local::Tools,
    placeholder::{Filler, Place},
    web::{Answer, Call, WebFailure},
};
use interlock_ports::trigger::{
    CancelFailure, LookUp, LookUpFailure, Metadata, Outcome, StartFailure, StartRequest,
    TriggerFuture, What,
};

/// Airflow's column has 250 characters.
const DAG_RUN_ID_MAX: usize = 250;

/// The adapter.
pub(crate) struct Airflow;

impl Adapter for Airflow {
    fn start<'a>(
        &'a self,
        tools: &'a Tools,
        request: StartRequest,
    ) -> TriggerFuture<'a, Result<(), StartFailure>> {
        Box::pin(start(tools, request))
    }

    fn look_up<'a>(
        &'a self,
        tools: &'a Tools,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>> {
        Box::pin(look_up(tools, request))
    }

    fn cancel<'a>(
        &'a self,
        tools: &'a Tools,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>> {
        Box::pin(cancel(tools, request))
    }
}

fn trigger(request: &StartRequest) -> Result<&AirflowTrigger, String> {
    match &request.kind {
        TriggerKind::Airflow(trigger) => Ok(trigger),
        TriggerKind::Command(_)
        | TriggerKind::Steps(_)
        | TriggerKind::Http(_)
        | TriggerKind::External
        | TriggerKind::Other { .. } => Err(mismatch(request)),
    }
}

/// The id of the DAG run: the run's own, or its unique end behind a hash where that is too long.
fn dag_run_id(run_id: &str) -> String {
    if run_id.len() <= DAG_RUN_ID_MAX {
        return run_id.to_owned();
    }
    let from = run_id.len() - DAG_RUN_ID_MAX / 2;
    let from = (from..run_id.len()).find(|at| run_id.is_char_boundary(*at)).unwrap_or(from);
    format!("{:016x}~{}", fnv1a(run_id.as_bytes()), run_id.get(from..).unwrap_or_default())
}

/// A request to the DAG's runs.
fn call(tools: &Tools, request: &StartRequest, trigger: &AirflowTrigger, target: Target) -> Call {
    let filler = Filler::new(request, &tools.environment);
    let base = filler.fill(&trigger.url, Place::Url);
    let api = if trigger.version >= 3 { "v2" } else { "v1" };
    let runs = format!("{}/api/{api}/dags/{}/dagRuns", base.trim_end_matches('/'), trigger.dag_id);
    let run = format!("{runs}/{}", dag_run_id(&request.run_id));
    let (method, url, body) = match target {
        Target::Create => ("POST", runs, Some(creation(&filler, request, trigger).to_string())),
        Target::Read => ("GET", run, None),
        Target::Fail => ("PATCH", run, Some(json!({"state": "failed"}).to_string())),
    };
    let own = trigger.headers.iter();
    let own = own.map(|(name, value)| (name.clone(), filler.fill_secret(value, Place::Header)));
    Call {
        method: method.to_owned(),
        url,
        headers: [("Accept".to_owned(), "application/json".to_owned())]
            .into_iter()
            .chain(own)
            .collect(),
        body,
        timeout: trigger.request_timeout,
    }
}

#[derive(Debug, Clone, Copy)]
enum Target {
    Create,
    Read,
    Fail,
}

fn creation(filler: &Filler<'_>, request: &StartRequest, trigger: &AirflowTrigger) -> Value {
    let own = trigger.conf.iter().map(|(key, value)| (key.clone(), fill_json(filler, value)));
    let mut conf: serde_json::Map<String, Value> = own.collect();
    conf.entry("interlock").or_insert_with(|| {
        json!({
            "pipeline": request.pipeline,
            "schedule": request.schedule,
            "slot": request.slot.to_string(),
            "date": request.date.to_string(),
            "intervalEnd": request.interval_end.map(|end| end.to_string()),
            "runId": request.run_id,
            "attempt": request.attempt,
            "triggerType": request.trigger_type.as_str(),
        })
    });
    let mut body = json!({"dag_run_id": dag_run_id(&request.run_id), "conf": conf});
    if trigger.version >= 3 {
        // Required there, and may be null: a run that stands for no date of Airflow's own.
        body["logical_date"] = Value::Null;
    }
    body
}

/// Fills the placeholders of every text in a JSON value.
fn fill_json(filler: &Filler<'_>, value: &Value) -> Value {
    match value {
        Value::String(text) => filler.fill(text, Place::Argument).into(),
        Value::Array(items) => items.iter().map(|item| fill_json(filler, item)).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, item)| (key.clone(), fill_json(filler, item))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

async fn start(tools: &Tools, request: StartRequest) -> Result<(), StartFailure> {
    let refuse = |message| StartFailure::refused(message, FailureCategory::Permanent);
    let trigger = trigger(&request).map_err(refuse)?;
    match tools.web.send(&call(tools, &request, trigger, Target::Create)).await {
        Ok(answer) if answer.is_success() => {}
        Ok(answer) if answer.status == 409 => taken_as_ours(tools, &request, &answer).await?,
        Ok(answer) => {
            let may_have_started = matches!(answer.status, 500 | 502 | 504);
            let (message, category) = (answer.sentence(), answer.category());
            return Err(StartFailure { message, category, may_have_started });
        }
        Err(failure) => return Err(unsent(&failure)),
    }
    tools.report(&request.run_id, What::Started { metadata: metadata(&request, trigger) });
    polling::watch(tools, &request, ask);
    Ok(())
}

fn unsent(failure: &WebFailure) -> StartFailure {
    StartFailure {
        message: failure.message.clone(),
        category: failure.category(),
        may_have_started: failure.may_have_arrived(),
    }
}

/// A conflict is our own earlier start if the run is there, and a refusal if it is not.
async fn taken_as_ours(
    tools: &Tools,
    request: &StartRequest,
    conflict: &Answer,
) -> Result<(), StartFailure> {
    match ask(tools, request).await {
        Ok(Seen::Running | Seen::Ended(_)) => Ok(()),
        Ok(Seen::Unknown) => {
            Err(StartFailure::refused(conflict.sentence(), FailureCategory::Permanent))
        }
        Err(message) => Err(StartFailure::unclear(message, FailureCategory::Transient)),
    }
}

fn metadata(request: &StartRequest, trigger: &AirflowTrigger) -> Metadata {
    [
        ("dagId".to_owned(), trigger.dag_id.clone().into()),
        ("dagRunId".to_owned(), dag_run_id(&request.run_id).into()),
    ]
    .into()
}

/// Asks for the DAG run's state once.
fn ask<'a>(tools: &'a Tools, request: &'a StartRequest) -> TriggerFuture<'a, Result<Seen, String>> {
    Box::pin(async move {
        let trigger = trigger(request)?;
        let call = call(tools, request, trigger, Target::Read);
        let answer = tools.web.send(&call).await.map_err(|failure| failure.message)?;
        match answer.status {
            404 => Ok(Seen::Unknown),
            _ if answer.is_success() => Ok(read_state(&answer, metadata(request, trigger))),
            _ => Err(answer.sentence()),
        }
    })
}

fn read_state(answer: &Answer, metadata: Metadata) -> Seen {
    let json: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    match json.get("state").and_then(Value::as_str) {
        Some("success") => Seen::Ended(Outcome::Success { metadata }),
        Some("failed") => Seen::Ended(Outcome::Failure {
            message: "the DAG run failed".to_owned(),
            category: FailureCategory::Transient,
            metadata,
        }),
        // Queued, running, and whatever a later Airflow invents before an end.
        _ => Seen::Running,
    }
}

/// Airflow knows every DAG run by its id: one that is not there was never created.
async fn look_up(tools: &Tools, request: &StartRequest) -> Result<LookUp, LookUpFailure> {
    let failure = |message| LookUpFailure { message };
    let trigger = trigger(request).map_err(failure)?;
    match ask(tools, request).await.map_err(failure)? {
        Seen::Ended(outcome) => Ok(LookUp::Finished(outcome)),
        Seen::Running => {
            polling::watch(tools, request, ask);
            Ok(LookUp::Running { metadata: metadata(request, trigger) })
        }
        Seen::Unknown => Ok(LookUp::NeverStarted),
    }
}

/// Airflow ends a DAG run by calling it failed.
async fn cancel(tools: &Tools, request: &StartRequest) -> Result<(), CancelFailure> {
    let for_good = |message| CancelFailure { message, is_retryable: false };
    let trigger = trigger(request).map_err(for_good)?;
    match ask(tools, request).await {
        Ok(Seen::Ended(_) | Seen::Unknown) => return Ok(()),
        Ok(Seen::Running) => {}
        Err(message) => return Err(CancelFailure { message, is_retryable: true }),
    }
    match tools.web.send(&call(tools, request, trigger, Target::Fail)).await {
        Ok(answer) if answer.is_success() => {
            tools.watches.forget(&request.run_id);
            let message = "it was cancelled: the DAG run was set to failed".to_owned();
            tools.report(&request.run_id, What::Finished(Outcome::Cancelled { message }));
            Ok(())
        }
        Ok(answer) => {
            let is_retryable = answer.category() != FailureCategory::Permanent;
            Err(CancelFailure { message: answer.sentence(), is_retryable })
        }
        Err(failure) => Err(CancelFailure { message: failure.message, is_retryable: true }),
    }
}
