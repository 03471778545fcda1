//! The real triggers of one host: adapters, runner link, HTTP client.

mod link;
mod watches;

use std::{
    ffi::OsString,
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use interlock_core::outbound::Outbound;
use jiff::{SignedDuration, Timestamp};
use tokio::{runtime::Handle, sync::mpsc::UnboundedSender};

pub(crate) use self::{link::Link, watches::Watches};
use crate::{kind, runner, web::Web};
use interlock_ports::trigger::{
    CancelFailure, Clock, Environment, LookUp, LookUpFailure, Report, StartFailure, StartRequest,
    TriggerFuture, Triggers, What,
};

/// What can be set about [`LocalTriggers`].
#[derive(Debug, Clone)]
pub struct Options {
    /// The command that becomes the runner; the directory is added as its last argument.
    pub runner: Vec<OsString>,
    /// Where jobs run that do not say where; relative workdirs begin here.
    pub workdir: PathBuf,
    /// From TERM to KILL.
    pub grace: SignedDuration,
    /// How much of a job's output is kept.
    pub log_bytes_max: u64,
    /// Which addresses may be called.
    pub outbound: Outbound,
}

impl Options {
    /// This program is the runner too, by its command `runner DIR`.
    pub fn new(workdir: PathBuf) -> io::Result<Self> {
        Ok(Self {
            runner: vec![std::env::current_exe()?.into(), "runner".into()],
            // The runner has a directory of its own; "here" means where the daemon was started.
            workdir: std::path::absolute(workdir)?,
            grace: SignedDuration::from_secs(10),
            log_bytes_max: 10 * 1024 * 1024,
            outbound: Outbound::default(),
        })
    }
}

/// Starts jobs from this host.
#[derive(Debug)]
pub struct LocalTriggers {
    tools: Tools,
}

/// What adapters work with; cheap to clone into a task.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) options: Arc<Options>,
    pub(crate) clock: Clock,
    pub(crate) environment: Environment,
    pub(crate) link: Link,
    pub(crate) web: Web,
    pub(crate) watches: Watches,
    reports: UnboundedSender<Report>,
}

impl Tools {
    /// Tells the engine. Nobody listens only when the engine is going down; the next one asks.
    pub(crate) fn report(&self, run_id: &str, what: What) {
        let report = Report { run_id: run_id.to_owned(), at: (self.clock)(), what };
        let _nobody_listens = self.reports.send(report);
    }
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tools").field("options", &self.options).finish_non_exhaustive()
    }
}

impl LocalTriggers {
    /// Takes charge of a runner directory, inside a tokio runtime.
    ///
    /// The reports go to `reports`, which is unbounded on purpose: there are a few per run, the
    /// number of runs is limited by the engine, and a report that waited would hold up others.
    /// Where an earlier daemon left a journal its runner is joined, or started, at once: what
    /// happened meanwhile is reported without being asked for.
    pub fn new(
        runner_dir: &Path,
        reports: UnboundedSender<Report>,
        clock: Clock,
        environment: Environment,
        options: Options,
    ) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(runner_dir)?;
        let dir = runner_dir.canonicalize()?;
        let found = runner::journal::establish(&dir, clock())?;
        let link = Link::new(dir, options.runner.clone(), reports.clone());
        if found {
            link.join();
        }
        let web = Web::new(&options.outbound).map_err(io::Error::other)?;
        let watches = Watches::new(Handle::current());
        let options = Arc::new(options);
        Ok(Self { tools: Tools { options, clock, environment, link, web, watches, reports } })
    }

    /// What became of a start on this host, whoever asks for it now.
    pub async fn look_up_here(
        &self,
        run_id: &str,
        triggered_at: Timestamp,
    ) -> Result<LookUp, LookUpFailure> {
        kind::look_up_here(&self.tools, run_id, triggered_at).await
    }

    /// Asks a job of this host to end, whoever wants that.
    pub async fn cancel_here(&self, run_id: &str) -> Result<(), CancelFailure> {
        kind::cancel_here(&self.tools, run_id).await
    }

    /// Runs under way in the runner, by id.
    pub async fn running(&self) -> Result<Vec<String>, LookUpFailure> {
        self.tools
            .link
            .running()
            .await
            .map_err(|failure| LookUpFailure { message: failure.message })
    }
}

impl Drop for LocalTriggers {
    /// A daemon that gives its triggers up asks nobody any more; jobs are left alone.
    fn drop(&mut self) {
        self.tools.watches.forget_all();
    }
}

impl Triggers for LocalTriggers {
    fn start(&self, request: StartRequest) -> TriggerFuture<'_, Result<(), StartFailure>> {
        kind::adapter(&request.kind).start(&self.tools, request)
    }

    fn prepare(&self, request: &StartRequest, after: Option<&str>) -> bool {
        kind::adapter(&request.kind).prepare(&self.tools, request, after)
    }

    fn look_up<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>> {
        kind::adapter(&request.kind).look_up(&self.tools, request)
    }

    fn cancel<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>> {
        kind::adapter(&request.kind).cancel(&self.tools, request)
    }

    fn acknowledge(&self, run_id: &str) {
        self.tools.link.acknowledge(run_id);
    }
}
