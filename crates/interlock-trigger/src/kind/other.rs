//! Kinds that this build does not bring: refused by name, with the build that has them.

use interlock_core::{pipeline::TriggerKind, retry::FailureCategory};

use super::Adapter;
use crate::local::Tools;
use interlock_ports::trigger::{
    CancelFailure, LookUp, LookUpFailure, StartFailure, StartRequest, TriggerFuture,
};

/// The adapter.
pub(crate) struct Other;

/// Which build brings a kind.
fn brought_by(name: &str) -> &'static str {
    match name {
        "glue" | "emr" | "emr-serverless" | "step-function" | "lambda" => {
            "the AWS build of Interlock (crate interlock-aws) brings it"
        }
        "dataproc" | "dataproc-serverless" | "bigquery" | "cloud-workflows" => {
            "a build of Interlock with Google Cloud would bring it; there is none yet"
        }
        "databricks" => "until a build brings it, its jobs can be started by `type: http`",
        _ => "no build of Interlock brings it",
    }
}

fn sentence(kind: &TriggerKind) -> String {
    match kind {
        TriggerKind::Other { name, .. } => {
            format!("this build has no trigger of type `{name}`: {}", brought_by(name))
        }
        TriggerKind::Command(_)
        | TriggerKind::Steps(_)
        | TriggerKind::Http(_)
        | TriggerKind::Airflow(_)
        | TriggerKind::External => "this trigger has an adapter of its own".to_owned(),
    }
}

impl Adapter for Other {
    fn start<'a>(
        &'a self,
        _tools: &'a Tools,
        request: StartRequest,
    ) -> TriggerFuture<'a, Result<(), StartFailure>> {
        let failure = StartFailure::refused(sentence(&request.kind), FailureCategory::Permanent);
        Box::pin(std::future::ready(Err(failure)))
    }

    fn look_up<'a>(
        &'a self,
        _tools: &'a Tools,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>> {
        // Another build may have started it.
        let reason = sentence(&request.kind);
        Box::pin(std::future::ready(Ok(LookUp::CannotTell { reason })))
    }

    fn cancel<'a>(
        &'a self,
        _tools: &'a Tools,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>> {
        let failure = CancelFailure { message: sentence(&request.kind), is_retryable: false };
        Box::pin(std::future::ready(Err(failure)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kind_is_named_with_what_brings_it() {
        let other = |name: &str| {
            sentence(&TriggerKind::Other { name: name.to_owned(), options: [].into() })
        };
        assert_eq!(
            other("glue"),
            "this build has no trigger of type `glue`: the AWS build of Interlock (crate \
             interlock-aws) brings it"
        );
        assert!(other("teapot").ends_with("no build of Interlock brings it"));
    }
}
