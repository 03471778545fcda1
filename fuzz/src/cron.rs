//! Cron expressions: read, put into a zone, and asked for slots in both directions.

use std::sync::LazyLock;

use interlock_core::{
    calendar::DayFilter,
    cron::{Cron, Seconds},
    id::{ScheduleId, fnv1a},
    schedule::{Dst, Gap, NeverFires, Overlap, Recurrence, Schedule, Timing},
    zone::Zone,
};
use jiff::{Timestamp, tz::TimeZone};

use crate::check_error;

/// Zones with a plain rule, a half-hour jump, a skipped day, no jump at all, and jumps at midnight.
const ZONES: [&str; 6] = [
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "UTC",
    "Africa/Casablanca",
    "Asia/Beirut",
];

const POLICIES: [Dst; 3] = [
    Dst { gap: None, overlap: None },
    Dst { gap: Some(Gap::Skip), overlap: Some(Overlap::Both) },
    Dst { gap: Some(Gap::RunAfter), overlap: Some(Overlap::Second) },
];

static PREPARED: LazyLock<Vec<Zone>> = LazyLock::new(|| {
    let prepare = |name| Zone::new(name, TimeZone::get(name).expect("the zone is bundled"));
    ZONES.into_iter().map(prepare).collect()
});

/// Reads the input as an expression with and without seconds, and evaluates what it means.
///
/// Zone, policy and instant follow from the input, so that one input costs one evaluation and a
/// failure repeats.
pub fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    for seconds in [Seconds::Absent, Seconds::Present] {
        match Cron::parse(text, seconds) {
            Ok(parsed) => {
                parsed.warnings.iter().for_each(|warning| check_error(text, warning));
                if let Some((zone, span)) = &parsed.zone {
                    assert_eq!(text.get(span.clone()), Some(zone.as_str()), "zone of {text:?}");
                }
                evaluate(parsed.cron, fnv1a(data));
            }
            Err(error) => check_error(text, &error),
        }
    }
}

/// Prepares everything that is made once per process, so that no input is charged for it.
pub fn prepare() {
    LazyLock::force(&PREPARED);
}

fn evaluate(cron: Cron, choice: u64) {
    let pick = |salt: u64, count: usize| (choice.rotate_left(salt as u32) % count as u64) as usize;
    let timing = Timing {
        zone: PREPARED[pick(0, ZONES.len())].clone(),
        dst: POLICIES[pick(17, POLICIES.len())],
        days: DayFilter::default(),
        from: None,
        until: None,
    };
    // Between 1970 and 2106.
    let at = Timestamp::from_second((choice >> 32) as i64).expect("32 bits of seconds fit");
    let id = ScheduleId::from_static("cron");
    match Schedule::new(id, Recurrence::Cron(cron), timing) {
        Ok(schedule) => check_neighbours(&schedule, at),
        Err(never) => assert_eq!(never, NeverFires::Recurrence, "nothing else restricts it"),
    }
}

/// The slots around an instant are slots, on the right side, with none between them.
fn check_neighbours(schedule: &Schedule, at: Timestamp) {
    let (next, previous) = (schedule.next(at), schedule.previous(at));
    assert!(next.is_some() || previous.is_some(), "a schedule without slots was not refused");
    if let Some(next) = next {
        assert!(next >= at && schedule.is_slot(next), "{next} after {at}");
        assert_eq!(schedule.previous(next), previous, "before {next}");
    }
    if let Some(previous) = previous {
        assert!(previous < at && schedule.is_slot(previous), "{previous} before {at}");
    }
}
