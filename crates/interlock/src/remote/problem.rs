//! What a server answers that is no answer, as one sentence and what to do.

use std::time::Duration;

use interlock_answers::{AnswerError, ErrorCode};
use interlock_trigger::web::{WebFailure, WebFailureKind};
use serde_json::Value;

use crate::{exit::Failure, target::ServerAddress};

/// An answer, whole.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(super) status: u16,
    pub(super) etag: Option<String>,
    pub(super) retry_after: Option<String>,
    pub(super) location: Option<String>,
    /// Which Interlock it came from.
    pub(super) version: Option<String>,
    pub(super) body: Vec<u8>,
    /// Whether there was more.
    pub(super) is_cut: bool,
}

/// What Interlock says when it refuses.
struct Problem {
    code: String,
    detail: String,
    hint: String,
}

impl Reply {
    /// The problem in the body, if Interlock wrote it and nothing that stands before it.
    fn problem(&self) -> Option<Problem> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        let text = |name: &str| Some(body.get(name)?.as_str()?.to_owned());
        Some(Problem {
            code: text("code")?,
            detail: text("detail")?,
            hint: text("hint").unwrap_or_default(),
        })
    }

    /// What else a problem says.
    pub(super) fn member(&self, name: &str) -> Option<Value> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        body.get(name).cloned()
    }

    /// Which problem it is.
    pub(super) fn code(&self) -> Option<String> {
        self.problem().map(|problem| problem.code)
    }

    /// Whether the thing that was asked about is not there.
    pub(super) fn is_absence(&self) -> bool {
        let is_named = |it: &Problem| it.code == ErrorCode::NotFound.as_str() && !is_no_route(it);
        self.status == 404 && self.problem().as_ref().is_some_and(is_named)
    }

    /// After how long the request may be sent again, if that makes sense: it was not let in, or its answer was lost on the way.
    pub(super) fn again_after(&self) -> Option<Duration> {
        let told = || self.retry_after.as_deref().and_then(|text| text.trim().parse().ok());
        let too_often = || self.code().as_deref() == Some(ErrorCode::TooOften.as_str());
        match self.status {
            429 if too_often() => Some(Duration::from_secs(told().unwrap_or(1))),
            // A proxy that has lost the server for a moment.
            502 | 504 => Some(super::AGAIN_AFTER),
            _ => None,
        }
    }

    /// The answer, or why it is none.
    pub(super) fn success(self, address: &ServerAddress) -> Result<Self, Failure> {
        match self.status {
            200..=299 => Ok(self),
            _ => Err(self.failure(address)),
        }
    }

    fn failure(&self, address: &ServerAddress) -> Failure {
        let host = address.host();
        match (self.status, self.problem()) {
            (300..=399, _) => self.sends_on(host),
            (401, problem) => no_token(address, problem),
            (403, Some(problem)) => Failure::failed(
                format!("{host} does not let this token do that: {}", problem.detail),
                problem.hint,
            ),
            (404, Some(problem)) if is_no_route(&problem) => self.unknown_route(host),
            (405, Some(_)) => self.unknown_route(host),
            (412, Some(problem)) => Failure::refused(
                problem.detail,
                "Nothing was done. Ask again to see the plan as it is now.",
            ),
            (429, Some(problem)) => {
                let seconds = self.retry_after.as_deref().unwrap_or("a few");
                Failure::failed(
                    format!("{host} takes no more requests for now: {}", problem.detail),
                    format!("Try again in {seconds} s; {}", problem.hint),
                )
            }
            (500..=599, Some(problem)) => {
                Failure::failed(format!("{host}: {}", problem.detail), problem.hint)
            }
            (status, Some(problem)) => by_code(status, problem),
            (status, None) => Failure::failed(
                format!("{host} answered {status}, and not as Interlock does"),
                "Something else stands in its place, such as a proxy: check the address, and whether the server is up.",
            ),
        }
    }

    fn sends_on(&self, host: &str) -> Failure {
        let to = self.location.as_deref().unwrap_or("another address");
        // What a proxy says of itself may be long, and have a query with secrets.
        let to = to.split(['?', '#']).next().unwrap_or_default();
        Failure::failed(
            format!(
                "{host} sends us on to {to}; that is not followed, so that a token goes nowhere else"
            ),
            "Name the right address with `--url` or in the context.",
        )
    }

    fn unknown_route(&self, host: &str) -> Failure {
        let own = env!("CARGO_PKG_VERSION");
        let theirs = self
            .version
            .as_deref()
            .map_or_else(|| "another version".to_owned(), |version| format!("Interlock {version}"));
        Failure::failed(
            format!("{host} does not know this question: it is {theirs}, and this is {own}"),
            "Use the `interlock` of the server's version, or update the server.",
        )
    }
}

/// Whether the server has no such path at all.
fn is_no_route(problem: &Problem) -> bool {
    problem.code == ErrorCode::NotFound.as_str()
        && problem.detail.starts_with("there is nothing at ")
}

/// No token was shown, or a wrong one.
fn no_token(address: &ServerAddress, problem: Option<Problem>) -> Failure {
    let host = address.host();
    let detail = problem.map(|problem| format!(": {}", problem.detail)).unwrap_or_default();
    let message = if address.token.is_some() {
        format!("{host} does not accept the token{detail}")
    } else {
        format!("{host} wants a token{detail}")
    };
    Failure::failed(
        message,
        "Show one with `--token`, `$INTERLOCK_TOKEN` or `tokenFile` of a context; `interlock token create` makes one there.",
    )
}

/// A refusal with the exit code that the same one has on this machine.
fn by_code(status: u16, Problem { code, detail, hint }: Problem) -> Failure {
    match ErrorCode::ALL.iter().find(|known| known.as_str() == code) {
        Some(code) => AnswerError::question(*code, detail, hint).into(),
        None if status == 400 => Failure::usage(detail, hint),
        None => Failure::refused(detail, hint),
    }
}

/// Why there is no answer at all.
pub(super) fn unreached(address: &ServerAddress, failure: &WebFailure) -> Failure {
    let help = match failure.kind {
        WebFailureKind::Unreachable if failure.message.contains("certificate") => {
            "`$INTERLOCK_CA`, or `ca` of the context, names a file with the authorities to believe."
        }
        WebFailureKind::Unreachable => {
            "Check the address, and that `interlock serve` runs there with the role `api`."
        }
        WebFailureKind::Timeout => {
            "Try again; `--url` with `/healthz` behind it says whether it is up."
        }
        WebFailureKind::Broken => {
            "Try again. What was asked for is done once, however often it is sent."
        }
        WebFailureKind::Malformed | WebFailureKind::Refused => "Check the address and the token.",
    };
    Failure::failed(format!("no answer from {}: {}", address.host(), failure.message), help)
}

/// An answer that is not what it should be.
pub(super) fn unreadable(address: &ServerAddress, reply: &Reply, why: &str) -> Failure {
    let (host, own) = (address.host(), env!("CARGO_PKG_VERSION"));
    match reply.version.as_deref() {
        Some(version) if version != own => Failure::failed(
            format!(
                "cannot read what {host} answered: it is Interlock {version}, and this is {own} ({why})"
            ),
            "Use the `interlock` of the server's version, or update the server.",
        ),
        Some(_) => Failure::failed(
            format!("cannot read what {host} answered: {why}"),
            "Something on the way may have changed or cut it: check for a proxy.",
        ),
        None => Failure::failed(
            format!("{host} did not answer as Interlock does: {why}"),
            "Something else stands in its place, or it is an older version: check the address.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: u16, body: &str) -> (u8, String) {
        let reply = Reply {
            status,
            body: body.as_bytes().to_vec(),
            version: Some("9.9.9".to_owned()),
            retry_after: Some("7".to_owned()),
            location: Some("https://login.example/?next=secret".to_owned()),
            ..Reply::default()
        };
        let token = crate::target::Token::parse("il_hush").ok();
        let url = "https://interlock.example".to_owned();
        let failure = reply.failure(&ServerAddress { url, token, authorities: None });
        assert!(!failure.help.is_empty(), "{status}: what to do is not said");
        (failure.exit_code(), format!("{} | {}", failure.message, failure.help))
    }

    fn problem(code: &str, detail: &str) -> String {
        serde_json::json!({"code": code, "detail": detail, "hint": "Do this."}).to_string()
    }

    #[track_caller]
    fn check(status: u16, body: &str, code: u8, words: &str) {
        let (exit, said) = told(status, body);
        assert_eq!(exit, code, "{status}: {said}");
        assert!(said.contains(words), "{status}: {said}");
        assert!(!said.contains("il_hush") && !said.contains("secret"), "{said}");
    }

    #[test]
    fn each_refusal_is_one_sentence_with_what_to_do() {
        check(302, "", 3, "sends us on to https://login.example/; that is not followed");
        check(401, &problem("token_needed", "a token is needed"), 3, "does not accept the token");
        check(
            403,
            &problem("scope_needed", "it may only look"),
            3,
            "does not let this token do that",
        );
        check(
            404,
            &problem("pipeline_unknown", "there is no pipeline `a`"),
            2,
            "there is no pipeline `a`",
        );
        check(404, &problem("not_found", "there is no run `a`"), 1, "there is no run `a`");
        check(
            404,
            &problem("not_found", "there is nothing at /api/v1/a"),
            3,
            "it is Interlock 9.9.9, and this is",
        );
        check(404, "<html>", 3, "answered 404, and not as Interlock does");
        check(409, &problem("refused", "it is paused"), 1, "it is paused");
        check(412, &problem("plan_changed", "the plan is another by now"), 1, "Nothing was done.");
        check(429, &problem("too_often", "too many requests"), 3, "Try again in 7 s");
        check(500, &problem("internal", "it broke"), 3, "interlock.example: it broke");
        check(503, &problem("starting", "it is starting"), 3, "it is starting");
        check(503, "down for maintenance", 3, "answered 503, and not as Interlock does");
        check(400, &problem("bad_of_the_future", "what"), 2, "what");
    }

    #[test]
    fn only_what_is_certain_to_do_no_harm_is_sent_again() {
        let again = |status: u16, body: &str| {
            Reply { status, body: body.as_bytes().to_vec(), ..Reply::default() }.again_after()
        };
        assert_eq!(again(429, &problem("too_often", "")), Some(Duration::from_secs(1)));
        assert_eq!(again(429, &problem("too_many_wrong_tokens", "")), None);
        assert!(again(502, "").is_some());
        for status in [200, 202, 409, 412, 500, 503] {
            assert_eq!(again(status, ""), None, "{status}");
        }
    }
}
