//! The lease of an engine, and how long it is believed.

use std::{pin::pin, sync::Arc};

use interlock_core::id::PipelineId;
use interlock_engine::{Engine, seam::World as _};
use interlock_sim::gated::{Gate, Gated, Passage};
use interlock_store::{Shard, Store as _, block_on, record::InboxRecord};
use jiff::SignedDuration;

use crate::{
    stage::{Job, Stage, at},
    world::Virtual,
};

const ORDERS: &str = "
name: orders
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'true'}
";

/// Keeps back answers to renewals for eight minutes: the store has prolonged the lease, and says so when hardly anything is left.
struct Late(Virtual);

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Late")
    }
}

impl Gate for Late {
    fn enter(&self, _: &'static str) -> Option<Passage<'_>> {
        None
    }

    fn leave(&self, verb: &'static str) -> Option<Passage<'_>> {
        let asked = self.0.time();
        if verb != "renew" || !(at("08:57")..at("09:05")).contains(&asked) {
            return None;
        }
        let arrives = asked + SignedDuration::from_secs(170);
        Some(Box::pin(async move {
            self.0.sleep_until(arrives).await;
            Ok(())
        }))
    }
}

/// Fault 32: of three minutes nine tenths are believed, and they began before the question.
#[test]
fn a_lease_is_believed_from_when_it_was_asked_for_and_not_from_the_answer_on() {
    let stage = Stage::new(at("08:30"), &[ORDERS], |_| Job::Succeeds(5));
    let gate = Late(stage.world.clone());
    let mut parts = stage.parts("test");
    parts.store = Arc::new(Gated::new(Arc::clone(&stage.store) as _, gate));
    let files = stage.files.clone();
    let mut life = Box::pin(async move {
        let mut engine = Engine::open(parts, Shard(0)).await.unwrap().unwrap();
        let changes = files.changes(&engine);
        engine.declare(&changes).await.unwrap();
        engine.run(Box::pin(std::future::pending())).await
    });
    let mut until = |time: &str| assert!(stage.world.run(pin!(&mut life), at(time)).is_none());
    until("08:58");
    // While it waits for the answer.
    let orders = PipelineId::parse("orders").unwrap();
    let run = InboxRecord::Run { slot: None, force: false, params: [].into(), webhook: false };
    block_on(stage.store.post(&orders, "now", &run)).unwrap();
    until("09:05");
    let opened = stage.told(&["JOB_TRIGGERED"]);
    assert!(!opened.is_empty(), "the store still takes what it writes: {opened:?}");
    assert_eq!(stage.started(), Vec::<String>::new(), "somebody else may lead by now");
    until("09:30");
    assert_eq!(stage.started().len(), 1, "it is started once the lease is sure");
}
