//! Addresses of rows within a pipeline.

use std::fmt;

use interlock_core::{
    id::{PipelineId, ScheduleId},
    text::TextError,
};
use jiff::Timestamp;

/// The address of a row within its pipeline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The pipeline itself.
    Pipeline,
    /// One version of its declaration.
    Version(u64),
    /// How far one of its schedules is recorded.
    Watermark(ScheduleId),
    /// One slot.
    Slot(ScheduleId, Timestamp),
    /// Many slots in a row with the same fate, by the first.
    Span(ScheduleId, Timestamp),
    /// One run.
    Run(RunKey),
    /// One sensor, by its key.
    Sensor(String),
    /// One incident, by its dedup key.
    Incident(String),
    /// Somebody must look at something at an instant.
    Due(Timestamp, DueKind, String),
    /// A notification, by incident, channel and number.
    Outbox(String),
    /// The answer to an inbox entry, by its idempotency key.
    Applied(String),
}

impl Key {
    /// The word for what kind of row it addresses, as stored.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline",
            Self::Version(_) => "version",
            Self::Watermark(_) => "watermark",
            Self::Slot(..) => "slot",
            Self::Span(..) => "span",
            Self::Run(_) => "run",
            Self::Sensor(_) => "sensor",
            Self::Incident(_) => "incident",
            Self::Due(..) => "due",
            Self::Outbox(_) => "outbox",
            Self::Applied(_) => "applied",
        }
    }

    /// The instant in it, if there is one; in whole milliseconds.
    pub fn instant(&self) -> Option<Timestamp> {
        match self {
            Self::Slot(_, at) | Self::Span(_, at) | Self::Due(at, ..) => Some(*at),
            Self::Run(run) => Some(run.nominal),
            Self::Pipeline
            | Self::Version(_)
            | Self::Watermark(_)
            | Self::Sensor(_)
            | Self::Incident(_)
            | Self::Outbox(_)
            | Self::Applied(_) => None,
        }
    }
}

/// What there is to look at when something is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueKind {
    /// A slot reaches its `closes_at`.
    Closes,
    /// An SLA warning.
    SlaWarning,
    /// An SLA breach.
    SlaBreach,
    /// A run may be stuck.
    Stuck,
    /// A post-run sensor should have come.
    PostRun,
    /// A pause ends.
    Pause,
}

impl DueKind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Closes, Self::SlaWarning, Self::SlaBreach, Self::Stuck, Self::PostRun, Self::Pause];

    /// The word for it, as stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closes => "closes",
            Self::SlaWarning => "sla_warning",
            Self::SlaBreach => "sla_breach",
            Self::Stuck => "stuck",
            Self::PostRun => "post_run",
            Self::Pause => "pause",
        }
    }
}

/// One attempt at a slot. Its text is the run's id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// Which schedule's slot.
    pub schedule: ScheduleId,
    /// Which slot.
    pub nominal: Timestamp,
    /// Which generation of it.
    pub generation: u32,
    /// Which attempt of that.
    pub attempt: u32,
}

impl RunKey {
    /// The id of the run: `pipeline~schedule~20260225T090000Z~generation~attempt`.
    pub fn id(&self, pipeline: &PipelineId) -> String {
        let Self { schedule, nominal, generation, attempt } = self;
        let instant = match nominal.subsec_millisecond() {
            0 => nominal.strftime("%Y%m%dT%H%M%SZ").to_string(),
            millis => format!("{}.{millis:03}Z", nominal.strftime("%Y%m%dT%H%M%S")),
        };
        format!("{pipeline}~{schedule}~{instant}~{generation}~{attempt}")
    }

    /// Takes a run's id apart.
    pub fn parse(id: &str) -> Result<(PipelineId, Self), TextError> {
        let wrong = || {
            TextError::new(
                0..id.len(),
                format!("`{id}` is not the id of a run"),
                "It looks like `orders~daily~20260225T090000Z~1~1`; `interlock runs` lists them.",
            )
        };
        let mut parts = id.split('~');
        let mut next = || parts.next().ok_or_else(wrong);
        let pipeline = PipelineId::parse(next()?)?;
        let schedule = ScheduleId::any(next()?).map_err(|_ignored| wrong())?;
        let nominal = parse_compact(next()?).ok_or_else(wrong)?;
        let generation = next()?.parse().map_err(|_ignored| wrong())?;
        let attempt = next()?.parse().map_err(|_ignored| wrong())?;
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok((pipeline, Self { schedule, nominal, generation, attempt }))
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedule, nominal, generation, attempt } = self;
        write!(f, "{schedule}/{nominal} generation {generation} attempt {attempt}")
    }
}

/// Reads `20260225T090000Z` or `20260225T090000.123Z`.
fn parse_compact(text: &str) -> Option<Timestamp> {
    text.parse().ok().filter(|_| text.len() >= 16 && text.ends_with('Z'))
}
