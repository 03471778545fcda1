//! The store contract: what every engine promises, and the records it keeps.
//!
//! Interlock keeps one ledger: what was owed, what became of it, and who was told. This crate is the text
//! to implement an engine from; `interlock-store-conformance` is the test that it was understood. The engines are crates
//! of their own; [`memory`] is the smallest one that is right, and the one the simulator breaks on purpose.
//!
//! # The shape of the data
//!
//! Everything belongs to a **pipeline**. A pipeline's rows are addressed by [`Key`] and hold a [`Record`];
//! each row has a **revision**, 1 when it is created and one more at each change. Nothing is ever written
//! across pipelines, so an engine may keep pipelines apart as it likes (shards, partitions, hash tags). What
//! belongs to no pipeline is kept under [`PipelineId::system`](interlock_core::id::PipelineId::system), like any
//! other; the owner of any shard may write there, under its own term.
//!
//! | rows | what they are |
//! |---|---|
//! | `Pipeline` | the compact declaration the agenda is rebuilt from, and the pause |
//! | `Version` | the sources of one version of the declaration, kept while a slot refers to it |
//! | `Watermark` | per schedule: every slot at or before it is recorded |
//! | `Slot`, `Span` | the ledger |
//! | `Run` | one attempt |
//! | `Sensor` | the last report of a fact |
//! | `Incident` | something a person should know, under its dedup key |
//! | `Due` | an instant at which somebody must look at something |
//! | `Outbox` | a notification on its way |
//! | `Backfill` | a range of slots to run, and how far that got |
//! | `Applied` | the answer to an inbox entry, kept for a while so that a repeated one gets the same |
//! | events | appended, never changed; numbered by the store in commit order |
//!
//! # The verbs
//!
//! - [`Store::commit`] applies groups. **A group is all or nothing.** It belongs to one pipeline and holds at
//!   most [`CHANGES_MAX`] changes, each with its precondition, and the writer's term. A row occurs once in a
//!   group, so a precondition speaks of what the store held before the group. Groups of one pipeline
//!   apply in the order given; after one fails, its later ones in the same call fail too
//!   ([`Refusal::Behind`]). Groups of different pipelines are independent, with a result each. When `commit`
//!   returns, what it accepted is durable. A commit that returns an error may have been applied: read again
//!   (one that is not retryable was not: the caller made a mistake, and nothing of the call was applied).
//!   What is checked, and in which order, is in the module `check`, which all engines share.
//! - Reads see every group that was acknowledged before they began, and never half a group. [`Store::read_many`] reads rows of many
//!   pipelines by one call ([`read_batches()`] cuts what is asked for into such calls, [`read_apart`] keeps what cannot be read of one
//!   pipeline from the others).
//! - [`Store::acquire`] gives a role's shard to one holder for a while, with a term higher than every one
//!   before. A commit under an older term, or after the term was released, is refused ([`Refusal::Term`]),
//!   for ever (S9). The store's clock decides; nobody else's. **Expiry alone ends nothing:** it lets others
//!   acquire. Until somebody does, nobody else can have acted, so the term still fences, and a holder that
//!   was merely slow goes on. Safety is the term's, the lease is economy.
//! - [`Store::announce`] says who is there, and [`Store::roll`] who is there and who holds which shard: what instances
//!   divide the shards by ([`interlock_core::ownership`]). Nobody gets a right by it, and it need not outlive the server.
//! - [`Store::report_instance`] keeps what an instance says of itself (version, loops, leases), and [`Store::instances`] gives out what all
//!   said last, so that any of them can answer for the others.
//! - [`Store::post`] appends to the inbox, from anyone, without a lease. An entry has an idempotency key: the
//!   same key again for the same pipeline is the same entry. The owner applies entries and writes the answer as `Applied` in the
//!   same group as their consequences; [`Store::posted`] says what waits under a key. [`Store::hint`] says that there may be something, where an engine can tell without
//!   being asked.
//! - [`Store::claim`] hands out outbox rows to one deliverer each, until the claim expires; [`Store::settle_many`]
//!   replaces claimed rows by what came of them, which may be nothing, itself, or one row for each channel.
//! - [`Store::changes`] tells an archive which rows of the ledger were written after a number, in the order of commits.
//!   They are noted from the first [`Store::archived`] on, so that a store that nobody archives pays nothing;
//!   what the archive has not read is neither forgotten nor trimmed. [`Store::rows`] gives out everything, and
//!   [`Store::import`] takes it over into an empty store: how a ledger moves house.
//! - [`Store::mark`] is what an instance remembers of a store, beyond its own life, and [`Store::recall`] compares: a server
//!   may come back as it was an hour ago, and then nobody may go on as if it had not.
//! - [`Store::forget`] takes out what is old, and says so: what is not there and lies before the floor ([`kept::floor`]) may
//!   have been there. What may go is one rule for all engines, [`retention`].
//!
//! # What may go wrong
//!
//! An outcome that the caller must expect is a [`Refusal`], per group. Everything else is a [`StoreError`],
//! which says whether trying again makes sense. A version conflict is never an outcome for a user: reload and
//! plan again. An engine that cannot promise all of this refuses to open; it never imitates it weakly.

mod block_on;
mod check;
mod contract;
pub mod coverage;
mod durations;
pub mod encode;
pub mod kept;
mod key;
pub mod memory;
mod obligation;
pub mod pass_coverage;
mod read_batches;
pub mod record;
pub mod retention;
pub mod scan;
pub mod story;
mod together;
mod whole;

pub use block_on::block_on;
pub use check::{check_name, check_settlements, may_write, whole_milliseconds};
pub use contract::{
    Accepted, AgendaRow, Away, BackfillQuery, BackfillRow, CHANGES_MAX, Change, DueRow, EventQuery,
    EventRow, Expect, FoundRows, Group, Hint, INSTANCES_KEPT, InboxEntry, IncidentPlace,
    IncidentQuery, InstanceRow, Lease, LedgerEntry, LedgerPlace, LedgerQuery, LedgerRow, ListOrder,
    OutboxRow, Page, READ_MAX, ReadinessView, Refusal, Role, Roll, Row, RowsQuery, RunPlace,
    RunQuery, RunRow, SettleOutcome, Settlement, Shard, Store, StoreError, StoreFuture, Term,
    Writer,
};
pub use durations::usual_duration_of;
pub use key::{DueKind, Key, RunKey};
pub use obligation::{Obligation, Subject};
pub use read_batches::{read_apart, read_batches};
pub use record::Record;
pub use together::{for_each, together};
pub use whole::{
    Archived, ChangedRow, Changes, Forgetting, Freight, Mark, Portion, Recalled, Rows, StoreId,
    StoredRow,
};
