//! Commands that read: the project, its ledger and its logs.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint, builder::PossibleValuesParser};
use interlock_core::incident::incident_kinds;
use jiff::SignedDuration;

use super::{By, Sending, asking::parameter, length};
use crate::moment::Moment;

#[derive(Debug, Subcommand)]
pub(crate) enum Reading {
    /// List the declared pipelines.
    List {
        /// Print an array of objects.
        #[arg(long)]
        json: bool,
    },
    /// Print the declaration of a pipeline, with every default filled in.
    Show {
        /// Which pipeline.
        pipeline: String,
        /// Print an object.
        #[arg(long)]
        json: bool,
    },
    /// Print the state of each pipeline: last slot, open slots, next slot.
    Status {
        /// Only this pipeline.
        pipeline: Option<String>,
        /// Print an array of objects.
        #[arg(long)]
        json: bool,
    },
    /// List slots and their outcome.
    Slots(Slots),
    /// List runs, newest first.
    Runs(Runs),
    /// Print the story of a slot: what happened and why, or why there is no slot.
    Why(Why),
    /// Check rule by rule whether a slot may run now.
    ///
    /// Asks sensors, upstreams and evaluators. Exit codes: 0 it is ready, 1 it is not, 5 cannot tell.
    Evaluate(Evaluate),
    /// List events, oldest first.
    Events(Events),
    /// List, acknowledge and resolve incidents.
    #[command(args_conflicts_with_subcommands = true)]
    Incidents {
        #[command(subcommand)]
        command: Option<IncidentsCommand>,
        #[command(flatten)]
        list: Box<ListIncidents>,
    },
    /// Look once for missed and stuck runs, for a crontab.
    ///
    /// Records what it finds and delivers the alerts. With `--at` it only prints what it would find then.
    Watchdog(WatchdogPass),
    /// Show up to which instant each schedule is recorded.
    Watermark {
        #[command(subcommand)]
        command: WatermarkCommand,
    },
    /// Print the output of a run's job.
    Logs {
        /// Which run, by its id.
        run: String,
        /// Go on printing what is added, until the run has ended.
        #[arg(short, long)]
        follow: bool,
        /// Only so many of the last lines.
        #[arg(short = 'n', long, value_name = "LINES")]
        lines: Option<usize>,
    },
    /// Wait for the end of a run or slot.
    ///
    /// Exit codes: 0 it completed, 1 it ended otherwise.
    Wait {
        /// A run's id, or a slot: `orders/daily/2026-02-25T09:00:00Z`.
        #[arg(value_name = "RUN|SLOT")]
        what: String,
        /// Give up after this long [default: never]
        #[arg(long, value_name = "D", value_parser = length)]
        timeout: Option<SignedDuration>,
    },
    /// Copy new history to the archive once.
    ///
    /// `serve` does so by itself where an archiver is declared.
    Archive {
        /// Once, as it is done in any case: for scripts that say what they mean.
        #[arg(long)]
        once: bool,
    },
    /// Check, back up and move the store.
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Check files, store, clock, time zones and disk space.
    Doctor {
        /// Also what the running `serve` does: its loops, beacons, HTTP and test alerts, and whether its ledger keeps the rules that must
        /// always hold.
        #[arg(long)]
        live: bool,
        /// Print an object.
        #[arg(long)]
        json: bool,
    },
    /// Print the version.
    Version,
}

#[derive(Debug, Args)]
pub(crate) struct Slots {
    /// Only this pipeline.
    pub(crate) pipeline: Option<String>,
    /// Slots from this instant on: `2026-02-25T09:00`, `yesterday`, `-2h` … [default: a day ago]
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) from: Option<Moment>,
    /// Slots before this instant [default: in a day]
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) to: Option<Moment>,
    /// Only slots that ended like this, or `open` ones.
    #[arg(long, value_name = "D", value_parser = DISPOSITIONS)]
    pub(crate) disposition: Option<String>,
    /// List each slot of a span by itself.
    #[arg(long)]
    pub(crate) expand: bool,
    /// Print an array of objects.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `--disposition` takes: `Disposition::WORDS`, and `open`.
const DISPOSITIONS: [&str; 7] =
    ["open", "completed", "failed", "cancelled", "skipped", "missed", "unknown"];

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Which pipeline.
    pub(crate) pipeline: String,
    /// Which slot: `2026-02-25T09:00Z`, or `daily/2026-02-25T09:00Z` of one schedule.
    #[arg(value_name = "SLOT", allow_hyphen_values = true)]
    pub(crate) slot: String,
    /// Print an array of objects, one for each schedule.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// Only of this pipeline.
    #[arg(value_name = "PIPELINE")]
    pub(crate) named: Option<String>,
    /// The same, as scripts write it.
    #[arg(long, value_name = "P", conflicts_with = "named")]
    pub(crate) pipeline: Option<String>,
    /// Only in this state, such as `running` or `FAILED`.
    #[arg(long, value_name = "S")]
    pub(crate) status: Option<String>,
    /// Only runs with this trigger type, such as `scheduler`, `manual` or `retry`.
    #[arg(long, value_name = "T")]
    pub(crate) trigger_type: Option<String>,
    /// Only runs that come after this one in the list, by its id.
    #[arg(long, value_name = "RUN")]
    pub(crate) after: Option<String>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
    /// Print an array of objects.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Evaluate {
    /// Which pipeline.
    pub(crate) pipeline: String,
    /// Which slot: `2026-02-25T09:00Z`, or `daily/2026-02-25T09:00Z` of one schedule [default: the oldest that
    /// waits, else the last that was owed]
    #[arg(value_name = "SLOT", allow_hyphen_values = true)]
    pub(crate) slot: Option<String>,
    /// As of this instant: ages are counted from then [default: now]
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) at: Option<Moment>,
    /// Print an object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only of this pipeline.
    pub(crate) pipeline: Option<String>,
    /// Go on printing what happens.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only events after the one with this number.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) after: u64,
    /// Only reports and requests that were rejected, with the reason.
    #[arg(long)]
    pub(crate) rejected: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IncidentsCommand {
    /// List open incidents, newest first.
    List(ListIncidents),
    /// Acknowledge an incident: you look at it.
    Ack(HandleIncident),
    /// Resolve an incident; it opens again if its cause is found again.
    Resolve(HandleIncident),
    /// Add a note to the history of an incident.
    Note(HandleIncident),
    /// Send a test alert to one channel from here, and say whether it arrived.
    Test {
        /// Which, by its name in `interlock.yaml`.
        channel: String,
        /// Print an object.
        #[arg(long)]
        json: bool,
    },
    /// List alerts that were given up because their channel did not take them.
    Dead {
        /// Print an array of objects.
        #[arg(long)]
        json: bool,
    },
}

/// Which incidents. What can be given several times matches any of it; labels must all match.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct IncidentFilter {
    /// Only of this pipeline; `_system` for what belongs to none.
    #[arg(long, value_name = "P")]
    pub(crate) pipeline: Option<String>,
    /// Only of these kinds, such as `SCHEDULE_MISSED`.
    #[arg(
        long = "kind",
        value_name = "KIND",
        value_parser = PossibleValuesParser::new(incident_kinds()),
        ignore_case = true,
        hide_possible_values = true
    )]
    pub(crate) kinds: Vec<String>,
    /// Only of pipelines of these owners.
    #[arg(long = "owner", value_name = "OWNER")]
    pub(crate) owners: Vec<String>,
    /// Only of pipelines with all of these labels.
    #[arg(long = "label", value_name = "K=V", value_parser = parameter)]
    pub(crate) labels: Vec<(String, String)>,
    /// Only of pipelines that wait for one of these.
    #[arg(long = "upstream", value_name = "P")]
    pub(crate) upstreams: Vec<String>,
}

impl IncidentFilter {
    /// Whether the declarations of pipelines say what matches.
    pub(crate) fn is_about_declarations(&self) -> bool {
        !(self.owners.is_empty() && self.labels.is_empty() && self.upstreams.is_empty())
    }

    /// Whether it leaves anything out.
    pub(crate) fn is_set(&self) -> bool {
        self.pipeline.is_some() || !self.kinds.is_empty() || self.is_about_declarations()
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "While more than 50 are open, and neither a filter nor --all is given, groups of them are shown, with how to list each."
)]
pub(crate) struct ListIncidents {
    #[command(flatten)]
    pub(crate) filter: IncidentFilter,
    /// Resolved ones too, after the open ones.
    #[arg(long)]
    pub(crate) all: bool,
    /// At most so many resolved ones; open ones are all listed.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "all")]
    pub(crate) limit: u32,
    /// Count the open ones, by what they have in common.
    #[arg(long, value_name = "WHAT", value_parser = ["kind", "owner", "upstream", "pipeline"], conflicts_with = "all")]
    pub(crate) group_by: Option<String>,
    /// Print an array of objects.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HandleIncident {
    /// Which incident: its key, or the beginning of it [default: all that match the filter]
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) filter: IncidentFilter,
    /// Only show which ones match.
    #[arg(long, conflicts_with = "id")]
    pub(crate) dry_run: bool,
    /// Do not ask before acting on all that match the filter.
    #[arg(long, conflicts_with = "id")]
    pub(crate) yes: bool,
    /// Your note.
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) by: By,
    #[command(flatten)]
    pub(crate) sending: Sending,
}

#[derive(Debug, Args)]
#[command(
    after_long_help = "What is found is recorded and told as by the resident watchdog (the role `watchdog` of \
                       `serve`). While `serve` is at work, it does that itself, and this only prints.\n\nExit codes: \
                       0 everything was judged, 1 some checks could not be done."
)]
pub(crate) struct WatchdogPass {
    /// One pass over everything, then end.
    #[arg(long, required = true)]
    pub(crate) once: bool,
    /// Judge the present ledger as of this instant, and write nothing.
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) at: Option<Moment>,
    /// Only this check.
    #[arg(long, value_name = "NAME", value_parser = CHECKS)]
    pub(crate) check: Option<String>,
    /// Print `{"findings": […], "failed": […], "alerts": {…}}`.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `--check` takes: the names of the table.
const CHECKS: [&str; 10] = [
    "missed-schedules",
    "missed-inclusion-schedules",
    "stuck-runs",
    "stale-triggers",
    "sensor-trigger-reconciliation",
    "sla-scheduling",
    "trigger-deadlines",
    "post-run-sensors",
    "relative-sla-breaches",
    "paused-too-long",
];

#[derive(Debug, Subcommand)]
pub(crate) enum WatermarkCommand {
    /// Print, per schedule, the instant up to which every slot is recorded.
    Show {
        /// Only of this pipeline.
        pipeline: Option<String>,
        /// Print an array of objects.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Check the store for damage.
    Check,
    /// Copy the ledger, as it is at one instant, also while it is written.
    Backup {
        /// To where; never overwrites.
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Copy everything to another store, such as from a file to Redis or PostgreSQL, and compare both.
    ///
    /// No `serve` may run on either store meanwhile, and the target must be empty.
    Copy {
        /// The store that is left: a project's directory, or a file like interlock.yaml [default: the project]
        #[arg(long, value_name = "PLACE", value_hint = ValueHint::AnyPath)]
        from: Option<PathBuf>,
        /// The store that is moved to, named likewise.
        #[arg(long, value_name = "PLACE", value_hint = ValueHint::AnyPath)]
        to: PathBuf,
    },
    /// Serve a store again that was moved elsewhere.
    ///
    /// Slots that ran in the other store since then are due here again.
    Reclaim,
}
