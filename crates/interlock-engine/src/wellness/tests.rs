//! Loops that stand still, stores that take nothing, alerts that do not go out; and when the outside is told.

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const HALF: Duration = Duration::from_millis(500);

#[test]
fn a_store_is_complained_of_when_it_fails_or_hangs_until_it_takes_a_write() {
    let mut watch = StoreWatch::default();
    assert!(watch.complaint(at(100)).is_none() && !watch.is_proven());
    watch.asked(at(100));
    assert_eq!(watch.complaint(at(110)), None);
    let hangs = watch.complaint(at(111)).unwrap();
    assert_eq!(hangs.says, "the store: it has accepted no write for 11 s");
    watch.answered(Err("the disk is full".into()));
    assert_eq!(watch.complaint(at(112)).unwrap().says, "the store: the disk is full");
    watch.asked(at(113));
    assert!(watch.complaint(at(114)).is_some(), "it has not yet been taken back");
    watch.answered(Ok(()));
    assert!(watch.complaint(at(115)).is_none() && watch.is_proven());
}

#[test]
fn an_outbox_is_stuck_when_for_five_minutes_things_failed_and_nothing_went_out() {
    let mut watch = OutboxWatch::default();
    let mut look =
        |delivered, failed, seconds| watch.look(Told { delivered, failed }, at(seconds)).is_some();
    assert!(!look(0, 0, 0) && !look(0, 0, 9_999), "nothing to deliver is no failure");
    assert!(!look(0, 1, 10_000) && !look(0, 2, 10_300) && look(0, 2, 10_301));
    assert!(!look(1, 2, 10_302), "something went out");
    assert!(!look(1, 3, 10_400) && !look(2, 4, 10_600) && !look(2, 4, 11_000));
    // What failed once and is not tried again here was delivered by another instance, or given up.
    assert!(!look(2, 5, 20_000) && look(2, 5, 20_301) && look(2, 5, 21_200) && !look(2, 5, 21_201));
    assert!(!look(2, 6, 21_300) && look(2, 6, 21_700), "it fails again");
}

#[test]
fn what_nobody_was_to_hear_did_not_fail() {
    let vitals = Vitals::default();
    for word in ["delivered", "retried", "dead", "held", "unheard"] {
        vitals.notifications.add(word, 1);
    }
    let Told { delivered, failed } = Told::of(&vitals);
    assert_eq!((delivered, failed), (1, 2));
}

#[test]
fn nobody_is_late_because_the_store_is_away() {
    let (mut loops, excuse) = (LoopWatch::default(), Pulse::default());
    loops.register("engine", Pulse::default(), at(5), at(100));
    let mut halves = 0;
    let mut is_late = |seconds: u32, is_away: bool| {
        let mut is_late = false;
        for _ in 0..2 * seconds {
            halves += 1;
            if is_away {
                excuse.beat();
            }
            // Somebody asks more often than the excuse moves.
            for early in [250, 0] {
                let now = (at(100) + HALF * halves).saturating_sub(Duration::from_millis(early));
                is_late = loops.look(&excuse, HALF, now).iter().any(Standing::is_late);
            }
        }
        is_late
    };
    assert!(!is_late(3, false));
    assert!(!is_late(120, true), "it cannot come round");
    assert!(is_late(10, false), "now it could");
}

#[test]
fn a_loop_is_late_when_it_has_not_come_round_in_its_bound_and_well_when_it_has_again() {
    let (mut loops, pulse) = (LoopWatch::default(), Pulse::default());
    loops.register("engine", pulse.clone(), at(5), at(0));
    let mut is_late =
        |seconds| loops.look(&Pulse::default(), HALF, at(seconds)).iter().any(Standing::is_late);
    assert!(!is_late(4));
    pulse.beat();
    assert!(!is_late(8), "it came round in between");
    assert!(!is_late(13));
    assert!(is_late(14));
    pulse.beat();
    assert!(!is_late(15));
    // The whole process was stopped for a minute; then the loop really stands still.
    assert!(!is_late(75) && !is_late(79));
    assert!(is_late(82));
}

#[test]
fn outside_hears_of_a_process_only_while_all_of_it_works() {
    let (mut wellness, mut loops, pulse) =
        (Wellness::default(), LoopWatch::default(), Pulse::default());
    loops.register("notifier", pulse.clone(), at(60), at(0));
    let mut is_well = |wellness: &mut Wellness, seconds| {
        let standing = loops.look(&Pulse::default(), at(30), at(seconds));
        let complaints = wellness.look(&standing, Told::default(), at(seconds));
        wellness.is_well(&complaints)
    };
    assert!(!is_well(&mut wellness, 1), "nothing is proven yet");
    wellness.store.asked(at(2));
    wellness.store.answered(Ok(()));
    assert!(is_well(&mut wellness, 31));
    assert!(is_well(&mut wellness, 60) && !is_well(&mut wellness, 61), "the loop stands still");
    pulse.beat();
    assert!(is_well(&mut wellness, 90));
    wellness.store.asked(at(91));
    wellness.store.answered(Err("it is gone".to_owned()));
    pulse.beat();
    assert!(!is_well(&mut wellness, 92));
}

#[test]
fn calls_keep_their_distance() {
    let mut calls = Calls::every(at(60));
    assert!(calls.is_time(at(5)) && !calls.is_time(at(64)) && calls.is_time(at(65)));
}
