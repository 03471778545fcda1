//! Slack, `PagerDuty` and templated HTTP, against stand-ins that look at what they are sent.

use interlock_config::server::Slack;
use serde_json::json;

use crate::*;

/// The alert of an incident that stands like this.
fn of_incident(state: &str) -> Alert {
    let mut alert = alert();
    alert.details.insert("state".into(), state.into());
    alert.details.insert("incident".into(), "watchdog:a:daily:2026-02-25".into());
    alert.details.insert("actionHint".into(), "look at <cron> & co".into());
    alert
}

async fn tell(bench: &Bench, state: &str) -> Delivery {
    let notice = AlertMessage { alert: of_incident(state), key: "k".into(), at: now() };
    bench.channels.deliver("it", notice).await
}

fn bench(channel: Channel) -> Bench {
    Bench::new(vec![("it", channel, AlertFilter::default())])
}

fn slack(url: &str, token: Option<&str>) -> Channel {
    Channel::Slack(Slack {
        url: Some(Secret::new(url)),
        token: token.map(Secret::new),
        channel: Some("#ops".into()),
    })
}

#[tokio::test]
async fn slack_by_webhook_gets_a_text_that_cannot_mention_everybody() {
    let server = Server::new(Does::Say("200 OK", "ok")).await;
    let bench = bench(slack(&server.url, None));
    assert_eq!(tell(&bench, "open").await, Delivery::Delivered);
    let [asked] = server.asked().try_into().unwrap();
    let body: Value = serde_json::from_str(&asked.body).unwrap();
    assert_eq!(
        body,
        json!({ "text": format!(
            ":red_circle: *error schedule_missed* | earthquake-silver | 2026-02-25\n{}\n→ look at &lt;cron&gt; &amp; co",
            alert().message
        )})
    );
    assert_eq!(asked.header("authorization"), None);
}

#[tokio::test]
async fn a_slack_bot_keeps_one_thread_per_pipeline_and_day() {
    let server = Server::new(Does::Say("200 OK", r#"{"ok":true,"ts":"17.5"}"#)).await;
    let bench = bench(slack(&server.url, Some("hush")));
    for state in ["open", "acknowledged", "resolved"] {
        assert_eq!(tell(&bench, state).await, Delivery::Delivered);
    }
    let mut other = of_incident("open");
    other.details.insert("date".into(), "2026-02-26".into());
    let notice = AlertMessage { alert: other, key: "k".into(), at: now() };
    assert_eq!(bench.channels.deliver("it", notice).await, Delivery::Delivered);
    let bodies: Vec<Value> =
        server.asked().iter().map(|asked| serde_json::from_str(&asked.body).unwrap()).collect();
    let threads: Vec<&Value> = bodies.iter().map(|body| &body["thread_ts"]).collect();
    assert_eq!(threads, [&Value::Null, &json!("17.5"), &json!("17.5"), &Value::Null]);
    assert!(bodies.iter().all(|body| body["channel"] == "#ops"));
    assert_eq!(bodies[1]["reply_broadcast"], false);
    assert_eq!(bodies[2]["reply_broadcast"], true);
    assert!(bodies[2]["text"].as_str().unwrap().starts_with(":white_check_mark: *resolved"));
    let asked = &server.asked()[0];
    assert_eq!(asked.header("authorization"), Some("Bearer hush"));
    assert_eq!(asked.header("content-type"), Some("application/json; charset=utf-8"));
}

#[tokio::test]
async fn a_slack_bot_goes_on_with_its_threads_after_a_restart() {
    let server = Server::new(Does::Say("200 OK", r#"{"ok":true,"ts":"17.5"}"#)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("threads.jsonl");
    for state in ["open", "resolved"] {
        let mut bench = bench(slack(&server.url, Some("hush")));
        bench.channels = bench.channels.with_threads_in(file.clone());
        assert_eq!(tell(&bench, state).await, Delivery::Delivered);
        // A process that died while it wrote leaves half a line.
        let mut text = std::fs::read_to_string(&file).unwrap();
        text.push_str("[\"2026-02-");
        std::fs::write(&file, text).unwrap();
    }
    let mut gone = bench(slack(&server.url, Some("hush")));
    gone.channels = gone.channels.with_threads_in(folder.path().join("none/threads.jsonl"));
    assert_eq!(tell(&gone, "open").await, Delivery::Delivered, "it is delivered all the same");
    let threads = server.asked().into_iter().map(|asked| {
        let body: Value = serde_json::from_str(&asked.body).unwrap();
        body["thread_ts"].clone()
    });
    assert_eq!(threads.collect::<Vec<_>>(), [Value::Null, json!("17.5"), Value::Null]);
}

#[tokio::test]
async fn slack_says_no_with_a_200_too() {
    for (body, passes) in [
        (r#"{"ok":false,"error":"ratelimited"}"#, true),
        (r#"{"ok":false,"error":"channel_not_found"}"#, false),
        (r#"{"ok":false,"error":"invalid_auth"}"#, false),
        ("<html>", true),
    ] {
        let server = Server::new(Does::Say("200 OK", body)).await;
        let delivery = tell(&bench(slack(&server.url, Some("hush"))), "open").await;
        assert_eq!(matches!(delivery, Delivery::Failed { .. }), passes, "{body}: {delivery:?}");
        assert!(reason(&delivery).starts_with("Slack"), "{delivery:?}");
    }
    let server = Server::new(Does::Answer("429 Slow\r\nretry-after: 30")).await;
    let delivery = tell(&bench(slack(&server.url, Some("hush"))), "open").await;
    let half = Some(SignedDuration::from_secs(30));
    assert!(matches!(delivery, Delivery::Failed { retry_after, .. } if retry_after == half));
}

fn pagerduty(url: &str) -> Channel {
    Channel::Pagerduty { routing_key: Secret::new("hush"), url: Some(Secret::new(url)) }
}

#[tokio::test]
async fn pagerduty_gets_trigger_acknowledge_and_resolve_under_one_key() {
    let server = Server::new(Does::Say("202 Accepted", r#"{"status":"success"}"#)).await;
    let bench = bench(pagerduty(&server.url));
    for state in ["open", "acknowledged", "resolved"] {
        assert_eq!(tell(&bench, state).await, Delivery::Delivered);
    }
    let events: Vec<Value> =
        server.asked().iter().map(|asked| serde_json::from_str(&asked.body).unwrap()).collect();
    let actions: Vec<&Value> = events.iter().map(|event| &event["event_action"]).collect();
    assert_eq!(actions, ["trigger", "acknowledge", "resolve"]);
    for event in &events {
        assert_eq!(event["dedup_key"], "earthquake-silver/watchdog:a:daily:2026-02-25");
        assert_eq!(event["routing_key"], "hush");
        assert_eq!(event["payload"]["severity"], "error");
    }
    let payload = &events[0]["payload"];
    assert_eq!(payload["summary"], alert().message);
    assert_eq!(
        (&payload["source"], &payload["class"]),
        (&json!("earthquake-silver"), &json!("schedule_missed"))
    );
    assert_eq!(payload["timestamp"], "2026-02-25T09:25:00Z");
    assert_eq!(payload["custom_details"]["date"], "2026-02-25");
}

#[tokio::test]
async fn pagerduty_that_does_not_take_it_is_tried_again_or_not_as_it_says() {
    let server =
        Server::new(Does::Say("400 Bad", r#"{"errors":["Event object is invalid"]}"#)).await;
    let delivery = tell(&bench(pagerduty(&server.url)), "open").await;
    assert!(matches!(delivery, Delivery::Refused { .. }), "{delivery:?}");
    assert!(reason(&delivery).contains("Event object is invalid"), "{delivery:?}");
    for does in [Does::Answer("429 Slow"), Does::Answer("500 Oops"), Does::Hang, Does::HangUp] {
        let server = Server::new(does).await;
        let delivery = tell(&bench(pagerduty(&server.url)), "open").await;
        assert!(matches!(delivery, Delivery::Failed { .. }), "{delivery:?}");
        assert!(!reason(&delivery).is_empty());
    }
}

#[tokio::test]
async fn http_sends_what_the_template_says() {
    let server = Server::new(Does::Answer("200 OK")).await;
    let bench = bench(Channel::Http {
        url: Secret::new(server.url.as_str()),
        method: "PUT".into(),
        headers: BTreeMap::from([("X-Key".into(), Secret::new("hush"))]),
        body: Some(r#"{"what": "{{alertType}} {{state}}", "id": "{{key}}"}"#.into()),
    });
    assert_eq!(tell(&bench, "open").await, Delivery::Delivered);
    let [asked] = server.asked().try_into().unwrap();
    assert_eq!(asked.line, "PUT /hook?token=hush HTTP/1.1");
    assert_eq!(asked.header("x-key"), Some("hush"));
    assert_eq!(asked.header("idempotency-key"), Some("k"));
    assert_eq!(asked.header("content-type"), Some("application/json"));
    let body: Value = serde_json::from_str(&asked.body).unwrap();
    assert_eq!(body, json!({"what": "schedule_missed open", "id": "watchdog:a:daily:2026-02-25"}));
}

#[tokio::test]
async fn no_channel_dials_what_the_rule_refuses() {
    let address = "http://169.254.169.254/latest";
    let mail = Channel::Email(crate::mail::declared("169.254.169.254:25"));
    for channel in [slack(address, None), slack(address, Some("hush")), pagerduty(address), mail] {
        let delivery = tell(&bench(channel), "open").await;
        assert!(matches!(delivery, Delivery::Refused { .. }), "{delivery:?}");
        assert!(reason(&delivery).contains("may not be called"), "{delivery:?}");
    }
}

#[test]
fn secrets_are_not_in_the_debug_of_a_channel() {
    let channels = [
        slack("http://hush", Some("hush")),
        pagerduty("http://hush"),
        Channel::Email(crate::mail::declared("mail:25")),
    ];
    assert!(!format!("{channels:?}").contains("hush"));
}
