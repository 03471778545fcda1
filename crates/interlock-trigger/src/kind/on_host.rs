//! What `command` and `steps` share: filling in a job and handing it to the runner.

use std::{collections::BTreeMap, path::Path};

use interlock_core::{
    pipeline::{CommandLine, Secret},
    retry::FailureCategory,
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    local::Tools,
    placeholder::{Filler, Place},
    runner::{
        job::{Exec, Job, JobHandlers, JobStep},
        protocol::{Ask, Known, Reply},
    },
};
use interlock_ports::trigger::{CancelFailure, LookUp, LookUpFailure, StartFailure, StartRequest};

/// Fills in one job's commands.
pub(super) struct Builder<'a> {
    tools: &'a Tools,
    request: &'a StartRequest,
    filler: Filler<'a>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(tools: &'a Tools, request: &'a StartRequest) -> Self {
        Self { tools, request, filler: Filler::new(request, &tools.environment) }
    }

    /// A job of these steps.
    pub(super) fn job(&self, steps: Vec<JobStep>) -> Job {
        let options = &self.tools.options;
        let handlers = &self.request.context.handlers;
        let handler = |line: &Option<CommandLine>| line.as_ref().map(|line| self.exec(line));
        Job {
            run_id: self.request.run_id.clone(),
            pipeline: self.request.pipeline.clone(),
            steps,
            handlers: JobHandlers {
                success: handler(&handlers.success),
                failure: handler(&handlers.failure),
                exit: handler(&handlers.exit),
            },
            env: self.filler.job_environment(),
            timeout_ms: self.request.timeout.map(milliseconds),
            grace_ms: milliseconds(options.grace),
            log_bytes_max: options.log_bytes_max,
        }
    }

    /// A command of the job itself.
    pub(super) fn exec(&self, line: &CommandLine) -> Exec {
        self.exec_in(line, None, &BTreeMap::new())
    }

    /// A command with a place and variables of its own.
    pub(super) fn exec_in(
        &self,
        line: &CommandLine,
        workdir: Option<&str>,
        env: &BTreeMap<String, Secret>,
    ) -> Exec {
        let argv = match line {
            CommandLine::Argv(argv) => {
                argv.iter().map(|word| self.filler.fill(word, Place::Argument)).collect()
            }
            CommandLine::Shell(text) => {
                let shell = self.request.context.shell.as_deref().unwrap_or("sh");
                let text = self.filler.fill(text, Place::Shell);
                let words = shell.split_whitespace().map(str::to_owned);
                words.chain(["-c".to_owned(), text]).collect()
            }
        };
        Exec { argv, env: self.filler.step_environment(env), workdir: self.workdir(workdir) }
    }

    /// Each place is relative to the one around it.
    fn workdir(&self, own: Option<&str>) -> String {
        let job = self.request.context.workdir.as_deref();
        let mut place = self.tools.options.workdir.clone();
        for text in [job, own].into_iter().flatten() {
            place = place.join(Path::new(&self.filler.fill(text, Place::Argument)));
        }
        place.display().to_string()
    }
}

/// A duration for the wire.
pub(super) fn milliseconds(duration: SignedDuration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(0)
}

/// Hands a job to the runner.
pub(super) async fn submit(tools: &Tools, job: Job) -> Result<(), StartFailure> {
    match tools.link.ask(Ask::Start(Box::new(job))).await {
        Ok(Reply::Done | Reply::Already) => Ok(()),
        Ok(Reply::Refused { message, category }) => {
            Err(StartFailure::refused(message, category.into()))
        }
        Ok(odd @ (Reply::Known(_) | Reply::Runs { .. })) => {
            let message = format!("the runner gave an odd answer: {odd:?}");
            Err(StartFailure::unclear(message, FailureCategory::Transient))
        }
        Err(failure) => Err(StartFailure {
            message: failure.message,
            category: FailureCategory::Transient,
            may_have_started: failure.was_sent,
        }),
    }
}

/// Asks the runner what it knows. It watches every job anyway: nothing has to be re-attached.
pub(super) async fn look_up(
    tools: &Tools,
    request: &StartRequest,
) -> Result<LookUp, LookUpFailure> {
    look_up_here(tools, &request.run_id, request.triggered_at).await
}

pub(crate) async fn look_up_here(
    tools: &Tools,
    run_id: &str,
    triggered_at: Timestamp,
) -> Result<LookUp, LookUpFailure> {
    let run_id = run_id.to_owned();
    match tools.link.ask(Ask::LookUp { run_id }).await {
        Ok(Reply::Known(Known::Running { metadata })) => Ok(LookUp::Running { metadata }),
        Ok(Reply::Known(Known::Ended(end))) => Ok(match end.into_outcome() {
            Ok(outcome) => LookUp::Finished(outcome),
            Err(reason) => LookUp::CannotTell { reason },
        }),
        Ok(Reply::Known(Known::Nothing { since })) if triggered_at >= since => {
            Ok(LookUp::NeverStarted)
        }
        Ok(Reply::Known(Known::Nothing { since })) => Ok(LookUp::CannotTell {
            reason: format!(
                "this host's record of jobs begins at {since}, after the run was triggered"
            ),
        }),
        Ok(odd @ (Reply::Done | Reply::Already | Reply::Refused { .. } | Reply::Runs { .. })) => {
            Err(LookUpFailure { message: format!("the runner gave an odd answer: {odd:?}") })
        }
        Err(failure) => Err(LookUpFailure { message: failure.message }),
    }
}

/// Asks the runner to end a job.
pub(super) async fn cancel(tools: &Tools, request: &StartRequest) -> Result<(), CancelFailure> {
    cancel_here(tools, &request.run_id).await
}

/// Asks the runner of this host to end a job, whoever started it.
pub(crate) async fn cancel_here(tools: &Tools, run_id: &str) -> Result<(), CancelFailure> {
    let run_id = run_id.to_owned();
    match tools.link.ask(Ask::Cancel { run_id }).await {
        Ok(_) => Ok(()),
        Err(failure) => Err(CancelFailure { message: failure.message, is_retryable: true }),
    }
}
