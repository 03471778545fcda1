//! The notifier of `serve`: the declared channels on real sockets, files and standard output.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use interlock_alert::{Book, Console, Known, LocalChannels, PrepareFuture, Silences, Trouble};
use interlock_config::{SystemZones, server::Alert, silence::Silence};
use interlock_core::{id::PipelineId, incident::Level, outbound::Outbound, pipeline::Pipeline};
use interlock_engine::{
    Notifier, NotifierParts, Patience, SILENCE_PREFIX,
    seam::Specs as _,
    vitals::{Pulse, Vitals},
};
use interlock_store::{
    Key, Record, Shard, Store, StoreError, for_each,
    record::{IncidentRecord, version_number},
};
use interlock_trigger::web::Web;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};

use crate::{
    clock,
    serve::{attend::asked, files::Files, specs::StoredSpecs, world::TokioWorld},
};

/// How long one look at the outbox may take before the loop counts as late.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// How long silences that were read are believed.
const SILENCES_KEPT: SignedDuration = SignedDuration::from_millis(500);
/// So many answers are remembered.
const ANSWERS_MAX: usize = 2_048;
/// How long it is believed what a pipeline declares, and whether it is in trouble: longer than many alerts at once take from
/// being claimed to being delivered, and no time for a person who edits a file.
const DECLARED_KEPT: SignedDuration = SignedDuration::from_secs(2);
const TROUBLE_KEPT: SignedDuration = SignedDuration::from_millis(200);
/// So many open incidents of an upstream are looked at.
const TROUBLES: usize = 50;

/// What the notifier needs of the rest.
pub(crate) struct Around<'a> {
    pub(crate) files: Files,
    pub(crate) specs: StoredSpecs,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) outbound: &'a Outbound,
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) pulse: Pulse,
    /// Where channels keep which thread a message belongs to.
    pub(crate) threads: PathBuf,
    /// Where the console is.
    pub(crate) console: Console,
    /// Tells when there is something new in the outbox.
    pub(crate) news: Arc<Notify>,
}

/// A notifier for the channels that the files declare, and a word about those that it cannot serve.
pub(crate) fn open(around: Around<'_>) -> io::Result<Notifier> {
    let Around { files, specs, store, outbound, vitals, pulse, threads, console, news } = around;
    let web = Web::new(outbound).map_err(io::Error::other)?;
    let directory = files.directory().to_path_buf();
    let zones = SystemZones::new();
    let book = Arc::new(AlertBook {
        files,
        specs,
        store: Arc::clone(&store),
        zones,
        silences: Mutex::default(),
        declared: RecentAnswers::new(DECLARED_KEPT),
        troubles: RecentAnswers::new(TROUBLE_KEPT),
    });
    let channels = LocalChannels::new(book, web, console, directory).with_threads_in(threads);
    let (world, channels) = (Arc::new(TokioWorld::new()), Arc::new(channels));
    let patience = Patience::default();
    let parts = NotifierParts { world, store, channels, patience, vitals, pulse };
    Ok(Notifier::new(parts).woken_by(news))
}

/// Delivers until it is asked to end; what is being tried then is tried again by the next one.
pub(crate) async fn run(notifier: Notifier, stop: watch::Receiver<bool>) {
    if let Err(error) = notifier.run(Box::pin(asked(stop))).await {
        tracing::error!(%error, "alerts are no longer delivered");
    }
}

/// Alerts go to standard output: the log, on standard error, may be filtered or of another form.
pub(crate) fn console() -> Console {
    Arc::new(|line| {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    })
}

/// The console of a command whose standard output is its answer.
pub(crate) fn console_on_stderr() -> Console {
    Arc::new(|line| writeln!(io::stderr().lock(), "{line}"))
}

/// Channels from the files, owners and labels from the declarations in force.
struct AlertBook {
    files: Files,
    specs: StoredSpecs,
    store: Arc<dyn Store>,
    zones: SystemZones,
    /// The silences, and when they were read: many alerts at once ask for them once.
    silences: Mutex<Option<(Timestamp, Arc<[Silence]>)>>,
    /// What pipelines declare, of those that alerts were just about.
    declared: RecentAnswers<Option<Arc<Pipeline>>>,
    /// Open incidents of pipelines that others depend on.
    troubles: RecentAnswers<Option<String>>,
}

impl AlertBook {
    fn known(&self) -> MutexGuard<'_, Option<(Timestamp, Arc<[Silence]>)>> {
        self.silences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a pipeline declares; an answer that the store does not give is none to remember.
    async fn declared(&self, name: &PipelineId) -> Option<Arc<Pipeline>> {
        let now = clock::now();
        if let Some(known) = self.declared.get(name, now) {
            return known;
        }
        let found = self.read_declared(name).await;
        if found.is_some() {
            self.declared.keep(name, found.clone(), now);
        }
        found
    }

    async fn read_declared(&self, name: &PipelineId) -> Option<Arc<Pipeline>> {
        let rows = self.store.read(name, &[Key::Pipeline]).await.ok()?;
        let Record::Pipeline(row) = rows.into_iter().next()??.record else { return None };
        self.specs.pipeline(name, version_number(&row.version).ok()?).await.ok()
    }
}

/// The silences that a store holds. One that cannot be read silences nothing.
pub(crate) async fn silences(
    store: &dyn Store,
    zones: &SystemZones,
) -> Result<Vec<Silence>, StoreError> {
    let mut silences = Vec::new();
    for (key, row) in store.sensors(&PipelineId::system()).await? {
        let Some(id) = key.strip_prefix(SILENCE_PREFIX) else { continue };
        match Silence::from_json(id, &row.record.value, zones) {
            Ok(silence) => silences.push(silence),
            Err(reason) => tracing::warn!("the silence {id} cannot be read: {reason}"),
        }
    }
    Ok(silences)
}

/// The silences that count: a store that does not answer ends none, and begins none (S14).
fn in_force(
    read: Result<Vec<Silence>, StoreError>,
    last: Option<&Arc<[Silence]>>,
) -> Arc<[Silence]> {
    read.map_or_else(|_no_answer| last.cloned().unwrap_or_default(), Into::into)
}

impl Book for AlertBook {
    fn channels(&self) -> Arc<[Alert]> {
        self.files.alerts()
    }

    fn pipeline<'a>(&'a self, name: &'a PipelineId) -> Known<'a> {
        Box::pin(self.declared(name))
    }

    fn prepare(&self, names: Vec<PipelineId>) -> PrepareFuture<'_> {
        Box::pin(async move {
            let asked = for_each(names, |name| async move {
                self.declared(&name).await;
                Ok(())
            });
            // What could not be read is asked for again when it is needed.
            drop(asked.await);
        })
    }

    fn silences(&self) -> Silences<'_> {
        Box::pin(async {
            let now = clock::now();
            if let Some((read_at, known)) = &*self.known()
                && now.duration_since(*read_at).abs() < SILENCES_KEPT
            {
                return Arc::clone(known);
            }
            let read = silences(self.store.as_ref(), &self.zones).await;
            let mut known = self.known();
            let read = in_force(read, known.as_ref().map(|(_, last)| last));
            *known = Some((now, Arc::clone(&read)));
            read
        })
    }

    fn trouble<'a>(&'a self, name: &'a PipelineId) -> Trouble<'a> {
        Box::pin(async move {
            let now = clock::now();
            if let Some(known) = self.troubles.get(name, now) {
                return known;
            }
            let shard = Shard::of(name, self.store.shard_count());
            // Every key comes after the empty one.
            let after = (name.clone(), String::new());
            let page = self.store.open_incidents(shard, Some(&after), TROUBLES).await.ok()?;
            let mut theirs = page.items.into_iter().filter(|(found, ..)| found == name);
            // What is only a warning, or a test, keeps nobody else from working.
            let is_bad =
                |row: &IncidentRecord| row.level == Level::Error.as_str() && row.kind != "BARK";
            let found = theirs.find(|(.., row)| is_bad(&row.record)).map(|(_, key, _)| key);
            self.troubles.keep(name, found.clone(), now);
            found
        })
    }
}

/// Answers about pipelines, believed for a moment: many alerts at once ask the same.
struct RecentAnswers<T> {
    kept: SignedDuration,
    answers: Mutex<AnswerPages<T>>,
}

/// Those of now, and those before them: when there are too many, the older half goes at once. To look for what is too old would cost each
/// answer a look at all of them.
struct AnswerPages<T> {
    now: BTreeMap<PipelineId, (Timestamp, T)>,
    before: BTreeMap<PipelineId, (Timestamp, T)>,
}

impl<T: Clone> RecentAnswers<T> {
    fn new(kept: SignedDuration) -> Self {
        let pages = AnswerPages { now: BTreeMap::new(), before: BTreeMap::new() };
        Self { kept, answers: Mutex::new(pages) }
    }

    fn get(&self, name: &PipelineId, now: Timestamp) -> Option<T> {
        let pages = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, answer) = pages.now.get(name).or_else(|| pages.before.get(name))?;
        (now.duration_since(*at).abs() < self.kept).then(|| answer.clone())
    }

    fn keep(&self, name: &PipelineId, answer: T, now: Timestamp) {
        let mut pages = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.now.len() >= ANSWERS_MAX / 2 {
            pages.before = std::mem::take(&mut pages.now);
        }
        pages.now.insert(name.clone(), (now, answer));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_store_that_does_not_answer_ends_no_silence() {
        let json = json!({
            "when": {}, "from": "2026-02-25T09:00:00Z", "reason": "a move", "by": "somebody",
        });
        let silence = Silence::from_json("s1", &json, &SystemZones::new()).unwrap();
        let lost = || Err(StoreError::retryable("the answer was lost"));
        assert!(in_force(lost(), None).is_empty());
        let known = in_force(Ok(vec![silence]), None);
        assert_eq!(in_force(lost(), Some(&known)), known);
        assert!(in_force(Ok(vec![]), Some(&known)).is_empty(), "it was ended");
    }

    #[test]
    fn answers_are_believed_for_a_moment_and_are_never_too_many() {
        let answers = RecentAnswers::new(DECLARED_KEPT);
        let name = |number: usize| PipelineId::parse(&format!("p{number}")).unwrap();
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        for number in 0..=ANSWERS_MAX {
            answers.keep(&name(number), number, at(0));
        }
        assert_eq!(answers.get(&name(7), at(1)), None, "the older half went");
        let last_half = ANSWERS_MAX / 2..=ANSWERS_MAX;
        assert!(last_half.clone().all(|it| answers.get(&name(it), at(1)) == Some(it)));
        assert_eq!(answers.get(&name(ANSWERS_MAX), at(2)), None, "it may have been edited");
        answers.keep(&name(ANSWERS_MAX - 1), 1, at(2));
        assert_eq!(answers.get(&name(ANSWERS_MAX - 1), at(2)), Some(1), "the newer one counts");
    }
}
