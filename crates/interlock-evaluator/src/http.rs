//! Evaluators that are services: the question is the body of a POST, the answer the body of the response.
//!
//! Asking changes nothing over there, so a question is put up to three times where another try may help, all within
//! the one time limit.

use std::time::Duration;

use interlock_core::{readiness::TraitResult, retry::FailureCategory};
use interlock_trigger::web::{Answer, BODY_BYTES_MAX, Call, Web, WebFailure, WebFailureKind};
use jiff::SignedDuration;
use tokio::time::{sleep, timeout};

use crate::answer;

const TRIES_MAX: u32 = 3;
const BACKOFF: Duration = Duration::from_millis(200);

/// Whether an evaluator's name is the address of a service.
pub(crate) fn is_address(name: &str) -> bool {
    name.split_once("://").is_some_and(|(scheme, _)| {
        scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
    })
}

/// Asks a service.
pub(crate) async fn ask(web: &Web, url: &str, question: String, limit: Duration) -> TraitResult {
    let call = Call {
        method: "POST".to_owned(),
        url: url.to_owned(),
        headers: vec![],
        body: Some(question),
        timeout: SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX),
    };
    match timeout(limit, put(web, &call)).await {
        Err(_elapsed) => answer::timeout(limit),
        Ok(Err(failure)) if failure.kind == WebFailureKind::Timeout => answer::timeout(limit),
        Ok(Err(failure)) => failed(&failure.message, failure.category()),
        Ok(Ok(answer)) if !answer.is_success() => failed(&answer.sentence(), answer.category()),
        Ok(Ok(answer)) if answer.is_cut => {
            answer::invalid(format!("it is longer than {BODY_BYTES_MAX} bytes"))
        }
        Ok(Ok(answer)) => answer::read(answer.body.as_bytes()),
    }
}

async fn put(web: &Web, call: &Call) -> Result<Answer, WebFailure> {
    let mut tries = 1;
    loop {
        let answered = web.send(call).await;
        let may_help = match &answered {
            Ok(answer) => matches!(answer.status, 429 | 502 | 503 | 504),
            Err(failure) => match failure.kind {
                WebFailureKind::Unreachable | WebFailureKind::Broken => true,
                WebFailureKind::Malformed | WebFailureKind::Refused | WebFailureKind::Timeout => {
                    false
                }
            },
        };
        if !may_help || tries >= TRIES_MAX {
            return answered;
        }
        sleep(BACKOFF * 2u32.pow(tries - 1)).await;
        tries += 1;
    }
}

fn failed(what: &str, category: FailureCategory) -> TraitResult {
    answer::failed(&format!("EVALUATOR_HTTP_ERROR: {what}"), category)
}
