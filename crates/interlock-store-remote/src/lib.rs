//! What the stores on a server share.
//!
//! - [`Desk`]: a runtime of the store's own. The engine, the watchdog and the commands each run under another
//!   runtime or under none; a connection belongs to the one that made it. So all connections belong to the
//!   desk, calls are handed to it, and their futures are woken by it. A caller that stops waiting stops
//!   nothing half-way.
//! - [`Stored`]: a row as it is kept on a server: its text, and beside it what it is ordered and searched by.
//! - [`Found`]: a row as it comes back, and the rows of the contract's listings made from it.
//! - [`letter`]: what people are told of a server that has forgotten what it acknowledged.

mod desk;
mod found;
mod rollback;
mod stored;

pub use self::{
    desk::Desk,
    found::Found,
    rollback::{EVERY_TERM, NUMBERS_SKIPPED, OnRollback, THE_STORE, chance, forgotten, letter},
    stored::{Stored, key_text, micros, rounded_up},
};

use interlock_store::{InstanceRow, Page, StoreError, record::InstanceRecord};
use jiff::{SignedDuration, Timestamp};

/// A limit that sees whether there is more: one more than asked for.
pub fn one_more(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX - 1).saturating_add(1)
}

/// A page out of one more than was asked for.
pub fn page<T>(mut items: Vec<T>, limit: usize) -> Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    Page { items, more }
}

/// A time to live in whole milliseconds, as servers count; never negative.
pub fn whole_ttl(ttl: SignedDuration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX).clamp(0, LONGEST_TTL)
}

/// A thousand years: longer than any lease, short enough to be added to any instant.
const LONGEST_TTL: i64 = 1_000 * 366 * 24 * 3_600_000;

/// An instant that a server told, in milliseconds since 1970.
pub fn instant(millis: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_millisecond(millis).map_err(|error| StoreError::permanent(error.to_string()))
}

/// What an instance said of itself, and when, in milliseconds since 1970.
pub fn instance_row(instance: &str, said_ms: i64, body: &str) -> Result<InstanceRow, StoreError> {
    let record = InstanceRecord::decode(body)
        .map_err(|error| StoreError::permanent(format!("{instance}: {error}")))?;
    Ok(InstanceRow { instance: instance.to_owned(), said_at: instant(said_ms)?, record })
}
