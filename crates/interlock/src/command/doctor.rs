//! `interlock doctor`: whether everything around the pipelines is as it should be; with `--live` also whether `serve` does
//! what it must (`live`).

mod live;

use std::{fs, io::Write as _, path::Path};

use interlock_api::access::stored_tokens;
use interlock_config::{Loaded, problem::Severity, server::Server};
use interlock_store::block_on;
use jiff::{SignedDuration, Timestamp};

use crate::{
    clock,
    exit::{Failure, PROBLEMS, SUCCESS},
    ledger::Ledger,
    output::Output,
    place::Place,
    project,
    serve::http,
};

/// Less free space than this is a problem: the ledger must be able to grow.
const FREE_BYTES_MIN: u64 = 500 * 1024 * 1024;
/// No clock that is right says less.
const CLOCK_MIN: Timestamp = Timestamp::constant(1_760_000_000, 0);

/// What came of one check.
enum Finding {
    Good(String),
    Bad(String),
}

use Finding::{Bad, Good};

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// At what stands around the pipelines.
    Around,
    /// Also at what runs.
    Live,
}

pub(super) fn run(directory: &Path, depth: Depth, output: &mut Output) -> Result<u8, Failure> {
    let place = Place::of(directory)?;
    let folder = place.folder.clone();
    let loaded = project::load(directory)?;
    let mut findings = vec![
        ("files", files(&loaded)),
        ("store", store(&place)),
        ("daemon", daemon(&place)),
        ("runner", runner(&folder.join("runner"))),
        ("server", server(&place, &loaded.config.server)),
        ("clock", clock(directory)),
        ("zones", zones()),
        ("private", private(&place)),
        ("disk", disk(if folder.is_dir() { &folder } else { directory })),
    ];
    if depth == Depth::Live {
        findings.extend(live::findings(directory, &place));
    }
    for (name, finding) in &findings {
        let (word, text) = match finding {
            Good(text) => ("ok", text),
            Bad(text) => ("problem", text),
        };
        writeln!(output.out, "{name:7} {word:8} {text}")?;
    }
    let is_good = findings.iter().all(|(_, finding)| matches!(finding, Good(_)));
    Ok(if is_good { SUCCESS } else { PROBLEMS })
}

fn files(loaded: &Loaded) -> Finding {
    let errors = loaded.problems.iter().filter(|p| p.severity == Severity::Error).count();
    let usable = loaded.pipelines.len();
    match errors {
        0 => Good(format!("{usable} usable pipelines")),
        _ => Bad(format!("{errors} errors, {usable} usable pipelines; see `interlock validate`")),
    }
}

fn store(place: &Place) -> Finding {
    match place.exists() {
        Ok(true) => {}
        Ok(false) => {
            return Good("nothing was recorded yet; `interlock serve` makes a store".to_owned());
        }
        Err(failure) => return Bad(failure.message),
    }
    if !place.is_embedded() {
        let cautions = place.open_reader().and_then(|store| Ok(block_on(store.cautions())?));
        return match cautions {
            Ok(cautions) if cautions.is_empty() => Good(format!("{place} answers")),
            Ok(cautions) => Bad(format!("{place} answers, but {}", cautions.join("; "))),
            Err(failure) => Bad(failure.message),
        };
    }
    match interlock_store_embedded::check(&place.folder) {
        Ok(problems) if problems.is_empty() => Good("sound".to_owned()),
        Ok(problems) => Bad(problems.join("; ")),
        Err(error) => Bad(error.message),
    }
}

/// Either answer is good: it is said because everything else depends on it.
fn daemon(place: &Place) -> Finding {
    if !place.may_write() {
        return Bad("cannot tell: its state folder is another user's".to_owned());
    }
    let is_served = place.is_served();
    Good(if is_served { "running" } else { "not running" }.to_owned())
}

fn runner(folder: &Path) -> Finding {
    match interlock_trigger::runner::is_reachable(folder) {
        Ok(true) => Good("running".to_owned()),
        Ok(false) => Good("none yet; `serve` starts one when a job needs it".to_owned()),
        Err(error) => Bad(format!("the runner in {} cannot be reached: {error}", folder.display())),
    }
}

/// The HTTP interface: its answer while it is served, else whether it could be.
fn server(place: &Place, server: &Server) -> Finding {
    match http::address(&place.folder).filter(|_| place.is_served()) {
        Some(address) => match http::health(&address) {
            Ok((200, _)) => Good(format!("http://{address} is healthy")),
            Ok((status, _)) => Bad(format!("http://{address}/healthz answers {status}")),
            Err(error) => Bad(format!("http://{address} does not answer: {error}")),
        },
        None => match http::probe(server, tokens(place)) {
            Ok(()) => Good(format!("{} is free", server.addr)),
            // As `serve` does: only an address that somebody asked for is missed.
            Err(refusal) if !server.addr_is_written => {
                Good(format!("{refusal}; `serve` would go on without HTTP"))
            }
            Err(refusal) => Bad(refusal),
        },
    }
}

/// How many tokens the store has.
fn tokens(place: &Place) -> usize {
    let tokens = place.open_reader().ok().and_then(|store| block_on(stored_tokens(&*store)).ok());
    tokens.map_or(0, |tokens| tokens.len())
}

/// A clock that went back would hold up every decision until it has caught up.
fn clock(directory: &Path) -> Finding {
    let now = clock::now();
    if now < CLOCK_MIN {
        return Bad(format!("it says {now}, which is long ago"));
    }
    match last_recorded(directory) {
        Some(last) if now < last.saturating_sub(SignedDuration::from_mins(1)).unwrap_or(last) => {
            Bad(format!("it says {now}, and something is recorded at {last}"))
        }
        _ => Good(format!("{now}")),
    }
}

/// The instant of the newest run: what the store knows of the time.
fn last_recorded(directory: &Path) -> Option<Timestamp> {
    let ledger = Ledger::open(directory).ok()?;
    let query = interlock_store::RunQuery { limit: 1, ..Default::default() };
    ledger.runs(&query).ok()?.items.first().map(|run| run.record.created_at)
}

fn zones() -> Finding {
    match jiff::tz::TimeZone::get("Europe/Riga") {
        Ok(_) => Good(match zone_version() {
            Some(version) => format!("the system's database, version {version}"),
            None => "the database that comes with interlock, or one without a version".to_owned(),
        }),
        Err(error) => Bad(format!("there is no usable zone database: {error}")),
    }
}

/// The version of the system's zone database, where it says so.
fn zone_version() -> Option<String> {
    let folder = Path::new("/usr/share/zoneinfo");
    let version = fs::read_to_string(folder.join("+VERSION")).ok();
    let version = version.or_else(|| {
        let text = fs::read_to_string(folder.join("tzdata.zi")).ok()?;
        text.lines().next()?.strip_prefix("# version ").map(str::to_owned)
    });
    version.map(|version| version.trim().to_owned())
}

/// How many open files are named.
const NAMED_MAX: usize = 5;

/// Whether other users of this machine are kept out of the state folder: the ledger holds whole declarations, secrets included.
fn private(place: &Place) -> Finding {
    let folder = &place.folder;
    if !folder.is_dir() {
        return Good("nothing was recorded yet".to_owned());
    }
    let open = match interlock_private_files::exposed(folder, place.private_extent()) {
        Ok(open) if open.is_empty() => {
            return Good("only its owner may read the state folder".to_owned());
        }
        Ok(open) => open,
        Err(error) => return Bad(format!("{} cannot be examined: {error}", folder.display())),
    };
    let named = open.iter().take(NAMED_MAX);
    let named: Vec<_> =
        named.map(|it| format!("{} ({:04o})", it.path.display(), it.mode)).collect();
    let more = open.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Bad(format!(
        "other users of this machine can read {}{more}; `interlock serve` closes what it owns when it starts",
        named.join(", ")
    ))
}

fn disk(directory: &Path) -> Finding {
    match rustix::fs::statvfs(directory) {
        Err(error) => Bad(format!("{} cannot be examined: {error}", directory.display())),
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let text = format!("{} MiB free", free / (1024 * 1024));
            if free < FREE_BYTES_MIN { Bad(text) } else { Good(text) }
        }
    }
}
