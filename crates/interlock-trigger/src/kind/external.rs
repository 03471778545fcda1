//! `external`: somebody else runs it and reports; Interlock only watches.

use super::Adapter;
use crate::local::Tools;
use interlock_ports::trigger::{
    CancelFailure, LookUp, LookUpFailure, Metadata, StartFailure, StartRequest, TriggerFuture, What,
};

/// The adapter.
pub(crate) struct External;

impl Adapter for External {
    fn start<'a>(
        &'a self,
        tools: &'a Tools,
        request: StartRequest,
    ) -> TriggerFuture<'a, Result<(), StartFailure>> {
        tools.report(&request.run_id, What::Started { metadata: Metadata::new() });
        Box::pin(std::future::ready(Ok(())))
    }

    fn look_up<'a>(
        &'a self,
        _tools: &'a Tools,
        _request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>> {
        let reason = "watch-only: only a report of the job can tell".to_owned();
        Box::pin(std::future::ready(Ok(LookUp::CannotTell { reason })))
    }

    fn cancel<'a>(
        &'a self,
        _tools: &'a Tools,
        _request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>> {
        let message = "the job cannot be ended from here: it is watch-only".to_owned();
        Box::pin(std::future::ready(Err(CancelFailure { message, is_retryable: false })))
    }
}
