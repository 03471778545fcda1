//! The suite that every engine passes: new behaviour of the contract starts here, as a case.
//!
//! A case is an async function over a fresh store. An engine's test is one line plus a constructor:
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use interlock_store::{conformance::{self, Subject}, memory::MemoryStore};
//!
//! conformance::check(|| {
//!     let clock = Arc::new(Mutex::new(conformance::START));
//!     let hands = Arc::clone(&clock);
//!     let store = MemoryStore::new(4, Arc::new(move || *clock.lock().unwrap()));
//!     Subject::new(Arc::new(store), move |time| *hands.lock().unwrap() += time)
//! });
//! ```
//!
//! An engine whose clock cannot be moved sleeps instead; the suite asks for less than a second in all. An
//! engine that needs a runtime uses [`check_on`], or takes [`cases`] one by one. The suite never needs more
//! than one store at a time, and assumes nothing about the number of shards.
//!
//! The cases 67 to 83 of the Go Interlock's provider suite live on here as far as this contract has the
//! same things: 69 (runs, newest first, and by their key) in `runs`, 70 (compare and swap, and the race) in
//! `commit`, 74 (locks; a foreign release is a silent no-op) in `lease`, 75 (events, exclusive cursor) in
//! `events`, 79 (alerts) and 80 (sensors) in `pipelines`. Superseded are 67 (pipelines are declared in
//! files, a row is only their shadow), 68, 71 and 80's trait history (readiness is evidence in events and
//! not a row of its own), 72 and 77 (the ledger is the run log; lateness is a mark), 73 and 78 (a rerun or a
//! replay is the next generation of its slot), 76 (every row is idempotent by its key), 81 (nothing that
//! decides expires by itself), 82 and 83 (the archive is not a store).

#![expect(
    clippy::panic,
    reason = "this is test code that is exported: a case that fails panics with what it found"
)]

mod commit;
mod drive;
mod events;
mod inbox;
mod lease;
mod ledger;
mod outbox;
mod pipelines;
mod runs;
mod sample;
mod subject;

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
};

pub use self::{drive::block_on, sample::START, subject::Subject};

/// The future of a case.
pub type CaseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One promise of the contract.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Where it is and what it says, such as `commit::a_group_is_all_or_nothing`.
    pub name: &'static str,
    /// Tries it on a fresh store, and panics if it is broken.
    pub run: fn(Subject) -> CaseFuture,
}

/// Lists cases with their names, in the module that is named first.
macro_rules! promises {
    ($module:literal: $($case:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            name: concat!($module, "::", stringify!($case)),
            run: |subject| Box::pin($case(subject)),
        }),*];
    };
}
use promises;

/// All cases, in reading order.
pub fn cases() -> Vec<Case> {
    [
        commit::CASES,
        lease::CASES,
        ledger::CASES,
        runs::CASES,
        events::CASES,
        pipelines::CASES,
        inbox::CASES,
        outbox::CASES,
    ]
    .concat()
}

/// Tries all cases, each on a fresh store, without any runtime.
///
/// # Panics
///
/// Panics if a case fails, after trying the others, and names all that failed.
pub fn check(make: impl Fn() -> Subject) {
    check_on(block_on, make);
}

/// Tries all cases like [`check`], each driven by what is handed in, such as a runtime's `block_on`.
///
/// # Panics
///
/// Panics if a case fails, after trying the others, and names all that failed.
pub fn check_on(drive: impl Fn(CaseFuture), make: impl Fn() -> Subject) {
    let cases = cases();
    let fails = |case: &&Case| {
        let attempt = AssertUnwindSafe(|| drive((case.run)(make())));
        catch_unwind(attempt).is_err()
    };
    let failed: Vec<&str> = cases.iter().filter(fails).map(|case| case.name).collect();
    if !failed.is_empty() {
        let (broken, all) = (failed.len(), cases.len());
        panic!("{broken} of {all} promises are broken:\n  {}", failed.join("\n  "));
    }
}
