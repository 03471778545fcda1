//! Changes at a server: each is done once, however often it is sent, and answered with what came of it.

use std::{thread, time::Duration};

use interlock_answers::{ErrorCode, model::request::RequestAnswer};
use jiff::SignedDuration;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Asked, RemoteServer, problem::Reply};
use crate::{exit::Failure, inbox::fresh_key};

/// A server waits so long for the owner at most.
const WAITED_FOR: SignedDuration = SignedDuration::from_secs(10);
/// How often is looked whether what it accepted is done.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Something that is to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) body: Option<String>,
    /// The plan that was looked at: another one is not carried out.
    pub(crate) if_match: Option<String>,
}

impl Change {
    /// The same, if the plan is still this one.
    pub(crate) fn if_plan_is(self, etag: Option<String>) -> Self {
        Self { if_match: etag, ..self }
    }
}

impl Reply {
    /// Whether what it says may be otherwise in a moment.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.status, 429 | 500..=599)
    }
}

impl RemoteServer {
    /// Asks for a change, and waits so long for what comes of it.
    pub(crate) fn change(
        &self,
        change: &Change,
        wait: SignedDuration,
    ) -> Result<RequestAnswer, Failure> {
        let reply = self.reply(&asked(change, wait))?;
        if reply.status == 409 && reply.code().as_deref() == Some(ErrorCode::Refused.as_str()) {
            return Ok(refused(&reply));
        }
        let location = reply.location.clone();
        let answer: RequestAnswer = self.read(&reply.success(&self.address)?)?;
        match location.filter(|_| !answer.applied) {
            Some(location) if location.starts_with("/api/v1/") => {
                self.applied(answer, &location, wait)
            }
            Some(_) | None => Ok(answer),
        }
    }

    /// The same of a change that is answered in another form.
    pub(crate) fn change_for<T: DeserializeOwned>(
        &self,
        change: &Change,
        wait: SignedDuration,
    ) -> Result<T, Failure> {
        self.read(&self.answered(&asked(change, wait))?)
    }

    /// Looks for what comes of something that was accepted.
    fn applied(
        &self,
        accepted: RequestAnswer,
        location: &str,
        wait: SignedDuration,
    ) -> Result<RequestAnswer, Failure> {
        let mut left = wait.saturating_sub(WAITED_FOR);
        while left.is_positive() {
            thread::sleep(LOOK_EVERY);
            left = left.saturating_sub(SignedDuration::from_millis(500));
            let answer: RequestAnswer = self.get(location, &json!({}))?;
            if answer.applied {
                return Ok(answer);
            }
        }
        Ok(accepted)
    }
}

fn asked(change: &Change, wait: SignedDuration) -> Asked {
    let seconds = wait.min(WAITED_FOR).as_secs().max(0);
    let mut headers = vec![
        ("idempotency-key".to_owned(), fresh_key()),
        ("prefer".to_owned(), format!("wait={seconds}")),
    ];
    headers.extend(change.if_match.iter().map(|etag| ("if-match".to_owned(), etag.clone())));
    let Change { method, path, body, .. } = change.clone();
    Asked { method, path, headers, body }
}

/// What the owner of the pipeline refused, as it answers who asks on its machine.
fn refused(reply: &Reply) -> RequestAnswer {
    let told = reply.member("request").and_then(|told| serde_json::from_value(told).ok());
    let reason = || reply.member("detail").unwrap_or_default();
    told.unwrap_or_else(|| RequestAnswer {
        key: String::new(),
        applied: true,
        accepted: Some(false),
        at: None,
        result: Some(json!({ "reason": reason() })),
    })
}
