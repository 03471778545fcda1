//! The last of what a job printed, kept while it passes through.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    sync::{Arc, Mutex, PoisonError},
};

/// Bytes that are kept.
const KEPT_MAX: usize = 10_000;
/// Bytes that pass at once.
const PORTION: usize = 64 * 1_024;

/// The end of what was printed, of both streams in the order it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// Passes everything on, and keeps the end of it. Ends with its source, or when nobody reads any more: the job
    /// then finds out as it would without us.
    pub(crate) fn pass(&self, mut from: impl Read, mut to: impl Write) {
        let mut portion = vec![0; PORTION];
        while let Ok(count) = from.read(&mut portion) {
            let Some(bytes) = portion.get(..count).filter(|bytes| !bytes.is_empty()) else {
                return;
            };
            self.keep(bytes);
            if to.write_all(bytes).and_then(|()| to.flush()).is_err() {
                return;
            }
        }
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let surplus = kept.len().saturating_sub(KEPT_MAX);
        kept.drain(..surplus);
    }

    /// What is kept, from the beginning of a line on if some was dropped.
    pub(crate) fn text(&self) -> Option<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let whole = match text.split_once('\n') {
            Some((_, rest)) if bytes.len() == KEPT_MAX && !rest.is_empty() => rest,
            Some(_) | None => &text,
        };
        (!whole.is_empty()).then(|| whole.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_passes_and_the_last_lines_are_kept() {
        let lines: Vec<_> = (0..5_000).map(|line| format!("line {line}\n")).collect();
        let printed = lines.concat();
        let (tail, mut passed) = (Tail::default(), Vec::new());
        tail.pass(printed.as_bytes(), &mut passed);
        assert_eq!(passed, printed.as_bytes());
        let kept = tail.text().unwrap();
        assert!(kept.len() <= KEPT_MAX && kept.starts_with("line "), "{}", &kept[..20]);
        assert!(kept.ends_with("line 4999\n"));
        assert_eq!(Tail::default().text(), None);
    }
}
