//! What the ledger says of the work that is done.

use std::sync::Arc;

use interlock_answers::model::doctor::{DoctorFinding, FindingCode};
use interlock_config::{SystemZones, ZoneSource as _};
use interlock_core::{duration, id::PipelineId, text::counted};
use interlock_store::{
    IncidentQuery, Key, Page, Record, Row, Shard, Store, StoreError, block_on,
    kept::{BARKS_KEY, COVERAGE_PREFIX, LastBark, barks},
    record::IncidentRecord,
};
use interlock_watchdog::{DEAF_AFTER, Scanner, Violation, seam::ZoneBook};
use jiff::SignedDuration;

use super::host::failed;
use crate::{clock, owners};

/// Pipelines that are looked at in one go.
const PAGE: usize = 500;
/// So many of what is wrong are named.
const NAMED_MAX: usize = 5;
/// Incidents and dead letters that are looked at.
const LOOKED_AT: usize = 1_000;
/// What the keys of incidents begin with that tell of a broken file.
const BROKEN_FILE: &str = "config:";

type Found = Result<DoctorFinding, StoreError>;

/// Everything. The ledger is gone through for so long at most.
pub(crate) fn findings(store: &dyn Store, scan_in: SignedDuration) -> Vec<DoctorFinding> {
    let incidents = open_incidents(store);
    let checks = [
        (FindingCode::Hearing, hearing(store).map(Some)),
        (FindingCode::Barks, last_bark(store).map(Some)),
        (FindingCode::Outbox, outbox(store).map(Some)),
        (FindingCode::Incidents, incidents.clone().map(|page| Some(own_incidents(&page)))),
        (FindingCode::Files, incidents.map(|page| broken_files(&page))),
        (FindingCode::Ledger, scan(store, scan_in).map(Some)),
        (FindingCode::Shards, shards(store)),
    ];
    let found = checks
        .into_iter()
        .filter_map(|(code, found)| found.unwrap_or_else(|error| Some(failed(code, error.into()))));
    found.collect()
}

/// Whether an instance hears reports.
fn hearing(store: &dyn Store) -> Found {
    let code = FindingCode::Hearing;
    let rows = block_on(store.sensors(&PipelineId::system()))?;
    let heard = rows.into_iter().filter(|(key, _)| key.starts_with(COVERAGE_PREFIX));
    let Some(until) = heard.map(|(_, row)| row.record.at).max() else {
        let message = "no instance listens for reports over HTTP";
        return Ok(DoctorFinding::good(code, message));
    };
    let ago = clock::now().duration_since(until);
    Ok(if ago <= DEAF_AFTER {
        let message = format!("reports could arrive {} s ago", ago.as_secs().max(0));
        DoctorFinding::good(code, message)
    } else {
        DoctorFinding::problem(
            code,
            format!("reports cannot arrive since {until}"),
            "Start an instance with the role `api`, or look whether its address can be reached.",
        )
    })
}

fn last_bark(store: &dyn Store) -> Found {
    let (code, system) = (FindingCode::Barks, PipelineId::system());
    let lost = Key::Incident("bark-lost:_system".to_owned());
    let keys = [Key::Sensor(BARKS_KEY.to_owned()), LastBark::key(), lost];
    let (mut order, mut last, mut is_lost) = (None, None, false);
    for row in block_on(store.read(&system, &keys))?.into_iter().flatten() {
        if let Record::Sensor(record) = &row.record {
            order = barks(record);
        } else if let Record::Due(record) = &row.record {
            last = LastBark::from_record(record);
        } else if let Record::Incident(record) = &row.record {
            is_lost = record.is_open();
        }
    }
    let Some((every, _)) = order else {
        return Ok(DoctorFinding::warning(
            code,
            "no regular test alert is set: it is not proven that a miss reaches people",
            "`interlock bark --every 1h` tests it every hour.",
        ));
    };
    let every = duration::format(every);
    let mend =
        "`interlock incidents dead` says which channel failed; `interlock bark` tries them all.";
    Ok(match last {
        _ if is_lost => {
            let message =
                format!("every {every}; one did not reach every channel, and none has since");
            DoctorFinding::problem(code, message, mend)
        }
        None => DoctorFinding::good(code, format!("every {every}; the first is still to come")),
        Some(LastBark { at, state, .. }) if state == "lost" => {
            DoctorFinding::problem(code, format!("that of {at} was lost"), mend)
        }
        Some(LastBark { at, state, .. }) => {
            DoctorFinding::good(code, format!("every {every}; that of {at} is {state}"))
        }
    })
}

fn outbox(store: &dyn Store) -> Found {
    let code = FindingCode::Outbox;
    let dead = block_on(store.dead_letters(LOOKED_AT))?;
    let more = if dead.more { " and more" } else { "" };
    Ok(match dead.items.len() {
        0 => DoctorFinding::good(code, "no alert was given up"),
        count => DoctorFinding::problem(
            code,
            format!("{count} dead letters{more}"),
            "`interlock incidents dead` lists them; mend the channel.",
        ),
    })
}

/// An incident, and whose it is.
type KnownIncident = (PipelineId, String, Row<IncidentRecord>);

fn open_incidents(store: &dyn Store) -> Result<Page<KnownIncident>, StoreError> {
    let query = IncidentQuery { is_open: Some(true), limit: LOOKED_AT, ..Default::default() };
    block_on(store.incidents_by(&query))
}

/// What is known to be wrong with Interlock itself.
fn own_incidents(open: &Page<KnownIncident>) -> DoctorFinding {
    let code = FindingCode::Incidents;
    let is_own = |(pipeline, key, _): &&KnownIncident| {
        *pipeline == PipelineId::system() && !key.starts_with(BROKEN_FILE)
    };
    let own: Vec<&KnownIncident> = open.items.iter().filter(is_own).collect();
    if own.is_empty() {
        return DoctorFinding::good(code, "Interlock itself has no open incident");
    }
    let name =
        |(_, _, row): &&KnownIncident| format!("{}: {}", row.record.kind, row.record.message);
    let named: Vec<_> = own.iter().take(NAMED_MAX).map(name).collect();
    let hint = "`interlock incidents` lists them; docs/operating.md says what each kind means.";
    DoctorFinding::problem(code, named.join("; ") + &rest(own.len()), hint)
}

/// Which files cannot be used, as `serve` found and recorded it.
fn broken_files(open: &Page<KnownIncident>) -> Option<DoctorFinding> {
    let broken = open.items.iter().filter_map(|(_, key, _)| key.strip_prefix(BROKEN_FILE));
    let broken: Vec<&str> = broken.collect();
    if broken.is_empty() {
        return None;
    }
    let named: Vec<_> = broken.iter().copied().take(NAMED_MAX).collect();
    let message = format!("cannot be used: {}{}", named.join(", "), rest(broken.len()));
    let hint =
        "`interlock validate` shows each with its place; the last good version stays in force.";
    Some(DoctorFinding::problem(FindingCode::Files, message, hint))
}

/// How many are not named.
fn rest(count: usize) -> String {
    match count.saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

/// Whether every shard has an owner, where there are instances to share them.
fn shards(store: &dyn Store) -> Result<Option<DoctorFinding>, StoreError> {
    let (roll, count) = (block_on(store.roll())?, store.shard_count());
    let Some((roll, said)) = roll.as_ref().zip(owners::sentence(roll.as_ref(), count)) else {
        return Ok(None);
    };
    let code = FindingCode::Shards;
    Ok(Some(if owners::unowned(roll, count) == 0 {
        DoctorFinding::good(code, said)
    } else {
        let hint = "Start an instance with the role `engine`; within seconds it owns shards without an owner.";
        DoctorFinding::problem(code, said, hint)
    }))
}

/// Whether the ledger is as it must always be: the watchdog's own scan, all at once.
fn scan(store: &dyn Store, scan_in: SignedDuration) -> Found {
    let code = FindingCode::Ledger;
    let zones = SystemZones::new();
    let zones: ZoneBook = Arc::new(move |name| zones.zone(name));
    let began = clock::now();
    let (mut count, mut found, mut is_whole) = (0, Vec::new(), true);
    for shard in (0..store.shard_count()).map(Shard) {
        let mut scanner = Scanner::new(Arc::clone(&zones));
        let mut is_last = false;
        while !is_last && clock::now().duration_since(began) < scan_in {
            let page = block_on(scanner.page(store, (shard, PAGE), clock::now()))?;
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
        return Ok(DoctorFinding::good(code, format!("{pipelines} {are} must be{more}")));
    }
    let name = |found: &Violation| format!("{}: {}", found.thing(), found.says);
    let named: Vec<_> = found.iter().take(NAMED_MAX).map(name).collect();
    let message =
        format!("{} things are not as they must be: {}{more}", found.len(), named.join("; "));
    let hint = "This is a bug in Interlock or a fault in its store: keep a copy of the ledger (`interlock store backup`) and report it.";
    Ok(DoctorFinding::problem(code, message, hint))
}
