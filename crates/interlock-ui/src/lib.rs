//! The pages: what ran, what did not, why, and what comes next (`docs/adr/0064-the-web-ui.md`).
//!
//! A page asks the API within the process ([`api`]), with the headers of the browser, and draws the typed answers: it has no other way to the store,
//! and nothing is allowed to it that a program with the same token may not do. It is made whole on the server (askama, SVG), so that it
//! can be read and every form used without script; `assets/app.js` keeps it fresh.
//!
//! - [`mod@visit`] is a request: its query, the zone and theme of who looks, and the API as they may ask it.
//! - `page` has one file for each page, `act` one for each thing that a form asks for, `templates` what they look like.
//! - `frame` is what all pages have: navigation, zone switch, banners. [`parts`] are marks, pills, badges; `times` says when; `strip` and
//!   `axis` draw slots along time.
//! - [`dress`] is around all of them: which headers an answer has, how a refusal looks, what a browser remembers.
//!
//! **Invariant:** no page has a script, a style or a handler of its own (`Content-Security-Policy`; a test reads every template).
//! **Invariant:** whatever came from outside is escaped: only the types of [`parts`] are not, and they escape what they are given.

mod act;
mod api;
mod assets;
mod axis;
mod dress;
mod flash;
mod form;
mod frame;
mod marks;
mod page;
mod parts;
mod query;
mod strip;
mod theme;
mod times;
mod trouble;
mod visit;

use std::sync::Arc;

use axum::{
    Router,
    middleware::{from_fn_with_state, map_request},
};
use jiff::Timestamp;

use crate::visit::PagesState;

/// Tells the time.
pub type Clock = fn() -> Timestamp;

/// All pages, over an API.
pub fn pages(api: Router, clock: Clock) -> Router {
    let state = Arc::new(PagesState { api, clock });
    let all = Router::new()
        .merge(page::routes())
        .merge(act::routes())
        .merge(assets::routes())
        .fallback(page::not_found)
        .layer(from_fn_with_state(Arc::clone(&state), dress::dress))
        .with_state(state);
    Router::new().fallback_service(all).layer(map_request(visit::remember_arrival))
}
