//! What is replaced, where, and what a value may not do.

use std::sync::Arc;

use interlock_core::{
    pipeline::{JobContext, TriggerKind},
    run::TriggerType,
};
use jiff::civil::date;

use super::*;

fn request() -> StartRequest {
    StartRequest {
        run_id: "orders~daily~20260225T090000Z~1~2".to_owned(),
        pipeline: "orders".to_owned(),
        schedule: "daily".to_owned(),
        slot: "2026-02-25T09:00:00Z".parse().unwrap(),
        date: date(2026, 2, 25),
        hour: 9,
        interval_end: None,
        attempt: 2,
        trigger_type: TriggerType::Retry,
        triggered_at: "2026-02-25T09:00:01Z".parse().unwrap(),
        params: [("who".to_owned(), "a\"b'; $(rm) &\n".to_owned())].into(),
        kind: TriggerKind::External,
        context: JobContext {
            params: [("who".to_owned(), "default".to_owned()), ("x-y".to_owned(), "1".to_owned())]
                .into(),
            env: [
                ("TOKEN".to_owned(), Secret::new("Bearer ${SECRET}")),
                ("INTERLOCK_RUN_ID".to_owned(), Secret::new("forged")),
            ]
            .into(),
            ..JobContext::default()
        },
        timeout: None,
        poll_interval: None,
        resume_from: None,
        host: None,
    }
}

fn environment() -> Environment {
    Arc::new(|name| match name {
        "SECRET" => Some("hush\nhush".to_owned()),
        "BASE" => Some("https://jobs.example.com/x?y=1".to_owned()),
        "PATH" => Some("/bin".to_owned()),
        _ => None,
    })
}

fn filled(text: &str, place: Place) -> String {
    Filler::new(&request(), &environment()).fill(text, place)
}

#[test]
fn values_of_the_slot_are_replaced_everywhere() {
    let text = "${slot} ${date} ${hour} ${runId} ${attempt} ${pipeline} ${schedule}";
    let expected =
        "2026-02-25T09:00:00Z 2026-02-25 09 orders~daily~20260225T090000Z~1~2 2 orders daily";
    for place in [Place::Argument, Place::Shell, Place::Url, Place::Header, Place::Json] {
        assert_eq!(filled(text, place), expected, "{place:?}");
    }
}

#[test]
fn d1_29_a_parameter_never_becomes_code() {
    for (place, expected) in [
        (Place::Argument, "<a\"b'; $(rm) &\n>"),
        (Place::Shell, "<${INTERLOCK_PARAM_WHO}>"),
        (Place::Url, "<a%22b%27%3B%20%24%28rm%29%20%26%0A>"),
        (Place::Header, "<a\"b'; $(rm) & >"),
        (Place::body("x"), "<a\"b'; $(rm) &\n>"),
    ] {
        assert_eq!(filled("<${params.who}>", place), expected, "{place:?}");
    }
    assert_eq!(
        filled("{\"who\": \"${params.who}\"}", Place::body(" {}")),
        "{\"who\": \"a\\\"b'; $(rm) &\\n\"}"
    );
}

#[test]
fn variables_are_looked_up_outside_of_commands_only() {
    assert_eq!(filled("${BASE}/run", Place::Url), "https://jobs.example.com/x?y=1/run");
    assert_eq!(filled("Bearer ${SECRET}", Place::Header), "Bearer hush hush");
    assert_eq!(filled("echo ${HOME} ${SECRET}", Place::Shell), "echo ${HOME} ${SECRET}");
    assert_eq!(filled("${SECRET} ${a-b} ${open", Place::Argument), "${SECRET} ${a-b} ${open");
}

#[test]
fn a_job_gets_its_own_environment_and_not_the_daemons() {
    let (request, environment) = (request(), environment());
    let variables = Filler::new(&request, &environment).job_environment();
    let found: Vec<_> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        found,
        [
            "INTERLOCK_ATTEMPT=2",
            "INTERLOCK_DATE=2026-02-25",
            "INTERLOCK_INTERVAL_START=2026-02-25T09:00:00Z",
            "INTERLOCK_PARAM_WHO=a\"b'; $(rm) &\n",
            "INTERLOCK_PARAM_X_Y=1",
            "INTERLOCK_PIPELINE=orders",
            "INTERLOCK_RUN_ID=orders~daily~20260225T090000Z~1~2",
            "INTERLOCK_SCHEDULE=daily",
            "INTERLOCK_SLOT=2026-02-25T09:00:00Z",
            "INTERLOCK_TRIGGER_TYPE=retry",
            "PATH=/bin",
            "TOKEN=Bearer hush\nhush",
        ]
    );
}
