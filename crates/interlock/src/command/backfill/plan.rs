//! The plan of a backfill for people and scripts: slots in a row with the same verdict are one line.

use std::collections::BTreeMap;

use interlock_config::{SystemZones, ZoneSource as _};
use interlock_core::{
    backfill::{Fingerprint, Place, Verdict},
    id::ScheduleId,
    pipeline::Pipeline,
    schedule::{Omission, Schedule},
    text::counted,
};
use interlock_engine::{Forecast, Prospect, ZoneOf};
use interlock_store::{
    Store, block_on,
    record::{BackfillRecord, version_text},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{exit::Failure, output::Output};

/// Slots that are judged at a time.
const AT_ONCE: usize = 1_000;
/// Days that a calendar leaves out, of each schedule: most that are named.
const EXCLUDED_MAX: usize = 1_000;
/// A plan of more slots than this is printed in stretches, in JSON too.
const EXPANDED_MAX: u64 = 10_000;

/// The verdicts, as scripts read them: it would run, it would wait, it ended, somebody has it, its schedule has yet to
/// record it, there is none.
const WOULD_RUN: &str = "would_run";
const NOT_READY: &str = "not_ready";
const EXISTS: &str = "exists";
const OPEN: &str = "open";
const OWED: &str = "owed";
const EXCLUDED: &str = "excluded";
/// Newest first.
const DESCENDING: &str = "desc";

/// What would be done.
pub(super) struct Plan {
    pub(super) lines: Vec<Line>,
    /// How many slots would be opened: those that would run, and those that would wait until they are ready.
    pub(super) total: u64,
    pub(super) hash: String,
    /// How many slots there are.
    pub(super) slots: u64,
}

/// Slots in a row of one schedule with the same verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    schedule: String,
    /// The first and the last, or the date that has none.
    what: What,
    count: u64,
    verdict: &'static str,
    /// How it ended, or why it is not ready or left out.
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Slots(Timestamp, Timestamp),
    Day(String),
}

/// What a plan is made from.
pub(super) struct Planner<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) spec: &'a Pipeline,
    pub(super) record: &'a BackfillRecord,
    pub(super) now: Timestamp,
}

impl Planner<'_> {
    /// Goes through the whole range.
    pub(super) fn plan(
        &self,
        recorded_until: impl Fn(&ScheduleId) -> Option<Timestamp>,
    ) -> Result<Plan, Failure> {
        let said = |error: &dyn std::fmt::Display| Failure::failed(error.to_string(), "");
        let prospect = Prospect::new(self.spec, self.record, recorded_until);
        let prospect = prospect.map_err(|error| said(&error))?;
        let zones = SystemZones::new();
        let source: (&dyn Store, ZoneOf<'_>) = (self.store, &|name| zones.zone(name));
        let forecast = block_on(Forecast::new(source, self.spec))?;
        let mut stretches = Stretches::default();
        let (mut total, mut slots, mut hash) = (0, 0, Fingerprint::default());
        let mut cursor: Option<Place> = None;
        loop {
            let portion = block_on(prospect.portion(self.store, cursor.as_ref(), AT_ONCE))?;
            for (place, verdict) in &portion.slots {
                slots += 1;
                let (word, reason) = match verdict {
                    Verdict::Run => {
                        total += 1;
                        hash = hash.with(place);
                        match block_on(forecast.forbids(place, self.now))? {
                            Some(reason) => (NOT_READY, reason),
                            None => (WOULD_RUN, String::new()),
                        }
                    }
                    Verdict::Exists(disposition) => {
                        let reason = disposition.reason().map(|it| format!("({})", it.as_str()));
                        (EXISTS, disposition.as_str().to_owned() + &reason.unwrap_or_default())
                    }
                    Verdict::Open(state) => (OPEN, state.as_str().to_owned()),
                    Verdict::Owed => (OWED, "its schedule records it first".to_owned()),
                };
                stretches.take(place, word, reason);
            }
            cursor = portion.slots.last().map(|(place, _)| place.clone()).or(cursor);
            if portion.is_end {
                break;
            }
        }
        let mut lines = stretches.lines;
        lines.extend(self.excluded());
        Ok(Plan { lines, total, hash: version_text(hash.0), slots })
    }

    /// The days of the range that a calendar or a skipped gap leaves out.
    fn excluded(&self) -> Vec<Line> {
        let BackfillRecord { from, to, schedules, .. } = self.record;
        let own = self.spec.starts.iter().map(|start| &start.schedule);
        let meant = own.filter(|it| schedules.iter().any(|id| id == it.id().as_str()));
        let mut lines = Vec::new();
        for schedule in meant {
            for omission in schedule.omissions(*from, *to, EXCLUDED_MAX) {
                let (day, reason) = match omission {
                    Omission::Date { date, reason } => (date.to_string(), reason),
                    Omission::Gap { missing } => {
                        (missing.date().to_string(), format!("{} does not exist", missing.time()))
                    }
                };
                let schedule = schedule.id().to_string();
                let what = What::Day(day);
                lines.push(Line { schedule, what, count: 0, verdict: EXCLUDED, reason });
            }
        }
        lines
    }
}

/// Lines as they grow: for each schedule the last one is continued while its verdict stays.
#[derive(Default)]
struct Stretches {
    lines: Vec<Line>,
    last: BTreeMap<ScheduleId, usize>,
}

impl Stretches {
    fn take(&mut self, (slot, schedule): &Place, verdict: &'static str, reason: String) {
        let last = self.last.get(schedule).and_then(|index| self.lines.get_mut(*index));
        if let Some(line) = last
            && line.verdict == verdict
            && line.reason == reason
            && let What::Slots(first, last) = &mut line.what
        {
            (*first, *last) = ((*first).min(*slot), (*last).max(*slot));
            line.count += 1;
            return;
        }
        self.last.insert(schedule.clone(), self.lines.len());
        let what = What::Slots(*slot, *slot);
        self.lines.push(Line { schedule: schedule.to_string(), what, count: 1, verdict, reason });
    }
}

impl Plan {
    /// Prints the lines for people.
    pub(super) fn print(&self, output: &mut Output) -> Result<(), Failure> {
        let row = |line: &Line| {
            let what = match &line.what {
                What::Slots(first, last) if first == last => first.to_string(),
                What::Slots(first, last) => format!("{first} to {last} ({} slots)", line.count),
                What::Day(day) => day.clone(),
            };
            let verdict = line.verdict.replace('_', " ");
            [line.schedule.clone(), what, verdict, line.reason.clone()]
        };
        let rows: Vec<_> = self.lines.iter().map(row).collect();
        output.table(["SCHEDULE", "SLOT", "VERDICT", "REASON"], &rows)
    }

    /// How many slots their schedules have yet to record.
    pub(super) fn owed(&self) -> u64 {
        self.having(OWED)
    }

    fn having(&self, verdict: &str) -> u64 {
        self.lines.iter().filter(|line| line.verdict == verdict).map(|line| line.count).sum()
    }

    /// How many there are of each verdict; of days that are left out, how many days.
    pub(super) fn counts(&self) -> Value {
        let excluded = self.lines.iter().filter(|line| line.verdict == EXCLUDED).count();
        json!({
            WOULD_RUN: self.having(WOULD_RUN),
            NOT_READY: self.having(NOT_READY),
            EXISTS: self.having(EXISTS),
            OPEN: self.having(OPEN),
            OWED: self.having(OWED),
            EXCLUDED: excluded,
        })
    }

    /// The same in a sentence, without those of which there are none.
    pub(super) fn sum(&self) -> String {
        let would_run = self.having(WOULD_RUN);
        let mut parts = vec![format!("{would_run} of {} would run", counted(self.slots, "slot"))];
        let exist = if self.having(EXISTS) == 1 { "exists" } else { "exist" };
        for (verdict, words) in [
            (NOT_READY, "would wait because not ready"),
            (EXISTS, exist),
            (OPEN, "open"),
            (OWED, "owed"),
        ] {
            let count = self.having(verdict);
            parts.extend((count > 0).then(|| format!("{count} {words}")));
        }
        let days = self.lines.iter().filter(|line| line.verdict == EXCLUDED).count();
        parts.extend((days > 0).then(|| format!("{} excluded", counted(days, "day"))));
        parts.join(", ")
    }

    /// The lines for scripts in the order of the backfill, slot by slot where there are not too many.
    pub(super) fn to_json(&self, spec: &Pipeline, order: &str) -> Vec<Value> {
        let mut objects = Vec::new();
        for line in &self.lines {
            let mut own = spec.starts.iter().map(|start| &start.schedule);
            let Some(schedule) = own.find(|it| it.id().as_str() == line.schedule) else { continue };
            let mut put = |at: Timestamp, slots| {
                objects.push(((at, line.schedule.clone()), line.to_json(spec, schedule, slots)));
            };
            let (first, last) = match &line.what {
                What::Slots(first, last) => (*first, *last),
                What::Day(day) => {
                    put(beginning(schedule, day), None);
                    continue;
                }
            };
            if self.slots > EXPANDED_MAX {
                put(
                    if order == DESCENDING { last } else { first },
                    Some((first, last, line.count)),
                );
                continue;
            }
            let mut slot = Some(first);
            while let Some(at) = slot.filter(|at| *at <= last) {
                put(at, Some((at, at, 1)));
                slot = schedule.after(at);
            }
        }
        objects.sort_by(|(one, _), (other, _)| one.cmp(other));
        if order == DESCENDING {
            objects.reverse();
        }
        objects.into_iter().map(|(_, object)| object).collect()
    }
}

/// When a day begins in the zone of a schedule.
fn beginning(schedule: &Schedule, day: &str) -> Timestamp {
    let zone = schedule.timing().zone.time_zone();
    let date = day.parse::<jiff::civil::Date>().ok();
    let begins = date.and_then(|date| date.to_zoned(zone.clone()).ok());
    begins.map_or(Timestamp::MIN, |it| it.timestamp())
}

impl Line {
    fn to_json(
        &self,
        spec: &Pipeline,
        schedule: &Schedule,
        slots: Option<(Timestamp, Timestamp, u64)>,
    ) -> Value {
        let day = match (&self.what, slots) {
            (What::Day(day), _) => Some(day.clone()),
            (What::Slots(..), Some((first, ..))) => {
                Some(schedule.occurrence(first).date.to_string())
            }
            (What::Slots(..), None) => None,
        };
        let single = slots.filter(|(.., count)| *count == 1);
        json!({
            "schedule": self.schedule,
            "slot": slots.map(|(first, ..)| first.to_string()),
            "name": single.map(|(slot, ..)| format!("{}/{}/{slot}", spec.name, self.schedule)),
            "last": slots.map(|(_, last, _)| last.to_string()),
            "count": slots.map_or(0, |(.., count)| count),
            "date": day,
            "verdict": self.verdict,
            "reason": Some(&self.reason).filter(|reason| !reason.is_empty()),
        })
    }
}
