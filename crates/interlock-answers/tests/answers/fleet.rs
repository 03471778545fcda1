//! The fleet's tally against a recount and against what the test itself wrote, over random ledgers and with hints that are lost.

mod ledger;

use std::{collections::BTreeMap, sync::Arc};

use interlock_answers::{
    FleetFollower, FleetTally, Reader,
    model::fleet::{FleetAnswer, FleetOrder, FleetPlace, FleetQuery, FleetSectionKind, FleetState},
};
use interlock_store::{Store, block_on, memory::MemoryStore};
use interlock_store_embedded::EmbeddedStore;
use jiff::{SignedDuration, Timestamp};

use self::ledger::{Clock, Hints, RandomLedger, declared};

/// The recount has gone round after so many seconds.
const ROUND: i64 = 15 * 60;

fn memory(clock: &Clock) -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(4, clock.reader()))
}

fn follower(tally: &FleetTally, store: &Arc<dyn Store>) -> FleetFollower {
    FleetFollower::new(tally.clone(), Arc::clone(store), Arc::new(declared()))
}

/// An hour of changes; says in how many cells the tally was wrong at the end, and how many there are.
fn an_hour(ledger: &mut RandomLedger, hints: Hints, step: i64) -> (usize, usize) {
    let tally = FleetTally::default();
    let mut follower = follower(&tally, ledger.store());
    for second in (0..3_600).step_by(step as usize) {
        ledger.clock().advance(step);
        ledger.change(hints);
        block_on(follower.come_round()).unwrap();
        // While it is counted for the first time nothing is compared.
        if hints == Hints::All && second % 600 == 0 {
            assert_same(&tally, ledger);
        }
    }
    let wrong = differences(&tally.cells(ledger.clock().now()), &ledger.cells());
    for _ in 0..ROUND / 4 {
        ledger.clock().advance(4);
        block_on(follower.come_round()).unwrap();
    }
    assert_same(&tally, ledger);
    (wrong, ledger.cells().len())
}

type Cells = BTreeMap<(String, Timestamp, FleetPlace), u64>;

fn differences(one: &Cells, other: &Cells) -> usize {
    let missing = one.iter().filter(|(key, count)| other.get(key) != Some(count)).count();
    missing + other.keys().filter(|key| !one.contains_key(key)).count()
}

/// Cell by cell: what is followed, what a full recount says, and what the test wrote.
#[track_caller]
fn assert_same(tally: &FleetTally, ledger: &RandomLedger) {
    let now = ledger.clock().now();
    let again = FleetTally::default();
    block_on(follower(&again, ledger.store()).come_round()).unwrap();
    let (followed, recounted, written) = (tally.cells(now), again.cells(now), ledger.cells());
    let differing = |one: &Cells, other: &Cells| {
        let of = one.iter().filter(|(key, count)| other.get(key) != Some(count));
        format!("{:?}", of.take(5).collect::<Vec<_>>())
    };
    assert!(
        recounted == written,
        "a recount has {} where {} was written",
        differing(&recounted, &written),
        differing(&written, &recounted)
    );
    assert!(
        followed == recounted,
        "the tally has {} where a recount has {}",
        differing(&followed, &recounted),
        differing(&recounted, &followed)
    );
    for asked in questions() {
        let shown = |tally: &FleetTally| page(tally, ledger, &asked);
        // The second answer comes from sums and orders that are kept, the first one made them.
        let (_first, kept, again) = (shown(tally), shown(tally), shown(&again));
        assert_eq!(kept, again, "{asked:?}: what is kept is not what is made anew");
    }
}

/// One question for each order, grouping and filter.
fn questions() -> Vec<FleetQuery> {
    let word = |text: &str| Some(text.to_owned());
    let orders = [FleetOrder::Worst, FleetOrder::Name, FleetOrder::Next];
    let groups = [None, word("owner"), word("label:part")];
    let berlin = |asked: FleetQuery| FleetQuery { tz: word("Europe/Berlin"), ..asked };
    let mut asked: Vec<_> = orders
        .into_iter()
        .flat_map(|order| groups.clone().map(|group| (order, group)))
        .map(|(order, group)| FleetQuery { order: Some(order), group, ..FleetQuery::default() })
        .flat_map(|asked| [asked.clone(), berlin(asked)])
        .collect();
    for state in ["attention", "failed", "skipped"] {
        asked.push(FleetQuery { state: vec![state.to_owned()], ..FleetQuery::default() });
    }
    asked.push(FleetQuery { q: word("p00"), limit: Some(3), ..FleetQuery::default() });
    asked
}

/// What a page says of sums and rows, without reading for it.
fn page(tally: &FleetTally, ledger: &RandomLedger, asked: &FleetQuery) -> String {
    let declarations = declared();
    let now = ledger.clock().now();
    let reader = Reader { store: &**ledger.store(), declarations: &declarations, now };
    let answer = block_on(reader.fleet(tally, asked, &|| false)).unwrap();
    let rows = answer.items.iter().map(|row| {
        let name = row.pipeline.as_ref().or(row.group.as_ref());
        format!("{name:?} {:?} {:?} {:?} {:?}", row.state, row.states, row.next, row.counts)
    });
    let rows: Vec<_> = rows.collect();
    let (totals, sections) = (&answer.totals, &answer.sections);
    format!("{totals:#?} {:#?} {sections:#?} {rows:#?} {:?}", answer.pipelines, answer.next)
}

#[test]
fn the_tally_is_what_a_recount_says_at_every_moment_while_hints_come() {
    for seed in 1..=2 {
        let clock = Clock::new();
        let mut ledger = RandomLedger::new(memory(&clock), clock, seed);
        an_hour(&mut ledger, Hints::All, 10);
    }
}

#[test]
fn after_an_hour_in_which_every_second_hint_was_dropped_the_tally_is_what_a_recount_says() {
    let mut lost = 0;
    for seed in 11..=12 {
        let clock = Clock::new();
        let mut ledger = RandomLedger::new(memory(&clock), clock, seed);
        let (wrong, cells) = an_hour(&mut ledger, Hints::EverySecond, 10);
        assert!(wrong < cells / 2, "seed {seed}: {wrong} of {cells} cells");
        lost += wrong;
    }
    assert!(lost > 0, "hints were dropped and nothing came of it: the test drops none");
}

#[test]
fn the_same_on_the_embedded_store() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let store = EmbeddedStore::open_daemon(folder.path(), clock.reader()).unwrap();
    let mut ledger = RandomLedger::new(Arc::new(store), clock, 21);
    an_hour(&mut ledger, Hints::EverySecond, 40);
}

#[test]
fn a_clock_that_goes_back_an_hour_begins_a_new_count() {
    let clock = Clock::new();
    let mut ledger = RandomLedger::new(memory(&clock), clock, 31);
    let tally = FleetTally::default();
    let mut follower = follower(&tally, ledger.store());
    block_on(follower.come_round()).unwrap();
    ledger.clock().advance(-3_600);
    // Of this no hint comes: only a new count sees it.
    ledger.change(Hints::None);
    block_on(follower.come_round()).unwrap();
    assert_same(&tally, &ledger);
}

#[test]
fn who_was_away_for_longer_than_events_are_relied_on_counts_anew() {
    let clock = Clock::new();
    let mut ledger = RandomLedger::new(memory(&clock), clock, 32);
    let tally = FleetTally::default();
    let mut follower = follower(&tally, ledger.store());
    block_on(follower.come_round()).unwrap();
    for _ in 0..40 {
        ledger.clock().advance(20);
        ledger.change(Hints::None);
    }
    block_on(follower.come_round()).unwrap();
    assert_same(&tally, &ledger);
}

fn ask(ledger: &RandomLedger, asked: &FleetQuery) -> FleetAnswer {
    let tally = FleetTally::default();
    block_on(follower(&tally, ledger.store()).come_round()).unwrap();
    let declarations = declared();
    let reader =
        Reader { store: &**ledger.store(), declarations: &declarations, now: ledger.clock().now() };
    block_on(reader.fleet(&tally, asked, &|| true)).unwrap()
}

#[test]
fn the_numbers_add_up_on_every_page_and_grouping() {
    let clock = Clock::new();
    let mut ledger = RandomLedger::new(memory(&clock), clock, 41);
    ledger.change(Hints::All);
    let whole = ask(&ledger, &FleetQuery::default());
    let totals = &whole.totals;
    assert_eq!(totals.due, totals.counts.sum() + totals.unaccounted);
    assert!(totals.due > 0, "something was due since midnight");
    assert_eq!(whole.buckets, 60, "15 hours of quarters");
    for row in &whole.items {
        let cells = row.cells.iter().map(|cell| cell.counts.sum()).sum::<u64>();
        assert_eq!(cells, row.counts.sum(), "{:?}", row.pipeline);
        assert!(row.reason.chars().count() <= 45, "{}", row.reason);
        if row.lists_all_slots {
            assert_eq!(row.slots.len() as u64, row.counts.sum(), "{:?}", row.pipeline);
        }
        // Behind three in the afternoon and before six, a slot every five minutes.
        assert_eq!(row.counts.planned, 35, "{:?}", row.pipeline);
    }
    let grouped = |members| FleetQuery {
        group: Some("owner".to_owned()),
        members,
        attention: Some(0),
        ..FleetQuery::default()
    };
    let groups = ask(&ledger, &grouped(None));
    let sum = |answer: &FleetAnswer| answer.items.iter().map(|row| row.counts.sum()).sum::<u64>();
    assert_eq!(sum(&groups), sum(&whole), "groups are the sum of their pipelines");
    assert_eq!(groups.groups, 3);
    assert_eq!(sum(&ask(&ledger, &grouped(Some(100)))), sum(&whole), "and so are their members");
    let pipelines: u64 = groups.items.iter().map(|row| row.pipelines).sum();
    assert_eq!(pipelines, whole.pipelines.pipelines);
}

#[test]
fn pages_show_each_pipeline_once_and_the_worst_first() {
    let clock = Clock::new();
    let mut ledger = RandomLedger::new(memory(&clock), clock, 42);
    for _ in 0..20 {
        ledger.clock().advance(30);
        ledger.change(Hints::All);
    }
    let whole = ask(&ledger, &FleetQuery::default());
    let mut states: Vec<FleetState> = whole.items.iter().map(|row| row.state).collect();
    assert!(states.is_sorted(), "{states:?}");
    states.dedup();
    assert!(states.len() > 1, "one state alone says nothing of the order: {states:?}");
    let mut asked = FleetQuery { limit: Some(3), ..FleetQuery::default() };
    let mut names = Vec::new();
    loop {
        let page = ask(&ledger, &asked);
        let sections: usize = page.sections.iter().map(|section| section.rows).sum();
        assert_eq!(sections, page.items.len(), "each row is in a section");
        names.extend(page.items.into_iter().filter_map(|row| row.pipeline));
        asked.after = page.next;
        if asked.after.is_none() {
            break;
        }
    }
    let all: Vec<_> = whole.items.iter().filter_map(|row| row.pipeline.clone()).collect();
    assert_eq!(names, all);
}

#[test]
fn a_group_is_shown_as_its_pipelines_where_they_are_few_and_those_in_trouble_come_first() {
    let clock = Clock::new();
    let mut ledger = RandomLedger::new(memory(&clock), clock, 43);
    for _ in 0..20 {
        ledger.clock().advance(30);
        ledger.change(Hints::All);
    }
    let page = ask(
        &ledger,
        &FleetQuery {
            group: Some("label:part".to_owned()),
            members: Some(100),
            ..Default::default()
        },
    );
    let first = &page.sections[0];
    assert_eq!(first.kind, FleetSectionKind::Attention);
    assert_eq!(first.pipelines, page.pipelines.attention);
    assert!(page.items[..first.rows].iter().all(|row| row.needs_attention));
    let names: Vec<_> = page.items.iter().filter_map(|row| row.pipeline.clone()).collect();
    let mut once = names.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), names.len(), "nothing is shown twice");
    assert_eq!(once.len() as u64, page.pipelines.pipelines, "and all of it once");
}

#[test]
fn a_longer_range_is_read_for_the_page_and_what_there_was_no_time_for_is_said() {
    let clock = Clock::new();
    let ledger = RandomLedger::new(memory(&clock), clock, 44);
    let now = ledger.clock().now();
    let from = now.saturating_sub(SignedDuration::from_hours(72)).unwrap();
    let asked = FleetQuery { from: Some(from), ..FleetQuery::default() };
    let whole = ask(&ledger, &asked);
    let written = ledger.counted_since(whole.from);
    let counted: u64 = whole.items.iter().map(|row| row.counts.sum() - row.counts.planned).sum();
    assert_eq!(counted, written);
    assert!(whole.items.iter().all(|row| row.counted_from <= whole.from), "all of it is counted");
    let tally = FleetTally::default();
    let mut follower = follower(&tally, ledger.store());
    block_on(follower.come_round()).unwrap();
    let declarations = declared();
    let reader = Reader { store: &**ledger.store(), declarations: &declarations, now };
    let hurried = block_on(reader.fleet(&tally, &asked, &|| false)).unwrap();
    assert!(hurried.items.iter().all(|row| row.counted_from > hurried.from), "it is said");
    assert!(follower.is_wanted(), "what was asked for is read meanwhile");
    for _ in 0..20 {
        ledger.clock().advance(1);
        block_on(follower.come_round()).unwrap();
    }
    assert!(!follower.is_wanted());
    let again = block_on(reader.fleet(&tally, &asked, &|| false)).unwrap();
    let counted: u64 = again.items.iter().map(|row| row.counts.sum() - row.counts.planned).sum();
    assert_eq!(counted, written, "the next page has it");
}

#[test]
fn a_row_that_cannot_be_read_costs_a_quarter_of_an_hour_of_its_pipeline_and_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let store = EmbeddedStore::open_daemon(folder.path(), clock.reader()).unwrap();
    let ledger = RandomLedger::new(Arc::new(store), clock, 51);
    let (name, at) = ledger.a_row_of_today(4);
    let damaged = rusqlite::Connection::open(folder.path().join("ledger.db")).unwrap();
    let of = "(SELECT id FROM names WHERE name = ?1)";
    let rows = damaged
        .execute(
            &format!("UPDATE slots SET body = 'x' WHERE pipeline = {of} AND nominal = ?2"),
            rusqlite::params![name, at.as_microsecond()],
        )
        .unwrap();
    assert_eq!(rows, 1);
    damaged
        .execute(&format!("UPDATE pipelines SET body = 'x' WHERE pipeline = {of}"), ["p007"])
        .unwrap();
    let answer = ask(&ledger, &FleetQuery::default());
    let unreadable: Vec<_> = answer.unreadable.iter().map(|row| row.pipeline.as_str()).collect();
    assert_eq!(unreadable, ["p007", name.as_str()]);
    let row = answer.items.iter().find(|row| row.pipeline.as_ref() == Some(&name)).unwrap();
    assert!(row.reason.starts_with("a row cannot be read"), "{}", row.reason);
    assert_eq!(answer.items.len(), 8, "one pipeline is not shown, and all others are");
    let tally = FleetTally::default();
    block_on(follower(&tally, ledger.store()).come_round()).unwrap();
    let (counted, mut written) = (tally.cells(ledger.clock().now()), ledger.cells());
    let quarter = Timestamp::from_second(at.as_second().div_euclid(900) * 900).unwrap();
    written.retain(|(pipeline, start, _), _| {
        pipeline != "p007" && (*pipeline != name || *start != quarter)
    });
    assert_eq!(differences(&counted, &written), 0);
}

#[test]
fn a_word_that_is_not_known_counts_as_unknown_and_is_said() {
    let clock = Clock::new();
    let mut ledger = RandomLedger::new(memory(&clock), clock, 52);
    ledger.write_odd_word(3);
    let answer = ask(&ledger, &FleetQuery::default());
    let unreadable: Vec<_> = answer.unreadable.iter().map(|row| row.pipeline.as_str()).collect();
    assert_eq!(unreadable, ["p003"]);
    let tally = FleetTally::default();
    block_on(follower(&tally, ledger.store()).come_round()).unwrap();
    assert_same(&tally, &ledger);
}

#[test]
fn a_question_that_cannot_be_answered_says_what_can_be_asked() {
    let clock = Clock::new();
    let ledger = RandomLedger::new(memory(&clock), clock, 53);
    let tally = FleetTally::default();
    let declarations = declared();
    let now = ledger.clock().now();
    let reader = Reader { store: &**ledger.store(), declarations: &declarations, now };
    let refused =
        |asked: FleetQuery| block_on(reader.fleet(&tally, &asked, &|| true)).unwrap_err().message;
    let word = |text: &str| Some(text.to_owned());
    let long = now.saturating_sub(SignedDuration::from_hours(121 * 24)).unwrap();
    for (asked, says) in [
        (FleetQuery { group: word("colour"), ..Default::default() }, "`group` is `colour`"),
        (FleetQuery { tz: word("Mars/Base"), ..Default::default() }, "`tz` is `Mars/Base`"),
        (FleetQuery { state: vec!["odd".to_owned()], ..Default::default() }, "`state` is `odd`"),
        (FleetQuery { bucket: Some(60), ..Default::default() }, "`bucket` is 60"),
        (FleetQuery { width: Some(1), ..Default::default() }, "`width` is 1"),
        (FleetQuery { from: Some(now), until: Some(now), ..Default::default() }, "cannot be shown"),
        (FleetQuery { from: Some(long), ..Default::default() }, "cannot be shown"),
        (FleetQuery { after: word("x"), ..Default::default() }, "no cursor"),
    ] {
        let said = refused(asked);
        assert!(said.contains(says), "{said}");
    }
}
