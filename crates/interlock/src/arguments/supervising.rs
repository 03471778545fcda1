//! `supervise` and `heartbeat`, as typed.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use jiff::SignedDuration;

use super::length;

/// What `supervise` is told.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Signs of life: whatever changes in FILE (`date +%s > FILE` is enough), anything written into the \
                       pipe whose descriptor is in $INTERLOCK_HEARTBEAT_PIPE, or a change in the memory file whose \
                       descriptor is in $INTERLOCK_HEARTBEAT_MEMORY.\n\nExit codes: those of CMD; 128 + the number of the \
                       signal that ended it; 113 it hung and is not started again, or this was asked to end while it \
                       ended a CMD that hung; 125 it died too often; 126 and 127 it \
                       cannot be executed or found at its first start; 3 it cannot be supervised (it runs already).\n\nSignals: SIGTERM and \
                       SIGINT end CMD and then this (a second one does not wait); SIGHUP, SIGUSR1 and SIGUSR2 are passed \
                       on; closing the terminal ends both. One that this inherits as ignored stays ignored, except SIGTERM: \
                       under `nohup` the terminal may be closed. CMD starts with every signal's default action, and none \
                       blocked. What CMD prints goes where this prints."
)]
pub(crate) struct Supervise {
    /// A file that CMD changes as long as it is well. It finds the whole path in `$INTERLOCK_HEARTBEAT_FILE`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) heartbeat: Option<PathBuf>,
    /// End and restart CMD when it has given no sign of life for this long, 100ms at least. Required, unless
    /// `--restart` is given: then only its end is noticed.
    #[arg(long, value_name = "D", value_parser = length, required_unless_present = "restart")]
    pub(crate) max_age: Option<SignedDuration>,
    /// How long CMD may take to give its first sign of life [default: 1m, or `--max-age` if that is longer]
    #[arg(long, value_name = "D", value_parser = length)]
    pub(crate) first_beat: Option<SignedDuration>,
    /// How long CMD may take to end when it is asked to.
    #[arg(long, value_name = "D", value_parser = length, default_value = "10s")]
    pub(crate) grace: SignedDuration,
    /// The first pause before a restart; each is up to twice as long as the one before, at most 5m.
    #[arg(long, value_name = "D", value_parser = length, default_value = "1s")]
    pub(crate) backoff: SignedDuration,
    /// After which ends CMD is started again [default, with `--max-age`: on-failure]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) restart: Option<RestartWhen>,
    /// Give up after so many deaths (ends with code 0, and by signals that were passed on, are none) …
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) deaths: u16,
    /// … within this time; while it hangs nothing is forgotten.
    #[arg(long, value_name = "D", value_parser = length, default_value = "10m")]
    pub(crate) within: SignedDuration,
    /// What it is called where its lock, its deaths and its reports are kept [default: the name of the
    /// program, and a mark of where it is and of its arguments]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RestartWhen {
    /// After every end but one with code 0.
    OnFailure,
    /// After every end.
    Always,
    /// After none.
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HeartbeatCommand {
    /// Say whether a heartbeat has changed lately, for probes. Exit codes: 0 it has, or this is the first look at what
    /// some other program writes; 1 it has not or is not there; 3 cannot be told.
    Check {
        /// The file, or a key: `redis://[USER:PASSWORD@]HOST[:PORT]/[DATABASE/]KEY`. Of one that is no record of ours,
        /// what was seen is kept beside it, in `FILE.seen` or `KEY:seen`.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// How old the last sign of life may be.
        #[arg(long, value_name = "D", value_parser = length)]
        max_age: SignedDuration,
    },
}
