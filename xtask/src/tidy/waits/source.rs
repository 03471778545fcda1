//! A source file as the rule reads it: without comments and texts, in statements, functions, loops and test modules.
//!
//! Enough of Rust to find the braces that belong together. What is blanked keeps its length, so that a place in the code is
//! the same place in the file.

use std::ops::Range;

/// A source file.
pub(super) struct Source {
    code: String,
}

impl Source {
    pub(super) fn read(text: &str) -> Self {
        Self { code: Blanking::new(text).finish() }
    }

    /// The text with comments, strings and characters blanked.
    pub(super) fn code(&self) -> &str {
        &self.code
    }

    /// The line of a place, counted from 1.
    pub(super) fn line_of(&self, at: usize) -> usize {
        self.code[..at].matches('\n').count() + 1
    }

    /// The statement around a place: from its first word to the `;` or the brace behind the place.
    pub(super) fn statement(&self, at: usize) -> Range<usize> {
        let before = self.code[..at].rfind([';', '{', '}']).map_or(0, |found| found + 1);
        let blank = self.code[before..at].len() - self.code[before..at].trim_start().len();
        let end = self.code[at..].find([';', '{', '}']).map_or(self.code.len(), |found| at + found);
        before + blank..end
    }

    /// The innermost function around a place; nothing if there is none.
    pub(super) fn function(&self, at: usize) -> Range<usize> {
        let functions = self.words("fn").filter_map(|word| self.block_after(word));
        functions.filter(|block| block.contains(&at)).last().unwrap_or(0..0)
    }

    /// The loops, from their word to their closing brace; whether each can go on for ever, as a `for` over a range does not.
    pub(super) fn loops(&self) -> Vec<(bool, Range<usize>)> {
        let mut found = Vec::new();
        for (word, is_endless) in [("loop", true), ("while", true), ("for", false)] {
            let blocks = self.words(word).filter_map(|at| Some(at..self.block_after(at)?.end));
            found.extend(blocks.map(|range| (is_endless, range)));
        }
        found
    }

    /// The bodies of the modules and functions that are compiled for tests alone.
    pub(super) fn test_modules(&self) -> Vec<Range<usize>> {
        self.marks().filter_map(|at| self.block_after(at)).collect()
    }

    /// The names of the modules in files of their own that are compiled for tests alone.
    pub(super) fn test_files(&self) -> Vec<&str> {
        let items = self.marks().filter_map(|at| self.code[at..].split(['{', ';']).next());
        items.filter_map(|item| item.rsplit_once("mod ").map(|(_, name)| name.trim())).collect()
    }

    /// The places of the attributes that mark what is compiled for tests alone.
    fn marks(&self) -> impl Iterator<Item = usize> {
        MARKS.iter().flat_map(|mark| self.code.match_indices(mark)).map(|(at, _)| at)
    }

    /// The places of a word.
    fn words(&self, word: &str) -> impl Iterator<Item = usize> {
        let code = &self.code;
        let length = word.len();
        code.match_indices(word).map(|(at, _)| at).filter(move |at| {
            !code[..*at].ends_with(is_part_of_word)
                && !code[at + length..].starts_with(is_part_of_word)
        })
    }

    /// The block that an item or a loop has, its braces included; none if it ends with a `;`.
    fn block_after(&self, at: usize) -> Option<Range<usize>> {
        let mut open = 0_usize;
        let mut begins = None;
        for (place, c) in self.code[at..].char_indices() {
            match c {
                '(' | '[' => open += 1,
                ')' | ']' => open = open.saturating_sub(1),
                '{' if open == 0 => {
                    begins = Some(at + place);
                    break;
                }
                ';' | '}' if open == 0 => return None,
                _ => {}
            }
        }
        let begins = begins?;
        let mut depth = 0_usize;
        for (place, c) in self.code[begins..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 1 => return Some(begins..begins + place + 1),
                '}' => depth -= 1,
                _ => {}
            }
        }
        None
    }
}

const MARKS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test,"];

pub(super) fn is_part_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A text whose comments, strings and characters are being blanked, byte by byte.
struct Blanking<'a> {
    text: &'a str,
    code: String,
}

impl<'a> Blanking<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, code: String::with_capacity(text.len()) }
    }

    fn finish(mut self) -> String {
        while let Some(c) = self.rest().chars().next() {
            match self.blank_length() {
                Some(length) => self.blank(length),
                None => self.code.push(c),
            }
        }
        self.code
    }

    fn rest(&self) -> &'a str {
        &self.text[self.code.len()..]
    }

    fn blank(&mut self, length: usize) {
        let blanked = &self.rest()[..length];
        // As many spaces as bytes: places stay places.
        self.code.extend(blanked.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
    }

    /// How long the comment, string or character is that begins here, if one does.
    fn blank_length(&self) -> Option<usize> {
        let rest = self.rest();
        if rest.starts_with("//") {
            return Some(rest.find('\n').unwrap_or(rest.len()));
        }
        if rest.starts_with("/*") {
            return Some(block_comment(rest));
        }
        if rest.starts_with('"') {
            return Some(quoted(rest, '"'));
        }
        if rest.starts_with('\'') {
            return character(rest);
        }
        let begins_word = !self.code.ends_with(is_part_of_word) || self.code.ends_with(['b', 'c']);
        rest.strip_prefix('r').filter(|_| begins_word).and_then(raw_string)
    }
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        match text.as_bytes().get(at..at + 2) {
            Some(b"/*") => {
                depth += 1;
                at += 2;
            }
            Some(b"*/") if depth == 1 => return at + 2,
            Some(b"*/") => {
                depth -= 1;
                at += 2;
            }
            _ => at += 1,
        }
    }
    text.len()
}

/// The length of a text in quotes, both included.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character in quotes; none if the quote begins a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut inside = text.chars().skip(1);
    match (inside.next()?, inside.next()?) {
        ('\\', _) => Some(quoted(text, '\'')),
        (c, '\'') => Some(c.len_utf8() + 2),
        _ => None,
    }
}

/// The length of a raw string, its `r` included, from what stands behind the `r`.
fn raw_string(after: &str) -> Option<usize> {
    let hashes = after.len() - after.trim_start_matches('#').len();
    let inside = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(1 + hashes + 1 + length)
}
