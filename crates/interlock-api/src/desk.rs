//! Where reports and requests are handed in: durable in the inbox before anybody hears that they were taken.
//!
//! An answer that an entry was taken comes after the store's own (the daemon's writer makes many entries durable in
//! one write to the disk). What comes of a request is read from the store, under the same key, so that whoever
//! sends a key again gets the same answer.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use interlock_answers::ErrorCode;
use interlock_config::{SystemZones, ZoneSource as _};
use interlock_core::{id::PipelineId, pipeline::StartSchedule, schedule::Recurrence};
use interlock_store::{
    Key, Record, Store, StoreError,
    record::{AppliedRecord, PipelineRecord, Shared},
};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::{error::ApiError, surface::Surface};

/// How long it is believed that a pipeline is there.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// Pipelines that are remembered as known.
const KNOWN_MAX: usize = 100_000;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What there is of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Somebody else runs it, and reports.
    Watched {
        /// What is reported before this is about nothing that is owed.
        from: Option<Timestamp>,
    },
    /// It is declared, and takes no reports.
    Declared,
    /// There is none.
    Absent,
}

/// The desk of this process.
#[derive(Debug)]
pub(crate) struct Desk {
    /// What tells its keys from those of other processes.
    process: u64,
    count: AtomicU64,
    known: Mutex<BTreeMap<PipelineId, (Instant, Presence)>>,
    zones: SystemZones,
}

impl Default for Desk {
    fn default() -> Self {
        let process = RandomState::new().hash_one(std::process::id());
        let zones = SystemZones::new();
        Self { process, count: AtomicU64::new(0), known: Mutex::default(), zones }
    }
}

impl Surface {
    /// The store, or that it is not there yet.
    pub(crate) fn open_store(&self) -> Result<&Arc<dyn Store>, ApiError> {
        self.store.get().ok_or_else(ApiError::starting)
    }

    /// Whether a pipeline is declared. That it is, is believed for a few seconds.
    pub(crate) async fn presence(&self, pipeline: &PipelineId) -> Result<Presence, ApiError> {
        let now = Instant::now();
        if let Some(known) = self.desk.known(pipeline, now) {
            return Ok(known);
        }
        let rows = self.open_store()?.read(pipeline, &[Key::Pipeline]).await.map_err(refused)?;
        match rows.into_iter().flatten().next().map(|row| row.record) {
            Some(Record::Pipeline(record)) if record.retired_at.is_none() => {
                let presence = self.desk.presence(&record);
                self.desk.know(pipeline, (now, presence));
                Ok(presence)
            }
            _ => Ok(Presence::Absent),
        }
    }

    /// A pipeline that is declared, by its name.
    pub(crate) async fn declared(&self, name: &str) -> Result<PipelineId, ApiError> {
        let id = PipelineId::parse(name).map_err(|_unusable| unknown_pipeline(name))?;
        match self.presence(&id).await? {
            Presence::Watched { .. } | Presence::Declared => Ok(id),
            Presence::Absent => Err(unknown_pipeline(name)),
        }
    }

    /// What came of an entry, if that is known in time.
    pub(crate) async fn applied(
        &self,
        pipeline: &PipelineId,
        (key, wait): (&str, Duration),
    ) -> Result<Option<AppliedRecord>, ApiError> {
        let until = Instant::now() + wait;
        loop {
            let found = self.answered(pipeline, key).await?;
            if found.is_some() || Instant::now() >= until {
                return Ok(found);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What came of an entry, if that is known by now.
    pub(crate) async fn answered(
        &self,
        pipeline: &PipelineId,
        key: &str,
    ) -> Result<Option<AppliedRecord>, ApiError> {
        let keys = [Key::Applied(key.to_owned())];
        let rows = self.open_store()?.read(pipeline, &keys).await.map_err(refused)?;
        let found = rows.into_iter().flatten().next().map(|row| row.record);
        Ok(if let Some(Record::Applied(found)) = found {
            Some(Arc::unwrap_or_clone(found))
        } else {
            None
        })
    }
}

impl Desk {
    /// A key that nobody has used.
    pub(crate) fn fresh_key(&self) -> String {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        format!("http-{:016x}-{number}", self.process)
    }

    /// What its row says of a pipeline.
    fn presence(&self, record: &PipelineRecord) -> Presence {
        let Some(stored) = record.agenda.as_ref().filter(|agenda| agenda.work == "watched") else {
            return Presence::Declared;
        };
        let zones = |name: &str| self.zones.zone(name);
        let agenda = stored.to_core(&mut Shared::default(), &zones);
        // The owner will say what is wrong with one that cannot be read.
        let Ok(agenda) = agenda else { return Presence::Watched { from: None } };
        let first = |start: &Arc<StartSchedule>| {
            let nominal = start.schedule.after(record.first_seen)?;
            nominal.checked_sub(start.early_for(nominal)).ok()
        };
        let is_always = agenda.starts.iter().any(|start| match start.schedule.recurrence() {
            Recurrence::SinceLast { .. } | Recurrence::Daily => true,
            Recurrence::Cron(_)
            | Recurrence::Every { .. }
            | Recurrence::At { .. }
            | Recurrence::Once(_)
            | Recurrence::Dates { .. }
            | Recurrence::Sensor { .. } => false,
        });
        let from = agenda.starts.iter().filter_map(first).min().filter(|_| !is_always);
        Presence::Watched { from }
    }

    fn known(&self, pipeline: &PipelineId, now: Instant) -> Option<Presence> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |seen: Instant| now.saturating_duration_since(seen) < KNOWN_FOR;
        known.get(pipeline).filter(|(seen, _)| is_fresh(*seen)).map(|(_, presence)| *presence)
    }

    fn know(&self, pipeline: &PipelineId, found: (Instant, Presence)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(pipeline.clone(), found);
    }
}

/// The store did not do it. Nothing was taken, as far as is known; a key may be sent again.
pub(crate) fn refused(StoreError { message, .. }: StoreError) -> ApiError {
    let hint = "Nothing was recorded. Send it again; `interlock doctor` looks closer.";
    ApiError::new(ErrorCode::StoreUnreachable, format!("the store: {message}"), hint)
}

/// There is no such pipeline, and if nothing can be called so there cannot be.
pub(crate) fn unknown_pipeline(name: &str) -> ApiError {
    let hint = match PipelineId::parse(name) {
        Ok(_) => "`interlock list` names them; `?create=1` on a ping makes one.",
        Err(_) => {
            "`interlock list` names them. A name has 2 to 255 characters of a-z, 0-9, `.`, `_` and `-`, with a \
             letter or digit at both ends."
        }
    };
    ApiError::new(ErrorCode::PipelineUnknown, format!("there is no pipeline `{name}`"), hint)
}

/// Interlock runs it itself, or nobody does.
pub(crate) fn not_watched(name: &PipelineId) -> ApiError {
    ApiError::new(
        ErrorCode::NotWatched,
        format!("{name} takes no reports: Interlock runs its jobs itself"),
        "Only a pipeline with `trigger: {type: external}` does. `interlock events --rejected` has it.",
    )
}
