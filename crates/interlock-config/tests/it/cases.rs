//! The cases of `facts/interlock-cases.md` that are about files: C2 28, 30 and 31, C3 39, 44 and 45.
//!
//! Superseded, each with its reason:
//! - Case 28 "garbage `after` counts as active", case 39 "an unknown rule falls back to all-required": a
//!   text that means nothing is an error where it stands, before anything runs by it.
//! - Case 31 "calendar named but registry nil → inline only": an unknown calendar is an error; leaving out
//!   its days would run a job on a holiday.
//! - Case 44 "missing file", "missing provider": a folder without `interlock.yaml` is a valid project, and
//!   the embedded store needs no word; "missing redis block": every key of it has a default.
//! - Case 44 "missing directory → error": only for a directory that is named; the default ones need not
//!   exist. See also `named_directories_must_exist_and_default_ones_need_not`.
//! - Case 45 "nameless files skipped": a file that is meant to be a pipeline and is not loaded is an error
//!   in that file, never silence; the other files load.

use interlock_config::{FileKind, server::StoreConfig};
use interlock_core::{
    readiness::{Condition, TraitSpec},
    sla::Deadline,
    time_of_day::TimeOfDay,
};
use jiff::{SignedDuration, civil::Date};
use serde_json::json;

use crate::{
    directory::{dir, names, simple, told},
    support::{codes, config, load, pipeline, problems},
};

fn with(more: &str) -> String {
    simple("orders", more)
}

#[test]
fn case_28_a_time_that_means_nothing_is_an_error() {
    for garbage in ["soon", "25:00", "0830", "''"] {
        let text = with(&format!("schedules: [{{name: early, after: {garbage}}}]\n"));
        assert_eq!(codes(&text).len(), 1, "{garbage}: {:?}", codes(&text));
        assert!(crate::support::read(&text).0.is_none(), "{garbage} is not loaded");
    }
    assert!(codes(&with("schedules: [{name: early, after: '8:30'}]\n")).is_empty());
}

#[test]
fn case_30_each_schedule_has_its_own_deadline_beside_the_pipelines() {
    let found = pipeline(&with(
        "schedules:\n  - {name: own, after: '08:00', deadline: '09:30'}\n  - {name: general, after: '10:00'}\n\
         sla: {completionDeadline: '11:00'}\n",
    ));
    let time = |text| Some(Deadline::TimeOfDay(TimeOfDay::parse(text).unwrap()));
    let deadlines: Vec<_> = found.starts.iter().map(|start| start.deadline).collect();
    assert_eq!(deadlines, [time("09:30"), None]);
    assert_eq!((found.sla.evaluation, found.sla.completion), (None, time("11:00")));
}

#[test]
fn case_31_calendars_and_inline_exclusions_are_left_out_together() {
    let calendar = "name: us-business\ndays: [Saturday, SUNDAY]\ndates: ['2025-12-25']\n";
    let orders =
        with("schedule: '0 9 * * *'\nexclusions: {calendar: us-business, dates: ['2025-11-28']}\n");
    let dir = dir(&[("calendars/us.yaml", calendar), ("pipelines/orders.yaml", &orders)]);
    let loaded = load(dir.path());
    assert_eq!(told(dir.path(), &loaded), "");
    let days = &loaded.pipelines[0].pipeline.starts[0].schedule.timing().days;
    for (date, allowed) in [
        ((2025, 11, 28), false),
        ((2025, 11, 29), false),
        ((2025, 11, 30), false),
        ((2025, 12, 25), false),
        ((2025, 12, 1), true),
    ] {
        let date = Date::constant(date.0, date.1, date.2);
        assert_eq!(days.allows(date), allowed, "{date}");
    }
    let bare = pipeline(&with("schedule: '0 9 * * *'\n"));
    assert!(bare.starts[0].schedule.timing().days.is_empty());
    let unknown = with("schedule: '0 9 * * *'\nexclusions: {calendar: us-busines}\n");
    assert_eq!(codes(&unknown), ["IL0501"], "an unknown calendar is an error");
}

#[test]
fn case_39_an_unknown_readiness_rule_is_an_error() {
    let archetype = "name: odd\nrequiredTraits: [{type: a}]\nreadinessRule: {type: most-pass}\n";
    let found = problems(FileKind::Archetype, archetype);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].help.contains("majority-pass"), "{}", found[0].help);
}

fn traits(pipeline: &interlock_core::pipeline::Pipeline) -> Vec<&TraitSpec> {
    let conditions = pipeline.readiness.conditions.iter();
    conditions
        .filter_map(|condition| match condition {
            Condition::Trait(found) => Some(found),
            Condition::Sensor(_) => None,
        })
        .collect()
}

#[test]
fn case_44_a_pipelines_traits_override_those_of_its_archetype() {
    let found = pipeline(&with(
        "archetype: batch-ingestion\ntraits:\n  source-freshness: {evaluator: f.sh, config: {maxAgeSeconds: 60}, ttl: 20}\n\
         \x20 upstream-dependency: {evaluator: u.sh}\n  schema-contract: {evaluator: s.sh}\n",
    ));
    let traits = traits(&found);
    let kinds: Vec<_> = traits.iter().map(|found| (found.kind.as_str(), found.required)).collect();
    assert_eq!(
        kinds,
        [("source-freshness", true), ("upstream-dependency", true), ("schema-contract", false)],
        "an optional trait only when it is named"
    );
    let fresh = traits[0];
    assert_eq!(fresh.config["maxAgeSeconds"], json!(60), "the pipeline's");
    assert_eq!(fresh.config["strict"], json!(true), "the archetype's");
    assert_eq!(fresh.ttl, Some(SignedDuration::from_secs(20)));
    assert_eq!(fresh.timeout, Some(SignedDuration::from_secs(30)));
    assert_eq!(codes(&with("archetype: batch-ingestoin\n")).len(), 1, "an unknown one is an error");
}

#[test]
fn case_44_archetypes_and_calendars_are_loaded_from_their_directories() {
    let archetype =
        "name: NAME\nrequiredTraits: [{type: a}]\nreadinessRule: {type: all-required-pass}\n";
    let dir = dir(&[
        ("archetypes/one.yaml", &archetype.replace("NAME", "one")),
        ("archetypes/two.yml", &archetype.replace("NAME", "two")),
        ("archetypes/old/three.yaml", "broken: ["),
        ("calendars/days.yaml", "name: days\ndays: [sunday]\n"),
        ("calendars/old/more.yaml", "broken: ["),
        ("calendars/nameless.yaml", "days: [sunday]\n"),
        ("calendars/broken.yaml", "name: [\n"),
    ]);
    let loaded = load(dir.path());
    let told = told(dir.path(), &loaded);
    let context = loaded.context();
    assert_eq!(context.archetypes.keys().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(context.calendars.keys().collect::<Vec<_>>(), ["days"]);
    assert!(told.contains("DIR/calendars/nameless.yaml:1:1"), "{told}");
    assert!(told.contains("DIR/calendars/broken.yaml"), "{told}");
    assert!(!told.contains("old"), "folders below are left alone: {told}");
}

#[test]
fn case_44_a_broken_configuration_is_an_error_and_an_absent_one_is_not() {
    let broken = dir(&[("interlock.yaml", "provider: [\n")]);
    assert!(load(broken.path()).has_errors());
    assert!(!load(dir(&[]).path()).has_errors());
    let StoreConfig::Redis(redis) = config("provider: redis\n").store else { panic!("redis") };
    assert_eq!(redis.addr, "localhost:6379");
    assert_eq!(problems(FileKind::Config, "provider: etcd\n").len(), 1);
}

#[test]
fn case_45_every_yaml_file_of_the_directory_is_a_pipeline_or_an_error() {
    let dir = dir(&[
        ("pipelines/a.yaml", &simple("aa", "")),
        ("pipelines/b.yml", &simple("bb", "")),
        ("pipelines/notes.txt", "not: ["),
        ("pipelines/README.md", "not yaml: ["),
        ("pipelines/.hidden", "x"),
        ("pipelines/old/c.yaml", "broken: ["),
        ("pipelines/dir.yaml/x", "x"),
        ("pipelines/nameless.yaml", "steps: [{name: a, command: x}]\n"),
        ("pipelines/broken.yaml", "name: [\n"),
    ]);
    let loaded = load(dir.path());
    let told = told(dir.path(), &loaded);
    assert_eq!(names(&loaded), ["aa", "bb"]);
    assert!(told.contains("DIR/pipelines/nameless.yaml"), "{told}");
    assert!(told.contains("DIR/pipelines/broken.yaml"), "{told}");
    assert_eq!(loaded.problems.len(), 2, "the others are none: {told}");
}
