//! What the guard of the process sees: each watch, and how the guard itself does.

use std::time::Duration;

use interlock_liveness::{MonitorStatus, Probe, WatchState, WatchStatus};

use crate::exposition::Page;

pub(super) fn write(probe: &Probe, page: &mut Page) {
    let watches = probe.watches();
    seconds(page, &watches, "age", "How long no progress was seen.", |it| it.age);
    seconds(page, &watches, "limit", "How long there may be none.", |it| it.limit);
    let help = "The longest time without progress so far.";
    seconds(page, &watches, "longest_gap", help, |it| it.longest_gap);
    let steps = watches.iter().map(|watch| (&*watch.name, watch.rung as u64));
    let help =
        "The step it has reached: 0 well, 1 late, 2 expired, 3 released, 4 drained, 5 ended.";
    page.gauges("interlock_watch_step", help, "watch", steps);
    let states = watches.iter().map(|watch| (&*watch.name, state(watch.state)));
    let help = "What its owner wants: 0 nothing, 1 to be watched, 2 to be given more time.";
    page.gauges("interlock_watch_state", help, "watch", states);
    let expiries = watches.iter().map(|it| (Some(("watch", &*it.name)), it.expiries));
    page.counter("interlock_watch_expiries_total", "How often it expired.", expiries);
    monitor(&probe.monitor(), page);
}

fn monitor(status: &MonitorStatus, page: &mut Page) {
    for (name, help, length) in [
        ("age", "How long ago the guard looked.", status.age),
        ("scan", "How long its last look took.", status.scan),
        ("dump", "How long taking the stacks took the last time.", status.dump),
        ("step_late", "How late a step was taken at most.", status.step_late),
    ] {
        page.gauge(&format!("interlock_guard_{name}_seconds"), help, None, length.as_secs_f64());
    }
    for (name, help, count) in [
        ("stalls", "How often the whole process did not run.", status.stalls),
        ("dumps", "How often stacks were taken.", status.dumps),
        ("dumps_suppressed", "Dumps that would have been too many.", status.dumps_suppressed),
        ("events_lost", "Events that the log did not take.", status.events_lost),
        ("hooks_unheard", "Steps that nobody could be told of.", status.hooks_unheard),
        ("beats", "Heartbeats that were sent.", status.beats),
        ("beats_lost", "Heartbeats that nobody took.", status.beats_lost),
    ] {
        page.counter(&format!("interlock_guard_{name}_total"), help, [(None, count)]);
    }
}

fn seconds(
    page: &mut Page,
    watches: &[WatchStatus],
    name: &str,
    help: &str,
    length: impl Fn(&WatchStatus) -> Duration,
) {
    let series = watches.iter().map(|watch| (&*watch.name, length(watch).as_secs_f64()));
    page.gauges(&format!("interlock_watch_{name}_seconds"), help, "watch", series);
}

fn state(state: WatchState) -> u64 {
    match state {
        WatchState::AtRest => 0,
        WatchState::Armed => 1,
        WatchState::Paused => 2,
    }
}
