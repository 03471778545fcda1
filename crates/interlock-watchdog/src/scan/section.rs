//! One schedule against what the ledger has of it: pure, given the rows.

use std::{collections::BTreeSet, sync::Arc};

use interlock_core::{
    agenda::Agenda,
    id::{PipelineId, fnv1a},
    pipeline::StartSchedule,
    run::TriggerType,
};
use interlock_store::{LedgerEntry, LedgerRow, record::PipelineRecord};
use jiff::{SignedDuration, Timestamp};

use super::{BEHIND_MAX, Violation};
use crate::owed::{Expecting, plus};

/// So many of a schedule's last slots are looked for every time.
const SLOTS: usize = 20;
/// Slots of one span that are counted again.
const COUNTED_MAX: usize = 10_000;

/// What is looked at of one schedule.
pub(super) struct Section<'a> {
    pub(super) pipeline: &'a PipelineId,
    pub(super) agenda: &'a Agenda,
    pub(super) start: &'a Arc<StartSchedule>,
    pub(super) watermark: Timestamp,
    /// Slots up to this were enumerated by another version, or are nobody's.
    pub(super) from: Timestamp,
    /// The version in force.
    pub(super) version: &'a str,
}

impl Section<'_> {
    /// Its name, in few bytes.
    pub(super) fn hash(&self) -> u64 {
        fnv1a(format!("{}/{}", self.pipeline, self.start.schedule.id()).as_bytes())
    }

    pub(super) fn violation(&self, invariant: &'static str, says: String) -> Violation {
        let (pipeline, schedule) = (self.pipeline.clone(), self.start.schedule.id().clone());
        Violation { pipeline, invariant, schedule, says }
    }

    /// The last slots that must be recorded, in order.
    pub(super) fn slots(&self) -> Vec<Timestamp> {
        let schedule = &self.start.schedule;
        let after = plus(self.watermark, SignedDuration::from_millis(1));
        let walk = std::iter::successors(schedule.previous(after), |at| schedule.previous(*at));
        let mut slots: Vec<_> = walk.take_while(|at| *at > self.from).take(SLOTS).collect();
        slots.reverse();
        slots
    }

    /// S3, and that a watermark passes nothing (S4).
    pub(super) fn unrecorded(
        &self,
        slots: &[Timestamp],
        (rows, known_until): &(Vec<LedgerRow>, Timestamp),
    ) -> Vec<Violation> {
        let ours = || rows.iter().filter(|row| row.schedule == *self.start.schedule.id());
        let spans = ours().filter_map(|row| match &row.entry {
            LedgerEntry::Span(span) => Some((row.nominal, span.last)),
            LedgerEntry::Slot(_) => None,
        });
        let spans: Vec<_> = spans.collect();
        let is_row = |row: &LedgerRow| matches!(row.entry, LedgerEntry::Slot(_));
        let rows: BTreeSet<_> = ours().filter(|row| is_row(row)).map(|row| row.nominal).collect();
        let mut found = Vec::new();
        for slot in slots.iter().filter(|slot| *slot <= known_until) {
            let covers = spans.iter().filter(|(first, last)| (first..=last).contains(&slot));
            match covers.count() {
                0 if !rows.contains(slot) => {
                    found.push(self.violation(
                        "S3",
                        format!("the slot of {slot} was due and is not recorded"),
                    ));
                }
                0 | 1 => {}
                many => {
                    found.push(
                        self.violation("S3", format!("{many} spans record the slot of {slot}")),
                    );
                }
            }
        }
        found.extend(self.miscounted(ours(), slots));
        found
    }

    /// S3: a span stands for as many slots as were owed between its ends. Each is looked at where it begins.
    fn miscounted<'r>(
        &self,
        ours: impl Iterator<Item = &'r LedgerRow>,
        slots: &[Timestamp],
    ) -> Vec<Violation> {
        let begins_here = |first: Timestamp| {
            let (Some(oldest), Some(newest)) = (slots.first(), slots.last()) else { return false };
            (*oldest..=*newest).contains(&first)
        };
        let mut found = Vec::new();
        for row in ours {
            let LedgerEntry::Span(span) = &row.entry else { continue };
            let (first, last, count) = (row.nominal, span.last, span.count);
            // Counting a longer one would take longer than a look may.
            let is_countable = count <= COUNTED_MAX as u64 && last <= self.watermark;
            if !is_countable || !begins_here(first) || span.version != self.version {
                continue;
            }
            let end = plus(last, SignedDuration::from_nanos(1));
            let owed = self.start.schedule.slots(first, end, COUNTED_MAX + 1).found.len() as u64;
            if owed != count {
                let says = format!(
                    "a span from {first} to {last} records {count} slots, but {owed} were due"
                );
                found.push(self.violation("S3", says));
            }
        }
        found
    }

    /// S4: what the scheduler opened, and every span, was recorded in one group with a watermark at or after it. So
    /// whatever stands after the watermark says that it went back, also if nobody was there to see it.
    pub(super) fn ahead(&self, rows: &[LedgerRow]) -> Option<Violation> {
        let ours = rows.iter().filter(|row| row.schedule == *self.start.schedule.id());
        let proof = ours.filter(|row| match &row.entry {
            // Reports, people, backfills and the watchdog do not wait for the scheduler.
            LedgerEntry::Slot(slot) => {
                row.nominal > self.watermark
                    && slot.generation > 0
                    && slot.opened_by == TriggerType::Scheduler.as_str()
                    && slot.version == self.version
            }
            LedgerEntry::Span(span) => span.last > self.watermark && span.version == self.version,
        });
        let proof = proof.map(|row| row.nominal).min();
        let says = |at: Timestamp| {
            format!(
                "the slot of {at} is recorded, but its watermark went back to {}",
                self.watermark
            )
        };
        proof.map(|at| self.violation("S4", says(at)))
    }

    /// Something was due long ago, nothing holds it up, and the watermark is before it, or there is none. Until its
    /// deadline that is for the checks to judge.
    pub(super) fn frozen(
        &self,
        record: &PipelineRecord,
        (watermark, now): (Option<Timestamp>, Timestamp),
    ) -> Option<Violation> {
        let pause = record.pause.as_ref();
        let is_paused = pause.is_some_and(|pause| {
            pause.is_in_force(now) || pause.until.is_some_and(|until| plus(until, BEHIND_MAX) > now)
        });
        let Some(watermark) = watermark else {
            let says = "no engine has taken it up: it has no watermark".to_owned();
            let is_late = plus(self.from, BEHIND_MAX) < now;
            return (is_late && !is_paused).then(|| self.violation("frozen", says));
        };
        let next = self.start.schedule.after(watermark)?;
        let expecting = Expecting { pipeline: self.pipeline, agenda: self.agenda };
        let judged = expecting.owed(self.start, next).limit;
        let due = plus(judged.max(plus(next, self.start.delay(self.pipeline))), BEHIND_MAX);
        (due < now && !is_paused).then(|| {
            self.violation("frozen", format!("the slot of {next} was due and is not recorded"))
        })
    }
}
