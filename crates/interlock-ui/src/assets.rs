//! What the pages are dressed in: one stylesheet, two scripts. Their names change with what is in them, so that a browser keeps them for ever.

use std::{
    fmt::Write as _,
    sync::{Arc, LazyLock},
};

use axum::{
    Router,
    body::Bytes,
    extract::Path,
    http::{
        HeaderMap, HeaderValue,
        header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY},
    },
    response::{IntoResponse as _, Response},
    routing::get,
};

use crate::{
    dress::{compressed, takes_gzip},
    trouble::Trouble,
    visit::PagesState,
};

/// A file that the pages name.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Where it is.
    pub(crate) href: String,
    content_type: &'static str,
    text: &'static str,
    gzip: Bytes,
}

/// The dot of a browser's tab.
const ICON: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 20" fill="none" stroke="#0a6a80" stroke-width="2.4"><path d="M1 6.5h7l4 7h7M1 13.5h5M14 6.5h5"/></svg>"##;

static ALL: LazyLock<[Asset; 4]> = LazyLock::new(|| {
    [
        Asset::new("style", "css", include_str!("../assets/style.css")),
        Asset::new("htmx", "js", include_str!("../assets/htmx.min.js")),
        Asset::new("app", "js", include_str!("../assets/app.js")),
        Asset::new("icon", "svg", ICON),
    ]
});

impl Asset {
    fn new(name: &str, ending: &str, text: &'static str) -> Self {
        let content_type = match ending {
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            _ => "image/svg+xml",
        };
        let href = format!("/assets/{name}-{}.{ending}", fingerprint(text.as_bytes()));
        Self { href, content_type, text, gzip: compressed(text.as_bytes(), 9).into() }
    }
}

/// The stylesheet.
pub(crate) fn style() -> &'static Asset {
    &ALL[0]
}

/// htmx 4.0.1, as it is published (`assets/README.md`).
pub(crate) fn htmx() -> &'static Asset {
    &ALL[1]
}

/// Our own script.
pub(crate) fn app() -> &'static Asset {
    &ALL[2]
}

/// FNV-1a: names tell versions apart, they protect nothing.
fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut text = String::new();
    let _never = write!(text, "{hash:016x}");
    text
}

pub(crate) fn routes() -> Router<Arc<PagesState>> {
    Router::new().route("/assets/{name}", get(asset)).route("/favicon.ico", get(icon))
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Trouble> {
    let href = format!("/assets/{name}");
    let found = ALL.iter().find(|asset| asset.href == href);
    Ok(sent(found.ok_or_else(|| Trouble::not_found(&href))?, &headers))
}

async fn icon(headers: HeaderMap) -> Response {
    sent(&ALL[3], &headers)
}

fn sent(asset: &'static Asset, headers: &HeaderMap) -> Response {
    let is_gzip = takes_gzip(headers);
    let body = if is_gzip { asset.gzip.clone() } else { Bytes::from_static(asset.text.as_bytes()) };
    let mut response = body.into_response();
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_gzip {
        fields.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_script_is_small() {
        let script: usize = [htmx(), app()].iter().map(|asset| asset.gzip.len()).sum();
        assert!(script <= 30_000, "{script} bytes of script, compressed");
    }
}
