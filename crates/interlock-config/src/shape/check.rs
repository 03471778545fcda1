//! The structural check: every unknown key, wrong kind, missing key and wrong word in one pass.
//!
//! The tree is put into its canonical form on the way: other spellings of a key are renamed, unknown
//! keys are taken out, and what is wrong becomes null. A decoder can therefore rely on the kind of
//! everything it finds, and can tell a key that is wrong from one that is absent, so that nothing is
//! reported twice.

use std::collections::BTreeSet;

use super::{Field, FileKind, Format, MapShape, Placeholders, Shape, TYPE, Variant};
use crate::{
    placeholder,
    problem::{Code, Problems},
    source::Span,
    suggest,
    yaml::{Entry, Node, Text, Value, names_a_secret},
};

/// Checks a file against its shape and puts its tree into canonical form; `None` when it is not
/// even a map.
pub(crate) fn check(
    mut root: Node,
    kind: FileKind,
    text: &str,
    problems: &mut Problems,
) -> Option<Node> {
    let at = root.entries().first().map_or(root.span, |entry| entry.key_span);
    let shape = kind.shape();
    let mut checker = Checker { kind, text, problems };
    if let Value::Map(entries) = &mut root.value {
        checker.map(entries, shape, at);
        Some(root)
    } else {
        let message = format!("{} must be a map of keys, found {}", shape.name, root.kind());
        checker.problems.add(root.span, Code::WrongType, message, "Write `key: value` lines.");
        None
    }
}

struct Checker<'a> {
    kind: FileKind,
    text: &'a str,
    problems: &'a mut Problems,
}

/// What becomes of a value.
#[derive(PartialEq, Eq)]
enum Keep {
    Yes,
    /// It is wrong, which was reported: it becomes null.
    No,
    /// It is as if it were not there.
    Absent,
}

impl Keep {
    /// Whether the value stays in the tree, as it is or as null.
    fn apply(self, node: &mut Node) -> bool {
        if self == Self::No {
            node.value = Value::Null;
        }
        self != Self::Absent
    }
}

impl Checker<'_> {
    fn map(&mut self, entries: &mut Vec<Entry>, shape: &'static MapShape, at: Span) {
        let variant = if shape.variants.is_empty() {
            None
        } else {
            match self.choose(entries, shape, at) {
                Some(variant) => Some(variant),
                // Without a type nobody can say which keys are right.
                None => return self.hide_all(entries),
            }
        };
        let fields: Vec<&'static Field> =
            shape.fields().chain(variant.into_iter().flat_map(Variant::fields)).collect();
        let mut present = BTreeSet::new();
        let has_secrets = fields.iter().any(|field| field.shape.is_secret());
        entries.retain_mut(|entry| {
            if variant.is_some() && entry.key == TYPE {
                return true;
            }
            let Some(field) = fields.iter().find(|field| field.is(&entry.key)) else {
                if variant.is_some_and(|variant| variant.open) {
                    return true;
                }
                self.unknown(entry, shape, &fields);
                if has_secrets {
                    self.problems.hide(entry.value.span);
                }
                return false;
            };
            if !present.insert(field.name) {
                self.spelled_twice(entry, field);
                return false;
            }
            let written = std::mem::replace(&mut entry.key, field.name.to_owned());
            self.field(entry, field, &written).apply(&mut entry.value)
        });
        self.missing(&present, &fields, shape, at);
        self.missing_any(
            &present,
            variant.map_or(shape.any_of, |variant| variant.any_of),
            shape,
            at,
        );
    }

    fn choose(
        &mut self,
        entries: &[Entry],
        shape: &'static MapShape,
        at: Span,
    ) -> Option<&'static Variant> {
        let words = shape.variant_words();
        let Some(entry) = entries.iter().find(|entry| entry.key == TYPE) else {
            let message = format!("the key `{TYPE}` is missing in {}", shape.name);
            let help = format!("Write `{TYPE}:` with one of: {}.", suggest::listed(&words));
            self.problems.add(at, Code::MissingKey, message, help);
            return None;
        };
        let found = entry.value.text().and_then(|word| shape.variant(word));
        match (found, entry.value.text()) {
            (Some(variant), Some(word)) if !variant.refused.is_empty() => {
                let message =
                    format!("this version does not act on `{TYPE}: {word}` in {}", shape.name);
                self.problems.add(entry.value.span, Code::Refused, message, variant.refused);
            }
            (Some(_), _) => {}
            (None, _) => self.not_allowed(&entry.value, TYPE, &words),
        }
        found
    }

    fn field(&mut self, entry: &mut Entry, field: &'static Field, written: &str) -> Keep {
        if entry.value.value == Value::Null {
            // An empty section is an absent one; an empty value is a value that was forgotten.
            if !field.shape.is_container() {
                let message = format!("`{written}` has no value");
                let help = "Write a value, or remove the key.";
                self.problems.add(entry.key_span, Code::NoValue, message, help);
            } else if field.required {
                let message = format!("`{written}` must not be empty");
                self.problems.add(entry.key_span, Code::NoValue, message, "");
            } else {
                return Keep::Absent;
            }
            return Keep::No;
        }
        if !field.is_accepted() {
            let message = format!("this version does not act on `{written}`");
            self.problems.add(entry.key_span, Code::Refused, message, field.refused);
        }
        if self.refuse_word(&entry.value, field, written) {
            return Keep::No;
        }
        self.value(&mut entry.value, field.shape, written, entry.key_span)
    }

    /// Whether a value is a word that people know and nothing here acts on.
    fn refuse_word(&mut self, node: &Node, field: &Field, written: &str) -> bool {
        let word = node.text().unwrap_or_default();
        let found = field.refused_words.iter().find(|(refused, _)| *refused == word);
        if let Some((word, instead)) = found {
            let message = format!("this version does not act on `{written}: {word}`");
            self.problems.add(node.span, Code::Refused, message, *instead);
        }
        found.is_some()
    }

    fn value(&mut self, node: &mut Node, shape: &'static Shape, name: &str, at: Span) -> Keep {
        match shape {
            Shape::Either(shapes) => {
                let fitting = shapes.iter().find(|shape| shape.accepts_kind(&node.value));
                match fitting {
                    Some(shape) => self.value(node, shape, name, at),
                    None => self.wrong(node, shape, name),
                }
            }
            Shape::Json => Keep::Yes,
            shape if !shape.accepts_kind(&node.value) => {
                if shape.is_hidden() {
                    self.problems.hide(node.span);
                }
                self.wrong(node, shape, name)
            }
            Shape::Text(format) => self.format(node, *format, name),
            Shape::Scalar(format) => {
                self.take_as_written(node);
                self.format(node, *format, name)
            }
            Shape::Int { min, max } => self.range(node, *min, *max, name),
            Shape::Number { min } => self.least(node, *min, name),
            Shape::Bool => Keep::Yes,
            Shape::Choice(words) => {
                if node.text().is_some_and(|text| words.contains(&text)) {
                    return Keep::Yes;
                }
                self.not_allowed(node, name, words);
                Keep::No
            }
            Shape::List(item) => {
                if let Value::List(items) = &mut node.value {
                    self.items(items, item, name);
                }
                Keep::Yes
            }
            Shape::Map(map) => {
                if let Value::Map(entries) = &mut node.value {
                    self.map(entries, map, at);
                }
                Keep::Yes
            }
            Shape::Dict(value) => {
                if let Value::Map(entries) = &mut node.value {
                    entries.retain_mut(|entry| {
                        let name = entry.key.clone();
                        if entry.value.value == Value::Null && value.is_container() {
                            entry.value.value = Value::Map(Vec::new());
                        }
                        let keep = self.value(&mut entry.value, value, &name, entry.key_span);
                        keep.apply(&mut entry.value)
                    });
                }
                Keep::Yes
            }
        }
    }

    fn items(&mut self, items: &mut Vec<Node>, shape: &'static Shape, name: &str) {
        let mut index = 0;
        items.retain_mut(|node| {
            let at = node.entries().first().map_or(node.span, |entry| entry.key_span);
            let keep = if shape.accepts_kind(&node.value) {
                self.value(node, shape, name, at)
            } else {
                self.value(node, shape, &format!("{name}[{index}]"), at)
            };
            index += 1;
            keep.apply(node)
        });
    }

    /// Turns `5` and `true` into the text that stands in the file.
    fn take_as_written(&self, node: &mut Node) {
        if node.text().is_none() {
            let value = self.text.get(node.span.range()).unwrap_or("").to_owned();
            node.value = Value::Text(Text { value, verbatim: Some(node.span.start) });
        }
    }

    fn format(&mut self, node: &Node, format: Format, name: &str) -> Keep {
        if format.is_hidden() {
            self.problems.hide(node.span);
        }
        let Some(text) = node.text() else { return Keep::Yes };
        let allowed = format.placeholders();
        if allowed == Placeholders::Foreign {
            return Keep::Yes;
        }
        let mut keep = Keep::Yes;
        for found in placeholder::find(text) {
            if let Some((message, help)) = found.refusal(allowed, name) {
                let span = node.span_within(found.span.clone());
                self.problems.add(span, Code::PlaceholderNotAllowed, message, help);
                keep = Keep::No;
            }
        }
        keep
    }

    fn range(&mut self, node: &Node, min: i64, max: i64, name: &str) -> Keep {
        let Value::Int(number) = node.value else { return Keep::No };
        if (min..=max).contains(&number) {
            return Keep::Yes;
        }
        let help = format!("It must be between {min} and {max}.");
        self.problems.add(node.span, Code::OutOfRange, format!("`{name}` is {number}"), help);
        Keep::No
    }

    fn least(&mut self, node: &Node, min: f64, name: &str) -> Keep {
        let below = match node.value {
            Value::Float(number) => !number.is_finite() || number < min,
            Value::Int(number) => number < min as i64,
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => false,
        };
        if !below {
            return Keep::Yes;
        }
        let raw = self.text.get(node.span.range()).unwrap_or("");
        let help = format!("It must be at least {min}.");
        self.problems.add(node.span, Code::OutOfRange, format!("`{name}` is {raw}"), help);
        Keep::No
    }

    fn wrong(&mut self, node: &Node, shape: &Shape, name: &str) -> Keep {
        let message = format!("`{name}` must be {}, found {}", shape.words(), node.kind());
        let raw = self.text.get(node.span.range()).unwrap_or("");
        let scalar = matches!(node.value, Value::Bool(_) | Value::Int(_) | Value::Float(_));
        let help = match shape.format().filter(|_| scalar) {
            Some(format) if format.is_hidden() => "Put it into quotes.".to_owned(),
            Some(format) if format.is_free() => format!("Put it into quotes: \"{raw}\"."),
            Some(format) => format!("Write a {}.", format.words()),
            None => String::new(),
        };
        self.problems.add(node.span, Code::WrongType, message, help);
        Keep::No
    }

    fn not_allowed(&mut self, node: &Node, name: &str, words: &[&str]) {
        let raw = self.text.get(node.span.range()).unwrap_or("");
        let written = node.text().unwrap_or(raw);
        let help = suggest::did_you_mean_or_list(written, "Write one of", words);
        let message = format!("`{written}` is not a value of `{name}`");
        self.problems.add(node.span, Code::NotAllowed, message, help);
    }

    fn unknown(&mut self, entry: &Entry, shape: &MapShape, fields: &[&'static Field]) {
        if names_a_secret(&entry.key) || self.problems.is_full() {
            self.problems.hide(entry.value.span);
        }
        if self.problems.is_full() {
            return self.problems.add(entry.key_span, Code::UnknownKey, "", "");
        }
        let fields: Vec<_> = fields.iter().filter(|field| field.is_accepted()).collect();
        let names: Vec<_> = fields
            .iter()
            .flat_map(|field| std::iter::once(field.name).chain(field.aliases.iter().copied()))
            .collect();
        let help = if let Some(found) = suggest::closest(&entry.key, names.iter().copied()) {
            if fields.iter().any(|field| field.is(found) && field.shape.is_hidden()) {
                self.problems.hide(entry.value.span);
            }
            format!("Did you mean `{found}`?")
        } else if let Some(places) = self.kind.shape().places_of(&entry.key, shape) {
            format!("`{}` belongs under {places}.", entry.key)
        } else {
            let names: Vec<_> = fields.iter().map(|field| field.name).collect();
            format!("Keys here: {}.", suggest::listed(&names))
        };
        let message = format!("unknown key `{}` in {}", entry.key, shape.name);
        self.problems.add(entry.key_span, Code::UnknownKey, message, help);
    }

    fn spelled_twice(&mut self, entry: &Entry, field: &Field) {
        if field.shape.is_hidden() {
            self.problems.hide(entry.value.span);
        }
        let message = format!("`{}` is another spelling of a key that already exists", entry.key);
        let help = format!("Keep one of: {}, {}.", field.name, field.aliases.join(", "));
        self.problems.add(entry.key_span, Code::Conflict, message, help);
    }

    fn missing(
        &mut self,
        present: &BTreeSet<&str>,
        fields: &[&'static Field],
        shape: &MapShape,
        at: Span,
    ) {
        for field in fields.iter().filter(|field| field.required && !present.contains(field.name)) {
            let message = format!("the key `{}` is missing in {}", field.name, shape.name);
            let help = format!("Write `{}: ...`: {}", field.name, field.doc);
            self.problems.add(at, Code::MissingKey, message, help);
        }
    }

    fn missing_any(
        &mut self,
        present: &BTreeSet<&str>,
        any_of: &[&str],
        shape: &MapShape,
        at: Span,
    ) {
        if any_of.is_empty() || any_of.iter().any(|key| present.contains(key)) {
            return;
        }
        let keys = any_of.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(" or ");
        let message = format!("the key {keys} is missing in {}", shape.name);
        self.problems.add(at, Code::MissingKey, message, "");
    }

    fn hide_all(&mut self, entries: &mut Vec<Entry>) {
        for entry in entries.drain(..).filter(|entry| entry.key != TYPE) {
            self.problems.hide(entry.value.span);
        }
    }
}
