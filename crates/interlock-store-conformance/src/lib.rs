//! The suite that every engine passes: new behaviour of the contract starts here, as a case.
//!
//! A case is an async function over a fresh store. An engine's test is one line plus a constructor:
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use interlock_store::memory::MemoryStore;
//! use interlock_store_conformance::{self as conformance, Subject};
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
//! The cases of the Go Interlock's provider suite (C5 of `facts/interlock-cases.md`) live on here as far as
//! this contract has the same things, each named where it is tried:
//! - 67 (pipelines) and 80 (sensors) in `pipelines`, 69 (runs) in `runs`, 70 (compare and swap) in `commit`,
//!   72 (a run log for each schedule) in `ledger`, 74 (locks, and races of two owners) in `lease`, 75 (events) in `events`.
//!
//! Superseded, each with its reason:
//! - Case 36 (the name of an evaluation lock): there is no lock for each pipeline and schedule; the lease of
//!   the shard is what it was for.
//! - Case 68 (traits that expire): what evaluators answer is not stored; a decision stores its evidence in its
//!   event, and the answer that it used is good for its TTL in the memory of the owner alone. What the store on Redis shows of it
//!   expires, which its own tests look at.
//! - Case 71 (no readiness before it is set): a slot says where it stands, and one that is not there is not
//!   recorded; see `ledger::an_unknown_pipeline_has_no_ledger`. On Redis it is shown once it was decided (its own tests).
//! - Case 72 "the default schedule is `daily`": the store has no default; the file that names no schedule
//!   gets that one (`case_62_…` in the engine).
//! - 73 and 78 (a rerun or a replay is the next generation of its slot), 76 (every row is idempotent by its
//!   key), 77 (lateness is a mark), 79 (alerts are incidents, in `pipelines`), 80's trait history (see 68), 81
//!   (nothing that decides expires by itself; the views of the store on Redis do: `case_81_…` there), 82 and 83 (the archive is not
//!   a store: `case_82_…` and `case_83_…` in its tests).

#![expect(
    clippy::panic,
    reason = "this is test code that is exported: a case that fails panics with what it found"
)]

mod backfills;
mod commit;
mod drive;
mod events;
mod inbox;
mod instances;
mod lease;
mod ledger;
pub mod opens;
mod outbox;
mod pipelines;
mod retention;
mod runs;
mod sample;
mod subject;
mod whole;

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
};

use interlock_store::block_on;

pub use self::{
    sample::{START, closed_slot, open_incident},
    subject::Subject,
};

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
        pub(crate) const CASES: &[super::Case] = &[$(super::Case {
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
        instances::CASES,
        ledger::CASES,
        runs::CASES,
        events::CASES,
        pipelines::CASES,
        backfills::CASES,
        inbox::CASES,
        outbox::CASES,
        whole::CASES,
        retention::CASES,
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
