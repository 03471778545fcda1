//! A script, read: what is kept as it is, and what is to be done.

use super::line::{self, Command};

/// A part of a script.
pub(super) enum Piece {
    /// A line of the story, or an empty one.
    Kept(String),
    /// Something to do. What was answered last time is dropped.
    Step(Step),
}

/// Something to do.
pub(super) struct Step {
    /// Where it stands, from 1.
    pub(super) line: usize,
    /// As it stands.
    pub(super) text: Vec<String>,
    /// What it means.
    pub(super) command: Command,
}

/// Reads a script; a mistake comes with its line.
pub(super) fn read(text: &str) -> Result<Vec<Piece>, (usize, String)> {
    let mut pieces = Vec::new();
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line)).peekable();
    while let Some((number, line)) = lines.next() {
        if line.starts_with('|') {
            if !matches!(pieces.last(), Some(Piece::Step(_))) {
                return Err((
                    number,
                    "an answer stands below the command that it answers".to_owned(),
                ));
            }
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            pieces.push(Piece::Kept(line.to_owned()));
            continue;
        }
        if line.starts_with(' ') {
            return Err((number, "the text of a file stands below `file`".to_owned()));
        }
        let mut text = vec![line.to_owned()];
        let mut block = String::new();
        while let Some((_, next)) = lines.next_if(|(_, next)| next.starts_with("    ")) {
            block += next.strip_prefix("    ").unwrap_or(next);
            block.push('\n');
            text.push(next.to_owned());
        }
        let command = line::read(line, &block).map_err(|message| (number, message))?;
        pieces.push(Piece::Step(Step { line: number, text, command }));
    }
    Ok(pieces)
}
