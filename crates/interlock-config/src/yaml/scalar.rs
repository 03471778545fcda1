//! Single scalars: what plain ones mean, and how a syntax error is told.

use std::ops::Range;

use super::Value;

/// What an unquoted scalar is in the YAML 1.2 core schema; `None` for text.
pub(super) fn resolve_plain(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
        _ => {}
    }
    let first = *text.as_bytes().first()?;
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return None;
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).ok().map(Value::Int);
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return i64::from_str_radix(octal, 8).ok().map(Value::Int);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().map(Value::Int);
    }
    let float =
        digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
            && digits.bytes().any(|b| b.is_ascii_digit())
            && digits.bytes().next().is_some_and(|b| b.is_ascii_digit() || b == b'.');
    if float { text.parse().ok().map(Value::Float) } else { None }
}

/// Names after which a value is hidden when a file cannot be parsed at all.
const SECRET_WORDS: [&str; 9] =
    ["password", "secret", "token", "apikey", "api_key", "dsn", "url", "authorization", "key"];

/// Whether a key looks as if its value should not be shown.
pub(crate) fn names_a_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| key.contains(word))
}

/// Values in an unparsed text that may be secret: what follows a telling key, on its line and on
/// the lines that are indented under it.
pub(super) fn likely_secrets(text: &str) -> Vec<Range<usize>> {
    let mut hidden = Vec::new();
    let mut start = 0;
    let mut under: Option<usize> = None;
    for line in text.split_inclusive('\n') {
        let content = line.trim_end();
        let indent = content.len() - content.trim_start().len();
        if under.is_some_and(|key| indent > key || content.is_empty()) {
            hidden.push(start + indent..start + content.len());
        } else {
            let colons = content.match_indices(':').map(|(at, _)| at);
            let found = colons.into_iter().find(|at| is_telling(content, *at));
            under = found.map(|_| indent);
            hidden.extend(found.map(|at| start + at + 1..start + content.len()));
        }
        start += line.len();
    }
    hidden
}

/// Whether the word in front of a colon is the key of something that is not shown.
fn is_telling(line: &str, colon: usize) -> bool {
    // A bounded look back, since a line may be all colons.
    const LOOK_BACK: usize = 60;
    let mut from = colon.saturating_sub(LOOK_BACK);
    while !line.is_char_boundary(from) {
        from += 1;
    }
    let before = line.get(from..colon).unwrap_or("").trim_end();
    let word = before.rsplit([' ', '\t', ',', '{', '[']).next().unwrap_or("");
    let word = word.trim_matches(['"', '\'']);
    names_a_secret(word) || word == "env" || word == "headers"
}

/// A syntax error in words that help somebody who has never read the YAML specification.
pub(super) fn explain(info: &str, rest: &str) -> (String, &'static str) {
    let table: [(&str, &str, &str); 9] = [
        ("unclosed quote", "a quoted text never ends", "Close the quote."),
        ("tabs disallowed", "a tab is used for indentation", "Indent with spaces."),
        (
            "mapping values are not allowed",
            "a `:` is not expected here",
            "Quote a value that contains `: `, and indent keys of one map equally.",
        ),
        (
            "block sequence entries are not allowed",
            "a list item is not expected here",
            "Put each `- item` on a line of its own, under its key.",
        ),
        (
            "did not find expected '-'",
            "a list item `- ...` is expected here",
            "A list and a map cannot be mixed at the same indentation.",
        ),
        ("unknown anchor", "the alias names an anchor that does not exist", "Write `&name` first."),
        (
            "illegal placement of ':'",
            "a `:` is not expected here",
            "Close the list or map above with `]` or `}`.",
        ),
        (
            "quoted scalar",
            "a quoted text does not end where it should",
            "Close the quote on the same line.",
        ),
        (
            "unexpected end",
            "the file ends in the middle of a value",
            "Close the quote, list or map that is still open.",
        ),
    ];
    if let Some((_, message, help)) = table.iter().find(|(part, _, _)| info.contains(part)) {
        return ((*message).to_owned(), help);
    }
    if let Some(c) = rest.chars().next().filter(|c| matches!(c, '@' | '`' | '%' | '\0')) {
        let shown = c.escape_default();
        return (format!("a value cannot begin with `{shown}`"), "Put the value into quotes.");
    }
    (format!("this is not YAML: {info}"), "")
}
