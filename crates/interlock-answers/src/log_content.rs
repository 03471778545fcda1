//! What a job wrote, read piece by piece: however long it is, little of it is in memory.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

/// How much is read in one go.
pub const PIECE_BYTES: usize = 64 * 1024;
/// How far back the last lines are looked for: a job may write gigabytes without ending a line.
const TAIL_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What a job wrote.
#[derive(Debug)]
pub enum LogContent {
    /// The file that it wrote to, and may be writing to now.
    File(File),
    /// What it sent, whole.
    Text(String),
}

impl LogContent {
    /// Opens a file; `None` if there is none.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        match File::open(path) {
            Ok(file) => Ok(Some(Self::File(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How many bytes there are now.
    pub fn length(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Text(text) => Ok(text.len() as u64),
        }
    }

    /// Some bytes from an offset on; none at the end.
    pub fn piece(&self, offset: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::File(file) => {
                let mut piece = vec![0; bytes_max];
                let read = file.read_at(&mut piece, offset)?;
                piece.truncate(read);
                Ok(piece)
            }
            Self::Text(text) => {
                let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
                let end = begin.saturating_add(bytes_max).min(text.len());
                Ok(text.as_bytes().get(begin..end).unwrap_or_default().to_vec())
            }
        }
    }

    /// Where to go on behind an offset: a log that became shorter was cut to its tail, which is read whole.
    pub fn resume(&self, offset: u64) -> io::Result<u64> {
        Ok(if self.length()? < offset { 0 } else { offset })
    }

    /// Where the last lines begin. Of lines that reach back further than is looked, those that are whole.
    pub fn tail(&self, lines: usize) -> io::Result<u64> {
        let length = self.length()?;
        let oldest = length.saturating_sub(TAIL_BYTES_MAX);
        let (mut end, mut found, mut begin) = (length, 0, None);
        while end > oldest {
            let from = end.saturating_sub(PIECE_BYTES as u64).max(oldest);
            let piece = self.piece(from, (end - from) as usize)?;
            for (index, byte) in piece.iter().enumerate().rev() {
                let next = from + index as u64 + 1;
                // What ends the log begins no line.
                if *byte != b'\n' || next == length {
                    continue;
                }
                (found, begin) = (found + 1, Some(next));
                if found >= lines {
                    return Ok(next);
                }
            }
            end = from;
        }
        Ok(if oldest == 0 { 0 } else { begin.unwrap_or(oldest) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_begin_where_they_begin_with_an_end_of_line_or_without() {
        let check = |text: &str, lines: usize, expected: &str| {
            let content = LogContent::Text(text.to_owned());
            let begin = content.tail(lines).unwrap() as usize;
            assert_eq!(&text[begin..], expected, "{lines} of {text:?}");
        };
        check("a\nb\nc\n", 1, "c\n");
        check("a\nb\nc\n", 2, "b\nc\n");
        check("a\nb\nc", 2, "b\nc");
        check("a\nb\nc\n", 9, "a\nb\nc\n");
        check("a\n\n\n", 2, "\n\n");
        check("one", 1, "one");
        check("", 1, "");
        let long = format!("{}\n{}\nend\n", "x".repeat(PIECE_BYTES), "y".repeat(PIECE_BYTES));
        check(&long, 2, &long[PIECE_BYTES + 1..]);
        let endless = "z".repeat(TAIL_BYTES_MAX as usize + 10);
        check(&endless, 1, &endless[10..]);
        let first = format!("{endless}\nlast\n");
        check(&first, 2, "last\n");
    }

    #[test]
    fn a_piece_ends_with_the_log_and_one_that_was_cut_is_read_anew() {
        let content = LogContent::Text("abcdef".to_owned());
        let piece = |offset, bytes| content.piece(offset, bytes).unwrap();
        assert_eq!((piece(0, 4), piece(4, 4)), (b"abcd".to_vec(), b"ef".to_vec()));
        assert_eq!((piece(6, 4), piece(u64::MAX, 4)), (vec![], vec![]));
        assert_eq!((content.resume(6).unwrap(), content.resume(7).unwrap()), (6, 0));
    }
}
