//! `interlock serve` as a process: killed again and again, at random and at chosen system calls, fed with bad
//! input, alone in a container. Afterwards nothing is lost and nothing is doubled.
//!
//! | module | what it does to the real binary |
//! |---|---|
//! | `api` | questions and requests over HTTP, against what the commands print |
//! | `archive` | an archiver that is killed again and again, from a file and from a Redis; one beside the engine |
//! | `browser` | the pages in a real browser: a gap filled, a server that goes, tokens, accessibility |
//! | `kills` | 200 random `kill -9` of daemon, runner or both under load |
//! | `points` | `kill -9` at every system call around one trigger, one by one |
//! | `backfills` | a daemon killed in the middle of a backfill, and a cancel while nobody serves |
//! | `bad_input` | wrong names, a second daemon, full and unreadable disks, files that vanish or are damaged |
//! | `container` | the daemon as process 1, whose end is the end of its jobs |
//! | `deaf` | an interface that hangs, and an address that another process has |
//! | `endings` | jobs that are to end: by schedule, by hand, and with the daemon killed in between |
//! | `frozen` | a daemon that is stopped and continued |
//! | `ha` | three instances on one server, killed, stopped, cut off, and the server killed too |
//! | `hung` | a loop that hangs, which the process does not outlive |
//! | `leader` | an owner whose loop hangs, who cannot renew its lease, or hears too late that it has |
//! | `logs_elsewhere` | what jobs wrote on one host, asked of an instance on another |
//! | `mass` | thousands of pipelines that miss, fail, are edited or report at one instant, on each store |
//! | `moving` | a ledger that goes from a file to a server and back, and `serve` on each |
//! | `ourselves` | what breaks in Interlock itself, and who outside hears of it |
//! | `exec` | jobs wrapped by `exec`, with the interface there, gone, and silent |
//! | `pings` | reports by `curl`, scripts and Python; kills between receipt and answer; a silent crowd |
//! | `places` | a project whose `interlock.yaml` has a problem, and where its ledger then is |
//! | `private` | who may read what it keeps |
//! | `primaries` | a primary that comes back after its replica has followed, under two instances that name both |
//! | `recover` | a ledger whose pages or log are damaged, and a start that is refused for it |
//! | `self_reports` | what instances say of themselves in the store, on each engine, and of one that is killed |
//! | `rollback` | a Redis or a PostgreSQL that comes back as it was seconds ago |
//! | `servers` | two instances on one Redis or PostgreSQL, of which one is killed |
//! | `settings` | the settings for all pipelines, and what they do |
//! | `signals` | a daemon that inherits ignored and blocked signals, from `nohup` and others, and what its jobs inherit |
//! | `standalone` | a watchdog without an engine: beside one that is killed, as the ledger's stand-in, and as a single pass |
//! | `stream_soak` | many readers of the stream, and a server that is killed and started again under them |
//! | `tls` | HTTPS with real certificates, which change and break; what instances ask of each other |
//! | `tokens` | who may ask, over real connections |
//! | `watched` | what does not happen, and who hears of it |
//! | `traps` | mistakes of other schedulers, with the list of which test guards against which |
//! | `checker` | judges what is left: the ledger against the jobs' own log |

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![expect(clippy::print_stdout, reason = "seeds and counts belong to a test's output")]
#![expect(clippy::disallowed_methods, reason = "a real process in real time is what is tested")]

mod alerts;
mod api;
mod archive;
mod backfills;
mod bad_input;
#[cfg(feature = "ui")]
mod browser;
mod checker;
mod container;
mod deaf;
mod displaced;
mod endings;
mod exec;
mod frozen;
mod ha;
mod https;
mod hung;
mod kills;
mod leader;
mod lists;
mod logs_elsewhere;
mod mass;
mod missed_fleet;
mod moving;
mod ourselves;
mod pings;
mod places;
mod points;
mod primaries;
mod private;
mod process;
mod project;
mod recover;
mod rollback;
mod self_reports;
mod servers;
mod settings;
mod signals;
mod standalone;
mod stream_soak;
mod surface;
mod tls;
mod tokens;
mod traps;
mod watched;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use interlock_core::id::PipelineId;
use interlock_store::{LedgerEntry, LedgerQuery, Store as _, block_on, record::SlotRecord};
use interlock_store_embedded::EmbeddedStore;
use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _, wait_for_seeing};
use jiff::Timestamp;

/// Lets a project that does not care listen anywhere: of two on the default address one would complain of the other.
fn any_port(project: &Path) {
    let file = project.join("interlock.yaml");
    let text = fs::read_to_string(&file).unwrap_or_default();
    if !text.contains("server:") {
        fs::write(file, format!("{text}server: {{addr: '127.0.0.1:0'}}\n")).unwrap();
    }
}

/// A daemon, and the end of it when the test is over.
struct Daemon(Child);

impl Daemon {
    fn start(project: &Path) -> Self {
        Self::with(project, &[])
    }

    /// One that runs only some parts, such as `watchdog,notifier`.
    fn with_roles(project: &Path, roles: &str) -> Self {
        Self::with(project, &["--roles", roles])
    }

    fn with(project: &Path, arguments: &[&str]) -> Self {
        any_port(project);
        let child = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .args(["serve", "--log", "json"])
            .args(arguments)
            .arg(project)
            .env("INTERLOCK_SPOOL", project.join("spool"))
            .stdout(Stdio::null())
            .stderr(open_log(project))
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SIGKILL: what a crash looks like.
        self.0.kill_and_wait();
    }
}

/// The recorded slots of the ticker, by instant.
fn ledger(project: &Path) -> BTreeMap<Timestamp, SlotRecord> {
    let Ok(store) =
        EmbeddedStore::open_reader(&project.join(".interlock"), Arc::new(Timestamp::now))
    else {
        return BTreeMap::new();
    };
    let ticker = PipelineId::parse("ticker").unwrap();
    let query = LedgerQuery { pipeline: Some(ticker), ..LedgerQuery::everything(100_000) };
    let rows = block_on(store.ledger(&query)).unwrap();
    let slots = rows.items.into_iter().map(|row| match row.entry {
        LedgerEntry::Slot(slot) => (row.nominal, Arc::unwrap_or_clone(slot)),
        LedgerEntry::Span(span) => panic!("nothing is old enough to be missed: {span:?}"),
    });
    slots.collect()
}

fn completed(slots: &BTreeMap<Timestamp, SlotRecord>) -> usize {
    slots.values().filter(|slot| slot.disposition.as_deref() == Some("completed")).count()
}

/// Where daemons write what they have to say, one after the other.
fn open_log(project: &Path) -> fs::File {
    fs::OpenOptions::new().create(true).append(true).open(project.join("serve.log")).unwrap()
}

fn log(project: &Path) -> String {
    fs::read_to_string(project.join("serve.log")).unwrap_or_default()
}

/// Waits until something holds, and says what was seen when it does not.
#[track_caller]
fn wait_until(
    project: &Path,
    what: &str,
    holds: impl Fn(&BTreeMap<Timestamp, SlotRecord>) -> bool,
) {
    let look = || holds(&ledger(project)).then_some(());
    let seen = || format!("{:#?}\n{}", ledger(project), log(project));
    wait_for_seeing(what, Duration::from_mins(1), look, seen);
}

/// The runner is meant to outlive the daemon; a test must not leave it behind.
fn end_the_runner(project: &Path) {
    let ours = format!("{}", project.join(".interlock/runner").canonicalize().unwrap().display());
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command);
        if command.contains("runner") && command.contains(&ours) {
            let pid = entry.file_name().to_string_lossy().into_owned();
            // It may have gone by itself meanwhile.
            let _gone = Command::new("kill").args(["-9", &pid]).status_within(BOUND);
        }
    }
}
