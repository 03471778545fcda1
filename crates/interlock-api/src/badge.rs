//! `/badge/{pipeline}.svg` and `.json`: how a pipeline stands, for a page that is not ours.

use std::{fmt::Write as _, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse as _, Response},
};
use interlock_answers::{
    ErrorCode,
    model::{badge::BadgeAnswer, fleet::BadgeQuery},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    desk::{refused, unknown_pipeline},
    error::ApiError,
    question::{AskedPath, AskedQuery},
    surface::Surface,
};

/// Pixels beside each text, and of a character on average.
const MARGIN: usize = 6;
const CHARACTER: usize = 7;

pub(crate) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(badge))
}

/// How a pipeline stands: `/badge/orders.svg` is an image, `/badge/orders.json` an endpoint for shields.io.
#[utoipa::path(get, path = "/badge/{file}", tag = "pipelines",
    params(("file" = String, Path, description = "The pipeline and `.svg` or `.json`."), BadgeQuery),
    responses((status = 200, content((BadgeAnswer = "application/json"), (String = "image/svg+xml")))))]
async fn badge(
    State(surface): State<Arc<Surface>>,
    AskedPath(file): AskedPath<String>,
    AskedQuery(_key_was_looked_at): AskedQuery<BadgeQuery>,
) -> Result<Response, ApiError> {
    let store = Arc::clone(surface.open_store()?);
    let (name, kind) = file.rsplit_once('.').unwrap_or((&file, ""));
    if !matches!(kind, "svg" | "json") {
        let message = format!("there is no badge `{file}`");
        let hint = "It is the pipeline's name and `.svg` or `.json`.";
        return Err(ApiError::new(ErrorCode::NotFound, message, hint));
    }
    let fleet = surface.asked_fleet().await;
    if fleet.freshness().is_counting {
        return Err(ApiError::starting());
    }
    let now = store.now().await.map_err(refused)?;
    let badge = fleet.badge(name, now).ok_or_else(|| unknown_pipeline(name))?;
    Ok(if kind == "json" {
        Json(badge).into_response()
    } else {
        ([(CONTENT_TYPE, "image/svg+xml")], svg(&badge)).into_response()
    })
}

/// A flat badge: the name on grey, the state on its colour. Names have no character that XML writes in another way.
fn svg(badge: &BadgeAnswer) -> String {
    let width = |text: &str| text.chars().count() * CHARACTER + 2 * MARGIN;
    let (left, right) = (width(&badge.label), width(&badge.message));
    let (all, color) = (left + right, hex(&badge.color));
    let BadgeAnswer { label, message, .. } = badge;
    let mut svg = String::new();
    // Writing to a text cannot fail.
    let _never = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{all}\" height=\"20\" role=\"img\" aria-label=\"{label}: {message}\">\
         <title>{label}: {message}</title>\
         <clipPath id=\"r\"><rect width=\"{all}\" height=\"20\" rx=\"3\"/></clipPath>\
         <g clip-path=\"url(#r)\"><rect width=\"{left}\" height=\"20\" fill=\"#555\"/>\
         <rect x=\"{left}\" width=\"{right}\" height=\"20\" fill=\"{color}\"/></g>\
         <g fill=\"#fff\" text-anchor=\"middle\" font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"11\">\
         <text x=\"{}\" y=\"14\">{label}</text><text x=\"{}\" y=\"14\">{message}</text></g></svg>",
        left / 2,
        left + right / 2,
    );
    svg
}

/// Colours that white text can be read on.
fn hex(name: &str) -> &'static str {
    match name {
        "brightgreen" => "#2a7d2e",
        "red" => "#c0332b",
        "orange" => "#a85b00",
        "blue" => "#0b6b87",
        "blueviolet" => "#6d4bb8",
        _ => "#6b6b6b",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_says_in_words_what_its_colour_says() {
        let badge = BadgeAnswer {
            schema_version: 1,
            label: "orders".to_owned(),
            message: "on time".to_owned(),
            color: "brightgreen".to_owned(),
            is_error: false,
        };
        let svg = svg(&badge);
        assert!(svg.contains("<title>orders: on time</title>"), "{svg}");
        assert!(svg.contains("#2a7d2e"), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"), "{svg}");
    }
}
