//! A whole pipeline, put together from its sections.

use interlock_core::{
    calendar::DayFilter,
    cron::Seconds,
    duration::{self, Units},
    id::PipelineId,
    pipeline::{Catchup, Evaluation, JobContext, OverlapPolicy, Pipeline, Stuck, StuckAction},
    readiness::{Condition, Readiness, Rule, SensorRule},
    retry::{FailureCategory, RerunBudgets, RetryPolicy},
    sla::{Deadline, SlaSpec},
};
use jiff::SignedDuration;

use super::{
    Decoder, count, dict, flag, number,
    schedule::{Shared, WatchOnly},
    text,
};
use crate::{problem::Code, shape::TYPE, yaml::Node};

const CATCHUP_RUNS_MAX: u32 = 10_000;
const MONITORING: SignedDuration = SignedDuration::from_hours(2);

impl Decoder<'_> {
    /// Reads a pipeline. Whether it can be used depends on the problems found.
    pub(crate) fn pipeline(&mut self, root: &Node) -> Option<Pipeline> {
        let name = self.name(root);
        let shared = self.shared(root);
        let schedules = self.schedules(root, &shared);
        let trigger = self.trigger(root);
        let mut readiness = self.readiness(root);
        self.add_conditions(root, &mut readiness, schedules.conditions);
        let catchup = self.catchup(root);
        self.warn(root, &readiness, &catchup);
        if let Some(trigger) = &trigger {
            self.warn_idle_keys(root, &trigger.kind);
        }
        let identity = root.get("pipeline");
        let also = |key| text(root, key).or_else(|| identity.and_then(|node| text(node, key)));
        Some(Pipeline {
            owner: also("owner"),
            description: also("description"),
            runbook: text(root, "runbook"),
            tier: count(root, "tier"),
            labels: dict(root, "labels"),
            zone: root.get("timezone").map(|_| shared.zone.clone()),
            starts: schedules.starts,
            controls: schedules.controls,
            catchup,
            active_runs_max: count(root, "maxActiveRuns").unwrap_or(1),
            readiness,
            evaluation: self.evaluation(root),
            trigger,
            job: self.job_context(root),
            retry: self.retry(root),
            reruns: reruns(root),
            sla: self.sla(root),
            post_run: self.post_run(root),
            enabled: root.get("watch").and_then(|watch| flag(watch, "enabled")).unwrap_or(true),
            monitoring: self.monitoring(root),
            stuck: self.stuck(root),
            dry_run: flag(root, "dryRun").unwrap_or(false),
            skip_if_successful: flag(root, "skipIfSuccessful").unwrap_or(false),
            retention: self.duration(root, "retention"),
            name: name?,
        })
    }

    fn name(&mut self, root: &Node) -> Option<PipelineId> {
        let nested = root.get("pipeline").and_then(|node| node.get("id"));
        let own = root.get("name");
        if let (Some(own), Some(nested)) = (own, nested)
            && own.text() != nested.text()
        {
            let message = "`name` and `pipeline.id` are two names for one pipeline";
            self.problems.add(nested.span, Code::Conflict, message, "Keep one of them.");
        }
        self.read(own.or(nested)?, Code::Name, PipelineId::parse)
    }

    fn shared(&mut self, root: &Node) -> Shared {
        let mut days = DayFilter::default();
        self.add_days(root, &mut days);
        let kind = root.get("trigger").or_else(|| root.get("job")).and_then(|node| node.get(TYPE));
        let external = kind.and_then(Node::text) == Some("external");
        let grace = self.duration(root, "grace");
        Shared {
            zone: self.zone(root, "timezone").unwrap_or_else(|| self.around.zone.clone()),
            days,
            grace: grace.zip(root.get("grace").map(|node| node.span)),
            start_grace: self.duration(root, "startGrace"),
            watch_only: if external { WatchOnly::Yes } else { WatchOnly::No },
            seconds: Seconds::Absent,
        }
    }

    /// A sensor beside a time: the slot opens at its time and waits for the sensor.
    fn add_conditions(&mut self, root: &Node, readiness: &mut Readiness, extra: Vec<SensorRule>) {
        let extra: Vec<_> = extra
            .into_iter()
            .map(Condition::Sensor)
            .filter(|condition| !readiness.conditions.contains(condition))
            .collect();
        if extra.is_empty() {
            return;
        }
        if readiness.rule != Rule::All && !readiness.conditions.is_empty() {
            let at = root.entry("schedule").or_else(|| root.entry("schedules"));
            self.problems.add(
                at.map_or(root.span, |entry| entry.key_span),
                Code::Conflict,
                "a schedule that waits for a sensor needs readiness rules that must all hold",
                "Move the sensor into `validation`, or use `trigger: ALL`.",
            );
            return;
        }
        readiness.rule = Rule::All;
        readiness.conditions.splice(0..0, extra);
    }

    fn catchup(&mut self, root: &Node) -> Catchup {
        let window = root.get("catchupWindow").and_then(|node| {
            self.read(node, Code::Duration, |text| duration::parse(text, Units::MinutesToDays))
        });
        let overlap = match root.get("overlapPolicy").and_then(Node::text) {
            Some("all") => OverlapPolicy::All,
            Some("latest") => OverlapPolicy::Latest,
            Some(_) | None => OverlapPolicy::Skip,
        };
        Catchup {
            window,
            overlap,
            runs_max: count(root, "catchupMaxRuns").unwrap_or(CATCHUP_RUNS_MAX),
        }
    }

    fn warn(&mut self, root: &Node, readiness: &Readiness, catchup: &Catchup) {
        if ["trigger", "job", "steps"].iter().all(|key| root.get(key).is_none()) {
            let at = root.entry("name").or_else(|| root.entries().first());
            self.problems.add(
                at.map_or(root.span, |entry| entry.key_span),
                Code::NoTrigger,
                "a pipeline without a trigger is never due",
                "Add `trigger:`, `steps:` or `job:`; `trigger: {type: external}` only watches.",
            );
        }
        let sensors = readiness.conditions.iter().any(|c| matches!(c, Condition::Sensor(_)));
        if let Some(policy) = root.get("overlapPolicy")
            && sensors
            && catchup.window.is_some()
            && catchup.overlap != OverlapPolicy::All
        {
            self.problems.add(
                policy.span,
                Code::SkippedPeriods,
                "catch-up leaves out periods whose sensors may be ready",
                "Write `overlapPolicy: all` if every period must be processed.",
            );
        }
    }

    fn evaluation(&mut self, root: &Node) -> Evaluation {
        let own = root.get("evaluation");
        let go = root.get("schedule").and_then(|schedule| schedule.entry("evaluation"));
        if let (Some(_), Some(entry)) = (own, go) {
            let message = "`evaluation` is there twice";
            self.problems.add(entry.key_span, Code::Conflict, message, "Keep one of them.");
        }
        let node = own.or_else(|| go.map(|entry| &entry.value));
        let window = node.and_then(|node| self.duration(node, "window"));
        let interval = node.and_then(|node| self.duration(node, "interval"));
        let watch = root.get("watch").and_then(|watch| self.duration(watch, "interval"));
        Evaluation {
            window: window.or_else(|| self.validation_timeout(root)),
            interval: interval.or(watch),
        }
    }

    /// A duration closes the window; a time of day is something that a window cannot say.
    fn validation_timeout(&mut self, root: &Node) -> Option<SignedDuration> {
        let sla = root.get("sla")?;
        match self.deadline(sla, "validationTimeout")? {
            Deadline::After(window) | Deadline::AfterSlot(window) => Some(window),
            Deadline::TimeOfDay(_) | Deadline::MinuteOfNextHour(_) => {
                let at = sla.get("validationTimeout").map_or(sla.span, |node| node.span);
                self.problems.add(
                    at,
                    Code::Refused,
                    "this version does not act on a `validationTimeout` that is a time of day",
                    "Write a duration, or use `evaluation.window`.",
                );
                None
            }
        }
    }

    fn job_context(&mut self, root: &Node) -> JobContext {
        JobContext {
            env: self.hidden_values(root, "env"),
            workdir: text(root, "workdir"),
            shell: text(root, "shell"),
            params: dict(root, "params"),
            handlers: self.handlers(root),
        }
    }

    fn retry(&mut self, root: &Node) -> RetryPolicy {
        let mut policy = RetryPolicy::default();
        if let Some(job) = root.get("job") {
            policy.attempts_max = count(job, "maxRetries").unwrap_or(0) + 1;
            policy.permanent_retries_max = count(job, "maxCodeRetries").unwrap_or(1);
        }
        let Some(node) = root.get("retry") else { return policy };
        if let (Some(attempts), Some(_)) =
            (node.entry("maxAttempts"), root.get("job").and_then(|job| job.get("maxRetries")))
        {
            let message = "`retry.maxAttempts` and `job.maxRetries` say the same thing twice";
            self.problems.add(attempts.key_span, Code::Conflict, message, "Keep one of them.");
        }
        if let Some(attempts) = count(node, "maxAttempts") {
            policy.attempts_max = attempts;
        } else if root.get("job").is_none_or(|job| job.get("maxRetries").is_none()) {
            policy.attempts_max = RetryPolicy::default().attempts_max;
        }
        if let Some(seconds) = count(node, "backoffSeconds") {
            policy.backoff = SignedDuration::from_secs(i64::from(seconds));
        }
        if let Some(multiplier) = number(node, "backoffMultiplier").filter(|found| *found > 0.0) {
            policy.multiplier = multiplier;
        }
        if let Some(longest) = self.duration(node, "maxBackoff") {
            policy.backoff_max = longest;
        }
        self.retryable(node, &mut policy);
        policy
    }

    fn retryable(&mut self, node: &Node, policy: &mut RetryPolicy) {
        let items = node.get("retryableFailures").map(Node::items).unwrap_or_default();
        let mut found = Vec::new();
        for item in items {
            let Some(category) = self.read(item, Code::NotAllowed, FailureCategory::parse) else {
                continue;
            };
            if category == FailureCategory::Permanent {
                self.problems.add(
                    item.span,
                    Code::Refused,
                    "PERMANENT failures are not tried again by this list",
                    "Remove it; their own budget is `job.maxCodeRetries`.",
                );
            }
            if !found.contains(&category) {
                found.push(category);
            }
        }
        if !found.is_empty() {
            policy.retryable = found;
        }
    }

    fn sla(&mut self, root: &Node) -> SlaSpec {
        let flat = self.duration(root, "maxDurationSLA");
        let nested = root.get("sla").and_then(|sla| sla.get("maxDuration"));
        if let (Some(_), Some(entry)) = (nested, root.entry("maxDurationSLA")) {
            let message = "`maxDurationSLA` and `sla.maxDuration` say the same thing twice";
            self.problems.add(entry.key_span, Code::Conflict, message, "Keep one of them.");
        }
        let Some(node) = root.get("sla") else {
            return SlaSpec { duration_max: flat, ..SlaSpec::default() };
        };
        SlaSpec {
            evaluation: self.deadline(node, "evaluationDeadline"),
            completion: self.deadline(node, "completionDeadline"),
            expected_duration: self.duration(node, "expectedDuration"),
            duration_max: self.duration(node, "maxDuration").or(flat),
            zone: self.zone(node, "timezone"),
            critical: flag(node, "critical").unwrap_or(false),
        }
    }

    fn monitoring(&mut self, root: &Node) -> Option<SignedDuration> {
        let node = root.get("watch")?.get("monitoring")?;
        let duration = self.duration(node, "duration").unwrap_or(MONITORING);
        flag(node, "enabled").unwrap_or(false).then_some(duration)
    }

    fn stuck(&mut self, root: &Node) -> Stuck {
        let node = root.get("stuck");
        let nested = node.and_then(|node| self.duration(node, "threshold"));
        let flat = self.duration(root, "stuckRunThreshold");
        if let (Some(_), Some(entry)) =
            (node.and_then(|node| node.get("threshold")), root.entry("stuckRunThreshold"))
        {
            let message = "`stuckRunThreshold` and `stuck.threshold` say the same thing twice";
            self.problems.add(entry.key_span, Code::Conflict, message, "Keep one of them.");
        }
        let action = match node.and_then(|node| node.get("action")).and_then(Node::text) {
            Some("cancel") => StuckAction::Cancel,
            Some("fail") => StuckAction::Fail,
            Some(_) | None => StuckAction::Alert,
        };
        Stuck { threshold: nested.or(flat), action }
    }
}

fn reruns(root: &Node) -> RerunBudgets {
    let budget = |key| root.get("job").and_then(|job| count(job, key)).unwrap_or(1);
    RerunBudgets { drift_max: budget("maxDriftReruns"), manual_max: budget("maxManualReruns") }
}
