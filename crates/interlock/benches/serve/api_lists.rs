//! Lists over HTTP beside very many pipelines and a long history, read by a client that is not ours (`wrk`), and what the engine does meanwhile.

use std::{fs, path::Path, process::Command, sync::Arc};

use interlock_config::{SystemZones, load_dir};
use interlock_core::{
    id::{PipelineId, ScheduleId},
    text::counted,
};
use interlock_store::{Freight, Key, Record, Row, RunKey, Store, StoredRow, block_on};
use interlock_store_embedded::EmbeddedStore;
use jiff::{SignedDuration, Timestamp};

use crate::{
    missed_fleet::{completed, fill, missed_hour, slot, write_files},
    pings::{Measured, address, bare, wrk},
    served::{Served, now},
};

/// Every list, as a page asks for it first.
const LISTS: [(&str, &str); 12] = [
    ("pipelines", "/api/v1/pipelines"),
    ("pipelines_of_owner", "/api/v1/pipelines?owner=team-7"),
    ("slots", "/api/v1/slots"),
    ("slots_newest", "/api/v1/slots?order=newest"),
    ("runs", "/api/v1/runs"),
    ("runs_of_pipeline", "/api/v1/runs?pipeline=p000007&status=COMPLETED"),
    ("runs_catchup", "/api/v1/runs?triggerType=catchup"),
    ("events", "/api/v1/events?order=newest"),
    ("incidents", "/api/v1/incidents"),
    ("incidents_of_owner", "/api/v1/incidents?owner=team-7"),
    ("watermarks", "/api/v1/watermarks"),
    ("pauses", "/api/v1/pauses"),
];
/// How many read at once, and how many when they read flat out.
const READERS: &str = "4";
const FLAT_OUT: &str = "64";
const HOURS_OF_A_YEAR: i64 = 365 * 24;
/// Hours of one import.
const PORTION: i64 = 1_000;
/// Starts each second, and says how late.
const TICK: &str = "name: tick\nschedule: {cron: '* * * * * *', seconds: true}\nstartGrace: 5s\ncatchupWindow: 1h\n\
                    overlapPolicy: all\ntrigger: {type: command, command: 'true'}\n";

/// On the embedded store: so many pipelines, and a year of hourly slots and runs of some of them.
pub(crate) fn embedded(label: &str, pipelines: usize, with_history: usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_files(folder.path(), pipelines);
    let at = missed_hour(now());
    {
        let store = EmbeddedStore::open_daemon(&folder.path().join(".interlock"), Arc::new(now));
        let store = store.expect("it is made");
        fill(folder.path(), &store, at);
        history(folder.path(), &store, at, with_history);
    }
    fs::write(folder.path().join("pipelines/tick.yaml"), TICK).expect("a file");
    fs::write(folder.path().join("interlock.yaml"), "server: {addr: '127.0.0.1:0'}\n")
        .expect("a file");
    let served = Served::start(folder.path());
    let server = address(folder.path());
    let slots = with_history as i64 * HOURS_OF_A_YEAR;
    println!("{label}: {}, {slots} slots of the past", counted(pipelines, "pipeline"));
    let ceiling = wrk(bare(), READERS, None, "/ping/x");
    println!("RESULT name=api/{label}@limit seconds={:.4}", ceiling.p99);
    for (name, path) in LISTS {
        let Measured { per_second, p99 } = wrk(server, READERS, None, path);
        println!("{name}: {per_second:.0} a second beside {:.0} of bare axum", ceiling.per_second);
        println!("RESULT name=api/{label}_{name}_p99 seconds={p99:.4}");
    }
    let quiet = latest_start(folder.path());
    let heaviest = wrk(server, FLAT_OUT, None, "/api/v1/pipelines?limit=1000");
    let flat_out = latest_start(folder.path());
    println!(
        "{:.1} of the heaviest pages a second; starts were {quiet:.2} s late at most before",
        heaviest.per_second
    );
    println!("RESULT name=api/{label}_flat_out_late seconds={flat_out:.3}");
    println!("RESULT name=api/{label}_memory rss_mb={:.1}", served.rss_mb());
}

/// How late the latest of the last ten starts was.
fn latest_start(project: &Path) -> f64 {
    let printed = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["runs", "--pipeline", "tick", "--limit", "10", "--json", "-C"])
        .arg(project)
        .output()
        .expect("the binary runs");
    let runs: Vec<serde_json::Value> = serde_json::from_slice(&printed.stdout).expect("JSON");
    let late = runs.iter().filter_map(|run| {
        let instant = |key: &str| run[key].as_str()?.parse::<Timestamp>().ok();
        Some(instant("createdAt")?.duration_since(instant("utc")?).as_secs_f64())
    });
    late.fold(0.0, f64::max)
}

/// A year of hourly slots of the first pipelines, each with its run.
fn history(directory: &Path, store: &dyn Store, at: Timestamp, pipelines: usize) {
    let loaded = load_dir(directory, &SystemZones::new(), &|_| None);
    let schedule = ScheduleId::any("h").expect("a name");
    for loaded in loaded.pipelines.iter().take(pipelines) {
        let version = format!("{:016x}", loaded.version);
        // The last two hours are there.
        for begin in (2..HOURS_OF_A_YEAR).step_by(PORTION as usize) {
            let hours = begin..(begin + PORTION).min(HOURS_OF_A_YEAR);
            let rows = hours.flat_map(|hours| {
                let nominal = at - SignedDuration::from_hours(hours);
                past_hour(&loaded.pipeline.name, &schedule, nominal, &version)
            });
            let freight = Freight { rows: rows.collect(), ..Freight::default() };
            block_on(store.import(freight)).expect("the store takes rows");
        }
    }
}

fn past_hour(
    pipeline: &PipelineId,
    schedule: &ScheduleId,
    nominal: Timestamp,
    version: &str,
) -> [StoredRow; 2] {
    let run = RunKey { schedule: schedule.clone(), nominal, generation: 1, attempt: 1 };
    [
        (Key::Slot(schedule.clone(), nominal), slot((nominal, version), ("completed", 1))),
        (Key::Run(run), Record::Run(completed(nominal).into())),
    ]
    .map(|(key, record)| StoredRow {
        pipeline: pipeline.clone(),
        key,
        row: Row { record, revision: 1 },
    })
}
