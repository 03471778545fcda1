//! The work of a benchmark: as many slots as there are pipelines are opened at one instant, and the time that this takes is
//! set beside the least that the server could take for the same rows.

use std::{fmt::Write as _, time::Instant};

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::SignedDuration;

use super::{
    block_on,
    sample::{START, minute, open_slot, schedule},
};
use interlock_store::{
    Accepted, Change, Expect, Group, Key, Refusal, Role, Shard, Store, StoreFuture, Writer,
    record::{EventRecord, Record, SlotRecord, WatermarkRecord},
};

/// Pipelines that each open one slot.
pub const PIPELINES: u32 = 20_000;
/// Groups in one call.
pub const BATCH: usize = 1_000;

/// Their names.
pub fn names() -> Vec<PipelineId> {
    (0..PIPELINES).map(|number| super::sample::pipeline(&format!("pipeline-{number}"))).collect()
}

/// The schedule that owes the slots.
pub fn minutely() -> ScheduleId {
    schedule("minutely")
}

/// A slot of [`START`] that was just opened.
pub fn opened_slot() -> SlotRecord {
    SlotRecord { closes_at: minute(1), ..open_slot() }
}

/// What is told of it.
pub fn opened_event() -> EventRecord {
    EventRecord {
        kind: "SLOT_OPENED".into(),
        at: START,
        slot: Some(format!("minutely/{START}")),
        run_id: None,
        message: "due by its schedule".into(),
        details: [].into(),
    }
}

/// What the scheduler commits when a slot is due: its row, the watermark and an event, for every pipeline.
fn opens(writer: Writer, names: &[PipelineId]) -> Vec<Group> {
    let group = |pipeline: &PipelineId| {
        let watermark = Record::Watermark(WatermarkRecord { at: START });
        let slot = Record::Slot(opened_slot().into());
        let changes = vec![
            Change::Put(Key::Slot(minutely(), START), Expect::Absent, slot),
            Change::Put(Key::Watermark(minutely()), Expect::Absent, watermark),
            Change::Append(opened_event().into()),
        ];
        Group { pipeline: pipeline.clone(), writer, changes }
    };
    names.iter().map(group).collect()
}

/// Seconds that a store of one shard takes, with the next batch handed in before the last is answered, as the engine
/// does.
///
/// # Panics
///
/// Panics if the store refuses a group.
#[expect(clippy::disallowed_methods, reason = "time is what is measured")]
pub fn open_all(store: &dyn Store) -> f64 {
    let names = names();
    let taking = store.acquire(Role::Engine, Shard(0), "bench", SignedDuration::from_hours(1));
    let lease = block_on(taking).expect("the store answers").expect("the shard is free");
    let batches: Vec<_> = names.chunks(BATCH).map(|names| opens(lease.writer, names)).collect();
    let settled = |under_way: StoreFuture<'_, Vec<Result<Accepted, Refusal>>>| {
        let answers = block_on(under_way).expect("the store answers");
        assert!(answers.iter().all(Result::is_ok), "every slot is opened");
    };
    let began = Instant::now();
    let mut under_way = None;
    for batch in batches {
        if let Some(last) = under_way.replace(store.commit(batch)) {
            settled(last);
        }
    }
    under_way.into_iter().for_each(settled);
    began.elapsed().as_secs_f64()
}

/// Lines that `cargo xtask bench` reads: rounds of the store's seconds, each beside the seconds of the least that the
/// server must do in the same round, because what else the machine does changes from round to round.
pub fn report(engine: &str, least: &str, rounds: &[(f64, f64)]) -> String {
    let mut lines = String::new();
    for (store, limit) in rounds {
        // Writing to a string cannot fail.
        let _infallible = writeln!(lines, "opened {store:.3} s, {least} {limit:.3} s");
    }
    let of = |figure: fn(&(f64, f64)) -> f64| median(rounds.iter().map(figure).collect());
    let (store, limit) = (of(|round| round.0), of(|round| round.1));
    let slots = f64::from(PIPELINES);
    let _infallible = write!(
        lines,
        "RESULT name={engine}/opens per_second={:.0}\nRESULT name={engine}/{least} per_second={:.0}\n\
         RESULT name={engine}/opens_share percent={:.1}",
        slots / store,
        slots / limit,
        100.0 * of(|round| round.1 / round.0)
    );
    lines
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
