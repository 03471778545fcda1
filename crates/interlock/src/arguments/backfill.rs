//! `interlock backfill`, as typed.

use clap::{Args, Subcommand};

use super::asking::Sending;
use crate::moment::Moment;

#[derive(Debug, Subcommand)]
pub(crate) enum BackfillCommand {
    /// Run the slots of a range that never ran, or run them again.
    Start(BackfillStart),
    /// List backfills and their progress.
    List {
        /// Only of this pipeline.
        pipeline: Option<String>,
        /// Print an array of objects.
        #[arg(long)]
        json: bool,
    },
    /// Show the progress of a backfill until it ends.
    Follow {
        /// Of which pipeline.
        pipeline: String,
        /// Its number.
        #[arg(value_name = "ID")]
        backfill: u64,
        #[command(flatten)]
        sending: Sending,
    },
    /// Pause a backfill: nothing more starts, what runs ends.
    Pause {
        /// Of which pipeline.
        pipeline: String,
        /// Its number.
        #[arg(value_name = "ID")]
        backfill: u64,
        #[command(flatten)]
        sending: Sending,
    },
    /// Resume a paused backfill.
    Resume {
        /// Of which pipeline.
        pipeline: String,
        /// Its number.
        #[arg(value_name = "ID")]
        backfill: u64,
        #[command(flatten)]
        sending: Sending,
    },
    /// Cancel a backfill: what has not started is cancelled, what runs ends by itself.
    Cancel {
        /// Of which pipeline.
        pipeline: String,
        /// Its number.
        #[arg(value_name = "ID")]
        backfill: u64,
        /// Why; it is kept with the events.
        #[arg(long, default_value = "requested by an operator")]
        reason: String,
        /// End what runs, too.
        #[arg(long)]
        end_runs: bool,
        #[command(flatten)]
        sending: Sending,
    },
}

#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[derive(Debug, Args)]
pub(crate) struct BackfillStart {
    /// Which pipeline.
    pub(crate) pipeline: String,
    /// The first instant: `2026-01-01`, `2026-01-01T09:00`, `-7d` … Without a zone of its own it is a time in the zone of
    /// the schedules that `--schedule` names, if they have one in common; else in the pipeline's `timezone`, or its first
    /// schedule's.
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) from: Moment,
    /// The first instant after the range, in the same zone.
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) to: Moment,
    /// Only the slots of this schedule; can be repeated.
    #[arg(long = "schedule", value_name = "ID")]
    pub(crate) schedules: Vec<String>,
    /// Which slots run: those that never ran (absent, missed, unknown, skipped), also those that failed or were
    /// cancelled, or all that are not open.
    #[arg(long, value_name = "WHICH", default_value = "missing", value_parser = ["missing", "failed", "all"])]
    pub(crate) reprocess: String,
    /// Oldest first or newest first.
    #[arg(long, value_name = "ORDER", default_value = "asc", value_parser = ["asc", "desc"])]
    pub(crate) order: String,
    /// How many at a time; not more than the pipeline's `maxActiveRuns`.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) concurrency: u32,
    /// Why; it is kept with the backfill and its runs.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    /// Take slots for missing that are no longer in the ledger, because they are older than `retention.slots` keeps.
    #[arg(long)]
    pub(crate) assume_missing: bool,
    /// Only show slot by slot what would be done and why.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask, however many slots there are.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Follow it to its end, as a terminal does by itself while `serve` runs; without `serve` it is run here.
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) sending: Sending,
}
