//! The one door to the process environment.

/// The value of an environment variable, if it is set and is text; or, of `file:/path`, what a file says without the
/// end of its last line: where secrets are mounted.
#[expect(clippy::disallowed_methods, reason = "this is the one door")]
pub(crate) fn variable(name: &str) -> Option<String> {
    match name.strip_prefix("file:") {
        Some(path) => {
            let text = std::fs::read_to_string(path).ok()?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        None => std::env::var(name).ok(),
    }
}
