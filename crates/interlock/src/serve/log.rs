//! The log: for people, or one JSON object a line.

use crate::arguments::LogForm;

/// Sends the log to standard error. `INTERLOCK_LOG` sets what is shown, `info` when absent.
pub(crate) fn start(form: LogForm) {
    let filter = crate::environment::variable("INTERLOCK_LOG");
    let filter = tracing_subscriber::EnvFilter::new(filter.as_deref().unwrap_or("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match form {
        LogForm::Text => log.with_target(false).compact().init(),
        LogForm::Json => log.json().init(),
    }
}
