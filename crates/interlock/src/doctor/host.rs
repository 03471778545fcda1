//! What stands around the pipelines on this machine.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use interlock_answers::model::doctor::{DoctorFinding, FindingCode};
use interlock_api::{access::stored_tokens, tls::CertificatePair};
use interlock_config::{Loaded, problem::Severity, server::Server};
use interlock_store::{RunQuery, Store, block_on};
use jiff::{SignedDuration, Timestamp};

use crate::{
    clock,
    exit::Failure,
    place::Place,
    serve::http::{self, InterfaceAddress},
};

/// Less free space than this is a problem: the ledger must be able to grow.
const FREE_BYTES_MIN: u64 = 500 * 1024 * 1024;
/// No clock that is right says less.
const CLOCK_MIN: Timestamp = Timestamp::constant(1_760_000_000, 0);
/// What other users may do with a file.
const OTHERS: u32 = 0o077;
/// How many open files are named.
const NAMED_MAX: usize = 5;
/// What is done about a server whose settings lose what it acknowledged.
const SAFER: &str = "Change that setting of the server; docs/operating.md says what each is for.";

/// Everything, as a command sees it.
pub(crate) fn findings(directory: &Path, place: &Place, loaded: &Loaded) -> Vec<DoctorFinding> {
    let store = place.open_reader();
    vec![
        files(loaded),
        store_from_outside(place),
        daemon(place),
        runner(&place.runner_folder()),
        server(place, &loaded.config.server),
        clock_against(store.as_deref().ok()),
        zones(),
        private(place),
        certificate(place, &loaded.config.server),
        disk(if place.folder.is_dir() { &place.folder } else { directory }),
    ]
}

/// What `serve` itself can see: that it runs and answers needs no finding, and what the files are like it has recorded.
pub(crate) fn findings_within(
    place: &Place,
    store: &dyn Store,
    server: &Server,
) -> Vec<DoctorFinding> {
    vec![
        store_from_within(store),
        runner(&place.runner_folder()),
        clock_against(Some(store)),
        zones(),
        private(place),
        certificate(place, server),
        disk(&place.folder),
    ]
}

/// A check that came to nothing.
pub(crate) fn failed(code: FindingCode, failure: Failure) -> DoctorFinding {
    let hint = if failure.help.is_empty() {
        "`serve` writes to its log what keeps it from its work.".to_owned()
    } else {
        failure.help
    };
    DoctorFinding::problem(code, failure.message, hint)
}

fn files(loaded: &Loaded) -> DoctorFinding {
    let errors = loaded.problems.iter().filter(|p| p.severity == Severity::Error).count();
    let usable = loaded.pipelines.len();
    match errors {
        0 => DoctorFinding::good(FindingCode::Files, format!("{usable} usable pipelines")),
        _ => DoctorFinding::problem(
            FindingCode::Files,
            format!("{errors} errors, {usable} usable pipelines"),
            "`interlock validate` shows each with its place.",
        ),
    }
}

fn store_from_outside(place: &Place) -> DoctorFinding {
    let code = FindingCode::Store;
    match place.exists() {
        Ok(true) => {}
        Ok(false) => {
            let message = "nothing was recorded yet; `interlock serve` makes a store";
            return DoctorFinding::good(code, message);
        }
        Err(failure) => return failed(code, failure),
    }
    if !place.is_embedded() {
        let cautions = place.open_reader().and_then(|store| Ok(block_on(store.cautions())?));
        return match cautions {
            Ok(cautions) if cautions.is_empty() => {
                DoctorFinding::good(code, format!("{place} answers"))
            }
            Ok(cautions) => {
                let message = format!("{place} answers, but {}", cautions.join("; "));
                DoctorFinding::problem(code, message, SAFER)
            }
            Err(failure) => failed(code, failure),
        };
    }
    let damaged = |message| {
        let hint = "Stop `interlock serve` and start it once with `--recover`: it keeps every row that can be read.";
        DoctorFinding::problem(code, message, hint)
    };
    match interlock_store_embedded::check(&place.folder) {
        Ok(problems) if problems.is_empty() => DoctorFinding::good(code, "sound"),
        Ok(problems) => damaged(problems.join("; ")),
        Err(error) => damaged(error.message),
    }
}

/// Whether it answers. A file is not gone through: that takes as long as it is large, and `interlock doctor` does it.
fn store_from_within(store: &dyn Store) -> DoctorFinding {
    let code = FindingCode::Store;
    match block_on(store.cautions()) {
        Ok(cautions) if cautions.is_empty() => DoctorFinding::good(code, "it answers"),
        Ok(cautions) => {
            let message = format!("it answers, but {}", cautions.join("; "));
            DoctorFinding::problem(code, message, SAFER)
        }
        Err(error) => failed(code, error.into()),
    }
}

/// Either answer is good: it is said because everything else depends on it.
fn daemon(place: &Place) -> DoctorFinding {
    let code = FindingCode::Daemon;
    if !place.may_write() {
        return DoctorFinding::problem(
            code,
            "cannot tell: the state folder belongs to another user",
            "Run the command as that user.",
        );
    }
    DoctorFinding::good(code, if place.is_served() { "running" } else { "not running" })
}

fn runner(folder: &Path) -> DoctorFinding {
    let code = FindingCode::Runner;
    match interlock_trigger::runner::is_reachable(folder) {
        Ok(true) => DoctorFinding::good(code, "running"),
        Ok(false) => DoctorFinding::good(code, "none yet; `serve` starts one when a job needs it"),
        Err(error) => DoctorFinding::problem(
            code,
            format!("the process that runs jobs cannot be reached: {error}"),
            "Look whether this user may use the folder `runner` in the state folder, then start `serve` again.",
        ),
    }
}

/// The HTTP interface: its answer while it is served, else whether it could be.
fn server(place: &Place, server: &Server) -> DoctorFinding {
    let code = FindingCode::Server;
    let again = "`interlock doctor --live` says more; end the process and start it again.";
    match InterfaceAddress::of(&place.folder).filter(|_| place.is_served()) {
        Some(address) => match http::health(&address) {
            Ok((200, _)) => DoctorFinding::good(code, format!("{address} is healthy")),
            Ok((status, _)) => {
                let message = format!("{address}/healthz answers {status}");
                DoctorFinding::problem(code, message, again)
            }
            Err(error) => {
                let message = format!("{address} does not answer: {error}");
                DoctorFinding::problem(code, message, again)
            }
        },
        None => match http::probe(server, tokens(place)) {
            Ok(()) => DoctorFinding::good(code, format!("{} is free", server.addr)),
            // As `serve` does: only an address that interlock.yaml names is missed.
            Err(refusal) if !server.addr_is_written => {
                let message = format!("{refusal}; `serve` would go on without HTTP");
                DoctorFinding::warning(code, message, "Write another `server.addr`.")
            }
            Err(refusal) => {
                let hint = "Write another `server.addr`, or end the process that has it.";
                DoctorFinding::problem(code, refusal, hint)
            }
        },
    }
}

/// How many tokens the store has.
fn tokens(place: &Place) -> usize {
    let tokens = place.open_reader().ok().and_then(|store| block_on(stored_tokens(&*store)).ok());
    tokens.map_or(0, |tokens| tokens.len())
}

/// A clock that went back would hold up every decision until it has caught up.
fn clock_against(store: Option<&dyn Store>) -> DoctorFinding {
    let (code, now) = (FindingCode::Clock, clock::now());
    let wrong = |message| {
        let hint =
            "Set it right, and keep it right with NTP: until it has caught up nothing is decided.";
        DoctorFinding::problem(code, message, hint)
    };
    if now < CLOCK_MIN {
        return wrong(format!("the clock says {now}, which is long ago"));
    }
    match store.and_then(last_recorded) {
        Some(last) if now < last.saturating_sub(SignedDuration::from_mins(1)).unwrap_or(last) => {
            wrong(format!("the clock says {now}, but something is recorded at {last}"))
        }
        _ => DoctorFinding::good(code, format!("{now}")),
    }
}

/// The instant of the newest run: what the store knows of the time.
fn last_recorded(store: &dyn Store) -> Option<Timestamp> {
    let query = RunQuery { limit: 1, ..Default::default() };
    block_on(store.runs(&query)).ok()?.items.first().map(|run| run.record.created_at)
}

fn zones() -> DoctorFinding {
    let code = FindingCode::Zones;
    match jiff::tz::TimeZone::get("Europe/Riga") {
        Ok(_) => {
            let message = match zone_version() {
                Some(version) => format!("the system's database, version {version}"),
                None => {
                    "the database that comes with interlock, or one without a version".to_owned()
                }
            };
            DoctorFinding::good(code, message)
        }
        Err(error) => DoctorFinding::problem(
            code,
            format!("there is no usable zone database: {error}"),
            "Install the package `tzdata`.",
        ),
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

/// Whether other users of this machine are kept out of the state folder: the ledger holds whole declarations, secrets included.
fn private(place: &Place) -> DoctorFinding {
    let (code, folder) = (FindingCode::Private, &place.folder);
    if !folder.is_dir() {
        return DoctorFinding::good(code, "nothing was recorded yet");
    }
    let closes =
        "`interlock serve` closes what it owns when it starts; the rest its owner must close.";
    let open = match interlock_private_files::exposed(folder, place.private_extent()) {
        Ok(open) if open.is_empty() => {
            return DoctorFinding::good(code, "only its owner may read the state folder");
        }
        Ok(open) => open,
        Err(error) => {
            let message = format!("the state folder cannot be examined: {error}");
            return DoctorFinding::problem(code, message, closes);
        }
    };
    let name = |path: &Path| match path.strip_prefix(folder) {
        Ok(inside) if inside.as_os_str().is_empty() => "the state folder itself".to_owned(),
        Ok(inside) => inside.display().to_string(),
        Err(_outside) => "a file beside the state folder".to_owned(),
    };
    let named = open.iter().take(NAMED_MAX);
    let named: Vec<_> = named.map(|it| format!("{} ({:04o})", name(&it.path), it.mode)).collect();
    let more = open.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let message = format!("other users of this machine can read {}{more}", named.join(", "));
    DoctorFinding::problem(code, message, closes)
}

/// Whether the listener is encrypted where others reach it, with a certificate that lasts and a key that only its owner may read.
fn certificate(place: &Place, server: &Server) -> DoctorFinding {
    let code = FindingCode::Tls;
    let Some(tls) = &server.tls else {
        if http::is_for_this_machine(&server.addr) {
            return DoctorFinding::good(code, "none; only this machine can reach HTTP");
        }
        let message = format!(
            "{} can be reached from other machines and is not encrypted: anyone on the network path can read tokens and logs",
            server.addr
        );
        let hint = "Write `server.tls: {cert: …, key: …}` in interlock.yaml, or let only a proxy reach it.";
        return DoctorFinding::warning(code, message, hint);
    };
    let files = http::tls_files(&place.directory, tls);
    let pair = match CertificatePair::load(&files) {
        Ok(pair) => pair,
        Err(error) => {
            let hint =
                "Put a PEM file with the certificate and one with its key where `server.tls` says.";
            return DoctorFinding::problem(code, error.to_string(), hint);
        }
    };
    if let Some(validity) = pair.validity
        && let Some(says) = validity.complaint(clock::now())
    {
        let hint = "Renew it: `serve` takes up changed files within seconds.";
        return if validity.is_over(clock::now()) {
            DoctorFinding::problem(code, says, hint)
        } else {
            DoctorFinding::warning(code, says, hint)
        };
    }
    let open = fs::metadata(&files.key).map(|found| found.permissions().mode() & OTHERS);
    if let Ok(open @ 1..) = open {
        let message = format!(
            "other users of this machine can use {}, the private key of `server.tls` ({open:04o})",
            files.key.display()
        );
        let hint = "`chmod 600` it; if others had it for long, have the certificate renewed with another key.";
        return DoctorFinding::problem(code, message, hint);
    }
    let end = pair.validity.map(|validity| format!("until {}", validity.until));
    DoctorFinding::good(code, end.unwrap_or_else(|| "its end cannot be read".to_owned()))
}

fn disk(directory: &Path) -> DoctorFinding {
    let code = FindingCode::Disk;
    let hint = "Free some space, or move the state folder: the ledger must be able to grow.";
    match rustix::fs::statvfs(directory) {
        Err(error) => {
            let message = format!("the disk of the state folder cannot be examined: {error}");
            DoctorFinding::problem(code, message, hint)
        }
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let message = format!("{} MiB free", free / (1024 * 1024));
            if free < FREE_BYTES_MIN {
                DoctorFinding::problem(code, message, hint)
            } else {
                DoctorFinding::good(code, message)
            }
        }
    }
}
