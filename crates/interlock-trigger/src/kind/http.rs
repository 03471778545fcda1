//! `http`: a request starts the job; its response, a callback or a polled url says how it ended.
//!
//! Every request carries the run id as its `Idempotency-Key`, and a receiver is expected to honour
//! it: that is what makes it safe to repeat a request after 429, 502, 503, 504 or a connection that
//! was refused. A request that was sent and never answered is not repeated; the run is uncertain.
//!
//! A polled url answers with JSON: `status` is `success` (or `succeeded`, `completed`), `failed` (or
//! `failure`, `error`), `timeout`, `cancelled`; anything else means that the job still runs (facts
//! D1-21). `message` or `error` says why.

use std::time::Duration;

use interlock_core::{
    pipeline::{HttpCompletion, HttpTrigger, TriggerKind},
    retry::FailureCategory,
};
use serde_json::Value;
use tokio::time::sleep;

use super::{
    Adapter, mismatch,
    polling::{self, Seen},
};
use crate::{
    local::Tools,
    placeholder::{Filler, Place},
    web::{Answer, Call, WebFailure, WebFailureKind},
};
use interlock_ports::trigger::{
    CancelFailure, LookUp, LookUpFailure, Metadata, Outcome, StartFailure, StartRequest,
    TriggerFuture, What,
};

const TRIES_MAX: u32 = 3;
const BACKOFF: Duration = Duration::from_millis(500);

/// The adapter.
pub(crate) struct Http;

impl Adapter for Http {
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
        _tools: &'a Tools,
        _request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>> {
        let message = "a job behind a url cannot be ended from here".to_owned();
        Box::pin(std::future::ready(Err(CancelFailure { message, is_retryable: false })))
    }
}

fn trigger(request: &StartRequest) -> Result<&HttpTrigger, String> {
    match &request.kind {
        TriggerKind::Http(trigger) => Ok(trigger),
        TriggerKind::Command(_)
        | TriggerKind::Steps(_)
        | TriggerKind::Airflow(_)
        | TriggerKind::External
        | TriggerKind::Other { .. } => Err(mismatch(request)),
    }
}

async fn start(tools: &Tools, request: StartRequest) -> Result<(), StartFailure> {
    let refuse = |message| StartFailure::refused(message, FailureCategory::Permanent);
    let trigger = trigger(&request).map_err(refuse)?;
    let answer = send(tools, &start_call(tools, &request, trigger)).await;
    match (&trigger.completion, answer) {
        (_, Err(failure)) if failure.may_have_arrived() => {
            Err(StartFailure::unclear(failure.message.clone(), failure.category()))
        }
        (_, Err(failure)) => {
            Err(StartFailure::refused(failure.message.clone(), failure.category()))
        }
        (HttpCompletion::Response, Ok(answer)) => {
            tools.report(&request.run_id, What::Finished(response_outcome(&answer)));
            Ok(())
        }
        (_, Ok(answer)) if !answer.is_success() => Err(refusal(&answer)),
        (completion, Ok(answer)) => {
            let metadata = metadata(&answer);
            tools.report(&request.run_id, What::Started { metadata });
            if let HttpCompletion::Poll { .. } = completion {
                polling::watch(tools, &request, ask);
            }
            Ok(())
        }
    }
}

/// A gateway that gave up does not know what happened behind it.
fn refusal(answer: &Answer) -> StartFailure {
    let may_have_started = matches!(answer.status, 502 | 504);
    StartFailure { message: answer.sentence(), category: answer.category(), may_have_started }
}

fn response_outcome(answer: &Answer) -> Outcome {
    let metadata = metadata(answer);
    if answer.is_success() {
        return Outcome::Success { metadata };
    }
    Outcome::Failure { message: answer.sentence(), category: answer.category(), metadata }
}

fn metadata(answer: &Answer) -> Metadata {
    [("httpStatus".to_owned(), answer.status.into())].into()
}

/// Sends a request that is safe to repeat, up to three times.
async fn send(tools: &Tools, call: &Call) -> Result<Answer, WebFailure> {
    for attempt in 1.. {
        let answer = tools.web.send(call).await;
        let again = match &answer {
            Ok(answer) => matches!(answer.status, 429 | 502 | 503 | 504),
            Err(failure) => failure.kind == WebFailureKind::Unreachable,
        };
        if !again || attempt >= TRIES_MAX {
            return answer;
        }
        sleep(BACKOFF * 2u32.pow(attempt - 1)).await;
    }
    tools.web.send(call).await
}

fn start_call(tools: &Tools, request: &StartRequest, trigger: &HttpTrigger) -> Call {
    let filler = Filler::new(request, &tools.environment);
    Call {
        method: trigger.method.clone(),
        url: filler.fill(&trigger.url, Place::Url),
        headers: headers(&filler, request, trigger),
        body: trigger.body.as_ref().map(|body| filler.fill(body, Place::body(body))),
        timeout: trigger.request_timeout,
    }
}

fn headers(
    filler: &Filler<'_>,
    request: &StartRequest,
    trigger: &HttpTrigger,
) -> Vec<(String, String)> {
    let own = trigger.headers.iter();
    let own = own.map(|(name, value)| (name.clone(), filler.fill_secret(value, Place::Header)));
    [("Idempotency-Key".to_owned(), request.run_id.clone())].into_iter().chain(own).collect()
}

/// Asks the polled url once.
fn ask<'a>(tools: &'a Tools, request: &'a StartRequest) -> TriggerFuture<'a, Result<Seen, String>> {
    Box::pin(async move {
        let trigger = trigger(request)?;
        let HttpCompletion::Poll { url } = &trigger.completion else {
            return Err("the job has no url to be asked".to_owned());
        };
        let filler = Filler::new(request, &tools.environment);
        let call = Call {
            method: "GET".to_owned(),
            url: filler.fill(url, Place::Url),
            headers: headers(&filler, request, trigger),
            body: None,
            timeout: trigger.request_timeout,
        };
        let answer = tools.web.send(&call).await.map_err(|failure| failure.message)?;
        match answer.status {
            404 => Ok(Seen::Unknown),
            _ if answer.is_success() => Ok(read_state(&answer)),
            _ => Err(answer.sentence()),
        }
    })
}

fn read_state(answer: &Answer) -> Seen {
    let json: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let text = |key: &str| json.get(key).and_then(Value::as_str);
    let said = text("message").or_else(|| text("error"));
    let status = text("status").unwrap_or_default().to_ascii_lowercase();
    let failed = |category, default: &str| {
        let message = said.unwrap_or(default).chars().take(512).collect();
        Seen::Ended(Outcome::Failure { message, category, metadata: metadata(answer) })
    };
    match status.as_str() {
        "success" | "succeeded" | "completed" => {
            Seen::Ended(Outcome::Success { metadata: metadata(answer) })
        }
        "failed" | "failure" | "error" => {
            failed(FailureCategory::Transient, "the polled url says that the job failed")
        }
        "timeout" | "timed_out" => {
            failed(FailureCategory::Timeout, "the polled url says that the job ran out of time")
        }
        "cancelled" | "canceled" => Seen::Ended(Outcome::Cancelled {
            message: said.unwrap_or("the polled url says that the job was cancelled").to_owned(),
        }),
        _ => Seen::Running,
    }
}

async fn look_up(tools: &Tools, request: &StartRequest) -> Result<LookUp, LookUpFailure> {
    let trigger = trigger(request).map_err(|message| LookUpFailure { message })?;
    let cannot_tell = |reason: &str| Ok(LookUp::CannotTell { reason: reason.to_owned() });
    match trigger.completion {
        HttpCompletion::Response => {
            cannot_tell("the response that would have told the outcome was not received")
        }
        HttpCompletion::Callback => {
            cannot_tell("whether the request arrived can only be told by the job's callback")
        }
        HttpCompletion::Poll { .. } => match ask(tools, request).await {
            Ok(Seen::Ended(outcome)) => Ok(LookUp::Finished(outcome)),
            Ok(Seen::Running) => {
                polling::watch(tools, request, ask);
                Ok(LookUp::Running { metadata: Metadata::new() })
            }
            // It may know only what it has finished receiving; that is not "never".
            Ok(Seen::Unknown) => cannot_tell("the polled url does not know the run"),
            Err(message) => Err(LookUpFailure { message }),
        },
    }
}
