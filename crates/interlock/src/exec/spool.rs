//! Reports that could not be delivered, one file each, with their true times. The next `exec` on the same way
//! delivers them, and `serve` does when it is the one they were meant for.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use interlock_core::id::PipelineId;
use interlock_store::record::{InboxRecord, ReportRecord};
use serde_json::{Value, json};

use super::way::{Parcel, Trouble, Way};
use crate::environment;

/// Reports that are kept at most; then the oldest makes room.
const KEPT_MAX: usize = 10_000;
/// Reports that one `exec` delivers besides its own.
const AT_ONCE: usize = 200;

/// Where undelivered reports of this user are kept.
pub(crate) fn folder() -> PathBuf {
    let named = |name: &str| environment::variable(name).filter(|path| !path.is_empty());
    if let Some(spool) = named("INTERLOCK_SPOOL") {
        return spool.into();
    }
    let state = named("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(named("HOME")?).join(".local/state")));
    state.unwrap_or_else(|| PathBuf::from("/var/tmp")).join("interlock/spool")
}

/// Keeps reports for later; durable when it returns.
pub(crate) fn keep(folder: &Path, way: &Way, parcels: &[Parcel]) -> io::Result<()> {
    // What a job printed is for whoever may see the job.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    for parcel in parcels {
        let record = InboxRecord::Report(Box::new(parcel.report.clone()));
        let text = json!({
            "to": way.name(),
            "pipeline": parcel.pipeline.as_str(),
            "key": parcel.key,
            "report": record.encode(),
        });
        // By time, so that they are delivered in the order they were made.
        let name = format!("{:015}-{}", parcel.report.at.as_millisecond().max(0), parcel.key);
        let draft = folder.join(format!("{name}.new"));
        let options =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft);
        let mut file = options?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::rename(&draft, folder.join(format!("{name}.json")))?;
    }
    let files = files(folder);
    for oldest in files.iter().take(files.len().saturating_sub(KEPT_MAX)) {
        fs::remove_file(oldest)?;
    }
    Ok(())
}

/// The files, oldest first.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut all: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "json")).collect();
    all.sort();
    all
}

/// The keys of all reports that lie there, by the names of their files.
pub(crate) fn keys(folder: &Path) -> BTreeSet<String> {
    let files = files(folder);
    let names = files.iter().filter_map(|file| file.file_stem()?.to_str());
    names.filter_map(|name| Some(name.split_once('-')?.1.to_owned())).collect()
}

/// A report that waits, and its file.
pub(crate) struct Waiting {
    pub(crate) file: PathBuf,
    pub(crate) parcel: Parcel,
}

/// What waits under one of some names, oldest first, without what is known already.
pub(crate) fn waiting(folder: &Path, names: &[String], known: &BTreeSet<PathBuf>) -> Vec<Waiting> {
    let read = |file: PathBuf| {
        let text: Value = serde_json::from_str(&fs::read_to_string(&file).ok()?).ok()?;
        let to = text["to"].as_str()?;
        names.iter().any(|name| name == to).then_some(())?;
        let InboxRecord::Report(report) = InboxRecord::decode(text["report"].as_str()?).ok()?
        else {
            return None;
        };
        let pipeline = PipelineId::parse(text["pipeline"].as_str()?).ok()?;
        let (key, report): (_, ReportRecord) = (text["key"].as_str()?.to_owned(), *report);
        Some(Waiting { file, parcel: Parcel { pipeline, key, report } })
    };
    let files = files(folder).into_iter().filter(|file| !known.contains(file));
    files.filter_map(read).take(AT_ONCE).collect()
}

/// What came of the reports that waited.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    /// Why some were not wanted; they are dropped.
    pub(crate) refused: Vec<String>,
    /// What is in the way of the rest.
    pub(crate) held_up: Option<String>,
}

/// Delivers what waits under some names by a way, until something is in the way. A report that is not wanted is dropped, and said.
pub(crate) fn deliver(folder: &Path, way: &Way, names: &[String]) -> Delivered {
    let mut delivered = Delivered::default();
    for Waiting { file, parcel } in waiting(folder, names, &BTreeSet::new()) {
        match way.deliver(&mut vec![parcel], None) {
            Ok(()) => {}
            Err(Trouble::Refused(reason)) => delivered.refused.push(reason),
            Err(Trouble::Unreachable(reason)) => {
                delivered.held_up = Some(reason);
                return delivered;
            }
        }
        let _delivered_twice_is_once = fs::remove_file(file);
    }
    delivered
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::exec::tls::Trust;

    #[test]
    fn what_is_kept_waits_for_its_own_way_in_the_order_of_its_times() {
        let folder = tempfile::tempdir().unwrap();
        let way =
            |name: &str| Way::to(&format!("http://{name}:1"), None, Trust::default()).unwrap();
        let parcel = |key: &str, second: i64| Parcel {
            pipeline: PipelineId::parse("backup").unwrap(),
            key: key.to_owned(),
            report: ReportRecord::of(
                "success",
                Timestamp::from_second(second).unwrap(),
                Some("é\n"),
            ),
        };
        keep(folder.path(), &way("a"), &[parcel("late", 20), parcel("early", 10)]).unwrap();
        keep(folder.path(), &way("b"), &[parcel("exec-1-start", 5)]).unwrap();
        let waiting_for = |name: &str| {
            let found = waiting(folder.path(), &[way(name).name()], &BTreeSet::new());
            found.into_iter().map(|it| it.parcel.key).collect::<Vec<_>>()
        };
        assert_eq!(waiting_for("a"), ["early", "late"]);
        assert_eq!(waiting_for("b"), ["exec-1-start"]);
        assert_eq!(
            keys(folder.path()),
            ["early", "exec-1-start", "late"].map(str::to_owned).into()
        );
        let found = waiting(folder.path(), &[way("a").name()], &BTreeSet::new()).remove(0);
        assert_eq!(found.parcel, parcel("early", 10));
    }
}
