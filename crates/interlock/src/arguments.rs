//! The command line, exactly as typed.

mod asking;
mod backfill;
mod grouped_help;
#[cfg(test)]
mod printed;
mod reading;
mod server;
mod serving;
mod supervising;
mod telling;

use std::path::{Path, PathBuf};

use clap::{
    Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum, ValueHint,
};
use interlock_core::{
    duration::{self, Units},
    schedule::{Dst, Gap, Overlap},
};
use jiff::SignedDuration;

pub(crate) use self::{
    asking::{Asking, By, Catchup, Complete, Resume, Run, Sending, SensorCommand, SensorPut},
    backfill::{BackfillCommand, BackfillStart},
    reading::{
        Evaluate, Events, HandleIncident, IncidentFilter, IncidentsCommand, ListIncidents, Reading,
        Runs, Slots, StoreCommand, WatchdogPass, WatermarkCommand, Why,
    },
    server::{ContextCommand, ServerArgs},
    serving::{LogForm, RoleName, Serve},
    supervising::{HeartbeatCommand, RestartWhen, Supervise},
    telling::{
        Bark, Every, Matching, SilenceAdd, SilenceCommand, SilenceList, TokenCommand, TokenCreate,
    },
};
use crate::{
    exit::Failure,
    moment::Moment,
    target::{Target, here},
};

/// A safety controller for scheduled pipelines: every scheduled run is accounted for.
#[derive(Debug, Parser)]
#[command(name = "interlock", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 problems found or refused, 2 bad command line, 3 failed, \
                  4 accepted, not yet applied, 5 cannot tell, 6 part of the store cannot be reached."
)]
pub(crate) struct Arguments {
    /// The project: the directory with `interlock.yaml`, or with `pipelines/` when there is none.
    #[arg(short = 'C', long = "dir", value_name = "DIR", global = true, value_hint = ValueHint::DirPath)]
    project: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
    /// The words of the command, such as `incidents test`.
    #[arg(skip)]
    words: Vec<String>,
}

/// `exec` alone, with the arguments that it understands.
#[derive(Debug, Parser)]
#[command(name = "interlock")]
struct ExecAlone {
    #[arg(short = 'C', long = "dir", global = true)]
    project: Option<PathBuf>,
    #[command(subcommand)]
    command: ExecCommand,
}

#[derive(Debug, Subcommand)]
enum ExecCommand {
    Exec(Exec),
}

impl Arguments {
    /// What was typed; with a mistake in it the process ends here. `exec` stands before every run of a job and is read
    /// without describing all other commands first, which takes a millisecond.
    pub(crate) fn read() -> Self {
        match ExecAlone::try_parse() {
            Ok(ExecAlone { project, command: ExecCommand::Exec(exec) }) => {
                let (command, words) = (Command::Exec(exec), vec!["exec".to_owned()]);
                Self { project, server: ServerArgs::default(), command, words }
            }
            // With all commands known, the message about a mistake is the right one.
            Err(_) => Self::parsed(),
        }
    }

    /// Whom the command asks: the project here, or a server.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let is_project_named = self.project.is_some();
        let asked = ServerArgs { is_project_named, ..self.server.clone() };
        Target::of(&asked, self.directory())
    }

    /// Refuses a command that needs this machine where a server was named for it.
    pub(crate) fn check_place(&self) -> Result<(), Failure> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        match here::needs(&words) {
            here::Needs::ThisMachine(why) if self.server.is_typed() => Err(Failure::usage(
                format!("`{}` cannot be asked of a server: it {why}", words.join(" ")),
                "Leave out `--url`, `--context` and `--token`.",
            )),
            here::Needs::ThisMachine(_) | here::Needs::Answers | here::Needs::Nothing => Ok(()),
        }
    }

    fn parsed() -> Self {
        let matches = grouped_help::with_groups(Self::command()).get_matches();
        let words = here::words(&matches).into_iter().map(str::to_owned).collect();
        let read = Self::from_arg_matches(&matches);
        Self { words, ..read.unwrap_or_else(|error| error.exit()) }
    }

    /// The project's directory. `-C DIR` and a command's own DIR mean the same; the latter wins.
    pub(crate) fn directory(&self) -> &Path {
        let own = match &self.command {
            Command::Init { directory } | Command::Validate { directory, .. } => {
                directory.as_deref()
            }
            Command::Serve(serve) => serve.directory.as_deref(),
            Command::Schema { .. }
            | Command::Next(_)
            | Command::Explain(_)
            | Command::Exec(_)
            | Command::Calendar { .. }
            | Command::Runner { .. }
            | Command::EvaluatorGuard { .. }
            | Command::LivenessHelper { .. }
            | Command::Supervise(_)
            | Command::Heartbeat { .. }
            | Command::Reading(_)
            | Command::Asking(_)
            | Command::Context { .. }
            | Command::Completions { .. } => None,
        };
        own.or(self.project.as_deref()).unwrap_or(Path::new("."))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a small project to begin with.
    Init {
        /// Where; the current directory when absent.
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
    },
    /// Run and watch the pipelines of the project.
    ///
    /// Opens slots when they are due, starts their jobs when they are ready, and records what becomes of each.
    Serve(Serve),
    /// The process that starts jobs and outlives `serve`; started by it.
    #[command(hide = true)]
    Runner {
        /// Its directory.
        directory: PathBuf,
    },
    /// The process that ends an evaluator when `serve` is gone; started by it.
    #[command(hide = true)]
    EvaluatorGuard {
        /// The evaluator.
        program: PathBuf,
    },
    /// The process that writes down what `serve` was doing when it hung; started by it.
    #[command(hide = true)]
    LivenessHelper {
        /// What the log of `serve` looks like: reports go there too.
        #[arg(long, value_enum, default_value_t = LogForm::Text)]
        log: LogForm,
        /// What the process that starts it says.
        arguments: Vec<String>,
    },
    /// Check all files of the project and list every problem.
    Validate {
        /// Which project; the current directory when absent.
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
        /// Print an array of problems with file, line, column, code, message and help.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of a kind of file, for editors.
    Schema {
        /// Which kind of file.
        #[arg(value_enum, default_value_t = SchemaKind::Pipeline)]
        kind: SchemaKind,
    },
    /// List the next slots, and what daylight saving and calendars do to them.
    Next(Next),
    /// Print rule by rule why a slot ran or not, with the values seen.
    Explain(Explain),
    #[command(flatten)]
    Reading(Reading),
    #[command(flatten)]
    Asking(Asking),
    /// Run a job and report its start and end to a watch-only pipeline.
    ///
    /// Reports how long it took and the last lines that it printed, too, and exits with the job's code. A report that cannot be
    /// delivered now is kept and delivered later.
    Exec(Exec),
    /// Keep a program running: restart it when it dies or hangs.
    ///
    /// A program that hangs is ended first, and where it hung is written down.
    Supervise(Supervise),
    /// Check the heartbeat of a program.
    Heartbeat {
        #[command(subcommand)]
        command: HeartbeatCommand,
    },
    /// Import calendars.
    Calendar {
        #[command(subcommand)]
        command: CalendarCommand,
    },
    /// List the servers that have a name, for `--context`.
    Context {
        #[command(subcommand)]
        command: ContextCommand,
    },
    /// Print shell completions.
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SchemaKind {
    /// A pipeline's file.
    Pipeline,
    /// `interlock.yaml`.
    Config,
    /// An archetype's file.
    Archetype,
    /// A calendar's file.
    Calendar,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// Which pipeline is reported to.
    pub(crate) pipeline: String,
    /// The name of this run, by which its reports belong together [default: a fresh one]
    #[arg(long, value_name = "R")]
    pub(crate) rid: Option<String>,
    /// Where to report by HTTP, such as `https://interlock.example:8420`, with a token in `$INTERLOCK_TOKEN` [default:
    /// `$INTERLOCK_SERVER`, else the inbox of the project here, else `http://127.0.0.1:8420`]
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Whose certificates are trusted for an `https://` server: a file with authorities [default: `$INTERLOCK_CA`, else
    /// those of this machine]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<std::path::PathBuf>,
    /// The job and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Next {
    /// Only this pipeline.
    pub(crate) pipeline: Option<String>,
    /// Slots from this instant on, itself included: `2026-02-25T09:00`, `yesterday`, `+2h` … [default: now]
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) from: Option<Moment>,
    /// Slots before this instant.
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) to: Option<Moment>,
    /// How many slots of each pipeline [default: 5, or all up to `--to`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: Option<u32>,
    /// Print an array of objects.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) ad_hoc: AdHoc,
}

/// A schedule given on the command line instead of in a file.
#[derive(Debug, Args)]
#[group(id = "ad hoc", conflicts_with = "pipeline")]
pub(crate) struct AdHoc {
    /// List the slots of this cron expression instead.
    #[arg(long, value_name = "EXPR")]
    pub(crate) cron: Option<String>,
    /// The expression's zone.
    #[arg(long, value_name = "ZONE", requires = "cron", default_value = "UTC")]
    pub(crate) tz: String,
    /// Daylight-saving policy: `gap=run_after|skip`, `overlap=first|second|both`, separated by a comma.
    #[arg(long, value_name = "POLICY", requires = "cron", value_parser = parse_dst)]
    pub(crate) dst: Option<Dst>,
    /// The expression begins with a seconds field.
    #[arg(long, requires = "cron")]
    pub(crate) seconds: bool,
}

fn parse_dst(text: &str) -> Result<Dst, String> {
    let mut dst = Dst::default();
    for part in text.split(',') {
        match part.trim() {
            "gap=run_after" => dst.gap = Some(Gap::RunAfter),
            "gap=skip" => dst.gap = Some(Gap::Skip),
            "overlap=first" => dst.overlap = Some(Overlap::First),
            "overlap=second" => dst.overlap = Some(Overlap::Second),
            "overlap=both" => dst.overlap = Some(Overlap::Both),
            other => {
                return Err(format!(
                    "`{other}` is none of gap=run_after, gap=skip, overlap=first, overlap=second, overlap=both"
                ));
            }
        }
    }
    Ok(dst)
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Which pipeline.
    pub(crate) pipeline: String,
    /// Which slot: `2026-02-25T09:00Z`, or `daily/2026-02-25T09:00Z` of one schedule [default: the oldest that
    /// waits, else the last that was owed]
    #[arg(value_name = "SLOT", allow_hyphen_values = true)]
    pub(crate) slot: Option<String>,
    /// Ask the files alone, with the sensors of a JSON file: `{"key": value}` or `{"key": {"value": …, "at": "…"}}`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) sensors: Option<PathBuf>,
    /// Ask the files alone, as of this instant.
    #[arg(long, value_name = "T", value_parser = Moment::parse, allow_hyphen_values = true)]
    pub(crate) at: Option<Moment>,
    /// Print an object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CalendarCommand {
    /// Turn an iCalendar file into a calendar of the project.
    Import {
        /// The iCalendar file.
        #[arg(value_name = "FILE.ics", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The calendar's name [default: the file's]
        #[arg(long)]
        name: Option<String>,
        /// Replace a calendar that already exists.
        #[arg(long)]
        force: bool,
    },
}

/// Reads a length of time, such as `10s` or `500ms`.
fn length(text: &str) -> Result<SignedDuration, String> {
    duration::parse(text, Units::MillisecondsToDays)
        .map_err(|error| format!("{}. {}", error.message, error.help))
}
