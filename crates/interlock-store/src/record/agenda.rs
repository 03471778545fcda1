//! The stored twins of [`Agenda`]: what opening a pipeline's slots needs, in its row.
//!
//! A restart reads these rows and no declaration. Reading gives equal parts one place in memory
//! ([`Shared`]): a hundred thousand pipelines with a few hundred schedules and one calendar of holidays
//! then cost a pointer each.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{
    agenda::{Agenda, Work},
    calendar::Calendar,
    id::{PipelineId, fnv1a},
    pipeline::{Catchup, ControlAction, ControlSchedule, Evaluation, OverlapPolicy, StartSchedule},
    sla::{Deadline, SlaSpec},
    text::TextError,
    zone::Zone,
};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::{
    Unreadable,
    schedule::{CalendarRecord, ScheduleRecord},
};

/// See [`Agenda`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgendaRecord {
    /// `started`, `watched` or `dormant`.
    pub work: String,
    /// See [`Agenda::starts`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<StartRecord>,
    /// See [`Agenda::controls`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controls: Vec<ControlRecord>,
    /// See [`Evaluation::window`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<SignedDuration>,
    /// See [`Evaluation::interval`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<SignedDuration>,
    /// See [`Agenda::catchup`]; the default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catchup: Option<CatchupRecord>,
    /// See [`Agenda::sla`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sla: Option<SlaSpecRecord>,
    /// See [`Agenda::upstreams`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<String>,
    /// See [`Agenda::is_rehearsal`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_rehearsal: bool,
}

/// See [`Catchup`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatchupRecord {
    /// See [`Catchup::window`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<SignedDuration>,
    /// `skip`, `all` or `latest`.
    pub overlap: String,
    /// See [`Catchup::runs_max`].
    pub runs_max: u32,
}

/// See [`StartSchedule`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartRecord {
    /// When.
    pub schedule: ScheduleRecord,
    /// As files spell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// See [`StartSchedule::grace`].
    pub grace: SignedDuration,
    /// See [`StartSchedule::start_grace`].
    pub start_grace: SignedDuration,
    /// See [`StartSchedule::early`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<SignedDuration>,
    /// See [`StartSchedule::duration_max`].
    pub duration_max: SignedDuration,
    /// See [`StartSchedule::jitter`].
    #[serde(default, skip_serializing_if = "SignedDuration::is_zero")]
    pub jitter: SignedDuration,
}

/// See [`ControlSchedule`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlRecord {
    /// When.
    pub schedule: ScheduleRecord,
    /// `stop` or `restart`.
    pub action: String,
}

/// See [`SlaSpec`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlaSpecRecord {
    /// See [`SlaSpec::evaluation`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<String>,
    /// See [`SlaSpec::completion`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
    /// See [`SlaSpec::expected_duration`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_duration: Option<SignedDuration>,
    /// See [`SlaSpec::duration_max`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_max: Option<SignedDuration>,
    /// See [`SlaSpec::zone`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// See [`SlaSpec::critical`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub critical: bool,
}

/// Where zones come from, by name.
pub type Zones<'a> = &'a dyn Fn(&str) -> Option<Zone>;

/// What agendas have in common, kept once.
#[derive(Debug, Default)]
pub struct Shared {
    calendars: BTreeMap<CalendarRecord, Arc<Calendar>>,
    slas: BTreeMap<SlaSpecRecord, Arc<SlaSpec>>,
    /// By the hash of their text; the schedule itself is compared too.
    starts: BTreeMap<u64, Arc<StartSchedule>>,
    /// When what nobody uses any more is next looked for.
    sweep_at: usize,
}

impl Shared {
    pub(super) fn calendar(
        &mut self,
        record: &CalendarRecord,
    ) -> Result<Arc<Calendar>, Unreadable> {
        if let Some(found) = self.calendars.get(record) {
            return Ok(Arc::clone(found));
        }
        let calendar = Arc::new(record.to_core()?);
        self.calendars.insert(record.clone(), Arc::clone(&calendar));
        Ok(calendar)
    }

    fn start(
        &mut self,
        record: &StartRecord,
        zones: Zones<'_>,
    ) -> Result<Arc<StartSchedule>, Unreadable> {
        let text = serde_json::to_vec(record).unwrap_or_default();
        let start = record.to_core(self, zones)?;
        if self.starts.len() >= self.sweep_at.max(1_024) {
            self.sweep();
        }
        let known = self.starts.entry(fnv1a(&text)).or_insert_with(|| Arc::new(start.clone()));
        Ok(if **known == start { Arc::clone(known) } else { Arc::new(start) })
    }

    fn sla(
        &mut self,
        record: &SlaSpecRecord,
        zones: Zones<'_>,
    ) -> Result<Arc<SlaSpec>, Unreadable> {
        if let Some(found) = self.slas.get(record) {
            return Ok(Arc::clone(found));
        }
        let sla = Arc::new(record.to_core(zones)?);
        self.slas.insert(record.clone(), Arc::clone(&sla));
        Ok(sla)
    }

    /// Forgets what nobody uses; each time twice as much may have gathered.
    fn sweep(&mut self) {
        self.starts.retain(|_, start| Arc::strong_count(start) > 1);
        self.calendars.retain(|_, calendar| Arc::strong_count(calendar) > 1);
        self.slas.retain(|_, sla| Arc::strong_count(sla) > 1);
        self.sweep_at = self.starts.len() * 2;
    }
}

impl AgendaRecord {
    /// The stored twin of an agenda.
    pub fn from_core(agenda: &Agenda) -> Self {
        let work = match agenda.work {
            Work::Dormant => "dormant",
            Work::Watched => "watched",
            Work::Started => "started",
        };
        Self {
            work: work.to_owned(),
            starts: agenda.starts.iter().map(|start| StartRecord::from_core(start)).collect(),
            controls: agenda.controls.iter().map(|it| ControlRecord::from_core(it)).collect(),
            window: agenda.evaluation.window,
            interval: agenda.evaluation.interval,
            catchup: CatchupRecord::from_core(&agenda.catchup),
            sla: agenda.sla.as_deref().map(SlaSpecRecord::from_core),
            upstreams: agenda.upstreams.iter().map(ToString::to_string).collect(),
            is_rehearsal: agenda.is_rehearsal,
        }
    }

    /// The agenda it stands for.
    pub fn to_core(&self, shared: &mut Shared, zones: Zones<'_>) -> Result<Agenda, Unreadable> {
        let work = match self.work.as_str() {
            "dormant" => Work::Dormant,
            "watched" => Work::Watched,
            "started" => Work::Started,
            word => return Err(Unreadable::Word(word.to_owned())),
        };
        let starts = self.starts.iter().map(|start| shared.start(start, zones));
        let starts = starts.collect::<Result<_, _>>()?;
        let controls = self.controls.iter().map(|it| it.to_core(shared, zones).map(Arc::new));
        let controls = controls.collect::<Result<_, _>>()?;
        let evaluation = Evaluation { window: self.window, interval: self.interval };
        let catchup = self.catchup.as_ref().map(CatchupRecord::to_core).transpose()?;
        let catchup = catchup.unwrap_or_default();
        let sla = self.sla.as_ref().map(|sla| shared.sla(sla, zones)).transpose()?;
        let upstreams = self
            .upstreams
            .iter()
            .map(|name| PipelineId::parse(name).map_err(|error| Unreadable::Word(error.message)));
        let upstreams = upstreams.collect::<Result<_, _>>()?;
        let is_rehearsal = self.is_rehearsal;
        Ok(Agenda { work, starts, controls, evaluation, catchup, sla, upstreams, is_rehearsal })
    }
}

impl CatchupRecord {
    /// The stored twin; none of the default, which most pipelines have.
    fn from_core(catchup: &Catchup) -> Option<Self> {
        let Catchup { window, overlap, runs_max } = catchup;
        let overlap = overlap.as_str().to_owned();
        let record = Self { window: *window, overlap, runs_max: *runs_max };
        (*catchup != Catchup::default()).then_some(record)
    }

    fn to_core(&self) -> Result<Catchup, Unreadable> {
        let policy = OverlapPolicy::ALL.into_iter().find(|it| it.as_str() == self.overlap);
        let overlap = policy.ok_or_else(|| Unreadable::Word(self.overlap.clone()))?;
        Ok(Catchup { window: self.window, overlap, runs_max: self.runs_max })
    }
}

impl StartRecord {
    fn from_core(start: &StartSchedule) -> Self {
        let StartSchedule { schedule, deadline, grace, start_grace, early, duration_max, jitter } =
            start;
        Self {
            schedule: ScheduleRecord::from_core(schedule),
            deadline: deadline.map(|deadline| deadline.to_string()),
            grace: *grace,
            start_grace: *start_grace,
            early: *early,
            duration_max: *duration_max,
            jitter: *jitter,
        }
    }

    fn to_core(&self, shared: &mut Shared, zones: Zones<'_>) -> Result<StartSchedule, Unreadable> {
        Ok(StartSchedule {
            schedule: self.schedule.to_core(shared, zones)?,
            deadline: deadline(self.deadline.as_deref())?,
            grace: self.grace,
            start_grace: self.start_grace,
            early: self.early,
            duration_max: self.duration_max,
            jitter: self.jitter,
        })
    }
}

impl ControlRecord {
    fn from_core(control: &ControlSchedule) -> Self {
        let schedule = ScheduleRecord::from_core(&control.schedule);
        Self { schedule, action: control.action.as_str().to_owned() }
    }

    fn to_core(
        &self,
        shared: &mut Shared,
        zones: Zones<'_>,
    ) -> Result<ControlSchedule, Unreadable> {
        let action = match self.action.as_str() {
            "stop" => ControlAction::Stop,
            "restart" => ControlAction::Restart,
            word => return Err(Unreadable::Word(word.to_owned())),
        };
        Ok(ControlSchedule { schedule: self.schedule.to_core(shared, zones)?, action })
    }
}

impl SlaSpecRecord {
    fn from_core(sla: &SlaSpec) -> Self {
        Self {
            evaluation: sla.evaluation.map(|deadline| deadline.to_string()),
            completion: sla.completion.map(|deadline| deadline.to_string()),
            expected_duration: sla.expected_duration,
            duration_max: sla.duration_max,
            zone: sla.zone.as_ref().map(|zone| zone.name().to_owned()),
            critical: sla.critical,
        }
    }

    fn to_core(&self, zones: Zones<'_>) -> Result<SlaSpec, Unreadable> {
        Ok(SlaSpec {
            evaluation: deadline(self.evaluation.as_deref())?,
            completion: deadline(self.completion.as_deref())?,
            expected_duration: self.expected_duration,
            duration_max: self.duration_max,
            zone: self.zone.as_deref().map(|name| zone(name, zones)).transpose()?,
            critical: self.critical,
        })
    }
}

pub(super) fn zone(name: &str, zones: Zones<'_>) -> Result<Zone, Unreadable> {
    zones(name).ok_or_else(|| Unreadable::Word(name.to_owned()))
}

fn deadline(text: Option<&str>) -> Result<Option<Deadline>, Unreadable> {
    text.map(|text| Deadline::parse(text).map_err(unreadable)).transpose()
}

pub(super) fn unreadable(error: TextError) -> Unreadable {
    Unreadable::Word(error.message)
}
