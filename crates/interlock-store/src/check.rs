//! What every engine checks in the same way.
//!
//! An engine calls [`Group::check`] for all groups of a call before it applies any, then [`Group::refusal`],
//! the term and [`Expect::holds`] for each group, in this order. So a mistake of the caller stops the call
//! with nothing applied, and a stale owner hears of its term even when its rows have moved on too.

use std::collections::BTreeSet;

use interlock_core::id::PipelineId;
use jiff::{SignedDuration, Timestamp};

use crate::{
    contract::{CHANGES_MAX, Change, Expect, Group, Refusal, Role, Settlement, Shard, StoreError},
    key::Key,
    record::Record,
};

impl Expect {
    /// Whether it is met by a row at this revision, 0 when it is not there.
    pub fn holds(self, found: u64) -> bool {
        match self {
            Self::Absent => found == 0,
            Self::Revision(revision) => revision != 0 && found == revision,
            Self::Any => true,
        }
    }
}

impl Change {
    /// The row it changes; an appended event has none.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Put(key, ..) | Self::Delete(key, _) => Some(key),
            Self::Append(_) => None,
        }
    }

    /// What it expects of the row.
    pub fn expect(&self) -> Expect {
        match self {
            Self::Put(_, expect, _) | Self::Delete(_, expect) => *expect,
            Self::Append(_) => Expect::Any,
        }
    }
}

impl Group {
    /// Finds mistakes of the caller: the pipeline lies in another shard than the writer's, a record is of
    /// another kind than its key, an instant in a key is finer than a millisecond, or a name in one holds a NUL.
    pub fn check(&self, shard_count: u16) -> Result<(), StoreError> {
        let shard = Shard::of(&self.pipeline, shard_count);
        // What is of no pipeline may be told by the owner of any shard, under the term that it has.
        if shard != self.writer.shard && self.pipeline != PipelineId::system() {
            let (pipeline, theirs) = (&self.pipeline, self.writer.shard.0);
            let message = format!("{pipeline} lies in shard {}, not in {theirs}", shard.0);
            return Err(StoreError::permanent(message));
        }
        self.changes.iter().try_for_each(check_change)
    }

    /// Why it can never be applied, whatever the store holds.
    pub fn refusal(&self) -> Option<Refusal> {
        if self.changes.len() > CHANGES_MAX {
            return Some(Refusal::TooLarge(self.changes.len()));
        }
        let mut seen = BTreeSet::new();
        for change in &self.changes {
            let Some(key) = change.key() else { continue };
            if !seen.insert(key) {
                return Some(Refusal::Twice { key: key.clone() });
            }
            if !may_write(self.writer.role, change) && !self.is_own_watermark(change) {
                return Some(Refusal::Forbidden { key: key.clone() });
            }
        }
        None
    }
}

impl Group {
    /// Whether it is the watchdog's own watermark, which is of no pipeline's schedule.
    fn is_own_watermark(&self, change: &Change) -> bool {
        self.writer.role == Role::Watchdog
            && self.pipeline == PipelineId::system()
            && matches!(
                change,
                Change::Put(Key::Watermark(_), Expect::Absent | Expect::Revision(_), _)
            )
    }
}

/// Finds a name that not every engine can keep, in a row's key or of an entry for the inbox.
pub fn check_name(name: &str) -> Result<(), StoreError> {
    if !name.contains('\0') {
        return Ok(());
    }
    Err(StoreError::permanent(format!("a key cannot hold a NUL: {name:?}")))
}

fn check_change(change: &Change) -> Result<(), StoreError> {
    change.key().and_then(Key::name).map_or(Ok(()), check_name)?;
    if let Change::Put(key, _, record) = change
        && key.kind() != record.kind()
    {
        let message = format!("{key} cannot hold a record of kind {}", record.kind());
        return Err(StoreError::permanent(message));
    }
    match change.key().and_then(Key::instant) {
        Some(at) if whole_milliseconds(at) != at => {
            let message = format!("{at} is finer than a millisecond, which no key may be");
            Err(StoreError::permanent(message))
        }
        _ => Ok(()),
    }
}

/// Finds a mistake in what notifications are to become: more rows than a group may hold.
pub fn check_settlements(settlements: &[Settlement]) -> Result<(), StoreError> {
    let most = settlements.iter().map(|settlement| settlement.becomes.len()).max().unwrap_or(0);
    if most <= CHANGES_MAX {
        return Ok(());
    }
    Err(StoreError::permanent(format!("a notification cannot become {most} rows at once")))
}

/// Whether a role may make a change at all.
///
/// [`Expect::Any`] is for rows that hold no decision: everything else is written at what was read. The
/// engine's role may do the rest. The watchdog opens slots that are absent, closes slots and sets marks at
/// the revision that it read, moves the run of a slot that it closes to its end, and writes incidents, due entries
/// and notifications; under `_system` also its own watermark. It writes no spans: they
/// must not overlap, and no precondition could keep its own from overlapping the engine's. Which fields
/// of a slot it changes is its plan's promise; the store sees rows only.
pub fn may_write(role: Role, change: &Change) -> bool {
    match role {
        Role::Engine => engine_may(change),
        Role::Watchdog => engine_may(change) && watchdog_may(change),
    }
}

fn engine_may(change: &Change) -> bool {
    match change {
        Change::Put(key, Expect::Any, _) => match key {
            Key::Version(_) | Key::Sensor(_) | Key::Due(..) | Key::Outbox(_) => true,
            Key::Pipeline
            | Key::Watermark(_)
            | Key::Slot(..)
            | Key::Span(..)
            | Key::Run(_)
            | Key::Incident(_)
            | Key::Applied(_)
            | Key::Backfill(_) => false,
        },
        Change::Put(..) | Change::Delete(..) | Change::Append(_) => true,
    }
}

fn watchdog_may(change: &Change) -> bool {
    match change {
        Change::Put(key, ..) => {
            matches!(key, Key::Slot(..) | Key::Incident(_) | Key::Due(..) | Key::Outbox(_))
                || matches!((key, change.expect()), (Key::Run(_), Expect::Revision(_)))
        }
        Change::Delete(key, _) => matches!(key, Key::Due(..)),
        Change::Append(_) => true,
    }
}

/// An instant without what is finer than a millisecond: how engines tell the time.
pub fn whole_milliseconds(at: Timestamp) -> Timestamp {
    const MILLISECOND: i64 = 1_000_000;
    // Asked for several times with every write and read: `Timestamp::round` divides 128 bits.
    let finer = i64::from(at.subsec_nanosecond()).rem_euclid(MILLISECOND);
    // Rounding down cannot leave the range for any instant after its first millisecond.
    at.checked_sub(SignedDuration::from_nanos(finer)).unwrap_or(at)
}

impl Record {
    /// The word for what kind of row it is; see [`Key::kind`].
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Pipeline(_) => "pipeline",
            Self::Version(_) => "version",
            Self::Watermark(_) => "watermark",
            Self::Slot(_) => "slot",
            Self::Span(_) => "span",
            Self::Run(_) => "run",
            Self::Sensor(_) => "sensor",
            Self::Incident(_) => "incident",
            Self::Due(_) => "due",
            Self::Outbox(_) => "outbox",
            Self::Applied(_) => "applied",
            Self::Backfill(_) => "backfill",
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

    use super::whole_milliseconds;

    #[test]
    fn whole_milliseconds_are_what_rounding_down_gives() {
        let down = TimestampRound::new().smallest(Unit::Millisecond).mode(RoundMode::Floor);
        for nanosecond in
            [0, 1, 999_999, 1_000_000, 1_500_000, -1, -999_999, -1_000_000, -1_500_000]
        {
            let at = Timestamp::from_nanosecond(nanosecond + 1_772_010_000_000_000_000).unwrap();
            let early = Timestamp::from_nanosecond(nanosecond).unwrap();
            for at in [at, early, Timestamp::MAX] {
                assert_eq!(whole_milliseconds(at), at.round(down).unwrap(), "{at}");
            }
        }
        assert_eq!(whole_milliseconds(Timestamp::MIN), Timestamp::MIN);
    }
}
