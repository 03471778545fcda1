//! What is kept of one pipeline.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::{
    agenda::{Agenda, Work},
    id::{PipelineId, ScheduleId},
    pipeline::StartSchedule,
};
use interlock_store::record::{PauseRecord, PipelineRecord, Shared};
use jiff::Timestamp;

use super::{
    cells::{PackedCells, Quarter},
    history::PipelineHistory,
    seen::{DecidedSlot, OpenSlot, QuarterRange, RecordedSlot, RowProblem, SeenRows},
    summary::RowSummary,
};
use crate::model::fleet::FleetState;

/// Quarters that are kept in memory before the present one: 48 hours.
pub(super) const QUARTERS_KEPT: i64 = 192;
/// Open slots of one pipeline that are kept each by itself.
const OPEN_KEPT: usize = 50;
/// Slots that are recorded ahead of their schedule and kept each by itself.
const AHEAD_KEPT: usize = 100;

/// The first quarter that is kept at an instant.
pub(super) fn first_kept(now: Timestamp) -> Quarter {
    Quarter::of(now).after(-QUARTERS_KEPT)
}

/// What is kept of a pipeline.
#[derive(Debug, Clone)]
pub(super) struct TalliedPipeline {
    pub(super) declared: TalliedDeclaration,
    pub(super) cells: PackedCells,
    pub(super) ahead: Box<[RecordedSlot]>,
    pub(super) open: Box<[OpenSlot]>,
    pub(super) last: Option<DecidedSlot>,
    pub(super) incidents: Box<[TalliedIncident]>,
    /// What is known of the time before that: none of most.
    pub(super) history: Option<Box<PipelineHistory>>,
    /// A row of it that could not be read.
    pub(super) problem: Option<Box<RowProblem>>,
    /// Where lists and sums have it: kept by the index.
    pub(super) summary: RowSummary,
}

/// What is declared of it.
#[derive(Debug, Clone)]
pub(super) struct TalliedDeclaration {
    pub(super) revision: u64,
    pub(super) about: Arc<TalliedAbout>,
    pub(super) schedules: Box<[TalliedSchedule]>,
    pub(super) pause: Option<Box<PauseRecord>>,
    pub(super) is_watch_only: bool,
}

/// What people know it by. Many pipelines have the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TalliedAbout {
    pub(super) owner: Option<Box<str>>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) trigger: Option<Box<str>>,
    pub(super) description: Option<Box<str>>,
}

/// A schedule whose slots are owed.
#[derive(Debug, Clone)]
pub(super) struct TalliedSchedule {
    pub(super) start: Arc<StartSchedule>,
    /// Up to when it is recorded.
    pub(super) watermark: Timestamp,
    /// The first slot behind that.
    pub(super) owed_from: Option<Timestamp>,
}

/// An incident that is not resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TalliedIncident {
    pub(super) opened_at: Timestamp,
    pub(super) message: Box<str>,
    /// The state that it is a reason for; none of one that says nothing of slots.
    pub(super) state: Option<FleetState>,
}

/// What many pipelines have in common, kept once.
#[derive(Debug, Default)]
pub(super) struct SharedParts {
    agendas: Shared,
    abouts: BTreeSet<Arc<TalliedAbout>>,
}

impl SharedParts {
    fn about(&mut self, about: TalliedAbout) -> Arc<TalliedAbout> {
        if let Some(known) = self.abouts.get(&about) {
            return Arc::clone(known);
        }
        let about = Arc::new(about);
        self.abouts.insert(Arc::clone(&about));
        about
    }

    /// Forgets what no pipeline has any more.
    pub(super) fn sweep(&mut self) {
        self.abouts.retain(|about| Arc::strong_count(about) > 1);
    }
}

/// A pipeline's row as it is stored.
#[derive(Clone, Copy)]
pub(super) struct StoredPipeline<'a> {
    pub(super) name: &'a PipelineId,
    pub(super) record: &'a PipelineRecord,
    pub(super) revision: u64,
}

/// How a declaration is read.
pub(super) struct DeclarationParts<'a> {
    pub(super) shared: &'a mut SharedParts,
    pub(super) zones: &'a dyn Fn(&str) -> Option<interlock_core::zone::Zone>,
}

impl DeclarationParts<'_> {
    /// What is kept of a pipeline's row; none of one that is retired. A sentence when its schedules cannot be read: its slots are
    /// counted all the same, and none is planned.
    pub(super) fn declaration(
        &mut self,
        row: StoredPipeline<'_>,
        watermark: impl Fn(&ScheduleId) -> Option<Timestamp>,
    ) -> Option<(TalliedDeclaration, Option<String>)> {
        let StoredPipeline { record, revision, .. } = row;
        if record.retired_at.is_some() {
            return None;
        }
        let (agenda, problem) = match &record.agenda {
            None => (None, None),
            Some(agenda) => match agenda.to_core(&mut self.shared.agendas, self.zones) {
                Ok(agenda) => (Some(agenda), None),
                Err(error) => (None, Some(format!("its schedules cannot be read: {error}"))),
            },
        };
        let schedules = agenda.iter().flat_map(Agenda::owed).map(|start| {
            let mark = watermark(start.schedule.id()).unwrap_or(record.first_seen);
            TalliedSchedule::new(Arc::clone(start), mark)
        });
        let schedules = schedules.collect();
        let about = record.about.as_deref().cloned().unwrap_or_default();
        let about = TalliedAbout {
            owner: about.owner.map(String::into_boxed_str),
            labels: about.labels,
            trigger: about.trigger.map(|word| word.as_str().into()),
            description: about.description.map(String::into_boxed_str),
        };
        let declaration = TalliedDeclaration {
            revision,
            about: self.shared.about(about),
            schedules,
            pause: record.pause.clone().map(Box::new),
            is_watch_only: agenda.is_some_and(|agenda| agenda.work == Work::Watched),
        };
        Some((declaration, problem))
    }
}

impl TalliedSchedule {
    fn new(start: Arc<StartSchedule>, watermark: Timestamp) -> Self {
        let owed_from = start.schedule.after(watermark);
        Self { start, watermark, owed_from }
    }
}

impl TalliedDeclaration {
    /// The schedule of an id.
    pub(super) fn schedule(&self, id: &ScheduleId) -> Option<&TalliedSchedule> {
        self.schedules.iter().find(|it| it.start.schedule.id() == id)
    }

    /// Whether anything is due and not recorded.
    pub(super) fn owes(&self, now: Timestamp) -> bool {
        self.schedules.iter().any(|it| it.owed_from.is_some_and(|from| from <= now))
    }

    fn start(&self, id: &ScheduleId) -> Option<Arc<StartSchedule>> {
        self.schedule(id).map(|it| Arc::clone(&it.start))
    }
}

impl TalliedPipeline {
    /// A pipeline of which nothing is counted yet.
    pub(super) fn new(declared: TalliedDeclaration) -> Self {
        Self {
            declared,
            cells: PackedCells::default(),
            ahead: Box::default(),
            open: Box::default(),
            last: None,
            incidents: Box::default(),
            history: None,
            problem: None,
            summary: RowSummary::none(),
        }
    }

    /// Takes over what the ledger says of a range, in place of what was counted there.
    pub(super) fn take(&mut self, range: QuarterRange, seen: &SeenRows, now: Timestamp) {
        let base = first_kept(now);
        let counted = seen.counted(range, &|id| self.declared.start(id));
        self.cells = self.cells.replaced(base, (range.from, range.until), counted);
        let kept = self.ahead.iter().filter(|slot| !range.has(slot.at)).cloned();
        let behind = seen.behind(|id| self.declared.schedule(id).map(|it| it.watermark));
        let mut ahead: Vec<_> =
            kept.chain(behind.into_iter().filter(|slot| range.has(slot.at))).collect();
        ahead.sort_unstable();
        ahead.truncate(AHEAD_KEPT);
        self.ahead = ahead.into();
        let open: Vec<_> = seen.open.iter().filter(|slot| range.has(slot.at)).copied().collect();
        let kept = self.open.iter().filter(|slot| !range.has(slot.at)).copied();
        self.take_open(kept.chain(open).collect());
        let kept = self.last.filter(|last| !range.has(last.at) && Quarter::of(last.at) >= base);
        let decided = seen.decided(range).filter(|slot| Quarter::of(slot.at) >= base);
        self.last = kept.into_iter().chain(decided).max_by_key(|slot| slot.at);
        let is_known =
            |it: &RowProblem| it.at >= base && !(range.from <= it.at && it.at < range.until);
        let known = self.problem.take().filter(|it| is_known(it));
        self.problem = seen.problem.clone().map(Box::new).or(known);
    }

    /// Whether the last decided slot has to be looked for anew, because it stood in a range in which there is none now.
    pub(super) fn loses_last(&self, range: QuarterRange, seen: &SeenRows) -> bool {
        self.last.is_some_and(|last| range.has(last.at)) && seen.decided(range).is_none()
    }

    /// Takes over which slots are open.
    pub(super) fn take_open(&mut self, mut open: Vec<OpenSlot>) {
        open.sort_unstable_by_key(|slot| (slot.at, slot.place));
        open.truncate(OPEN_KEPT);
        self.open = open.into();
    }

    /// Whether its schedules are known to be recorded so far.
    pub(super) fn is_recorded_to(
        &self,
        watermark: impl Fn(&ScheduleId) -> Option<Timestamp>,
    ) -> bool {
        let mut schedules = self.declared.schedules.iter();
        schedules.all(|it| watermark(it.start.schedule.id()).is_none_or(|at| at == it.watermark))
    }

    /// Takes over how far its schedules are recorded now.
    pub(super) fn recorded_to(&mut self, watermark: impl Fn(&ScheduleId) -> Option<Timestamp>) {
        for schedule in &mut self.declared.schedules {
            let mark = watermark(schedule.start.schedule.id()).unwrap_or(schedule.watermark);
            if mark != schedule.watermark {
                *schedule = TalliedSchedule::new(Arc::clone(&schedule.start), mark);
            }
        }
        self.forget_what_is_passed();
    }

    /// Takes over another declaration.
    pub(super) fn declare(&mut self, declared: TalliedDeclaration) {
        self.declared = declared;
        self.forget_what_is_passed();
    }

    /// Forgets slots that stood ahead of their schedule and no longer do.
    fn forget_what_is_passed(&mut self) {
        let declared = &self.declared;
        let is_ahead = |slot: &&RecordedSlot| {
            declared.schedule(&slot.schedule).is_some_and(|it| slot.at > it.watermark)
        };
        if self.ahead.iter().any(|slot| !is_ahead(&slot)) {
            self.ahead = self.ahead.iter().filter(is_ahead).cloned().collect();
        }
    }

    /// How many bytes it takes, with what is its own behind pointers.
    pub(super) fn bytes(&self, name: &PipelineId) -> usize {
        size_of::<Self>()
            + size_of::<PipelineId>()
            + name.as_str().len()
            + 16
            + self.cells.bytes()
            + size_of_val(&*self.declared.schedules)
            + size_of_val(&*self.ahead)
            + size_of_val(&*self.open)
            + self.incidents.iter().map(|it| size_of_val(it) + it.message.len()).sum::<usize>()
            + self.declared.pause.as_ref().map_or(0, |pause| size_of_val(&**pause))
    }
}
