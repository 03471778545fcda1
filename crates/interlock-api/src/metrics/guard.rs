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
        ("hooks_unheard", "Steps that could not be reported.", status.hooks_unheard),
        ("beats", "Heartbeats that were sent.", status.beats),
        ("beats_lost", "Heartbeats that could not be sent.", status.beats_lost),
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

#[cfg(test)]
mod tests {
    use interlock_liveness::{Ladder, Monitor, Phase};
    use interlock_wait::{BOUND, wait_for_seeing};

    use super::*;

    fn shown(monitor: &Monitor) -> String {
        let mut page = Page::default();
        write(&monitor.probe(), &mut page);
        page.finish()
    }

    /// What is shown under a name.
    fn value(text: &str, name: &str) -> f64 {
        let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let values: Vec<&str> = lines.collect();
        assert_eq!(values.len(), 1, "{name} in {text}");
        values[0].parse().unwrap()
    }

    #[test]
    fn every_watch_and_the_guard_itself_are_shown_as_they_are() {
        let monitor = Monitor::builder().tick(Duration::from_millis(5)).start().unwrap();
        let watch = |name: &str, millis: u64| {
            let ladder = Ladder::soft(Duration::from_millis(millis));
            monitor.watch(name, ladder).register().unwrap()
        };
        let (hung, well) = (watch("hung", 60), watch("well", 60_000));
        let (paused, _resting) = (watch("paused", 60_000), watch("resting", 60_000));
        for watch in [&hung, &well, &paused] {
            watch.arm();
        }
        let _pause = paused.pause(Phase::named("moving house"), Duration::from_mins(1));
        // Until it is seen, not for a time.
        let text = wait_for_seeing(
            "three watches in their states",
            BOUND,
            || {
                well.kick();
                let text = shown(&monitor);
                let of = |name: &str| value(&text, name);
                let is_seen = of(r#"interlock_watch_expiries_total{watch="hung"}"#) > 0.0
                    && of(r#"interlock_watch_state{watch="paused"}"#) > 1.5
                    && of(r#"interlock_watch_longest_gap_seconds{watch="well"}"#) > 0.0;
                is_seen.then_some(text)
            },
            || shown(&monitor),
        );
        let of = |what: &str, watch: &str| {
            value(&text, &format!("interlock_watch_{what}{{watch=\"{watch}\"}}"))
        };
        assert!((of("limit_seconds", "hung") - 0.06).abs() < 1e-9);
        assert!(of("age_seconds", "hung") >= 0.06, "it has not moved for its limit: {text}");
        assert!(of("age_seconds", "well") < of("age_seconds", "hung"), "{text}");
        assert!(of("longest_gap_seconds", "well") < 30.0, "{text}");
        assert!(of("step", "hung") >= 2.0 && of("step", "well") < 0.5, "{text}");
        let states = ["resting", "well", "paused"].map(|name| of("state", name));
        assert_eq!(states.map(|state| state.round() as u8), [0, 1, 2], "{text}");
        assert!(of("expiries_total", "well") < 0.5, "{text}");
        for name in ["age", "scan", "dump", "step_late"] {
            let seconds = value(&text, &format!("interlock_guard_{name}_seconds"));
            assert!((0.0..30.0).contains(&seconds), "{name}: {seconds}");
        }
        assert!(value(&text, "interlock_guard_scan_seconds") > 0.0, "{text}");
        assert!(value(&text, "interlock_guard_step_late_seconds") > 0.0, "{text}");
        for name in [
            "stalls",
            "dumps",
            "dumps_suppressed",
            "events_lost",
            "hooks_unheard",
            "beats",
            "beats_lost",
        ] {
            value(&text, &format!("interlock_guard_{name}_total"));
        }
    }
}
