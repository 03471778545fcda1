//! What is asked and what is answered, the same for programs and for HTTP.

use interlock_core::{
    id::PipelineId,
    readiness::{TraitResult, TraitSpec, TraitStatus},
    retry::FailureCategory,
};
use serde_json::{Value, json};

/// A reason is a sentence for people, and is stored with the decision.
const REASON_CHARS_MAX: usize = 2_000;

/// A value is what was measured, not the data: it is shown and stored with the decision.
const VALUE_BYTES_MAX: usize = 4 * 1024;

/// The question, as one line.
pub(crate) fn question(pipeline: &PipelineId, spec: &TraitSpec) -> String {
    let question = json!({
        "pipelineId": pipeline.as_str(),
        "traitType": spec.kind,
        "config": spec.config,
    });
    question.to_string()
}

/// Reads an answer.
pub(crate) fn read(text: &[u8]) -> TraitResult {
    if text.trim_ascii().is_empty() {
        return invalid("it said nothing");
    }
    let answer: Value = match serde_json::from_slice(text) {
        Ok(answer) => answer,
        Err(error) => return invalid(format!("it is not JSON: {error}")),
    };
    let word = |key: &str| answer.get(key).and_then(Value::as_str);
    let status = match word("status").map(TraitStatus::parse) {
        Some(Ok(status)) => status,
        Some(Err(error)) => return invalid(format!("{}. {}", error.message, error.help)),
        None => return invalid("it has no `status`"),
    };
    let mut reason = word("reason").map(|text| text.chars().take(REASON_CHARS_MAX).collect());
    let category = match word("failureCategory").map(|word| (word, FailureCategory::parse(word))) {
        Some((_, Ok(category))) => Some(category),
        Some((word, Err(_unknown))) => {
            // The answer itself is clear; only what it is called is not.
            let known: String = reason.unwrap_or_default();
            let word: String = word.chars().take(64).collect();
            reason = Some(format!("{known} (unknown failureCategory `{word}`)").trim().to_owned());
            None
        }
        None => None,
    };
    let value = answer.get("value").filter(|value| !value.is_null()).map(bounded);
    TraitResult { status, value, reason, category }
}

fn bounded(value: &Value) -> Value {
    let bytes = value.to_string().len();
    if bytes <= VALUE_BYTES_MAX {
        return value.clone();
    }
    Value::String(format!("({bytes} bytes, more than the {VALUE_BYTES_MAX} that are kept)"))
}

/// Something came that is no answer.
pub(crate) fn invalid(reason: impl AsRef<str>) -> TraitResult {
    let reason = format!("EVALUATOR_OUTPUT_INVALID: {}", reason.as_ref());
    failed(&reason, FailureCategory::Permanent)
}

/// Nothing came in time.
pub(crate) fn timeout(limit: std::time::Duration) -> TraitResult {
    failed(&format!("EVALUATOR_TIMEOUT: no answer within {limit:?}"), FailureCategory::Timeout)
}

/// It cannot be told, and why.
pub(crate) fn failed(reason: &str, category: FailureCategory) -> TraitResult {
    let reason = reason.chars().take(REASON_CHARS_MAX).collect();
    TraitResult {
        status: TraitStatus::Error,
        value: None,
        reason: Some(reason),
        category: Some(category),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let result = read(text.as_bytes());
        let category = result.category.map(FailureCategory::as_str).unwrap_or_default();
        let reason = result.reason.unwrap_or_default();
        let value = result.value.map(|value| value.to_string()).unwrap_or_default();
        format!("{}|{category}|{value}|{reason}", result.status.as_str())
    }

    #[test]
    fn answers_are_read_strictly() {
        let invalid = "ERROR|PERMANENT||EVALUATOR_OUTPUT_INVALID:";
        for (text, expected) in [
            (r#"{"status":"PASS"}"#, "PASS|||".to_owned()),
            (r#"{"status":"PASS","value":null,"other":1}"#, "PASS|||".to_owned()),
            (
                r#"{"status":"FAIL","value":{"n":3},"reason":"three","failureCategory":"TRANSIENT"}"#,
                r#"FAIL|TRANSIENT|{"n":3}|three"#.to_owned(),
            ),
            (r#"{"status":"ERROR","reason":"db down"}"#, "ERROR|||db down".to_owned()),
            (
                r#"{"status":"FAIL","reason":"late","failureCategory":"MOODY"}"#,
                "FAIL|||late (unknown failureCategory `MOODY`)".to_owned(),
            ),
            ("", format!("{invalid} it said nothing")),
            ("  \n", format!("{invalid} it said nothing")),
            ("{}", format!("{invalid} it has no `status`")),
            ("[]", format!("{invalid} it has no `status`")),
            (
                r#"{"status":"pass"}"#,
                format!(
                    "{invalid} `pass` is not a trait status. Use one of PASS, FAIL, ERROR, STALE."
                ),
            ),
            (
                r#"{"status":"PASS"} trailing"#,
                format!("{invalid} it is not JSON: trailing characters at line 1 column 19"),
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_stored_with_the_decision_stays_small() {
        let long = "x".repeat(100_000);
        let result =
            read(json!({"status": "FAIL", "reason": long, "value": [long]}).to_string().as_bytes());
        assert_eq!(result.reason.unwrap().len(), REASON_CHARS_MAX);
        let kept = result.value.unwrap();
        assert_eq!(kept, json!("(100004 bytes, more than the 4096 that are kept)"));
    }
}
