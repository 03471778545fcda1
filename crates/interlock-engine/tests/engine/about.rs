//! What lists say of a pipeline is in its row, whatever is done to the pipeline.

use std::sync::Arc;

use interlock_core::id::PipelineId;
use interlock_engine::seam::World as _;
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Row, Shard, Store as _, block_on,
    record::{AboutRecord, InboxRecord, PipelineRecord},
};
use jiff::SignedDuration;

use crate::{Files, Machine};

const TEXT: &str = "name: orders\nowner: data-team\ndescription: Orders of the shop.\ntier: 2\n\
                    labels: {area: sales}\nschedule: \"0 * * * *\"\n\
                    trigger: {type: command, command: 'true'}\n";

fn orders() -> PipelineId {
    PipelineId::parse("orders").unwrap()
}

fn row(machine: &Machine) -> (PipelineRecord, u64) {
    let rows = block_on(machine.store.read(&orders(), &[Key::Pipeline])).unwrap();
    match rows.into_iter().flatten().next() {
        Some(Row { record: Record::Pipeline(record), revision }) => {
            (Arc::unwrap_or_clone(record), revision)
        }
        other => panic!("{other:?}"),
    }
}

/// An engine that lives for twenty minutes.
fn live(machine: &Machine) {
    let until = machine.world.now() + SignedDuration::from_mins(20);
    machine.live(u64::MAX, until);
}

/// Makes the row what an older version wrote.
fn forget_about(machine: &Machine) {
    let (record, revision) = row(machine);
    let ttl = SignedDuration::from_hours(24);
    let lease = block_on(machine.store.acquire(Role::Engine, Shard(0), "test", ttl)).unwrap();
    let record = Record::Pipeline(PipelineRecord { about: None, ..record }.into());
    let changes = vec![Change::Put(Key::Pipeline, Expect::Revision(revision), record)];
    let group = Group { pipeline: orders(), writer: lease.unwrap().writer, changes };
    block_on(machine.store.commit(vec![group])).unwrap().remove(0).unwrap();
}

fn ask(machine: &Machine, key: &str, request: &InboxRecord) {
    block_on(machine.store.post(&orders(), key, request)).unwrap();
    live(machine);
}

#[test]
fn what_lists_say_of_a_pipeline_is_in_its_row_and_stays_there() {
    let mut machine = Machine::new(&[TEXT]);
    live(&machine);
    let about = AboutRecord {
        owner: Some("data-team".to_owned()),
        description: Some("Orders of the shop.".to_owned()),
        tier: Some(2),
        labels: [("area".to_owned(), "sales".to_owned())].into(),
        trigger: Some("command".into()),
    };
    let about_of = |machine: &Machine| row(machine).0.about.as_deref().cloned();
    assert_eq!(about_of(&machine).as_ref(), Some(&about));
    let pause = InboxRecord::Pause { reason: "moving house".to_owned(), until: None };
    ask(&machine, "pause", &pause);
    assert!(row(&machine).0.pause.is_some());
    assert_eq!(about_of(&machine).as_ref(), Some(&about), "a pause keeps it");
    ask(&machine, "resume", &InboxRecord::Resume { catchup: None });
    assert_eq!(about_of(&machine).as_ref(), Some(&about), "a resume keeps it");
    machine.files = Files::new(&[]);
    live(&machine);
    assert!(row(&machine).0.retired_at.is_some());
    assert_eq!(about_of(&machine).as_ref(), Some(&about), "a pipeline whose file is gone keeps it");
}

#[test]
fn a_row_from_before_it_was_kept_is_completed_once() {
    let machine = Machine::new(&[TEXT]);
    live(&machine);
    let (whole, _) = row(&machine);
    forget_about(&machine);
    let (_, before) = row(&machine);
    live(&machine);
    assert_eq!(row(&machine), (whole.clone(), before + 1));
    live(&machine);
    assert_eq!(row(&machine), (whole, before + 1), "one that has it is not written again");
    assert_eq!(machine.log().matches("PIPELINE_CHANGED").count(), 0, "nothing was edited");
}
