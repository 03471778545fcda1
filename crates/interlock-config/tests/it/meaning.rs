//! What the native spelling means, key by key, and what is warned about.

use interlock_config::{
    FileKind,
    server::{Channel, MailTls, Scope, StoreConfig},
};
use interlock_core::{
    pipeline::{HttpCompletion, OnUncertain, StuckAction, TriggerKind},
    readiness::Rule,
    schedule::{Gap, Overlap, Recurrence},
    sla::Deadline,
};
use jiff::{SignedDuration, Timestamp};

use crate::support::{codes, config, good, load, pipeline, problems, render};

#[test]
fn every_good_example_is_free_of_errors() {
    for kind in FileKind::ALL {
        for (name, text) in crate::support::files(&format!("good/{}", kind.as_str())) {
            let errors: Vec<_> = problems(kind, &text)
                .into_iter()
                .filter(|problem| problem.severity == interlock_config::Severity::Error)
                .collect();
            assert_eq!(render(&errors), "", "{name}");
        }
    }
}

#[test]
fn one_of_each() {
    let found = pipeline(&good("pipeline", "everything"));
    assert_eq!(found.labels["priority"], "1");
    assert_eq!(found.labels["paged"], "true");
    assert_eq!(found.catchup.window, Some(SignedDuration::from_hours(60)));
    assert_eq!((found.catchup.runs_max, found.active_runs_max), (50, 2));
    assert_eq!(found.readiness.rule, Rule::Any);
    assert!(found.readiness.fail_open && found.skip_if_successful);
    assert_eq!(found.stuck.action, StuckAction::Cancel);
    assert_eq!(found.readiness.upstreams[1].schedule.as_deref(), Some("cron"));
    assert_eq!(found.job.env["RETRIES"].expose(), "3");
    assert_eq!(found.job.params["n"], "5");
    assert!(found.job.handlers.failure.is_some());
    let trigger = found.trigger.unwrap();
    assert_eq!(trigger.timeout, Some(SignedDuration::from_mins(90)), "the trigger's wins");
    assert_eq!(trigger.on_uncertain, OnUncertain::Retry);
    assert_eq!(trigger.poll_interval, Some(SignedDuration::from_secs(15)));
    let TriggerKind::Http(http) = trigger.kind else { panic!("http") };
    assert_eq!(http.method, "PUT");
    assert_eq!(http.request_timeout, SignedDuration::from_millis(500));
    assert_eq!(http.body.as_deref(), Some(r#"{"date":"${date}","rows":10}"#));
    assert!(matches!(http.completion, HttpCompletion::Poll { url } if url.ends_with("${runId}")));
}

#[test]
fn every_kind_of_schedule() {
    let found = pipeline(&good("pipeline", "everything"));
    let schedule =
        |id: &str| found.starts.iter().find(|start| start.schedule.id().as_str() == id).unwrap();
    let quarter = schedule("every-quarter");
    let from: Timestamp = "2026-02-24T10:00:00Z".parse().unwrap();
    assert_eq!(quarter.schedule.next(from).unwrap().to_string(), "2026-02-24T10:05:00Z");
    assert_eq!(quarter.jitter, SignedDuration::from_secs(30));
    assert_eq!(quarter.grace, SignedDuration::from_mins(10), "the pipeline's");
    assert_eq!(quarter.start_grace, SignedDuration::from_mins(2));
    let first = quarter.schedule.next(Timestamp::UNIX_EPOCH).unwrap();
    // The 1st of January is a holiday, the 3rd and 4th are a weekend; `from` is local.
    assert_eq!(first.to_string(), "2026-01-01T22:05:00Z");
    let nights = schedule("nights");
    assert_eq!(nights.schedule.timing().dst.gap, Some(Gap::Skip));
    assert_eq!(nights.schedule.timing().dst.overlap, Some(Overlap::Both));
    assert_eq!(nights.grace, SignedDuration::from_hours(1));
    assert_eq!(nights.early, Some(SignedDuration::from_mins(10)));
    assert_eq!(nights.duration_max, SignedDuration::from_hours(6));
    let mondays = schedule("mondays");
    assert!(matches!(mondays.deadline, Some(Deadline::AfterSlot(_))));
    assert_eq!(mondays.schedule.next(from).unwrap().to_string(), "2026-03-02T07:05:00Z");
    assert!(matches!(schedule("once").schedule.recurrence(), Recurrence::Once(_)));
    let new_york = found.starts.last().unwrap();
    assert_eq!(new_york.schedule.timing().zone.name(), "America/New_York");
    assert!(new_york.schedule.id().as_str().starts_with("cron-"));
}

#[test]
fn a_dead_mans_switch_counts_from_the_last_success() {
    let found = pipeline(&good("pipeline", "watch_only"));
    let schedule = &found.starts[0].schedule;
    assert!(matches!(schedule.recurrence(), Recurrence::SinceLast { step: 3600 }));
    let started = good("pipeline", "watch_only").replace("external", "command, command: x");
    assert_eq!(codes(&started), ["IL0405"]);
}

#[test]
fn no_schedule_at_all_is_daily() {
    let found = pipeline("name: a1\ntrigger: {type: command, command: x}\n");
    assert_eq!(found.starts[0].schedule.id().as_str(), "daily");
    assert!(matches!(found.starts[0].schedule.recurrence(), Recurrence::Daily));
    assert_eq!(found.retry.attempts_max, 3);
    assert!(found.enabled);
}

#[test]
fn the_default_grace_shrinks_to_the_gap_and_a_written_one_may_not_exceed_it() {
    let minutely = "name: a1\nschedule: {cron: '* * * * *'}\nsteps: [{name: a, command: x}]\n";
    assert_eq!(pipeline(minutely).starts[0].grace, SignedDuration::from_mins(1));
    let written = minutely.replace("'* * * * *'", "'* * * * *', grace: 2m");
    assert_eq!(codes(&written), ["IL0404"]);
    let fits = minutely.replace("'* * * * *'", "'*/5 * * * *', grace: 2m");
    assert!(codes(&fits).is_empty());
}

#[test]
fn a_report_may_not_be_as_early_as_the_slot_before_it() {
    let file = |early: &str| {
        format!(
            "name: a1\nschedules: [{{cron: '* * * * *', early: {early}}}]\ntrigger: {{type: external}}\n"
        )
    };
    for early in ["60s", "90s", "1h"] {
        assert_eq!(codes(&file(early)), ["IL0406"], "{early}");
    }
    for early in ["59s", "6s"] {
        assert!(codes(&file(early)).is_empty(), "{early}");
    }
}

#[test]
fn zones_come_from_the_nearest_place() {
    let zone = |text: &str| pipeline(text).starts[0].schedule.timing().zone.name().to_owned();
    let steps = "steps: [{name: a, command: x}]\n";
    assert_eq!(zone(&format!("name: a1\nschedule: '0 9 * * *'\n{steps}")), "UTC");
    let riga = format!("name: a1\ntimezone: Europe/Riga\nschedule: '0 9 * * *'\n{steps}");
    assert_eq!(zone(&riga), "Europe/Riga");
    let prefix = riga.replace("'0 9", "'CRON_TZ=Asia/Tokyo 0 9");
    assert_eq!(zone(&prefix), "Asia/Tokyo");
    let own = format!(
        "name: a1\ntimezone: Europe/Riga\nschedule: {{cron: '0 9 * * *', timezone: UTC}}\n{steps}"
    );
    assert_eq!(zone(&own), "UTC");
}

#[test]
fn a_sensor_beside_a_time_is_waited_for() {
    let text = "name: a1\nschedule:\n  cron: '0 9 * * *'\n  sensor: {key: k, check: exists}\n\
                steps: [{name: a, command: x}]\n";
    let found = pipeline(text);
    assert_eq!(found.starts[0].schedule.id().as_str(), "cron");
    assert_eq!(found.readiness.conditions.len(), 1);
    let any = format!("{text}validation: {{trigger: ANY, rules: [{{key: b, check: exists}}]}}\n");
    assert_eq!(codes(&any), ["IL0209"]);
}

#[test]
fn warnings_do_not_stop_a_pipeline() {
    let base = "name: a1\nsteps: [{name: a, command: x}]\n";
    for (more, code) in [
        ("schedule: '0 9 1 * 1'\n", "IL0902"),
        (
            "schedule: '0 9 * * *'\ncatchupWindow: 1d\noverlapPolicy: latest\n\
             validation: {rules: [{key: k, check: exists}]}\n",
            "IL0903",
        ),
        ("validation: {rules: [{key: k, check: exists, value: 1}]}\n", "IL0904"),
        ("env: {A: '${NOT_SET_ANYWHERE}'}\n", "IL0905"),
        ("traits: {fresh: {}}\n", "IL0906"),
    ] {
        let text = format!("{base}{more}");
        assert_eq!(codes(&text), [code], "{more}");
        pipeline(&text);
    }
    assert_eq!(codes("name: a1\n"), ["IL0901"]);
}

#[test]
fn what_has_no_effect_on_a_kind_of_job_is_said() {
    for (trigger, expected) in [
        ("type: command, command: x, pollInterval: 7s", &["IL0904"][..]),
        ("type: http, url: 'http://a', pollInterval: 7s", &["IL0904"]),
        ("type: http, url: 'http://a', pollUrl: 'http://b', pollInterval: 7s", &[]),
        ("type: airflow, url: 'http://a', dagId: d, pollInterval: 7s", &[]),
        ("type: external, timeout: 1h, onUncertain: retry", &["IL0904", "IL0904"]),
        ("type: command, command: x, timeout: 1h, onUncertain: retry", &[]),
    ] {
        let text = format!("name: a1\nschedule: '0 9 * * *'\ntrigger: {{{trigger}}}\n");
        assert_eq!(codes(&text), expected, "{trigger}");
    }
    let more = "env: {A: b}\nworkdir: /tmp\nshell: bash\nhandlers: {exit: x}\ncatchupWindow: 1d\nretry: {maxAttempts: 2}\n\
                postRun: {rules: [{key: rows, check: exists}]}\n";
    for (trigger, expected) in [
        ("type: command, command: x", 0),
        ("type: http, url: 'http://a'", 4),
        ("type: airflow, url: 'http://a', dagId: d", 4),
        ("type: external", 7),
    ] {
        let text = format!("name: a1\nschedule: '0 9 * * *'\ntrigger: {{{trigger}}}\n{more}");
        assert_eq!(codes(&text), vec!["IL0904"; expected], "{trigger}");
    }
    // What is said for all pipelines may concern the others.
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("pipelines")).unwrap();
    let watched = "name: a1\nschedule: '0 9 * * *'\ntrigger: {type: external}\n";
    std::fs::write(dir.path().join("pipelines/a1.yaml"), watched).unwrap();
    let defaults = "defaults: {env: {A: b}, retry: {maxAttempts: 2}}\n";
    std::fs::write(dir.path().join("interlock.yaml"), defaults).unwrap();
    assert_eq!(render(&load(dir.path()).problems), "");
}

#[test]
fn all_of_interlock_yaml() {
    let found = config(&good("config", "everything"));
    let StoreConfig::Postgres(postgres) = &found.store else { panic!("postgres") };
    assert_eq!(postgres.dsn.expose(), "postgres://store");
    assert_eq!(found.archiver, None, "a disabled archiver needs no variables");
    assert!(!found.watchdog.enabled);
    assert_eq!(found.engine.default_timeout, SignedDuration::from_secs(10));
    let engine = &found.engine;
    assert_eq!((engine.runs_max, engine.evaluations_max, engine.catchup_runs_max), (5, 6, 7));
    assert_eq!(engine.catchup_per_minute, 8);
    assert_eq!(found.server.addr, "0.0.0.0:8420");
    assert!(found.server.addr_is_written);
    assert_eq!(found.server.tokens[0].scope, Scope::Operator);
    assert_eq!(found.server.tokens[0].token.expose(), "ci-token-from-env");
    let names: Vec<_> = found.alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(names[..5], ["console", "file", "webhook", "webhook-2", "slack"]);
    let Channel::Webhook { url, headers, .. } = &found.alerts[2].channel else { panic!("webhook") };
    assert_eq!(url.expose(), "https://hooks.example.com/hook-from-env");
    assert_eq!(headers["X-Key"].expose(), "hook-from-env");
    assert_eq!(found.alerts[4].when.levels, ["error", "critical"]);
    let mail = &found.alerts[5];
    let Channel::Email(email) = &mail.channel else { panic!("email") };
    assert_eq!(email.tls, MailTls::Tls);
    assert_eq!((mail.after, mail.repeat), (Some(mins(30)), Some(mins(240))));
    assert_eq!((mail.findings, found.alerts[4].findings), (3, 1));
    assert_eq!((mail.of, mail.recovered), (5, 2));
    assert_eq!((found.alerts[4].of, found.alerts[4].recovered), (0, 1));
    assert_eq!((mail.digest, found.alerts[4].digest), (Some(false), None));
    assert_eq!(found.dirs.pipelines.len(), 2);
    assert_eq!(found.zone.name(), "America/New_York");
    assert_eq!(found.retention.logs, SignedDuration::from_hours(120));
}

fn mins(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

#[test]
fn an_empty_configuration_has_the_documented_defaults() {
    let found = config("{}\n");
    assert_eq!(found.server.addr, "127.0.0.1:8420");
    assert!(!found.server.addr_is_written);
    assert_eq!(found.server.request_body_max, 1 << 20);
    assert_eq!(found.watcher.default_interval, SignedDuration::from_mins(5));
    assert_eq!(found.engine.default_timeout, SignedDuration::from_secs(30));
    assert_eq!(found.alerts.len(), 1);
    assert_eq!(found.dirs.evaluators, [std::path::PathBuf::from("evaluators")]);
}

#[test]
fn a_token_of_the_file_may_be_for_the_pings_of_some_pipelines() {
    let token = |more: &str| format!("server: {{tokens: [{{name: cron, token: abc, {more}}}]}}\n");
    let found = config(&token("scope: ping, pipelines: ['orders*', backup]"));
    let names = vec!["orders*".to_owned(), "backup".to_owned()];
    assert_eq!(found.server.tokens[0].scope, Scope::Ping(names));
    for odd in ["scope: ping", "scope: viewer, pipelines: [backup]", "pipelines: [backup]"] {
        let found = problems(FileKind::Config, &token(odd));
        assert_eq!(
            found.iter().map(|it| it.code.as_str()).collect::<Vec<_>>(),
            ["IL0209"],
            "{odd}"
        );
    }
}

#[test]
fn where_the_ledger_is_is_known_whatever_else_is_wrong_and_not_where_that_is() {
    let zones = interlock_config::SystemZones::new();
    let store = |text: &str| {
        interlock_config::parse_store("interlock.yaml".as_ref(), text, &zones, &|_| None)
    };
    let at = |path: &str| StoreConfig::Embedded { path: path.into() };
    assert_eq!(store("").unwrap(), at(".interlock"));
    let elsewhere =
        "embedded: {path: /x}\nalerts: [{type: webhook, url: '${UNSET}'}, 3]\ntimezone: Nowhere\n";
    assert_eq!(store(elsewhere).unwrap(), at("/x"));
    for doubtful in [
        "provider: redis\nredis: {password: '${UNSET}'}\n",
        "embeded: {path: /x}\n",
        "embedded: {pathh: /x}\n",
        "embedded: [/x\n",
        "embedded: {path: /x}\nredis: {}\n",
        "provider: oracle\n",
        "- 1\n",
    ] {
        assert!(store(doubtful).is_err(), "{doubtful}");
    }
    // What is shown of a problem shows no secret of what was left out.
    let text = "embeded: 1\nserver: {apiKey: s3cret}\n";
    assert!(!render(&store(text).unwrap_err()).contains("s3cret"));
}
