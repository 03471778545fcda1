//! What stands where a page should be.

use askama::Template;
use axum::response::{IntoResponse as _, Response};

use crate::{
    frame::{Counts, Frame, FrameInput, Tab},
    query::Query,
    times::Times,
    trouble::Trouble,
    visit::{Preferences, render},
};

#[derive(Template)]
#[template(path = "trouble.html")]
struct TroublePage<'a> {
    frame: Frame,
    trouble: &'a Trouble,
    again: String,
}

/// A refusal as a page, with the status of the refusal.
pub(crate) fn show(
    trouble: &Trouble,
    (path, query): (&str, &Query),
    (preferences, times): (&Preferences, &Times),
) -> Response {
    let title = if trouble.title.is_empty() { "It did not work" } else { &trouble.title };
    let input = FrameInput {
        title: title.to_owned(),
        tab: Tab::None,
        path: path.to_owned(),
        query: query.clone(),
        viewer: None,
        counts: Counts::default(),
        flash: None,
    };
    let frame = Frame::new(input, preferences, times);
    let page = render(&TroublePage { frame, trouble, again: query.at(path) });
    let mut response = page.unwrap_or_else(|_| trouble.status.into_response());
    *response.status_mut() = trouble.status;
    response
}
