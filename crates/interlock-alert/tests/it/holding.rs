//! What keeps people from being told now: silences by what the files say of a pipeline, and upstreams in trouble.

use interlock_alert::{HoldReason, Silences, Trouble};
use interlock_config::{Context, SystemZones, parse_pipeline, silence::Silence};
use interlock_core::pipeline::Pipeline;

use crate::*;

const PIPELINE: &str = "name: earthquake-silver\nowner: ann\nlabels: {team: core}\ndependsOn: [bronze]\n\
    schedule: {cron: \"0 9 * * *\"}\ntrigger: {type: command, command: 'true'}\n";

/// A book with one pipeline, some silences, and upstreams in trouble.
struct Shelf {
    pipeline: Arc<Pipeline>,
    silences: Arc<[Silence]>,
    troubled: &'static str,
}

impl Book for Shelf {
    fn channels(&self) -> Arc<[Declared]> {
        Arc::default()
    }

    fn pipeline<'a>(&'a self, _: &'a PipelineId) -> Known<'a> {
        Box::pin(std::future::ready(Some(Arc::clone(&self.pipeline))))
    }

    fn silences(&self) -> Silences<'_> {
        Box::pin(std::future::ready(Arc::clone(&self.silences)))
    }

    fn trouble<'a>(&'a self, name: &'a PipelineId) -> Trouble<'a> {
        let is_troubled = name.as_str() == self.troubled;
        Box::pin(std::future::ready(is_troubled.then(|| "failed:bronze:daily:2026-02-25".into())))
    }
}

async fn hold(when: Option<AlertFilter>, troubled: &'static str) -> Option<HoldReason> {
    let zones = SystemZones::new();
    let (loaded, problems) =
        parse_pipeline(Path::new("p.yaml"), PIPELINE, &Context::default(), &zones, &|_| None);
    let pipeline = Arc::new(loaded.unwrap_or_else(|| panic!("{problems:?}")).pipeline);
    let silence = when.map(|when| Silence {
        id: "quiet".into(),
        when,
        from: Timestamp::UNIX_EPOCH,
        until: Some("2026-02-25T10:00:00Z".parse().unwrap()),
        windows: None,
        reason: "moving".into(),
        by: "ann".into(),
    });
    let book = Arc::new(Shelf { pipeline, silences: silence.into_iter().collect(), troubled });
    let web = Web::new(&Outbound::default()).unwrap();
    let channels = LocalChannels::new(book, web, Arc::new(|_: &str| Ok(())), "/".into());
    channels.hold(&alert(), now()).await
}

#[tokio::test]
async fn an_alert_carries_how_much_its_pipeline_matters() {
    for (more, expected) in [
        ("tier: 2\nsla: {maxDuration: 1h, critical: true}\n", (Value::from(2), Value::from(true))),
        ("", (Value::Null, Value::Null)),
    ] {
        let zones = SystemZones::new();
        let text = format!("{PIPELINE}{more}");
        let (loaded, problems) =
            parse_pipeline(Path::new("p.yaml"), &text, &Context::default(), &zones, &|_| None);
        let pipeline = Arc::new(loaded.unwrap_or_else(|| panic!("{problems:?}")).pipeline);
        let log = Channel::File { path: "alerts.jsonl".into() };
        let Bench { folder, .. } = Bench::new(vec![]);
        let book = Arc::new(Filed {
            pipeline,
            channels: [declared_as("log", log, AlertFilter::default())].into(),
        });
        let web = Web::new(&Outbound::default()).unwrap();
        let console = Arc::new(|_: &str| Ok(()));
        let channels = LocalChannels::new(book, web, console, folder.path().to_owned());
        assert_eq!(channels.deliver("log", notice()).await, Delivery::Delivered);
        let line = fs::read_to_string(folder.path().join("alerts.jsonl")).unwrap();
        let details = serde_json::from_str::<Value>(&line).unwrap()["details"].clone();
        assert_eq!((details["tier"].clone(), details["critical"].clone()), expected, "{line}");
    }
}

/// A book with one pipeline and some channels.
struct Filed {
    pipeline: Arc<Pipeline>,
    channels: Arc<[Declared]>,
}

impl Book for Filed {
    fn channels(&self) -> Arc<[Declared]> {
        Arc::clone(&self.channels)
    }

    fn pipeline<'a>(&'a self, _: &'a PipelineId) -> Known<'a> {
        Box::pin(std::future::ready(Some(Arc::clone(&self.pipeline))))
    }
}

#[tokio::test]
async fn a_silence_holds_what_it_matches_by_owner_label_pipeline_type_and_level() {
    let list = |text: &str| vec![text.to_owned()];
    let none = AlertFilter::default;
    let labels = |team: &str| BTreeMap::from([("team".to_owned(), team.to_owned())]);
    for (when, holds) in [
        (AlertFilter { owners: list("ann"), ..none() }, true),
        (AlertFilter { owners: list("ben"), ..none() }, false),
        (AlertFilter { labels: labels("core"), ..none() }, true),
        (AlertFilter { labels: labels("edge"), ..none() }, false),
        (AlertFilter { pipelines: list("earth*"), types: list("schedule_missed"), ..none() }, true),
        (AlertFilter { pipelines: list("earth*"), types: list("job_failed"), ..none() }, false),
        (AlertFilter { levels: list("warning"), ..none() }, false),
    ] {
        let expected = holds.then(|| HoldReason {
            reason: "silence quiet: moving".into(),
            until: Some("2026-02-25T10:00:00Z".parse().unwrap()),
        });
        assert_eq!(hold(Some(when.clone()), "").await, expected, "{when:?}");
    }
}

#[tokio::test]
async fn an_upstream_in_trouble_holds_what_depends_on_it_and_says_so() {
    assert_eq!(hold(None, "").await, None);
    assert_eq!(hold(None, "gold").await, None, "it does not depend on that one");
    let reason = "its upstream bronze has an incident: failed:bronze:daily:2026-02-25".to_owned();
    assert_eq!(hold(None, "bronze").await, Some(HoldReason { reason, until: None }));
}
