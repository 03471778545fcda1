//! `serve`, as typed.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// What `serve` is told.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Signals: SIGTERM and SIGINT end it within 10 s (a second one at once); jobs go on, and the \
                       next `serve` takes them up. SIGHUP reads the files again now, \
                       also under `nohup`. Jobs start with every signal's default action, and none blocked.\n\nA pipeline whose file is \
                       gone is retired. When more than half of the pipelines (and more than one) have lost their \
                       files at once, that is more likely a wrong folder: none is retired, and `serve` says so, \
                       until the files are back or you start it with --retire-missing.\n\nWith --recover nothing is deleted: \
                       the damaged file gets another name, and an incident says what was lost. Slots up to its last write that \
                       are not recorded any more are `unknown` and do not run by themselves."
)]
pub(crate) struct Serve {
    /// Which project; the current directory when absent.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// How the log is written.
    #[arg(long, value_enum, default_value_t = LogForm::Text)]
    pub(crate) log: LogForm,
    /// Which parts run in this process, such as `watchdog,notifier` beside an engine elsewhere [default: all that are not
    /// switched off in interlock.yaml]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROLE,…")]
    pub(crate) roles: Vec<RoleName>,
    /// Retire every pipeline that has no file at this start, even if that is more than half of them.
    #[arg(long)]
    pub(crate) retire_missing: bool,
    /// Replace a damaged ledger by what can be read of it, and keep the damaged file; an undamaged one is served as it is.
    #[arg(long)]
    pub(crate) recover: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum RoleName {
    /// Opens slots and starts jobs.
    Engine,
    /// Answers over HTTP.
    Api,
    /// Delivers alerts.
    Notifier,
    /// Finds missed and stuck runs.
    Watchdog,
    /// Copies history to Postgres, where the files declare that.
    Archiver,
}
