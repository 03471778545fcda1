//! What is to be told while there may be no store: a file beside it, and the channels themselves (S13).
//!
//! An alarm is kept as far as the disk lets it, tried on every channel that its route names until each has it, and told as
//! over to those. The file goes when that is done; one that is there at a start belongs to a process that could not
//! finish, and is told by the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use interlock_alert::{AlertMessage, Book, Channels as _, Console, Delivery, Known, LocalChannels};
use interlock_config::server::Alert as Declared;
use interlock_core::{
    id::PipelineId,
    incident::{Alert, IncidentState, Level},
};
use interlock_private_files as private_files;
use interlock_trigger::web::Web;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::{clock, serve::files::Files};

/// The folder of alarms, in the state folder.
const FOLDER: &str = "spool";
/// When a channel that did not take an alarm is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The alarms that are not yet told to everybody.
pub(crate) struct Spool {
    folder: PathBuf,
    channels: Arc<LocalChannels>,
    alarms: BTreeMap<String, Alarm>,
    tries: JoinSet<Tried>,
}

/// Something that people must hear of, store or no store.
#[derive(Debug, Clone)]
struct Alarm {
    alert: Alert,
    /// Who has it.
    told: BTreeSet<String>,
    /// What says that it is over, once it is, and who has that.
    over: Option<Alert>,
    ended: BTreeSet<String>,
    /// When it is tried next.
    next_at: Option<Instant>,
    /// Whether somebody is being told right now.
    under_way: usize,
}

impl Alarm {
    fn new(alert: Alert, told: BTreeSet<String>) -> Self {
        let ended = BTreeSet::new();
        Self { alert, told, over: None, ended, next_at: None, under_way: 0 }
    }
}

/// What came of telling a channel.
struct Tried {
    what: String,
    channel: String,
    state: IncidentState,
    delivery: Delivery,
}

/// The channels of the files as they are, and no pipelines: those are in the store.
struct FilesAlone(Files);

impl Book for FilesAlone {
    fn channels(&self) -> Arc<[Declared]> {
        self.0.alerts()
    }

    fn pipeline<'a>(&'a self, _: &'a PipelineId) -> Known<'a> {
        Box::pin(std::future::ready(None))
    }
}

impl Spool {
    /// The spool of a state folder, with what an earlier process left.
    pub(crate) fn open(state: &Path, files: Files, web: Web, console: Console) -> Self {
        let folder = state.join(FOLDER);
        let directory = files.directory().to_path_buf();
        let book = Arc::new(FilesAlone(files));
        let channels = Arc::new(LocalChannels::new(book, web, console, directory));
        let alarms = left_behind(&folder);
        Self { folder, channels, alarms, tries: JoinSet::new() }
    }

    /// What it holds, by what it is about.
    pub(crate) fn holds(&self) -> BTreeSet<String> {
        let open = self.alarms.iter().filter(|(_, alarm)| alarm.over.is_none());
        open.map(|(what, _)| what.clone()).collect()
    }

    /// Raises an alarm, unless it is raised already.
    pub(crate) fn raise(&mut self, what: &str, alert_type: &str, message: String) {
        if self.alarms.get(what).is_some_and(|alarm| alarm.over.is_none()) {
            return;
        }
        tracing::error!("{message}; telling the channels without the store");
        let now = clock::now();
        let details = BTreeMap::from([
            ("state".to_owned(), json!(IncidentState::Open.as_str())),
            ("type".to_owned(), json!(alert_type)),
            ("incident".to_owned(), json!(format!("{what}:{}", now.as_millisecond()))),
        ]);
        let alert = Alert {
            level: Level::Error.as_str().to_owned(),
            alert_type: alert_type.to_owned(),
            pipeline_id: PipelineId::system().to_string(),
            message,
            details,
            timestamp: now,
        };
        let alarm = Alarm::new(alert, BTreeSet::new());
        self.keep(what, &alarm);
        self.alarms.insert(what.to_owned(), alarm);
    }

    /// It is over: whoever was told is told so. Answers since when it was, if it was raised.
    pub(crate) fn end(&mut self, what: &str, message: &str) -> Option<Timestamp> {
        let alarm = self.alarms.get_mut(what).filter(|alarm| alarm.over.is_none())?;
        let mut over = alarm.alert.clone();
        over.message = format!("{message} (it began with: {})", alarm.alert.message);
        over.timestamp = clock::now();
        over.details.insert("state".to_owned(), json!(IncidentState::Resolved.as_str()));
        (alarm.over, alarm.next_at) = (Some(over), None);
        Some(alarm.alert.timestamp)
    }

    /// Tells whoever has not been told, and takes up what came of it. Ends at once; telling goes on beside it.
    pub(crate) async fn go_on(&mut self, now: Instant) {
        while let Some(tried) = self.tries.try_join_next() {
            self.take(tried, now);
        }
        let due: Vec<_> = self
            .alarms
            .iter()
            .filter(|(_, alarm)| alarm.under_way == 0 && alarm.next_at.is_none_or(|at| at <= now))
            .map(|(what, alarm)| (what.clone(), alarm.clone()))
            .collect();
        for (what, alarm) in due {
            self.tell(what, alarm, now).await;
        }
    }

    /// The same until everybody was told or it has taken too long.
    pub(crate) async fn finish(&mut self, until: Instant) {
        loop {
            self.go_on(Instant::now()).await;
            let is_done = self.alarms.values().all(|alarm| alarm.under_way == 0);
            if is_done || Instant::now() >= until {
                return;
            }
            if let Ok(Some(tried)) = tokio::time::timeout_at(until, self.tries.join_next()).await {
                self.take(tried, Instant::now());
            }
        }
    }

    async fn tell(&mut self, what: String, alarm: Alarm, now: Instant) {
        let wanted: BTreeSet<String> =
            self.channels.route(&alarm.alert).await.into_iter().collect();
        // The end goes to those who heard the beginning, and after it.
        let untold = &wanted - &alarm.told;
        let (alert, state, names) = match &alarm.over {
            Some(over) if untold.is_empty() => {
                (over, IncidentState::Resolved, &alarm.told - &alarm.ended)
            }
            Some(_) | None => (&alarm.alert, IncidentState::Open, untold),
        };
        if names.is_empty() {
            if alarm.over.is_some() {
                self.forget(&what);
            } else if let Some(alarm) = self.alarms.get_mut(&what) {
                alarm.next_at = Some(now + AGAIN_AFTER);
            }
            return;
        }
        if let Some(alarm) = self.alarms.get_mut(&what) {
            (alarm.under_way, alarm.next_at) = (names.len(), Some(now + AGAIN_AFTER));
        }
        for channel in names {
            let incident = alert.incident().unwrap_or(&what);
            let key = format!("spool/{incident}/{}", state.as_str());
            let notice = AlertMessage { alert: alert.clone(), key, at: clock::now() };
            let (channels, what) = (Arc::clone(&self.channels), what.clone());
            self.tries.spawn(async move {
                let delivery = channels.deliver(&channel, notice).await;
                Tried { what, channel, state, delivery }
            });
        }
    }

    fn take(&mut self, tried: Result<Tried, tokio::task::JoinError>, now: Instant) {
        let Ok(Tried { what, channel, state, delivery }) = tried else { return };
        let Some(alarm) = self.alarms.get_mut(&what) else { return };
        alarm.under_way = alarm.under_way.saturating_sub(1);
        match delivery {
            Delivery::Delivered => {}
            Delivery::Refused { reason } => {
                tracing::error!("{channel} refused an alarm: {reason}");
            }
            Delivery::Failed { reason, .. } => {
                tracing::error!("{channel} did not take an alarm: {reason}");
                alarm.next_at = Some(now + AGAIN_AFTER);
                return;
            }
        }
        match state {
            IncidentState::Open | IncidentState::Acknowledged => alarm.told.insert(channel),
            IncidentState::Resolved => alarm.ended.insert(channel),
        };
        if alarm.over.is_some() {
            alarm.next_at = None;
        }
        let alarm = alarm.clone();
        self.keep(&what, &alarm);
    }

    /// Writes an alarm down. A disk that takes nothing keeps nobody from being told.
    fn keep(&self, what: &str, alarm: &Alarm) {
        let told: Vec<&String> = alarm.told.iter().collect();
        let text =
            json!({ "what": what, "alert": alarm.alert.to_json(), "told": told }).to_string();
        let path = self.folder.join(file_name(what));
        let written = private_files::create_folder(&self.folder)
            .and_then(|()| private_files::replace(&path, &text));
        if let Err(error) = written {
            tracing::warn!(
                "an alarm is sent, but cannot be written to {}: {error}",
                path.display()
            );
        }
    }

    fn forget(&mut self, what: &str) {
        self.alarms.remove(what);
        let _never_written = fs::remove_file(self.folder.join(file_name(what)));
    }
}

fn file_name(what: &str) -> String {
    format!("{}.json", what.replace(|c: char| !c.is_ascii_alphanumeric(), "-"))
}

/// The alarms of a process that could not finish.
fn left_behind(folder: &Path) -> BTreeMap<String, Alarm> {
    let mut alarms = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let Ok(value) = serde_json::from_str::<Value>(&text) else { continue };
        let Some(what) = value.get("what").and_then(Value::as_str) else { continue };
        let told = value.get("told").and_then(Value::as_array).into_iter().flatten();
        let told = told.filter_map(Value::as_str).map(str::to_owned).collect();
        let alert = Alert::from_json(value.get("alert").unwrap_or(&Value::Null));
        let alarm = Alarm::new(alert, told);
        alarms.insert(what.to_owned(), alarm);
    }
    alarms
}
