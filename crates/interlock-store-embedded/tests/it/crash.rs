//! A process that is killed at any moment loses nothing that it acknowledged, and leaves no half group.

use std::{collections::BTreeSet, path::Path};

use interlock_store::{Key, Record, Store, block_on};

use crate::{
    cast::{PIPELINES, due_key, pipeline, reader, slot, slot_key},
    child::Player,
};

const KILLS: u64 = 25;

#[test]
fn acknowledged_groups_survive_kills_and_no_group_is_half_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged: BTreeSet<u64> = BTreeSet::new();
    for kill in 0..KILLS {
        let first = acknowledged.last().map_or(0, |last| (last / PIPELINES + 2) * PIPELINES);
        acknowledged.extend(run_and_kill(folder.path(), first, kill));
        check(folder.path(), &acknowledged);
    }
    assert!(acknowledged.len() as u64 > KILLS * PIPELINES, "{}", acknowledged.len());
    assert_eq!(interlock_store_embedded::check(folder.path()).unwrap(), Vec::<String>::new());
}

/// What a process acknowledged before it was killed: after a few rounds, at a moment within the next.
fn run_and_kill(folder: &Path, first: u64, kill: u64) -> Vec<u64> {
    let mut player = Player::start("commits", folder, first);
    let wanted = (1 + kill % 5) * PIPELINES;
    let mut heard: Vec<u64> = (0..wanted).map_while(|_| player.acknowledged()).collect();
    for _ in 0..kill * 4_001 % 50_000 {
        std::hint::spin_loop();
    }
    player.child.kill().unwrap();
    heard.extend(std::iter::from_fn(|| player.acknowledged()));
    heard
}

fn check(folder: &Path, acknowledged: &BTreeSet<u64>) {
    // A reader takes over the log of the dead process just as a daemon does.
    let store = reader(folder);
    let events: BTreeSet<u64> = block_on(store.events(None, 0, 10_000_000))
        .unwrap()
        .items
        .iter()
        .map(|event| event.record.message.parse().unwrap())
        .collect();
    assert!(acknowledged.is_subset(&events), "{:?}", acknowledged.difference(&events));
    let last = events.last().map_or(0, |last| last + 3 * PIPELINES);
    for number in 0..=last {
        let keys: [Key; 2] = [slot_key(number), due_key(number)];
        let rows = block_on(store.read(&pipeline(number), &keys)).unwrap();
        let there = events.contains(&number);
        assert!(rows.iter().all(|row| row.is_some() == there), "{number}: {there} {rows:?}");
        if there {
            assert_eq!(rows[0].as_ref().unwrap().record, Record::Slot(slot(number).into()));
        }
    }
}
