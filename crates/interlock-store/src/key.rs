//! Addresses of rows within a pipeline.

use std::fmt;

use interlock_core::{
    id::{PipelineId, ScheduleId},
    text::TextError,
};
use jiff::{Timestamp, tz::Offset};

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
    /// A backfill, by its number.
    Backfill(u64),
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
            Self::Backfill(_) => "backfill",
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
            | Self::Applied(_)
            | Self::Backfill(_) => None,
        }
    }

    /// The name in it that somebody outside may have chosen, if there is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Sensor(name)
            | Self::Incident(name)
            | Self::Due(_, _, name)
            | Self::Outbox(name)
            | Self::Applied(name) => Some(name),
            Self::Pipeline
            | Self::Version(_)
            | Self::Watermark(_)
            | Self::Slot(..)
            | Self::Span(..)
            | Self::Run(_)
            | Self::Backfill(_) => None,
        }
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('/').unwrap_or((text, ""));
        let name = || Some(rest.to_owned()).filter(|_| text.contains('/'));
        match kind {
            "pipeline" => Some(Self::Pipeline).filter(|_| text == kind),
            "version" => u64::from_str_radix(rest, 16).ok().map(Self::Version),
            "watermark" => ScheduleId::any(rest).ok().map(Self::Watermark),
            "slot" => parse_slot(rest).map(|(schedule, at)| Self::Slot(schedule, at)),
            "span" => parse_slot(rest).map(|(schedule, at)| Self::Span(schedule, at)),
            "run" => RunKey::parse_place(rest).map(Self::Run),
            "sensor" => name().map(Self::Sensor),
            "incident" => name().map(Self::Incident),
            "due" => {
                let (at, rest) = rest.split_once('/')?;
                let (kind, name) = rest.split_once('/')?;
                Some(Self::Due(at.parse().ok()?, DueKind::parse(kind)?, name.to_owned()))
            }
            "outbox" => name().map(Self::Outbox),
            "applied" => name().map(Self::Applied),
            "backfill" => rest.parse().ok().filter(|_| rest.len() == 10).map(Self::Backfill),
            _ => None,
        }
    }
}

/// Writes it as engines may store it: the kind, then the parts, such as
/// `slot/daily/2026-02-25T09:00:00.000Z`. Instants have a fixed width, so that their text sorts by time.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Pipeline => f.write_str(kind),
            Self::Version(version) => write!(f, "{kind}/{version:016x}"),
            Self::Watermark(schedule) => write!(f, "{kind}/{schedule}"),
            Self::Slot(schedule, at) | Self::Span(schedule, at) => {
                write!(f, "{kind}/{schedule}/{}", fixed(*at))
            }
            Self::Run(RunKey { schedule, nominal, generation, attempt }) => {
                write!(f, "{kind}/{schedule}/{}/{generation}/{attempt}", fixed(*nominal))
            }
            Self::Due(at, due, name) => {
                write!(f, "{kind}/{}/{}/{name}", fixed(*at), due.as_str())
            }
            Self::Sensor(name)
            | Self::Incident(name)
            | Self::Outbox(name)
            | Self::Applied(name) => write!(f, "{kind}/{name}"),
            Self::Backfill(number) => write!(f, "{kind}/{number:010}"),
        }
    }
}

/// An instant with milliseconds, always.
fn fixed(at: Timestamp) -> jiff::fmt::strtime::Display<'static> {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ")
}

fn parse_slot(text: &str) -> Option<(ScheduleId, Timestamp)> {
    let (schedule, at) = text.split_once('/')?;
    Some((ScheduleId::any(schedule).ok()?, at.parse().ok()?))
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

    /// Reads the word for it.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
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
        let (pipeline, schedule) = (pipeline.as_str(), schedule.as_str());
        let mut id = String::with_capacity(pipeline.len() + schedule.len() + 32);
        for part in [pipeline, "~", schedule, "~"] {
            id.push_str(part);
        }
        // Said several times of every run: digit by digit is ten times as fast as by a format that is read each time.
        let at = Offset::UTC.to_datetime(*nominal);
        let time = [at.hour(), at.minute(), at.second()];
        push_digits(&mut id, at.year().unsigned_abs().into(), 4);
        push_digits(&mut id, at.month().unsigned_abs().into(), 2);
        push_digits(&mut id, at.day().unsigned_abs().into(), 2);
        id.push('T');
        for part in time {
            push_digits(&mut id, part.unsigned_abs().into(), 2);
        }
        if at.millisecond() != 0 {
            id.push('.');
            push_digits(&mut id, at.millisecond().unsigned_abs().into(), 3);
        }
        id.push_str("Z~");
        push_digits(&mut id, *generation, 1);
        id.push('~');
        push_digits(&mut id, *attempt, 1);
        id
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

impl RunKey {
    /// Reads `schedule/instant/generation/attempt`.
    fn parse_place(text: &str) -> Option<Self> {
        let (slot, rest) = text.match_indices('/').nth(1).map(|(at, _)| text.split_at(at))?;
        let (schedule, nominal) = parse_slot(slot)?;
        let (generation, attempt) = rest.strip_prefix('/')?.split_once('/')?;
        let (generation, attempt) = (generation.parse().ok()?, attempt.parse().ok()?);
        Some(Self { schedule, nominal, generation, attempt })
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedule, nominal, generation, attempt } = self;
        write!(f, "{schedule}/{nominal} generation {generation} attempt {attempt}")
    }
}

/// Writes a number with so many digits at least.
fn push_digits(text: &mut String, number: u32, digits: usize) {
    let mut buffer = *b"0000000000";
    let (mut at, mut rest) = (buffer.len(), number);
    while rest > 0 {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let first = at.min(buffer.len() - digits);
    text.extend(buffer[first..].iter().map(|digit| char::from(*digit)));
}

/// Reads `20260225T090000Z` or `20260225T090000.123Z`.
fn parse_compact(text: &str) -> Option<Timestamp> {
    text.parse().ok().filter(|_| text.len() >= 16 && text.ends_with('Z'))
}

#[cfg(test)]
mod tests;
