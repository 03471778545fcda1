//! Names that a watched thread can leave in one word: the phase it is in, the reason of a pause.
//!
//! A name is given once and kept for ever, so that its number can be stored with one plain write and read by whoever
//! looks into a process that hangs.

use std::sync::{Mutex, PoisonError};

static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// The name of what a watched thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase(pub(crate) u32);

impl Phase {
    /// No phase in particular.
    pub const NONE: Self = Self(0);

    /// The phase of a name. Call it once and keep the answer: it takes a lock.
    pub fn named(name: &'static str) -> Self {
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        Self(at as u32 + 1)
    }

    /// Its name, unless somebody is just giving one.
    pub(crate) fn name(self) -> Option<&'static str> {
        let at = self.0.checked_sub(1)?;
        NAMES.try_lock().ok()?.get(at as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_the_other_way_round() {
        let (fetch, write) = (Phase::named("fetch"), Phase::named("write"));
        assert_eq!((fetch, fetch == write), (Phase::named("fetch"), false));
        assert_eq!((fetch.name(), Phase::NONE.name()), (Some("fetch"), None));
    }
}
