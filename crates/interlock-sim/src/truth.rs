//! What a simulated pipeline really says, as numbers, and the YAML that is written from them.
//!
//! The engine gets the text; the checkers keep the numbers. So the parser, the schedules and the plans of the engine
//! are judged by something that has never seen them.

use std::{collections::BTreeSet, fmt::Write as _};

use jiff::{civil::Date, tz::TimeZone};

use crate::random::Random;

/// Zones with their nights of summer time, one without, and one whose gap is half an hour.
pub const ZONES: [&str; 7] = [
    "UTC",
    MOVING,
    "Europe/Riga",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "America/Havana",
];

/// A zone whose data changes under way.
pub const MOVING: &str = "Sim/Moving";

/// One version of a pipeline.
#[derive(Debug, Clone)]
pub struct Truth {
    /// Its name.
    pub name: String,
    /// Its zone, by name.
    pub zone: &'static str,
    /// Its zone.
    pub time_zone: TimeZone,
    /// When it owes runs.
    pub starts: Vec<Start>,
    /// When its runs are ended.
    pub stop: Option<Pattern>,
    /// Days without slots: weekends.
    pub skips_weekends: bool,
    /// The days of the calendar in this version, if those have none either.
    pub holidays: Option<BTreeSet<Date>>,
    /// How far back missed slots run, in minutes.
    pub window_minutes: Option<u32>,
    /// Which of several run.
    pub policy: Policy,
    /// At most so many in one plan.
    pub catchup_max: u32,
    /// Runs at the same time.
    pub active_max: u32,
    /// What must be true before it runs.
    pub gate: Need,
    /// How its jobs are reached.
    pub adapter: Adapter,
    /// Attempts, the first included.
    pub attempts: u32,
    /// Whether a run that nobody can find is tried again.
    pub retries_uncertain: bool,
    /// How long its data is watched after the job, in minutes.
    pub monitoring_minutes: u32,
    /// How long its slots are live, in minutes.
    pub start_grace_minutes: u32,
    /// Whether it is watched at all.
    pub is_enabled: bool,
    /// A number that changes nothing but the version.
    pub edition: u32,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Its id.
    pub id: String,
    /// When.
    pub pattern: Pattern,
    /// Slots open up to so many seconds later.
    pub jitter_seconds: u32,
}

/// When slots are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Minutes and hours of the wall clock, on some weekdays (bit 0 is Sunday).
    Cron {
        /// Which minutes; every minute when `every_minute`.
        minutes: Vec<u8>,
        /// Which hours; `None` for a star.
        hours: Option<Vec<u8>>,
        /// Which weekdays; `None` for a star.
        weekdays: Option<Vec<u8>>,
        /// Which days of the month; `None` for a star. Not together with weekdays.
        days: Option<Vec<u8>>,
        /// Written as a star with a step: then wildcards' rule for clock changes holds.
        step: Option<u8>,
    },
    /// Every so many minutes since 1970.
    Every(u32),
    /// The beginnings of local days or hours, each opened by a report about it.
    Arrival {
        /// Which of the two.
        period: Period,
        /// So many minutes after its beginning a period is given up without a report; it is then owed by the clock.
        deadline_minutes: Option<u32>,
    },
}

/// What a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// A local date.
    Day,
    /// A local hour.
    Hour,
}

/// The sensor whose reports open slots.
pub const ARRIVED: &str = "arrived";

/// `overlapPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The first.
    Skip,
    /// All.
    All,
    /// The newest.
    Latest,
}

/// What must be true before a job runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// An evaluator says so; its answer is used for so many minutes.
    Trait(u32),
    /// A sensor says so.
    Sensor,
    /// A pipeline's slot of the same period completed.
    Upstream(String),
}

/// How jobs are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adapter {
    /// Through something that knows every run by its id and starts it once.
    Runner,
    /// Through something that starts whatever it is asked to, and cannot be asked what became of it.
    Blind,
    /// Not at all: somebody else runs them, and they report.
    External,
}

impl Policy {
    fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::All => "all",
            Self::Latest => "latest",
        }
    }
}

impl Truth {
    /// Draws a pipeline; one before it may be its upstream.
    pub fn draw(random: &mut Random, name: String, upstream: Option<&str>) -> Self {
        let zone = ZONES[random.below(ZONES.len() as u64) as usize];
        let mut starts = vec![Start {
            id: "main".to_owned(),
            pattern: Pattern::draw(random),
            jitter_seconds: if random.chance(150) { 20 } else { 0 },
        }];
        if random.chance(200) {
            let (pattern, jitter_seconds) = (Pattern::draw(random), 0);
            starts.push(Start { id: "second".to_owned(), pattern, jitter_seconds });
        }
        let gate = match (random.below(10), upstream) {
            (0 | 1, _) => Need::Trait([1, 10, 60][random.below(3) as usize]),
            (2, _) => Need::Sensor,
            (3, Some(upstream)) if random.chance(400) => Need::Upstream(upstream.to_owned()),
            _ => Need::Nothing,
        };
        let windows = [None, Some(30), Some(6 * 60), Some(3 * 24 * 60)];
        Self {
            name,
            zone,
            time_zone: TimeZone::get(zone).unwrap_or(TimeZone::UTC),
            starts,
            stop: random.chance(120).then(|| Pattern::fixed(random)),
            skips_weekends: random.chance(150),
            holidays: random.chance(250).then(BTreeSet::new),
            window_minutes: windows[random.below(4) as usize],
            policy: [Policy::Skip, Policy::All, Policy::Latest][random.below(3) as usize],
            catchup_max: if random.chance(100) { 3 } else { 10_000 },
            active_max: if random.chance(250) { random.between(2, 4) as u32 } else { 1 },
            gate,
            adapter: if random.chance(300) { Adapter::Blind } else { Adapter::Runner },
            attempts: random.between(1, 3) as u32,
            retries_uncertain: random.chance(500),
            monitoring_minutes: if random.chance(100) { 10 } else { 0 },
            start_grace_minutes: if random.chance(500) { 5 } else { 1 },
            is_enabled: true,
            edition: 0,
        }
    }

    /// Has somebody else run it.
    pub fn watch_only(&mut self) {
        self.starts.truncate(1);
        for start in &mut self.starts {
            start.jitter_seconds = 0;
        }
        (self.stop, self.gate) = (None, Need::Nothing);
        (self.adapter, self.monitoring_minutes) = (Adapter::External, 0);
        // What its reports are about must be known beforehand.
        self.holidays = None;
        if self.zone == MOVING {
            (self.zone, self.time_zone) = ("UTC", TimeZone::UTC);
        }
    }

    /// Has reports open its slots instead of the clock.
    pub fn open_by_sensor(&mut self, random: &mut Random) {
        let period = if random.chance(500) { Period::Day } else { Period::Hour };
        let (id, jitter_seconds) = ("stream".to_owned(), 0);
        self.starts = vec![Start { id, pattern: Pattern::arrival(random, period), jitter_seconds }];
        // A date of other zone data begins at another instant: which slot is its slot then depends on when one asks.
        if self.zone == MOVING {
            (self.zone, self.time_zone) = ("UTC", TimeZone::UTC);
        }
    }

    /// What a sensor opens of it: by period, and by when.
    pub fn arrival(&self) -> Option<(&Start, Period, Option<u32>)> {
        self.starts.iter().find_map(|start| match start.pattern {
            Pattern::Arrival { period, deadline_minutes } => {
                Some((start, period, deadline_minutes))
            }
            Pattern::Cron { .. } | Pattern::Every(_) => None,
        })
    }

    /// Whether somebody else runs it.
    pub fn is_watched(&self) -> bool {
        self.adapter == Adapter::External
    }

    /// Whether it is the same file, perhaps by other data of its zone.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.text() == other.text() && self.holidays == other.holidays
    }

    /// Draws an edit of it.
    #[must_use]
    pub fn edited(&self, random: &mut Random) -> Self {
        let mut edited = self.clone();
        edited.edition += 1;
        match random.below(6) {
            0 => {
                if let Some(start) = edited.starts.first_mut() {
                    start.pattern = match start.pattern {
                        Pattern::Arrival { period, .. } => Pattern::arrival(random, period),
                        Pattern::Cron { .. } | Pattern::Every(_) => Pattern::draw(random),
                    };
                }
            }
            1 => {
                edited.policy =
                    [Policy::Skip, Policy::All, Policy::Latest][random.below(3) as usize];
            }
            2 => edited.window_minutes = [None, Some(45), Some(24 * 60)][random.below(3) as usize],
            3 => edited.active_max = random.between(1, 3) as u32,
            4 => edited.is_enabled = !edited.is_enabled,
            _ => {}
        }
        edited
    }

    /// Its file.
    pub fn text(&self) -> String {
        let mut text = format!("name: {}\ntimezone: {}\n", self.name, self.zone);
        let mut line = |words: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let _written = text.write_fmt(words);
            text.push('\n');
        };
        line(format_args!("description: edition {}", self.edition));
        line(format_args!("schedule:"));
        line(format_args!("  start:"));
        for Start { id, pattern, jitter_seconds } in &self.starts {
            line(format_args!("    - id: {id}"));
            line(format_args!("      {}", pattern.key()));
            if let Pattern::Arrival { deadline_minutes: Some(minutes), .. } = pattern {
                line(format_args!("      deadline: +{minutes}m"));
            }
            if *jitter_seconds > 0 {
                line(format_args!("      jitter: {jitter_seconds}s"));
            }
        }
        if let Some(stop) = &self.stop {
            line(format_args!("  stop: \"{}\"", stop.expression()));
        }
        match (self.skips_weekends, self.holidays.is_some()) {
            (true, true) => {
                line(format_args!("exclusions: {{weekends: true, calendar: holidays}}"));
            }
            (true, false) => line(format_args!("exclusions: {{weekends: true}}")),
            (false, true) => line(format_args!("exclusions: {{calendar: holidays}}")),
            (false, false) => {}
        }
        if let Some(minutes) = self.window_minutes.filter(|_| !self.is_watched()) {
            line(format_args!("catchupWindow: {minutes}m"));
        }
        line(format_args!("startGrace: {}m", self.start_grace_minutes));
        if self.is_watched() {
            line(format_args!("trigger: {{type: external}}"));
            return text;
        }
        line(format_args!("overlapPolicy: {}", self.policy.as_str()));
        line(format_args!("catchupMaxRuns: {}", self.catchup_max));
        line(format_args!("maxActiveRuns: {}", self.active_max));
        match &self.gate {
            Need::Nothing => {}
            Need::Trait(minutes) => {
                line(format_args!("traits: {{fresh: {{evaluator: e, ttl: {minutes}m}}}}"));
            }
            Need::Sensor => line(format_args!(
                "validation: {{rules: [{{key: landed, check: equals, field: ok, value: true}}]}}"
            )),
            Need::Upstream(name) => line(format_args!("dependsOn: [{name}]")),
        }
        let on_uncertain = if self.retries_uncertain { "retry" } else { "fail" };
        match self.adapter {
            Adapter::Runner => line(format_args!(
                "trigger: {{type: command, command: 'true', onUncertain: {on_uncertain}}}"
            )),
            Adapter::Blind => line(format_args!(
                "trigger: {{type: http, url: 'http://job.example/', onUncertain: {on_uncertain}}}"
            )),
            Adapter::External => {}
        }
        line(format_args!("retry: {{maxAttempts: {}, backoffSeconds: 60}}", self.attempts));
        line(format_args!(
            "watch: {{enabled: {}, monitoring: {{enabled: {}, duration: {}m}}}}",
            self.is_enabled,
            self.monitoring_minutes > 0,
            self.monitoring_minutes.max(1)
        ));
        text
    }
}

impl Pattern {
    fn draw(random: &mut Random) -> Self {
        match random.below(10) {
            0 | 1 => Self::Every([15, 60, 90][random.below(3) as usize]),
            2 => Self::stars(Some([10, 15, 30][random.below(3) as usize])),
            3..=7 => Self::Cron {
                minutes: vec![random.below(60) as u8],
                hours: None,
                weekdays: None,
                days: None,
                step: None,
            },
            _ => Self::fixed(random),
        }
    }

    /// One that reports open, every second time with a deadline: soon, late, or after the next has begun.
    fn arrival(random: &mut Random, period: Period) -> Self {
        let deadlines = match period {
            Period::Day => [30, 9 * 60, 20 * 60],
            Period::Hour => [20, 45, 90],
        };
        let minutes = deadlines[random.below(3) as usize];
        Self::Arrival { period, deadline_minutes: random.chance(500).then_some(minutes) }
    }

    fn stars(step: Option<u8>) -> Self {
        let minutes = (0..60).step_by(usize::from(step.unwrap_or(1))).collect();
        let step = Some(step.unwrap_or(1));
        Self::Cron { minutes, hours: None, weekdays: None, days: None, step }
    }

    /// Times of day, often in the hours in which clocks are changed.
    fn fixed(random: &mut Random) -> Self {
        let mut hours: Vec<u8> = vec![random.below(24) as u8, random.below(4) as u8];
        hours.sort_unstable();
        hours.dedup();
        // The ends of months, among them the day that is there every fourth year.
        let days = random.chance(250).then(|| vec![1, 11, 25, 28, 29, 30, 31]);
        let weekdays = (days.is_none() && random.chance(200)).then(|| vec![0, 2, 5]);
        Self::Cron {
            minutes: vec![random.below(60) as u8],
            hours: Some(hours),
            weekdays,
            days,
            step: None,
        }
    }

    /// Whether no field of the time is a star.
    pub fn is_fixed(&self) -> bool {
        matches!(self, Self::Cron { hours: Some(_), step: None, .. })
    }

    /// Whether its slots are owed when their time comes, whatever is reported.
    pub fn is_by_clock(&self) -> bool {
        !matches!(self, Self::Arrival { deadline_minutes: None, .. })
    }

    fn key(&self) -> String {
        match self {
            Self::Arrival { period, .. } => {
                let period = if *period == Period::Day { "day" } else { "hour" };
                format!(
                    "sensor: {{key: {ARRIVED}, check: equals, field: state, value: ready, period: {period}}}"
                )
            }
            Self::Every(minutes) => format!("every: {minutes}m"),
            Self::Cron { .. } => format!("cron: \"{}\"", self.expression()),
        }
    }

    fn expression(&self) -> String {
        let Self::Cron { minutes, hours, weekdays, days, step } = self else {
            return String::new();
        };
        let list =
            |values: &[u8]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let minute = step.map_or_else(|| list(minutes), |step| format!("*/{step}"));
        let hour = hours.as_deref().map_or_else(|| "*".to_owned(), list);
        let weekday = weekdays.as_deref().map_or_else(|| "*".to_owned(), list);
        let day = days.as_deref().map_or_else(|| "*".to_owned(), list);
        format!("{minute} {hour} {day} * {weekday}")
    }
}
