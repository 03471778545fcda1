//! `interlock explain`: why a slot ran or not, rule by rule, with the values seen; or why there is none.
//!
//! A slot that was decided is explained by the verdict that was stored with the decision (S8), one that
//! waits by the present one, one that is not there by the schedule. Nothing is guessed: what was not stored
//! is said not to be.
//!
//! With `--sensors` or `--at`, and before anything was recorded, the files alone are asked, so that a rule
//! can be tried before any data is there; traits and upstreams cannot be told then.

mod there;

use std::{collections::BTreeMap, fs, io::Write as _, path::Path};

use interlock_answers::{
    evaluation_answer, event_answer, last_owed, model::event::EventAnswer, verdict_answer,
};
use interlock_config::Loaded;
use interlock_core::{
    id::SlotKey,
    pipeline::Pipeline,
    readiness::{Evidence, evaluate},
    sensor::{Sensor, Sensors},
};
use interlock_store::{LedgerEntry, LedgerRow, block_on, record::version_text, story};
use jiff::Timestamp;
use serde_json::{Value, json, to_value};

use super::{
    evaluate::{find, judge},
    why,
};
use crate::{
    arguments::Explain,
    clock,
    exit::{Failure, SUCCESS},
    ledger::Ledger,
    output::{Output, instant},
    place::Place,
    project,
    slot_name::{self, Typed},
    source::Source,
    target::Target,
};

pub(super) fn run(target: &Target, explain: &Explain, output: &mut Output) -> Result<u8, Failure> {
    let directory = match target {
        Target::Project(directory) => directory,
        Target::Server(address) => return there::run(address, explain, output),
    };
    let loaded = project::load(directory)?;
    project::mention_errors(&loaded, output)?;
    let spec = project::pipeline(&loaded, &explain.pipeline)?;
    let is_recorded = Place::of(directory)?.exists()?;
    if explain.sensors.is_some() || explain.at.is_some() || !is_recorded {
        return from_files((&loaded, spec), explain, output);
    }
    let source = Source::open(target, output)?;
    let Source::Project(here) = &source else {
        return Err(Failure::failed("internal error: no project", ""));
    };
    let ledger = &here.ledger;
    let asked = Asked { directory, loaded: &loaded, spec, ledger, source: &source };
    let explanation = asked.explain(explain.slot.as_deref())?;
    if explain.json {
        output.json(&explanation.to_json(spec.name.as_str()))?;
    } else {
        explanation.print(output)?;
    }
    Ok(SUCCESS)
}

/// What there is to ask.
struct Asked<'a> {
    directory: &'a Path,
    loaded: &'a Loaded,
    spec: &'a Pipeline,
    ledger: &'a Ledger,
    source: &'a Source,
}

/// Why a slot is as it is.
enum Explanation {
    /// It was decided, with these verdicts and remarks.
    Decided { slot: SlotKey, state: String, decisions: Vec<Decision>, remarks: Vec<String> },
    /// It waits, for this.
    Waiting { slot: SlotKey, state: String, verdict: Value, text: String },
    /// It is not recorded, for these reasons.
    Absent(Vec<String>),
}

/// A verdict that was stored with what was decided on it.
struct Decision {
    kind: String,
    at: Timestamp,
    run: Option<String>,
    /// A tree as text, or the rules that stood in the way.
    verdict: Vec<String>,
}

impl Asked<'_> {
    fn explain(&self, slot: Option<&str>) -> Result<Explanation, Failure> {
        let name = &self.spec.name;
        let last = || block_on(self.ledger.reader().slot_in_question(self.spec));
        let last = || Ok::<_, Failure>(last()?.to_string());
        let text = slot.map_or_else(last, |text| Ok(text.into()));
        let typed = Typed::parse(name, &text?)?;
        if slot_name::meant(Some(self.spec), self.ledger, name, &typed)?.is_empty() {
            return self.absent(&typed);
        }
        let slot = slot_name::resolve(self.loaded, self.ledger, name, &typed)?;
        match self.row(&slot)? {
            Some(row) => self.recorded(slot, &row),
            None => self.absent(&typed),
        }
    }

    /// The slot's row, else the span that covers it.
    fn row(&self, slot: &SlotKey) -> Result<Option<LedgerRow>, Failure> {
        let rows = self.ledger.rows_at(&slot.pipeline, slot.nominal)?;
        Ok(rows.into_iter().find(|row| row.schedule == slot.schedule))
    }

    fn absent(&self, typed: &Typed) -> Result<Explanation, Failure> {
        Ok(Explanation::Absent(why::absent(self.source, &self.spec.name, typed)?))
    }

    fn recorded(&self, slot: SlotKey, row: &LedgerRow) -> Result<Explanation, Failure> {
        let state = match &row.entry {
            LedgerEntry::Slot(record) => story::slot_state(record),
            LedgerEntry::Span(span) => story::span_state(span),
        };
        if matches!(state.as_str(), "waiting" | "queued") {
            let asked = (&self.ledger.reader(), self.spec);
            let verdict = judge(self.directory, self.loaded, asked, &slot)?;
            let text = verdict.to_string();
            let verdict = to_value(verdict_answer(&verdict)).unwrap_or_default();
            return Ok(Explanation::Waiting { slot, state, verdict, text });
        }
        let runs = self.ledger.runs_of(&slot.pipeline, &slot.schedule, slot.nominal)?;
        let events =
            block_on(self.ledger.reader().slot_events(&slot, std::slice::from_ref(row), &runs))?;
        let decisions: Vec<_> =
            events.found.into_iter().map(event_answer).filter_map(|it| Decision::of(&it)).collect();
        let mut remarks = self.remarks(&row.entry, &decisions);
        remarks.extend(
            events
                .looked_at_until
                .map(|after| format!("Events after number {after} were not looked at.")),
        );
        Ok(Explanation::Decided { slot, state, decisions, remarks })
    }

    /// What is known besides the verdicts, or in their place.
    fn remarks(&self, entry: &LedgerEntry, decisions: &[Decision]) -> Vec<String> {
        let LedgerEntry::Slot(slot) = entry else {
            return vec!["It was never evaluated.".to_owned()];
        };
        if slot.wish.as_ref().is_some_and(|wish| wish.force) {
            return vec!["It was started with `--force`, which skips its conditions.".to_owned()];
        }
        if !decisions.is_empty() {
            return vec![];
        }
        let readiness = &self.spec.readiness;
        let current = self.loaded.pipelines.iter().find(|one| one.pipeline.name == self.spec.name);
        let is_current = current.is_some_and(|one| version_text(one.version) == slot.version);
        if is_current && readiness.conditions.is_empty() && readiness.upstreams.is_empty() {
            return vec!["It has no conditions.".to_owned()];
        }
        vec!["No verdict was recorded for it.".to_owned()]
    }
}

impl Decision {
    /// The verdict that an event carries.
    fn of(event: &EventAnswer) -> Option<Self> {
        let details = &event.details;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let verdict = match (details.get("evidence"), details.get("blocking")) {
            (Some(tree), _) => text(tree)?.lines().map(str::to_owned).collect(),
            (None, Some(rules)) => rules.as_array()?.iter().filter_map(text).collect(),
            (None, None) => return None,
        };
        Some(Self { kind: event.kind.clone(), at: event.at, run: event.run_id.clone(), verdict })
    }
}

impl Explanation {
    fn print(&self, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Absent(reasons) => {
                reasons.iter().try_for_each(|reason| writeln!(output.out, "{reason}"))?;
            }
            Self::Waiting { slot, state, text, .. } => {
                writeln!(output.out, "{slot} is {state}; now:\n{text}")?;
            }
            Self::Decided { slot, state, decisions, remarks } => {
                writeln!(output.out, "{slot} is {state}.")?;
                for decision in decisions {
                    let run =
                        decision.run.as_ref().map_or_else(String::new, |run| format!(" {run}"));
                    writeln!(output.out, "{} {}{run}:", instant(decision.at), decision.kind)?;
                    for line in &decision.verdict {
                        writeln!(output.out, "  {line}")?;
                    }
                }
                remarks.iter().try_for_each(|remark| writeln!(output.out, "{remark}"))?;
                let SlotKey { pipeline, schedule, nominal } = slot;
                writeln!(
                    output.out,
                    "`interlock why {pipeline} {schedule}/{nominal}` tells all of it."
                )?;
            }
        }
        Ok(())
    }

    fn to_json(&self, pipeline: &str) -> Value {
        let (slot, state, verdict, reasons) = match self {
            Self::Absent(reasons) => (None, None, Value::Null, reasons.clone()),
            Self::Waiting { slot, state, verdict, .. } => {
                (Some(slot.to_string()), Some(state), verdict.clone(), vec![])
            }
            Self::Decided { slot, state, remarks, .. } => {
                (Some(slot.to_string()), Some(state), Value::Null, remarks.clone())
            }
        };
        let decisions = match self {
            Self::Decided { decisions, .. } => decisions.iter().map(Decision::to_json).collect(),
            Self::Waiting { .. } | Self::Absent(_) => vec![],
        };
        json!({
            "pipeline": pipeline, "slot": slot, "state": state, "verdict": verdict,
            "decisions": decisions, "reasons": reasons,
        })
    }
}

impl Decision {
    fn to_json(&self) -> Value {
        json!({
            "kind": self.kind, "at": self.at.to_string(), "runId": self.run,
            "verdict": self.verdict,
        })
    }
}

/// What the files say about sensors that somebody made up.
fn from_files(
    (loaded, spec): (&Loaded, &Pipeline),
    explain: &Explain,
    output: &mut Output,
) -> Result<u8, Failure> {
    let now = clock::now();
    let now = explain.at.map_or(now, |at| at.at(now, &slot_name::first_zone(Some(spec))));
    let sensors = match &explain.sensors {
        Some(file) => read_sensors(file, now)?,
        None => Sensors::new(),
    };
    let slot = match &explain.slot {
        Some(text) => find(loaded, None, spec, &Typed::parse(&spec.name, text)?)?,
        None => last_owed(spec, now),
    };
    let start = spec.starts.iter().find(|start| *start.schedule.id() == slot.schedule);
    let evidence = Evidence {
        sensors: &sensors,
        traits: &BTreeMap::new(),
        upstreams: &BTreeMap::new(),
        period: start.map(|start| start.period_of(slot.nominal)),
        now,
    };
    let verdict = evaluate(&spec.readiness, &evidence);
    if explain.json {
        let answer = evaluation_answer(spec, &slot, now, &verdict);
        output.json(&to_value(&answer).unwrap_or_default())?;
    } else {
        writeln!(output.out, "{slot} at {}\n{verdict}", instant(now))?;
    }
    Ok(SUCCESS)
}

/// Reads `{"key": value}`; a value of the form `{"value": …, "at": "…"}` carries its own time.
fn read_sensors(file: &Path, now: Timestamp) -> Result<Sensors, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::file("read", file, &error))?;
    let wrong = |message: String| {
        Failure::failed(
            format!("{}: {message}", file.display()),
            "Sensors are a JSON object: {\"orders-ready\": {\"count\": 1200}}.",
        )
    };
    let parsed: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let Value::Object(entries) = parsed else {
        return Err(wrong("this is not a JSON object".to_owned()));
    };
    let mut sensors = Sensors::new();
    for (key, value) in entries {
        let sensor =
            sensor(value, now).map_err(|message| wrong(format!("sensor `{key}`: {message}")))?;
        sensors.insert(key, sensor);
    }
    Ok(sensors)
}

fn sensor(value: Value, now: Timestamp) -> Result<Sensor, String> {
    if let Value::Object(fields) = &value
        && let (2, Some(inner), Some(at)) = (fields.len(), fields.get("value"), fields.get("at"))
    {
        let at = interlock_core::sensor::parse_time(at).map_err(|error| error.to_string())?;
        return Ok(Sensor { value: inner.clone(), at });
    }
    Ok(Sensor { value, at: now })
}
