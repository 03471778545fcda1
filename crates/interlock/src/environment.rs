//! The one door to the process environment.

/// The value of an environment variable, if it is set and is text.
#[expect(clippy::disallowed_methods, reason = "this is the one door")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
