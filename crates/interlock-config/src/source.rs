//! One file's text and places in it.
//!
//! A [`Span`] is a pair of byte offsets and says which of two texts it means: the file itself, or
//! `interlock.yaml`, whose `defaults:` become part of every pipeline. A pipeline whose default is
//! wrong is then told about the line that is wrong.
//!
//! Invariant: the text of a [`SourceFile`] is only for showing. Secrets in it are overwritten before
//! a problem can carry it anywhere, character by character, so that every offset stays true.

use std::{ops::Range, path::PathBuf};

/// Which text a span points into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Origin {
    /// The file that is being read.
    #[default]
    File,
    /// The `defaults:` of `interlock.yaml`.
    Defaults,
}

/// A stretch of bytes in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// Which text.
    pub origin: Origin,
    /// First byte.
    pub start: u32,
    /// First byte after it.
    pub end: u32,
}

impl Span {
    /// A stretch of the file that is being read.
    pub fn new(range: Range<usize>) -> Self {
        Self { origin: Origin::File, start: range.start as u32, end: range.end as u32 }
    }

    /// The same stretch of another text.
    #[must_use]
    pub fn within(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// As a range of bytes.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A place that people can find: both counted from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// A file as it is shown to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it says, secrets overwritten; empty when it could not be read.
    pub text: String,
}

impl SourceFile {
    /// A file without text, for problems with the file as a whole.
    pub fn unread(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), text: String::new() }
    }

    /// The line and column of a byte; the end of the text for bytes beyond it.
    pub fn position(&self, offset: usize) -> Position {
        let before = self.before(offset);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Position {
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or("").trim_start_matches(BOM).chars().count()
                + 1,
        }
    }

    /// The line that contains a byte, without its end, and the byte where the line starts.
    pub fn line_at(&self, offset: usize) -> (usize, &str) {
        let start = self.before(offset).rfind('\n').map_or(0, |at| at + 1);
        let rest = self.text.get(start..).unwrap_or("");
        let line = rest.split('\n').next().unwrap_or("");
        let start = if line.starts_with(BOM) { start + BOM.len_utf8() } else { start };
        (start, line.trim_start_matches(BOM).trim_end_matches('\r'))
    }

    fn before(&self, offset: usize) -> &str {
        self.text.split_at(self.text.floor_char_boundary(offset)).0
    }
}

/// The mark that some editors put in front of a file.
pub(crate) const BOM: char = '\u{feff}';

/// Overwrites stretches of a text, keeping the number of bytes and of characters.
///
/// The stretches come in the order of their starts, and may overlap.
pub(crate) fn overwrite(text: &str, spans: &[Range<usize>]) -> String {
    let mut coming = spans.iter().peekable();
    let mut hidden_until = 0;
    let mut hidden = |at: usize| {
        while let Some(span) = coming.next_if(|span| span.start <= at) {
            hidden_until = hidden_until.max(span.end);
        }
        at < hidden_until
    };
    let star = |c: char| match c.len_utf8() {
        1 => '*',
        2 => '\u{b7}',
        3 => '\u{2022}',
        _ => '\u{1f7b6}',
    };
    text.char_indices()
        .map(|(at, c)| if hidden(at) && c != '\n' && c != '\r' { star(c) } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> SourceFile {
        SourceFile { path: "a.yaml".into(), text: text.into() }
    }

    #[test]
    fn columns_count_characters_and_survive_offsets_inside_one() {
        let file = file("é: x\r\nb: ü!\r\n");
        assert_eq!(file.position(0), Position { line: 1, column: 1 });
        assert_eq!(file.position(1), Position { line: 1, column: 1 });
        assert_eq!(file.position(4), Position { line: 1, column: 4 });
        assert_eq!(file.position(12), Position { line: 2, column: 5 });
        assert_eq!(file.position(999), Position { line: 3, column: 1 });
        assert_eq!(file.line_at(12), (7, "b: ü!"));
    }

    #[test]
    fn a_byte_order_mark_is_no_column() {
        let file = file("\u{feff}name: x\n");
        assert_eq!(file.position(3), Position { line: 1, column: 1 });
        assert_eq!(file.line_at(5), (3, "name: x"));
    }

    #[test]
    fn overwriting_keeps_bytes_and_characters() {
        let text = "password: pä€😀\nx: 1\n";
        let secret = 10..text.find('\n').unwrap();
        let hidden = overwrite(text, std::slice::from_ref(&secret));
        assert_eq!(hidden, "password: *\u{b7}\u{2022}\u{1f7b6}\nx: 1\n");
        assert_eq!(hidden.len(), text.len());
    }
}
