//! Backfills that are paused, cancelled, doubled, or asked for in vain, and files that change under them.

use interlock_core::{id::PipelineId, run::TriggerType};
use interlock_engine::{Changes, Engine};
use interlock_ports::trigger::StartRequest;
use interlock_store::{Shard, Store as _, block_on, record::InboxRecord};

use crate::{
    Files,
    backfill::{backfills, begun, five, hourly, start, with},
    stage::{Job, Stage, at},
    traps::hours,
};

#[test]
fn pause_holds_it_resume_goes_on_and_nothing_is_lost() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], |_| Job::Succeeds(60));
    stage.until(at("09:31"));
    stage.ask("hourly", &start("00:00", "09:00"));
    stage.until(at("09:33"));
    assert!(stage.ask("hourly", &InboxRecord::PauseBackfill { backfill: 1 }).accepted);
    stage.until(at("09:40"));
    let begun_before = stage.started().len();
    assert!((2..9).contains(&begun_before));
    assert!(!stage.ask("hourly", &InboxRecord::PauseBackfill { backfill: 1 }).accepted);
    stage.crash();
    stage.until(at("09:55"));
    assert_eq!(stage.started().len(), begun_before, "nothing begins");
    assert!(stage.slots().iter().all(|line| !line.contains("running")), "what ran has ended");
    assert!(stage.ask("hourly", &InboxRecord::ResumeBackfill { backfill: 1 }).accepted);
    stage.until(at("10:59"));
    assert_eq!(backfills(&stage)[&1].counts.completed, 9);
    assert_eq!(begun(&stage, TriggerType::Backfill).len(), 9);
    assert_eq!(
        stage.told(&["BACKFILL_PAUSED", "BACKFILL_RESUMED"]),
        ["BACKFILL_PAUSED backfill 1: paused", "BACKFILL_RESUMED backfill 1: resumed"]
    );
}

/// What has nothing left to hold is over, and not paused until somebody remembers it.
#[test]
fn a_pause_in_which_the_last_slots_end_ends_with_them() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], |_| Job::Succeeds(600));
    stage.until(at("09:31"));
    stage.ask("hourly", &start("08:00", "09:00"));
    stage.until(at("09:32"));
    assert!(stage.ask("hourly", &InboxRecord::PauseBackfill { backfill: 1 }).accepted);
    assert_eq!(backfills(&stage)[&1].state, "paused", "one still runs");
    stage.until(at("09:50"));
    let backfill = &backfills(&stage)[&1];
    assert_eq!((backfill.state.as_str(), backfill.counts.completed), ("done", 1));
    assert!(!stage.ask("hourly", &InboxRecord::ResumeBackfill { backfill: 1 }).accepted);
}

#[expect(clippy::fn_params_excessive_bools, reason = "the flag of the request is a bool")]
fn cancel(ends_runs: bool) -> InboxRecord {
    InboxRecord::CancelBackfill { backfill: 1, reason: "enough".to_owned(), ends_runs }
}

#[test]
fn a_cancel_leaves_nothing_that_blocks_later_runs() {
    for ends_runs in [false, true] {
        let mut stage =
            Stage::new(at("09:30"), &[&hourly("maxActiveRuns: 12\n")], |_| Job::Succeeds(600));
        stage.until(at("09:31"));
        stage.ask("hourly", &with(start("00:00", "09:00"), ["missing", "asc"], 4));
        stage.until(at("09:35"));
        assert_eq!(backfills(&stage)[&1].open.len(), 7);
        assert!(stage.ask("hourly", &cancel(ends_runs)).accepted);
        stage.until(at("09:36"));
        let states: Vec<_> = hours(&stage, "hourly");
        assert_eq!(states[4..], ["04 cancelled", "05 cancelled", "06 cancelled"]);
        let running = if ends_runs { 0 } else { 4 };
        assert_eq!(states.iter().filter(|line| line.contains("running")).count(), running);
        stage.until(at("09:50"));
        let ended = &backfills(&stage)[&1];
        assert_eq!((ended.state.as_str(), ended.open.len()), ("cancelled", 0));
        let completed = if ends_runs { 0 } else { 4 };
        assert_eq!((ended.counts.completed, ended.counts.cancelled), (completed, 7 - completed));
        assert!(!stage.ask("hourly", &cancel(false)).accepted, "it is over");
        // Another one takes all of it up, and live slots run. What never began is as missing as before; what
        // was ended is not.
        let reprocess = if ends_runs { "failed" } else { "missing" };
        stage.ask("hourly", &with(start("00:00", "09:00"), [reprocess, "asc"], 12));
        stage.until(at("10:30"));
        let seen = hours(&stage, "hourly");
        assert!(seen.iter().all(|line| line.ends_with("completed")), "{seen:?}");
        assert_eq!(seen.len(), 10);
    }
}

#[test]
fn a_slot_that_a_cancelled_backfill_never_began_stands_as_it_did_before() {
    let first_is_short = |request: &StartRequest| {
        Job::Succeeds(if request.run_id.ends_with("~1~1") { 5 } else { 3_600 })
    };
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], first_is_short);
    stage.until(at("09:31"));
    stage.ask("hourly", &start("00:00", "03:00"));
    stage.until(at("09:32"));
    stage.ask("hourly", &with(start("00:00", "05:00"), ["all", "asc"], 1));
    stage.until(at("09:33"));
    let cancel =
        InboxRecord::CancelBackfill { backfill: 2, reason: "enough".to_owned(), ends_runs: true };
    assert!(stage.ask("hourly", &cancel).accepted);
    stage.until(at("09:40"));
    let cancelled = ["00 cancelled", "01 cancelled", "02 cancelled", "03 cancelled"];
    assert_eq!(hours(&stage, "hourly"), cancelled);
    // The first began and was ended, two had completed, one was not recorded, and one was never reached.
    stage.ask("hourly", &start("00:00", "05:00"));
    stage.until(at("09:41"));
    let third = &backfills(&stage)[&3];
    assert_eq!((third.counts.opened, third.counts.passed), (2, 3), "{third:?}");
    assert_eq!(hours(&stage, "hourly")[3..], ["03 open(running)", "04 open(queued)"]);
}

#[test]
fn two_backfills_over_the_same_slots_do_not_double() {
    for reprocess in ["missing", "failed", "all"] {
        let mut stage = Stage::new(at("09:30"), &[&hourly("maxActiveRuns: 5\n")], five);
        stage.until(at("09:31"));
        let name = PipelineId::parse("hourly").unwrap();
        for key in ["one", "two"] {
            let asked = with(start("00:00", "09:00"), [reprocess, "asc"], 2);
            block_on(stage.store.post(&name, key, &asked)).unwrap();
            // The same request again is the same backfill.
            block_on(stage.store.post(&name, key, &asked)).unwrap();
        }
        stage.until(at("09:50"));
        let all = backfills(&stage);
        assert_eq!(all.len(), 2);
        assert!(all.values().all(|it| it.state == "done"), "{all:?}");
        assert_eq!(all.values().map(|it| it.counts.completed).sum::<u64>(), 9, "{reprocess}");
        assert_eq!(stage.started().len(), 9, "{reprocess}");
    }
}

#[test]
fn an_edit_of_the_file_in_the_middle_loses_nothing() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], |_| Job::Succeeds(60));
    stage.until(at("09:31"));
    stage.ask("hourly", &start("00:00", "09:00"));
    stage.until(at("09:35"));
    stage.files = Files::new(&[&hourly("owner: somebody\n")]);
    stage.crash();
    stage.until(at("09:59"));
    assert_eq!(backfills(&stage)[&1].counts.completed, 9, "{:?}", stage.slots());
    assert_eq!(stage.started().len(), 9);
    // A schedule that is gone has no slots left.
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], |_| Job::Succeeds(60));
    stage.until(at("09:31"));
    stage.ask("hourly", &start("00:00", "09:00"));
    stage.until(at("09:35"));
    stage.files = Files::new(&[&hourly("").replace("\"0 * * * *\"", "{every: 2h}")]);
    stage.crash();
    stage.until(at("09:59"));
    let ended = &backfills(&stage)[&1];
    assert_eq!((ended.state.as_str(), ended.open.len()), ("done", 0), "{ended:?}");
}

#[test]
fn a_pipeline_whose_file_goes_away_ends_its_backfill() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], |_| Job::Succeeds(60));
    stage.until(at("09:31"));
    stage.ask("hourly", &start("00:00", "09:00"));
    stage.until(at("09:35"));
    stage.crash();
    let parts = stage.parts("test");
    let mut life = Box::pin(async move {
        let mut engine = Engine::open(parts, Shard(0)).await.unwrap().unwrap();
        let removed = vec![PipelineId::parse("hourly").unwrap()];
        engine.declare(&Changes { declared: vec![], removed }).await.unwrap();
        engine.run(Box::pin(std::future::pending())).await
    });
    stage.world.run(life.as_mut(), at("09:50"));
    let ended = &backfills(&stage)[&1];
    assert_eq!((ended.state.as_str(), ended.open.len()), ("cancelled", 0), "{ended:?}");
    let open: Vec<_> = stage.slots().into_iter().filter(|line| line.contains("open")).collect();
    assert_eq!(open, [] as [&str; 0]);
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let watched = "name: hourly\nschedule: \"0 * * * *\"\ntrigger: {type: external}\n";
    let sensed = "name: hourly\nschedule: {sensor: {key: landed, check: exists}}\ntrigger: {type: command, command: 'true'}\n";
    let odd = |change: &dyn Fn(&mut InboxRecord)| {
        let mut asked = start("05:00", "08:00");
        change(&mut asked);
        asked
    };
    let set_schedules = odd(&|it| {
        if let InboxRecord::StartBackfill { schedules, .. } = it {
            schedules.push("nightly".to_owned());
        }
    });
    let own = hourly("");
    let cases = [
        (own.as_str(), start("08:00", "05:00"), "is not before"),
        (&own, start("08:00", "08:00"), "is not before"),
        (&own, start("08:00", "12:00"), "is in the future"),
        (&own, with(start("05:00", "08:00"), ["some", "asc"], 1), "`some` is none of"),
        (&own, with(start("05:00", "08:00"), ["all", "up"], 1), "`up` is none of"),
        (&own, with(start("05:00", "08:00"), ["all", "asc"], 0), "not within 1 to 100"),
        (&own, with(start("05:00", "08:00"), ["all", "asc"], 101), "not within 1 to 100"),
        (&own, set_schedules, "has no schedule `nightly`"),
        (watched, start("05:00", "08:00"), "is watch-only"),
        (sensed, start("05:00", "08:00"), "by the clock"),
        (&own, InboxRecord::PauseBackfill { backfill: 3 }, "has no backfill 3"),
    ];
    for (file, asked, reason) in cases {
        let mut stage = Stage::new(at("09:30"), &[file], five);
        stage.until(at("09:31"));
        let answer = stage.ask("hourly", &asked);
        assert!(!answer.accepted, "{asked:?}");
        let told = answer.result["reason"].as_str().unwrap();
        assert!(told.contains(reason), "{told}");
        stage.until(at("09:40"));
        assert_eq!((backfills(&stage).len(), stage.slots().len()), (0, 0), "{asked:?}");
    }
}
