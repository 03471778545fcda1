//! Keys and run ids survive being written.

use super::*;

fn schedule(name: &str) -> ScheduleId {
    ScheduleId::any(name).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn keys_are_written_like_this_for_ever() {
    let (daily, nine) = (schedule("daily"), at("2026-02-25T09:00:00Z"));
    let run = RunKey { schedule: daily.clone(), nominal: nine, generation: 2, attempt: 10 };
    let awkward = "watchdog:a/b~c/é ☃\n".to_owned();
    for (key, text) in [
        (Key::Pipeline, "pipeline"),
        (Key::Version(0xab), "version/00000000000000ab"),
        (Key::Watermark(daily.clone()), "watermark/daily"),
        (Key::Slot(daily.clone(), nine), "slot/daily/2026-02-25T09:00:00.000Z"),
        (
            Key::Slot(schedule("manual"), at("2026-02-25T09:00:00.007Z")),
            "slot/manual/2026-02-25T09:00:00.007Z",
        ),
        (Key::Span(daily, nine), "span/daily/2026-02-25T09:00:00.000Z"),
        (Key::Run(run), "run/daily/2026-02-25T09:00:00.000Z/2/10"),
        (Key::Sensor(awkward.clone()), "sensor/watchdog:a/b~c/é ☃\n"),
        (Key::Incident(String::new()), "incident/"),
        (
            Key::Due(nine, DueKind::SlaBreach, awkward),
            "due/2026-02-25T09:00:00.000Z/sla_breach/watchdog:a/b~c/é ☃\n",
        ),
        (Key::Outbox("a".into()), "outbox/a"),
        (Key::Applied("a".into()), "applied/a"),
        (Key::Backfill(12), "backfill/0000000012"),
    ] {
        assert_eq!(key.to_string(), text);
        assert_eq!(Key::parse(text), Some(key), "{text}");
    }
}

#[test]
fn what_is_no_key_is_not_read() {
    for text in [
        "",
        "pipeline/",
        "pipeline/x",
        "version/",
        "version/xyz",
        "watermark/",
        "slot",
        "slot/daily",
        "slot/daily/never",
        "run/daily/2026-02-25T09:00:00.000Z",
        "run/daily/2026-02-25T09:00:00.000Z/1",
        "run/daily/2026-02-25T09:00:00.000Z/1/2/3",
        "due/2026-02-25T09:00:00.000Z/lunch/x",
        "sensor",
        "applied",
        "backfill/",
        "backfill/12",
        "backfill/000000000x",
        "nothing/x",
    ] {
        assert_eq!(Key::parse(text), None, "{text}");
    }
}

#[test]
fn run_ids_survive_being_written() {
    let orders = PipelineId::parse("my.orders-v2").unwrap();
    for instant in ["2026-02-25T09:00:00Z", "2026-02-25T09:00:00.007Z"] {
        let key = RunKey {
            schedule: schedule("manual"),
            nominal: at(instant),
            generation: 3,
            attempt: 12,
        };
        assert_eq!(RunKey::parse(&key.id(&orders)).unwrap(), (orders.clone(), key));
    }
    assert!(RunKey::parse("orders~daily~20260225T090000Z~1").is_err());
}

#[test]
fn the_id_of_a_run_has_the_instant_that_its_calendar_shows() {
    let pipeline = PipelineId::parse("orders").unwrap();
    let schedule = ScheduleId::parse("daily").unwrap();
    for milliseconds in [-62_135_596_800_000, -1, 0, 59_999, 1_772_010_000_000, 4_102_444_799_007] {
        let nominal = Timestamp::from_millisecond(milliseconds).unwrap();
        for number in [1, 9, 10, 4_294_967_295] {
            let run =
                RunKey { schedule: schedule.clone(), nominal, generation: number, attempt: 1 };
            let format =
                if milliseconds % 1_000 == 0 { "%Y%m%dT%H%M%SZ" } else { "%Y%m%dT%H%M%S%.3fZ" };
            let expected = format!("orders~daily~{}~{number}~1", nominal.strftime(format));
            assert_eq!(run.id(&pipeline), expected);
            assert_eq!(RunKey::parse(&expected).unwrap(), (pipeline.clone(), run));
        }
    }
}
