//! The examples of the seeds load unchanged and mean what their text says.

use interlock_config::server::StoreConfig;
use interlock_core::{
    pipeline::{CommandLine, ControlAction, OverlapPolicy, Pipeline, TriggerKind},
    readiness::{Check, Condition, Operand, Rule},
    retry::FailureCategory,
    schedule::{Period, Recurrence},
    sla::Deadline,
    time_of_day::TimeOfDay,
};
use jiff::{SignedDuration, Timestamp};

use crate::support::{broken, codes, config, good, pipeline, stored};

const HOURS: fn(i64) -> SignedDuration = SignedDuration::from_hours;
const MINUTES: fn(i64) -> SignedDuration = SignedDuration::from_mins;

fn ids(pipeline: &Pipeline) -> Vec<&str> {
    pipeline.starts.iter().map(|start| start.schedule.id().as_str()).collect()
}

fn next(pipeline: &Pipeline, index: usize) -> String {
    let from: Timestamp = "2026-02-25T10:30:00Z".parse().unwrap();
    pipeline.starts[index].schedule.next(from).unwrap().to_string()
}

fn time(text: &str) -> TimeOfDay {
    TimeOfDay::parse(text).unwrap()
}

#[test]
fn seed_004_configuration() {
    let text = good("pipeline", "seed004_configuration");
    let found = pipeline(&text);
    assert_eq!(found.name.as_str(), "hourly-etl");
    assert_eq!(ids(&found), ["cron"]);
    assert_eq!(next(&found, 0), "2026-02-25T11:00:00Z");
    assert_eq!(found.catchup.window, Some(HOURS(6)));
    assert_eq!(found.catchup.overlap, OverlapPolicy::All);
    assert_eq!(found.trigger, None);
    assert_eq!(codes(&text), ["IL0901"], "without a trigger it is never due, and that is said");
}

#[test]
fn seed_004_multiple_schedules_keep_their_ids_when_reordered() {
    let text = good("pipeline", "seed004_multi_schedule");
    let found = pipeline(&text);
    assert_eq!(ids(&found), ["cron-21361d8f", "cron-a8cf54ab"]);
    assert_eq!(next(&found, 1), "2026-02-26T09:30:00Z");
    let reordered = text
        .replace("  - \"0 * * * *\"\n  - \"30 9 * * *\"", "  - \"30 9 * * *\"\n  - \"0 * * * *\"");
    assert_ne!(reordered, text);
    assert_eq!(ids(&pipeline(&reordered)), ["cron-a8cf54ab", "cron-21361d8f"]);
}

#[test]
fn seed_004_daily_report() {
    let found = pipeline(&good("pipeline", "seed004_daily_report"));
    assert_eq!(next(&found, 0), "2026-02-26T09:00:00Z");
    assert_eq!(found.catchup.window, Some(HOURS(12)));
    assert_eq!(found.catchup.overlap, OverlapPolicy::Skip);
    let Some(TriggerKind::Steps(steps)) = found.trigger.map(|trigger| trigger.kind) else {
        panic!("steps are a trigger");
    };
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].name, "generate");
    assert_eq!(steps[0].command, CommandLine::Shell("python report.py".into()));
    assert!(codes(&good("pipeline", "seed004_daily_report")).is_empty());
}

#[test]
fn seed_004_hourly_etl() {
    let found = pipeline(&good("pipeline", "seed004_hourly_etl"));
    assert_eq!(found.catchup.window, Some(HOURS(72)));
    assert_eq!(found.catchup.overlap, OverlapPolicy::All);
    assert_eq!(found.catchup.runs_max, 10_000);
}

#[test]
fn seed_004_start_stop_and_restart() {
    let found = pipeline(&good("pipeline", "seed004_start_stop_restart"));
    assert_eq!(ids(&found), ["cron"]);
    let controls: Vec<_> =
        found.controls.iter().map(|c| (c.schedule.id().as_str(), c.action)).collect();
    assert_eq!(controls[2], ("restart", ControlAction::Restart));
    assert!(controls[..2].iter().all(|c| c.0.starts_with("stop-") && c.1 == ControlAction::Stop));
    let Some(TriggerKind::Steps(steps)) = found.trigger.map(|trigger| trigger.kind) else {
        panic!("steps are a trigger");
    };
    assert_eq!(steps[1].depends, ["serve"], "a step follows the one above");
    assert!(matches!(&steps[0].command, CommandLine::Argv(words) if words.len() == 3));
}

#[test]
fn seed_000_watchdog() {
    for name in ["seed000_watchdog", "seed000_watchdog_short"] {
        let found = config(&good("config", name));
        assert!(found.watchdog.enabled);
        assert_eq!(found.watchdog.interval, MINUTES(5));
        assert_eq!(found.watchdog.stuck_run_threshold, MINUTES(30));
        assert_eq!(found.store, StoreConfig::Embedded { path: ".interlock".into() });
    }
}

#[test]
fn seed_003_redis_and_archiver() {
    let StoreConfig::Redis(redis) = config(&good("config", "seed003_redis")).store else {
        panic!("the only store section is the store");
    };
    assert_eq!(redis.addr, "localhost:6379");
    assert_eq!(redis.password, None);
    assert_eq!((redis.db, redis.key_prefix.as_str()), (0, "interlock"));
    assert_eq!((redis.readiness_ttl, redis.retention_ttl), (HOURS(1), HOURS(168)));
    assert_eq!((redis.run_index_limit, redis.event_stream_max), (100, 10_000));
    let StoreConfig::Redis(default) = config("provider: redis\n").store else { panic!("redis") };
    assert_eq!(default, redis, "the seed writes down the defaults");
    let archiver = config(&good("config", "seed003_archiver")).archiver.unwrap();
    assert_eq!(archiver.interval, MINUTES(5));
    assert!(archiver.dsn.expose().starts_with("postgres://user:pass@"));
}

#[test]
fn durations_that_nobody_writes_are_those_of_the_seeds() {
    let found = pipeline(
        "name: orders\nschedule: '0 9 * * *'\ntrigger: {type: command, command: 'true'}\n\
         watch: {monitoring: {enabled: true}}\npostRun: {rules: [{key: rows, check: exists}]}\n",
    );
    assert_eq!(found.monitoring, Some(HOURS(2)));
    assert_eq!(found.post_run.unwrap().sensor_timeout, HOURS(2));
}

#[test]
fn seed_002_post_run() {
    // Its Glue job is refused, and the rest means what the seed says.
    let text = broken("pipeline", "refused_seed002_post_run");
    assert_eq!(codes(&text), ["IL0211"]);
    let found = stored(&text);
    assert_eq!(ids(&found), ["stream"]);
    let post_run = found.post_run.unwrap();
    assert_eq!(post_run.sensor_timeout, HOURS(2));
    assert_eq!(post_run.drift_field, "sensor_count");
    assert_eq!(post_run.rules.len(), 1);
    assert_eq!(post_run.rules[0].key, "output-row-count");
    assert_eq!(post_run.rules[0].check, Check::Gte);
    assert_eq!(post_run.rules[0].field.as_deref(), Some("count"));
    assert_eq!(post_run.rules[0].operand, Operand::Value(1000.into()));
}

#[test]
fn seed_002_spells_the_longest_duration_in_a_word_of_its_own() {
    let base = "name: a1\nsteps: [{name: a, command: x}]\n";
    let expected = pipeline(&format!("{base}sla: {{maxDuration: 2h}}\n"));
    assert_eq!(expected.sla.duration_max, Some(HOURS(2)));
    for spelled in ["maxDurationSLA: 2h", "sla: {maxDurationSLA: 2h}"] {
        assert_eq!(pipeline(&format!("{base}{spelled}\n")), expected, "{spelled}");
    }
    let beside = pipeline(&format!("{base}maxDurationSLA: 2h\nsla: {{critical: true}}\n"));
    assert_eq!((beside.sla.duration_max, beside.sla.critical), (Some(HOURS(2)), true));
    let twice = format!("{base}maxDurationSLA: 2h\nsla: {{maxDuration: 1h}}\n");
    assert_eq!(codes(&twice), ["IL0209"]);
}

#[test]
fn the_go_readme_example() {
    let text = good("pipeline", "go_aws_readme");
    assert!(codes(&text).is_empty());
    let found = pipeline(&text);
    assert_eq!(found.name.as_str(), "gold-revenue");
    assert_eq!(found.owner.as_deref(), Some("analytics-team"));
    assert_eq!(ids(&found), ["cron"]);
    let start = &found.starts[0];
    assert_eq!(next(&found, 0), "2026-02-25T13:00:00Z", "08:00 in New York");
    assert_eq!(start.deadline, Some(Deadline::TimeOfDay(time("08:30"))), "the expected start");
    let saturday: Timestamp = "2026-02-28T13:00:00Z".parse().unwrap();
    let christmas: Timestamp = "2026-12-25T13:00:00Z".parse().unwrap();
    assert!(!start.schedule.is_slot(saturday) && !start.schedule.is_slot(christmas));
    assert_eq!(found.evaluation.window, Some(HOURS(1)));
    assert_eq!(found.evaluation.interval, Some(MINUTES(5)));
    assert_eq!(found.sla.completion, Some(Deadline::TimeOfDay(time("10:00"))));
    assert_eq!(found.sla.expected_duration, Some(MINUTES(30)));
    assert_eq!(found.sla.zone.unwrap().name(), "America/New_York");
    assert_eq!(found.readiness.rule, Rule::All);
    // The schedule's sensor is the first rule already, so it is asked once.
    assert_eq!(found.readiness.conditions.len(), 3);
    let Condition::Sensor(freshness) = &found.readiness.conditions[2] else { panic!("a sensor") };
    assert_eq!(freshness.operand, Operand::Age(HOURS(2)));
    assert_eq!(found.retry.attempts_max, 3);
    assert_eq!(found.retry.permanent_retries_max, 0);
    assert_eq!((found.reruns.drift_max, found.reruns.manual_max), (3, 1));
    let trigger = found.trigger.unwrap();
    assert_eq!(trigger.timeout, Some(HOURS(2)));
    let shell = CommandLine::Shell("./gold-revenue-etl.sh --mode full".to_owned());
    assert_eq!(trigger.kind, TriggerKind::Command(shell));
    let post_run = found.post_run.unwrap();
    assert!((post_run.drift_threshold - 10.0).abs() < f64::EPSILON);
}

#[test]
fn what_an_earlier_version_accepted_is_refused_in_a_file_and_read_from_the_store() {
    let text = broken("pipeline", "refused_go_aws_readme");
    assert_eq!(codes(&text), ["IL0211"], "nothing starts Glue jobs");
    let TriggerKind::Other { name, options } = stored(&text).trigger.unwrap().kind else {
        panic!("glue")
    };
    assert_eq!((name.as_str(), &options["jobName"]), ("glue", &"gold-revenue-etl".into()));
    let text =
        "name: a1\ncascade: {delayBetween: 5s}\nretention: 30d\nsteps: [{name: a, command: x}]\n";
    assert_eq!(codes(text), ["IL0211", "IL0211"]);
    assert_eq!(stored(text).name.as_str(), "a1");
}

#[test]
fn the_go_schema_with_irregular_dates() {
    let found = pipeline(&good("pipeline", "go_aws_irregular"));
    let Recurrence::Dates { dates, time: at } = found.starts[0].schedule.recurrence() else {
        panic!("an inclusion calendar");
    };
    assert_eq!((dates.len(), *at), (2, time("18:00")));
    assert_eq!(next(&found, 0), "2026-03-31T15:00:00Z");
    let Some(TriggerKind::Http(http)) = found.trigger.map(|t| t.kind) else { panic!("http") };
    assert_eq!(http.request_timeout, SignedDuration::from_secs(15));
    assert_eq!(http.headers["Authorization"].expose(), "Bearer ${JOBS_TOKEN}");
    assert_eq!(found.retry.attempts_max, 1, "maxRetries is 0 by default");
}

#[test]
fn the_go_schema_with_an_hourly_sensor() {
    let found = pipeline(&good("pipeline", "go_aws_hourly_sensor"));
    assert_eq!(ids(&found), ["stream"]);
    let Recurrence::Sensor { rule, period } = found.starts[0].schedule.recurrence() else {
        panic!("a sensor schedule");
    };
    assert_eq!((rule.key.as_str(), *period), ("landing", Period::Hour));
    assert_eq!(found.starts[0].deadline, Some(Deadline::MinuteOfNextHour(30)));
    assert_eq!(found.sla.completion, Some(Deadline::MinuteOfNextHour(45)));
    assert_eq!(found.sla.duration_max, Some(HOURS(2)));
    assert!(found.dry_run && found.sla.critical);
    assert!(found.readiness.conditions.is_empty(), "the sensor opens the slot");
}

#[test]
fn the_go_schema_of_local_mode() {
    let text = good("pipeline", "go_local");
    assert!(codes(&text).is_empty());
    let found = pipeline(&text);
    assert_eq!(ids(&found), ["morning", "evening"]);
    assert_eq!(found.starts[0].schedule.timing().zone.name(), "Europe/Riga");
    assert_eq!(found.starts[1].schedule.timing().zone.name(), "UTC");
    assert_eq!(found.starts[0].deadline, Some(Deadline::TimeOfDay(time("08:00"))));
    assert_eq!(next(&found, 0), "2026-02-26T04:00:00Z");
    let fourth_of_may: Timestamp = "2026-05-04T03:00:00Z".parse().unwrap();
    assert!(!found.starts[0].schedule.is_slot(fourth_of_may), "in the calendar `holidays`");
    assert_eq!(found.retry.attempts_max, 5);
    assert_eq!(found.retry.backoff, MINUTES(1));
    assert_eq!(found.retry.retryable, [FailureCategory::Transient]);
    assert_eq!(found.sla.evaluation, Some(Deadline::TimeOfDay(time("09:20"))));
    assert_eq!(found.sla.completion, Some(Deadline::After(HOURS(2))));
    assert_eq!(found.sla.expected_duration, Some(MINUTES(15)));
    assert_eq!(found.evaluation.window, Some(MINUTES(45)));
    assert_eq!(found.evaluation.interval, Some(MINUTES(1)));
    assert_eq!(found.monitoring, Some(HOURS(3)));
    assert_eq!(found.tier, Some(1));
    let Some(TriggerKind::Command(command)) = found.trigger.map(|t| t.kind) else { panic!("cmd") };
    assert_eq!(command, CommandLine::Shell("./run.sh ${date}".into()));
}

#[test]
fn traits_are_merged_as_the_archetype_says() {
    let found = pipeline(&good("pipeline", "go_local"));
    let traits: Vec<_> = found
        .readiness
        .conditions
        .iter()
        .map(|condition| match condition {
            Condition::Trait(found) => found,
            Condition::Sensor(_) => panic!("no sensors here"),
        })
        .collect();
    let kinds: Vec<_> = traits.iter().map(|t| (t.kind.as_str(), t.required)).collect();
    assert_eq!(
        kinds,
        [("source-freshness", true), ("upstream-dependency", true), ("schema-contract", false)],
        "an optional trait is asked only when the pipeline names it"
    );
    let fresh = traits[0];
    assert_eq!(fresh.config["maxAgeSeconds"], 300, "the pipeline wins");
    assert_eq!(fresh.config["strict"], true, "key by key");
    assert_eq!(fresh.ttl, Some(MINUTES(2)));
    assert_eq!(fresh.timeout, Some(SignedDuration::from_secs(10)));
    assert_eq!(traits[2].timeout, Some(SignedDuration::from_secs(5)), "the archetype's default");
}
