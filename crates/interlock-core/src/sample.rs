//! A plain pipeline and plain schedules for tests.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::{
    calendar::DayFilter,
    cron::{Cron, Seconds},
    id::{PipelineId, ScheduleId},
    pipeline::{
        Catchup, CommandLine, Evaluation, JobContext, OnUncertain, OverlapPolicy, Pipeline,
        StartSchedule, Stuck, StuckAction, Trigger, TriggerKind,
    },
    readiness::{Readiness, Rule},
    retry::{RerunBudgets, RetryPolicy},
    schedule::{Dst, Recurrence, Schedule, Timing},
    sla::SlaSpec,
    zone::Zone,
};

/// `orders`: a command, no schedule, no conditions.
pub(crate) fn pipeline(overlap: OverlapPolicy) -> Pipeline {
    let kind = TriggerKind::Command(CommandLine::Shell("true".into()));
    Pipeline {
        name: PipelineId::parse("orders").unwrap(),
        tier: None,
        owner: None,
        description: None,
        runbook: None,
        labels: BTreeMap::new(),
        zone: None,
        starts: vec![],
        controls: vec![],
        catchup: Catchup { window: None, overlap, runs_max: 10 },
        active_runs_max: 1,
        readiness: Readiness {
            rule: Rule::All,
            conditions: vec![],
            upstreams: vec![],
            fail_open: false,
        },
        evaluation: Evaluation { window: None, interval: None },
        trigger: Some(Trigger {
            kind,
            on_uncertain: OnUncertain::Fail,
            timeout: None,
            poll_interval: None,
        }),
        job: JobContext::default(),
        retry: RetryPolicy::default(),
        reruns: RerunBudgets { drift_max: 1, manual_max: 1 },
        sla: SlaSpec::default(),
        post_run: None,
        enabled: true,
        monitoring: None,
        stuck: Stuck { threshold: None, action: StuckAction::Alert },
        dry_run: false,
        skip_if_successful: false,
        retention: None,
    }
}

/// A start schedule in UTC that says nothing else.
pub(crate) fn start(id: &'static str, recurrence: Recurrence) -> StartSchedule {
    let zone = Zone::utc();
    let (dst, days) = (Dst::default(), DayFilter::default());
    let timing = Timing { zone, dst, days, from: None, until: None };
    StartSchedule {
        schedule: Schedule::new(ScheduleId::from_static(id), recurrence, timing).unwrap(),
        deadline: None,
        grace: SignedDuration::from_mins(5),
        start_grace: SignedDuration::from_mins(1),
        early: None,
        duration_max: SignedDuration::from_hours(24),
        jitter: SignedDuration::ZERO,
    }
}

/// The same of a cron expression.
pub(crate) fn cron(id: &'static str, text: &str) -> StartSchedule {
    start(id, Recurrence::Cron(Cron::parse(text, Seconds::Absent).unwrap().cron))
}
