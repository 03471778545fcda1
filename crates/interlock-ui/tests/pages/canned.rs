//! An API that answers what was written down.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use interlock_ui::pages;
use jiff::Timestamp;
use serde_json::{Value, json};
use tower_service::Service as _;

/// Sunday, 2026-10-25 09:41 in Berlin.
pub(crate) fn now() -> Timestamp {
    "2026-10-25T08:41:20Z".parse().unwrap()
}

/// Answers by path.
#[derive(Clone, Default)]
pub(crate) struct Canned(BTreeMap<String, (u16, Value)>);

impl Canned {
    /// What every page asks.
    pub(crate) fn new() -> Self {
        Self::default()
            .with("/api/v1/session", json!({"name": null, "scope": "admin", "isOpen": true}))
            .with("/api/v1/incidents/groups", json!({"items": [], "scanned": 7, "isCut": false}))
            .with("/api/v1/backfills", json!({"items": [], "next": null, "scanned": 0}))
    }

    pub(crate) fn with(mut self, path: &str, answer: Value) -> Self {
        self.0.insert(path.to_owned(), (200, answer));
        self
    }

    pub(crate) fn refusing(mut self, path: &str, status: u16, code: &str, detail: &str) -> Self {
        let title = "Refused";
        let answer = json!({"type": "about:blank", "title": title, "status": status, "detail": detail, "code": code, "hint": "Look closer."});
        self.0.insert(path.to_owned(), (status, answer));
        self
    }

    /// The answer of the pages to a request of a browser in Berlin.
    pub(crate) async fn answer(&self, path: &str) -> Response {
        let api = Router::new().fallback(answer).with_state(Arc::new(self.clone()));
        let request =
            Request::builder().uri(path).header("accept", "text/html").header("host", "il.example");
        let request =
            request.header("cookie", "il_zone=Europe/Berlin").body(Body::empty()).unwrap();
        let Ok(response) = pages(api, now).call(request).await;
        response
    }

    /// The page, as it is sent.
    pub(crate) async fn page(&self, path: &str) -> String {
        let response = self.answer(path).await;
        let bytes = to_bytes(response.into_body(), 10_000_000).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// What stands in the middle of the page.
    pub(crate) async fn main(&self, path: &str) -> String {
        let page = self.page(path).await;
        let from = page.find("<main").unwrap();
        let until = page.find("</main>").unwrap();
        page[from..until]
            .lines()
            .filter(|line| !line.contains("id=\"offline\""))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

async fn answer(State(canned): State<Arc<Canned>>, request: Request) -> Response {
    match canned.0.get(request.uri().path()) {
        Some((status, answer)) => {
            (StatusCode::from_u16(*status).unwrap(), Json(answer.clone())).into_response()
        }
        None => (
            StatusCode::NOT_FOUND,
            Json(json!({"code": "not_found", "detail": "nothing is written for this path"})),
        )
            .into_response(),
    }
}
