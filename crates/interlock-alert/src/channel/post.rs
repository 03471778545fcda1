//! One HTTP request, and what came of it: shared by every channel that makes one.

use interlock_core::retry::FailureCategory;
use interlock_trigger::web::{Answer, Call, Web, WebFailure};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};

use interlock_ports::channel::{AlertMessage, Delivery};

/// Nobody is left alone for longer than this.
const RETRY_AFTER_MAX: SignedDuration = SignedDuration::from_hours(24);

/// Sends a request; an answer only if the receiver is content, else what that means.
pub(crate) async fn post(web: &Web, call: &Call, at: Timestamp) -> Result<Answer, Delivery> {
    let answer = web.send(call).await.map_err(failed)?;
    if answer.is_success() {
        return Ok(answer);
    }
    let asked = answer.retry_after.as_deref();
    let retry_after = asked.and_then(|text| retry_after(text, at));
    Err(delivery(answer.category(), answer.sentence(), retry_after))
}

/// What it means that nothing came back.
pub(crate) fn failed(failure: WebFailure) -> Delivery {
    delivery(failure.category(), failure.message, None)
}

fn delivery(
    category: FailureCategory,
    reason: String,
    retry_after: Option<SignedDuration>,
) -> Delivery {
    match category {
        FailureCategory::Permanent => Delivery::Refused { reason },
        FailureCategory::Transient | FailureCategory::Timeout | FailureCategory::EvaluatorCrash => {
            Delivery::Failed { reason, retry_after }
        }
    }
}

/// The header by which a receiver can tell a repetition.
pub(crate) fn idempotency_key(notice: &AlertMessage) -> (String, String) {
    ("Idempotency-Key".to_owned(), header_text(&notice.key))
}

/// How long a receiver wants to be left alone: seconds, or an instant.
fn retry_after(text: &str, now: Timestamp) -> Option<SignedDuration> {
    let asked = match text.trim().parse::<u32>() {
        Ok(seconds) => SignedDuration::from_secs(seconds.into()),
        Err(_no_number) => rfc2822::parse(text.trim()).ok()?.timestamp().duration_since(now),
    };
    Some(asked.clamp(SignedDuration::ZERO, RETRY_AFTER_MAX))
}

/// A key as a header can carry it: names of channels may hold any letters.
fn header_text(key: &str) -> String {
    key.chars()
        .flat_map(|c| if c.is_ascii_graphic() { vec![c] } else { c.escape_unicode().collect() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_an_instant_and_never_too_long() {
        let now: Timestamp = "2026-02-25T09:25:00Z".parse().unwrap();
        for (text, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Wed, 25 Feb 2026 09:26:40 GMT", Some(100)),
            ("Wed, 25 Feb 2026 09:00:00 GMT", Some(0)),
            ("999999999", Some(24 * 3600)),
            ("soon", None),
            ("-5", None),
        ] {
            assert_eq!(retry_after(text, now).map(|d| d.as_secs()), seconds, "{text}");
        }
    }

    #[test]
    fn a_key_with_any_letters_fits_a_header() {
        assert_eq!(header_text("failed:a~1@ché at"), r"failed:a~1@ch\u{e9}\u{20}at");
    }
}
