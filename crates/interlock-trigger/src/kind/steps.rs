//! `steps`: named commands with an order, executed by the runner, so that a daemon that dies does
//! not stop a job half-way.

use std::collections::BTreeSet;

use interlock_core::{
    pipeline::{Step, TriggerKind},
    retry::FailureCategory,
};

use super::{
    Adapter, mismatch,
    on_host::{self, Builder},
};
use crate::{
    local::Tools,
    runner::job::{Job, JobStep},
};
use interlock_ports::trigger::{
    CancelFailure, LookUp, LookUpFailure, StartFailure, StartRequest, TriggerFuture,
};

/// The adapter.
pub(crate) struct Steps;

impl Adapter for Steps {
    fn start<'a>(
        &'a self,
        tools: &'a Tools,
        request: StartRequest,
    ) -> TriggerFuture<'a, Result<(), StartFailure>> {
        Box::pin(async move { on_host::submit(tools, job(tools, &request)?).await })
    }

    fn look_up<'a>(
        &'a self,
        tools: &'a Tools,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>> {
        Box::pin(on_host::look_up(tools, request))
    }

    fn cancel<'a>(
        &'a self,
        tools: &'a Tools,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>> {
        Box::pin(on_host::cancel(tools, request))
    }
}

fn job(tools: &Tools, request: &StartRequest) -> Result<Job, StartFailure> {
    let refuse = |message| StartFailure::refused(message, FailureCategory::Permanent);
    let TriggerKind::Steps(steps) = &request.kind else { return Err(refuse(mismatch(request))) };
    let kept = match &request.resume_from {
        None => BTreeSet::new(),
        Some(name) => done_before(steps, name)
            .ok_or_else(|| refuse(format!("there is no step `{name}` to begin with")))?,
    };
    let builder = Builder::new(tools, request);
    let steps = steps.iter().map(|step| JobStep {
        name: Some(step.name.clone()),
        exec: builder.exec_in(&step.command, step.workdir.as_deref(), &step.env),
        depends: step.depends.clone(),
        retries_max: step.retries_max,
        timeout_ms: step.timeout.map(on_host::milliseconds),
        continue_on_failure: step.continue_on_failure,
        kept: kept.contains(step.name.as_str()),
    });
    Ok(builder.job(steps.collect()))
}

/// Everything that a step depends on, directly or not: it must have succeeded, or the step would
/// not have been tried. What lies beside it may have failed too, and so runs again.
fn done_before<'a>(steps: &'a [Step], name: &str) -> Option<BTreeSet<&'a str>> {
    let find = |name: &str| steps.iter().find(|step| step.name == name);
    let mut done = BTreeSet::new();
    let mut open = vec![find(name)?];
    while let Some(step) = open.pop() {
        for before in step.depends.iter().filter_map(|name| find(name)) {
            if done.insert(before.name.as_str()) {
                open.push(before);
            }
        }
    }
    Some(done)
}

#[cfg(test)]
mod tests {
    use interlock_core::pipeline::CommandLine;

    use super::*;

    fn step(name: &str, depends: &[&str]) -> Step {
        Step {
            name: name.to_owned(),
            command: CommandLine::Shell("true".to_owned()),
            depends: depends.iter().map(|&name| name.to_owned()).collect(),
            retries_max: 0,
            timeout: None,
            continue_on_failure: false,
            env: [].into(),
            workdir: None,
        }
    }

    #[test]
    fn only_what_a_step_depends_on_is_kept() {
        let steps = [step("a", &[]), step("b", &["a"]), step("c", &["b"]), step("x", &["a"])];
        let kept =
            |name| done_before(&steps, name).map(|kept| kept.into_iter().collect::<Vec<_>>());
        assert_eq!(kept("c"), Some(vec!["a", "b"]));
        assert_eq!(kept("x"), Some(vec!["a"]));
        assert_eq!(kept("a"), Some(vec![]));
        assert_eq!(kept("nobody"), None);
    }
}
