//! S1 over odd zones, and what the default policy promises about local dates (D4 S18).

use std::collections::BTreeMap;

use interlock_core::{
    calendar::{Calendar, DayFilter, Weekdays},
    id::ScheduleId,
    schedule::{Dst, Gap, Overlap, Recurrence, Schedule, Timing},
    time_of_day::TimeOfDay,
    zone::Zone,
};
use jiff::{SignedDuration, Timestamp, civil::Date};
use proptest::prelude::*;

use crate::support::{DEFAULT, cron, instant, schedule, timing, zone};

const ODD_ZONES: [&str; 7] = [
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Europe/Dublin",
    "Asia/Beirut",
    "America/Asuncion",
    "America/Nuuk",
];

fn any_zone() -> impl Strategy<Value = Zone> {
    prop::sample::select(&ODD_ZONES[..]).prop_map(zone)
}

fn any_dst() -> impl Strategy<Value = Dst> {
    let gap = prop::option::of(prop::sample::select(vec![Gap::RunAfter, Gap::Skip]));
    let overlap = prop::option::of(prop::sample::select(vec![
        Overlap::First,
        Overlap::Second,
        Overlap::Both,
    ]));
    (gap, overlap).prop_map(|(gap, overlap)| Dst { gap, overlap })
}

fn any_days() -> impl Strategy<Value = DayFilter> {
    let weekend =
        Calendar { name: "weekend".into(), weekdays: Weekdays::WEEKEND, ..Default::default() };
    let summer = Calendar {
        name: "first half".into(),
        ranges: (2000..2040).map(|y| (Date::constant(y, 1, 1), Date::constant(y, 6, 30))).collect(),
        ..Default::default()
    };
    prop::sample::select(vec![
        DayFilter::default(),
        DayFilter { exclude: vec![weekend.clone().into()], include: vec![] },
        DayFilter { exclude: vec![weekend.into()], include: vec![summer.into()] },
    ])
}

fn any_recurrence() -> impl Strategy<Value = Recurrence> {
    let expressions = vec![
        "* * * * *",
        "*/7 * * * *",
        "0 * * * *",
        "30 0 * * *",
        "15 2,3 * * *",
        "0 0 1 * *",
        "59 23 L * *",
        "0 */3 * * 1-5",
        "0 0 29 2 *",
        "45 1 15W * *",
    ];
    let cron = prop::sample::select(expressions).prop_map(|text| {
        let parsed = interlock_core::cron::Cron::parse(text, interlock_core::cron::Seconds::Absent);
        Recurrence::Cron(parsed.unwrap().cron)
    });
    let every = (1_i64..200_000, -1_000_000_i64..1_000_000).prop_map(|(step, anchor)| {
        Recurrence::Every { step, anchor: Timestamp::from_second(anchor).unwrap() }
    });
    let at = (0_u32..24, 0_u32..60).prop_map(|(hour, minute)| Recurrence::At {
        time: TimeOfDay::parse(&format!("{hour:02}:{minute:02}")).unwrap(),
        weekdays: Weekdays::ALL,
    });
    prop_oneof![4 => cron, 2 => every, 2 => at, 1 => Just(Recurrence::Daily)]
}

prop_compose! {
    fn any_schedule()(
        zone in any_zone(), dst in any_dst(), days in any_days(), recurrence in any_recurrence(),
    ) -> Schedule {
        let timing = Timing { days, ..timing(&zone, dst) };
        Schedule::new(ScheduleId::from_static("test"), recurrence, timing).unwrap()
    }
}

/// From 2000 to 2036, and the length of an interval, up to three months.
fn any_interval() -> impl Strategy<Value = (Timestamp, SignedDuration)> {
    (946_684_800_i64..2_082_758_400, 0_i64..8_000_000).prop_map(|(start, length)| {
        (Timestamp::from_second(start).unwrap(), SignedDuration::from_secs(length))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn s1_slots_increase_and_do_not_depend_on_how_an_interval_is_split(
        schedule in any_schedule(), (start, length) in any_interval(), cut in 0_i64..1000, limit in 1_usize..200,
    ) {
        let end = start + length;
        let middle = start + SignedDuration::from_secs(length.as_secs() * cut / 1000);
        let whole = schedule.slots(start, end, 2_000);
        prop_assert!(whole.found.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(whole.found.iter().all(|slot| (start..end).contains(slot)));
        if whole.rest.is_none() {
            let mut parts = schedule.slots(start, middle, usize::MAX).found;
            parts.extend(schedule.slots(middle, end, usize::MAX).found);
            prop_assert_eq!(&parts, &whole.found);
        }
        // The limit cuts and says where to go on.
        let cut_off = schedule.slots(start, end, limit);
        prop_assert_eq!(&cut_off.found[..], &whole.found[..limit.min(whole.found.len())]);
        prop_assert_eq!(cut_off.rest, whole.found.get(limit).copied().or(whole.rest.filter(|_| limit >= whole.found.len())));
    }

    #[test]
    fn next_and_previous_are_inverse(schedule in any_schedule(), (start, _) in any_interval()) {
        if let Some(slot) = schedule.next(start) {
            prop_assert!(slot >= start);
            prop_assert!(schedule.is_slot(slot));
            let just_after = slot + SignedDuration::from_nanos(1);
            prop_assert_eq!(schedule.previous(just_after), Some(slot));
            if let Some(earlier) = schedule.previous(slot) {
                prop_assert!(earlier < start);
                prop_assert_eq!(schedule.next(earlier + SignedDuration::from_nanos(1)), Some(slot));
            }
        }
    }
}

#[test]
fn d4_s18_a_fixed_time_has_exactly_one_slot_per_local_date_that_exists() {
    let mut checked = 0;
    for name in ODD_ZONES {
        let zone = zone(name);
        for (hour, minute) in (0..24).flat_map(|hour| [(hour, 0), (hour, 15), (hour, 45)]) {
            let schedule = cron(&format!("{minute} {hour} * * *"), &zone, DEFAULT).unwrap();
            let (from, until) =
                (instant("2009-12-31T12:00", &zone), instant("2027-01-02T12:00", &zone));
            let mut per_date: BTreeMap<Date, usize> = BTreeMap::new();
            for slot in schedule.slots(from, until, usize::MAX).found {
                *per_date.entry(schedule.occurrence(slot).date).or_default() += 1;
            }
            let mut date = Date::constant(2010, 1, 1);
            while date < Date::constant(2027, 1, 1) {
                let absent = name == "Pacific/Apia" && date == Date::constant(2011, 12, 30);
                let slots = per_date.get(&date).copied().unwrap_or(0);
                assert_eq!(slots, usize::from(!absent), "{name} {hour:02}:{minute:02} on {date}");
                checked += 1;
                date = date.tomorrow().unwrap();
            }
        }
    }
    assert!(checked > 3_000_000);
}

#[test]
fn every_local_day_and_hour_is_one_sensor_period() {
    use interlock_core::{
        readiness::{Check, Operand, SensorRule},
        schedule::Period,
    };
    let rule = SensorRule {
        key: "ready".into(),
        check: Check::Exists,
        field: None,
        operand: Operand::None,
    };
    for name in ODD_ZONES {
        let zone = zone(name);
        for period in [Period::Day, Period::Hour] {
            let recurrence = Recurrence::Sensor { rule: rule.clone(), period };
            let periods = schedule(recurrence, &zone, DEFAULT).unwrap();
            let (from, until) =
                (instant("2011-01-01T00:00", &zone), instant("2012-01-01T00:00", &zone));
            // Count by walking every quarter of an hour: a new period begins where the label changes.
            let label = |at: Timestamp| {
                let civil = zone.time_zone().to_datetime(at);
                match period {
                    Period::Day => (civil.date(), 0, 0),
                    Period::Hour => {
                        (civil.date(), civil.hour(), zone.time_zone().to_offset(at).seconds())
                    }
                }
            };
            let mut expected = vec![];
            let mut at = from;
            let mut last = label(from - SignedDuration::from_mins(15));
            let mut seen = std::collections::BTreeSet::new();
            while at < until {
                let now = label(at);
                if now != last && (period == Period::Hour || seen.insert(now)) {
                    let civil = zone.time_zone().to_datetime(at);
                    let begins = civil.minute() == 0 || now.1 != last.1 || now.0 != last.0;
                    if begins {
                        expected.push(at);
                    }
                }
                last = now;
                at += SignedDuration::from_mins(15);
            }
            let found = periods.slots(from, until, usize::MAX).found;
            assert_eq!(found, expected, "{name} {period:?}");
        }
    }
}
