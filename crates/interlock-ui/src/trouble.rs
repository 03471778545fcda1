//! Why a page has no answer to show.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use interlock_answers::ErrorCode;
use serde_json::{Map, Value};

/// A refusal of the API, or what went wrong on the way to it: a page of its own, or a note in the place of what could not be shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trouble {
    pub(crate) status: StatusCode,
    /// The word for programs.
    pub(crate) code: String,
    /// What kind of trouble it is.
    pub(crate) title: String,
    /// What is wrong.
    pub(crate) detail: String,
    /// What to do.
    pub(crate) hint: String,
}

impl Trouble {
    /// What the API answered (RFC 9457).
    pub(crate) fn read(status: StatusCode, body: &[u8]) -> Self {
        let mut members: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
        let mut text = |name: &str| match members.remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let (code, title) = (text("code"), text("title"));
        let (detail, hint) = (text("detail"), text("hint"));
        Self { status, code, title, detail, hint }
    }

    /// Something that a form or an address says, and that cannot be used.
    pub(crate) fn bad(what: &str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: ErrorCode::BadParameter.as_str().to_owned(),
            title: "It cannot be used".to_owned(),
            detail: format!("{what} cannot be used"),
            hint: "Go back and correct it.".to_owned(),
        }
    }

    /// The same, with what would be right.
    pub(crate) fn unusable(what: &str, hint: &str) -> Self {
        Self { hint: hint.to_owned(), ..Self::bad(what) }
    }

    /// There is no such page.
    pub(crate) fn not_found(path: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            code: ErrorCode::NotFound.as_str().to_owned(),
            title: "Not found".to_owned(),
            detail: format!("There is no page at {path}."),
            hint: "The fleet has every pipeline, and from there every slot.".to_owned(),
        }
    }

    /// What should have worked.
    pub(crate) fn failed(detail: String) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            code: String::new(),
            title: "This page could not be made".to_owned(),
            detail,
            hint: "Try again; the log of Interlock may say more.".to_owned(),
        }
    }

    /// Whether the caller is unknown.
    pub(crate) fn needs_login(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    /// Whether the plan is another by now.
    pub(crate) fn is_another_plan(&self) -> bool {
        self.code == ErrorCode::PlanChanged.as_str()
    }

    /// What the detail says, as a sentence.
    pub(crate) fn sentence(&self) -> String {
        let mut letters = self.detail.chars();
        let mut text: String =
            letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
        text.push_str(letters.as_str());
        if !text.ends_with(['.', '!', '?', ':']) {
            text.push('.');
        }
        text
    }
}

/// Left to [`dress`](crate::dress), which knows who looks.
impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
