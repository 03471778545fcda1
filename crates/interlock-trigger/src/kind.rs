//! The kinds of triggers: one file each, and one line here.

mod airflow;
mod command;
mod external;
mod http;
mod other;
mod steps;

mod on_host;
mod polling;

pub(crate) use self::on_host::{cancel_here, look_up_here};

use interlock_core::pipeline::TriggerKind;

use crate::local::Tools;
use interlock_ports::trigger::{
    CancelFailure, LookUp, LookUpFailure, StartFailure, StartRequest, TriggerFuture,
};

/// What a kind does; what it promises is in the crate's documentation.
pub(crate) trait Adapter: Sync {
    /// Starts a job, or refuses to.
    fn start<'a>(
        &'a self,
        tools: &'a Tools,
        request: StartRequest,
    ) -> TriggerFuture<'a, Result<(), StartFailure>>;

    /// Makes ready for a job that is about to be started, where there is something to make ready.
    fn prepare(&self, _tools: &Tools, _request: &StartRequest, _after: Option<&str>) -> bool {
        false
    }

    /// Finds out what became of a start, without guessing.
    fn look_up<'a>(
        &'a self,
        tools: &'a Tools,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>>;

    /// Asks a job to end.
    fn cancel<'a>(
        &'a self,
        tools: &'a Tools,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>>;
}

/// Who is responsible for a kind.
pub(crate) fn adapter(kind: &TriggerKind) -> &'static dyn Adapter {
    match kind {
        TriggerKind::Command(_) => &command::Command,
        TriggerKind::Steps(_) => &steps::Steps,
        TriggerKind::Http(_) => &http::Http,
        TriggerKind::Airflow(_) => &airflow::Airflow,
        TriggerKind::External => &external::External,
        TriggerKind::Other { .. } => &other::Other,
    }
}

/// A request came to the adapter of another kind: a mistake in [`adapter`], told like a failure
/// because a panic would take the whole engine down.
fn mismatch(request: &StartRequest) -> String {
    format!("the run `{}` was given to the wrong adapter", request.run_id)
}
