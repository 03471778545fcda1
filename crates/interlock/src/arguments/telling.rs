//! Who is told, and what is kept back, as typed.

use clap::{Args, Subcommand};
use jiff::SignedDuration;

use super::{By, Sending, asking::parameter, length};
use crate::moment::Moment;

#[derive(Debug, Subcommand)]
pub(crate) enum SilenceCommand {
    /// Silence some alerts for a while.
    ///
    /// Events and incidents are recorded all the same, and sent afterwards if they are still open.
    Add(Box<SilenceAdd>),
    /// List silences.
    List(SilenceList),
    /// End a silence now.
    Remove {
        /// Which, by its name.
        id: String,
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        sending: Sending,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "What is not named matches everything; at least one of --pipeline, --type, --level, --owner and \
                        --label must be named. A weekly window or a cron expression makes it come again."
)]
pub(crate) struct SilenceAdd {
    /// Its name [default: a new one]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) matching: Matching,
    /// From when on [default: now]
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) from: Option<Moment>,
    /// Until when.
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) until: Option<Moment>,
    /// For how long; with `--cron`, for how long each time.
    #[arg(long = "for", value_name = "D", value_parser = length)]
    pub(crate) length: Option<SignedDuration>,
    /// Only in these windows of each week, like `sat-sun 02:00-06:00`.
    #[arg(long, value_name = "DAYS TIMES", conflicts_with_all = ["cron", "length"])]
    pub(crate) weekly: Option<String>,
    /// Only from each instant of this cron expression, for as long as `--for` says.
    #[arg(long, value_name = "EXPR", requires = "length")]
    pub(crate) cron: Option<String>,
    /// The zone of `--weekly`, `--cron` and of times without an offset.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) tz: String,
    /// Why.
    #[arg(long)]
    pub(crate) reason: String,
    /// Only show which alerts it would hold back.
    #[arg(long)]
    pub(crate) preview: bool,
    #[command(flatten)]
    pub(crate) by: By,
    #[command(flatten)]
    pub(crate) sending: Sending,
}

#[derive(Debug, Args)]
pub(crate) struct SilenceList {
    /// Also silences that have ended.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print an array of objects.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which alerts; each can be given several times.
#[derive(Debug, Clone, Args)]
pub(crate) struct Matching {
    /// Of these pipelines; `*` stands for anything.
    #[arg(long = "pipeline", value_name = "P")]
    pub(crate) pipelines: Vec<String>,
    /// Of these types, such as `schedule_missed`.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) types: Vec<String>,
    /// Of these levels: `error`, `warning`, `info`.
    #[arg(long = "level", value_name = "LEVEL", value_parser = ["error", "warning", "info", "critical"])]
    pub(crate) levels: Vec<String>,
    /// Of the pipelines of these owners.
    #[arg(long = "owner", value_name = "OWNER")]
    pub(crate) owners: Vec<String>,
    /// Of the pipelines with all of these labels.
    #[arg(long = "label", value_name = "K=V", value_parser = parameter)]
    pub(crate) labels: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct Bark {
    /// As if this pipeline had missed a run [default: none, `_system`]
    pub(crate) pipeline: Option<String>,
    /// Have `serve` repeat it, such as every `1h`; `off` ends that. A test alert that does not arrive is an incident.
    #[arg(long, value_name = "D", value_parser = every, conflicts_with = "pipeline")]
    pub(crate) every: Option<Every>,
    /// How long to wait for the channels.
    #[arg(long, value_name = "D", value_parser = length, default_value = "30s")]
    pub(crate) timeout: SignedDuration,
    #[command(flatten)]
    pub(crate) by: By,
    /// Print an array of objects, one for each channel.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How often something is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Every {
    /// So often.
    So(SignedDuration),
    /// No longer.
    Off,
}

fn every(text: &str) -> Result<Every, String> {
    if text == "off" {
        return Ok(Every::Off);
    }
    let length = length(text)?;
    if length < SignedDuration::from_secs(1) {
        return Err("it cannot be more often than every second".to_owned());
    }
    Ok(Every::So(length))
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it; it is shown only once.
    Create(TokenCreate),
    /// List tokens; secrets are never shown.
    List {
        /// Print an array of objects.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token; it stops working within two seconds.
    Revoke {
        /// Which, by its id.
        id: String,
        #[command(flatten)]
        by: By,
        #[command(flatten)]
        sending: Sending,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreate {
    /// Whose it is.
    pub(crate) name: String,
    /// What it may do: report on some pipelines (`ping`), show badges, read, act on pipelines, or everything.
    #[arg(long, value_parser = ["ping", "badge", "viewer", "operator", "admin"], default_value = "viewer")]
    pub(crate) scope: String,
    /// Which pipelines a token with `--scope ping` may report on; `*` stands for anything. Can be given several times.
    #[arg(long = "pipeline", value_name = "P")]
    pub(crate) pipelines: Vec<String>,
    /// How long it is valid [default: until it is revoked]
    #[arg(long, value_name = "D", value_parser = length)]
    pub(crate) expires: Option<SignedDuration>,
    #[command(flatten)]
    pub(crate) by: By,
    #[command(flatten)]
    pub(crate) sending: Sending,
}
