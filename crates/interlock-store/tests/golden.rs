//! Stored text never changes by accident: today's writer writes exactly the golden files, and today's
//! reader reads them.
//!
//! A file is changed only together with the format; what an older version wrote stays here for ever.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::{collections::BTreeMap, fmt::Debug, fs, path::PathBuf, sync::Arc};

use interlock_core::{id::ScheduleId, zone::Zone};
use interlock_store::{
    DueKind, Key, Record, RunKey,
    record::{
        AboutRecord, AgendaRecord, AppliedRecord, AskerRecord, BackfillCounts, BackfillRecord,
        BackfillSlot, CalendarRecord, CatchupRecord, ControlRecord, DueRecord, EndRecord,
        EventRecord, HandRecord, InboxRecord, IncidentRecord, InstanceRecord, LeaseRecord,
        LoopRecord, MarksRecord, OutboxRecord, PauseRecord, PipelineRecord, RecurrenceRecord,
        ReportRecord, RerunsRecord, RunRecord, ScheduleRecord, SensorRecord, SensorRuleRecord,
        Shared, SlaRecord, SlaSpecRecord, SlotName, SlotRecord, SpanRecord, StartRecord,
        Unreadable, VersionRecord, WatermarkRecord, WishRecord,
    },
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

fn golden(name: &str) -> String {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v1/{name}.json"));
    let text = fs::read_to_string(&path);
    text.unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim_end().to_owned()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn nine() -> Timestamp {
    at("2026-02-25T09:00:00Z")
}

fn daily() -> ScheduleId {
    ScheduleId::any("daily").unwrap()
}

fn details(value: Value) -> BTreeMap<String, Value> {
    serde_json::from_value(value).unwrap()
}

fn check<T: PartialEq + Debug>(
    name: &str,
    record: &T,
    written: &str,
    read: impl Fn(&str) -> Result<T, Unreadable>,
) {
    let text = golden(name);
    assert_eq!(written, text, "{name}: what is written");
    assert_eq!(read(&text).as_ref(), Ok(record), "{name}: what is read");
    let extra = text.replacen("\"v\":1", "\"v\":1,\"later\":{\"x\":[1]}", 1);
    assert_eq!(read(&extra).as_ref(), Ok(record), "{name}: an unknown field is ignored");
    let newer = text.replacen("\"v\":1", "\"v\":2", 1);
    assert_eq!(read(&newer), Err(Unreadable::Newer { found: 2, known: 1 }), "{name}");
}

#[track_caller]
fn check_row(name: &str, key: &Key, record: &Record) {
    check(name, record, &record.encode(), |text| Record::decode(key, text));
}

fn check_inbox(name: &str, record: &InboxRecord) {
    check(name, record, &record.encode(), InboxRecord::decode);
}

fn slot() -> SlotRecord {
    SlotRecord {
        state: "waiting".into(),
        disposition: None,
        reason: None,
        generation: 1,
        attempt: 0,
        opened_by: "scheduler".into(),
        date: "2026-02-25".parse().unwrap(),
        opened_at: nine(),
        closes_at: at("2026-02-25T10:00:00Z"),
        retry_at: None,
        marks: MarksRecord::default(),
        version: "00000000000000ab".into(),
        wish: None,
        reruns: None,
        sla: None,
        evaluated: None,
    }
}

fn schedule(id: &str, recurrence: RecurrenceRecord) -> ScheduleRecord {
    ScheduleRecord {
        id: id.into(),
        recurrence,
        zone: "Europe/Riga".into(),
        gap: None,
        overlap: None,
        exclude: vec![],
        include: vec![],
        from: None,
        until: None,
    }
}

fn start(schedule: ScheduleRecord) -> StartRecord {
    StartRecord {
        schedule,
        deadline: None,
        grace: SignedDuration::from_mins(5),
        start_grace: SignedDuration::from_mins(1),
        early: None,
        duration_max: SignedDuration::from_hours(24),
        jitter: SignedDuration::ZERO,
    }
}

/// An SLA with everything.
fn promise() -> SlaSpecRecord {
    SlaSpecRecord {
        evaluation: Some(":30".into()),
        completion: Some("10:00".into()),
        expected_duration: Some(SignedDuration::from_mins(30)),
        duration_max: Some(SignedDuration::from_hours(2)),
        zone: Some("UTC".into()),
        critical: true,
    }
}

/// What becomes of missed slots.
fn catchup() -> CatchupRecord {
    let window = Some(SignedDuration::from_hours(6));
    CatchupRecord { window, overlap: "latest".into(), runs_max: 50 }
}

/// One schedule of each kind, and one with everything.
fn agenda() -> AgendaRecord {
    let date = |text: &str| text.parse::<jiff::civil::Date>().unwrap();
    let sensor = SensorRuleRecord {
        key: "landed".into(),
        check: "gte".into(),
        field: Some("rows".into()),
        value: Some(json!(1000)),
        age: None,
    };
    let fresh = SensorRuleRecord {
        check: "age_lt".into(),
        field: None,
        value: None,
        age: Some(SignedDuration::from_hours(2)),
        ..sensor.clone()
    };
    let holidays = CalendarRecord {
        name: "holidays".into(),
        weekdays: vec!["sunday".into()],
        dates: [date("2026-12-24")].into(),
        yearly: [(12, 25)].into(),
        ranges: vec![(date("2026-07-01"), date("2026-07-31"))],
    };
    let everything = ScheduleRecord {
        gap: Some("skip".into()),
        overlap: Some("both".into()),
        exclude: vec![holidays.clone()],
        include: vec![CalendarRecord {
            name: "banking".into(),
            weekdays: vec!["monday".into()],
            ..holidays
        }],
        from: Some(nine()),
        until: Some(at("2027-01-01T00:00:00Z")),
        ..schedule("full", RecurrenceRecord::Cron("0 30 9 * * 1-5".into()))
    };
    let all = [
        RecurrenceRecord::Cron("*/15 * * * *".into()),
        RecurrenceRecord::Every(900, nine()),
        RecurrenceRecord::SinceLast(3600),
        RecurrenceRecord::At("09:30".into(), vec!["monday".into(), "friday".into()]),
        RecurrenceRecord::Once(nine()),
        RecurrenceRecord::Dates("06:00:30".into(), [date("2026-03-31")].into()),
        RecurrenceRecord::Sensor(sensor, "day".into()),
        RecurrenceRecord::Sensor(fresh, "hour".into()),
        RecurrenceRecord::Daily,
    ];
    let mut starts = vec![StartRecord {
        deadline: Some("+20m".into()),
        early: Some(SignedDuration::from_mins(2)),
        jitter: SignedDuration::from_secs(30),
        ..start(everything)
    }];
    let plain = all.into_iter().enumerate();
    starts.extend(plain.map(|(number, it)| start(schedule(&format!("s{number}"), it))));
    let stop = schedule("stop", RecurrenceRecord::Cron("0 18 * * *".into()));
    AgendaRecord {
        work: "started".into(),
        starts,
        controls: vec![ControlRecord { schedule: stop, action: "stop".into() }],
        window: Some(SignedDuration::from_hours(1)),
        interval: Some(SignedDuration::from_mins(5)),
        catchup: Some(catchup()),
        sla: Some(promise()),
        upstreams: vec!["raw".into()],
        is_rehearsal: false,
    }
}

#[test]
fn an_agenda_that_was_stored_can_be_used() {
    let zones = |name: &str| (name == "UTC" || name == "Europe/Riga").then(Zone::utc);
    let mut shared = Shared::default();
    let read = agenda().to_core(&mut shared, &zones).unwrap();
    let again = agenda().to_core(&mut shared, &zones).unwrap();
    assert_eq!(AgendaRecord::from_core(&again).starts.len(), 10);
    for (one, other) in read.starts.iter().zip(&again.starts) {
        assert!(Arc::ptr_eq(one, other), "{:?} is kept twice", one.schedule.id());
    }
    let catchup = AgendaRecord::from_core(&again).catchup;
    assert_eq!(catchup, agenda().catchup);
    let unknown = agenda().to_core(&mut shared, &|_| None).unwrap_err();
    let sentence = "a stored record says `Europe/Riga`, which this version does not know";
    assert_eq!(unknown.to_string(), sentence);
}

#[test]
fn pipelines_are_written_as_ever() {
    let plain = PipelineRecord {
        version: "00000000000000ab".into(),
        first_seen: nine(),
        retired_at: None,
        disabled_since: None,
        pause: None,
        agenda: None,
        about: None,
    };
    check_row("pipeline", &Key::Pipeline, &Record::Pipeline(plain.clone().into()));
    let paused = PipelineRecord {
        retired_at: Some(at("2026-03-01T00:00:00Z")),
        disabled_since: None,
        pause: Some(PauseRecord {
            reason: "moving house".into(),
            since: nine(),
            until: Some(at("2026-02-26T09:00:00.25Z")),
            catchup: None,
            before: vec![],
        }),
        ..plain.clone()
    };
    check_row("pipeline-paused", &Key::Pipeline, &Record::Pipeline(paused.into()));
    let first = PauseRecord {
        reason: "moving house".into(),
        since: nine(),
        until: Some(at("2026-02-26T09:00:00.25Z")),
        catchup: Some("all".into()),
        before: vec![],
    };
    let again = PauseRecord {
        reason: "moving back".into(),
        since: at("2026-02-27T09:00:00Z"),
        until: None,
        catchup: None,
        before: vec![first],
    };
    let again = PipelineRecord { pause: Some(again), ..plain.clone() };
    check_row("pipeline-paused-again", &Key::Pipeline, &Record::Pipeline(again.into()));
    let owing = PipelineRecord { agenda: Some(Box::new(agenda())), ..plain.clone() };
    check_row("pipeline-agenda", &Key::Pipeline, &Record::Pipeline(owing.into()));
    let rehearsal = AgendaRecord { starts: vec![], is_rehearsal: true, ..agenda() };
    let rehearsal = PipelineRecord { agenda: Some(Box::new(rehearsal)), ..plain.clone() };
    check_row("pipeline-rehearsal", &Key::Pipeline, &Record::Pipeline(rehearsal.into()));
    let about = AboutRecord {
        owner: Some("data-team".into()),
        description: Some("Orders of the shop.".into()),
        tier: Some(1),
        labels: BTreeMap::from([("area".into(), "sales".into())]),
        trigger: Some("command".into()),
    };
    let listed = PipelineRecord { about: Some(Box::new(about)), ..plain };
    check_row("pipeline-about", &Key::Pipeline, &Record::Pipeline(listed.into()));
    let version = VersionRecord {
        since: nine(),
        source: "name: orders\n".into(),
        context: BTreeMap::from([("calendar/holidays".into(), "dates: []\n".into())]),
    };
    check_row("version", &Key::Version(0xab), &Record::Version(version.into()));
    let watermark = WatermarkRecord { at: nine() };
    check_row("watermark", &Key::Watermark(daily()), &Record::Watermark(watermark));
}

#[test]
fn the_ledger_is_written_as_ever() {
    let key = Key::Slot(daily(), nine());
    check_row("slot-open", &key, &Record::Slot(slot().into()));
    let backoff = SlotRecord {
        state: "backoff".into(),
        attempt: 2,
        retry_at: Some(at("2026-02-25T09:05:00.5Z")),
        ..slot()
    };
    check_row("slot-backoff", &key, &Record::Slot(backoff.into()));
    let again = SlotRecord {
        generation: 2,
        wish: Some(Box::new(WishRecord {
            params: BTreeMap::from([("full".into(), "yes".into())]),
            force: true,
            reason: Some("late-data".into()),
            original_run: Some("orders~daily~20260225T090000Z~1~1".into()),
            ..WishRecord::default()
        })),
        reruns: Some(Box::new(RerunsRecord {
            drift: 1,
            manual: BTreeMap::from([("typo".into(), 2)]),
        })),
        ..slot()
    };
    check_row("slot-rerun", &key, &Record::Slot(again.into()));
    let promising = SlotRecord {
        sla: Some(Box::new(SlaRecord {
            evaluation_at: Some(at("2026-02-25T09:20:00Z")),
            warning_at: Some(at("2026-02-25T09:30:00Z")),
            breach_at: Some(at("2026-02-25T10:00:00Z")),
            duration_max: Some(SignedDuration::from_hours(2)),
            expected_duration: Some(SignedDuration::from_mins(30)),
        })),
        ..slot()
    };
    check_row("slot-sla", &key, &Record::Slot(promising.into()));
    let closed = SlotRecord {
        state: "closed".into(),
        disposition: Some("skipped".into()),
        reason: Some("no_catchup".into()),
        generation: 2,
        marks: MarksRecord {
            missed_at: Some(nine()),
            late: true,
            uncertain: true,
            recovered: true,
        },
        ..slot()
    };
    check_row("slot-closed", &key, &Record::Slot(closed.into()));
    let span = SpanRecord {
        last: at("2026-03-25T09:00:00Z"),
        count: 29,
        disposition: "skipped".into(),
        reason: Some("expired".into()),
        version: "00000000000000ab".into(),
        recorded_at: at("2026-04-01T00:00:00Z"),
    };
    check_row("span", &Key::Span(daily(), nine()), &Record::Span(span.into()));
}

#[test]
fn runs_and_events_are_written_as_ever() {
    let key = RunKey { schedule: daily(), nominal: nine(), generation: 1, attempt: 1 };
    let run = RunRecord {
        status: "FAILED".into(),
        trigger_type: "scheduler".into(),
        created_at: nine(),
        started_at: Some(at("2026-02-25T09:00:01.5Z")),
        ended_at: Some(at("2026-02-25T09:10:00Z")),
        message: Some("exit 3".into()),
        category: Some("TRANSIENT".into()),
        metadata: details(json!({"host": "b1", "pid": 4711})),
    };
    check_row("run", &Key::Run(key), &Record::Run(run.into()));
    let event = EventRecord {
        kind: "SLOT_OPENED".into(),
        at: nine(),
        slot: Some("daily/2026-02-25T09:00:00Z".into()),
        run_id: Some("orders~daily~20260225T090000Z~1~1".into()),
        message: "opened".into(),
        details: details(json!({"by": "scheduler"})),
    };
    check("event", &event, &event.encode(), EventRecord::decode);
}

#[test]
fn sensors_incidents_and_the_rest_are_written_as_ever() {
    let sensor = SensorRecord {
        value: json!({"rows": 12, "share": 0.1, "note": "né ☃"}),
        at: nine(),
        received_at: at("2026-02-25T09:00:00.123Z"),
        unheeded: false,
    };
    check_row("sensor", &Key::Sensor("landed".into()), &Record::Sensor(sensor.into()));
    let incident = IncidentRecord {
        state: "open".into(),
        kind: "SCHEDULE_MISSED".into(),
        level: "error".into(),
        message: "nothing came".into(),
        details: details(json!({"deadline": "09:30"})),
        opened_at: nine(),
        updated_at: nine(),
        count: 2,
        told: None,
        acknowledged: None,
        resolved: None,
        openings: Box::default(),
    };
    check_row("incident", &Key::Incident("a".into()), &Record::Incident(incident.clone().into()));
    let told = IncidentRecord { told: Some("a~1~opened".into()), ..incident };
    check_row("incident-told", &Key::Incident("a".into()), &Record::Incident(told.clone().into()));
    let hand = |note: Option<&str>| {
        let note = note.map(str::to_owned);
        Some(Box::new(HandRecord { at: nine(), by: "ann".into(), note }))
    };
    let over = IncidentRecord {
        state: "resolved".into(),
        acknowledged: hand(Some("looking")),
        resolved: hand(None),
        openings: Box::new([nine()]),
        ..told
    };
    check_row("incident-hands", &Key::Incident("a".into()), &Record::Incident(over.into()));
    let due = DueRecord { details: details(json!({"slot": "daily"})) };
    check_row("due", &Key::Due(nine(), DueKind::Stuck, "a".into()), &Record::Due(due));
    let applied = AppliedRecord {
        at: nine(),
        accepted: false,
        result: json!({"error": "open"}),
        request: None,
    };
    check_row("applied", &Key::Applied("a".into()), &Record::Applied(applied.into()));
    let outbox = OutboxRecord {
        channel: "slack".into(),
        alert: json!({"level": "error"}).into(),
        tries: 3,
        not_before: nine(),
        claimed_until: Some(at("2026-02-25T09:01:00Z")),
        last_error: Some("503".into()),
        dead: true,
        after: None,
        held: None,
    };
    check_row("outbox", &Key::Outbox("a".into()), &Record::Outbox(outbox.clone().into()));
    let unrouted =
        OutboxRecord { channel: String::new(), after: Some("a~1~opened".into()), ..outbox };
    check_row(
        "outbox-unrouted",
        &Key::Outbox("a".into()),
        &Record::Outbox(unrouted.clone().into()),
    );
    let held = OutboxRecord { held: Some("silence quiet".into()), ..unrouted };
    check_row("outbox-held", &Key::Outbox("a".into()), &Record::Outbox(held.into()));
}

#[test]
fn reports_and_requests_are_written_as_ever() {
    let slot = || SlotName { schedule: "daily".into(), nominal: nine() };
    let sensor = InboxRecord::Sensor { key: "landed".into(), value: json!(true), at: nine() };
    check_inbox("inbox-sensor", &sensor);
    let params = BTreeMap::from([("day".into(), "2026-02-25".into())]);
    let asked = InboxRecord::Run { slot: None, force: false, params: [].into(), webhook: true };
    check_inbox("inbox-run-webhook", &asked);
    check_inbox(
        "inbox-run",
        &InboxRecord::Run { slot: Some(slot()), force: true, params, webhook: false },
    );
    let rerun = InboxRecord::Rerun { slot: slot(), reason: "late data".into() };
    check_inbox("inbox-rerun", &rerun);
    let cancel = InboxRecord::Cancel { slot: slot(), reason: "wrong day".into() };
    check_inbox("inbox-cancel", &cancel);
    let pause = InboxRecord::Pause { reason: "moving".into(), until: Some(nine()) };
    check_inbox("inbox-pause", &pause);
    check_inbox("inbox-resume", &InboxRecord::Resume { catchup: None });
    check_inbox("inbox-resume-all", &InboxRecord::Resume { catchup: Some("all".into()) });
    check_inbox("inbox-catchup", &InboxRecord::Catchup {});
    let reason = "too much".to_owned();
    check_inbox("inbox-catchup-stop", &InboxRecord::StopCatchup { reason });
    let notification = "failed:a~1~opened@ops".to_owned();
    check_inbox("inbox-send-again", &InboxRecord::SendAgain { notification });
    let (by, from) = ("token ci".to_owned(), "127.0.0.1".to_owned());
    let asker = AskerRecord { by: by.clone(), from: from.clone(), fingerprint: None };
    check_inbox("inbox-asked", &InboxRecord::Resume { catchup: None }.asked_by(asker));
    let asker = AskerRecord { by, from, fingerprint: Some("0a".into()) };
    check_inbox("inbox-asked-keyed", &InboxRecord::Catchup {}.asked_by(asker));
}

#[test]
fn what_people_ask_of_alerts_and_what_interlock_notices_is_written_as_ever() {
    let (by, note) = ("ann".to_owned(), Some("looking".to_owned()));
    let (key, hand) = ("failed:a".into(), "acknowledge".into());
    check_inbox("inbox-incident", &InboxRecord::Incident { key, hand, by: by.clone(), note });
    let silence = Some(json!({"reason": "moving"}));
    let silence = InboxRecord::Silence { id: "quiet".into(), silence, by: by.clone() };
    check_inbox("inbox-silence", &silence);
    check_inbox("inbox-bark", &InboxRecord::Bark { id: "1".into(), by });
    let noticed = InboxRecord::Noticed {
        event: "LOOP_WAS_LATE".into(),
        thing: "engine".into(),
        message: "it has not come round for 16 s".into(),
        over: false,
    };
    check_inbox("inbox-noticed", &noticed);
    let heard = InboxRecord::Heard {
        instance: "box/127.0.0.1:8420".into(),
        since: nine(),
        until: nine(),
        after: Some("heard-1".into()),
    };
    check_inbox("inbox-heard", &heard);
    let (kind, value) = ("token".into(), Some(json!({"scope": "viewer"})));
    check_inbox(
        "inbox-keep",
        &InboxRecord::Keep { kind, id: "ci".into(), value, by: "ann".into() },
    );
    let file = InboxRecord::File { file: "orders.yaml".into(), problem: Some("line 3".into()) };
    check_inbox("inbox-file", &file);
    let complete = InboxRecord::Complete {
        run_id: "orders~daily~20260225T090000Z~1~1".into(),
        success: false,
        message: Some("exit 3".into()),
        category: Some("PERMANENT".into()),
        metadata: details(json!({"rows": 0})),
    };
    check_inbox("inbox-complete", &complete);
    let job = InboxRecord::Job {
        host: "worker-1".into(),
        run_id: "orders~daily~20260225T090000Z~1~1".into(),
        at: nine(),
        said: "failed".into(),
        message: Some("exit 3".into()),
        category: Some("PERMANENT".into()),
        metadata: details(json!({"exitCode": 3})),
    };
    check_inbox("inbox-job", &job);
}

#[test]
fn what_jobs_say_about_themselves_is_written_as_ever() {
    let report = ReportRecord {
        said: "fail".into(),
        rid: Some("a1".into()),
        at: nine(),
        exit_code: Some(3),
        duration_ms: Some(1_500),
        body: Some("no space left".into()),
        source: Some("curl/8.5 from 127.0.0.1".into()),
        pipeline: None,
        create: false,
        refused: None,
        fingerprint: None,
    };
    let keyed = ReportRecord { fingerprint: Some("c0ffee0000000001".into()), ..report.clone() };
    check_inbox("inbox-report-keyed", &InboxRecord::Report(Box::new(keyed)));
    check_inbox("inbox-report", &InboxRecord::Report(Box::new(report.clone())));
    let bare = ReportRecord {
        said: "success".into(),
        rid: None,
        exit_code: None,
        duration_ms: None,
        body: None,
        source: None,
        pipeline: Some("ordres".into()),
        create: true,
        refused: None,
        ..report
    };
    check_inbox("inbox-report-bare", &InboxRecord::Report(Box::new(bare)));
}

#[test]
fn backfills_are_written_as_ever() {
    let begun = BackfillRecord {
        state: "running".into(),
        from: at("2026-01-01T00:00:00Z"),
        to: at("2026-02-01T00:00:00Z"),
        schedules: vec!["daily".into()],
        reprocess: "missing".into(),
        order: "asc".into(),
        concurrency: 4,
        reason: String::new(),
        by: String::new(),
        total: 31,
        plan: "00000000000000ab".into(),
        since: nine(),
        updated_at: nine(),
        ended_at: None,
        cursor: None,
        open: vec![],
        counts: BackfillCounts::default(),
        opened: "cbf29ce484222325".into(),
        ends_runs: false,
    };
    let (key, row) = (Key::Backfill(7), |it| Record::Backfill(Arc::new(it)));
    check_row("backfill", &key, &row(begun.clone()));
    let day = at("2026-01-09T09:00:00Z");
    let ended = BackfillRecord {
        state: "cancelled".into(),
        reason: "lost data".into(),
        by: "ann".into(),
        ended_at: Some(nine()),
        cursor: Some(SlotName { schedule: "daily".into(), nominal: day }),
        open: vec![BackfillSlot { schedule: "daily".into(), nominal: day, generation: 2 }],
        counts: BackfillCounts {
            opened: 6,
            passed: 3,
            completed: 2,
            failed: 1,
            cancelled: 1,
            skipped: 1,
        },
        ends_runs: true,
        ..begun
    };
    check_row("backfill-cancelled", &key, &row(ended));
    let start = InboxRecord::StartBackfill {
        from: at("2026-01-01T00:00:00Z"),
        to: at("2026-02-01T00:00:00Z"),
        schedules: vec!["daily".into()],
        reprocess: "failed".into(),
        order: "desc".into(),
        concurrency: 4,
        reason: "lost data".into(),
        by: "ann".into(),
        total: 31,
        plan: "00000000000000ab".into(),
    };
    check_inbox("inbox-backfill-start", &start);
    check_inbox("inbox-backfill-pause", &InboxRecord::PauseBackfill { backfill: 7 });
    check_inbox("inbox-backfill-resume", &InboxRecord::ResumeBackfill { backfill: 7 });
    let cancel =
        InboxRecord::CancelBackfill { backfill: 7, reason: "enough".into(), ends_runs: true };
    check_inbox("inbox-backfill-cancel", &cancel);
    let wished = |before| {
        let wish = WishRecord { backfill: Some(7), before, ..WishRecord::default() };
        let wish = Some(Box::new(wish));
        Record::Slot(SlotRecord { wish, opened_by: "backfill".into(), ..slot() }.into())
    };
    let key = Key::Slot(daily(), nine());
    check_row("slot-backfill", &key, &wished(None));
    let skipped = EndRecord { disposition: "skipped".into(), reason: Some("overlap".into()) };
    check_row("slot-backfill-again", &key, &wished(Some(skipped)));
}

#[test]
fn every_golden_file_is_read_by_a_test() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    let source = include_str!("golden.rs");
    for file in fs::read_dir(folder).unwrap() {
        let name = file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(source.contains(&format!("\"{name}\"")), "nothing reads {name}.json");
    }
}

#[test]
fn a_file_of_a_later_version_is_refused_with_a_sentence() {
    let error = Record::decode(&Key::Pipeline, &golden("newer-format")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a stored record has format 2, and this version reads up to 1: a later version of Interlock \
         wrote it"
    );
}

#[test]
fn a_file_with_an_unknown_field_is_read() {
    let record = Record::decode(&Key::Watermark(daily()), &golden("unknown-field"));
    assert_eq!(record, Ok(Record::Watermark(WatermarkRecord { at: nine() })));
}

#[test]
fn broken_text_is_refused_with_a_sentence() {
    for text in ["", "{}", "[]", "{\"v\":1}", "{\"v\":1,\"at\":\"yesterday\"}", "{\"v\":1,"] {
        let error = Record::decode(&Key::Watermark(daily()), text).unwrap_err();
        let sentence = error.to_string();
        assert!(sentence.starts_with("a stored watermark cannot be read: "), "{sentence}");
    }
}

#[test]
fn numbers_come_back_to_the_last_bit() {
    let key = Key::Sensor("k".into());
    for value in [json!(122.416_294_033_786_59), json!(u64::MAX), json!(i64::MIN), json!(5e-324)] {
        let record = Record::Sensor(
            SensorRecord { value, at: nine(), received_at: nine(), unheeded: false }.into(),
        );
        assert_eq!(Record::decode(&key, &record.encode()), Ok(record));
    }
}

#[test]
fn what_instances_say_of_themselves_is_written_as_ever() {
    let plain = InstanceRecord {
        version: "0.1.0".into(),
        roles: vec!["engine".into(), "watchdog".into()],
        host: "ledger-1".into(),
        pid: 4711,
        started_at: nine(),
        address: None,
        certificate: None,
        public_key: None,
        jobs_host: None,
        loops: vec![],
        clock_skew: None,
        leases: vec![],
    };
    let full = InstanceRecord {
        address: Some("https://10.0.0.7:8420".into()),
        certificate: Some("5f1c".into()),
        public_key: Some("bXkga2V5".into()),
        jobs_host: Some("ledger-1-0badcafe".into()),
        loops: vec![LoopRecord {
            name: "engine".into(),
            age: SignedDuration::from_millis(1_250),
            bound: SignedDuration::from_secs(30),
            late: true,
        }],
        clock_skew: Some(SignedDuration::from_millis(-7)),
        leases: vec![LeaseRecord { role: "engine".into(), shard: 3 }],
        ..plain.clone()
    };
    for (name, record) in [("instance", plain), ("instance-full", full)] {
        check(name, &record, &record.encode(), InstanceRecord::decode);
    }
}
