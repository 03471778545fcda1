//! What was written down about processes that hung: in the log as soon as it is written, and as an incident by whoever serves next.
//!
//! A report goes to a file and to the log, by the helper that wrote it: where files end with their container the log is all that is
//! left. Whoever serves looks for reports before it begins, and again and again: a helper may still be writing about the process before
//! this one, and a program of somebody else's that `interlock supervise` keeps may hang at any time.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use interlock_liveness::forensics::{self, Fate, Found, Written, found, recovered};
use interlock_store::Store;
use tokio::task::spawn_blocking;

use crate::{
    arguments::LogForm,
    exit::{FAILED, SUCCESS},
    serve::{
        log,
        notice::{self, Over},
    },
};

/// What reports of `serve` are called, and the folder that they are in.
pub(crate) const NAME: &str = "serve";
pub(crate) const OWN: &str = "liveness";
/// Where those of supervised programs are.
const SUPERVISED: &str = "supervise";
/// The file that is there from a hang of ours until it is said that we are well: whoever serves then says so.
const UNWELL: &str = "serve.unwell";
/// How often is looked for new ones.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Whoever has not hung for so long is well again.
const WELL_AFTER: Duration = Duration::from_mins(10);
/// So much of a report goes to the log: of each thread, and of all.
const LOGGED_OF_THREAD: usize = 1_500;
const LOGGED_MAX: usize = 24_000;

/// The reports of a project.
pub(crate) struct Reports {
    folder: PathBuf,
    store: Arc<dyn Store>,
    /// Whether somebody here already waits to say that we are well.
    says_well: AtomicBool,
    well_after: Duration,
}

/// Whose reports are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Everybody's: we have written none yet, even if one bears our number, as process 1 of a container does.
    All,
    /// Those of others: what we write ourselves the next one tells.
    Others,
}

impl Reports {
    pub(crate) fn found_by(folder: &Path, store: &Arc<dyn Store>) -> Self {
        let says_well = AtomicBool::new(false);
        let (folder, store) = (folder.to_path_buf(), Arc::clone(store));
        Self { folder, store, says_well, well_after: WELL_AFTER }
    }

    /// Tells what earlier processes left behind. Nobody of this process has written anything yet.
    pub(crate) async fn tell_what_is_there(self) -> Self {
        self.tell(Whose::All).await;
        // Also of what an earlier process told, and did not live long enough to end.
        if self.unwell().exists() {
            self.say_well_later();
        }
        self
    }

    /// Tells what is found from now on, for ever.
    pub(crate) async fn tell_what_comes(self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.tell(Whose::Others).await;
        }
    }

    fn unwell(&self) -> PathBuf {
        self.folder.join(OWN).join(UNWELL)
    }

    /// Remembers that somebody has to say that we are well, should this process not live to do it.
    fn is_unwell(&self) {
        let unwell = self.unwell();
        let kept = unwell.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(error) = kept.and_then(|()| fs::write(unwell, "")) {
            tracing::warn!(%error, "the next process may not report that it recovered");
        }
    }

    fn say_well_later(&self) {
        if !self.says_well.swap(true, Relaxed) {
            tokio::spawn(say_well(Arc::clone(&self.store), self.unwell(), self.well_after));
        }
    }

    async fn tell(&self, whose: Whose) {
        for part in [OWN, SUPERVISED] {
            let folder = self.folder.join(part);
            let Ok(reports) = spawn_blocking(move || found(&folder)).await else { continue };
            let is_ours = |report: &Found| part == OWN && report.pid == std::process::id();
            for report in reports.iter().filter(|it| whose == Whose::All || !is_ours(it)) {
                // What was only late came round again, or ended under its own report.
                let is_end = part == SUPERVISED || report.why.ends_with("(hard)");
                // Before the incident is there: it is never left without anybody who ends it.
                let is_us = is_end && report.name == NAME;
                if is_us {
                    self.is_unwell();
                }
                if is_end && !tell_of(report, &self.store).await {
                    continue;
                }
                if is_us {
                    self.say_well_later();
                }
                if let Err(error) = report.is_told() {
                    tracing::warn!(%error, "a report may be told again");
                }
            }
        }
        self.tell_recovered().await;
    }

    /// Ends what was told of supervised programs that have been well for long since. After having told what they were in trouble for.
    async fn tell_recovered(&self) {
        let folder = self.folder.join(SUPERVISED);
        let Ok(all) = spawn_blocking(move || recovered(&folder)).await else { return };
        for recovered in all {
            let name = &recovered.name;
            if !is_well(&self.store, name, "it has been up and well for a while").await {
                continue;
            }
            tracing::info!("`{name}` has been up and well for a while");
            if let Err(error) = recovered.is_told() {
                tracing::warn!(%error, "that `{name}` is well may be told again");
            }
        }
    }
}

/// Says that a process is well, whatever it was in trouble for; answers whether that was recorded.
async fn is_well(store: &Arc<dyn Store>, name: &str, message: &str) -> bool {
    // The end of one kind of trouble of a process is the end of all.
    notice::notice(store.as_ref(), ("PROCESS_HUNG", name), message.to_owned(), Over::Yes).await
}

/// Whoever has not hung again for a while is well.
async fn say_well(store: Arc<dyn Store>, unwell: PathBuf, after: Duration) {
    tokio::time::sleep(after).await;
    let message = format!("it has not hung again for {} minutes", after.as_secs() / 60);
    if !is_well(&store, NAME, &message).await {
        return;
    }
    // What is left is said once more by the next one: an incident that is over stays over.
    let _not_there = fs::remove_file(unwell);
}

async fn tell_of(report: &Found, store: &Arc<dyn Store>) -> bool {
    let Found { path, name, why, fate, .. } = report;
    let (event, message) = match fate {
        Fate::Hung => {
            let path = path.with_extension("told");
            // Whoever reads this elsewhere does not know where we were started.
            let path = std::path::absolute(&path).unwrap_or(path);
            ("PROCESS_HUNG", format!("{why}; where it hung is in {}", path.display()))
        }
        Fate::Died => ("PROCESS_DIED", why.clone()),
        Fate::GivenUp => ("PROCESS_GIVEN_UP", why.clone()),
    };
    match fate {
        Fate::Hung => tracing::error!("`{name}` hung and was ended: {message}"),
        Fate::Died => tracing::warn!("`{name}` died and was started again: {message}"),
        Fate::GivenUp => tracing::error!("`{name}` died too often: {message}"),
    }
    notice::notice(store.as_ref(), (event, name), message, Over::No).await
}

/// Is the helper of a process that may hang, until that process ends. Its log is that of the process.
pub(crate) fn help(form: LogForm, arguments: &[String]) -> u8 {
    log::start(form);
    let helped = forensics::help(arguments, tell_log);
    log::finish();
    match helped {
        Ok(()) => SUCCESS,
        Err(_nobody_reads) => FAILED,
    }
}

/// Says in the log what a report says. What was only late is in its file.
fn tell_log(written: Written<'_>) {
    let Written { path, text } = written;
    let why = text.lines().find_map(|line| line.strip_prefix("why: ")).unwrap_or_default();
    if why.ends_with("(late)") {
        return;
    }
    let path = path.display();
    tracing::error!("{why}; what it was doing follows, and all of it is in {path}");
    for part in excerpt(text, LOGGED_MAX) {
        tracing::error!("{part}");
    }
}

/// What a log has room for: the watches, the heap, the processes and how much memory there is, then thread by thread where it is.
pub(crate) fn excerpt(text: &str, most: usize) -> Vec<&str> {
    let parts = || text.split("\n\n").map(str::trim).filter(|part| part.contains('\n'));
    let sections = ["== watches", "== heap", "== processes", "== memory"];
    let section = sections.iter().filter_map(|name| parts().find(|part| part.starts_with(name)));
    // The kernel's long account of memory is in the file.
    let section = section.map(|part| part.split("\nRss:").next().unwrap_or(part));
    let mut excerpt: Vec<&str> = section.map(|part| beginning(part, LOGGED_OF_THREAD)).collect();
    let threads: Vec<&str> = parts().filter(|part| part.starts_with("thread ")).collect();
    // Nobody knows here which of them hangs: each has its share, and none is left out for those before it.
    let room = most.saturating_sub(excerpt.iter().map(|part| part.len()).sum());
    let share = (room / threads.len().max(1)).min(LOGGED_OF_THREAD);
    let threads = threads.into_iter().map(|part| beginning(part, share));
    excerpt.extend(threads.filter(|part| !part.is_empty()));
    excerpt
}

/// As much of a text as there is room for, by whole lines.
fn beginning(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let cut = text.match_indices('\n').map(|(at, _)| at).take_while(|at| *at <= most).last();
    text.get(..cut.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use interlock_store::{Shard, record::InboxRecord};
    use interlock_store_embedded::EmbeddedStore;
    use interlock_wait::BOUND;

    use super::*;
    use crate::clock;

    const REPORT: &str = "why: `engine` made no progress (hard)\nname: serve\nprocess: 1\n";

    /// What was noticed, and whether it is over.
    async fn noticed(store: &Arc<dyn Store>) -> Vec<(String, bool)> {
        let inbox = store.inbox(Shard(0), 10).await.unwrap().items;
        let told = inbox.into_iter().filter_map(|item| {
            let InboxRecord::Noticed { event, over, .. } = item.record else { return None };
            Some((event, over))
        });
        told.collect()
    }

    #[tokio::test]
    async fn a_hang_that_an_earlier_process_told_is_over_although_that_did_not_live_to_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open_daemon(folder.path(), Arc::new(clock::now)).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let own = folder.path().join(OWN);
        fs::create_dir(&own).unwrap();
        fs::write(own.join("serve-1-1.report"), REPORT).unwrap();
        // It tells, and is started again before the ten minutes are over.
        drop(Reports::found_by(folder.path(), &store).tell_what_is_there().await);
        let hung = ("PROCESS_HUNG".to_owned(), false);
        assert_eq!(noticed(&store).await, std::slice::from_ref(&hung));
        let mut next = Reports::found_by(folder.path(), &store);
        next.well_after = Duration::from_millis(50);
        let next = next.tell_what_is_there().await;
        let is_well = async {
            // Bounded: the timeout below ends it.
            while next.unwell().exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(BOUND, is_well).await.expect("the file `unwell` goes");
        assert_eq!(noticed(&store).await, [hung, ("PROCESS_HUNG".to_owned(), true)]);
    }

    #[tokio::test]
    async fn what_a_supervised_program_was_in_trouble_for_is_over_when_its_supervisor_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open_daemon(folder.path(), Arc::new(clock::now)).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let supervised = folder.path().join(SUPERVISED);
        fs::create_dir(&supervised).unwrap();
        let died = "why: it exited with 1\nname: app\nprocess: 7\nfate: died\n";
        fs::write(supervised.join("app-died.report"), died).unwrap();
        fs::write(supervised.join("app.well"), "").unwrap();
        let reports = Reports::found_by(folder.path(), &store).tell_what_is_there().await;
        reports.tell(Whose::Others).await;
        let told = [("PROCESS_DIED".to_owned(), false), ("PROCESS_HUNG".to_owned(), true)];
        assert_eq!(noticed(&store).await, told, "in this order, and once");
        assert!(!supervised.join("app.well").exists());
    }

    #[test]
    fn the_log_gets_watches_and_memory_and_of_every_thread_its_beginning() {
        let text = "why: x (soft)\nname: serve\nprocess: 7\n\n== watches\nengine: soft\n\n== processes\n7 S\n\n== threads\n\nthread 1 `a` S\n    \
                    wait\n\n== threads of process 8\n\nthread 2 `b` R\n    spin\n\n== memory\nVmRSS: 1\nRss: 1\nPss: 1\n\n== descriptors\n3 open\n";
        let (watches, memory) = ("== watches\nengine: soft", "== memory\nVmRSS: 1");
        let processes = "== processes\n7 S";
        let (first, second) = ("thread 1 `a` S\n    wait", "thread 2 `b` R\n    spin");
        assert_eq!(excerpt(text, 1_000), [watches, processes, memory, first, second]);
        let most = watches.len() + processes.len() + memory.len() + 2 * "thread 1 `a` S".len();
        let short = ["thread 1 `a` S", "thread 2 `b` R"];
        assert_eq!(excerpt(text, most), [&[watches, processes, memory][..], &short].concat());
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_its_lines() {
        let text = "one\ntwo\nthree";
        assert_eq!(beginning(text, 100), text);
        assert_eq!(beginning(text, 12), "one\ntwo");
        assert_eq!(beginning(text, 7), "one\ntwo");
        assert_eq!(beginning(text, 6), "one");
        assert_eq!(beginning(text, 2), "", "half a line says nothing");
    }
}
