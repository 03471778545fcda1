//! Whether what is recorded is what is declared: then a list of pipelines needs no file.
//!
//! So it is while every file looks as it did to the `serve` that runs here, by its index (`files.index`), and on a machine that never served
//! a store on a server: its files may be any copy of those that are in force.

use std::{collections::BTreeSet, fs, path::Path};

use interlock_config::{SystemZones, load_around};
use interlock_store::{Shard, Store, block_on};

use crate::{
    clock, environment,
    place::Place,
    serve::{
        files::fingerprint,
        index::{Index, Stamp},
    },
};

/// What the index of the files is called in the state folder.
const INDEX: &str = "files.index";

/// Whether the rows of a store say all that the files of a directory could.
pub(crate) fn rows_are_in_force(directory: &Path, place: &Place, store: &dyn Store) -> bool {
    // Rows that cannot be reached name no pipeline; a file still does.
    if !store.left_out().is_empty() {
        return false;
    }
    let index = place.folder.join(INDEX);
    if place.is_served() {
        return look_as_served(directory, &index);
    }
    !place.is_embedded() && !index.exists() && has_pipelines(store)
}

fn has_pipelines(store: &dyn Store) -> bool {
    (0..store.shard_count()).map(Shard).any(|shard| {
        let first = block_on(store.revisions(shard, None, 1));
        first.is_ok_and(|page| !page.items.is_empty())
    })
}

/// Whether every file looks as the index says. A file is known there by its stamp, because the index names it as it was named to `serve`;
/// one that could not be used, or had just changed, has none.
fn look_as_served(directory: &Path, index: &Path) -> bool {
    let zones = SystemZones::new();
    let mut around = load_around(directory, &zones, &environment::variable);
    let paths = around.paths();
    let index = Index::load(index);
    let is_same = paths.len() == index.entries.len() && !around.has_errors();
    if !is_same || !index.holds(fingerprint(&around), &zones) {
        return false;
    }
    let stamps = index.entries.iter().map(|entry| entry.stamp);
    let mut stamps: BTreeSet<Stamp> = stamps.filter(|stamp| *stamp != Stamp::NONE).collect();
    let now = i64::try_from(clock::now().as_nanosecond()).unwrap_or(i64::MAX);
    paths.iter().all(|path| {
        let stamp = fs::metadata(path).map(|metadata| Stamp::of(&metadata, now));
        stamp.is_ok_and(|stamp| stamps.remove(&stamp))
    })
}
