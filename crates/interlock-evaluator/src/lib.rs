//! Evaluators: whoever knows whether a trait holds is asked, and there is always an answer.
//!
//! A trait names its evaluator: a program below `evaluatorDirs`, or an http(s) URL. Both get the same question,
//! `{pipelineId, traitType, config}`, and give the same answer, `{status, value?, reason?, failureCategory?}`
//! (`answer`). Whatever happens instead (a crash, garbage, silence, ten megabytes) is an answer too: status `ERROR`
//! with a category and a sentence, which readiness reads as "cannot tell" and never as "ready" (S8). The table of what
//! can go wrong, and what people who write an evaluator should know, is `docs/evaluators.md`.
//!
//! A question goes through three gates (`lane`): a breaker per evaluator (`breaker`), a number of places per
//! evaluator, so that one that hangs cannot take all of them, and the places of the whole host
//! (`engine.maxConcurrentEvaluations`). Then a program is run (`command`, under a `guard`) or a service called
//! (`http`).

mod answer;
mod breaker;
mod command;
pub mod guard;
mod http;
mod lane;

use std::{ffi::OsString, io, path::PathBuf, sync::Arc, time::Duration};

use interlock_core::{
    id::PipelineId,
    outbound::Outbound,
    readiness::{TraitResult, TraitSpec},
};
use interlock_engine::seam::{Evaluators, Task};
use interlock_trigger::{Clock, web::Web};
use jiff::SignedDuration;

use self::{command::Programs, lane::Lanes};

/// What can be set about [`LocalEvaluators`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Where programs are looked for, the first directory first; absolute.
    pub folders: Vec<PathBuf>,
    /// Where they run.
    pub workdir: PathBuf,
    /// The command that becomes the [`guard`] of a program; the program is added as its last argument.
    pub guard: Vec<OsString>,
    /// How long an evaluator may take when its trait does not say.
    pub timeout: SignedDuration,
    /// Evaluators at the same time.
    pub at_once: usize,
    /// Which addresses may be called.
    pub outbound: Outbound,
}

impl Options {
    /// This program is the guard too, by its command `evaluator-guard PROGRAM`.
    pub fn new(workdir: PathBuf, folders: Vec<PathBuf>) -> io::Result<Self> {
        Ok(Self {
            folders,
            workdir,
            guard: vec![std::env::current_exe()?.into(), "evaluator-guard".into()],
            timeout: SignedDuration::from_secs(30),
            at_once: 32,
            outbound: Outbound::default(),
        })
    }
}

/// Asks evaluators from this host.
#[derive(Debug)]
pub struct LocalEvaluators {
    desk: Arc<Desk>,
    timeout: SignedDuration,
}

/// What a question needs on its way.
#[derive(Debug)]
struct Desk {
    lanes: Lanes,
    programs: Programs,
    web: Web,
}

impl LocalEvaluators {
    /// Evaluators with their limits; the clock only says since when one is suspended.
    pub fn new(options: Options, clock: Clock) -> io::Result<Self> {
        let desk = Desk {
            lanes: Lanes::new(options.at_once, clock),
            programs: Programs {
                folders: options.folders,
                workdir: options.workdir,
                guard: options.guard,
            },
            web: Web::new(&options.outbound).map_err(io::Error::other)?,
        };
        Ok(Self { desk: Arc::new(desk), timeout: options.timeout })
    }
}

impl Evaluators for LocalEvaluators {
    fn evaluate(&self, pipeline: &PipelineId, trait_spec: &TraitSpec) -> Task<TraitResult> {
        let desk = Arc::clone(&self.desk);
        let name = trait_spec.evaluator.clone().unwrap_or_default();
        let question = answer::question(pipeline, trait_spec);
        let limit = trait_spec.timeout.unwrap_or(self.timeout);
        let limit = Duration::try_from(limit).unwrap_or_default();
        Box::pin(async move { desk.ask(&name, question, limit).await })
    }
}

impl Desk {
    async fn ask(&self, name: &str, question: String, limit: Duration) -> TraitResult {
        let lane = self.lanes.of(name);
        let place = match lane.enter(&self.lanes).await {
            Ok(place) => place,
            Err(suspended) => return suspended,
        };
        let result = if http::is_address(name) {
            http::ask(&self.web, name, question, limit).await
        } else {
            self.programs.ask(name, &question, limit).await
        };
        place.leave(&result);
        result
    }
}
