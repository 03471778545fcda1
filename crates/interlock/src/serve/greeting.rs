//! What `serve` says once it is at work: what it serves, what it took over, what comes next.

use std::io::Write as _;

use interlock_api::Reach;
use interlock_core::text::counted;
use interlock_engine::Overview;
use jiff::{SignedDuration, Timestamp};

use crate::{
    arguments::LogForm,
    exit::Failure,
    output::{Output, instant},
    serve::{files::Scan, reload::counted_problems},
};

const CONTAINER: &str = "this is a container of its own: jobs end with it, and are then uncertain";

/// What there is to say.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) pipelines: usize,
    /// Problems in the files, and in words.
    pub(crate) problems: (usize, String),
    /// Where the ledger is.
    pub(crate) place: String,
    pub(crate) reach: Reach,
    /// As its address begins.
    pub(crate) scheme: &'static str,
    pub(crate) roles: Vec<String>,
    /// Who owns the shards, where there are several.
    pub(crate) shards: Option<String>,
    /// Pipelines without a file that stay in force.
    pub(crate) held: usize,
    /// What the engine has before it; none without the engine's role.
    pub(crate) overview: Option<Overview>,
    pub(crate) now: Timestamp,
}

impl Greeting {
    /// Takes over what the engine found.
    pub(crate) fn take(&mut self, overview: Overview, scan: &Scan) {
        self.pipelines = scan.count;
        self.problems = (scan.problems.len(), counted_problems(&scan.problems));
        self.held = scan.spared;
        self.overview = Some(overview);
    }

    /// Prints it for people, or puts it in the log for machines.
    pub(crate) fn say(&self, form: LogForm, output: &mut Output) -> Result<(), Failure> {
        match form {
            LogForm::Text => self.print(output),
            LogForm::Json => {
                self.log();
                Ok(())
            }
        }
    }

    fn print(&self, output: &mut Output) -> Result<(), Failure> {
        let out = &mut output.out;
        writeln!(out, "{}", self.first_line())?;
        writeln!(out, "  ledger    {}", self.place)?;
        if let Some(shards) = &self.shards {
            writeln!(out, "  shards    {shards}")?;
        }
        match &self.reach {
            Reach::At(address) => {
                let scheme = self.scheme;
                writeln!(out, "  http      {scheme}://{address} (/healthz, /readyz, /metrics)")?;
            }
            Reach::Shut(because) => {
                writeln!(out, "  http      none yet: {because}; jobs cannot report over HTTP")?;
            }
            Reach::Unwanted => writeln!(out, "  http      none")?,
        }
        if let Some(overview) = &self.overview {
            let open = counted(overview.open_slots, "open slot");
            let runs = counted(overview.active_runs, "run");
            writeln!(out, "  taken up  {open}, {runs} under way")?;
            writeln!(out, "  next      {}", self.next(overview))?;
            if self.held > 0 {
                let held = counted(self.held, "pipeline");
                writeln!(
                    out,
                    "  held      {held} without a file: in force as last declared (`--retire-missing` retires)"
                )?;
            }
        }
        match (&self.problems, &self.overview) {
            // Without an engine this process does not read the pipelines' files.
            (_, None) => {}
            ((0, _), Some(_)) => writeln!(out, "  problems  none")?,
            ((_, words), Some(_)) => {
                writeln!(out, "  problems  {words}; `interlock validate` shows them")?;
            }
        }
        if interlock_trigger::runner::is_pid_one_namespace() {
            writeln!(out, "  note      {CONTAINER}")?;
        }
        Ok(out.flush()?)
    }

    /// What runs in this process, and for how many pipelines if it runs them.
    fn first_line(&self) -> String {
        let roles = self.roles.join(", ");
        let Some(overview) = &self.overview else {
            return format!("running {roles}; the engine runs elsewhere, or not at all");
        };
        let schedules = counted(overview.schedules, "schedule");
        format!("serving {} with {schedules}; {roles}", counted(self.pipelines, "pipeline"))
    }

    fn next(&self, overview: &Overview) -> String {
        let Some((at, pipeline, schedule)) = &overview.next else {
            return "nothing is due by itself".to_owned();
        };
        if *at < self.now {
            return format!("{pipeline}/{schedule}, owed since {}", instant(*at));
        }
        let wait = at.duration_since(self.now);
        let wait = SignedDuration::from_secs(wait.as_secs());
        format!("{pipeline}/{schedule} at {}, in {wait:#}", instant(*at))
    }

    fn url(&self) -> Option<String> {
        match self.reach {
            Reach::At(address) => Some(format!("{}://{address}", self.scheme)),
            Reach::Shut(_) | Reach::Unwanted => None,
        }
    }

    fn log(&self) {
        if interlock_trigger::runner::is_pid_one_namespace() {
            tracing::warn!("{CONTAINER}");
        }
        let overview = self.overview.as_ref();
        let next = overview.and_then(|overview| overview.next.as_ref());
        tracing::info!(
            event = "SERVING",
            pipelines = self.pipelines,
            schedules = overview.map_or(0, |overview| overview.schedules),
            nextAt = next.map(|(at, ..)| instant(*at)),
            nextPipeline = next.map(|(_, pipeline, _)| pipeline.as_str()),
            nextSchedule = next.map(|(.., schedule)| schedule.as_str()),
            openSlots = overview.map_or(0, |overview| overview.open_slots),
            runsTakenUp = overview.map_or(0, |overview| overview.active_runs),
            shards = self.shards.as_deref(),
            held = self.held,
            problems = self.problems.0,
            ledger = %self.place,
            url = self.url(),
            roles = self.roles.join(","),
            isContainer = interlock_trigger::runner::is_pid_one_namespace(),
            "{}",
            self.first_line()
        );
    }
}
