//! What is written of a report: rows, obligations and events.

use std::collections::BTreeMap;

use interlock_core::{
    pipeline::StartSchedule,
    report::{End, Extra, Meaning, slot_after},
    run::{RunState, TriggerType},
    slot::{FAILED_FINAL, OpenState, Slot, SlotState},
};
use interlock_store::{
    DueKind, Key, Obligation, Record, RunKey, Subject,
    record::{ReportRecord, RunRecord},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Hearing, is_decided};
use crate::{
    heard::RID,
    scheduler::{Opener, plus},
    state::{KnownRun, SlotPlace},
    write::{Event, Planned},
};

/// A report with its slot.
pub(super) struct Telling<'a> {
    pub(super) hearing: &'a Hearing<'a>,
    pub(super) start: &'a StartSchedule,
    pub(super) place: &'a SlotPlace,
    /// The slot, its revision, and whether it is new.
    pub(super) slot: (&'a Slot, u64, bool),
    pub(super) watermark: Option<(Timestamp, u64)>,
    pub(super) opener: &'a Opener<'a>,
}

impl Telling<'_> {
    /// Writes what follows; answers with what came of it.
    pub(super) fn write(
        &self,
        meaning: Meaning,
        run: Option<&KnownRun>,
        plan: &mut Planned,
    ) -> Value {
        let word = match meaning {
            Meaning::Begins => {
                let key = self.next_run();
                self.move_slot(meaning, plan);
                self.begin(&key, plan);
                return self.answer("began", Some(&key));
            }
            Meaning::Happened(end) => {
                let key = self.next_run();
                self.move_slot(meaning, plan);
                self.happened(&key, end, plan);
                return self.answer("ended", Some(&key));
            }
            Meaning::Ends(end) => {
                let Some(run) = run else { return self.answer("repeated", None) };
                self.move_slot(meaning, plan);
                self.end(run, end, plan);
                "ended"
            }
            Meaning::BeganBefore => {
                let Some(run) = run else { return self.answer("repeated", None) };
                let mut record = run.record.as_ref().clone();
                record.started_at = Some(self.at());
                plan.put(Key::Run(run.key.clone()), run.revision, Record::Run(record.into()));
                "began before"
            }
            Meaning::Noted => {
                let said = self.event("JOB_LOGGED", "the job sent a log line");
                let said = said.detail("body", self.hearing.record.body.clone());
                let said = match &self.hearing.record.rid {
                    Some(rid) => said.detail(RID, rid.as_str()),
                    None => said,
                };
                plan.event(match run {
                    Some(run) => said.run(run.key.id(self.hearing.pipeline)),
                    None => said,
                });
                "noted"
            }
            Meaning::Repeated => "repeated",
            Meaning::Extra(why) => {
                self.extra(why, plan);
                "extra"
            }
        };
        self.answer(word, run.map(|run| &run.key))
    }

    fn at(&self) -> Timestamp {
        self.hearing.report.at
    }

    fn answer(&self, word: &str, run: Option<&RunKey>) -> Value {
        let pipeline = self.hearing.pipeline;
        let mut answer = json!({
            "report": word,
            "slot": format!("{pipeline}/{}/{}", self.place.1, self.place.0),
        });
        if let (Some(run), Some(fields)) = (run, answer.as_object_mut()) {
            fields.insert("run".to_owned(), run.id(pipeline).into());
        }
        answer
    }

    /// The run that begins with this report: the next attempt at the slot.
    fn next_run(&self) -> RunKey {
        let (slot, ..) = self.slot;
        RunKey {
            schedule: self.place.1.clone(),
            nominal: self.place.0,
            generation: slot.generation.max(1),
            attempt: slot.attempt + 1,
        }
    }

    /// What becomes of the slot, and of the next one of a switch.
    fn move_slot(&self, meaning: Meaning, plan: &mut Planned) {
        let (slot, revision, is_fresh) = self.slot;
        let is_end = matches!(meaning, Meaning::Happened(_) | Meaning::Ends(_));
        let next = self.start.next_of_switch(self.at());
        // One that is older than what closed the last slot moves nothing, be it an end or a beginning.
        let is_outdated = next.is_some_and(|next| {
            next < self.place.0 || (meaning != Meaning::Begins && next == self.place.0)
        });
        let next = next.filter(|_| is_end);
        let opening = self.opener.opening(self.place.0, TriggerType::External);
        let limit = self.start.limit_of_run(self.at());
        let after = match slot_after(Some(slot), meaning, opening, limit) {
            Ok(after) if !is_outdated => after,
            // A further run all the same.
            Ok(_) | Err(_) if matches!(meaning, Meaning::Happened(_) | Meaning::Begins) => {
                let generation = slot.generation.max(1);
                Some(Slot { attempt: slot.attempt + 1, generation, ..slot.clone() })
            }
            Ok(_) | Err(_) => None,
        };
        if let Some(after) = &after {
            plan.slot(self.place, revision, after);
            if is_fresh && after.state.is_open() {
                plan.will_complete(self.place, after, self.hearing.now);
            }
            if after.state == SlotState::Open(OpenState::Running) && slot.attempt == 0 {
                plan.spends(self.place, after, self.at());
            }
        }
        if let Some(next) = next.filter(|_| !is_outdated) {
            plan.group.changes.push(switch_due(self.place, slot.closes_at).delete());
            plan.switch(self.opener, (next, self.watermark.map_or(0, |(_, revision)| revision)));
        }
    }

    fn begin(&self, key: &RunKey, plan: &mut Planned) {
        let mut record = self.run_record(RunState::Running);
        record.started_at = Some(self.at());
        plan.put(Key::Run(key.clone()), 0, Record::Run(record.into()));
        plan.group.changes.push(self.limit(key, self.at()).put());
        plan.event(self.event("JOB_STARTED", "the job reported its start").run(self.id(key)));
        if is_decided(self.slot.0.state) && !self.start.is_switch() {
            self.extra(Extra::SlotIsDecided, plan);
        }
    }

    fn happened(&self, key: &RunKey, end: End, plan: &mut Planned) {
        let mut record = self.run_record(end.state());
        let took = self.hearing.record.duration_ms.and_then(|ms| i64::try_from(ms).ok());
        record.started_at = took.map(|ms| plus(self.at(), -SignedDuration::from_millis(ms)));
        (record.ended_at, record.message) = (Some(self.at()), self.failure(end));
        plan.put(Key::Run(key.clone()), 0, Record::Run(record.into()));
        self.tell_end(key, end, plan);
    }

    fn end(&self, run: &KnownRun, end: End, plan: &mut Planned) {
        let failure = self.failure(end);
        // Two machines may have told, by clocks that do not agree: nothing ends before it began.
        let at = run.record.started_at.map_or(self.at(), |began| self.at().max(began));
        plan.run(run, end.event(), |record| {
            (record.ended_at, record.message) = (Some(at), failure);
            record.metadata.extend(metadata(self.hearing.record));
        });
        let began = run.record.started_at.unwrap_or(run.record.created_at);
        plan.group.changes.push(self.limit(&run.key, began).delete());
        self.tell_end(&run.key, end, plan);
    }

    fn tell_end(&self, key: &RunKey, end: End, plan: &mut Planned) {
        match self.failure(end) {
            None => plan.event(self.event("JOB_COMPLETED", "the job succeeded").run(self.id(key))),
            Some(message) => {
                plan.event(self.event("JOB_FAILED", message).run(self.id(key)));
                let next = "watch-only: Interlock does not retry its job";
                let event = self.event("RETRY_EXHAUSTED", next).run(self.id(key));
                plan.event(event.detail("status", FAILED_FINAL));
            }
        }
    }

    /// Why it failed, for people.
    fn failure(&self, end: End) -> Option<String> {
        let said = match self.hearing.record.exit_code {
            Some(code) => format!("the job exited with {code}"),
            None => "the job reported failure".to_owned(),
        };
        (end == End::Badly).then_some(said)
    }

    fn extra(&self, why: Extra, plan: &mut Planned) {
        let said = self.hearing.report.said.as_str();
        let message = match why {
            Extra::SlotIsDecided => {
                format!("the job reported {said}, but its slot is {}", self.slot.0.state)
            }
            Extra::RunIsOver => {
                format!("the job reported {said} for a run that had ended differently")
            }
            Extra::NameIsTaken => format!(
                "the job reported {said} with the `rid` of another slot's run; no run of this slot is known"
            ),
        };
        let record = self.hearing.record;
        let event = self.event("REPORT_EXTRA", message).detail("said", said);
        plan.event(event.detail(RID, record.rid.clone()).detail("body", record.body.clone()));
    }

    fn run_record(&self, state: RunState) -> RunRecord {
        RunRecord {
            status: state.as_str().into(),
            trigger_type: TriggerType::External.as_str().into(),
            created_at: self.at(),
            started_at: None,
            ended_at: None,
            message: None,
            category: None,
            metadata: metadata(self.hearing.record),
        }
    }

    /// When a run has taken too long: the third budget.
    fn limit(&self, key: &RunKey, began: Timestamp) -> Obligation {
        let at = self.start.limit_of_run(began);
        Obligation::new(at, DueKind::Closes, Subject::Run(key.clone()))
    }

    fn id(&self, key: &RunKey) -> String {
        key.id(self.hearing.pipeline)
    }

    fn event(&self, kind: &'static str, message: impl Into<String>) -> Event<'_> {
        let event = Event::of(kind, self.hearing.now, message).about(self.place);
        let event = event.detail("date", self.slot.0.date.to_string());
        event.detail("reportedAt", self.at().to_string())
    }
}

/// What is kept of a report with its run.
fn metadata(report: &ReportRecord) -> BTreeMap<String, Value> {
    let ReportRecord { rid, exit_code, duration_ms, body, source, .. } = report;
    let all = [
        (RID, rid.clone().map(Value::from)),
        ("exitCode", exit_code.map(Value::from)),
        ("durationMs", duration_ms.map(Value::from)),
        ("body", body.clone().map(Value::from)),
        ("source", source.clone().map(Value::from)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// When the slot of a switch is judged.
fn switch_due((nominal, schedule): &SlotPlace, at: Timestamp) -> Obligation {
    Obligation::new(at, DueKind::Closes, Subject::Slot(schedule.clone(), *nominal))
}

impl Planned {
    /// Opens the next slot of a dead-man's switch, which its watermark then names.
    pub(crate) fn switch(&mut self, opener: &Opener<'_>, (nominal, watermark): (Timestamp, u64)) {
        let place = (nominal, opener.start.schedule.id().clone());
        let slot = opener.open(nominal, TriggerType::Scheduler);
        assert_eq!(slot.state, interlock_core::slot::SlotState::Open(OpenState::Waiting));
        self.slot(&place, 0, &slot);
        self.watermark(&place.1, watermark, nominal);
        self.group.changes.push(switch_due(&place, slot.closes_at).put());
        self.will_complete(&place, &slot, opener.now);
    }
}

/// Keeps a report that belongs nowhere.
pub(crate) fn rejected(record: &ReportRecord, reason: &str, now: Timestamp, plan: &mut Planned) {
    let ReportRecord { said, rid, at, body, source, pipeline, .. } = record;
    let event = Event::of("REPORT_REJECTED", now, reason)
        .detail("said", said.as_str())
        .detail("reportedAt", at.to_string());
    let more = [(RID, rid), ("body", body), ("source", source), ("pipeline", pipeline)];
    let event = more.into_iter().fold(event, |event, (name, value)| match value {
        Some(value) => event.detail(name, value.as_str()),
        None => event,
    });
    plan.event(event);
}
