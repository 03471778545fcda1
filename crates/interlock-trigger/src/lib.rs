//! Starting jobs, finding out about them, and ending them.
//!
//! Nothing outside this crate and the alerts acts on the world. The engine commits "about to trigger", calls
//! [`Triggers::start`], and from then on learns everything by [`Report`]s and [`Triggers::look_up`].
//!
//! # What a kind of trigger promises
//!
//! This is the text to add a new kind from. A kind is one file in `kind/` that implements
//! `Adapter` (start, look up, cancel), and one line in `kind.rs` that hands its variant of
//! [`TriggerKind`](interlock_core::pipeline::TriggerKind) to it.
//!
//! 1. **The run id is the idempotency key.** It is unique per slot, generation and attempt (S2) and known
//!    before anything is started. The kind passes it on in whatever form its system refuses a second time:
//!    the runner's journal, an `Idempotency-Key` header, a `dag_run_id`. So a start that is repeated after a
//!    crash starts nothing twice, and every trigger has an id (facts D2-2).
//! 2. **[`start`](Triggers::start) returns when the job was accepted or refused.** An `Ok` is followed by
//!    reports: `Started` (left out where the answer is already the end), any number of `StepChanged`, and
//!    exactly one end, `Finished` or `Lost`. A report may come twice; it never changes its mind (S11). A
//!    refusal says whether the job may run all the same ([`StartFailure::may_have_started`]): true for a
//!    request that was sent and never answered, false for one that was answered with a refusal.
//! 3. **[`look_up`](Triggers::look_up) never guesses (S18).** It is asked when a crash has hidden what became
//!    of a start. `NeverStarted` is a promise that nothing runs under this id and nothing ever did; a kind
//!    that cannot know says [`LookUp::CannotTell`] with the reason. `Running` also re-attaches: the reports
//!    follow as after a start. An `Err` means that the question could not be put just now.
//! 4. **Failures have a category**, which decides about retries: 429, 5xx and broken connections TRANSIENT,
//!    other 4xx and what nobody but the author can mend PERMANENT, out of time TIMEOUT. There is no failure
//!    without one (facts D1-20).
//! 5. **Bounded.** Every request has a timeout, every body and every message a length, every poll a pause.
//! 6. **Guarded.** Every request goes through [`web::Web`], which refuses addresses that
//!    [`Outbound`](interlock_core::outbound::Outbound) objects to, after resolving, and follows no redirect.
//! 7. **Secrets** are resolved at the moment of use, through the lookup given to [`LocalTriggers::new`], and
//!    appear in no message, metadata or log.
//!
//! # What a job is told
//!
//! Commands and steps get `INTERLOCK_PIPELINE, _SCHEDULE, _SLOT, _DATE, _INTERVAL_START, _INTERVAL_END,
//! _RUN_ID, _ATTEMPT, _TRIGGER_TYPE`, each parameter as `INTERLOCK_PARAM_<NAME>`, and besides those only what
//! the pipeline's `env` says and a few variables that every program expects (`PATH`, `HOME`, …): the daemon's
//! own environment is full of secrets that are none of a job's business.
//!
//! `${slot} ${date} ${hour} ${runId} ${attempt} ${pipeline} ${schedule} ${params.k}` are replaced in commands,
//! arguments, urls, headers and bodies (`placeholder`). In the text of a *shell* command a parameter is not
//! pasted but becomes a reference to its environment variable: whoever may pass a parameter must not thereby
//! write shell code. The other values are made of letters, digits and `._:~-` and are pasted.

mod kind;
mod local;
mod placeholder;
pub mod runner;
pub mod web;

pub use interlock_ports::trigger::{
    CancelFailure, Clock, Environment, LookUp, LookUpFailure, Metadata, Outcome, Report,
    StartFailure, StartRequest, StepStatus, TriggerFuture, Triggers, What,
};
pub use local::{LocalTriggers, Options};
