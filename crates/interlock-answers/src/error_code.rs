//! The words by which programs know what went wrong, each with its status, its title and what it means.
//!
//! The list is closed, and this is the only one. `docs/api.md` has the same table; a test compares them.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

/// Declares the codes: what each means, its name, its word, the status it is answered with, and its title.
macro_rules! error_codes {
    ($(#[doc = $meaning:literal] $name:ident = $word:literal, $status:literal, $title:literal;)+) => {
        /// A word by which programs know what went wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $name,)+
        }

        impl ErrorCode {
            /// All of them, by status.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            const fn description(self) -> CodeDescription {
                match self {
                    $(Self::$name => CodeDescription {
                        word: $word,
                        status: $status,
                        title: $title,
                        meaning: $meaning,
                    },)+
                }
            }
        }
    };
}

error_codes! {
    /// A parameter that the route does not know, or a value that it does not take.
    BadParameter = "bad_parameter", 400, "Parameter not accepted";
    /// `after` is no cursor of the list.
    BadCursor = "bad_cursor", 400, "Cursor not accepted";
    /// The body is not the JSON that the route expects.
    BadBody = "bad_body", 400, "Body not accepted";
    /// The connection broke off before the whole body was read.
    BrokenBody = "broken_body", 400, "Body not read";
    /// The header `Idempotency-Key` is empty, too long, or has characters that it may not have.
    BadIdempotencyKey = "bad_idempotency_key", 400, "Idempotency key not accepted";
    /// The last part of a ping's path is none of `start`, `fail`, `log` or an exit code.
    BadPing = "bad_ping", 400, "Ping not understood";
    /// `rid` is empty, too long, or has characters that it may not have.
    BadRid = "bad_rid", 400, "Run id of the job not accepted";
    /// `said` in a report is none of `start`, `success`, `fail` and `log`.
    BadReport = "bad_report", 400, "Report not understood";
    /// `startedAt` in a report that is no end, or has no `rid`.
    BadStart = "bad_start", 400, "Beginning without an end";
    /// The key of a sensor is empty, too long, or has control characters.
    BadSensorKey = "bad_sensor_key", 400, "Sensor key not accepted";
    /// An instant cannot be read, or is over already where it must lie ahead.
    BadTime = "bad_time", 400, "Time not accepted";
    /// A run is not named as `interlock runs` names it.
    BadRunId = "bad_run_id", 400, "Run id not accepted";
    /// A slot is not named `schedule/instant`.
    BadSlot = "bad_slot", 400, "Slot not accepted";
    /// `status` is neither `success` nor `failed`.
    BadStatus = "bad_status", 400, "Status not accepted";
    /// `category` is no category of failures.
    BadCategory = "bad_category", 400, "Failure category not accepted";
    /// The listener speaks HTTPS only, and the request came as plain HTTP.
    TlsNeeded = "tls_needed", 400, "HTTPS needed";
    /// No token was shown, or one that is not known, revoked or expired.
    TokenNeeded = "token_needed", 401, "Token needed";
    /// Only another instance of the same store may ask this, and its signature is missing or not right.
    SignatureNeeded = "signature_needed", 401, "Signature of an instance needed";
    /// The token that was shown may not do this.
    ScopeNeeded = "scope_needed", 403, "Scope not sufficient";
    /// No token is needed here, but the request comes from a page of another site or under the name of another machine.
    ForeignOrigin = "foreign_origin", 403, "Request of another origin";
    /// What was asked for is not there.
    NotFound = "not_found", 404, "Not found";
    /// No pipeline of that name is declared or recorded.
    PipelineUnknown = "pipeline_unknown", 404, "Pipeline unknown";
    /// The job of the run has written nothing that could be shown.
    NoLog = "no_log", 404, "No log";
    /// The path is there and does not take this method; the header `Allow` says what it takes.
    MethodNotAllowed = "method_not_allowed", 405, "Method not allowed";
    /// Interlock runs the pipeline itself, so it takes no reports.
    NotWatched = "not_watched", 409, "Pipeline takes no reports";
    /// The request was understood and refused; `detail` says why. The same key gets the same answer.
    Refused = "refused", 409, "Request refused";
    /// It is older than what is kept; an archive may have it.
    Archived = "archived", 410, "No longer kept";
    /// The log of the run was deleted, as `retention.logs` says.
    LogDeleted = "log_deleted", 410, "Log deleted";
    /// The plan that `If-Match` names is another by now; `plan` is the new one, and `etag` its hash. Nothing was done.
    PlanChanged = "plan_changed", 412, "Plan changed";
    /// The body is larger than `server.maxRequestBody`.
    TooLarge = "too_large", 413, "Request too large";
    /// The log has no such bytes; `Content-Range` says how many there are.
    RangeNotSatisfiable = "range_not_satisfiable", 416, "Range not satisfiable";
    /// The `Idempotency-Key` was used for another request. Nothing was done.
    KeyReused = "key_reused", 422, "Idempotency key used before";
    /// Too many wrong tokens came from this address.
    TooManyWrongTokens = "too_many_wrong_tokens", 429, "Too many wrong tokens";
    /// More requests came in a second than `server.maxRequestsPerSecond`.
    TooOften = "too_often", 429, "Too many requests";
    /// Something failed in the process itself.
    Internal = "internal", 500, "Internal error";
    /// Its row in the store is damaged.
    UnreadableRow = "unreadable_row", 500, "Row unreadable";
    /// The declaration of the pipeline cannot be loaded.
    DeclarationUnreadable = "declaration_unreadable", 500, "Declaration unreadable";
    /// The log is there and cannot be read.
    LogUnreadable = "log_unreadable", 500, "Log unreadable";
    /// The process is starting.
    Starting = "starting", 503, "Starting";
    /// The process is stopping.
    Stopping = "stopping", 503, "Stopping";
    /// The store did not answer.
    StoreUnreachable = "store_unreachable", 503, "Store unreachable";
    /// A loop of the process has not come round in time.
    LoopLate = "loop_late", 503, "Loop late";
    /// A ping with `create=1` could not make its pipeline.
    CannotCreate = "cannot_create", 503, "Pipeline not made";
    /// It is on another host, which cannot be asked.
    HostUnreachable = "host_unreachable", 503, "Host unreachable";
    /// Too many logs are being followed.
    TooManyFollowers = "too_many_followers", 503, "Too many followers";
    /// As many streams are open as there may be.
    TooManyStreams = "too_many_streams", 503, "Too many streams";
    /// There was no answer in time.
    TooSlow = "too_slow", 503, "No answer in time";
}

/// What there is to say of a code.
struct CodeDescription {
    word: &'static str,
    status: u16,
    title: &'static str,
    meaning: &'static str,
}

impl ErrorCode {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        self.description().word
    }

    /// The status of HTTP that it is answered with.
    pub const fn status(self) -> u16 {
        self.description().status
    }

    /// A short title, the same whenever it occurs.
    pub const fn title(self) -> &'static str {
        self.description().title
    }

    /// What it means, in a sentence.
    pub const fn meaning(self) -> &'static str {
        self.description().meaning.trim_ascii()
    }

    /// What names it all over the world.
    pub fn urn(self) -> String {
        format!("urn:interlock:problem:{}", self.as_str())
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl PartialSchema for ErrorCode {
    fn schema() -> RefOr<Schema> {
        let words = Self::ALL.iter().map(|code| code.as_str());
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("What went wrong, for programs. The list is closed."))
            .enum_values(Some(words))
            .into()
    }
}

impl ToSchema for ErrorCode {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("ErrorCode")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_a_word_of_its_own_and_says_what_it_means() {
        let words: BTreeSet<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            assert!((400..600).contains(&code.status()), "{code:?}");
            assert!(code.meaning().ends_with('.') && !code.title().ends_with('.'), "{code:?}");
        }
        assert!(ErrorCode::ALL.is_sorted_by_key(|code| code.status()));
    }

    #[test]
    fn the_documents_have_every_code_with_its_status_and_meaning() {
        let page = include_str!("../../../docs/api.md");
        let row = |code: &ErrorCode| {
            format!("| {} | `{}` | {} |", code.status(), code.as_str(), code.meaning())
        };
        let expected: Vec<String> = ErrorCode::ALL.iter().map(row).collect();
        let rows = page.lines().skip_while(|line| !line.starts_with("| status | code |")).skip(2);
        let written: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
        assert_eq!(written, expected, "docs/api.md");
    }
}
