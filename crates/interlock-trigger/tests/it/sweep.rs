//! Old logs, with the journal of a real runner.

use std::{fs::File, path::Path, time::Duration};

use interlock_trigger::{
    Triggers as _,
    runner::{LogSweep, Step, Swept},
};
use jiff::SignedDuration;

use crate::world::{World, now, request, shell};

fn sweep(world: &World) -> Swept {
    let dir = world.path("runner").canonicalize().unwrap();
    let mut sweep = LogSweep::new(&dir, now() - SignedDuration::from_hours(24)).unwrap();
    loop {
        if let Step::Done(swept) = sweep.step(10).unwrap() {
            return swept;
        }
    }
}

/// Nothing was written to it for two days.
fn age(path: &Path) {
    let file = File::options().append(true).open(path).unwrap();
    let now = file.metadata().unwrap().modified().unwrap();
    file.set_modified(now - Duration::from_hours(48)).unwrap();
}

#[tokio::test]
async fn a_log_goes_when_its_run_is_over_and_stored_and_not_before() {
    let mut world = World::new();
    world.start("quick", shell("echo done")).await;
    world.end_of("quick").await;
    world.start("long", shell("echo begun; sleep 60")).await;
    world.started("long").await;
    world.until("the log", || (world.log("long") == "begun\n").then_some(())).await;
    let (quick, long) = (world.log_path("quick"), world.log_path("long"));

    assert_eq!(sweep(&world), Swept::default(), "both are new");
    age(&quick);
    age(&long);
    assert_eq!(sweep(&world).unsettled, 2, "one runs, the end of the other is not stored");
    assert!(quick.exists() && long.exists());

    world.triggers.acknowledge("quick");
    let swept = world.until("the sweep", || Some(sweep(&world)).filter(|s| s.deleted == 1)).await;
    assert_eq!((swept.bytes, swept.unsettled), (5, 1));
    assert!(!quick.exists() && long.exists());
    world.triggers.cancel(&request("long", shell(""))).await.unwrap();
    world.end_of("long").await;
}
