//! `command`: one program on this host, started by the runner.

use interlock_core::{pipeline::TriggerKind, retry::FailureCategory};

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
pub(crate) struct Command;

impl Adapter for Command {
    fn start<'a>(
        &'a self,
        tools: &'a Tools,
        request: StartRequest,
    ) -> TriggerFuture<'a, Result<(), StartFailure>> {
        Box::pin(async move {
            match job(tools, &request) {
                Some(job) => on_host::submit(tools, job).await,
                None => Err(StartFailure::refused(mismatch(&request), FailureCategory::Permanent)),
            }
        })
    }

    fn prepare(&self, tools: &Tools, request: &StartRequest, after: Option<&str>) -> bool {
        job(tools, request).map(|job| tools.link.prepare(job, after)).is_some()
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

fn job(tools: &Tools, request: &StartRequest) -> Option<Job> {
    let TriggerKind::Command(line) = &request.kind else { return None };
    let builder = Builder::new(tools, request);
    let step = JobStep {
        name: None,
        exec: builder.exec(line),
        depends: Vec::new(),
        retries_max: 0,
        timeout_ms: None,
        continue_on_failure: false,
        kept: false,
    };
    Some(builder.job(vec![step]))
}
