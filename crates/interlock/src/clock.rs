//! The one door to the wall clock.

use jiff::Timestamp;

/// The present instant.
#[expect(clippy::disallowed_methods, reason = "this is the one door")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
