//! A slot as it is stored: the twin of core's [`Slot`].

use std::collections::BTreeMap;

use interlock_core::{
    run::TriggerType,
    sla::{Limit, ResolvedSla},
    slot::{Disposition, Evaluated, Marks, OpenState, Reruns, Slot, SlotState, Wish, wire_status},
};
use jiff::{SignedDuration, Timestamp, civil::Date};
use serde::{Deserialize, Serialize};

use super::{Unreadable, Word, version_number, version_text};

/// A slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotRecord {
    /// `waiting`, `queued`, `running`, `backoff`, `monitoring` or `closed`.
    pub state: Word,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disposition: Option<Word>,
    /// Why it was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Word>,
    /// See [`Slot::generation`].
    pub generation: u32,
    /// See [`Slot::attempt`].
    #[serde(default)]
    pub attempt: u32,
    /// The trigger type of what opened it.
    pub opened_by: Word,
    /// The local date it stands for.
    pub date: Date,
    /// When this generation was opened.
    pub opened_at: Timestamp,
    /// When it is closed by force.
    pub closes_at: Timestamp,
    /// When the next attempt may begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// What stays on it.
    #[serde(default, skip_serializing_if = "MarksRecord::is_empty")]
    pub marks: MarksRecord,
    /// The pipeline's version when it was recorded.
    pub version: String,
    /// What somebody asked for beside running it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<Box<WishRecord>>,
    /// How often it was run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reruns: Option<Box<RerunsRecord>>,
    /// What it promises about time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sla: Option<Box<SlaRecord>>,
    /// The first look that found it not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<Box<EvaluatedRecord>>,
}

/// See [`Evaluated`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvaluatedRecord {
    /// See [`Evaluated::at`].
    pub at: Timestamp,
    /// See [`Evaluated::blocking`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocking: Vec<String>,
    /// See [`Evaluated::is_told`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told: bool,
}

/// See [`Reruns`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RerunsRecord {
    /// See [`Reruns::drift`].
    #[serde(default)]
    pub drift: u32,
    /// See [`Reruns::manual`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub manual: BTreeMap<String, u32>,
}

/// See [`ResolvedSla`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlaRecord {
    /// See [`ResolvedSla::evaluation_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation_at: Option<Timestamp>,
    /// See [`Limit::warning_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning_at: Option<Timestamp>,
    /// See [`Limit::breach_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breach_at: Option<Timestamp>,
    /// See [`ResolvedSla::duration_max`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_max: Option<SignedDuration>,
    /// See [`ResolvedSla::expected_duration`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_duration: Option<SignedDuration>,
}

/// See [`Wish`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WishRecord {
    /// See [`Wish::params`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// See [`Wish::force`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// See [`Wish::reason`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// See [`Wish::original_run`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_run: Option<String>,
    /// See [`Wish::backfill`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill: Option<u64>,
    /// See [`Wish::before`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<EndRecord>,
}

/// How a slot ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRecord {
    /// The word for it.
    pub disposition: Word,
    /// Why it was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Word>,
}

impl EndRecord {
    fn from_core(disposition: Disposition) -> Self {
        let reason = disposition.reason().map(|reason| reason.as_str().into());
        Self { disposition: disposition.as_str().into(), reason }
    }

    fn to_core(&self) -> Result<Disposition, Unreadable> {
        Disposition::parse(&self.disposition, self.reason.as_deref())
            .map_err(|error| Unreadable::Word(error.message))
    }
}

impl WishRecord {
    fn from_core(wish: &Wish) -> Self {
        Self {
            params: wish.params.clone(),
            force: wish.force,
            reason: wish.reason.clone(),
            original_run: wish.original_run.clone(),
            backfill: wish.backfill,
            before: wish.before.map(EndRecord::from_core),
        }
    }

    fn to_core(&self) -> Result<Wish, Unreadable> {
        Ok(Wish {
            params: self.params.clone(),
            force: self.force,
            reason: self.reason.clone(),
            original_run: self.original_run.clone(),
            backfill: self.backfill,
            before: self.before.as_ref().map(EndRecord::to_core).transpose()?,
        })
    }
}

/// See [`Marks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MarksRecord {
    /// See [`Marks::missed_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_at: Option<Timestamp>,
    /// See [`Marks::late`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// See [`Marks::uncertain`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
    /// See [`Marks::recovered`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recovered: bool,
}

impl SlotRecord {
    /// Its status in the words of the first Interlock.
    pub fn wire_status(&self) -> String {
        wire_status(&self.state, self.disposition.as_deref())
    }

    /// The stored twin of a slot.
    pub fn from_core(slot: &Slot) -> Self {
        let (state, disposition, reason) = match slot.state {
            SlotState::Open(open) => (open.as_str(), None, None),
            SlotState::Closed(disposition) => {
                let reason = disposition.reason().map(|reason| reason.as_str().into());
                ("closed", Some(disposition.as_str().into()), reason)
            }
        };
        Self {
            state: state.into(),
            disposition,
            reason,
            generation: slot.generation,
            attempt: slot.attempt,
            opened_by: slot.opened_by.as_str().into(),
            date: slot.date,
            opened_at: slot.opened_at,
            closes_at: slot.closes_at,
            retry_at: slot.retry_at,
            marks: MarksRecord {
                missed_at: slot.marks.missed_at,
                late: slot.marks.late,
                uncertain: slot.marks.uncertain,
                recovered: slot.marks.recovered,
            },
            version: version_text(slot.version),
            wish: slot.wish.as_deref().map(|wish| Box::new(WishRecord::from_core(wish))),
            reruns: slot.reruns.as_deref().map(|reruns| {
                Box::new(RerunsRecord { drift: reruns.drift, manual: reruns.manual.clone() })
            }),
            sla: slot.sla.as_deref().map(|sla| Box::new(SlaRecord::from_core(sla))),
            evaluated: slot.evaluated.as_deref().map(|evaluated| {
                let Evaluated { at, blocking, is_told } = evaluated;
                let (at, blocking) = (*at, blocking.clone());
                Box::new(EvaluatedRecord { at, blocking, told: *is_told })
            }),
        }
    }

    /// The slot it stands for.
    pub fn to_core(&self) -> Result<Slot, Unreadable> {
        let state = match (self.state.as_str(), &self.disposition) {
            ("closed", Some(word)) => {
                let parsed = Disposition::parse(word, self.reason.as_deref());
                SlotState::Closed(parsed.map_err(|error| Unreadable::Word(error.message))?)
            }
            (word, _) => {
                let open = OpenState::ALL.into_iter().find(|open| open.as_str() == word);
                SlotState::Open(open.ok_or_else(|| Unreadable::Word(word.to_owned()))?)
            }
        };
        let opened_by = TriggerType::parse(&self.opened_by);
        Ok(Slot {
            state,
            generation: self.generation,
            attempt: self.attempt,
            opened_by: opened_by.map_err(|error| Unreadable::Word(error.message))?,
            date: self.date,
            opened_at: self.opened_at,
            closes_at: self.closes_at,
            retry_at: self.retry_at,
            marks: Marks {
                missed_at: self.marks.missed_at,
                late: self.marks.late,
                uncertain: self.marks.uncertain,
                recovered: self.marks.recovered,
            },
            version: version_number(&self.version)?,
            wish: self.wish.as_ref().map(|wish| wish.to_core().map(Box::new)).transpose()?,
            reruns: self.reruns.as_ref().map(|reruns| {
                Box::new(Reruns { drift: reruns.drift, manual: reruns.manual.clone() })
            }),
            sla: self.sla.as_ref().map(|sla| Box::new(sla.to_core())),
            evaluated: self.evaluated.as_deref().map(|evaluated| {
                let EvaluatedRecord { at, blocking, told } = evaluated;
                Box::new(Evaluated { at: *at, blocking: blocking.clone(), is_told: *told })
            }),
        })
    }

    /// Whether it is still to be decided.
    pub fn is_open(&self) -> bool {
        self.state != "closed"
    }
}

impl SlaRecord {
    /// The stored twin of what a slot promises.
    pub fn from_core(sla: &ResolvedSla) -> Self {
        Self {
            evaluation_at: sla.evaluation_at,
            warning_at: sla.completion.and_then(|limit| limit.warning_at),
            breach_at: sla.completion.map(|limit| limit.breach_at),
            duration_max: sla.duration_max,
            expected_duration: sla.expected_duration,
        }
    }

    /// What it stands for.
    pub fn to_core(self) -> ResolvedSla {
        let limit = |breach_at| Limit { warning_at: self.warning_at, breach_at };
        ResolvedSla {
            evaluation_at: self.evaluation_at,
            completion: self.breach_at.map(limit),
            duration_max: self.duration_max,
            expected_duration: self.expected_duration,
        }
    }
}

impl MarksRecord {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
