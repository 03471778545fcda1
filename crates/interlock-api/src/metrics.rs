//! `/metrics`: what the engine counted, for Prometheus.
//!
//! No pipeline is a label, except of those that are overdue and of those that are asked for (`?pipelines=orders*`), and of those at most a
//! thousand: a hundred thousand of them would make a page that cannot be read in time.

mod guard;
mod pipeline;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse as _, Response},
};
use interlock_answers::model::fleet::MetricsQuery;
use interlock_engine::vitals::{Tally, Vitals};
use interlock_watchdog::WatchdogVitals;
use tokio::time::Instant;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    exposition::{self, Label, Page},
    question::AskedQuery,
    refusals,
    surface::{Phase, Surface},
};

pub(crate) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(metrics))
}

/// What this process counted, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "about", params(MetricsQuery),
    responses((status = 200, body = String, content_type = "text/plain")))]
async fn metrics(
    State(surface): State<Arc<Surface>>,
    AskedQuery(asked): AskedQuery<MetricsQuery>,
) -> Result<Response, ApiError> {
    let mut page = Page::default();
    let build = Some(("version", surface.version));
    page.gauge("interlock_build_info", "The version that runs.", build, 1);
    let is_up = u64::from(surface.phase() == Phase::Serving);
    page.gauge("interlock_serving", "1 while it is at work, else 0.", None, is_up);
    if let Some(bytes) = resident_bytes() {
        let name = "process_resident_memory_bytes";
        page.gauge(name, "Memory that the process really uses.", None, bytes);
    }
    late_loops(&surface, &mut page);
    let refused =
        refusals::CODES.map(|code| (Some(("code", code.as_str())), surface.refusals.count(code)));
    page.counter(
        "interlock_http_refused_total",
        "Requests that were not let in, by code.",
        refused,
    );
    let streams = surface.events.listening();
    page.gauge("interlock_streams_open", "Streams of events that are read.", None, streams);
    if let Some(vitals) = surface.vitals.get() {
        ledger(vitals, &mut page);
        engine(vitals, &mut page);
        by_the_names_of_go(vitals, &mut page);
    }
    if let Some(vitals) = surface.watchdog.get() {
        watchdog(vitals, &mut page);
    }
    if let Some(waited) = surface.archive_waited.get() {
        let help = "How long the oldest change has waited for the archive.";
        let waited = waited.load(Ordering::Relaxed);
        page.gauge("interlock_archive_waiting_seconds", help, None, waited);
    }
    if let Some(probe) = surface.guard.get() {
        guard::write(probe, &mut page);
    }
    if !asked.pipelines.is_empty() {
        pipeline::write(&surface, asked, &mut page).await?;
    }
    Ok(([(CONTENT_TYPE, exposition::CONTENT_TYPE)], page.finish()).into_response())
}

fn late_loops(surface: &Surface, page: &mut Page) {
    let standing = surface.loops.look(Instant::now());
    let late = standing.iter().filter(|standing| standing.is_late()).count() as u64;
    page.gauge("interlock_loops_late", "Loops that have not come round in time.", None, late);
    let longest = standing.iter().map(|standing| standing.still_for).max();
    let longest = longest.unwrap_or(Duration::ZERO).as_secs();
    let help = "How long the slowest loop has not come round.";
    page.gauge("interlock_loop_still_seconds", help, None, longest);
}

/// What was recorded.
fn ledger(vitals: &Vitals, page: &mut Page) {
    let opened = series("trigger_type", &vitals.slots_opened);
    page.counter("interlock_slots_opened_total", "Slots opened, by what opened them.", opened);
    let closed = series("disposition", &vitals.slots_closed);
    page.counter("interlock_slots_closed_total", "Slots decided, by how.", closed);
    let skipped = series("reason", &vitals.slots_skipped);
    page.counter("interlock_slots_skipped_total", "Slots skipped, by reason.", skipped);
    let started = series("trigger_type", &vitals.runs_started);
    page.counter("interlock_runs_started_total", "Runs, by what started them.", started);
    let ended = vitals.runs_ended.read().into_iter().filter(|(status, _)| is_end(status));
    let ended = ended.map(|(status, count)| (Some(("status", status)), count));
    page.counter("interlock_runs_ended_total", "Runs that ended, by status.", ended);
    let applied = series("answer", &vitals.inbox_applied);
    page.counter("interlock_inbox_applied_total", "Requests and reports applied.", applied);
    let open = vitals.open_slots.get();
    page.gauge("interlock_slots_open", "Slots that are not decided.", None, open);
    let lag = &vitals.lag;
    let help = "How long after its instant a slot was opened by its schedule.";
    page.histogram("interlock_scheduling_lag_seconds", help, &lag.read(), lag.sum());
}

/// How the loop does.
fn engine(vitals: &Vitals, page: &mut Page) {
    let one = |number: u64| [(None, number)];
    let passes = one(vitals.pulse.count());
    page.counter("interlock_engine_passes_total", "Passes of the engine.", passes);
    let took = &vitals.pass_duration;
    let help = "How long a pass takes.";
    page.histogram("interlock_engine_pass_seconds", help, &took.read(), took.sum());
    let accepted = one(vitals.groups_accepted.get());
    page.counter("interlock_groups_committed_total", "Groups the store accepted.", accepted);
    let refused = one(vitals.groups_refused.get());
    let help = "Groups the store refused because something had changed; planned again.";
    page.counter("interlock_groups_refused_total", help, refused);
    let asked = one(vitals.evaluators_asked.get());
    page.counter("interlock_evaluators_asked_total", "Questions to evaluators.", asked);
    let notifications = series("outcome", &vitals.notifications);
    let help = "Attempts to deliver a notification, by outcome.";
    page.counter("interlock_notifications_total", help, notifications);
    let digests = one(vitals.digests.get());
    page.counter("interlock_digests_total", "Messages that stood for many alerts.", digests);
    let digested = one(vitals.digested.get());
    page.counter("interlock_digested_alerts_total", "Alerts that were told in digests.", digested);
    let agenda = vitals.agenda();
    page.gauge("interlock_agenda_entries", "Instants on the agenda.", None, agenda);
    let pipelines = vitals.pipelines.get();
    page.gauge(
        "interlock_pipelines",
        "Pipelines that are declared and not retired.",
        None,
        pipelines,
    );
}

/// What the watchdog found. The first three have the Go controller's names.
fn watchdog(vitals: &WatchdogVitals, page: &mut Page) {
    let one = |number: u64| [(None, number)];
    let missed = one(vitals.schedules_missed());
    page.counter("interlock_schedules_missed_total", "Slots that were missed.", missed);
    let stuck = one(vitals.runs_stuck());
    page.counter("interlock_runs_stuck_total", "Runs that were found stuck.", stuck);
    let breaches = one(vitals.sla_breaches());
    page.counter("interlock_sla_breaches_total", "SLAs that were broken.", breaches);
    let findings = one(vitals.findings());
    page.counter("interlock_watchdog_findings_total", "All that the watchdog found.", findings);
    let late = one(vitals.found_late());
    let help = "Findings made late because no watchdog was running.";
    page.counter("interlock_watchdog_found_late_total", help, late);
    let failed = one(vitals.failed());
    let help = "Checks of the watchdog that could not be done.";
    page.counter("interlock_watchdog_checks_failed_total", help, failed);
    let passes = one(vitals.passes());
    page.counter("interlock_watchdog_passes_total", "Passes of the watchdog.", passes);
    let overdue = vitals.overdue();
    let overdue = overdue.iter().map(|(pipeline, seconds)| (pipeline.as_str(), *seconds));
    let help = "How long ago a pipeline should have run that was missed and has not run since.";
    page.gauges("interlock_overdue_seconds", help, "pipeline", overdue);
}

/// What the Go controller counted, under its names.
fn by_the_names_of_go(vitals: &Vitals, page: &mut Page) {
    let events: std::collections::BTreeMap<_, _> = vitals.events.read().into_iter().collect();
    let event = |kind: &str| events.get(kind).copied().unwrap_or(0);
    let sent: std::collections::BTreeMap<_, _> = vitals.notifications.read().into_iter().collect();
    let sent = |outcome: &str| sent.get(outcome).copied().unwrap_or(0);
    let help = "As the Go controller counted it.";
    for (name, count) in [
        ("interlock_evaluations_total", vitals.evaluators_asked.get()),
        ("interlock_evaluation_errors_total", vitals.evaluator_errors.get()),
        ("interlock_triggers_total", event("JOB_TRIGGERED")),
        ("interlock_triggers_failed_total", event("JOB_FAILED")),
        ("interlock_alerts_dispatched_total", sent("delivered")),
        ("interlock_alerts_failed_total", sent("retried") + sent("dead")),
        ("interlock_retries_scheduled_total", event("RETRY_SCHEDULED")),
        ("interlock_monitoring_drift_detected_total", event("MONITORING_DRIFT_DETECTED")),
        ("interlock_lifecycle_events_published_total", vitals.events_recorded.get()),
    ] {
        page.counter(name, help, [(None, count)]);
    }
}

fn series<const N: usize>(
    label: &'static str,
    tally: &Tally<N>,
) -> impl Iterator<Item = (Option<Label<'static>>, u64)> + use<N> {
    tally.read().into_iter().map(move |(word, count)| (Some((label, word)), count))
}

fn is_end(status: &str) -> bool {
    matches!(status, "COMPLETED" | "FAILED" | "CANCELLED")
}

/// What the kernel says, where it does.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}
