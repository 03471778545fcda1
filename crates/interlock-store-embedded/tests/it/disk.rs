//! Disks that are full or fail.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use interlock_store::{Key, Store, block_on};
use interlock_store_conformance::START;
use interlock_store_embedded::recover;
use interlock_wait::{BOUND, CommandWithin as _};

use crate::{
    cast::{bulky, commit, daemon, group, pipeline, slot_key, writer},
    child::Player,
};

/// A small disk, as far as this user may mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(folder.path());
        mount.output_within(BOUND).is_ok_and(|output| output.status.success()).then(|| Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A disk that stays mounted is untidy, no more.
        drop(Command::new("umount").arg("-l").arg(self.path()).status_within(BOUND));
    }
}

#[test]
fn full_disk_is_said_and_nothing_is_half_applied_and_it_goes_on() {
    let Some(disk) = SmallDisk::mount() else {
        println!("only root may mount a small disk: not tried");
        return;
    };
    let filler: PathBuf = disk.path().join("filler");
    std::fs::write(&filler, vec![0; 3 << 20]).unwrap();
    let store = daemon(&disk.path().join("store"));
    let right = writer(&store);
    let mut number = 0;
    let error = loop {
        match commit(&store, bulky(right, number, 20_000)) {
            Ok(result) => result.unwrap(),
            Err(error) => break error,
        };
        number += 1;
    };
    assert!(number > 10, "{number}");
    assert!(error.message.contains("the disk is full under"), "{error}");
    assert!(error.is_retryable);
    let rows =
        block_on(store.read(&pipeline(0), &[Key::Version(number), Key::Version(number - 1)]));
    let rows = rows.unwrap();
    assert!(rows[0].is_none() && rows[1].is_some(), "what was refused is not there");
    std::fs::remove_file(&filler).unwrap();
    commit(&store, bulky(right, number, 20_000)).unwrap().unwrap();
    commit(&store, group(right, 7)).unwrap().unwrap();
    let rows = block_on(store.read(&pipeline(7), &[slot_key(7)])).unwrap();
    assert!(rows[0].is_some());
}

#[test]
fn failing_disk_stops_the_store_and_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut player = Player::start_limited("fills", folder.path(), 2_000);
    let mut acknowledged = 0;
    let (failed, refused, unread) = loop {
        let Some(line) = player.hear("") else { panic!("it ended without a word") };
        match line.split_once(' ') {
            Some(("ack", _)) => acknowledged += 1,
            Some(("failed", rest)) => {
                let refused = player.hear("refused ").unwrap();
                break (rest.to_owned(), refused, player.hear("unread ").unwrap());
            }
            _ => {}
        }
    };
    assert!(failed.starts_with("true the disk failed under"), "{failed}");
    assert!(refused.starts_with("false the store has stopped: the disk failed"), "{refused}");
    assert!(unread.starts_with("false the store has stopped: the disk failed"), "{unread}");
    drop(player);
    let store = daemon(folder.path());
    for number in 0..acknowledged {
        let rows = block_on(store.read(&pipeline(0), &[Key::Version(number)])).unwrap();
        assert!(rows[0].is_some(), "{number}");
    }
}

#[test]
fn a_recovery_on_a_full_disk_changes_nothing_and_works_once_there_is_room() {
    let Some(disk) = SmallDisk::mount() else {
        println!("only root may mount a small disk: not tried");
        return;
    };
    let folder = disk.path().join("store");
    let store = daemon(&folder);
    let right = writer(&store);
    for number in 0..60 {
        commit(&store, bulky(right, number, 20_000)).unwrap().unwrap();
    }
    drop(store);
    let path = folder.join("ledger.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
    drop(db);
    let mut damaged = std::fs::read(&path).unwrap();
    damaged[4096 * 20..4096 * 21].fill(0x5a);
    std::fs::write(&path, &damaged).unwrap();
    // All but a few pages.
    let filler: PathBuf = disk.path().join("filler");
    let room = (6 << 20) - damaged.len() - (256 << 10);
    std::fs::write(&filler, vec![0; room]).unwrap();
    let error = recover(&folder, START).unwrap_err();
    assert!(error.message.contains("the disk is full under"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), damaged, "it stands as it stood");
    assert!(!folder.join("ledger.db.recovering").exists());
    std::fs::remove_file(&filler).unwrap();
    assert!(recover(&folder, START).unwrap().is_some());
    let rows = block_on(daemon(&folder).read(&pipeline(0), &[Key::Version(1)])).unwrap();
    assert!(rows[0].is_some());
}
