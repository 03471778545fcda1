//! What the running `serve` does, as far as it can be seen from outside.

use std::{path::Path, sync::Arc};

use interlock_config::{SystemZones, ZoneSource as _};
use interlock_core::{duration, id::PipelineId, text::counted};
use interlock_store::{
    Key, Record, Shard, block_on,
    kept::{BARKS_KEY, COVERAGE_PREFIX, LastBark, barks},
};
use interlock_watchdog::{DEAF_AFTER, Scanner, Violation, seam::ZoneBook};
use jiff::SignedDuration;
use serde_json::Value;

use super::Finding::{self, Bad, Good};
use crate::{clock, exit::Failure, ledger::Ledger, owners, place::Place, serve::http};

/// How long the ledger is looked through at most.
const SCAN_IN: SignedDuration = SignedDuration::from_secs(10);
/// Pipelines that are looked at in one go.
const PAGE: usize = 500;
/// So many of what is wrong are named.
const NAMED_MAX: usize = 5;

pub(super) fn findings(directory: &Path, place: &Place) -> Vec<(&'static str, Finding)> {
    if !place.is_served() {
        let help = "no `interlock serve` is running here";
        return vec![("live", Bad(help.to_owned()))];
    }
    let ledger = match Ledger::open(directory) {
        Ok(ledger) => ledger,
        Err(failure) => return vec![("live", Bad(failure.message))],
    };
    let said =
        |finding: Result<Finding, Failure>| finding.unwrap_or_else(|failure| Bad(failure.message));
    let mut findings = health(&place.folder);
    findings.push(("hearing", said(hearing(&ledger))));
    findings.push(("barks", said(last_bark(&ledger))));
    findings.push(("outbox", said(outbox(&ledger))));
    findings.push(("ledger", said(scan(&ledger))));
    findings.extend(shards(&ledger).transpose().map(|found| ("shards", said(found))));
    findings
}

/// What `/healthz` says of loops, complaints and beacons.
fn health(folder: &Path) -> Vec<(&'static str, Finding)> {
    let Some(address) = http::address(folder) else {
        return vec![("loops", Bad("it has no HTTP interface, so nobody can ask it".to_owned()))];
    };
    let body = match http::health(&address) {
        Ok((_, body)) => body,
        Err(error) => return vec![("loops", Bad(format!("{address} does not answer: {error}")))],
    };
    let empty = vec![];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let loops = body["loops"].as_array().unwrap_or(&empty);
    let named = |late: bool| -> Vec<&str> {
        let some = loops.iter().filter(|one| one["late"] == late);
        some.filter_map(|one| one["name"].as_str()).collect()
    };
    let late = named(true);
    let loops = if late.is_empty() {
        Good(format!("{} come round", named(false).join(", ")))
    } else {
        Bad(format!("{} not in time", late.join(", ")))
    };
    let complaints = list(&body["self"]["complaints"]);
    let complaints: Vec<&str> = complaints.iter().filter_map(Value::as_str).collect();
    let wellness = if complaints.is_empty() {
        Good("nothing to complain of".to_owned())
    } else {
        Bad(complaints.join("; "))
    };
    let beacons = list(&body["self"]["beacons"]);
    let failing = beacons.iter().filter(|beacon| beacon["failing"] == true).count();
    let beacons = match (beacons.len(), failing) {
        (0, _) => Good("none; if this process dies, nobody outside hears of it".to_owned()),
        (all, 0) => Good(format!("{all} answer")),
        (all, failing) => Bad(format!("{failing} of {all} do not answer")),
    };
    vec![("loops", loops), ("self", wellness), ("beacons", beacons)]
}

/// Whether reports can reach somebody.
fn hearing(ledger: &Ledger) -> Result<Finding, Failure> {
    let rows = ledger.sensors(&PipelineId::system())?;
    let heard = rows.into_iter().filter(|(key, _)| key.starts_with(COVERAGE_PREFIX));
    let Some(until) = heard.map(|(_, record)| record.at).max() else {
        return Ok(Good("nobody listens to reports; they come by command alone".to_owned()));
    };
    let ago = clock::now().duration_since(until);
    Ok(if ago <= DEAF_AFTER {
        Good(format!("reports could reach us {} s ago", ago.as_secs().max(0)))
    } else {
        Bad(format!("nobody could have reported since {until}"))
    })
}

fn last_bark(ledger: &Ledger) -> Result<Finding, Failure> {
    let keys = [Key::Sensor(BARKS_KEY.to_owned()), LastBark::key()];
    let (mut order, mut last) = (None, None);
    let rows = block_on(ledger.store().read(&PipelineId::system(), &keys))?;
    for row in rows.into_iter().flatten() {
        if let Record::Sensor(record) = &row.record {
            order = barks(record);
        } else if let Record::Due(record) = &row.record {
            last = LastBark::from_record(record);
        }
    }
    let Some((every, _)) = order else {
        return Ok(Good(
            "none ordered; `interlock bark --every 1h` proves that people hear".to_owned(),
        ));
    };
    let every = duration::format(every);
    if ledger.is_incident("bark-lost:_system")? {
        return Ok(Bad(format!(
            "every {every}; not everybody heard one, and none was heard since"
        )));
    }
    Ok(match last {
        None => Good(format!("every {every}; the first is yet to come")),
        Some(LastBark { at, state, .. }) if state == "lost" => {
            Bad(format!("that of {at} was lost"))
        }
        Some(LastBark { at, state, .. }) => Good(format!("every {every}; that of {at} is {state}")),
    })
}

/// Whether somebody owns every shard, where there are instances to share them.
fn shards(ledger: &Ledger) -> Result<Option<Finding>, Failure> {
    let (roll, count) = (ledger.roll()?, ledger.store().shard_count());
    let Some((roll, said)) = roll.as_ref().zip(owners::sentence(roll.as_ref(), count)) else {
        return Ok(None);
    };
    Ok(Some(if owners::unowned(roll, count) == 0 { Good(said) } else { Bad(said) }))
}

fn outbox(ledger: &Ledger) -> Result<Finding, Failure> {
    let dead = ledger.dead_letters()?;
    Ok(match dead.items.len() {
        0 => Good("nothing was given up".to_owned()),
        count => Bad(format!("{count} dead letters; see `interlock incidents dead`")),
    })
}

/// Whether the ledger is as it must always be: the watchdog's own scan, all at once.
fn scan(ledger: &Ledger) -> Result<Finding, Failure> {
    let zones = SystemZones::new();
    let zones: ZoneBook = Arc::new(move |name| zones.zone(name));
    let began = clock::now();
    let (mut count, mut found, mut is_whole) = (0, Vec::new(), true);
    for shard in (0..ledger.store().shard_count()).map(Shard) {
        let mut scanner = Scanner::new(Arc::clone(&zones));
        let mut is_last = false;
        while !is_last && clock::now().duration_since(began) < SCAN_IN {
            let page = scanner.page(ledger.store(), (shard, PAGE), clock::now());
            let page = block_on(page)?;
            count += page.pipelines.len();
            found.extend(page.violations);
            is_last = page.is_last;
        }
        is_whole &= is_last;
    }
    let more = if is_whole { "" } else { "; there are more, which the watchdog goes through" };
    if found.is_empty() {
        let (pipelines, are) =
            (counted(count, "pipeline"), if count == 1 { "is as it" } else { "are as they" });
        return Ok(Good(format!("{pipelines} {are} must be{more}")));
    }
    let name = |found: &Violation| format!("{}: {}", found.thing(), found.says);
    let named: Vec<_> = found.iter().take(NAMED_MAX).map(name).collect();
    Ok(Bad(format!("{} things are not as they must be: {}{more}", found.len(), named.join("; "))))
}
