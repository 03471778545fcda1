//! The right to write, taken away in one store.
//!
//! A leader that hangs must not write when it comes back: its lease may belong to somebody else by then. The store refuses a
//! stale token (no check in this process can replace that), but between the two a local check spares it the attempt. The end of
//! a term counts by the clock that goes on while the machine sleeps, and nothing forgives it.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    time::Duration,
};

use crate::clock::{boottime, nanos};

/// A moment by the clock that counts sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootInstant(u64);

impl BootInstant {
    /// This moment. For a lease take it *before* asking for it: what the answer took is not yours.
    pub fn now() -> Self {
        Self(boottime())
    }

    /// Later by a length.
    #[must_use]
    pub fn after(self, length: Duration) -> Self {
        Self(self.0.saturating_add(nanos(length)))
    }
}

/// Why somebody may not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fenced {
    /// The monitor, or somebody else, took it away.
    #[error("the term was revoked")]
    Revoked,
    /// It has ended, or would before the work is done.
    #[error("the term has ended, or ends before this would be done")]
    Ended,
    /// A newer term was granted.
    #[error("there is a newer term")]
    Superseded,
}

/// Where the present term of a leader is kept, for the leader and for the monitor.
#[derive(Debug, Clone, Default)]
pub struct FenceCell(Arc<Cell>);

#[derive(Debug, Default)]
struct Cell {
    granted: AtomicU64,
    /// This token and all before it are void.
    revoked: AtomicU64,
    until: AtomicU64,
}

impl FenceCell {
    /// Begins a term. Tokens only grow, as the store hands them out; an older one is refused.
    pub fn grant(&self, token: u64, until: BootInstant) -> Result<Term, Fenced> {
        if token <= self.0.revoked.load(Acquire) {
            return Err(Fenced::Revoked);
        }
        if self.0.granted.fetch_max(token, AcqRel) > token {
            return Err(Fenced::Superseded);
        }
        self.0.until.store(until.0, Release);
        Ok(Term { cell: self.clone(), token })
    }

    /// Takes the present term away, for good. Its next writer needs a newer token.
    pub fn revoke(&self) {
        self.0.revoked.fetch_max(self.0.granted.load(Acquire), AcqRel);
    }

    /// Whether there is a term that was neither revoked nor has ended.
    pub fn is_held(&self) -> bool {
        let granted = self.0.granted.load(Acquire);
        self.judge(granted, boottime()).is_ok() && granted > 0
    }

    fn judge(&self, token: u64, at: u64) -> Result<(), Fenced> {
        if token < self.0.granted.load(Acquire) {
            return Err(Fenced::Superseded);
        }
        if token <= self.0.revoked.load(Acquire) {
            return Err(Fenced::Revoked);
        }
        if at >= self.0.until.load(Acquire) { Err(Fenced::Ended) } else { Ok(()) }
    }

    /// Revokes a term that has ended; answers whether there was one.
    pub(crate) fn revoke_ended(&self, at: u64) -> bool {
        let granted = self.0.granted.load(Acquire);
        let is_over = self.judge(granted, at) == Err(Fenced::Ended);
        if is_over {
            self.revoke();
        }
        is_over
    }
}

/// A time-bound right to write.
#[derive(Debug)]
pub struct Term {
    cell: FenceCell,
    token: u64,
}

impl Term {
    /// The leave to write something that takes at most so long, with the token that the store is to check.
    pub fn check(&self, takes: Duration) -> Result<Permit<'_>, Fenced> {
        self.cell.judge(self.token, boottime().saturating_add(nanos(takes)))?;
        Ok(Permit { term: self })
    }

    /// Prolongs the term after the store did. What was revoked stays revoked.
    pub fn extend(&self, until: BootInstant) -> Result<(), Fenced> {
        self.cell.judge(self.token, 0)?;
        self.cell.0.until.store(until.0, Release);
        Ok(())
    }
}

/// The leave to write once.
#[derive(Debug)]
pub struct Permit<'a> {
    term: &'a Term,
}

impl Permit<'_> {
    /// The fencing token, for the store's condition.
    pub fn token(&self) -> u64 {
        self.term.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn later() -> BootInstant {
        BootInstant::now().after(MINUTE)
    }

    #[test]
    fn revoked_stays_revoked_and_only_a_newer_token_begins_again() {
        let cell = FenceCell::default();
        assert!(!cell.is_held());
        let first = cell.grant(7, later()).unwrap();
        assert_eq!(first.check(Duration::ZERO).unwrap().token(), 7);
        cell.revoke();
        assert_eq!(first.extend(later()), Err(Fenced::Revoked));
        assert_eq!(first.check(Duration::ZERO).unwrap_err(), Fenced::Revoked);
        assert_eq!(cell.grant(7, later()).unwrap_err(), Fenced::Revoked);
        let second = cell.grant(8, later()).unwrap();
        assert!(second.check(Duration::ZERO).is_ok() && cell.is_held());
        assert_eq!(first.check(Duration::ZERO).unwrap_err(), Fenced::Superseded);
    }

    #[test]
    fn work_that_would_outlast_the_term_is_not_begun() {
        let cell = FenceCell::default();
        let term = cell.grant(1, later()).unwrap();
        assert_eq!(term.check(MINUTE * 2).unwrap_err(), Fenced::Ended);
        assert!(!cell.revoke_ended(boottime()));
        assert!(cell.revoke_ended(boottime() + nanos(MINUTE)));
        assert_eq!(term.check(Duration::ZERO).unwrap_err(), Fenced::Revoked);
    }
}
