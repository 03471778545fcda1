//! How fast schedules answer. Limits are in `cargo xtask bench`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use interlock_core::{
    calendar::DayFilter,
    cron::{Cron, Seconds},
    id::ScheduleId,
    schedule::{Dst, Recurrence, Schedule, Timing},
    zone::Zone,
};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

fn schedule(expression: &str, zone: &Zone) -> Schedule {
    let cron = Cron::parse(expression, Seconds::Absent).expect("a valid expression").cron;
    let timing = Timing {
        zone: zone.clone(),
        dst: Dst::default(),
        days: DayFilter::default(),
        from: None,
        until: None,
    };
    Schedule::new(ScheduleId::from_static("cron"), Recurrence::Cron(cron), timing)
        .expect("a schedule that fires")
}

fn zone(name: &str) -> Zone {
    Zone::new(name, TimeZone::get(name).expect("a zone of the database"))
}

/// `next` from one slot to the following, over many years and therefore many transitions.
fn next(criterion: &mut Criterion) {
    const STEPS: u64 = 10_000;
    let new_york = zone("America/New_York");
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a timestamp");
    let mut group = criterion.benchmark_group("schedule");
    group.throughput(Throughput::Elements(STEPS));
    let cases = [
        ("next_daily", "0 9 * * *"),
        ("next_every_minute", "* * * * *"),
        ("next_leap_day", "0 0 29 2 *"),
    ];
    for (name, expression) in cases {
        let schedule = schedule(expression, &new_york);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut at = start;
                for _ in 0..STEPS {
                    let slot = black_box(&schedule).next(black_box(at)).unwrap_or(start);
                    at = slot + SignedDuration::from_secs(1);
                }
                at
            });
        });
    }
    group.finish();
}

/// The slots due within one hour across 100,000 pipelines of every kind people have.
fn slots_due(criterion: &mut Criterion) {
    let zones =
        ["UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Sydney"].map(zone);
    let schedules: Vec<_> = (0..100_000_usize)
        .map(|i| {
            let (minute, hour) = (i % 60, i / 60 % 24);
            let expression = match i % 5 {
                0 => format!("{minute} {hour} * * *"),
                1 => format!("{minute} * * * *"),
                2 => "*/15 * * * *".to_owned(),
                3 => format!("{minute} {hour} * * mon-fri"),
                _ => format!("{minute} {hour} 1 * *"),
            };
            schedule(&expression, &zones[i / 5 % zones.len()])
        })
        .collect();
    let from: Timestamp = "2026-11-16T09:00:00Z".parse().expect("a timestamp");
    let until = from + SignedDuration::from_hours(1);
    let mut group = criterion.benchmark_group("schedule");
    group.sample_size(20);
    group.bench_function("slots_hour_100k", |bencher| {
        bencher.iter(|| {
            schedules
                .iter()
                .map(|schedule| schedule.slots(from, until, 100).found.len())
                .sum::<usize>()
        });
    });
    group.finish();
}

/// Reading an expression and proving that it can fire.
fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("schedule");
    group.bench_function("parse", |bencher| {
        bencher.iter(|| Cron::parse(black_box("*/15 9-17 * * mon-fri"), Seconds::Absent));
    });
    group.finish();
}

criterion_group!(benches, next, slots_due, parse);
criterion_main!(benches);
