//! Slots that a sensor opens: for a period that somebody really reported, once (S1, S2, S11), and never lost (L2); with a
//! deadline given up only if nobody had reported by then (S10), and told (S12, L3).
//!
//! Which period a report is about is found from the numbers that it was written from, by walking the wall clock.

use interlock_store::{Change, Group, Key, Record};
use jiff::{SignedDuration, Timestamp};

use super::{
    Finding, SETTLING, Scene,
    absence::TOLD_WITHIN,
    book::{Book, Place, SeenSlot, SeenSpan},
    slots::lies_in_pause,
};
use crate::{
    feeds::Fact,
    naive,
    truth::{Period, Truth},
};

/// A report of longer ago may be about a period before its own time, whose slot is forgotten by now.
const JUDGED_FOR: SignedDuration = SignedDuration::from_hours(6 * 24);
/// How long a report may wait to be applied when nothing goes wrong.
const APPLIED_IN: SignedDuration = SignedDuration::from_mins(10);
/// Whoever reads the inbox and then decides does not see what came in between.
const IN_BETWEEN: SignedDuration = SignedDuration::from_secs(1);

/// A report that the store took.
#[derive(Debug)]
pub(crate) struct TakenFact {
    pub(crate) fact: Fact,
    /// When it was durable.
    pub(crate) taken: Timestamp,
    /// What became of it when it was applied.
    applied: Option<Applied>,
}

/// A report that was applied.
#[derive(Debug)]
struct Applied {
    /// When, by the clock of who did.
    at: Timestamp,
    fate: Fate,
    /// The instants of the slots that it may be about, by what was declared then.
    slots: Vec<Timestamp>,
}

/// A slot that was given up while a report about it lay in the inbox. What stands before the report there may be a pause, in
/// which it opens nothing: that shows when it is applied.
#[derive(Debug)]
pub(crate) struct Suspicion {
    place: Place,
    key: String,
}

/// What becomes of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its pipeline was paused or disabled: it is kept, and opens nothing.
    Held,
    /// It may open its slot, and need not: its pipeline was gone, or it is one that was held, once more.
    Optional,
    /// It opens its slot.
    Due,
}

impl TakenFact {
    pub(crate) fn new(fact: Fact, taken: Timestamp) -> Self {
        Self { fact, taken, applied: None }
    }

    fn fate(&self) -> Option<Fate> {
        self.applied.as_ref().map(|applied| applied.fate)
    }

    /// Whether a watchdog may take it up: not if it came in a pause.
    fn may_be_taken_up(&self, book: &Book) -> bool {
        self.applied.as_ref().is_some_and(|it| {
            // It may have been held in the instant in which a pause ended.
            it.fate != Fate::Held || !(lies_in_pause(book, it.at) || book.is_disabled)
        })
    }

    /// Whether it is what a slot waits for.
    fn is_about(&self, truth: &Truth, nominal: Timestamp) -> bool {
        self.fact.is_ready && self.fact.slots(truth).contains(&nominal)
    }
}

/// The reports that a group applies, by their keys in the inbox.
pub(crate) fn applied_by(book: &Book, group: &Group) -> Vec<(String, Timestamp)> {
    if book.facts.is_empty() {
        return vec![];
    }
    let applied = group.changes.iter().filter_map(|change| match change {
        Change::Put(Key::Applied(key), _, Record::Applied(record)) => Some((key, record.at)),
        Change::Put(..) | Change::Delete(..) | Change::Append(_) => None,
    });
    let ours = applied.filter(|(key, _)| book.facts.contains_key(*key));
    ours.map(|(key, at)| (key.clone(), at)).collect()
}

/// A slot's row was written, perhaps by a group that applies reports.
pub(crate) fn slot_is_written(
    book: &mut Book,
    place: &Place,
    new: &SeenSlot,
    (group, applied): (&Group, &[(String, Timestamp)]),
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    let Some(truth) = scene.truth(new.version) else { return Ok(()) };
    let Some((_, period, deadline)) = truth.arrival().filter(|it| it.0.id == place.0.as_str())
    else {
        return Ok(());
    };
    let told = |invariant, message: String| Err(Finding::of(invariant, message).about(place));
    let old = book.slots.get(place).copied();
    if new.is_missing() {
        return told("S10", format!("a report that did not come is called {}", new.disposition));
    }
    let is_first =
        old.is_none() && new.generation <= 1 && !matches!(new.opened_by, "manual" | "webhook");
    if is_first {
        begins_a_period(book, place, (&truth, period))?;
    }
    if is_first && new.opened_by == "scheduler" && deadline.is_none() {
        return told("S1", "the clock opened what only a report opens".to_owned());
    }
    if is_first && new.opened_by == "catchup" {
        return told("S5", "what a report opens was caught up".to_owned());
    }
    let is_taken_up = matches!(new.opened_by, "sensor" | "reconcile");
    if is_taken_up && old.is_none_or(|old| is_awaiting(&old)) {
        is_reported(book, place, (new, &truth), (applied, scene))?;
    }
    let was_open = old.is_none_or(|old| old.is_open());
    if was_open && new.disposition == "skipped" {
        return is_given_up(book, place, (new, &truth), (group, scene));
    }
    Ok(())
}

/// Whether a slot still waits for its report.
fn is_awaiting(slot: &SeenSlot) -> bool {
    slot.opened_by == "scheduler" && slot.state == "waiting"
}

/// S1, S2: a slot lies where its period begins.
fn begins_a_period(
    book: &Book,
    place: &Place,
    (truth, period): (&Truth, Period),
) -> Result<(), Finding> {
    if naive::begins(truth, period, place.1) {
        return Ok(());
    }
    let shown = naive::reading(truth, period, place.1);
    let day = SignedDuration::from_hours(26);
    let others = book.rows(&place.0, place.1 - day, place.1 + day);
    let twin = others
        .map(|((_, at), _)| *at)
        .find(|at| *at != place.1 && naive::reading(truth, period, *at) == shown);
    let finding = match twin {
        Some(twin) => Finding::of("S2", format!("a second slot of its period, after {twin}")),
        None => Finding::of("S1", "no period begins then"),
    };
    Err(finding.about(place))
}

/// S1: whoever says that a report opened a slot has one; S11: and it was not given up before.
fn is_reported(
    book: &Book,
    place: &Place,
    (new, truth): (&SeenSlot, &Truth),
    (applied, scene): (&[(String, Timestamp)], &Scene<'_>),
) -> Result<(), Finding> {
    let told = |invariant, message: String| Err(Finding::of(invariant, message).about(place));
    let is_known = if new.opened_by == "sensor" {
        let mut facts = applied.iter().filter_map(|(key, _)| book.facts.get(key));
        facts.any(|fact| fact.is_about(truth, place.1))
    } else {
        let mut seen = book.facts.values().filter(|it| it.may_be_taken_up(book));
        seen.any(|fact| fact.is_about(truth, place.1))
    };
    if !is_known {
        return told("S1", format!("opened by `{}`, and nobody reported it", new.opened_by));
    }
    if book.is_paused(scene.planned_at) || book.is_disabled {
        return told("S14", "a report opened it in a pause".to_owned());
    }
    if !book.slots.contains_key(place) && book.spans_over(&place.0, place.1) > 0 {
        return told("S11", "it was given up among others, and a report opened it".to_owned());
    }
    Ok(())
}

/// S10: a slot is given up without a report only if its time is over and none was there.
fn is_given_up(
    book: &mut Book,
    place: &Place,
    (new, truth): (&SeenSlot, &Truth),
    (group, scene): (&Group, &Scene<'_>),
) -> Result<(), Finding> {
    let told = |invariant, message: String| Err(Finding::of(invariant, message).about(place));
    let old = book.slots.get(place);
    if new.reason != "no_sensor" {
        let is_right = matches!(new.reason, "paused" | "retired");
        let waited = old.is_some_and(is_awaiting);
        let message = format!("it waited for its report, and was skipped({})", new.reason);
        return if waited && !is_right { told("S5", message) } else { Ok(()) };
    }
    let Some(limit) = deadline_of(truth, place.1) else {
        return told("S10", "given up without a report, and nobody set a deadline".to_owned());
    };
    if old.is_some_and(|old| !is_awaiting(old)) {
        return told("S11", format!("given up without a report that it has: {old:?}"));
    }
    if scene.now + scene.ahead < limit {
        return told("S10", format!("given up before {limit}"));
    }
    nobody_reported(book, place, truth, scene)?;
    is_told_in(group, place)?;
    let is_calm = scene.calm_since.is_some_and(|since| place.1 > since + SETTLING);
    if is_calm && scene.now > limit + TOLD_WITHIN {
        return told("L3", format!("its deadline was {limit}, and it is {}", scene.now));
    }
    Ok(())
}

/// S10: no report about a slot was there when it was given up, as far as it came before the deadline.
fn nobody_reported(
    book: &mut Book,
    place: &Place,
    truth: &Truth,
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    let limit = deadline_of(truth, place.1).unwrap_or(Timestamp::MAX);
    let decided = scene.now.min(scene.planned_at - scene.ahead) - IN_BETWEEN;
    let in_time = book.facts.iter().filter(|(_, it)| it.taken < limit && it.taken < decided);
    // One that names an hour that is there twice is about one of the two: which is not said. One that was applied was about
    // what was declared then: its date may have had no slots.
    let is_about = |it: &TakenFact| match &it.applied {
        Some(applied) => applied.slots == [place.1],
        None => it.fact.slots(truth) == [place.1],
    };
    let about = in_time.filter(|(_, it)| it.fact.is_ready && is_about(it));
    let mut suspicions = Vec::new();
    for (key, it) in about {
        match it.fate() {
            Some(Fate::Due) => return Err(was_there(place, it)),
            None => suspicions.push(Suspicion { place: place.clone(), key: key.clone() }),
            Some(Fate::Held | Fate::Optional) => {}
        }
    }
    book.suspicions.append(&mut suspicions);
    Ok(())
}

fn was_there(place: &Place, it: &TakenFact) -> Finding {
    let message = format!("given up without a report, and one was there: {it:?}");
    Finding::of("S10", message).about(place)
}

/// S12: who gives up tells.
fn is_told_in(group: &Group, place: &Place) -> Result<(), Finding> {
    let is_told = |change: &Change| matches!(change, Change::Append(event) if event.kind == "SENSOR_DEADLINE_EXPIRED");
    if group.changes.iter().any(is_told) {
        return Ok(());
    }
    Err(Finding::of("S12", "given up without a report, and nobody was told").about(place))
}

/// Many slots were given up at once.
pub(crate) fn span_is_written(
    book: &mut Book,
    place: &Place,
    span: &SeenSpan,
    (group, scene): (&Group, &Scene<'_>),
) -> Result<(), Finding> {
    let Some(truth) = scene.truth(span.version).filter(|_| span.reason == "no_sensor") else {
        return Ok(());
    };
    let Some((start, ..)) = truth.arrival().filter(|it| it.0.id == place.0.as_str()) else {
        let finding = Finding::of("S5", "it waits for no report, and is skipped(no_sensor)");
        return Err(finding.about(place));
    };
    let before = place.1 - SignedDuration::from_millis(1);
    for at in naive::slots(&truth, &start.pattern, before, span.last) {
        if !book.slots.contains_key(&(place.0.clone(), at)) {
            nobody_reported(book, &(place.0.clone(), at), &truth, scene)?;
        }
    }
    is_told_in(group, place)
}

/// Until when a slot waits for its report.
pub(crate) fn deadline_of(truth: &Truth, nominal: Timestamp) -> Option<Timestamp> {
    let (_, _, minutes) = truth.arrival()?;
    Some(nominal + SignedDuration::from_mins(i64::from(minutes?)))
}

/// The rows of a group that applies reports are in the book: what became of each of them is known from now on.
pub(crate) fn are_applied(
    book: &mut Book,
    applied: &[(String, Timestamp)],
    scene: &Scene<'_>,
    saw: &mut Vec<&'static str>,
) -> Result<(), Finding> {
    let Some(truth) = scene.truth(book.version).filter(|_| !applied.is_empty()) else {
        return Ok(());
    };
    for (key, at) in applied {
        let (fate, name) = fate(book, key, *at);
        saw.extend(name);
        let Some(it) = book.facts.get_mut(key) else { continue };
        let slots = it.fact.slots(&truth);
        if it.fact.is_ready && fate == Fate::Due {
            let late = |slot: &Timestamp| deadline_of(&truth, *slot).is_some_and(|it| it < *at);
            saw.extend((truth.edition > 0).then_some("sensor after an edit"));
            saw.extend(slots.iter().any(late).then_some("sensor after its deadline"));
        }
        it.applied = Some(Applied { at: *at, fate, slots });
        let is_theirs = |suspicion: &Suspicion| suspicion.key == *key;
        let suspicion = book.suspicions.iter().position(is_theirs);
        if let Some(Suspicion { place, .. }) = suspicion.map(|found| book.suspicions.remove(found))
            && fate == Fate::Due
        {
            return Err(was_there(&place, it));
        }
    }
    Ok(())
}

/// What a report may do that is applied at an instant.
fn fate(book: &Book, key: &str, at: Timestamp) -> (Fate, Option<&'static str>) {
    if book.is_paused(at) || book.is_disabled {
        return (Fate::Held, Some("sensor in a pause"));
    }
    let is_repeated = book.facts.get(key).is_some_and(|it| {
        let mut same = book.facts.values().filter(|other| other.fact == it.fact);
        same.any(|other| matches!(other.fate(), Some(Fate::Held | Fate::Optional)))
    });
    let is_free = book.is_retired || is_repeated;
    (if is_free { Fate::Optional } else { Fate::Due }, None)
}

/// A slot was written whose period a sensor opens, for the report.
pub(crate) fn see(slot: &SeenSlot, place: &Place, scene: &Scene<'_>, saw: &mut Vec<&'static str>) {
    if slot.opened_by == "sensor" && slot.attempt == 0 && slot.is_open() {
        saw.push("slot opened by a sensor");
        if place.1 > scene.now + SignedDuration::from_mins(5) {
            saw.push("slot opened ahead of its period");
        }
    }
    if slot.opened_by == "reconcile" && slot.attempt == 0 && slot.generation == 1 {
        saw.push("slot reconciled");
    }
    if slot.reason == "no_sensor" {
        saw.push("slot given up without a sensor");
    }
}

/// When the world has been calm for long enough: every report that was taken was applied, and has its slot (L2).
pub(crate) fn have_their_slots(book: &Book, truth: &Truth, now: Timestamp) -> Result<(), Finding> {
    let Some((start, ..)) = truth.arrival() else { return Ok(()) };
    for (key, it) in &book.facts {
        if it.taken + APPLIED_IN > now || it.taken + JUDGED_FOR < now {
            continue;
        }
        let Some(Applied { fate, slots, .. }) = &it.applied else {
            let message = format!("`{key}` was taken at {}, and not applied: {it:?}", it.taken);
            return Err(Finding::of("L2", message));
        };
        if *fate != Fate::Due || !it.fact.is_ready {
            continue;
        }
        let has_slot = |((id, at), slot): (&Place, &SeenSlot)| {
            id.as_str() == start.id && slots.contains(at) && !is_awaiting(slot)
        };
        let is_in_span = || {
            let mut spans = book.spans.iter();
            spans
                .any(|((_, first), span)| slots.iter().any(|at| (first..=&span.last).contains(&at)))
        };
        if !slots.is_empty() && !book.slots.iter().any(has_slot) && !is_in_span() {
            let message = format!("`{key}` was taken at {}, and opened nothing: {it:?}", it.taken);
            return Err(Finding::of("L2", message));
        }
    }
    Ok(())
}
