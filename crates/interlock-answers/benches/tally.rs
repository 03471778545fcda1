//! The fleet's tally at a hundred thousand pipelines: how long a first count takes, what a pipeline weighs, and how long a page takes.
//!
//! On the embedded store: nine of ten pipelines are daily, nine of a hundred hourly, and one of a hundred is due every five minutes, for 48 hours; the
//! first thousand have a ledger of 90 days. `tally/…@limit` is the least that a page needs: its own text.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use interlock_answers::{
    DeclarationFuture, Declarations, FleetFollower, FleetTally, Reader,
    model::fleet::{FleetAnswer, FleetOrder, FleetQuery},
};
use interlock_config::{SystemZones, ZoneSource as _, decode_version};
use interlock_core::{
    agenda::Agenda,
    id::{PipelineId, ScheduleId},
    zone::Zone,
};
use interlock_store::{
    Freight, Key, Record, Row, Store, StoredRow, block_on,
    record::{AboutRecord, AgendaRecord, MarksRecord, PipelineRecord, SlotRecord, WatermarkRecord},
};
use interlock_store_embedded::EmbeddedStore;
use jiff::{SignedDuration, Timestamp};

/// Pipelines; fewer with `TALLY_PIPELINES`, where the figures show what grows with them.
const PIPELINES: usize = 100_000;
/// So many have 90 days.
const OLD: usize = 1_000;
const SHOPS: usize = 5_000;
/// Pages of each kind that are asked for.
const PAGES: usize = 100;
/// What the route gives a page to read.
const READ_FOR: Duration = Duration::from_millis(40);
const VERSION: &str = "0000000000000001";

#[derive(Debug)]
struct Zones;

impl Declarations for Zones {
    fn current<'a>(&'a self, _pipeline: &'a PipelineId) -> DeclarationFuture<'a> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn version<'a>(&'a self, _pipeline: &'a PipelineId, _version: u64) -> DeclarationFuture<'a> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn zone(&self, name: &str) -> Option<Zone> {
        SystemZones::new().zone(name)
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    if filter.is_some_and(|filter| !"tally/".contains(&filter) && !filter.starts_with("tally")) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let now = Timestamp::now();
    let store = EmbeddedStore::open_daemon(folder.path(), Arc::new(Timestamp::now));
    let store: Arc<dyn Store> = Arc::new(store.expect("it is made"));
    let began = Instant::now();
    let pipelines = pipelines();
    let rows = fill(store.as_ref(), pipelines, now);
    println!("{rows} rows written in {:.0} s", began.elapsed().as_secs_f64());
    let tally = FleetTally::default();
    let before = resident();
    let mut follower = FleetFollower::new(tally.clone(), Arc::clone(&store), Arc::new(Zones));
    let (began, core) = (Instant::now(), on_core());
    block_on(follower.come_round()).expect("it counts");
    println!("RESULT name=tally/first_count_100k seconds={:.2}", began.elapsed().as_secs_f64());
    println!("the first count took {:.2} s of a core", on_core() - core);
    let (average, most) = tally.bytes_per_pipeline();
    println!("RESULT name=tally/pipeline_100k kib={:.3}", kib(average));
    println!("RESULT name=tally/pipeline_largest kib={:.3}", kib(most));
    #[expect(clippy::cast_precision_loss, reason = "a count of kilobytes")]
    let each = (resident() - before) as f64 / pipelines as f64;
    println!("resident memory grew by {each:.2} KiB for each pipeline");
    let (began, core) = (Instant::now(), on_core());
    block_on(follower.come_round()).expect("it follows");
    println!("RESULT name=tally/idle_round_100k seconds={:.4}", began.elapsed().as_secs_f64());
    println!("a round with a step of the recount took {:.4} s of a core", on_core() - core);
    let core = on_core();
    block_on(follower.come_round()).expect("it follows");
    println!("a round in which nothing happened took {:.4} s of a core", on_core() - core);
    let page = |asked: FleetQuery| {
        let began = OnceLock::new();
        let now = block_on(store.now()).expect("it has a clock");
        let reader = Reader { store: &*store, declarations: &Zones, now };
        let is_time_left = || began.get_or_init(Instant::now).elapsed() < READ_FOR;
        block_on(reader.fleet(&tally, &asked, &is_time_left)).expect("it answers")
    };
    for (name, back) in [("12h", 12), ("3d", 72), ("90d", 90 * 24)] {
        for grouped in [false, true] {
            let from = now.saturating_sub(SignedDuration::from_hours(back)).expect("a time");
            let asked = FleetQuery {
                from: Some(from),
                group: grouped.then(|| "label:shop".to_owned()),
                order: Some(FleetOrder::Name),
                tz: Some("Europe/Berlin".to_owned()),
                limit: Some(40),
                ..FleetQuery::default()
            };
            let name = if grouped { format!("{name}_by_label") } else { name.to_owned() };
            measure(&name, &asked, &page);
            settle(&mut follower, &asked, &page);
        }
    }
}

/// Asks for one page after the other, and begins again at the end.
fn measure(name: &str, asked: &FleetQuery, page: &dyn Fn(FleetQuery) -> FleetAnswer) {
    let (mut took, mut written, mut asked) = (Vec::new(), Vec::new(), asked.clone());
    let (mut rows, mut whole) = (0, 0);
    let mut busy = Vec::new();
    for _ in 0..PAGES {
        let (began, core) = (Instant::now(), on_core());
        let answer = page(asked.clone());
        let text = serde_json::to_vec(&answer).expect("it is written");
        took.push(began.elapsed().as_secs_f64());
        busy.push(on_core() - core);
        let began = Instant::now();
        let again = serde_json::to_vec(&answer).expect("it is written");
        written.push(began.elapsed().as_secs_f64());
        assert_eq!(text.len(), again.len());
        rows += answer.items.len();
        whole += answer.items.iter().filter(|row| row.counted_from <= answer.from).count();
        asked.after = answer.next;
    }
    println!("RESULT name=tally/{name}_p99 seconds={:.4}", p99(took));
    println!("RESULT name=tally/{name}_p99@limit seconds={:.4}", p99(written));
    println!(
        "{name}: p99 {:.4} s of a core, {rows} rows, {whole} of them with all of the past at the first look",
        p99(busy)
    );
}

/// How long it takes until the first page has all of its past.
fn settle(
    follower: &mut FleetFollower,
    asked: &FleetQuery,
    page: &dyn Fn(FleetQuery) -> FleetAnswer,
) {
    let began = Instant::now();
    loop {
        let answer = page(asked.clone());
        if answer.items.iter().all(|row| row.counted_from <= answer.from) {
            break;
        }
        block_on(follower.come_round()).expect("it reads what is wanted");
    }
    println!("the first page has all of it after {:.2} s more", began.elapsed().as_secs_f64());
}

fn p99(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let at = figures.len().saturating_sub(1) * 99 / 100;
    figures.get(at).copied().unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "a count of bytes")]
fn kib(bytes: usize) -> f64 {
    bytes as f64 / 1024.0
}

/// Memory that this process holds, in kilobytes, without what is mapped from files.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

fn pipelines() -> usize {
    let asked = std::env::var("TALLY_PIPELINES").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(PIPELINES)
}

/// Seconds for which this process had a core: what it takes on a machine that does other things too.
fn on_core() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let text = threads.filter_map(|it| std::fs::read_to_string(it.path().join("schedstat")).ok());
    let each = text.filter_map(|text| text.split(' ').next()?.parse::<f64>().ok());
    each.sum::<f64>() / 1e9
}

/// Writes the ledger; says how many rows it has.
fn fill(store: &dyn Store, pipelines: usize, now: Timestamp) -> usize {
    let mut count = 0;
    let mut portion = Vec::new();
    for number in 0..pipelines {
        portion.extend(rows_of(number, now));
        if portion.len() >= 5_000 || number + 1 == pipelines {
            count += portion.len();
            let rows = std::mem::take(&mut portion);
            let freight = Freight { rows, ..Freight::default() };
            block_on(store.import(freight)).expect("the store takes rows");
        }
    }
    count
}

fn rows_of(number: usize, now: Timestamp) -> Vec<StoredRow> {
    let (minute, hour) = (number / 24 % 60, number % 24);
    let (cron, step, offset) = match number % 100 {
        0 => ("*/5 * * * *".to_owned(), 300, 0),
        1..=9 => (format!("{minute} * * * *"), 3_600, minute * 60),
        _ => (format!("{minute} {hour} * * *"), 86_400, hour * 3_600 + minute * 60),
    };
    let text = format!(
        "name: p{number:06}\nowner: team-{}\nlabels: {{shop: \"s{:04}\"}}\nschedules:\n  - {{id: h, cron: \"{cron}\"}}\n\
         trigger: {{type: command, command: \"true\"}}\n",
        number % 40,
        number % SHOPS
    );
    let decoded = decode_version(&text, &BTreeMap::new(), &SystemZones::new(), &|_: &str| None);
    let declared = decoded.expect("it is a declaration").pipeline;
    let days = if number < OLD && step > 300 { 90 } else { 2 };
    let first = now.as_second() - days * 86_400;
    let offset = i64::try_from(offset).expect("seconds of a day");
    let first = (first - offset).div_euclid(step) * step + offset + step;
    let schedule = ScheduleId::any("h").expect("a name");
    let at = |second: i64| Timestamp::from_second(second).expect("an instant");
    let mut last = at(first);
    let mut found = Vec::new();
    for (nth, second) in (first..=now.as_second()).step_by(step.unsigned_abs() as usize).enumerate()
    {
        last = at(second);
        let word = if (nth + number).is_multiple_of(97) { "failed" } else { "completed" };
        found.push((Key::Slot(schedule.clone(), last), slot(last, word)));
    }
    let record = PipelineRecord {
        version: VERSION.to_owned(),
        first_seen: at(first),
        retired_at: None,
        pause: None,
        disabled_since: None,
        agenda: Some(Box::new(AgendaRecord::from_core(&Agenda::of(&declared)))),
        about: Some(Box::new(AboutRecord::of(&declared))),
    };
    found.push((Key::Pipeline, Record::Pipeline(record.into())));
    found.push((Key::Watermark(schedule), Record::Watermark(WatermarkRecord { at: last })));
    let name = declared.name;
    let stored =
        |(key, record)| StoredRow { pipeline: name.clone(), key, row: Row { record, revision: 1 } };
    found.into_iter().map(stored).collect()
}

fn slot(at: Timestamp, word: &'static str) -> Record {
    let record = SlotRecord {
        state: "closed".into(),
        disposition: Some(word.into()),
        reason: None,
        generation: 1,
        attempt: 0,
        opened_by: "scheduler".into(),
        date: at.to_zoned(jiff::tz::TimeZone::UTC).date(),
        opened_at: at,
        closes_at: at,
        retry_at: None,
        marks: MarksRecord::default(),
        version: VERSION.to_owned(),
        wish: None,
        reruns: None,
        sla: None,
        evaluated: None,
    };
    Record::Slot(record.into())
}
