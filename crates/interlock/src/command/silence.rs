//! `interlock silence`: which alerts are kept back, and what that would hide.

use std::{collections::BTreeMap, io::Write as _, path::Path};

use interlock_config::{
    SystemZones,
    route::Subject,
    server::AlertFilter,
    silence::{Silence, Windows},
    zones,
};
use interlock_core::{duration, text::TextError};
use interlock_store::{block_on, record::InboxRecord};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    arguments::{Matching, SilenceAdd, SilenceCommand, SilenceList},
    clock,
    exit::{Failure, SUCCESS},
    inbox::{Inbox, fresh_key},
    ledger::{IncidentRow, Ledger},
    output::{Form, Output, instant},
    project,
    serve::notifier::silences,
};

/// A preview looks so far back: what would have been hidden lately is what will be hidden.
const LOOKS_BACK: SignedDuration = SignedDuration::from_hours(7 * 24);
/// So many incidents are looked through.
const INCIDENTS_MAX: usize = 10_000;

pub(super) fn run(
    directory: &Path,
    command: &SilenceCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    match command {
        SilenceCommand::Add(add) => self::add(directory, add, output),
        SilenceCommand::List(asked) => list(directory, asked, output),
        SilenceCommand::Remove { id, by, sending } => {
            let record = InboxRecord::Silence { id: id.clone(), silence: None, by: by.name() };
            Inbox::system(directory)?.send(&record, *sending, output)
        }
    }
}

fn add(directory: &Path, asked: &SilenceAdd, output: &mut Output) -> Result<u8, Failure> {
    let silence = silence(asked, clock::now())?;
    if asked.preview {
        return preview(directory, &silence, Form::asked(asked.sending.json), output);
    }
    let record = InboxRecord::Silence {
        id: silence.id.clone(),
        silence: Some(silence.to_json()),
        by: silence.by.clone(),
    };
    Inbox::system(directory)?.send(&record, asked.sending, output)
}

/// The silence that is asked for.
fn silence(asked: &SilenceAdd, now: Timestamp) -> Result<Silence, Failure> {
    let zones = SystemZones::new();
    let wrong = |error: TextError| Failure::usage(error.message, error.help);
    let zone = zones::resolve(&zones, &asked.tz).map_err(wrong)?;
    let windows = match (&asked.weekly, &asked.cron, asked.length) {
        (Some(weekly), _, _) => Some(Windows::weekly(weekly, &asked.tz, &zones).map_err(wrong)?),
        (None, Some(cron), Some(length)) => {
            Some(Windows::new(cron, &asked.tz, length, &zones).map_err(wrong)?)
        }
        (None, ..) => None,
    };
    let from = asked.from.map_or(now, |from| from.at(now, &zone));
    let length = asked.length.filter(|_| asked.cron.is_none());
    let until = asked.until.map(|until| until.at(now, &zone));
    let until = until.or_else(|| length.and_then(|length| from.saturating_add(length).ok()));
    if until.is_none() && windows.is_none() {
        let help =
            "Write `--for 2h` or `--until T`; or when it recurs, with `--weekly` or `--cron`.";
        return Err(Failure::usage("a silence needs an end", help));
    }
    if let Some(until) = until.filter(|until| *until <= now.max(from)) {
        return Err(Failure::usage(format!("{until} is already over"), ""));
    }
    let id = asked.id.clone().unwrap_or_else(|| {
        let key = fresh_key();
        format!("s-{}", key.get(key.len().saturating_sub(6)..).unwrap_or_default())
    });
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if id.is_empty() || !id.chars().all(is_name) {
        let help = "Use letters, digits, `-`, `_` and `.`.";
        return Err(Failure::usage(format!("`{id}` cannot be the name of a silence"), help));
    }
    let (reason, by) = (asked.reason.clone(), asked.by.name());
    Ok(Silence { id, when: filter(&asked.matching)?, from, until, windows, reason, by })
}

fn filter(asked: &Matching) -> Result<AlertFilter, Failure> {
    let filter = AlertFilter {
        levels: asked.levels.clone(),
        types: asked.types.clone(),
        pipelines: asked.pipelines.clone(),
        owners: asked.owners.clone(),
        labels: asked.labels.iter().cloned().collect(),
    };
    if filter == AlertFilter::default() {
        let help = "Name a pipeline, a type, a level, an owner or a label; `--pipeline '*'` for everything.";
        return Err(Failure::usage("what is to be kept back?", help));
    }
    Ok(filter)
}

/// What a silence would keep back: open incidents, and those of the last week that would have been.
fn preview(
    directory: &Path,
    silence: &Silence,
    form: Form,
    output: &mut Output,
) -> Result<u8, Failure> {
    let loaded = project::load(directory)?;
    let pipelines: BTreeMap<_, _> =
        loaded.pipelines.iter().map(|found| (&found.pipeline.name, &found.pipeline)).collect();
    let (now, mut hidden) = (clock::now(), Vec::new());
    let ledger = Ledger::open(directory).ok();
    let incidents = ledger.as_ref().map(|ledger| ledger.incidents(None, INCIDENTS_MAX));
    for row in incidents.transpose()?.map(|page| page.items).unwrap_or_default() {
        let pipeline = pipelines.get(&row.0);
        let record = &row.2.record;
        let alert_type = record.details.get("type").and_then(Value::as_str).unwrap_or_default();
        let matches = silence.when.matches(&Subject {
            level: &record.level,
            alert_type,
            pipeline: row.0.as_str(),
            owner: pipeline.and_then(|pipeline| pipeline.owner.as_deref()),
            labels: pipeline.map(|pipeline| &pipeline.labels),
        });
        let is_recent = record.opened_at >= now.saturating_sub(LOOKS_BACK).unwrap_or(now);
        if matches && (record.is_open() || is_recent) {
            hidden.push(row);
        }
    }
    print_preview(silence, &hidden, form, output)?;
    ledger.map_or(Ok(SUCCESS), |ledger| ledger.conclude(None, output))
}

fn print_preview(
    silence: &Silence,
    hidden: &[IncidentRow],
    form: Form,
    output: &mut Output,
) -> Result<(), Failure> {
    match form {
        Form::Json => {
            let incidents: Vec<Value> = hidden
                .iter()
                .map(|(pipeline, key, row)| {
                    let (state, at) = (&row.record.state, row.record.opened_at.to_string());
                    json!({ "pipeline": pipeline.as_str(), "key": key, "state": state, "openedAt": at })
                })
                .collect();
            let mut preview = silence.to_json();
            preview["id"] = silence.id.as_str().into();
            preview["incidents"] = incidents.into();
            output.json(&preview)?;
        }
        Form::Text if hidden.is_empty() => writeln!(
            output.out,
            "nothing that is open now, and nothing of the last 7 days, is of this kind; nothing was added"
        )?,
        Form::Text => {
            let rows: Vec<_> = hidden.iter().map(shown).collect();
            output.table(["STATE", "PIPELINE", "SINCE", "KEY"], &rows)?;
            let now = clock::now();
            let when = silence.in_force(now).map_or("not now", |_| "from now on");
            let count = hidden.len();
            writeln!(
                output.err,
                "{count} of now and of the last 7 days are of this kind; {when}; nothing was added"
            )?;
        }
    }
    Ok(())
}

fn shown((pipeline, key, row): &IncidentRow) -> [String; 4] {
    [row.record.state.to_string(), pipeline.to_string(), instant(row.record.opened_at), key.clone()]
}

fn list(directory: &Path, asked: &SilenceList, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let now = clock::now();
    let mut found = block_on(silences(ledger.store(), &SystemZones::new()))?;
    found.retain(|silence| asked.all || !silence.is_over(now));
    match Form::asked(asked.json) {
        Form::Json => {
            let objects = found.iter().map(|silence| {
                let mut object = silence.to_json();
                object["id"] = silence.id.as_str().into();
                object["state"] = state(silence, now).into();
                object
            });
            output.json(&Value::Array(objects.collect()))?;
        }
        Form::Text if found.is_empty() => writeln!(output.out, "no silences")?,
        Form::Text => {
            let rows: Vec<_> = found.iter().map(|silence| listed(silence, now)).collect();
            output.table(["ID", "STATE", "MATCHES", "WHEN", "BY", "REASON"], &rows)?;
        }
    }
    Ok(SUCCESS)
}

fn state(silence: &Silence, now: Timestamp) -> &'static str {
    match silence.in_force(now) {
        Some(_) => "silent",
        None if silence.is_over(now) => "over",
        None => "waiting",
    }
}

fn listed(silence: &Silence, now: Timestamp) -> [String; 6] {
    let until = silence.until.map(|until| format!("until {}", instant(until)));
    let windows = silence.windows.as_ref().map(|windows| {
        format!("{} for {} ({})", windows.cron, duration::format(windows.length), windows.zone())
    });
    let when: Vec<String> = windows.into_iter().chain(until).collect();
    [
        silence.id.clone(),
        state(silence, now).to_owned(),
        matches(&silence.when),
        when.join(", "),
        silence.by.clone(),
        silence.reason.clone(),
    ]
}

fn matches(filter: &AlertFilter) -> String {
    let AlertFilter { levels, types, pipelines, owners, labels } = filter;
    let lists = [("pipeline", pipelines), ("type", types), ("level", levels), ("owner", owners)];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    let lists = lists.map(|(name, list)| format!("{name}={}", list.join(",")));
    let labels = labels.iter().map(|(key, value)| format!("label={key}={value}"));
    lists.chain(labels).collect::<Vec<_>>().join(" ")
}
