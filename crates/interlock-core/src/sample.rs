//! A plain pipeline for tests.

use std::collections::BTreeMap;

use crate::{
    id::PipelineId,
    pipeline::{
        Catchup, CommandLine, Evaluation, JobContext, OnUncertain, OverlapPolicy, Pipeline, Stuck,
        StuckAction, Trigger, TriggerKind,
    },
    readiness::{Readiness, Rule},
    retry::{RerunBudgets, RetryPolicy},
    sla::SlaSpec,
};

/// `orders`: a command, no schedule, no conditions.
pub(crate) fn pipeline(overlap: OverlapPolicy) -> Pipeline {
    let kind = TriggerKind::Command(CommandLine::Shell("true".into()));
    Pipeline {
        name: PipelineId::parse("orders").unwrap(),
        tier: None,
        owner: None,
        description: None,
        labels: BTreeMap::new(),
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
