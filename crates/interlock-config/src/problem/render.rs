//! Problems as text for people and as JSON for programs.
//!
//! Written by hand: the whole of it is one source line, one line of carets and one help line, and
//! tabs and wide characters are handled where the line is printed.

use std::fmt::{self, Write};

use serde_json::{Value, json};

use super::Problem;

/// Lines longer than this are cut around the place that matters.
const WIDTH_MAX: usize = 160;

impl Problem {
    /// The problem in the manner of a compiler: place, source line, carets, help.
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        write!(out, "{self}").unwrap_or_default();
        out
    }

    /// The problem as JSON.
    pub fn to_json(&self) -> Value {
        let start = self.file.position(self.span.start);
        let end = self.file.position(self.span.end);
        json!({
            "file": self.file.path.display().to_string(),
            "line": start.line,
            "column": start.column,
            "endLine": end.line,
            "endColumn": end.column,
            "severity": self.severity.as_str(),
            "code": self.code.as_str(),
            "message": self.message,
            "help": self.help,
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}[{}]: {}", self.severity.as_str(), self.code.as_str(), self.message)?;
        let path = self.file.path.display();
        if self.file.text.is_empty() {
            writeln!(f, " --> {path}")?;
        } else {
            let place = self.file.position(self.span.start);
            let gutter = " ".repeat(place.line.to_string().len());
            writeln!(f, "{gutter}--> {path}:{}:{}", place.line, place.column)?;
            let (line, carets) = self.marked_line();
            writeln!(f, "{gutter} |")?;
            writeln!(f, "{} | {line}", place.line)?;
            writeln!(f, "{gutter} | {carets}")?;
        }
        if !self.help.is_empty() {
            writeln!(f, "  = help: {}", self.help)?;
        }
        Ok(())
    }
}

impl Problem {
    /// The source line with tabs widened, and carets under the offending characters.
    fn marked_line(&self) -> (String, String) {
        let (start, line) = self.file.line_at(self.span.start);
        let (mut shown, mut carets) = (String::new(), String::new());
        let skipped = skip(line, self.span.start.saturating_sub(start));
        if skipped > 0 {
            shown.push_str("...");
            carets.push_str("   ");
        }
        for (at, c) in line.char_indices().skip_while(|(at, _)| *at < skipped).take(WIDTH_MAX) {
            let marked = self.span.contains(&(start + at));
            // Two columns for a tab, one for all else; control characters must not reach a terminal.
            let (text, width) = match c {
                '\t' => ("  ".to_owned(), 2),
                c if c.is_control() => ("\u{fffd}".to_owned(), 1),
                c => (c.to_string(), columns(c)),
            };
            shown.push_str(&text);
            carets.push_str(if marked { "^^" } else { "  " }.get(..width).unwrap_or(" "));
        }
        let carets = carets.trim_end().to_owned();
        if carets.is_empty() {
            // An empty stretch, or one at the end of the line: something is missing here.
            let before = line.get(skipped..self.span.start.saturating_sub(start).min(line.len()));
            let indent: usize = before
                .unwrap_or(line)
                .chars()
                .map(|c| if c == '\t' { 2 } else { columns(c) })
                .sum();
            return (shown, format!("{}^", " ".repeat(indent + if skipped > 0 { 3 } else { 0 })));
        }
        (shown, carets)
    }
}

/// How many bytes of a long line to leave out in front, so that the place is in view.
fn skip(line: &str, at: usize) -> usize {
    if line.chars().count() <= WIDTH_MAX {
        return 0;
    }
    let mut skipped = at.min(line.len()).saturating_sub(WIDTH_MAX / 2);
    while !line.is_char_boundary(skipped) {
        skipped -= 1;
    }
    skipped
}

/// How many columns a terminal gives to a character: two for East Asian wide ones and emoji.
fn columns(c: char) -> usize {
    let wide = matches!(u32::from(c),
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd);
    if wide { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{
        problem::{Code, Problem},
        source::SourceFile,
    };

    fn problem(text: &str, what: &str) -> Problem {
        let start = text.find(what).unwrap();
        let file = Arc::new(SourceFile { path: "pipelines/a.yaml".into(), text: text.into() });
        let mut problem =
            Problem::whole_file(file, Code::UnknownKey, "unknown key `x`", "Did you mean `y`?");
        problem.span = start..start + what.len();
        problem
    }

    #[test]
    fn carets_stand_under_the_text_whatever_comes_before() {
        let rendered = problem("a: 1\nkey\t日本é: bad # c\n", "bad").render();
        assert_eq!(
            rendered,
            "error[IL0201]: unknown key `x`\n --> pipelines/a.yaml:2:10\n  |\n\
             2 | key  日本é: bad # c\n  |             ^^^\n  = help: Did you mean `y`?\n"
        );
    }

    #[test]
    fn an_empty_stretch_still_points() {
        let mut problem = problem("schedule:\nname: x\n", "schedule:");
        problem.span = 9..9;
        assert!(problem.render().contains("1 | schedule:\n  |          ^\n"), "{problem}");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("key: {}bad{}\n", "x".repeat(500), "y".repeat(500));
        let rendered = problem(&text, "bad").render();
        assert!(rendered.lines().all(|line| line.len() < 200), "{rendered}");
        assert!(rendered.contains("xbady") && rendered.contains("^^^"), "{rendered}");
    }

    #[test]
    fn json_has_the_documented_fields() {
        let json = problem("a: 1\nb: bad\n", "bad").to_json();
        assert_eq!(json["line"], 2);
        assert_eq!(json["column"], 4);
        assert_eq!(json["endColumn"], 7);
        assert_eq!(json["code"], "IL0201");
        assert_eq!(json["file"], "pipelines/a.yaml");
    }
}
