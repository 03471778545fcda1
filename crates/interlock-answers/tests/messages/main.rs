//! `docs/messages.md` has every event, incident, alert and error code, as the sources have them, with examples that the sources still
//! print. `UPDATE_MESSAGES=1 cargo nextest run -p interlock-answers messages` writes the page.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod page;
mod sources;

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use interlock_core::message::{EVENTS, EventKind, LOG_EVENTS, RUNBOOKS, UNRECORDED};

use self::sources::{Template, strings};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Words in the form of a kind that are none: statuses, variables, names of fields.
const NO_KINDS: &[&str] = &[
    "COMPLETED_MONITORING",
    "CARGO_PKG_VERSION",
    "CRON_TZ",
    "EVALUATOR_CRASH",
    "FAILED_FINAL",
    "INTERVAL_END",
    "INTERVAL_START",
    "INTERLOCK_RID",
    "NOT_READY",
    "NO_COLOR",
    "PIPELINE_ID",
    "RUN_ID",
    "TRIGGER_TYPE",
];

/// Kinds whose message is what others wrote, or a name alone.
const QUOTING: &[&str] = &[
    "CANCEL_REQUESTED",
    "CONFIG_BROKEN",
    "DRY_RUN_LATE_DATA",
    "LATE_DATA_ARRIVAL",
    "MONITORING_COMPLETED",
    "PIPELINE_DECLARED",
    "PIPELINE_CHANGED",
    "POST_RUN_FAILED",
    "POST_RUN_PASSED",
    "PROCESS_DIED",
    "PROCESS_GIVEN_UP",
    "SENSOR_REPORTED",
    "SLOT_CANCELLED",
];

fn is_kind(text: &str) -> bool {
    text.contains('_')
        && text.len() > 5
        && text
            .split('_')
            .all(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase()))
}

#[test]
fn each_kind_of_event_in_the_sources_has_an_entry() {
    let folders =
        ["interlock-core", "interlock-engine", "interlock-watchdog", "interlock/src/serve"];
    let mut found = BTreeSet::new();
    for folder in folders {
        let texts = strings(&workspace().join("crates").join(folder));
        found.extend(texts.into_iter().filter(|text| is_kind(text)));
    }
    let known: BTreeSet<&str> = all_events().map(|event| event.kind).collect();
    let unknown: Vec<_> = found
        .iter()
        .filter(|text| {
            let word = text.as_str();
            !known.contains(word) && !NO_KINDS.contains(&word) && !word.starts_with("INTERLOCK_")
        })
        .collect();
    assert!(unknown.is_empty(), "no entry in interlock_core::message: {unknown:?}");
    let unused: Vec<_> =
        known.iter().filter(|kind| is_kind(kind) && !found.contains(**kind)).collect();
    assert!(unused.is_empty(), "an entry for what no source says: {unused:?}");
}

fn all_events() -> impl Iterator<Item = &'static EventKind> {
    EVENTS.iter().chain(LOG_EVENTS)
}

#[test]
fn each_example_is_what_a_source_prints() {
    let texts = strings(&workspace().join("crates"));
    let templates: Vec<Template> = texts.iter().map(|text| Template::of(text)).collect();
    let events = all_events().filter(|event| !QUOTING.contains(&event.kind));
    let events = events.map(|event| (event.kind, event.example));
    let alerts = RUNBOOKS.iter().chain(UNRECORDED).filter_map(|it| Some((it.kind, it.alert?)));
    let drifted: Vec<_> = events
        .chain(alerts)
        .filter(|(_, example)| !templates.iter().any(|template| template.makes(example)))
        .collect();
    assert!(drifted.is_empty(), "no source prints these examples any more: {drifted:#?}");
}

#[test]
fn an_example_that_no_source_prints_is_found() {
    let template = Template::of("{what} unknown: reports could not arrive from {from} to {until}");
    assert!(template.makes("9 slots are unknown: reports could not arrive from 22:00 to 06:00"));
    assert!(!template.makes("9 slots are unknown: we could not hear from 22:00 to 06:00"));
    assert!(!Template::of("{message}").makes("anything"), "it says nothing by itself");
}

#[test]
fn the_page_of_messages_is_up_to_date() {
    let path = workspace().join("docs/messages.md");
    let page = page::messages();
    if env::var_os("UPDATE_MESSAGES").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "run UPDATE_MESSAGES=1 cargo nextest run -p interlock-answers messages"
    );
}

/// Words that leave open who does what.
const VAGUE: [&str; 4] = ["somebody", "nobody", "whoever", "cannot be had"];

#[test]
fn no_page_that_interlock_prints_leaves_open_who_does_what() {
    let root = workspace();
    let mut pages: Vec<(String, String)> = vec![("docs/messages.md".to_owned(), page::messages())];
    for file in ["docs/reference.md", "docs/openapi.json"] {
        pages.push((file.to_owned(), fs::read_to_string(root.join(file)).unwrap()));
    }
    for folder in [
        "crates/interlock-sim/scenarios",
        "crates/interlock-config/tests/it/snapshots",
        "crates/interlock-watchdog/tests/golden",
        "crates/interlock-alert/tests/golden",
    ] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            // Of a scenario only the answers: the rest is its story.
            let is_scenario = folder.ends_with("scenarios");
            let printed = text.lines().filter(|line| !is_scenario || line.starts_with('|'));
            pages.push((path.display().to_string(), printed.collect::<Vec<_>>().join("\n")));
        }
    }
    let found: Vec<_> = pages
        .iter()
        .flat_map(|(name, text)| text.lines().map(move |line| (name, line)))
        .filter(|(_, line)| VAGUE.iter().any(|word| line.to_lowercase().contains(word)))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}
