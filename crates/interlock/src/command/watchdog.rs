//! `interlock watchdog --once`: one pass of the watchdog, for a cron job or a function.

use std::{io::Write as _, path::Path, sync::Arc, time::Duration};

use interlock_config::{SystemZones, ZoneSource as _};
use interlock_core::{id::SlotKey, zone::Zone};
use interlock_store::{Shard, Store, block_on, whole_milliseconds};
use interlock_watchdog::{
    CheckName, Finding,
    once::{CheckOptions, Report, once},
    seam::ZoneBook,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    arguments::WatchdogPass,
    clock,
    exit::{Failure, PROBLEMS, SUCCESS},
    output::{Form, Output},
    place::Place,
    serve::telling::EngineTelling,
};

/// How long a command that is just writing is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn run(
    directory: &Path,
    asked: &WatchdogPass,
    output: &mut Output,
) -> Result<u8, Failure> {
    let place = Place::of(directory)?;
    if !place.exists()? {
        return print(&Report::default(), Form::asked(asked.json), output);
    }
    let now = clock::now();
    let at = asked.at.map(|at| at.at(now, &Zone::utc()));
    let is_served = place.is_served();
    let writes = at.is_none() && !is_served;
    let store: Arc<dyn Store> = if writes {
        place.open_writer("interlock watchdog", PATIENCE)?
    } else {
        place.open_reader()?
    };
    let writes = writes.then(|| place.holder());
    let report = judge(store, asked, (at.unwrap_or(now), writes))?;
    if at.is_none() && is_served {
        writeln!(
            output.err,
            "`interlock serve` is at work here: its watchdog records what is found; this only prints"
        )?;
    }
    print(&report, Form::asked(asked.json), output)
}

fn judge(
    store: Arc<dyn Store>,
    asked: &WatchdogPass,
    (now, writes): (Timestamp, Option<String>),
) -> Result<Report, Failure> {
    let zones = SystemZones::new();
    let zones: ZoneBook = Arc::new(move |name| zones.zone(name));
    let mut options = CheckOptions::new(store, zones, whole_milliseconds(now));
    if let Some(name) = asked.check.as_deref().and_then(CheckName::parse) {
        options = options.only(name);
    }
    if let Some(holder) = writes {
        options = options.telling(Arc::new(EngineTelling));
        // Whoever has the store's lock need not wait for the lease of a daemon that died.
        options.holder = holder;
    }
    let mut all = Report::default();
    for shard in (0..options.store.shard_count()).map(Shard) {
        let report = block_on(once(&options, shard));
        let report = report.map_err(|error| Failure::failed(error.to_string(), ""))?;
        let report = report.ok_or_else(|| {
            Failure::refused(
                "another watchdog is at work here",
                "It records and tells what it finds.",
            )
        })?;
        all.findings.extend(report.findings);
        all.failed.extend(report.failed);
    }
    Ok(all)
}

fn print(report: &Report, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let Report { findings, failed } = report;
    match form {
        Form::Json => {
            let found: Vec<_> = findings.iter().map(finding).collect();
            let names: Vec<_> = failed.keys().map(|name| name.as_str()).collect();
            output.json(&json!({ "findings": found, "failed": names }))?;
        }
        Form::Text if findings.is_empty() => writeln!(output.out, "nothing is missing")?,
        Form::Text => {
            let rows: Vec<_> = findings.iter().map(row).collect();
            output.table(["CHECK", "EVENT", "PIPELINE", "SLOT", "MESSAGE"], &rows)?;
        }
    }
    for (name, reason) in failed {
        writeln!(output.err, "{name} could not be done: {reason}")?;
    }
    Ok(if failed.is_empty() { SUCCESS } else { PROBLEMS })
}

fn slot(finding: &Finding) -> Option<String> {
    let (nominal, schedule) = finding.slot.clone()?;
    let pipeline = finding.pipeline.clone();
    Some(SlotKey { pipeline, schedule, nominal }.to_string())
}

fn finding(finding: &Finding) -> Value {
    json!({
        "check": finding.check.as_str(),
        "event": finding.event,
        "pipeline": finding.pipeline.as_str(),
        "schedule": finding.slot.as_ref().map(|(_, schedule)| schedule.as_str()),
        "slot": slot(finding),
        "date": finding.date.map(|date| date.to_string()),
        "runId": finding.run_id,
        "message": message(finding),
        "details": finding.details,
    })
}

fn row(finding: &Finding) -> [String; 5] {
    [
        finding.check.to_string(),
        finding.event.unwrap_or_default().to_owned(),
        finding.pipeline.to_string(),
        slot(finding).unwrap_or_default(),
        message(finding).to_owned(),
    ]
}

fn message(finding: &Finding) -> &str {
    finding.alert.as_deref().unwrap_or(&finding.message)
}
