//! The sentinel: whether this process does its work, told to somebody outside (L5).
//!
//! It has a thread and a runtime of its own, so that whatever blocks the others does not block it. While there is
//! nothing to complain of it calls the beacons; while there is, it keeps silent, which is what the other side listens for.
//! What people must hear although the store, or the loop that would tell them, may be what is broken goes through the
//! `spool`. What is right and wrong with loops, store and outbox is judged by the engine's `wellness`, as in the simulator.

mod beacon;
mod interface;
mod spool;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, io, sync::Arc, thread, time::Duration};

use interlock_api::{Phase, Surface, Wellness};
use interlock_core::{duration, id::PipelineId};
use interlock_engine::{
    vitals::{Pulse, Vitals},
    wellness::{Complaint, Told, Wellness as Work},
};
use interlock_store::{
    Key, Record, Store, StoreError,
    kept::{BARKS_KEY, LastBark, barks},
};
use jiff::{SignedDuration, Timestamp};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep},
};

use self::interface::{Interface, News};
pub(crate) use self::{beacon::Beacons, spool::Spool};
use super::{
    notice::{Over, is_open, notice},
    unreached::Unreached,
};
use crate::clock;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often the store is asked to take a write.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// A store that is away for less is not worth waking anybody for.
const STORE_MAY_BE_AWAY: Duration = Duration::from_secs(5);
/// How long the last words may take.
const LAST_WORDS_IN: Duration = Duration::from_secs(10);
/// The clocks of this host and of the store may differ by this much.
const SKEW_MAX: SignedDuration = SignedDuration::from_secs(1);
/// By this much an instance does more harm than good.
const SKEW_ENDS: SignedDuration = SignedDuration::from_secs(5);
/// How long one look may take.
pub(crate) const BOUND: Duration = Duration::from_mins(1);
/// A bark may be so much later than it was ordered.
const BARK_LATE: SignedDuration = SignedDuration::from_mins(10);

/// What the sentinel needs of the rest.
pub(crate) struct Around {
    pub(crate) surface: Arc<Surface>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) beacons: Beacons,
    pub(crate) spool: Spool,
    pub(crate) pulse: Pulse,
    pub(crate) unreached: Arc<Unreached>,
}

/// The sentinel, at its post.
#[derive(Debug)]
pub(crate) struct Sentinel {
    last_words: mpsc::UnboundedSender<(String, oneshot::Sender<()>)>,
    /// Says so when this instance should end.
    pub(crate) stand_down: watch::Receiver<Option<String>>,
}

impl Sentinel {
    /// Takes its post, for as long as the process lives.
    pub(crate) fn start(
        around: impl FnOnce() -> io::Result<Around> + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (last_words, asked) = mpsc::unbounded_channel();
        let (ends, stand_down) = watch::channel(None);
        thread::Builder::new().name("sentinel".to_owned()).spawn(move || {
            runtime.block_on(async move {
                match around() {
                    Ok(around) => Post::new(around, ends).keep(asked).await,
                    Err(error) => tracing::error!(%error, "the self-check is not running"),
                }
            });
        })?;
        Ok(Self { last_words, stand_down })
    }

    /// The store has failed for good, and the process ends: people hear of it first.
    pub(crate) async fn last_words(&self, reason: String) {
        let (done, told) = oneshot::channel();
        if self.last_words.send((reason, done)).is_ok() {
            // A little longer than it may take.
            let _too_late = tokio::time::timeout(LAST_WORDS_IN * 2, told).await;
        }
    }
}

/// What the sentinel knows.
struct Post {
    around: Around,
    work: Work,
    /// From when on its time is counted.
    began: Instant,
    interface: Interface,
    asking: Option<JoinHandle<Result<Asked, String>>>,
    next_asked: Instant,
    /// Since when the store is away.
    away_since: Option<Instant>,
    complaints: Vec<Complaint>,
    ends: watch::Sender<Option<String>>,
    is_skewed: bool,
    /// What the store said of the barks.
    bark: Option<Complaint>,
    /// What is wrong with the certificate of the interface.
    certificate: Option<String>,
    /// Whether people were told last that it is good; nothing was told yet.
    certificate_told: Option<bool>,
}

/// What the store answered.
struct Asked {
    skew: SignedDuration,
    bark: Option<Complaint>,
}

impl Post {
    fn new(around: Around, ends: watch::Sender<Option<String>>) -> Self {
        Self {
            around,
            work: Work::default(),
            began: Instant::now(),
            interface: Interface::default(),
            asking: None,
            next_asked: Instant::now(),
            away_since: None,
            complaints: vec![],
            ends,
            is_skewed: false,
            bark: None,
            certificate: None,
            certificate_told: None,
        }
    }

    async fn keep(&mut self, mut asked: mpsc::UnboundedReceiver<(String, oneshot::Sender<()>)>) {
        loop {
            tokio::select! {
                biased;
                Some((reason, done)) = asked.recv() => {
                    self.say_last(reason).await;
                    let _nobody_waits = done.send(());
                }
                () = sleep(LOOK_EVERY) => self.look(Instant::now()).await,
            }
        }
    }

    async fn say_last(&mut self, reason: String) {
        let message = format!("STORE_UNREACHABLE: {reason}; `interlock serve` ends");
        self.around.spool.raise("store", "store_unreachable", message);
        self.around.spool.finish(Instant::now() + LAST_WORDS_IN).await;
    }

    async fn look(&mut self, now: Instant) {
        self.ask_the_store(now).await;
        self.judge_interface(now).await;
        self.judge_certificate().await;
        let complaints = self.found(now);
        self.log_what_changed(&complaints);
        self.complaints = complaints;
        self.sound_alarms(now).await;
        self.around.spool.go_on(now).await;
        self.around.beacons.take_up(now).await;
        let is_serving = self.around.surface.phase() == Phase::Serving;
        if is_serving && self.work.is_well(&self.complaints) {
            self.around.beacons.call(self.up(now));
        }
        let says = self.complaints.iter().map(|complaint| complaint.says.clone());
        // The interface still answers, so the beacons go on.
        let says = says.chain(self.certificate.clone()).collect();
        let beacons = self.around.beacons.standing(now);
        self.around.surface.take_wellness(Wellness { complaints: says, beacons });
        self.around.pulse.beat();
    }

    /// How long it has kept its post.
    fn up(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    fn found(&mut self, now: Instant) -> Vec<Complaint> {
        let told = Told::of(&self.around.vitals);
        let standing = self.around.surface.loops.look(now);
        let up = self.up(now);
        let mut found = self.work.look(&standing, told, up);
        if !found.iter().any(Complaint::is_about_the_store) {
            let unreached = self.around.unreached.says(self.around.store.shard_count(), now);
            found.extend(
                unreached.map(|says| Complaint::new("store", format!("the store: {says}"))),
            );
        }
        found.extend(self.interface.complaint.clone());
        found.extend(self.bark.clone());
        if self.is_skewed {
            let says = "the clocks of this host and of the store differ".to_owned();
            found.push(Complaint::new("skew", says));
        }
        found
    }

    fn log_what_changed(&self, now: &[Complaint]) {
        let names = |all: &[Complaint]| -> BTreeSet<String> {
            all.iter().map(|complaint| complaint.what.clone()).collect()
        };
        let (before, after) = (names(&self.complaints), names(now));
        for complaint in now.iter().filter(|complaint| !before.contains(&complaint.what)) {
            tracing::error!("{}; the beacons are silent", complaint.says);
        }
        if after.is_empty() && !before.is_empty() {
            tracing::info!("all is well again; the beacons are called again");
        }
    }

    /// Tells people what the outbox may not be able to tell them.
    async fn sound_alarms(&mut self, now: Instant) {
        let is_away = self.complaints.iter().any(Complaint::is_about_the_store);
        if is_away {
            self.around.surface.loops.excuse.beat();
        }
        self.away_since = if is_away { self.away_since.or(Some(now)) } else { None };
        let is_long = self
            .away_since
            .is_some_and(|since| now.saturating_duration_since(since) > STORE_MAY_BE_AWAY);
        let mut wrong = BTreeSet::new();
        for complaint in self.complaints.clone() {
            let Complaint { what, says } = complaint;
            if what == "store" && is_long {
                self.around.spool.raise(
                    &what,
                    "store_unreachable",
                    format!("STORE_UNREACHABLE: {says}"),
                );
            } else if what.starts_with("loop ") {
                self.around.spool.raise(&what, "loop_late", format!("LOOP_LATE: {says}"));
            }
            wrong.insert(what);
        }
        for what in self.around.spool.holds() {
            // What an earlier process left is over once this one has seen that it is.
            let is_known = what != "store" || self.work.store.is_proven();
            if !wrong.contains(&what) && is_known {
                self.end_alarm(&what).await;
            }
        }
    }

    async fn end_alarm(&mut self, what: &str) {
        let (message, event) = if what == "store" {
            ("the store accepts writes again", "STORE_WAS_UNREACHABLE")
        } else {
            ("the loop makes progress again", "LOOP_WAS_LATE")
        };
        let Some(since) = self.around.spool.end(what, message) else { return };
        tracing::info!("{message}");
        let message =
            format!("{message}; it began at {since}, and alerts were sent without the store");
        self.notice(event, what, message, Over::No).await;
    }

    /// Asks the store to take a write, one question at a time.
    async fn ask_the_store(&mut self, now: Instant) {
        if let Some(asking) = self.asking.take_if(|asking| asking.is_finished()) {
            let answer = asking.await.unwrap_or_else(|broken| Err(broken.to_string()));
            match answer {
                Ok(answered) => {
                    self.work.store.answered(Ok(()));
                    self.judge_bark(answered.bark).await;
                    self.judge_skew(answered.skew).await;
                }
                Err(error) => self.work.store.answered(Err(error)),
            }
        }
        if self.asking.is_none() && now >= self.next_asked {
            self.next_asked = now + ASK_EVERY;
            self.work.store.asked(self.up(now));
            self.asking = Some(tokio::spawn(ask(Arc::clone(&self.around.store))));
        }
    }

    /// A bark that does not come is an incident, as one that nobody hears; the next that is heard ends it.
    async fn judge_bark(&mut self, overdue: Option<Complaint>) {
        let is_known = self.bark.is_some();
        self.bark = overdue;
        if let Some(complaint) = self.bark.clone().filter(|_| !is_known) {
            self.notice("BARK_LOST", "barks", complaint.says, Over::No).await;
        }
    }

    /// An interface that nobody can reach is an incident: whoever reports to it believes that it is heard.
    async fn judge_interface(&mut self, now: Instant) {
        let reach = self.around.surface.reach();
        let certificate = self.around.surface.certificate.get().cloned();
        self.interface.look(&reach, certificate.as_ref(), now).await;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let thing = format!("the HTTP interface of {host}");
        let open = || ("jobs can report over HTTP again".to_owned(), Over::Yes);
        let (message, over) = match self.interface.news() {
            Some(News::Shut(says)) => (says, Over::No),
            Some(News::Open) => open(),
            Some(News::OpenFromTheStart) if self.is_incident(format!("http:{thing}")).await => {
                open()
            }
            Some(News::OpenFromTheStart) | None => return,
        };
        self.notice("HTTP_UNREACHABLE", &thing, message, over).await;
    }

    /// A certificate that clients will turn away from, or that could not be taken over, is an incident while the old one still serves.
    async fn judge_certificate(&mut self) {
        let Some(certificate) = self.around.surface.certificate.get() else { return };
        self.certificate = certificate.complaint();
        let thing =
            format!("the certificate of {}", rustix::system::uname().nodename().to_string_lossy());
        let is_good = self.certificate.is_none();
        if self.certificate_told == Some(is_good) {
            return;
        }
        // What an earlier process said of it may be over.
        let is_first = self.certificate_told.replace(is_good).is_none();
        let (message, over) = match self.certificate.clone() {
            Some(says) => (says, Over::No),
            None if is_first && !self.is_incident(format!("certificate:{thing}")).await => return,
            None => ("it can be used".to_owned(), Over::Yes),
        };
        self.notice("CERTIFICATE_UNUSABLE", &thing, message, over).await;
    }

    async fn judge_skew(&mut self, skew: SignedDuration) {
        let was_skewed = std::mem::replace(&mut self.is_skewed, skew > SKEW_MAX);
        if self.is_skewed != was_skewed {
            let over = if self.is_skewed { Over::No } else { Over::Yes };
            let message = format!("they differ by {} ms", skew.as_millis());
            self.notice("CLOCK_SKEW", "the clock of this host", message, over).await;
        }
        if skew > SKEW_ENDS {
            let reason =
                format!("the clocks of this host and of the store differ by {} s", skew.as_secs());
            self.ends.send_replace(Some(reason));
        }
    }

    /// Whether an incident is still open, of which an earlier process told.
    async fn is_incident(&self, key: String) -> bool {
        is_open(self.around.store.as_ref(), key).await.unwrap_or(false)
    }

    /// Has something recorded; a store that takes nothing now is known to take nothing.
    async fn notice(&self, event: &str, thing: &str, message: String, over: Over) {
        notice(self.around.store.as_ref(), (event, thing), message, over).await;
    }
}

/// An empty claim goes the way of every write, and leaves nothing behind.
async fn ask(store: Arc<dyn Store>) -> Result<Asked, String> {
    let failed = |error: StoreError| error.message;
    store.claim(0, SignedDuration::from_secs(1)).await.map_err(failed)?;
    let before = clock::now();
    let theirs = store.now().await.map_err(failed)?;
    let after = clock::now();
    // Between asking and hearing the store was right.
    let skew = before.duration_since(theirs).max(theirs.duration_since(after));
    let keys = [Key::Sensor(BARKS_KEY.to_owned()), LastBark::key()];
    let rows = store.read(&PipelineId::system(), &keys).await.map_err(failed)?;
    let (mut order, mut last) = (None, None);
    for row in rows.into_iter().flatten() {
        if let Record::Sensor(record) = &row.record {
            order = barks(record);
        } else if let Record::Due(record) = &row.record {
            last = LastBark::from_record(record).map(|last| last.at);
        }
    }
    Ok(Asked { skew, bark: bark_overdue(order, last, after) })
}

/// Whether a bark is overdue that somebody ordered.
fn bark_overdue(
    order: Option<(SignedDuration, Timestamp)>,
    last: Option<Timestamp>,
    now: Timestamp,
) -> Option<Complaint> {
    let (every, ordered_at) = order?;
    let since = last.map_or(ordered_at, |last| last.max(ordered_at));
    let limit = every.saturating_add(BARK_LATE);
    (now.duration_since(since) > limit).then(|| {
        let every = duration::format(every);
        Complaint::new("bark", format!("no bark since {since}, and one was ordered every {every}"))
    })
}
