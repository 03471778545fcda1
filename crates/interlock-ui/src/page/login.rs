//! Where a browser shows a token.

use askama::Template;
use axum::response::Response;

use crate::{
    frame::{Counts, Frame, FrameInput, Tab},
    trouble::Trouble,
    visit::{Visit, render},
};

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    frame: Frame,
    next: String,
    wrong: Option<&'static str>,
}

pub(super) async fn login(visit: Visit) -> Result<Response, Trouble> {
    let next = visit.query.get("next").unwrap_or("/").to_owned();
    let wrong = visit.query.get("wrong").map(|code| match code {
        "scope_needed" => "This token only reports. Ask an admin for one with the scope viewer.",
        "too_many_wrong_tokens" => "Too many wrong tokens came from this address. Wait a minute.",
        _ => "This token is unknown, revoked or expired. Ask an admin for a new one.",
    });
    let input = FrameInput {
        title: "Sign in".to_owned(),
        tab: Tab::None,
        path: visit.path.clone(),
        query: visit.query.clone(),
        viewer: None,
        counts: Counts::default(),
        flash: None,
    };
    let frame = Frame::new(input, &visit.preferences, &visit.times);
    render(&LoginPage { frame, next, wrong })
}
