//! The strings of the sources, and whether one of them makes a sentence.

use std::{fs, path::Path};

/// A string of a source with places to fill in.
pub(crate) struct Template(Vec<String>);

/// So many letters must be a template's own, or a third of the sentence's: one that is all filled in makes everything.
const OWN_LETTERS: usize = 6;
/// With so many it may be a part of a sentence.
const PART_LETTERS: usize = 12;

impl Template {
    pub(crate) fn of(text: &str) -> Self {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            if let Some(escaped) = after.strip_prefix('{') {
                parts.push(before.to_owned());
                rest = escaped;
                continue;
            }
            parts.push(before.to_owned());
            rest = after.split_once('}').map_or("", |(_, after)| after);
        }
        parts.push(rest.to_owned());
        Self(parts.into_iter().map(|part| part.replace("}}", "}")).collect())
    }

    /// Whether a sentence is made of its parts, in their order, with something between them.
    pub(crate) fn makes(&self, sentence: &str) -> bool {
        let letters = |text: &str| text.chars().filter(|c| c.is_alphabetic()).count();
        let own: usize = self.0.iter().map(|part| letters(part)).sum();
        if own < OWN_LETTERS && own * 3 < letters(sentence) {
            return false;
        }
        // What says enough by itself may stand behind whom it is about, and before what follows from it.
        let is_part = own >= PART_LETTERS;
        let [first, between @ .., last] = self.0.as_slice() else {
            return self.0.first().is_some_and(|only| {
                only == sentence || (is_part && sentence.contains(only.as_str()))
            });
        };
        let begins = sentence.strip_prefix(first.as_str());
        let within = || Some(sentence.split_once(first.as_str())?.1).filter(|_| is_part);
        let Some(mut rest) = begins.or_else(within) else { return false };
        for part in between {
            let Some((_, after)) = rest.split_once(part.as_str()) else { return false };
            rest = after;
        }
        rest.ends_with(last.as_str())
    }
}

/// The strings of all sources below a folder, but for tests and the catalogue itself.
pub(crate) fn strings(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            let is_source = !matches!(name.as_str(), "tests" | "benches" | "target" | "message");
            if is_source && !name.starts_with("interlock-sim") && !name.ends_with("conformance") {
                found.extend(strings(&path));
            }
        } else if path.extension().is_some_and(|it| it == "rs") && name != "tests.rs" {
            let code = fs::read_to_string(&path).unwrap();
            let shipped = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            found.extend(literals(shipped));
        }
    }
    found
}

/// The literals of a source, as they are printed.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let from = rest.get(at..).unwrap_or_default();
        rest = if from.starts_with("//") {
            from.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(quoted) = from.strip_prefix('"') {
            let (text, after) = literal(quoted);
            found.push(text);
            after
        } else if let Some(quoted) = from.strip_prefix("'\"'") {
            quoted
        } else if let Some(quoted) = from.strip_prefix("'\\\"'") {
            quoted
        } else {
            from.get(1..).unwrap_or_default()
        };
    }
    found
}

/// A literal whose opening quote was read, and what comes after it.
fn literal(code: &str) -> (String, &str) {
    let mut text = String::new();
    let mut characters = code.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (text, code.get(at + 1..).unwrap_or_default()),
            '\\' => match characters.next() {
                Some((_, '\n')) => {
                    while characters.next_if(|(_, c)| c.is_whitespace()).is_some() {}
                }
                Some((_, 'n')) => text.push('\n'),
                Some((_, c)) => text.push(c),
                None => {}
            },
            c => text.push(c),
        }
    }
    (text, "")
}
