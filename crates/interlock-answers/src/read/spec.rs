//! What a pipeline declares, with every default filled in and no secret.

use interlock_core::{
    duration,
    pipeline::{OnUncertain, OverlapPolicy, Pipeline, StartSchedule, StuckAction},
    sla::Deadline,
};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::declaration;

/// What a pipeline declares, with every default filled in; values of its environment are secrets and left out.
pub fn declaration_json(pipeline: &Pipeline) -> Value {
    let readiness = &pipeline.readiness;
    json!({
        "name": pipeline.name.as_str(),
        "owner": pipeline.owner,
        "description": pipeline.description,
        "runbook": pipeline.runbook,
        "tier": pipeline.tier,
        "labels": pipeline.labels,
        "enabled": pipeline.enabled,
        "dryRun": pipeline.dry_run,
        "schedules": pipeline.starts.iter().map(schedule).collect::<Vec<_>>(),
        "catchup": {
            "window": length(pipeline.catchup.window),
            "overlapPolicy": overlap(pipeline.catchup.overlap),
            "maxRuns": pipeline.catchup.runs_max,
        },
        "maxActiveRuns": pipeline.active_runs_max,
        "readiness": {
            "rule": declaration::rule(readiness.rule),
            "conditions": readiness.conditions.iter().map(declaration::condition).collect::<Vec<_>>(),
            "upstreams": readiness.upstreams.iter().map(|up| up.pipeline.as_str()).collect::<Vec<_>>(),
            "failOpen": readiness.fail_open,
        },
        "evaluation": {
            "window": length(pipeline.evaluation.window),
            "interval": length(pipeline.evaluation.interval),
        },
        "trigger": trigger(pipeline),
        "job": job(pipeline),
        "retry": retry(pipeline),
        "monitoring": length(pipeline.monitoring),
        "stuck": {
            "threshold": length(pipeline.stuck.threshold),
            "action": stuck(pipeline.stuck.action),
        },
        "sla": sla(pipeline),
        "skipIfSuccessful": pipeline.skip_if_successful,
        "retention": length(pipeline.retention),
    })
}

fn length(duration: Option<SignedDuration>) -> Option<String> {
    duration.map(duration::format)
}

fn schedule(start: &StartSchedule) -> Value {
    json!({
        "id": start.schedule.id().as_str(),
        "when": declaration::recurrence(&start.schedule),
        "zone": start.schedule.timing().zone.name(),
        "deadline": start.deadline.map(deadline),
        "grace": duration::format(start.grace),
        "startGrace": duration::format(start.start_grace),
        "maxDuration": duration::format(start.duration_max),
        "jitter": duration::format(start.jitter),
    })
}

fn deadline(deadline: Deadline) -> String {
    match deadline {
        Deadline::TimeOfDay(time) => format!("{time} of the slot's date"),
        Deadline::MinuteOfNextHour(minute) => format!("minute {minute} of the next hour"),
        Deadline::After(after) => format!("{} after midnight", duration::format(after)),
        Deadline::AfterSlot(after) => format!("{} after the slot", duration::format(after)),
    }
}

fn overlap(policy: OverlapPolicy) -> &'static str {
    match policy {
        OverlapPolicy::Skip => "skip",
        OverlapPolicy::All => "all",
        OverlapPolicy::Latest => "latest",
    }
}

fn stuck(action: StuckAction) -> &'static str {
    match action {
        StuckAction::Alert => "alert",
        StuckAction::Cancel => "cancel",
        StuckAction::Fail => "fail",
    }
}

fn trigger(pipeline: &Pipeline) -> Option<Value> {
    let trigger = pipeline.trigger.as_ref()?;
    let on_uncertain = match trigger.on_uncertain {
        OnUncertain::Fail => "fail",
        OnUncertain::Retry => "retry",
    };
    Some(json!({
        "type": trigger.kind.as_str(),
        "does": declaration::trigger_work(&trigger.kind),
        "onUncertain": on_uncertain,
        "timeout": length(trigger.timeout),
        "pollInterval": length(trigger.poll_interval),
    }))
}

/// Values of the environment are secrets: only their names are shown.
fn job(pipeline: &Pipeline) -> Value {
    let job = &pipeline.job;
    json!({
        "env": job.env.keys().collect::<Vec<_>>(),
        "workdir": job.workdir,
        "shell": job.shell,
        "params": job.params,
    })
}

fn retry(pipeline: &Pipeline) -> Value {
    let retry = &pipeline.retry;
    json!({
        "maxAttempts": retry.attempts_max,
        "backoff": duration::format(retry.backoff),
        "multiplier": retry.multiplier,
        "maxBackoff": duration::format(retry.backoff_max),
        "retryable": retry.retryable.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(),
        "permanentRetries": retry.permanent_retries_max,
        "driftReruns": pipeline.reruns.drift_max,
        "manualReruns": pipeline.reruns.manual_max,
    })
}

fn sla(pipeline: &Pipeline) -> Value {
    let sla = &pipeline.sla;
    json!({
        "evaluation": sla.evaluation.map(deadline),
        "completion": sla.completion.map(deadline),
        "expectedDuration": length(sla.expected_duration),
        "maxDuration": length(sla.duration_max),
        "critical": sla.critical,
    })
}
