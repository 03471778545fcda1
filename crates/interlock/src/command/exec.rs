//! `interlock exec PIPELINE -- CMD…`: runs a job as it is, and reports how it went.

use std::{
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use interlock_api::{RID_MAX, is_rid};
use interlock_core::{id::PipelineId, report::Said};
use interlock_store::record::ReportRecord;
use interlock_store_embedded::OpenInbox;
use jiff::Timestamp;
use tokio::{join, task::spawn_blocking, time::Instant};

use crate::{
    arguments::Exec,
    clock, environment,
    exec::{
        child::{Ended, Job},
        spool,
        tls::Trust,
        way::{Parcel, Trouble, Way, project_name},
    },
    exit::Failure,
    inbox::fresh_key,
    output::Output,
    place::{self, Place},
    serve::http::{self, InterfaceAddress},
};

/// The start of a job that ends sooner is reported with its end.
const LINGER: Duration = Duration::from_millis(100);
/// The interface of this machine, where nothing else is named and there is no project here.
const HERE: &str = "http://127.0.0.1:8420";

pub(super) fn run(directory: &Path, exec: &Exec, output: &mut Output) -> Result<u8, Failure> {
    let (way, fresh) = (way(directory, exec), fresh_key());
    // Whatever is wrong with what it is called: the job runs.
    let (pipeline, way) = match PipelineId::parse(&exec.pipeline) {
        Ok(pipeline) => (pipeline, way),
        Err(error) => (PipelineId::system(), Way::Nowhere(error.message)),
    };
    let asked = exec.rid.clone();
    let rid = asked.clone().filter(|rid| is_rid(rid)).unwrap_or_else(|| fresh.clone());
    if asked.is_some_and(|asked| asked != rid) {
        let _nobody_reads = writeln!(
            output.err,
            "interlock exec: `--rid` cannot be used, it has 1 to {RID_MAX} visible ASCII characters; reporting under {rid}"
        );
    }
    let mut names = vec![way.name()];
    if matches!(way, Way::Inbox(_)) {
        names.push(project_name(directory));
    }
    let reporter = Reporter { pipeline, rid, fresh, way, names, spool: spool::folder() };
    let reporter = Arc::new(reporter);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}"), ""))?;
    let code = runtime.block_on(supervise(&exec.command, &reporter, output));
    runtime.shutdown_background();
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Where reports go: to the interface that is named, else into the inbox of the project here, or to the project's interface
/// where only another user may write into that; else to this machine's interface.
fn way(directory: &Path, exec: &Exec) -> Way {
    let named = exec.server.clone().or_else(|| environment::variable("INTERLOCK_SERVER"));
    let token = environment::variable("INTERLOCK_TOKEN");
    let ca = exec.ca.clone().or_else(|| environment::variable("INTERLOCK_CA").map(Into::into));
    let trust = ca.map_or(Trust::System, Trust::Only);
    let to = |url: &str| Way::to(url, token.clone(), trust.clone()).unwrap_or_else(Way::Nowhere);
    if let Some(url) = named.filter(|url| !url.is_empty()) {
        return to(&url);
    }
    let place = match Place::of(directory) {
        Ok(place) => place,
        // To the wrong ledger it would be lost without a word; it is kept for the project, whose `serve` knows better.
        Err(failure) => return Way::Unknown(directory.to_owned(), failure.message),
    };
    let is_project = place::config_file(directory).exists() || place.folder.is_dir();
    if !is_project {
        return to(HERE);
    }
    if place.is_embedded() && place.may_write() {
        return Way::Inbox(place.folder);
    }
    // The ledger is another user's, or on a server, which takes longer to reach than a job's wrapper may: the process that
    // serves the project writes the report down.
    if let Some(address) = interface(directory, &place) {
        let trust = address.trust.clone().unwrap_or_default();
        let way = Way::to(&address.to_string(), token, trust).unwrap_or_else(Way::Nowhere);
        return way.for_project(directory);
    }
    let reason = "no `interlock serve` of this project runs here".to_owned();
    Way::Unknown(directory.to_owned(), reason)
}

/// Where the interface of a project is on this machine: where it was last, else where the file says.
fn interface(directory: &Path, place: &Place) -> Option<InterfaceAddress> {
    let near = |address: SocketAddr| {
        let ip =
            if address.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address.ip() };
        SocketAddr::new(ip, address.port())
    };
    if let Some(address) = InterfaceAddress::of(&place.folder) {
        return Some(InterfaceAddress { socket: near(address.socket), ..address });
    }
    let server = place::config(&place::config_file(directory))?.server;
    let written = server.addr;
    let full = if written.starts_with(':') { format!("0.0.0.0{written}") } else { written };
    let socket = full.to_socket_addrs().ok()?.next().map(near)?;
    let trust = server.tls.map(|tls| Trust::Exactly(http::tls_files(directory, &tls).cert));
    (socket.port() != 0).then_some(InterfaceAddress { socket, trust })
}

/// What reporting needs.
struct Reporter {
    pipeline: PipelineId,
    rid: String,
    /// What tells this call from others, should somebody use a `rid` twice.
    fresh: String,
    way: Way,
    /// The names under which reports may wait that go this way.
    names: Vec<String>,
    spool: std::path::PathBuf,
}

async fn supervise(
    program: &[std::ffi::OsString],
    reporter: &Arc<Reporter>,
    output: &mut Output,
) -> i64 {
    let mut say = |messages: Vec<String>| {
        for message in messages {
            let _nobody_reads = writeln!(output.err, "interlock exec: {message}");
        }
    };
    let (began, clock) = (clock::now(), Instant::now());
    let (mut unsent, mut opened) = (vec![reporter.started(began)], None);
    let (ended, took) = match Job::start(program) {
        Err(ended) => {
            say(vec![ended.output.clone().unwrap_or_default()]);
            (ended, clock.elapsed())
        }
        Ok(mut job) => {
            // While it runs: nobody waits for us yet.
            opened = reporter.way.open();
            if let Some(ended) = job.ends_within(LINGER).await {
                let took = ended.at.saturating_duration_since(clock);
                (ended, took)
            } else {
                // By a thread of its own: the job's output, signals and end do not wait for us.
                let (reporter, started) = (Arc::clone(reporter), std::mem::take(&mut unsent));
                let opened = opened.take();
                let sent = spawn_blocking(move || reporter.send(started, opened));
                let (sent, ended) = join!(sent, job.ends());
                say(sent.unwrap_or_default());
                let took = ended.at.saturating_duration_since(clock);
                (ended, took)
            }
        }
    };
    unsent.push(reporter.ended(&ended, (began, took)));
    say(reporter.send(unsent, opened));
    ended.code
}

impl Reporter {
    fn parcel(&self, report: ReportRecord) -> Parcel {
        // The same report under the same key, however often it is sent.
        let key = format!("exec-{}-{}", self.fresh, report.said);
        Parcel { pipeline: self.pipeline.clone(), key, report }
    }

    fn started(&self, at: Timestamp) -> Parcel {
        self.parcel(ReportRecord {
            rid: Some(self.rid.clone()),
            source: Some(source()),
            ..ReportRecord::of(Said::Start.as_str(), at, None)
        })
    }

    fn ended(&self, ended: &Ended, (began, took): (Timestamp, Duration)) -> Parcel {
        let said = Said::of_exit_code(ended.code);
        // By the clock that does not jump.
        let at = began.saturating_add(took).unwrap_or(began);
        self.parcel(ReportRecord {
            rid: Some(self.rid.clone()),
            exit_code: Some(ended.code),
            duration_ms: u64::try_from(took.as_millis()).ok(),
            source: Some(source()),
            ..ReportRecord::of(said.as_str(), at, ended.output.as_deref())
        })
    }

    /// Delivers what waited before and then these reports: in the order in which it happened. What cannot be delivered is
    /// kept. Answers with what there is to say of that, and may take seconds.
    fn send(&self, mut parcels: Vec<Parcel>, opened: Option<OpenInbox>) -> Vec<String> {
        let waited = spool::deliver(&self.spool, &self.way, &self.names);
        let refused = waited.refused.into_iter();
        let mut said: Vec<String> = refused
            .map(|reason| format!("a report that had waited was not taken: {reason}"))
            .collect();
        let sent = match waited.held_up {
            None => self.way.deliver(&mut parcels, opened),
            Some(reason) => Err(Trouble::Unreachable(reason)),
        };
        said.extend(match sent {
            Ok(()) => None,
            Err(Trouble::Refused(reason)) => Some(format!("the report was not taken: {reason}")),
            Err(Trouble::Unreachable(reason)) => {
                Some(match spool::keep(&self.spool, &self.way, &parcels) {
                    Ok(()) => format!("the report is kept until it can be delivered: {reason}"),
                    Err(error) => {
                        format!("the report is lost: {reason}; {}: {error}", self.spool.display())
                    }
                })
            }
        });
        said
    }
}

fn source() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "somewhere" } else { host.trim() };
    format!("interlock exec on {host}, process {}", std::process::id())
}
