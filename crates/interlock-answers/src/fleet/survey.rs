//! Which rows are on a page, and what all of them add up to: one look over the whole fleet, without reading anything.

use std::collections::BTreeMap;

use interlock_core::id::PipelineId;
use jiff::Timestamp;

use super::{
    cells::Quarter,
    planned::unrecorded_since,
    question::{FleetQuestion, SortKey, StateFilter},
    table::FleetTable,
    tallied::TalliedPipeline,
};
use crate::model::fleet::{
    FleetCountsAnswer, FleetOrder, FleetSectionAnswer, FleetSectionKind, FleetState,
    FleetStatesAnswer, FleetTotalsAnswer,
};

/// A page, and what stands above it.
pub(super) struct FleetSurvey {
    pub(super) totals: FleetTotalsAnswer,
    pub(super) states: FleetStatesAnswer,
    pub(super) groups: u64,
    pub(super) sections: Vec<FleetSectionAnswer>,
    pub(super) lines: Vec<FleetLine>,
    pub(super) next: Option<String>,
}

/// A row to be made.
pub(super) enum FleetLine {
    Pipeline {
        name: PipelineId,
        group: Option<String>,
        state: FleetState,
    },
    Group {
        group: Option<String>,
        members: Vec<PipelineId>,
        states: FleetStatesAnswer,
        worst: FleetState,
    },
}

impl FleetLine {
    /// The pipelines that it is about.
    pub(super) fn names(&self) -> &[PipelineId] {
        match self {
            Self::Pipeline { name, .. } => std::slice::from_ref(name),
            Self::Group { members, .. } => members,
        }
    }
}

/// A pipeline that is asked for.
struct MatchedPipeline<'a> {
    name: &'a PipelineId,
    pipeline: &'a TalliedPipeline,
    state: FleetState,
}

/// Pipelines of one group.
#[derive(Default)]
struct GroupOfPipelines<'a> {
    members: Vec<MatchedPipeline<'a>>,
    states: FleetStatesAnswer,
}

/// What was found so far of a page.
struct PageOfLines {
    sections: Vec<FleetSectionAnswer>,
    lines: Vec<FleetLine>,
    limit: usize,
    next: Option<String>,
}

/// Looks over the fleet.
pub(super) fn survey(table: &FleetTable, question: &FleetQuestion) -> FleetSurvey {
    let midnight = question.midnight();
    let mut totals = FleetTotalsAnswer {
        since: midnight,
        zone: question.zone_name.clone(),
        due: 0,
        unaccounted: 0,
        counts: FleetCountsAnswer::default(),
    };
    let mut states = FleetStatesAnswer::default();
    let mut matched = Vec::new();
    for (name, pipeline) in &table.pipelines {
        if !question.filter.holds(name, &pipeline.declared.about) {
            continue;
        }
        let state = pipeline.state(question.now);
        let today = pipeline.today(midnight, question.now);
        totals.add(pipeline, &today, question.now);
        states.add(state);
        if is_asked_for(&question.filter.states, state, today) {
            matched.push(MatchedPipeline { name, pipeline, state });
        }
    }
    totals.due = totals.counts.sum() + totals.unaccounted;
    let mut page =
        PageOfLines { sections: vec![], lines: vec![], limit: question.limit, next: None };
    let groups = match &question.group {
        None => {
            page.take_list(&matched, question);
            0
        }
        Some(_) => page.take_groups(matched, question),
    };
    let PageOfLines { sections, lines, next, .. } = page;
    FleetSurvey { totals, states, groups, sections, lines, next }
}

impl FleetTotalsAnswer {
    fn add(&mut self, pipeline: &TalliedPipeline, today: &FleetCountsAnswer, now: Timestamp) {
        for place in crate::model::fleet::FleetPlace::ALL {
            self.counts.add(place, today.of(place));
        }
        if pipeline.declared.owes(now) {
            let due = unrecorded_since(pipeline, self.since, now);
            self.counts.waiting += due.waiting;
            self.unaccounted += due.unaccounted;
        }
    }
}

impl TalliedPipeline {
    /// Its recorded slots since midnight.
    fn today(&self, midnight: Timestamp, now: Timestamp) -> FleetCountsAnswer {
        let (from, until) = (Quarter::at_or_after(midnight), Quarter::of(now).after(1));
        let mut counts = FleetCountsAnswer::default();
        for cell in self.cells.counted().filter(|cell| from <= cell.at && cell.at < until) {
            counts.add(cell.place, cell.count);
        }
        // What a person asked for ahead of its time is not due yet, though it is in the present quarter.
        for slot in self.open.iter().filter(|slot| slot.at > now && Quarter::of(slot.at) < until) {
            counts.take(slot.place);
        }
        counts
    }
}

fn is_asked_for(filters: &[StateFilter], state: FleetState, today: FleetCountsAnswer) -> bool {
    filters.is_empty()
        || filters.iter().any(|filter| match filter {
            StateFilter::State(asked) => *asked == state,
            StateFilter::Attention => state.needs_attention(),
            StateFilter::Place(place) => today.of(*place) > 0,
        })
}

impl MatchedPipeline<'_> {
    /// Where it stands, as a [`SortKey`] without a copy of its name: it is asked of all.
    fn key(&self, question: &FleetQuestion) -> (i64, &str) {
        let rank = match question.order {
            FleetOrder::Worst => self.state as i64,
            FleetOrder::Name => 0,
            FleetOrder::Next => {
                self.pipeline.next(question.now).map_or(i64::MAX, |(next, _)| next.as_second())
            }
        };
        (rank, self.name.as_str())
    }

    fn line(&self, question: &FleetQuestion) -> FleetLine {
        let about = &self.pipeline.declared.about;
        let group = question.group.as_ref().and_then(|by| by.of(about)).map(str::to_owned);
        FleetLine::Pipeline { name: self.name.clone(), group, state: self.state }
    }
}

/// A pipeline with its place in the order.
type PlacedPipeline<'a, 'b> = ((i64, &'b str), &'b MatchedPipeline<'a>);

/// The first of some pipelines in an order, after a place; whether there are more.
fn first_of<'a, 'b>(
    pipelines: &'b [MatchedPipeline<'a>],
    question: &FleetQuestion,
    page: (Option<&SortKey>, usize),
) -> (Vec<PlacedPipeline<'a, 'b>>, bool) {
    let (after, limit) = page;
    let keyed = pipelines.iter().map(|it| (it.key(question), it));
    let mut found: Vec<_> = keyed
        .filter(|(key, _)| after.is_none_or(|after| *key > (after.rank, after.name.as_str())))
        .collect();
    let more = found.len() > limit;
    if more && limit > 0 {
        found.select_nth_unstable_by(limit - 1, |one, other| one.0.cmp(&other.0));
    }
    found.truncate(limit);
    found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    (found, more)
}

impl PageOfLines {
    fn take_list(&mut self, matched: &[MatchedPipeline<'_>], question: &FleetQuestion) {
        let (found, more) = first_of(matched, question, (question.after.as_ref(), question.limit));
        self.next = found
            .last()
            .filter(|_| more)
            .map(|((rank, name), _)| SortKey { rank: *rank, name: (*name).to_owned() }.encode());
        let in_attention = match question.order {
            FleetOrder::Worst => {
                found.iter().take_while(|(_, it)| it.state.needs_attention()).count()
            }
            FleetOrder::Name | FleetOrder::Next => 0,
        };
        let attention = matched.iter().filter(|it| it.state.needs_attention()).count();
        if in_attention > 0 {
            self.sections.push(FleetSectionAnswer {
                pipelines: attention as u64,
                ..section(FleetSectionKind::Attention, in_attention)
            });
        }
        if found.len() > in_attention {
            let rows = found.len() - in_attention;
            self.sections.push(FleetSectionAnswer {
                pipelines: matched.len() as u64,
                above: if in_attention > 0 { attention as u64 } else { 0 },
                has_more: more,
                ..section(FleetSectionKind::All, rows)
            });
        }
        self.lines = found.into_iter().map(|(_, it)| it.line(question)).collect();
    }

    /// Says how many groups there are.
    fn take_groups(
        &mut self,
        mut matched: Vec<MatchedPipeline<'_>>,
        question: &FleetQuestion,
    ) -> u64 {
        let Some(by) = &question.group else { return 0 };
        let above = self.take_attention(&mut matched, question);
        let mut groups: BTreeMap<Option<&str>, GroupOfPipelines<'_>> = BTreeMap::new();
        for it in matched {
            let group = groups.entry(by.of(&it.pipeline.declared.about)).or_default();
            group.states.add(it.state);
            group.members.push(it);
        }
        let count = groups.len() as u64;
        let mut ordered: Vec<_> = groups
            .into_iter()
            .map(|(name, group)| (group.key(name, question), name, group))
            .filter(|(key, _, _)| question.after.as_ref().is_none_or(|after| key > after))
            .collect();
        ordered.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let mut last = None;
        for (key, name, group) in ordered {
            if !self.lines.is_empty() && self.lines.len() >= self.limit {
                self.next = last.map(|key: SortKey| key.encode());
                break;
            }
            let shown = above.get(&name.map(str::to_owned)).map_or(&[][..], Vec::as_slice);
            self.take_group(name, group, shown, question);
            last = Some(key);
        }
        count
    }

    /// Rows of pipelines that need attention, before the groups of the first page. Which they are, by group.
    fn take_attention(
        &mut self,
        matched: &mut [MatchedPipeline<'_>],
        question: &FleetQuestion,
    ) -> BTreeMap<Option<String>, Vec<PipelineId>> {
        let mut above: BTreeMap<Option<String>, Vec<PipelineId>> = BTreeMap::new();
        let Some(by) = &question.group else { return above };
        let worst = FleetQuestion { order: FleetOrder::Worst, ..question.clone() };
        let (found, _) = first_of(matched, &worst, (None, question.attention));
        let found = found.into_iter().take_while(|(_, it)| it.state.needs_attention());
        let mut lines = Vec::new();
        for (_, it) in found {
            let group = by.of(&it.pipeline.declared.about).map(str::to_owned);
            above.entry(group).or_default().push(it.name.clone());
            lines.push(it.line(question));
        }
        if question.after.is_none() && !lines.is_empty() {
            let all = matched.iter().filter(|it| it.state.needs_attention()).count();
            self.sections.push(FleetSectionAnswer {
                pipelines: all as u64,
                has_more: all > lines.len(),
                ..section(FleetSectionKind::Attention, lines.len())
            });
            self.lines = lines;
        }
        above
    }

    fn take_group(
        &mut self,
        name: Option<&str>,
        mut group: GroupOfPipelines<'_>,
        above: &[PipelineId],
        question: &FleetQuestion,
    ) {
        let pipelines = group.members.len() as u64;
        let word = name.unwrap_or_default();
        let is_few = question.members.is_some_and(|few| group.members.len() <= few);
        let is_open =
            question.expand.contains(word) || (is_few && !question.collapse.contains(word));
        let about = FleetSectionAnswer {
            name: name.map(str::to_owned),
            pipelines,
            above: above.len() as u64,
            ..section(FleetSectionKind::Group, 1)
        };
        if !is_open {
            let members = group.members.iter().map(|it| it.name.clone()).collect();
            let worst = group.worst();
            let (states, group) = (group.states, name.map(str::to_owned));
            self.lines.push(FleetLine::Group { group, members, states, worst });
            self.sections.push(FleetSectionAnswer { is_collapsed: true, ..about });
            return;
        }
        group.members.retain(|it| !above.contains(it.name));
        let (found, more) = first_of(&group.members, question, (None, question.limit));
        self.sections.push(FleetSectionAnswer { rows: found.len(), has_more: more, ..about });
        self.lines.extend(found.into_iter().map(|(_, it)| it.line(question)));
    }
}

impl GroupOfPipelines<'_> {
    fn worst(&self) -> FleetState {
        self.members.iter().map(|it| it.state).min().unwrap_or(FleetState::NotDue)
    }

    fn key(&self, name: Option<&str>, question: &FleetQuestion) -> SortKey {
        let rank = match question.order {
            FleetOrder::Worst => self.worst() as i64,
            FleetOrder::Name => 0,
            FleetOrder::Next => {
                let next = self.members.iter().filter_map(|it| it.pipeline.next(question.now));
                next.map(|(next, _)| next.as_second()).min().unwrap_or(i64::MAX)
            }
        };
        // Those without a group come last: no name sorts behind this one.
        let name = name.map_or_else(|| "\u{10FFFF}".to_owned(), str::to_owned);
        SortKey { rank, name }
    }
}

fn section(kind: FleetSectionKind, rows: usize) -> FleetSectionAnswer {
    FleetSectionAnswer {
        kind,
        name: None,
        rows,
        pipelines: 0,
        above: 0,
        is_collapsed: false,
        has_more: false,
    }
}
