//! `interlock next` at a server.

use std::collections::BTreeMap;

use interlock_answers::{
    COUNT_DEFAULT, LIMIT_MAX,
    model::next_slot::{NextSlotAnswer, NextSlotsAnswer, NextSlotsQuery},
};
use interlock_core::id::PipelineId;
use jiff::Timestamp;

use super::COUNT_MAX;
use crate::{
    arguments::Next, exit::Failure, output::Output, remote::query::path, source::Source,
    target::ServerAddress,
};

/// From when until when slots are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TimeWindow {
    from: Timestamp,
    to: Option<Timestamp>,
}

pub(super) fn slots(
    address: &ServerAddress,
    next: &Next,
    now: Timestamp,
    output: &mut Output,
) -> Result<NextSlotsAnswer, Failure> {
    let source = Source::at(address, output)?;
    let names = if let Some(name) = &next.pipeline {
        vec![source.known(name)?]
    } else {
        let all = source.standings(None)?.into_iter().map(|it| it.declared);
        let declared = all.filter(|it| it.version.is_some());
        declared.filter_map(|it| PipelineId::parse(&it.pipeline).ok()).collect()
    };
    let mut listing = NextSlotsAnswer::default();
    for name in &names {
        let found = of_pipeline(&source, name, next, now)?;
        listing.items.extend(found.items);
        listing.remarks.extend(found.remarks);
    }
    Ok(listing)
}

/// Those of one pipeline: times without an offset are times of each schedule's zone.
fn of_pipeline(
    source: &Source,
    name: &PipelineId,
    next: &Next,
    now: Timestamp,
) -> Result<NextSlotsAnswer, Failure> {
    let count = match (next.count, next.to) {
        (Some(count), _) => count as usize,
        (None, Some(_)) => COUNT_MAX,
        (None, None) => COUNT_DEFAULT,
    };
    // Where times are those of the wall the zones of its schedules say which are meant.
    let mut windows: BTreeMap<TimeWindow, Vec<String>> = BTreeMap::new();
    let has_times = next.from.is_some() || next.to.is_some();
    let zones = has_times.then(|| source.schedule_zones(name)).transpose()?;
    for schedule in zones.iter().flat_map(|zones| &zones.all).filter(|it| it.starts) {
        let window = TimeWindow {
            from: next.from.map_or(now, |from| from.at(now, &schedule.zone)),
            to: next.to.map(|to| to.at(now, &schedule.zone)),
        };
        windows.entry(window).or_default().push(schedule.id.to_string());
    }
    if windows.is_empty() {
        windows.insert(TimeWindow { from: now, to: None }, vec![]);
    }
    let is_one = windows.len() == 1;
    let mut all = NextSlotsAnswer::default();
    for (window, schedules) in windows {
        let mut found = within(source, name, window, count)?;
        if !is_one {
            found.items.retain(|slot| schedules.contains(&slot.schedule));
        }
        all.items.extend(found.items);
        let fresh = found.remarks.into_iter().filter(|it| !all.remarks.contains(it));
        all.remarks.extend(fresh.collect::<Vec<_>>());
    }
    all.items.sort_by(|one, other| (one.utc, &one.schedule).cmp(&(other.utc, &other.schedule)));
    all.items.truncate(count);
    if !is_one && !all.items.is_empty() {
        all.remarks.retain(|remark| !remark.ends_with(" has no slots in this time"));
    }
    Ok(all)
}

/// So many of a window, part by part.
fn within(
    source: &Source,
    name: &PipelineId,
    window: TimeWindow,
    count: usize,
) -> Result<NextSlotsAnswer, Failure> {
    let server = source.server()?;
    let path = path(&["pipelines", name.as_str(), "next"]);
    let mut all = NextSlotsAnswer::default();
    let mut from = window.from;
    loop {
        let wanted = (count - all.items.len()).clamp(1, LIMIT_MAX);
        let asked =
            NextSlotsQuery { from: Some(from), to: window.to, count: Some(wanted), at: None };
        let part: NextSlotsAnswer = server.get(&path, &asked)?;
        if all.items.is_empty() {
            all.remarks = part.remarks;
        }
        // The first one of a part is the last one of the part before, without what was left out in front of it.
        let is_new = |slot: &NextSlotAnswer| {
            !all.items.iter().rev().take(100).any(|it| it.slot == slot.slot)
        };
        let fresh: Vec<_> = part.items.into_iter().filter(is_new).collect();
        let last = fresh.last().map(|slot| slot.utc);
        all.items.extend(fresh);
        match last.filter(|_| part.more && all.items.len() < count) {
            Some(last) => from = last,
            None => return Ok(all),
        }
    }
}
