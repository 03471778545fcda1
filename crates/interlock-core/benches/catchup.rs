//! How fast what was missed is planned. Limits are in `cargo xtask bench`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use interlock_core::{
    agenda::Work,
    calendar::DayFilter,
    catchup::{Gap, Owed, Recorded, plan},
    cron::{Cron, Seconds},
    id::ScheduleId,
    pipeline::{Catchup, OverlapPolicy, StartSchedule},
    schedule::{Dst, Recurrence, Schedule, Timing},
    zone::Zone,
};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

fn start(expression: &str) -> StartSchedule {
    let cron = Cron::parse(expression, Seconds::Absent).expect("a valid expression").cron;
    let timing = Timing {
        zone: Zone::new("Europe/Riga", TimeZone::get("Europe/Riga").expect("a zone")),
        dst: Dst::default(),
        days: DayFilter::default(),
        from: None,
        until: None,
    };
    let id = ScheduleId::from_static("cron");
    StartSchedule {
        schedule: Schedule::new(id, Recurrence::Cron(cron), timing).expect("it fires"),
        deadline: None,
        grace: SignedDuration::from_mins(5),
        start_grace: SignedDuration::from_mins(1),
        early: None,
        duration_max: SignedDuration::from_hours(24),
        jitter: SignedDuration::ZERO,
    }
}

/// Three days of hourly slots in each of 10,000 pipelines; and a month of minutes that nobody catches up.
fn missed(criterion: &mut Criterion) {
    const PIPELINES: u64 = 10_000;
    let now: Timestamp = "2026-11-15T12:30:00Z".parse().expect("a timestamp");
    let mut group = criterion.benchmark_group("catchup");
    group.sample_size(10);
    let (hourly, minutely) = (start("0 * * * *"), start("* * * * *"));
    let gap = |start, hours, catchup| {
        let watermark = now - SignedDuration::from_hours(hours);
        let (delay, recorded) = (SignedDuration::ZERO, Recorded::default());
        let owed = vec![Owed { start, watermark, delay, recorded, claimed: vec![] }];
        Gap {
            owed,
            work: Work::Started,
            catchup,
            pauses: vec![],
            deaf: vec![],
            ran: vec![],
            uncertain_until: None,
            now,
        }
    };
    let window = Some(SignedDuration::from_hours(96));
    let all = Catchup { window, overlap: OverlapPolicy::All, runs_max: 10_000 };
    let three_days = gap(&hourly, 72, &all);
    group.throughput(Throughput::Elements(PIPELINES * 72));
    group.bench_function("plan_10000_pipelines_72_slots", |bencher| {
        bencher.iter(|| {
            let runs = (0..PIPELINES).map(|_| plan(black_box(&three_days)).counts().run);
            runs.sum::<u64>()
        });
    });
    let none = Catchup::default();
    let month = gap(&minutely, 30 * 24, &none);
    group.throughput(Throughput::Elements(43_200));
    group.bench_function("plan_month_of_minutes", |bencher| {
        bencher.iter(|| plan(black_box(&month)));
    });
    group.finish();
}

criterion_group!(benches, missed);
criterion_main!(benches);
