//! Which rows are on a page, and what all of them add up to, without reading anything.
//!
//! A question about the whole fleet walks the orders that are kept; one that filters looks over the fleet, and makes its own orders of what it finds.

use std::collections::BTreeMap;

use interlock_core::id::PipelineId;

use super::{
    groups::{Grouping, PipelineGroup, RankedGroup},
    index::{PipelinesByName, RankedPipeline},
    question::{FleetQuestion, StateFilter},
    ranked::{RankPlace, RankedPage, RankedPipelines},
    summary::DayCounts,
    table::{FleetTable, IndexedPipelines},
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

/// What a page is cut from.
struct PageSource<'a> {
    pipelines: &'a PipelinesByName,
    /// In the order of the question.
    ordered: RankedPipelines<'a>,
    /// The worst first.
    worst: RankedPipelines<'a>,
    grouping: Option<&'a Grouping>,
    attention: u64,
    all: u64,
}

/// Pipelines that are asked for.
#[derive(Default)]
struct MatchedPipelines<'a> {
    states: FleetStatesAnswer,
    day: DayCounts,
    found: Vec<(&'a PipelineId, &'a TalliedPipeline)>,
}

/// What was found so far of a page.
struct PageOfLines {
    sections: Vec<FleetSectionAnswer>,
    lines: Vec<FleetLine>,
    limit: usize,
    next: Option<String>,
}

/// Looks over the fleet.
pub(super) fn survey(table: &mut FleetTable, question: &FleetQuestion) -> FleetSurvey {
    let Some(IndexedPipelines { pipelines, index }) = table.indexed(question.now) else {
        return FleetSurvey::of_none(question);
    };
    let is_whole = question.filter.is_of_all();
    let (mut states, mut day) = (FleetStatesAnswer::default(), DayCounts::default());
    if is_whole {
        (states, day) = (index.states(), index.day(pipelines, question.midnight(), question.now));
    }
    let by = question.group.as_ref();
    if is_whole && question.filter.states.is_empty() {
        if let Some(by) = by {
            index.make_grouping(pipelines, by, question.now);
        }
        let ordered = match question.order {
            FleetOrder::Worst => RankedPipelines::Index(index.by_state()),
            FleetOrder::Next => RankedPipelines::Index(index.by_next()),
            FleetOrder::Name => RankedPipelines::Names(pipelines),
        };
        let source = PageSource {
            pipelines,
            ordered,
            worst: RankedPipelines::Index(index.by_state()),
            grouping: by.and_then(|by| index.grouping(by)),
            attention: states.attention,
            all: states.pipelines,
        };
        return source.page(question).with_sums(question, states, day);
    }
    let matched = MatchedPipelines::of(pipelines, question);
    if !is_whole {
        (states, day) = (matched.states, matched.day);
    }
    let each = || matched.found.iter().map(|(name, pipeline)| (*name, *pipeline));
    let grouping = by.map(|by| Grouping::of(by.clone(), each(), question.now));
    let attention = each().filter(|(_, it)| it.summary.state.needs_attention()).count();
    let source = PageSource {
        pipelines,
        ordered: RankedPipelines::found(each(), question.order),
        worst: RankedPipelines::found(each(), FleetOrder::Worst),
        grouping: grouping.as_ref(),
        attention: attention as u64,
        all: matched.found.len() as u64,
    };
    source.page(question).with_sums(question, states, day)
}

impl FleetSurvey {
    /// While nothing is counted.
    fn of_none(question: &FleetQuestion) -> Self {
        let page = PageOfLines { sections: vec![], lines: vec![], limit: 0, next: None };
        let (states, day) = (FleetStatesAnswer::default(), DayCounts::default());
        page.surveyed(0).with_sums(question, states, day)
    }

    fn with_sums(
        self,
        question: &FleetQuestion,
        states: FleetStatesAnswer,
        day: DayCounts,
    ) -> Self {
        let totals = FleetTotalsAnswer {
            since: question.midnight(),
            zone: question.zone_name.clone(),
            due: day.counts.sum() + day.unaccounted,
            unaccounted: day.unaccounted,
            counts: day.counts,
        };
        Self { totals, states, ..self }
    }
}

impl<'a> MatchedPipelines<'a> {
    fn of(pipelines: &'a PipelinesByName, question: &FleetQuestion) -> Self {
        let (midnight, filter) = (question.midnight(), &question.filter);
        let is_whole = filter.is_of_all();
        let by_place = filter.states.iter().any(|it| matches!(it, StateFilter::Place(_)));
        let mut matched = Self::default();
        for (name, pipeline) in pipelines {
            if !filter.holds(name, &pipeline.declared.about) {
                continue;
            }
            let summary = pipeline.summary;
            let mut today = DayCounts::default();
            // The sums of all are known without adding them up.
            if !is_whole || by_place {
                today = pipeline.since_midnight(midnight, summary.at);
                matched.day.add(&today);
            }
            matched.states.add(summary.state);
            if is_asked_for(&filter.states, summary.state, today.counts) {
                matched.found.push((name, pipeline));
            }
        }
        matched
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

impl PageSource<'_> {
    fn page(&self, question: &FleetQuestion) -> FleetSurvey {
        let mut page =
            PageOfLines { sections: vec![], lines: vec![], limit: question.limit, next: None };
        let groups = match self.grouping {
            None => {
                page.take_list(self, question);
                0
            }
            Some(grouping) => {
                page.take_groups(self, grouping, question);
                grouping.len()
            }
        };
        page.surveyed(groups)
    }

    fn state(&self, name: &PipelineId) -> FleetState {
        self.pipelines.get(name).map_or(FleetState::NotDue, |it| it.summary.state)
    }

    fn group_of(&self, name: &PipelineId, question: &FleetQuestion) -> Option<String> {
        let about = &self.pipelines.get(name)?.declared.about;
        question.group.as_ref()?.of(about).map(str::to_owned)
    }

    fn line(&self, found: &RankedPipeline, question: &FleetQuestion) -> FleetLine {
        let name = found.name.clone();
        let (group, state) = (self.group_of(&name, question), self.state(&name));
        FleetLine::Pipeline { name, group, state }
    }

    /// The members of a group in the order of a question.
    fn members(&self, group: &PipelineGroup, order: FleetOrder) -> Vec<RankedPipeline> {
        let member = |member: &RankedPipeline| RankedPipeline {
            rank: match order {
                FleetOrder::Worst => self.state(&member.name) as i64,
                FleetOrder::Name => 0,
                FleetOrder::Next => member.rank,
            },
            name: member.name.clone(),
        };
        group.members.iter().map(member).collect()
    }
}

impl PageOfLines {
    fn surveyed(self, groups: usize) -> FleetSurvey {
        let Self { sections, lines, next, .. } = self;
        FleetSurvey {
            totals: FleetTotalsAnswer {
                since: jiff::Timestamp::UNIX_EPOCH,
                zone: String::new(),
                due: 0,
                unaccounted: 0,
                counts: FleetCountsAnswer::default(),
            },
            states: FleetStatesAnswer::default(),
            groups: groups as u64,
            sections,
            lines,
            next,
        }
    }

    fn take_list(&mut self, source: &PageSource<'_>, question: &FleetQuestion) {
        let place = RankPlace { after: question.after.as_ref(), limit: question.limit };
        let RankedPage { found, more } = source.ordered.page(place);
        self.next = found.last().filter(|_| more).map(|last| last.key().encode());
        let needs_attention = |it: &&RankedPipeline| source.state(&it.name).needs_attention();
        let in_attention = match question.order {
            FleetOrder::Worst => found.iter().take_while(needs_attention).count(),
            FleetOrder::Name | FleetOrder::Next => 0,
        };
        if in_attention > 0 {
            self.sections.push(FleetSectionAnswer {
                pipelines: source.attention,
                ..section(FleetSectionKind::Attention, in_attention)
            });
        }
        if found.len() > in_attention {
            let rows = found.len() - in_attention;
            self.sections.push(FleetSectionAnswer {
                pipelines: source.all,
                above: if in_attention > 0 { source.attention } else { 0 },
                has_more: more,
                ..section(FleetSectionKind::All, rows)
            });
        }
        self.lines = found.iter().map(|it| source.line(it, question)).collect();
    }

    fn take_groups(
        &mut self,
        source: &PageSource<'_>,
        grouping: &Grouping,
        question: &FleetQuestion,
    ) {
        let above = self.take_attention(source, question);
        let mut last: Option<RankedGroup> = None;
        for ranked in grouping.after(question.order, question.after.as_ref()) {
            if !self.lines.is_empty() && self.lines.len() >= self.limit {
                self.next = last.map(|last| last.key().encode());
                break;
            }
            let Some(group) = grouping.group(&ranked.name) else { continue };
            let name = ranked.group().map(str::to_owned);
            let shown = above.get(&name).map_or(&[][..], Vec::as_slice);
            self.take_group(source, ShownGroup { name, group, above: shown }, question);
            last = Some(ranked);
        }
    }

    /// Rows of pipelines that need attention, before the groups of the first page. Which they are, by group.
    fn take_attention(
        &mut self,
        source: &PageSource<'_>,
        question: &FleetQuestion,
    ) -> BTreeMap<Option<String>, Vec<PipelineId>> {
        let mut above: BTreeMap<Option<String>, Vec<PipelineId>> = BTreeMap::new();
        let place = RankPlace { after: None, limit: question.attention };
        let mut found = source.worst.page(place).found;
        found.retain(|it| source.state(&it.name).needs_attention());
        for it in &found {
            let group = source.group_of(&it.name, question);
            above.entry(group).or_default().push(it.name.clone());
        }
        if question.after.is_none() && !found.is_empty() {
            self.lines = found.iter().map(|it| source.line(it, question)).collect();
            self.sections.push(FleetSectionAnswer {
                pipelines: source.attention,
                has_more: source.attention > found.len() as u64,
                ..section(FleetSectionKind::Attention, found.len())
            });
        }
        above
    }

    fn take_group(
        &mut self,
        source: &PageSource<'_>,
        shown: ShownGroup<'_>,
        question: &FleetQuestion,
    ) {
        let ShownGroup { name, group, above } = shown;
        let count = group.members.len();
        let word = name.as_deref().unwrap_or_default();
        let is_few = question.members.is_some_and(|few| count <= few);
        let is_open =
            question.expand.contains(word) || (is_few && !question.collapse.contains(word));
        let about = FleetSectionAnswer {
            name: name.clone(),
            pipelines: count as u64,
            above: above.len() as u64,
            ..section(FleetSectionKind::Group, 1)
        };
        if !is_open {
            let members = group.members.iter().map(|it| it.name.clone()).collect();
            let (states, worst) = (group.states, group.worst());
            self.lines.push(FleetLine::Group { group: name, members, states, worst });
            self.sections.push(FleetSectionAnswer { is_collapsed: true, ..about });
            return;
        }
        let mut members = source.members(group, question.order);
        members.retain(|it| !above.contains(&it.name));
        let place = RankPlace { after: None, limit: question.limit };
        let RankedPage { found, more } = RankedPipelines::Found(members).page(place);
        self.sections.push(FleetSectionAnswer { rows: found.len(), has_more: more, ..about });
        self.lines.extend(found.iter().map(|it| source.line(it, question)));
    }
}

/// A group of a page.
struct ShownGroup<'a> {
    name: Option<String>,
    group: &'a PipelineGroup,
    /// Its pipelines that have a row of their own above the groups.
    above: &'a [PipelineId],
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
