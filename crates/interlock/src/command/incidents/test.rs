//! `interlock incidents test CHANNEL`: a test notice, sent from here by the code that sends real ones.

use std::{collections::BTreeMap, io::Write as _, path::Path, sync::Arc};

use interlock_alert::{AlertMessage, Book, Channels as _, Delivery, Known, LocalChannels};
use interlock_config::server::Alert as Declared;
use interlock_core::{
    id::PipelineId,
    incident::{Alert, Level},
};
use interlock_trigger::web::Web;
use serde_json::json;
use tokio::runtime::Builder;

use crate::{
    clock,
    exit::{Failure, PROBLEMS, SUCCESS},
    inbox::fresh_key,
    output::{Form, Output},
    project,
    serve::notifier::console,
};

/// The channels of the files as they are, and no pipelines.
struct Declarations(Arc<[Declared]>);

impl Book for Declarations {
    fn channels(&self) -> Arc<[Declared]> {
        Arc::clone(&self.0)
    }

    fn pipeline<'a>(&'a self, _: &'a PipelineId) -> Known<'a> {
        Box::pin(std::future::ready(None))
    }
}

pub(super) fn run(
    directory: &Path,
    channel: &str,
    form: Form,
    output: &mut Output,
) -> Result<u8, Failure> {
    let loaded = project::load(directory)?;
    let declared: Arc<[Declared]> = loaded.config.alerts.clone().into();
    if !declared.iter().any(|one| one.name == channel) {
        let names: Vec<&str> = declared.iter().map(|one| one.name.as_str()).collect();
        let help = format!("There are {}.", names.join(", "));
        return Err(Failure::usage(format!("there is no alert channel `{channel}`"), help));
    }
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("cannot send anything: {error}"), "")
    };
    let web = Web::new(&loaded.config.engine.outbound).map_err(|error| failed(&error))?;
    let book = Arc::new(Declarations(declared));
    let channels = LocalChannels::new(book, web, console(), directory.to_path_buf());
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
    let delivery = runtime.block_on(async { channels.deliver(channel, notice()).await });
    // A thread that is blocked must not keep the process.
    runtime.shutdown_background();
    let reason = match &delivery {
        Delivery::Delivered => None,
        Delivery::Failed { reason, .. } | Delivery::Refused { reason } => Some(reason.as_str()),
    };
    if form == Form::Json {
        let is_delivered = reason.is_none();
        output.json(&json!({ "channel": channel, "delivered": is_delivered, "error": reason }))?;
        return Ok(if is_delivered { SUCCESS } else { PROBLEMS });
    }
    match reason {
        None => writeln!(output.out, "{channel}: delivered")?,
        Some(reason) => return Err(Failure::refused(format!("{channel}: {reason}"), "")),
    }
    Ok(SUCCESS)
}

fn notice() -> AlertMessage {
    let alert = Alert {
        level: Level::Info.as_str().to_owned(),
        alert_type: "test".to_owned(),
        pipeline_id: PipelineId::system().to_string(),
        message: "This is a test of the alert channel; nothing is wrong, nothing to do".to_owned(),
        details: BTreeMap::from([("test".to_owned(), json!(true))]),
        timestamp: clock::now(),
    };
    AlertMessage { alert, key: format!("test/{}", fresh_key()), at: clock::now() }
}
