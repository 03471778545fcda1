//! The page, made of what the sources declare.

use std::{fmt::Write as _, fs, path::Path};

use interlock_answers::ErrorCode;
use interlock_config::Code;
use interlock_core::{
    incident::{IncidentKind, incident_kind},
    message::{EVENTS, EventKind, LOG_EVENTS, RUNBOOKS, Runbook, UNRECORDED},
};

const HEAD: &str = "# Messages

What Interlock says: each incident and alert with what to do, each event, each error code. This page is made of the sources:
`UPDATE_MESSAGES=1 cargo nextest run -p interlock-answers messages` writes it, and a test fails when it is not what they say.

An alert is one sentence on what happened and one on what to do, and names its runbook: the `runbook:` of the pipeline, else that of the
route (`alerts:`), else the section of its kind on this page. Dates and instants are UTC where no zone is named.
";

/// The whole page.
pub(crate) fn messages() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n## Incidents and alerts\n");
    for runbook in RUNBOOKS {
        let kind = incident_kind(runbook.kind).unwrap();
        section(&mut page, runbook, Some(&kind));
    }
    page.push_str("\n## Alerts without an incident\n");
    for runbook in UNRECORDED {
        section(&mut page, runbook, None);
    }
    events(&mut page, "Events", "`interlock events` lists them; the store keeps them.", EVENTS);
    events(&mut page, "Events of the log", "The field `event` of a log line.", LOG_EVENTS);
    http(&mut page);
    files(&mut page);
    page
}

fn section(page: &mut String, runbook: &Runbook, kind: Option<&IncidentKind>) {
    let Runbook { kind: name, means, look, act, .. } = runbook;
    write!(page, "\n### {name}\n\n").unwrap();
    if let Some(IncidentKind { level, alert_type, resolved_by, .. }) = kind {
        let ends = if resolved_by.is_empty() {
            "An operator resolves it.".to_owned()
        } else {
            format!("`{resolved_by}` resolves it.")
        };
        writeln!(page, "Alert type `{alert_type}`, level {}. {ends}", level.as_str()).unwrap();
        page.push('\n');
    }
    writeln!(page, "> {}", example(runbook, kind)).unwrap();
    writeln!(page, "\n- **What it means:** {means}").unwrap();
    writeln!(page, "- **What to look at:** {look}").unwrap();
    writeln!(page, "- **What to do:** {act}").unwrap();
}

/// The alert: its own sentence, or the kind's words with the event's message behind them.
fn example(runbook: &Runbook, kind: Option<&IncidentKind>) -> String {
    if let Some(alert) = runbook.alert {
        return alert.to_owned();
    }
    let says = kind.map(|kind| kind.says).unwrap_or_default();
    let subject = subject(runbook.kind);
    let day = if subject.contains("schedule") { " on 2026-02-25" } else { "" };
    let message = EVENTS.iter().find(|event| event.kind == runbook.kind).map(|event| event.example);
    format!("{subject} {says}{day}: {}", message.unwrap_or_default())
}

/// What an alert of a kind is about.
fn subject(kind: &str) -> &'static str {
    match kind {
        "CONFIG_BROKEN" => "pipelines/orders.yaml",
        "CLOCK_JUMP" => "The clock",
        "CLOCK_SKEW" => "The clock of this host",
        "INVARIANT_BROKEN" => "orders/daily (S3)",
        "HTTP_UNREACHABLE" => "The HTTP interface of batch-1",
        "CERTIFICATE_UNUSABLE" => "The certificate of batch-1",
        "ARCHIVE_BEHIND" => "The archive",
        "INSTANCE_GONE" => "batch-2",
        "STORE_UNSAFE" | "STORE_ROLLBACK" | "STORE_RECOVERED" => "The store",
        "FILES_DIFFER" => "The files of the instances",
        "PROCESS_HUNG" => "interlock serve",
        "PROCESS_DIED" | "PROCESS_GIVEN_UP" => "loader",
        "BARK" => "standing-1772010000000",
        "BARK_LOST" | "WATCHDOG_DEGRADED" => "Interlock",
        "PIPELINE_SET_ASIDE" | "JOB_NOT_WATCHED" => "Pipeline orders",
        _ => "Pipeline orders schedule daily",
    }
}

fn events(page: &mut String, heading: &str, says: &str, events: &[EventKind]) {
    write!(page, "\n## {heading}\n\n{says}\n\n| kind | what happened | example |\n|---|---|---|\n")
        .unwrap();
    for EventKind { kind, meaning, example } in events {
        let example = example.replace('|', "\\|");
        writeln!(page, "| `{kind}` | {meaning} | {example} |").unwrap();
    }
}

fn http(page: &mut String) {
    page.push_str(
        "\n## Errors over HTTP\n\nThe field `code` of a problem (`application/problem+json`); `detail` says what is wrong, `hint` what to do.\n\n\
         | status | code | what it means | example |\n|---|---|---|---|\n",
    );
    for code in ErrorCode::ALL {
        let (status, word) = (code.status(), code.as_str());
        writeln!(
            page,
            "| {status} | `{word}` | {} | `{{\"status\":{status},\"code\":\"{word}\",\"title\":\"{}\"}}` |",
            code.meaning(),
            code.title()
        )
        .unwrap();
    }
}

fn files(page: &mut String) {
    page.push_str(
        "\n## Problems in files\n\n`interlock validate` prints them with their place. Codes from IL0900 are warnings.\n\n\
         | code | what it means | example |\n|---|---|---|\n",
    );
    let snapshots = snapshots();
    for code in Code::all() {
        let marker = format!("[{}]: ", code.as_str());
        let example = snapshots.iter().find_map(|line| Some(line.split_once(&marker)?.1));
        let example = example.map(|text| text.replace('|', "\\|")).unwrap_or_default();
        writeln!(page, "| `{}` | {} | {example} |", code.as_str(), code.meaning()).unwrap();
    }
}

/// The lines of the rendered problems that the tests of the files hold, in the order of their names.
fn snapshots() -> Vec<String> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../interlock-config/tests/it/snapshots");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    paths.sort();
    let texts = paths.iter().map(|path| fs::read_to_string(path).unwrap());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}
