//! The tables of fields in `docs/json.md`, made from the answers themselves: commands with `--json` and HTTP print the same types.
//!
//! `UPDATE_OPENAPI=1 cargo nextest run -p interlock-api json_fields` writes them anew.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::PathBuf};

use interlock_api::openapi;
use serde_json::Value;

/// Where they begin; they go on to the end of the file.
const BEGIN: &str = "## Every field of every answer\n";

/// All tables, by the names of the answers.
fn tables() -> String {
    let document: Value = serde_json::from_str(&openapi()).unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut text = format!(
        "{BEGIN}\nMade from the types that commands with `--json` and HTTP print; a test compares them. Lists over HTTP are `items`, `next` and `scanned`;\n\
         commands print the items alone.\n"
    );
    for (name, schema) in schemas {
        let is_answer = !name.starts_with("Listing_") && !name.ends_with("Request");
        if let Some(table) = is_answer.then(|| table(name, schema)).flatten() {
            text.push_str(&table);
        }
    }
    text
}

/// The section of an answer; none of one without fields or words.
fn table(name: &str, schema: &Value) -> Option<String> {
    let mut text = format!("\n### {name}\n");
    if let Some(meaning) = schema["description"].as_str() {
        let _never = write!(text, "\n{}\n", one_line(meaning));
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<_> = words.iter().filter_map(Value::as_str).map(code).collect();
        let _never = write!(text, "\nOne of {}.\n", words.join(", "));
        return Some(text);
    }
    let (more, fields) = fields(schema);
    for other in &more {
        let _never = write!(text, "\nHas all fields of {other}.\n");
    }
    if fields.is_empty() {
        return (!more.is_empty()).then_some(text);
    }
    text.push_str("\n| field | value | meaning |\n|---|---|---|\n");
    for (field, schema) in fields {
        let meaning = one_line(&meaning(schema));
        let _never = writeln!(text, "| `{field}` | {} | {meaning} |", kind(schema));
    }
    Some(text)
}

/// The answers of which one is made, and the fields of its own.
fn fields(schema: &Value) -> (Vec<String>, BTreeMap<String, &Value>) {
    let mut more = Vec::new();
    let mut found: Vec<(String, &Value)> = Vec::new();
    let parts = ["allOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
    for part in parts.chain([schema]) {
        if part["$ref"].is_string() {
            more.push(kind(part));
        }
        let own = part["properties"].as_object().into_iter().flatten();
        found.extend(own.map(|(name, schema)| (name.clone(), schema)));
    }
    (more, found.into_iter().collect())
}

/// What a value is, in a word or two.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    for key in ["oneOf", "allOf"] {
        if let Some(parts) = schema[key].as_array() {
            let parts: Vec<_> = parts.iter().map(kind).collect();
            return parts.join(" or ");
        }
    }
    let words = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        Value::String(word) => vec![word.as_str()],
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return "any".to_owned();
        }
    };
    let word = |word: &str| match (word, schema["format"].as_str()) {
        ("string", Some("date-time")) => "instant".to_owned(),
        ("string", Some("date")) => "date".to_owned(),
        ("string", _) => "text".to_owned(),
        ("integer" | "number", _) => "number".to_owned(),
        ("boolean", _) => "true or false".to_owned(),
        ("array", _) => format!("list of {}", kind(&schema["items"])),
        (other, _) => other.to_owned(),
    };
    let words: Vec<_> = words.into_iter().map(word).collect();
    words.join(" or ")
}

/// What a field means; that of what it refers to is in front of the reference.
fn meaning(schema: &Value) -> String {
    let own = schema["description"].as_str();
    let part = || schema["oneOf"].as_array()?.iter().find_map(|part| part["description"].as_str());
    own.or_else(part).unwrap_or_default().to_owned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn code(word: &str) -> String {
    format!("`{word}`")
}

#[test]
fn the_fields_in_the_document_are_those_of_the_answers() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let text = fs::read_to_string(&file).unwrap();
    let written = text.find(BEGIN).map_or("", |at| &text[at..]);
    let expected = tables();
    if env::var_os("UPDATE_OPENAPI").is_some() {
        let prose = text.strip_suffix(written).unwrap().trim_end();
        fs::write(&file, format!("{prose}\n\n{expected}")).unwrap();
        return;
    }
    let cure = "UPDATE_OPENAPI=1 cargo nextest run -p interlock-api json_fields";
    assert!(
        written == expected,
        "docs/json.md is not what the answers are. If they are right: {cure}"
    );
    assert!(
        expected.contains("| `disposition` |") && expected.contains("### Slot\n"),
        "{expected}"
    );
}
