//! Commands that ask for something: they go through the inbox to the one who writes the ledger.

use clap::{Args, Subcommand};
use jiff::SignedDuration;

use super::{Bark, SilenceCommand, TokenCommand, backfill::BackfillCommand, length};
use crate::{environment, exit::Failure, moment::Moment, target::Target};

/// How a request is sent and its answer printed.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Sending {
    /// How long to wait until `serve` has applied it.
    #[arg(long, value_name = "D", value_parser = length, default_value = "10s", hide = true)]
    pub(crate) wait: SignedDuration,
    /// Print the answer as an object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who asks.
#[derive(Debug, Clone, Args)]
pub(crate) struct By {
    /// Who asks for it [default: the name in $USER]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl By {
    /// Refuses a name where a server is asked: it knows who asks by the token.
    pub(crate) fn check(&self, target: &Target) -> Result<(), Failure> {
        match target {
            Target::Server(_) if self.by.is_some() => Err(Failure::usage(
                "`--by` cannot be used with a server",
                "It knows who asks by the token, and records that name.",
            )),
            Target::Server(_) | Target::Project(_) => Ok(()),
        }
    }

    /// The name of the one who asks.
    pub(crate) fn name(&self) -> String {
        let user = || environment::variable("USER").filter(|name| !name.is_empty());
        self.by.clone().or_else(user).unwrap_or_else(|| "an operator".to_owned())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Asking {
    /// Report and read sensors.
    Sensor {
        #[command(subcommand)]
        command: SensorCommand,
    },
    /// Run a pipeline now, or one of its slots, and wait for the end.
    ///
    /// Exit codes: 0 it completed, 1 it ended otherwise. Ctrl-C leaves the run going and exits with 4. Works without `serve`; a
    /// `serve` that is at work runs it.
    Run(Run),
    /// Run a closed slot again.
    Rerun {
        /// Which pipeline.
        pipeline: String,
        /// Which slot: `2026-02-25T09:00Z`, or `daily/2026-02-25T09:00Z` of one schedule.
        #[arg(allow_hyphen_values = true)]
        slot: String,
        /// Why; it is kept with the slot's events.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        sending: Sending,
    },
    /// End a slot's run, or the slot if nothing runs yet.
    Cancel {
        /// Which pipeline.
        pipeline: String,
        /// Which slot: `2026-02-25T09:00Z`, or `daily/2026-02-25T09:00Z` of one schedule.
        #[arg(allow_hyphen_values = true)]
        slot: String,
        /// Why; it is kept with the slot's events.
        #[arg(long, default_value = "requested by an operator")]
        reason: String,
        #[command(flatten)]
        sending: Sending,
    },
    /// Stop opening and starting a pipeline's slots.
    Pause {
        /// Which pipeline.
        pipeline: String,
        /// Why.
        #[arg(long)]
        reason: String,
        /// Until when [default: until it is resumed]
        #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
        until: Option<Moment>,
        #[command(flatten)]
        sending: Sending,
    },
    /// End a pause.
    ///
    /// Shows what was missed in it and asks; `--yes` says yes beforehand.
    Resume(Resume),
    /// Show missed slots and what catch-up does with them, and do it now.
    Catchup(Catchup),
    /// Run a range of history, a few slots at a time.
    Backfill {
        #[command(subcommand)]
        command: BackfillCommand,
    },
    /// Record how a run ended that Interlock cannot see.
    Complete(Complete),
    /// Silence alerts for a while, or in a window that repeats.
    Silence {
        #[command(subcommand)]
        command: SilenceCommand,
    },
    /// Send a synthetic missed-run alert through every channel.
    ///
    /// Exit code 0 if every channel took it.
    Bark(Bark),
    /// Create, list and revoke tokens for the HTTP interface.
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// Which pipeline.
    pub(crate) pipeline: String,
    /// Which slots of the pause run: none, the newest, all, or what the pipeline's policy says (the default). With it, the
    /// command does not ask.
    #[arg(long, value_name = "WHAT", value_parser = ["none", "latest", "all", "policy"])]
    pub(crate) catchup: Option<String>,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) sending: Sending,
}

#[derive(Debug, Args)]
pub(crate) struct Catchup {
    /// Only this pipeline.
    pub(crate) pipeline: Option<String>,
    /// Only show what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Show what would be done at this instant [default: now]
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true, requires = "dry_run")]
    pub(crate) at: Option<Moment>,
    /// Print an array of objects.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SensorCommand {
    /// Report a value of a sensor.
    Put(SensorPut),
    /// Print a sensor's last report.
    Get {
        /// Of which pipeline.
        pipeline: String,
        /// Which sensor.
        key: String,
    },
    /// List a pipeline's sensors.
    List {
        /// Of which pipeline.
        pipeline: String,
        /// Print an array of objects.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SensorPut {
    /// Of which pipeline.
    pub(crate) pipeline: String,
    /// Which sensor.
    pub(crate) key: String,
    /// Its value, as JSON.
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) value: String,
    /// The time that the value is about [default: now]
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) at: Option<Moment>,
    #[command(flatten)]
    pub(crate) sending: Sending,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Which pipeline.
    pub(crate) pipeline: String,
    /// Run this slot instead of one of its own.
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub(crate) slot: Option<String>,
    /// The schedule whose slot it is, if several have one then.
    #[arg(long, value_name = "S", requires = "slot")]
    pub(crate) schedule: Option<String>,
    /// Run it even if it is not ready.
    #[arg(long)]
    pub(crate) force: bool,
    /// A parameter of the job, `key=value`; can be repeated.
    #[arg(short = 'p', long = "param", value_name = "K=V", value_parser = parameter)]
    pub(crate) params: Vec<(String, String)>,
    /// Do not wait: return once `serve` has accepted it or, without one, once its job has started.
    #[arg(long)]
    detach: bool,
    /// Wait for the end, as without it; takes back a `--detach` in front of it.
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    pub(crate) sending: Sending,
}

impl Run {
    /// Whether the end is not waited for.
    pub(crate) fn is_detached(&self) -> bool {
        self.detach && !self.follow
    }
}

pub(super) fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form key=value")),
    }
}

#[derive(Debug, Args)]
#[group(id = "outcome", required = true, multiple = false, args = ["success", "failed"])]
pub(crate) struct Complete {
    /// Which run, by its id.
    pub(crate) run: String,
    /// It succeeded.
    #[arg(long)]
    pub(crate) success: bool,
    /// It failed.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Why it failed.
    #[arg(long, value_name = "M")]
    pub(crate) message: Option<String>,
    #[command(flatten)]
    pub(crate) sending: Sending,
}
