//! YAML text to a tree that remembers where everything stands.
//!
//! The parser underneath gives events with byte offsets; this module turns them into [`Node`]s and is
//! strict where YAML is generous: no duplicate keys, no tags, no merge keys, one document, text keys
//! only. Scalars follow the YAML 1.2 core schema, so `no` and `09:00` are text.
//!
//! Invariant: work is bounded. A file has at most [`BYTES_MAX`] bytes, [`DEPTH_MAX`] levels,
//! [`KEYS_MAX`] keys in one map and, after aliases are expanded, [`NODES_MAX`] values; beyond that it
//! is refused with a sentence.

mod scalar;

pub(crate) use scalar::names_a_secret;

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, StrInput};

use crate::{
    problem::{Code, Problems},
    source::{Origin, Span},
};

/// No configuration file is larger.
pub const BYTES_MAX: usize = 1 << 20;
/// No file has more values, aliases expanded.
pub const NODES_MAX: usize = 50_000;
/// No map has more keys.
pub const KEYS_MAX: usize = 1_000;
/// No file is nested deeper.
pub const DEPTH_MAX: usize = 64;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Text),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A text scalar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Text {
    pub(crate) value: String,
    /// Where its first byte stands, if the bytes of the file are the bytes of the value.
    pub(crate) verbatim: Option<u32>,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: Node,
}

impl Node {
    /// A map without keys.
    pub(crate) fn empty_map(span: Span) -> Self {
        Self { span, value: Value::Map(Vec::new()) }
    }

    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The value of a key, if this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The entry of a key, if this is a map that has it.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The entries of a map; none for everything else.
    pub(crate) fn entries(&self) -> &[Entry] {
        if let Value::Map(entries) = &self.value { entries } else { &[] }
    }

    /// The items of a list; the value itself for everything else, since a list of one may be
    /// written without its brackets where both are allowed.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            Value::Null => &[],
            Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) | Value::Map(_) => {
                std::slice::from_ref(self)
            }
        }
    }

    /// The text, if this is one.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(&text.value) } else { None }
    }

    /// The place in the file of a stretch of the decoded text; the whole value when the text was
    /// escaped or folded and bytes cannot be matched one to one.
    pub(crate) fn span_within(&self, stretch: std::ops::Range<usize>) -> Span {
        let Value::Text(Text { verbatim: Some(start), value: _ }) = &self.value else {
            return self.span;
        };
        let start = *start as usize;
        Span::new(start + stretch.start..start + stretch.end).within(self.span.origin)
    }
}

/// Reads a document; `None` when there is nothing to go on with.
pub(crate) fn parse(text: &str, origin: Origin, problems: &mut Problems) -> Option<Node> {
    if text.len() > BYTES_MAX {
        let message = format!("the file has {} bytes", text.len());
        problems.add(
            Span::default().within(origin),
            Code::TooLarge,
            message,
            "Configuration files have at most 1 MiB; split this one.",
        );
        return None;
    }
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let builder = Builder {
        parser: Parser::new_from_str_with_options(text, options),
        text,
        origin,
        problems,
        anchors: BTreeMap::new(),
        nodes: 0,
    };
    builder.document()
}

/// The rest of the file cannot be understood; the reason is among the problems.
struct Stop;

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    text: &'a str,
    origin: Origin,
    problems: &'a mut Problems,
    /// Finished anchored nodes and how many values each has.
    anchors: BTreeMap<usize, (Node, usize)>,
    nodes: usize,
}

impl<'a> Builder<'a> {
    fn document(mut self) -> Option<Node> {
        let mut root = None;
        while let Ok(Some((event, span))) = self.next() {
            if matches!(event, Event::DocumentStart(..)) && root.is_some() {
                self.problems.add(
                    span,
                    Code::Unsupported,
                    "the file has more than one document",
                    "Put each document into a file of its own.",
                );
                break;
            }
            if event.is_node() {
                root = Some(self.node(&event, span, 0).ok()?);
            }
        }
        if root.is_none() && self.problems.is_empty() {
            self.problems.add(
                Span::default().within(self.origin),
                Code::Empty,
                "the file says nothing",
                "Write something into it, or remove it.",
            );
        }
        root
    }

    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Stop> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, span))) => {
                let range = span.byte_range().unwrap_or_default();
                Ok(Some((event, Span::new(range).within(self.origin))))
            }
            Some(Err(error)) => {
                self.syntax(&error);
                Err(Stop)
            }
        }
    }

    fn syntax(&mut self, error: &ScanError) {
        let at = error.marker().byte_offset().unwrap_or(0).min(self.text.len());
        let info = error.info();
        // A syntax error may stand inside a value that the tree would have hidden.
        for hidden in scalar::likely_secrets(self.text) {
            self.problems.hide(Span::new(hidden).within(self.origin));
        }
        let width = self.text.get(at..).and_then(|rest| rest.chars().next());
        let width = width.filter(|c| *c != '\n' && *c != '\r').map_or(0, char::len_utf8);
        let span = Span::new(at..at + width).within(self.origin);
        if info.contains("recursion limit") {
            let message = format!("the file is nested deeper than {DEPTH_MAX} levels");
            self.problems.add(span, Code::TooComplex, message, "Flatten it.");
            return;
        }
        let (message, help) = scalar::explain(&info, self.text.get(at..).unwrap_or(""));
        self.problems.add(span, Code::Syntax, message, help);
    }

    fn node(&mut self, event: &Event<'a>, span: Span, depth: usize) -> Result<Node, Stop> {
        self.count(1, span)?;
        if depth > DEPTH_MAX {
            let message = format!("the file is nested deeper than {DEPTH_MAX} levels");
            self.problems.add(span, Code::TooComplex, message, "Flatten it.");
            return Err(Stop);
        }
        if let Some(tag) = event.tag() {
            self.problems.add(
                span,
                Code::Unsupported,
                format!("the tag `{}` is not supported", tag.original()),
                "Remove the tag; what a value is follows from its key.",
            );
        }
        let before = self.nodes;
        let anchor = event.anchor_id();
        // The enum may grow; what is no node has no value.
        let node = if let Event::Scalar(value, style, _, _) = event {
            self.scalar(value, *style, span)
        } else if let Event::SequenceStart(..) = event {
            self.list(span, depth)?
        } else if let Event::MappingStart(..) = event {
            self.map(span, depth)?
        } else if let Event::Alias(id) = event {
            return self.alias(*id, span);
        } else {
            Node { span, value: Value::Null }
        };
        if let Some(id) = anchor.filter(|id| *id > 0) {
            self.anchors.insert(id, (node.clone(), self.nodes - before + 1));
        }
        Ok(node)
    }

    fn scalar(&self, value: &str, style: ScalarStyle, span: Span) -> Node {
        // An empty value is reported as `~` with an empty span.
        if style == ScalarStyle::Plain {
            let value = if span.start == span.end { "" } else { value };
            if let Some(value) = scalar::resolve_plain(value) {
                return Node { span, value };
            }
        }
        let quote = usize::from(style != ScalarStyle::Plain);
        let start = span.range().start + quote;
        let verbatim = self.text.get(start..).is_some_and(|rest| rest.starts_with(value))
            && matches!(
                style,
                ScalarStyle::Plain | ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted
            )
            && start + value.len() + quote == span.range().end;
        let verbatim = verbatim.then_some(start as u32);
        Node { span, value: Value::Text(Text { value: value.to_owned(), verbatim }) }
    }

    fn list(&mut self, start: Span, depth: usize) -> Result<Node, Stop> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                None => return Err(Stop),
                Some((Event::SequenceEnd, end)) => {
                    let span = Span { end: end.end, ..start };
                    return Ok(Node { span, value: Value::List(items) });
                }
                Some((event, span)) => items.push(self.node(&event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, start: Span, depth: usize) -> Result<Node, Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let Some((event, key_span)) = self.next()? else { return Err(Stop) };
            if let Event::MappingEnd = event {
                let span = Span { end: key_span.end, ..start };
                return Ok(Node { span, value: Value::Map(entries) });
            }
            if entries.len() >= KEYS_MAX {
                let message = format!("a map has more than {KEYS_MAX} keys");
                self.problems.add(key_span, Code::TooComplex, message, "Split the file.");
                return Err(Stop);
            }
            let written = event.scalar().map(|(text, _)| text.to_owned());
            let key = self.node(&event, key_span, depth + 1)?;
            let Some((event, span)) = self.next()? else { return Err(Stop) };
            let value = self.node(&event, span, depth + 1)?;
            if let Some(entry) = self.accept(&key, written, value, &entries) {
                entries.push(entry);
            }
        }
    }

    /// Checks a key; an entry that cannot be kept is reported and dropped.
    fn accept(
        &mut self,
        key: &Node,
        written: Option<String>,
        value: Node,
        entries: &[Entry],
    ) -> Option<Entry> {
        let name = written.or_else(|| key.text().map(str::to_owned));
        let twice = entries.iter().any(|entry| Some(&entry.key) == name.as_ref());
        if twice || name.as_deref().is_none_or(|name| name == "<<") {
            // Nobody will ask whether a value that is dropped here is a secret.
            self.problems.hide(value.span);
        }
        let Some(name) = name else {
            self.problems.add(
                key.span,
                Code::Unsupported,
                format!("a key must be text, this is {}", key.kind()),
                "",
            );
            return None;
        };
        if name == "<<" {
            self.problems.add(
                key.span,
                Code::Unsupported,
                "merge keys `<<` are not supported",
                "Repeat the keys, or put what all pipelines share under `defaults:` in interlock.yaml.",
            );
            return None;
        }
        if let Some(first) = entries.iter().find(|entry| entry.key == name) {
            // Counting lines takes time for every one of them.
            let line = if self.problems.is_full() { 0 } else { self.line_of(first.key_span) };
            self.problems.add(
                key.span,
                Code::DuplicateKey,
                format!("the key `{name}` is written twice, first on line {line}"),
                "Keep one of them.",
            );
            return None;
        }
        Some(Entry { key: name, key_span: key.span, value })
    }

    fn line_of(&self, span: Span) -> usize {
        self.text.get(..span.range().start).map_or(1, |before| before.matches('\n').count() + 1)
    }

    fn alias(&mut self, id: usize, span: Span) -> Result<Node, Stop> {
        let Some(size) = self.anchors.get(&id).map(|(_, size)| *size) else {
            self.problems.add(span, Code::Unsupported, "the alias is part of what it names", "");
            return Err(Stop);
        };
        self.count(size, span)?;
        let found = self.anchors.get(&id).map(|(node, _)| node.clone());
        found.ok_or(Stop)
    }

    fn count(&mut self, more: usize, span: Span) -> Result<(), Stop> {
        self.nodes += more;
        if self.nodes <= NODES_MAX {
            return Ok(());
        }
        self.problems.add(
            span,
            Code::TooComplex,
            format!("the file has more than {NODES_MAX} values, aliases expanded"),
            "Split the file; aliases that name other aliases multiply.",
        );
        Err(Stop)
    }
}

#[cfg(test)]
mod tests;
