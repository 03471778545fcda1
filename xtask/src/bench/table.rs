//! The limits that were promised, and the table of figures beside them.

use std::fmt;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    PerSecond,
    Seconds,
    Megabytes,
    Kibibytes,
    Percent,
}

/// On which side of the limit a figure must be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// What a benchmark must reach.
struct Limit {
    name: &'static str,
    unit: Unit,
    bound: Bound,
}

/// Alerts that reach a receiver that answers at once.
const DELIVERIES: Bound = Bound::AtLeast(1_000.0);

/// The first page of a list over HTTP, of 99 % of those that ask.
const LIST_P99: Bound = Bound::AtMost(0.1);

/// The promises of the issues; a benchmark that is not listed has no limit.
const LIMITS: &[Limit] = &[
    Limit { name: "api/embedded_100k_events_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit {
        name: "api/embedded_100k_flat_out_late",
        unit: Unit::Seconds,
        bound: Bound::AtMost(1.0),
    },
    Limit {
        name: "api/embedded_100k_incidents_of_owner_p99",
        unit: Unit::Seconds,
        bound: LIST_P99,
    },
    Limit { name: "api/embedded_100k_incidents_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_100k_pauses_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit {
        name: "api/embedded_100k_pipelines_of_owner_p99",
        unit: Unit::Seconds,
        bound: LIST_P99,
    },
    Limit { name: "api/embedded_100k_pipelines_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_100k_runs_catchup_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_100k_runs_of_pipeline_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_100k_runs_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_100k_slots_newest_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_100k_slots_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_100k_watermarks_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_10k_events_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit {
        name: "api/embedded_10k_flat_out_late",
        unit: Unit::Seconds,
        bound: Bound::AtMost(1.0),
    },
    Limit { name: "api/embedded_10k_incidents_of_owner_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_10k_incidents_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_10k_pauses_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_10k_pipelines_of_owner_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_10k_pipelines_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_10k_runs_catchup_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_10k_runs_of_pipeline_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_10k_runs_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_10k_slots_newest_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_10k_slots_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "api/embedded_10k_watermarks_p99", unit: Unit::Seconds, bound: LIST_P99 },
    Limit { name: "archive/share_of_copy", unit: Unit::Percent, bound: Bound::AtLeast(60.0) },
    Limit { name: "config/load_10k", unit: Unit::Seconds, bound: Bound::AtMost(3.0) },
    Limit { name: "config/load_10k", unit: Unit::Megabytes, bound: Bound::AtMost(200.0) },
    Limit { name: "deliveries/embedded_file", unit: Unit::PerSecond, bound: DELIVERIES },
    Limit { name: "deliveries/embedded_webhook", unit: Unit::PerSecond, bound: DELIVERIES },
    Limit { name: "deliveries/postgres_file", unit: Unit::PerSecond, bound: DELIVERIES },
    Limit { name: "deliveries/postgres_webhook", unit: Unit::PerSecond, bound: DELIVERIES },
    Limit { name: "deliveries/redis_file", unit: Unit::PerSecond, bound: DELIVERIES },
    Limit { name: "deliveries/redis_webhook", unit: Unit::PerSecond, bound: DELIVERIES },
    Limit { name: "embedded/instant_10k", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit { name: "fleet/postgres_100k_late", unit: Unit::Seconds, bound: Bound::AtMost(1.0) },
    Limit { name: "fleet/postgres_100k_uneven", unit: Unit::Percent, bound: Bound::AtMost(10.0) },
    Limit { name: "fleet/redis_100k_late", unit: Unit::Seconds, bound: Bound::AtMost(1.0) },
    Limit { name: "fleet/redis_100k_uneven", unit: Unit::Percent, bound: Bound::AtMost(10.0) },
    Limit { name: "idle/postgres_grows", unit: Unit::Percent, bound: Bound::AtMost(150.0) },
    Limit { name: "idle/redis_grows", unit: Unit::Percent, bound: Bound::AtMost(150.0) },
    Limit { name: "lists/embedded_100k_incidents", unit: Unit::Seconds, bound: Bound::AtMost(3.0) },
    Limit {
        name: "lists/embedded_100k_incidents_all",
        unit: Unit::Seconds,
        bound: Bound::AtMost(3.0),
    },
    Limit { name: "lists/embedded_100k_slots", unit: Unit::Seconds, bound: Bound::AtMost(3.0) },
    Limit { name: "lists/embedded_100k_status", unit: Unit::Seconds, bound: Bound::AtMost(3.0) },
    Limit { name: "lists/embedded_10k_incidents", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit {
        name: "lists/embedded_10k_incidents_all",
        unit: Unit::Seconds,
        bound: Bound::AtMost(0.5),
    },
    Limit { name: "lists/embedded_10k_slots", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit { name: "lists/embedded_10k_status", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit { name: "lists/postgres_10k_incidents", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit {
        name: "lists/postgres_10k_incidents_all",
        unit: Unit::Seconds,
        bound: Bound::AtMost(0.5),
    },
    Limit { name: "lists/postgres_10k_slots", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit { name: "lists/postgres_10k_status", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit { name: "lists/redis_10k_incidents", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit { name: "lists/redis_10k_incidents_all", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit { name: "lists/redis_10k_slots", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit { name: "lists/redis_10k_status", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit { name: "liveness/detection_late_p99", unit: Unit::Seconds, bound: Bound::AtMost(0.02) },
    Limit { name: "liveness/dump_50_threads", unit: Unit::Seconds, bound: Bound::AtMost(0.005) },
    Limit { name: "liveness/kick", unit: Unit::Seconds, bound: Bound::AtMost(1e-9) },
    Limit { name: "liveness/scan_10000", unit: Unit::Seconds, bound: Bound::AtMost(50e-6) },
    Limit { name: "liveness/supervisor_late", unit: Unit::Seconds, bound: Bound::AtMost(0.1) },
    Limit { name: "postgres/opens_share", unit: Unit::Percent, bound: Bound::AtLeast(50.0) },
    Limit { name: "redis/opens_share", unit: Unit::Percent, bound: Bound::AtLeast(50.0) },
    Limit { name: "schedule/next_daily", unit: Unit::PerSecond, bound: Bound::AtLeast(1e7) },
    Limit { name: "schedule/next_every_minute", unit: Unit::PerSecond, bound: Bound::AtLeast(1e7) },
    Limit {
        name: "catchup/plan_10000_pipelines_72_slots",
        unit: Unit::Seconds,
        bound: Bound::AtMost(1.0),
    },
    Limit { name: "schedule/slots_hour_100k", unit: Unit::Seconds, bound: Bound::AtMost(0.1) },
    Limit { name: "serve/100k_first_load", unit: Unit::Kibibytes, bound: Bound::AtMost(2.0) },
    Limit { name: "serve/100k_restart", unit: Unit::Kibibytes, bound: Bound::AtMost(2.0) },
    Limit { name: "serve/100k_first_load", unit: Unit::Seconds, bound: Bound::AtMost(15.0) },
    Limit { name: "serve/100k_idle", unit: Unit::Percent, bound: Bound::AtMost(1.0) },
    Limit { name: "serve/100k_restart", unit: Unit::Seconds, bound: Bound::AtMost(3.0) },
    Limit { name: "serve/10k_first_load", unit: Unit::Megabytes, bound: Bound::AtMost(50.0) },
    Limit { name: "serve/10k_restart", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit { name: "serve/10k_restart", unit: Unit::Megabytes, bound: Bound::AtMost(50.0) },
    Limit { name: "serve/catchup_drain_share", unit: Unit::Percent, bound: Bound::AtLeast(50.0) },
    Limit { name: "serve/catchup_durable_216000", unit: Unit::Seconds, bound: Bound::AtMost(5.0) },
    Limit { name: "serve/catchup_durable_3600", unit: Unit::Seconds, bound: Bound::AtMost(0.15) },
    Limit { name: "serve/catchup_first_run", unit: Unit::Seconds, bound: Bound::AtMost(0.2) },
    Limit { name: "serve/catchup_memory", unit: Unit::Megabytes, bound: Bound::AtMost(200.0) },
    Limit { name: "serve/catchup_memory_10k", unit: Unit::Megabytes, bound: Bound::AtMost(200.0) },
    Limit { name: "serve/instant_10k", unit: Unit::Seconds, bound: Bound::AtMost(0.5) },
    Limit { name: "serve/exec_overhead", unit: Unit::Seconds, bound: Bound::AtMost(0.005) },
    Limit { name: "serve/pings", unit: Unit::PerSecond, bound: Bound::AtLeast(5_000.0) },
    Limit { name: "serve/pings_p99", unit: Unit::Seconds, bound: Bound::AtMost(0.05) },
    Limit { name: "serve/start_500", unit: Unit::Seconds, bound: Bound::AtMost(1.2) },
    Limit { name: "tally/12h_p99", unit: Unit::Seconds, bound: Bound::AtMost(0.1) },
    Limit { name: "tally/12h_by_label_p99", unit: Unit::Seconds, bound: Bound::AtMost(0.1) },
    Limit { name: "tally/3d_p99", unit: Unit::Seconds, bound: Bound::AtMost(0.1) },
    Limit { name: "tally/3d_by_label_p99", unit: Unit::Seconds, bound: Bound::AtMost(0.1) },
    Limit { name: "tally/90d_p99", unit: Unit::Seconds, bound: Bound::AtMost(0.1) },
    Limit { name: "tally/90d_by_label_p99", unit: Unit::Seconds, bound: Bound::AtMost(0.1) },
    Limit { name: "tally/first_count_100k", unit: Unit::Seconds, bound: Bound::AtMost(5.0) },
    Limit { name: "tally/pipeline_100k", unit: Unit::Kibibytes, bound: Bound::AtMost(1.0) },
    Limit { name: "tally/pipeline_largest", unit: Unit::Kibibytes, bound: Bound::AtMost(1.0) },
    Limit { name: "trigger/command_cpu", unit: Unit::Seconds, bound: Bound::AtMost(0.006) },
    Limit { name: "trigger/command_runs", unit: Unit::PerSecond, bound: Bound::AtLeast(410.0) },
    Limit { name: "watchdog/idle_pass_100000", unit: Unit::Seconds, bound: Bound::AtMost(0.02) },
    Limit {
        name: "watchdog/idle_pass_worst_100000",
        unit: Unit::Seconds,
        bound: Bound::AtMost(0.02),
    },
    Limit { name: "watchdog/lateness_1_of_100000", unit: Unit::Seconds, bound: Bound::AtMost(1.0) },
    Limit {
        name: "watchdog/misses_10000_of_100000",
        unit: Unit::Seconds,
        bound: Bound::AtMost(1.0),
    },
];

/// The names of the table's columns.
pub(super) const HEADING: &str =
    "benchmark                                      figure            limit   ratio     spread";

/// What the name of a ceiling ends with.
const CEILING: &str = "@limit";

/// One figure of one benchmark.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measurement {
    /// The benchmark's id.
    pub(super) name: String,
    reading: Reading,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reading {
    /// The time of one iteration, how many things it does, and the relative standard deviation.
    Timed { seconds: f64, elements: f64, spread: f64 },
    /// A figure that the benchmark printed itself.
    Plain { unit: Unit, value: f64 },
}

impl Measurement {
    /// A time that criterion measured.
    pub(super) fn timed(name: &str, seconds: f64, elements: f64, spread: f64) -> Self {
        Self { name: name.to_owned(), reading: Reading::Timed { seconds, elements, spread } }
    }

    /// A figure from a `RESULT` line; nothing for a key that names no unit.
    pub(super) fn plain(name: &str, key: &str, value: f64) -> Option<Self> {
        let unit = match key {
            "seconds" => Unit::Seconds,
            "rss_mb" => Unit::Megabytes,
            "kib" => Unit::Kibibytes,
            "percent" => Unit::Percent,
            "per_second" => Unit::PerSecond,
            _ => return None,
        };
        Some(Self { name: name.to_owned(), reading: Reading::Plain { unit, value } })
    }

    /// The figure in a unit, if it can be had in that.
    fn figure(&self, wanted: Unit) -> Option<f64> {
        match (self.reading, wanted) {
            (Reading::Timed { seconds, .. }, Unit::Seconds) => Some(seconds),
            (Reading::Timed { seconds, elements, .. }, Unit::PerSecond) => Some(elements / seconds),
            (Reading::Timed { .. }, Unit::Megabytes | Unit::Kibibytes | Unit::Percent) => None,
            (Reading::Plain { unit, value }, wanted) => (unit == wanted).then_some(value),
        }
    }

    /// The unit in which a figure without a limit is shown.
    fn own_unit(&self) -> Unit {
        match self.reading {
            Reading::Timed { elements, .. } if elements > 1.0 => Unit::PerSecond,
            Reading::Timed { .. } => Unit::Seconds,
            Reading::Plain { unit, .. } => unit,
        }
    }

    fn spread(&self) -> Option<f64> {
        match self.reading {
            Reading::Timed { spread, .. } => Some(spread),
            Reading::Plain { .. } => None,
        }
    }
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    name: String,
    figure: Option<(f64, Unit)>,
    limit: Option<(Bound, Unit)>,
    spread: Option<f64>,
}

/// The table: every measurement against its limit, every ceiling, every promise not measured.
pub(super) fn rows(measurements: &[Measurement], filter: Option<&str>) -> Vec<Row> {
    let mut rows: Vec<Row> = measurements
        .iter()
        .flat_map(|measurement| {
            let limited = against_limit(measurement);
            [Some(limited), against_ceiling(measurement, measurements)]
        })
        .flatten()
        .collect();
    let wanted = LIMITS.iter().filter(|limit| limit.name.contains(filter.unwrap_or_default()));
    rows.extend(wanted.filter(|limit| !measurements.iter().any(|it| answers(it, limit))).map(
        |limit| Row {
            name: limit.name.to_owned(),
            figure: None,
            limit: Some((limit.bound, limit.unit)),
            spread: None,
        },
    ));
    rows
}

fn answers(measurement: &Measurement, limit: &Limit) -> bool {
    measurement.name == limit.name && measurement.figure(limit.unit).is_some()
}

fn against_limit(measurement: &Measurement) -> Row {
    let limit = LIMITS.iter().find(|limit| answers(measurement, limit));
    let unit = limit.map_or(measurement.own_unit(), |limit| limit.unit);
    Row {
        name: measurement.name.clone(),
        figure: measurement.figure(unit).map(|value| (value, unit)),
        limit: limit.map(|limit| (limit.bound, limit.unit)),
        spread: measurement.spread(),
    }
}

/// A measurement beside its ceiling; the ratio is the share of the ceiling's speed that it has.
fn against_ceiling(measurement: &Measurement, all: &[Measurement]) -> Option<Row> {
    let unit = measurement.own_unit();
    let ceiling_name = format!("{}{CEILING}", measurement.name);
    let ceiling = all.iter().find(|other| other.name == ceiling_name)?.figure(unit)?;
    let bound =
        if unit == Unit::PerSecond { Bound::AtLeast(ceiling) } else { Bound::AtMost(ceiling) };
    Some(Row {
        name: format!("{} / {CEILING}", measurement.name),
        figure: Some((measurement.figure(unit)?, unit)),
        limit: Some((bound, unit)),
        spread: measurement.spread(),
    })
}

impl Row {
    /// Whether a promise was not kept. A ceiling is no promise: nothing reaches it.
    pub(super) fn is_missed(&self) -> bool {
        !self.name.ends_with(CEILING) && self.ratio().is_some_and(|ratio| ratio < 1.0)
    }

    /// How good the figure is: 1 at the limit, more when better.
    fn ratio(&self) -> Option<f64> {
        let (figure, _) = self.figure?;
        match self.limit?.0 {
            Bound::AtLeast(limit) => Some(figure / limit),
            Bound::AtMost(limit) => Some(limit / figure),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = self
            .figure
            .map_or_else(|| "not measured".to_owned(), |(value, unit)| show(value, unit));
        let limit = self.limit.map_or_else(String::new, |(bound, unit)| match bound {
            Bound::AtLeast(value) => format!("≥ {}", show(value, unit)),
            Bound::AtMost(value) => format!("≤ {}", show(value, unit)),
        });
        let ratio = self.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let spread = self.spread.map_or_else(String::new, |part| format!("± {:.1} %", part * 1e2));
        let missed = if self.is_missed() { "  MISSED" } else { "" };
        write!(f, "{:<38} {figure:>14} {limit:>16} {ratio:>7} {spread:>10}{missed}", self.name)
    }
}

fn show(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Megabytes => format!("{value:.0} MB"),
        Unit::Kibibytes => format!("{value:.2} KiB"),
        Unit::Percent => format!("{value:.2} %"),
        Unit::PerSecond if value >= 1e6 => format!("{:.2} M/s", value / 1e6),
        Unit::PerSecond => format!("{value:.0} /s"),
        Unit::Seconds if value >= 1.0 => format!("{value:.2} s"),
        Unit::Seconds if value >= 1e-3 => format!("{:.2} ms", value * 1e3),
        Unit::Seconds if value >= 1e-6 => format!("{:.2} µs", value * 1e6),
        Unit::Seconds => format!("{:.2} ns", value * 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(measurements: &[Measurement], name: &str) -> Row {
        rows(measurements, None).into_iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn speed_is_judged_from_below_and_time_from_above() {
        let fast = row(&[Measurement::timed("schedule/next_daily", 50e-9, 1.0, 0.01)], {
            "schedule/next_daily"
        });
        assert_eq!(format!("{:.2}", fast.ratio().unwrap()), "2.00");
        assert!(!fast.is_missed());
        let slow = Measurement::plain("config/load_10k", "seconds", 6.0).unwrap();
        let slow = row(&[slow], "config/load_10k");
        assert_eq!(format!("{:.2}", slow.ratio().unwrap()), "0.50");
        assert!(slow.is_missed() && slow.to_string().ends_with("MISSED"));
    }

    #[test]
    fn two_figures_of_one_benchmark_have_their_own_limits() {
        let measurements: Vec<_> = [("seconds", 1.5), ("rss_mb", 100.0)]
            .into_iter()
            .filter_map(|(key, value)| Measurement::plain("config/load_10k", key, value))
            .collect();
        let ratios: Vec<_> = rows(&measurements, Some("config")).iter().map(Row::ratio).collect();
        assert_eq!(ratios, [Some(2.0), Some(2.0)]);
    }

    #[test]
    fn without_a_limit_there_is_no_ratio() {
        let row = row(&[Measurement::timed("other/thing", 2e-3, 1.0, 0.0)], "other/thing");
        assert_eq!((row.ratio(), row.is_missed()), (None, false));
        assert!(row.to_string().contains("2.00 ms"), "{row}");
    }

    #[test]
    fn ceiling_of_the_same_run_gives_a_ratio_but_no_verdict() {
        let measurements = [
            Measurement::timed("a/b", 4e-9, 1.0, 0.0),
            Measurement::timed("a/b@limit", 1e-9, 1.0, 0.0),
        ];
        let row = row(&measurements, "a/b / @limit");
        assert_eq!(format!("{:.2}", row.ratio().unwrap()), "0.25");
        assert!(!row.is_missed());
    }

    #[test]
    fn columns_stand_under_their_heading() {
        let row = row(&[Measurement::timed("schedule/next_daily", 50e-9, 1.0, 0.01)], {
            "schedule/next_daily"
        });
        assert_eq!(row.to_string().chars().count(), HEADING.chars().count());
    }

    #[test]
    fn promise_without_a_measurement_is_shown() {
        let names: Vec<_> = rows(&[], Some("slots_hour")).iter().map(ToString::to_string).collect();
        assert!(names.len() == 1 && names[0].contains("not measured"), "{names:?}");
    }
}
