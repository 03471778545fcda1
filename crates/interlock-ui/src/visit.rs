//! A request for a page: what it asks, who looks and how, and the API as they may ask it.

use std::sync::Arc;

use askama::Template;
use axum::{
    Router,
    extract::{FromRequestParts, Request},
    http::{Extensions, HeaderMap, header::COOKIE, request::Parts},
    response::{Html, IntoResponse as _, Response},
};
use interlock_answers::model::session::SessionAnswer;
use jiff::Timestamp;

use crate::{
    Clock,
    api::Api,
    flash,
    frame::{Counts, Frame, FrameInput, Tab},
    query::Query,
    theme::Theme,
    times::{Times, Zone, ZoneChoice},
    trouble::Trouble,
};

/// What all requests share.
pub(crate) struct PagesState {
    pub(crate) api: Router,
    pub(crate) clock: Clock,
}

/// What a browser remembers of how its user wants to look.
#[derive(Debug, Clone, Default)]
pub(crate) struct Preferences {
    pub(crate) theme: Theme,
    pub(crate) choice: ZoneChoice,
    pub(crate) mine: Option<Zone>,
}

/// The cookies of the preferences: theme, choice of zone, the browser's own zone.
pub(crate) const COOKIES: [&str; 3] = ["il_theme", "il_tz", "il_zone"];

impl Preferences {
    /// What the cookies of a request say.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs =
            all.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut found = Self::default();
        for (name, value) in pairs {
            match COOKIES.iter().position(|own| *own == name) {
                Some(0) => found.theme = Theme::parse(value).unwrap_or_default(),
                Some(1) => found.choice = ZoneChoice::parse(value).unwrap_or_default(),
                Some(2) => found.mine = Zone::named(value),
                _ => {}
            }
        }
        found
    }

    /// The times of a page that they look at.
    pub(crate) fn times(&self, now: Timestamp) -> Times {
        Times { choice: self.choice, mine: self.mine.clone(), now }
    }
}

/// What came with a request before a route of ours was found for it: the API finds its own.
#[derive(Debug, Clone)]
pub(crate) struct Arrival(pub(crate) Extensions);

/// Keeps what came with a request.
pub(crate) async fn remember_arrival(mut request: Request) -> Request {
    let arrival = Arrival(request.extensions().clone());
    request.extensions_mut().insert(arrival);
    request
}

/// A request for a page.
pub(crate) struct Visit {
    pub(crate) api: Api,
    pub(crate) query: Query,
    /// The path, as it was asked for.
    pub(crate) path: String,
    /// Where the site is, as the browser knows it.
    pub(crate) site: String,
    pub(crate) preferences: Preferences,
    pub(crate) times: Times,
}

impl FromRequestParts<Arc<PagesState>> for Visit {
    type Rejection = Trouble;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<PagesState>,
    ) -> Result<Self, Trouble> {
        let api = Api::of(state.api.clone(), parts);
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let preferences = Preferences::of(&parts.headers);
        let times = preferences.times((state.clock)());
        Ok(Self {
            api,
            query,
            path: parts.uri.path().to_owned(),
            site: site(&parts.headers),
            preferences,
            times,
        })
    }
}

fn site(headers: &HeaderMap) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = if text("x-forwarded-proto") == Some("https") { "https" } else { "http" };
    format!("{scheme}://{}", text("host").unwrap_or("127.0.0.1:8420"))
}

impl Visit {
    /// The frame of a page. Who must log in first gets no page.
    pub(crate) async fn frame(&self, tab: Tab, title: impl Into<String>) -> Result<Frame, Trouble> {
        let viewer: SessionAnswer = self.api.get("/api/v1/session").await?;
        let counts = Counts::ask(&self.api).await;
        let flash = self.query.get("done").and_then(flash::find);
        let input = FrameInput {
            title: title.into(),
            tab,
            path: self.path.clone(),
            query: self.query.clone(),
            viewer: Some(viewer),
            counts,
            flash,
        };
        Ok(Frame::new(input, &self.preferences, &self.times))
    }
}

/// A page as it is sent.
pub(crate) fn render(page: &impl Template) -> Result<Response, Trouble> {
    let text = page.render().map_err(|error| Trouble::failed(error.to_string()))?;
    Ok(Html(text).into_response())
}
