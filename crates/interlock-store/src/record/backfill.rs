//! The stored form of a backfill: what was asked, what was planned, and where it stands.

use interlock_core::{
    backfill::{Order, Place, Reprocess, State},
    id::ScheduleId,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{SlotName, Unreadable};

/// A backfill; its number is the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackfillRecord {
    /// `running`, `paused`, `cancelled` or `done`.
    pub state: String,
    /// The first instant of its range.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
    /// Its schedules, by id.
    pub schedules: Vec<String>,
    /// `missing`, `failed` or `all`.
    pub reprocess: String,
    /// `asc` or `desc`.
    pub order: String,
    /// How many of its slots may run at a time.
    pub concurrency: u32,
    /// Why it was asked for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// How many slots would run when it was planned.
    pub total: u64,
    /// The hash of those, in order.
    pub plan: String,
    /// When it began.
    pub since: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was done or cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The last slot that was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<SlotName>,
    /// The slots of it that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<BackfillSlot>,
    /// What became of the others.
    #[serde(default)]
    pub counts: BackfillCounts,
    /// The hash of the slots that it opened so far, in order.
    pub opened: String,
    /// Whether a cancel ends what runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_runs: bool,
}

/// A slot that a backfill opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillSlot {
    /// Of which schedule.
    pub schedule: String,
    /// Which instant.
    pub nominal: Timestamp,
    /// Which generation of it.
    pub generation: u32,
}

/// How many slots of a backfill had which fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BackfillCounts {
    /// Opened by it.
    #[serde(default)]
    pub opened: u64,
    /// Judged and left as they were.
    #[serde(default)]
    pub passed: u64,
    /// Of those that it opened: completed.
    #[serde(default)]
    pub completed: u64,
    /// Failed.
    #[serde(default)]
    pub failed: u64,
    /// Cancelled.
    #[serde(default)]
    pub cancelled: u64,
    /// Skipped: not ready in time, or their pipeline is gone.
    #[serde(default)]
    pub skipped: u64,
}

impl BackfillCounts {
    /// How many that it opened have ended.
    pub fn ended(&self) -> u64 {
        self.completed + self.failed + self.cancelled + self.skipped
    }
}

impl BackfillSlot {
    /// Where it stands among the slots of its pipeline.
    pub fn place(&self) -> Result<Place, Unreadable> {
        place(&self.schedule, self.nominal)
    }
}

impl BackfillRecord {
    /// How it stands.
    pub fn standing(&self) -> Result<State, Unreadable> {
        State::parse(&self.state).ok_or_else(|| Unreadable::Word(self.state.clone()))
    }

    /// Which slots run.
    pub fn reprocess(&self) -> Result<Reprocess, Unreadable> {
        Reprocess::parse(&self.reprocess).ok_or_else(|| Unreadable::Word(self.reprocess.clone()))
    }

    /// In which order.
    pub fn order(&self) -> Result<Order, Unreadable> {
        Order::parse(&self.order).ok_or_else(|| Unreadable::Word(self.order.clone()))
    }

    /// The last slot that was judged.
    pub fn cursor(&self) -> Result<Option<Place>, Unreadable> {
        self.cursor.as_ref().map(|name| place(&name.schedule, name.nominal)).transpose()
    }

    /// Whether its owner still has something to do with it: it may open slots, or has open ones.
    pub fn is_unfinished(&self) -> bool {
        !self.open.is_empty() || !self.standing().is_ok_and(|state| !state.is_open())
    }
}

fn place(schedule: &str, nominal: Timestamp) -> Result<Place, Unreadable> {
    let id = ScheduleId::any(schedule).map_err(|error| Unreadable::Word(error.message))?;
    Ok((nominal, id))
}
