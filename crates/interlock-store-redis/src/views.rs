//! What the first Interlock kept beside the ledger, for those who look with `redis-cli`: a run's status, the run
//! log of each day, the newest runs of a pipeline, and whether it was ready when that was last decided or, while it waits, last
//! looked at, with what each trait's evaluator had said. Nothing is decided by them, and they expire.

use interlock_core::id::PipelineId;
use interlock_store::{Key, ReadinessView, Record, record::EventRecord};
use interlock_store_remote::micros;
use serde_json::Value;

use crate::keys::{Keys, fixed};

/// How long and how many.
#[derive(Debug, Clone)]
pub(crate) struct Views {
    /// How long a run log stays, and how old an event may be.
    pub(crate) retention_ms: i64,
    /// How many runs a pipeline's index has.
    pub(crate) runs_max: u32,
    /// How many events a pipeline's stream has, about.
    pub(crate) events_max: u32,
    /// How long it is shown whether a pipeline or a trait was ready.
    pub(crate) readiness_ms: i64,
}

impl Views {
    /// The views of a row, as arguments, with their number in front.
    pub(crate) fn of(
        &self,
        keys: &Keys,
        pipeline: &PipelineId,
        (key, record): (&Key, &Record),
        into: &mut Vec<String>,
    ) {
        match (key, record) {
            (Key::Run(run), Record::Run(found)) => {
                let id = run.id(pipeline);
                into.push("2".to_owned());
                let fields = [
                    ("pipelineId", pipeline.to_string()),
                    ("runId", id.clone()),
                    ("status", found.status.to_string()),
                    ("triggerType", found.trigger_type.to_string()),
                    ("createdAt", found.created_at.to_string()),
                ];
                // The run's own key: the row in it must not expire.
                hash(keys.name(&format!("run:{id}")), 0, &fields, into);
                let at = micros(found.created_at);
                set((keys.name(&format!("runs:{pipeline}")), at), id, self.runs_max, into);
            }
            (Key::Slot(schedule, nominal), Record::Slot(slot)) => {
                into.push("2".to_owned());
                let fields = [
                    ("pipelineId", pipeline.to_string()),
                    ("scheduleId", schedule.to_string()),
                    ("date", slot.date.to_string()),
                    ("slot", fixed(*nominal)),
                    ("status", slot.wire_status()),
                    ("attempt", slot.attempt.to_string()),
                ];
                let place = format!("runlog:{pipeline}:{}:{schedule}", slot.date);
                hash(keys.name(&place), self.retention_ms, &fields, into);
                let member = format!("{}:{schedule}", slot.date);
                let place = keys.name(&format!("runlogs:{pipeline}"));
                set((place, micros(*nominal)), member, self.runs_max, into);
            }
            _ => into.push("0".to_owned()),
        }
    }

    /// The views of an event, as arguments, with their number in front: what a decision rested on says whether the pipeline
    /// was ready, and each trait.
    pub(crate) fn of_event(
        &self,
        keys: &Keys,
        pipeline: &PipelineId,
        event: &EventRecord,
        into: &mut Vec<String>,
    ) {
        let blocking = event.details.get("blocking").and_then(Value::as_array);
        let blocking: Vec<String> = blocking
            .into_iter()
            .flatten()
            .filter_map(|it| it.as_str().map(str::to_owned))
            .collect();
        let starts = matches!(event.kind.as_str(), "JOB_TRIGGERED" | "DRY_RUN_WOULD_TRIGGER");
        if blocking.is_empty() && !starts {
            return into.push("0".to_owned());
        }
        let evidence = event.details.get("evidence").and_then(Value::as_str).unwrap_or_default();
        let traits = event.details.get("traits").and_then(Value::as_object);
        let view = ReadinessView {
            pipeline: pipeline.clone(),
            slot: event.slot.clone().unwrap_or_default(),
            at: event.at,
            blocking,
            evidence: evidence.to_owned(),
            traits: traits.cloned().unwrap_or_default(),
        };
        self.of_readiness(keys, &view, into);
    }

    /// The views of what a pipeline waits for, or that it is ready, as arguments, with their number in front.
    pub(crate) fn of_readiness(&self, keys: &Keys, view: &ReadinessView, into: &mut Vec<String>) {
        let ReadinessView { pipeline, slot, at, blocking, evidence, traits } = view;
        into.push((1 + traits.len()).to_string());
        for (kind, said) in traits {
            let text = |name: &str| match said.get(name) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None => String::new(),
                Some(value) => value.to_string(),
            };
            let fields = [
                ("pipelineId", pipeline.to_string()),
                ("traitType", kind.clone()),
                ("status", text("status")),
                ("value", text("value")),
                ("reason", text("reason")),
                ("evaluatedAt", at.to_string()),
            ];
            let place = keys.name(&format!("trait:{pipeline}:{kind}"));
            hash(place, self.readiness_ms, &fields, into);
        }
        let status = if blocking.is_empty() { "READY" } else { "NOT_READY" };
        let fields = [
            ("pipelineId", pipeline.to_string()),
            ("status", status.to_owned()),
            ("slot", slot.clone()),
            ("evaluatedAt", at.to_string()),
            ("blocking", blocking.join("; ")),
            ("evidence", evidence.clone()),
        ];
        hash(keys.name(&format!("readiness:{pipeline}")), self.readiness_ms, &fields, into);
    }
}

fn hash(key: String, ttl: i64, fields: &[(&str, String)], into: &mut Vec<String>) {
    into.extend(["hash".to_owned(), key, ttl.to_string(), (fields.len() * 2).to_string()]);
    for (name, value) in fields {
        into.extend([(*name).to_owned(), value.clone()]);
    }
}

fn set((key, score): (String, i64), member: String, keep: u32, into: &mut Vec<String>) {
    into.extend(["set".to_owned(), key, score.to_string(), member, keep.max(1).to_string()]);
}
