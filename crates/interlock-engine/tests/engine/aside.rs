//! One pipeline that cannot be planned does not stop the others.

use std::{pin::pin, sync::Arc};

use interlock_core::{
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
    zone::Zone,
};
use interlock_engine::{
    Declaration, Engine,
    seam::{Specs, Task},
};
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Shard, Store as _, block_on, record::SlotRecord,
};
use jiff::SignedDuration;

use crate::{
    Files,
    stage::{Job, Stage, at},
};

/// Files of which one makes whoever reads it panic.
struct Cursed(Files);

impl Specs for Cursed {
    fn pipeline(&self, name: &PipelineId, version: u64) -> Task<Result<Arc<Pipeline>, String>> {
        assert_ne!(name.as_str(), "cursed", "as a mistake of ours would");
        self.0.pipeline(name, version)
    }

    fn today(&self, name: &PipelineId, version: u64) -> Task<Result<Declaration, String>> {
        self.0.today(name, version)
    }

    fn zone(&self, name: &str) -> Option<Zone> {
        self.0.zone(name)
    }
}

fn pipelines() -> [String; 2] {
    ["cursed", "healthy"].map(|name| {
        format!(
            "name: {name}\nschedule: \"0 * * * *\"\ntrigger: {{type: command, command: 'true'}}\n"
        )
    })
}

fn stage() -> Stage {
    let files = pipelines();
    Stage::new(at("09:30"), &[&files[0], &files[1]], |_| Job::Succeeds(5))
}

const ASIDE: [&str; 2] = ["PIPELINE_SET_ASIDE", "PIPELINE_TAKEN_BACK"];

#[test]
fn a_panic_in_one_plan_is_that_pipelines_alone() {
    let mut stage = stage();
    let mut parts = stage.parts("test");
    parts.specs = Arc::new(Cursed(stage.files.clone()));
    let files = stage.files.clone();
    let life = async move {
        let mut engine = Engine::open(parts, Shard(0)).await.unwrap().unwrap();
        let changes = files.changes(&engine);
        engine.declare(&changes).await.unwrap();
        engine.run(Box::pin(std::future::pending())).await
    };
    let mut life = Box::pin(life);
    let ended = stage.world.run(pin!(&mut life), at("12:30"));
    assert!(ended.is_none(), "{ended:?}");
    drop(life);
    assert_eq!(stage.started().len(), 3, "the healthy one ran at ten, eleven and twelve");
    let told = stage.told(&ASIDE);
    assert_eq!(told.len(), 1, "once, not at each try: {told:?}");
    assert!(told[0].contains("a bug in Interlock"), "{told:?}");
    // A version without the mistake takes it back, with its slots.
    stage.crash();
    stage.until(at("13:30"));
    assert_eq!(stage.told(&ASIDE).len(), 1, "a new process knows nothing of it, and needs not");
    let cursed = stage.slots().into_iter().filter(|slot| slot.contains("open")).count();
    assert_eq!(cursed, 0, "{:?}", stage.slots());
}

#[test]
fn a_row_that_cannot_be_read_is_that_pipelines_alone() {
    let mut stage = stage();
    stage.until(at("10:01"));
    let cursed = PipelineId::parse("cursed").unwrap();
    let schedule = ScheduleId::any("cron").unwrap();
    stage.crash();
    // What a later version might have written.
    let lease =
        block_on(stage.store.acquire(Role::Engine, Shard(0), "test", SignedDuration::from_secs(1)));
    let key = Key::Slot(schedule, at("05:00"));
    let record = SlotRecord { state: "dreaming".into(), ..stage.any_slot() };
    let group = Group {
        pipeline: cursed,
        writer: lease.unwrap().unwrap().writer,
        changes: vec![Change::Put(key, Expect::Absent, Record::Slot(record.into()))],
    };
    assert!(block_on(stage.store.commit(vec![group])).unwrap()[0].is_ok());
    stage.world.pass(SignedDuration::from_secs(2));
    assert!(stage.until(at("12:30")).is_none(), "the engine lives");
    let told = stage.told(&ASIDE);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("dreaming"), "{told:?}");
    let healthy = stage.started().iter().filter(|run| run.starts_with("healthy")).count();
    assert_eq!(healthy, 3);
}
