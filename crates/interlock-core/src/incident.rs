//! What an event means for people: the incident that it opens or resolves.
//!
//! The tables below are all there is to it: a new check is a line in [`OPENS`] or [`RESOLVES`]. Whoever writes
//! events, engine or watchdog, asks [`consequences`] about each and [`step`] about the incident's row, and puts
//! what follows into the event's own group (S12). What people do is an event too: [`by_hand`] says which.

mod alert;
mod event_json;

use jiff::civil::Date;

pub use self::{
    alert::{Alert, EVENT, EVENT_MESSAGE},
    event_json::event_json,
};
use crate::id::{PipelineId, ScheduleId};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something did not happen that should have.
    Error,
    /// Nothing is lost yet.
    Warning,
    /// Good to know.
    Info,
}

impl Level {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// How an incident stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncidentState {
    /// Somebody should look.
    Open,
    /// Somebody looks.
    Acknowledged,
    /// It is over.
    Resolved,
}

impl IncidentState {
    /// The word for it, as stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Acknowledged => "acknowledged",
            Self::Resolved => "resolved",
        }
    }

    /// Reads the word for it.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Open, Self::Acknowledged, Self::Resolved].into_iter().find(|s| s.as_str() == word)
    }
}

/// What the rules need to know of an event.
#[derive(Debug, Clone, Copy)]
pub struct Fact<'a> {
    /// Its kind, such as `RETRY_EXHAUSTED`.
    pub kind: &'a str,
    /// Whose it is.
    pub pipeline: &'a PipelineId,
    /// The schedule and the local day of its slot.
    pub day: Option<(&'a ScheduleId, Date)>,
    /// What else it is about, such as a file.
    pub thing: Option<&'a str>,
}

/// What follows from an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consequence {
    /// Somebody should know.
    Open(Finding),
    /// What there was is over.
    Resolve {
        /// The dedup key.
        key: String,
    },
    /// Somebody looks at it.
    Acknowledge {
        /// The dedup key.
        key: String,
    },
}

impl Consequence {
    /// The dedup key of the incident that it is about.
    pub fn key(&self) -> &str {
        match self {
            Self::Open(finding) => &finding.key,
            Self::Resolve { key } | Self::Acknowledge { key } => key,
        }
    }
}

/// Something that somebody should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The dedup key: findings with the same one are one incident.
    pub key: String,
    /// How bad it is.
    pub level: Level,
    /// What routes and receivers know it by, such as `schedule_missed`.
    pub alert_type: &'static str,
    /// The beginning of the sentence for people.
    pub summary: String,
}

/// What the dedup keys of a kind of incident are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Family {
    prefix: &'static str,
    scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// One per pipeline, schedule and local day.
    Day,
    /// One per named thing.
    Thing,
    /// One per pipeline.
    Pipeline,
    /// The thing is the key itself.
    Key,
}

/// A job came to a bad end.
const FAILED: Family = Family { prefix: "failed", scope: Scope::Day };
/// How a job ended, or whether, cannot be found out yet.
const UNCERTAIN: Family = Family { prefix: "uncertain", scope: Scope::Day };
const NOT_READY: Family = Family { prefix: "not-ready", scope: Scope::Day };
/// The seed's own key.
const MISSED: Family = Family { prefix: "watchdog", scope: Scope::Day };
const UNKNOWN: Family = Family { prefix: "unknown", scope: Scope::Day };
/// The seed's own key too.
const STUCK: Family = Family { prefix: "watchdog:stuck", scope: Scope::Day };
/// Apart from the breach, which must be told even if the warning was.
const SLA_AT_RISK: Family = Family { prefix: "sla-warning", scope: Scope::Day };
const SLA: Family = Family { prefix: "sla", scope: Scope::Day };
const BUDGET_AT_RISK: Family = Family { prefix: "relative-sla-warning", scope: Scope::Day };
const BUDGET: Family = Family { prefix: "relative-sla", scope: Scope::Day };
/// A watch-only job reported more often than it should run.
const EXTRA: Family = Family { prefix: "extra", scope: Scope::Day };
/// A job reports, and no pipeline takes its reports.
const NOT_WATCHED: Family = Family { prefix: "not-watched", scope: Scope::Pipeline };
const NO_SENSOR: Family = Family { prefix: "no-sensor", scope: Scope::Day };
const POST_RUN: Family = Family { prefix: "post-run", scope: Scope::Day };
/// Apart from the sensor that is missing: that it came and says that the result is bad must be told even if the other was.
const POST_RUN_BAD: Family = Family { prefix: "post-run-failed", scope: Scope::Day };
const RECOVERED: Family = Family { prefix: "recovered", scope: Scope::Day };
/// Of a thing, not of the pipeline: every pause is an event, only one without an end is an incident.
const PAUSED: Family = Family { prefix: "paused", scope: Scope::Thing };
const DEGRADED: Family = Family { prefix: "watchdog-degraded", scope: Scope::Pipeline };
const CONFIG: Family = Family { prefix: "config", scope: Scope::Thing };
const ASIDE: Family = Family { prefix: "aside", scope: Scope::Pipeline };
/// A test of the alerts, from end to end.
const BARK: Family = Family { prefix: "bark", scope: Scope::Thing };
/// What Interlock finds out about itself, each by the thing that it is about.
const CLOCK: Family = Family { prefix: "clock", scope: Scope::Thing };
const SKEW: Family = Family { prefix: "skew", scope: Scope::Thing };
const INVARIANT: Family = Family { prefix: "invariant", scope: Scope::Thing };
/// A process that was ended because it made no progress.
const HUNG: Family = Family { prefix: "hung", scope: Scope::Thing };
/// A supervised program that died, and was started again.
const DIED: Family = Family { prefix: "died", scope: Scope::Thing };
/// A supervised program that died too often, and stays down.
const GIVEN_UP: Family = Family { prefix: "given-up", scope: Scope::Thing };
/// Reports cannot come over HTTP.
const HTTP: Family = Family { prefix: "http", scope: Scope::Thing };
/// A certificate that changed cannot be used.
const CERTIFICATE: Family = Family { prefix: "certificate", scope: Scope::Thing };
const BARK_LOST: Family = Family { prefix: "bark-lost", scope: Scope::Pipeline };
/// History does not reach the archive.
const ARCHIVE: Family = Family { prefix: "archive", scope: Scope::Thing };
/// An instance has died, and others do its work.
const GONE: Family = Family { prefix: "instance", scope: Scope::Thing };
/// The store may lose what it acknowledges.
const UNSAFE: Family = Family { prefix: "unsafe", scope: Scope::Thing };
/// Instances declare other pipelines than others do.
const FILES: Family = Family { prefix: "files", scope: Scope::Thing };
/// The store has forgotten what it acknowledged.
const ROLLBACK: Family = Family { prefix: "rollback", scope: Scope::Thing };
/// A damaged ledger was set aside.
const DAMAGED: Family = Family { prefix: "damaged", scope: Scope::Thing };
/// The one that somebody names.
const NAMED: Family = Family { prefix: "", scope: Scope::Key };

/// An event that opens an incident.
struct Opens {
    event: &'static str,
    family: Family,
    level: Level,
    alert_type: &'static str,
    /// What happened to it, after its name and before its day.
    says: &'static str,
}

const fn opens(
    event: &'static str,
    family: Family,
    level: Level,
    (alert_type, says): (&'static str, &'static str),
) -> Opens {
    Opens { event, family, level, alert_type, says }
}

/// Which events open which incidents.
const OPENS: &[Opens] = &[
    opens("RETRY_EXHAUSTED", FAILED, Level::Error, ("job_failed", "failed")),
    opens("SFN_TIMEOUT", FAILED, Level::Error, ("job_timeout", "did not end in time")),
    opens(
        "RUN_UNCERTAIN",
        UNCERTAIN,
        Level::Error,
        ("run_uncertain", "has a run whose outcome is not known"),
    ),
    opens(
        "VALIDATION_EXHAUSTED",
        NOT_READY,
        Level::Error,
        ("validation_exhausted", "was not ready in time"),
    ),
    opens("SCHEDULE_MISSED", MISSED, Level::Error, ("schedule_missed", "missed")),
    opens(
        "SCHEDULE_UNKNOWN",
        UNKNOWN,
        Level::Warning,
        ("schedule_unknown", "could not be observed"),
    ),
    opens(
        "CONFIG_BROKEN",
        CONFIG,
        Level::Warning,
        ("config_broken", "is broken; the last good version stays in force"),
    ),
    opens(
        "IRREGULAR_SCHEDULE_MISSED",
        MISSED,
        Level::Error,
        ("irregular_schedule_missed", "missed a listed date"),
    ),
    opens("RUN_STUCK", STUCK, Level::Error, ("stuck_run", "has a run that does not end")),
    opens("SLA_WARNING", SLA_AT_RISK, Level::Warning, ("sla_warning", "may not complete in time")),
    opens("SLA_BREACH", SLA, Level::Error, ("sla_breach", "did not keep its SLA")),
    opens(
        "RELATIVE_SLA_WARNING",
        BUDGET_AT_RISK,
        Level::Warning,
        ("relative_sla_warning", "may take longer than its limit"),
    ),
    opens(
        "RELATIVE_SLA_BREACH",
        BUDGET,
        Level::Error,
        ("relative_sla_breach", "took longer than its limit"),
    ),
    opens(
        "SENSOR_DEADLINE_EXPIRED",
        NO_SENSOR,
        Level::Error,
        ("sensor_deadline_expired", "did not get its sensor in time"),
    ),
    opens(
        "POST_RUN_SENSOR_MISSING",
        POST_RUN,
        Level::Warning,
        ("post_run_sensor_missing", "ran, but the report about its result did not arrive"),
    ),
    opens(
        "POST_RUN_FAILED",
        POST_RUN_BAD,
        Level::Error,
        ("post_run_failed", "completed, but its result does not pass the postRun rules"),
    ),
    opens(
        "REPORT_EXTRA",
        EXTRA,
        Level::Warning,
        ("report_extra", "sent a report that fits no run"),
    ),
    opens(
        "JOB_NOT_WATCHED",
        NOT_WATCHED,
        Level::Warning,
        ("job_not_watched", "gets reports, but Interlock does not watch it"),
    ),
    opens(
        "TRIGGER_RECOVERED",
        RECOVERED,
        Level::Info,
        ("trigger_recovered", "was opened late, by a repair"),
    ),
    opens(
        "PIPELINE_PAUSED",
        PAUSED,
        Level::Warning,
        ("pipeline_paused", "has been paused for long"),
    ),
    opens(
        "WATCHDOG_DEGRADED",
        DEGRADED,
        Level::Error,
        ("watchdog_degraded", "cannot carry out all watchdog checks"),
    ),
    opens("PIPELINE_SET_ASIDE", ASIDE, Level::Error, ("pipeline_set_aside", "is in quarantine")),
    opens(
        "CLOCK_JUMP",
        CLOCK,
        Level::Error,
        ("clock_jump", "jumped forward, and Interlock plans nothing"),
    ),
    opens("CLOCK_SKEW", SKEW, Level::Error, ("clock_skew", "and the clock of the store disagree")),
    opens(
        "INVARIANT_BROKEN",
        INVARIANT,
        Level::Error,
        ("invariant_broken", "breaks a rule that must always hold"),
    ),
    opens(
        "BARK_LOST",
        BARK_LOST,
        Level::Error,
        ("bark_lost", "sent a test alert that did not reach every channel"),
    ),
    opens(
        "HTTP_UNREACHABLE",
        HTTP,
        Level::Error,
        ("http_unreachable", "cannot be reached, so jobs cannot report"),
    ),
    opens(
        "CERTIFICATE_UNUSABLE",
        CERTIFICATE,
        Level::Error,
        ("certificate_unusable", "cannot be used, and clients will turn away from HTTPS"),
    ),
    opens(
        "ARCHIVE_BEHIND",
        ARCHIVE,
        Level::Warning,
        ("archive_behind", "is behind; the store keeps what is not archived yet"),
    ),
    opens(
        "INSTANCE_GONE",
        GONE,
        Level::Warning,
        ("instance_gone", "is gone; other instances do its work"),
    ),
    opens(
        "STORE_UNSAFE",
        UNSAFE,
        Level::Warning,
        ("store_unsafe", "may lose writes that it has acknowledged"),
    ),
    opens("FILES_DIFFER", FILES, Level::Error, ("files_differ", "differ")),
    opens(
        "STORE_ROLLBACK",
        ROLLBACK,
        Level::Error,
        ("store_rollback", "has lost writes that it had acknowledged"),
    ),
    opens(
        "STORE_RECOVERED",
        DAMAGED,
        Level::Error,
        ("store_recovered", "was damaged; Interlock goes on with what could be read"),
    ),
    opens("PROCESS_HUNG", HUNG, Level::Error, ("process_hung", "hung and was ended")),
    opens("PROCESS_DIED", DIED, Level::Warning, ("process_died", "died and was started again")),
    opens(
        "PROCESS_GIVEN_UP",
        GIVEN_UP,
        Level::Error,
        ("process_given_up", "died too often and is not started again"),
    ),
    // It goes where a miss would go.
    opens("BARK", BARK, Level::Error, ("schedule_missed", "is a test of the alerts")),
];

/// Which events resolve which incidents.
const RESOLVES: &[(&str, &[Family])] = &[
    (
        "JOB_COMPLETED",
        &[
            FAILED,
            UNCERTAIN,
            NOT_READY,
            MISSED,
            UNKNOWN,
            STUCK,
            SLA_AT_RISK,
            SLA,
            BUDGET_AT_RISK,
            BUDGET,
            NO_SENSOR,
            RECOVERED,
            EXTRA,
        ],
    ),
    ("JOB_FAILED", &[STUCK]),
    ("JOB_CANCELLED", &[STUCK]),
    ("SLA_MET", &[SLA_AT_RISK]),
    ("POST_RUN_PASSED", &[POST_RUN, POST_RUN_BAD]),
    // They came late, and all of them: what they say is another matter.
    ("POST_RUN_SENSORS_ARRIVED", &[POST_RUN]),
    ("PIPELINE_DECLARED", &[NOT_WATCHED]),
    ("PIPELINE_CHANGED", &[NOT_WATCHED]),
    ("PIPELINE_RESUMED", &[PAUSED]),
    ("WATCHDOG_RECOVERED", &[DEGRADED]),
    ("RUN_FOUND", &[UNCERTAIN]),
    ("CONFIG_RESTORED", &[CONFIG]),
    ("PIPELINE_TAKEN_BACK", &[ASIDE]),
    ("CLOCK_STEADY", &[CLOCK]),
    ("CLOCKS_AGREE", &[SKEW]),
    ("INVARIANT_HOLDS", &[INVARIANT]),
    ("BARK_HEARD", &[BARK_LOST]),
    ("HTTP_REACHABLE", &[HTTP]),
    ("CERTIFICATE_USABLE", &[CERTIFICATE]),
    ("ARCHIVE_CURRENT", &[ARCHIVE]),
    ("INSTANCE_BACK", &[GONE]),
    ("STORE_SAFE", &[UNSAFE]),
    ("FILES_AGREE", &[FILES]),
    ("PROCESS_WELL", &[HUNG, DIED, GIVEN_UP]),
    (RESOLVED_BY_HAND, &[NAMED]),
];

/// What Interlock may notice about itself: how the event is called when it begins, and when it is over.
const NOTICES: &[(&str, &str)] = &[
    ("CLOCK_SKEW", "CLOCKS_AGREE"),
    ("BARK_LOST", "BARK_HEARD"),
    ("HTTP_UNREACHABLE", "HTTP_REACHABLE"),
    ("CERTIFICATE_UNUSABLE", "CERTIFICATE_USABLE"),
    ("ARCHIVE_BEHIND", "ARCHIVE_CURRENT"),
    ("INSTANCE_GONE", "INSTANCE_BACK"),
    ("STORE_UNSAFE", "STORE_SAFE"),
    ("FILES_DIFFER", "FILES_AGREE"),
    // What was lost does not come back: a person says when it is dealt with.
    ("STORE_ROLLBACK", "STORE_ROLLBACK"),
    ("STORE_RECOVERED", "STORE_RECOVERED"),
    ("PROCESS_HUNG", "PROCESS_WELL"),
    ("PROCESS_DIED", "PROCESS_WELL"),
    ("PROCESS_GIVEN_UP", "PROCESS_WELL"),
    // Told from the spool while they lasted; afterwards they are only recorded.
    ("STORE_WAS_UNREACHABLE", "STORE_WAS_UNREACHABLE"),
    ("LOOP_WAS_LATE", "LOOP_WAS_LATE"),
];

/// The event for something that Interlock noticed about itself; nothing if that is no such thing.
pub fn noticed(kind: &str, when: Noticed) -> Option<&'static str> {
    let (begins, ends) = NOTICES.iter().find(|(begins, _)| *begins == kind)?;
    Some(match when {
        Noticed::Begins => begins,
        Noticed::IsOver => ends,
    })
}

/// Whether something begins or is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noticed {
    /// It begins, or goes on.
    Begins,
    /// It is over.
    IsOver,
}

/// The incident of a clock that jumped: to acknowledge it is to say that the clock is right.
pub const CLOCK_INCIDENT: &str = "clock:the clock";
/// What that incident is about.
pub const THE_CLOCK: &str = "the clock";

/// The event that says that somebody looks at an incident.
pub const ACKNOWLEDGED_BY_HAND: &str = "INCIDENT_ACKNOWLEDGED";
/// The event of a note about an incident; nothing follows from it.
pub const NOTED_BY_HAND: &str = "INCIDENT_NOTED";
/// The event that says that somebody called an incident over.
pub const RESOLVED_BY_HAND: &str = "INCIDENT_RESOLVED";

/// What a person asks of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    /// To be known as the one who looks at it.
    Acknowledge,
    /// To call it over.
    Resolve,
    /// To say something about it.
    Note,
}

impl Hand {
    /// The word for it, as stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acknowledge => "acknowledge",
            Self::Resolve => "resolve",
            Self::Note => "note",
        }
    }

    /// Reads the word for it.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Acknowledge, Self::Resolve, Self::Note]
            .into_iter()
            .find(|hand| hand.as_str() == word)
    }
}

/// The event that a person's hand is, for an incident that stands like this (`None` when there is none), or why
/// there is nothing to be done. The event names the incident's key as its thing.
pub fn by_hand(state: Option<IncidentState>, hand: Hand) -> Result<&'static str, &'static str> {
    match (state, hand) {
        // What became of it may be said afterwards.
        (Some(_), Hand::Note) => Ok(NOTED_BY_HAND),
        (Some(IncidentState::Open | IncidentState::Acknowledged), Hand::Acknowledge) => {
            Ok(ACKNOWLEDGED_BY_HAND)
        }
        (Some(IncidentState::Open | IncidentState::Acknowledged), Hand::Resolve) => {
            Ok(RESOLVED_BY_HAND)
        }
        (Some(IncidentState::Resolved), Hand::Acknowledge | Hand::Resolve) => {
            Err("the incident is already resolved")
        }
        (None, Hand::Acknowledge | Hand::Resolve | Hand::Note) => Err("there is no such incident"),
    }
}

/// Whether an incident that an event of a kind opened tells of slots that did not run.
pub fn is_miss(kind: &str) -> bool {
    OPENS.iter().any(|rule| rule.event == kind && rule.family == MISSED)
}

/// Whether events of a kind open incidents.
pub fn is_trouble(kind: &str) -> bool {
    OPENS.iter().any(|rule| rule.event == kind)
}

/// The kinds of incidents: those of the events that open them.
pub fn incident_kinds() -> impl Iterator<Item = &'static str> {
    OPENS.iter().map(|rule| rule.event)
}

/// How alerts of a kind of event begin to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncidentKind {
    /// How bad it is.
    pub level: Level,
    /// What routes know it by.
    pub alert_type: &'static str,
    /// What happened, as alerts say it.
    pub says: &'static str,
    /// The events that resolve it, apart from an operator.
    pub resolved_by: &'static str,
}

/// What is known of the incidents that a kind of event opens.
pub fn incident_kind(kind: &str) -> Option<IncidentKind> {
    let Opens { family, level, alert_type, says, .. } =
        OPENS.iter().find(|rule| rule.event == kind)?;
    let ends = RESOLVES.iter().find(|(_, families)| families.contains(family));
    let ends = ends.map(|(event, _)| *event).filter(|event| *event != RESOLVED_BY_HAND);
    Some(IncidentKind { level: *level, alert_type, says, resolved_by: ends.unwrap_or_default() })
}

/// Whether anything can follow from events of a kind.
pub fn has_consequences(kind: &str) -> bool {
    is_trouble(kind)
        || RESOLVES.iter().any(|(event, _)| *event == kind)
        || kind == ACKNOWLEDGED_BY_HAND
}

/// What the keys of older days begin with that are over too when this one is over by an event of this kind: a good
/// slot ends what its schedule left open before, and so does a good check after a run.
pub fn older_days<'a>(kind: &str, key: &'a str) -> Option<&'a str> {
    if kind != "JOB_COMPLETED" && kind != "POST_RUN_PASSED" {
        return None;
    }
    let (before, day) = key.rsplit_once(':')?;
    day.parse::<Date>().ok().and_then(|_| key.get(..=before.len()))
}

/// What follows from an event; nothing from most.
pub fn consequences(fact: &Fact<'_>) -> Vec<Consequence> {
    // The end of a job may end incidents of many families: what their keys have in common is written once.
    let day = fact.day.map(|(schedule, date)| format!("{}:{schedule}:{date}", fact.pipeline));
    let about = (fact, day.as_deref());
    let opened = OPENS.iter().filter(|rule| rule.event == fact.kind).filter_map(|rule| {
        Some(Consequence::Open(Finding {
            key: rule.family.key(about)?,
            level: rule.level,
            alert_type: rule.alert_type,
            summary: rule.family.sentence(fact, rule.says),
        }))
    });
    let families = RESOLVES
        .iter()
        .filter(|(event, _)| *event == fact.kind)
        .flat_map(|(_, families)| *families);
    let resolved =
        families.filter_map(|family| Some(Consequence::Resolve { key: family.key(about)? }));
    let acknowledged = NAMED.key(about).filter(|_| fact.kind == ACKNOWLEDGED_BY_HAND);
    let acknowledged = acknowledged.map(|key| Consequence::Acknowledge { key });
    opened.chain(resolved).chain(acknowledged).collect()
}

impl Family {
    /// `None` when the event does not say what the key is made of. The day comes as it is in keys.
    fn key(self, (fact, day): (&Fact<'_>, Option<&str>)) -> Option<String> {
        let prefixed = |rest: &str| [self.prefix, ":", rest].concat();
        match self.scope {
            Scope::Day => day.map(prefixed),
            Scope::Thing => fact.thing.map(prefixed),
            Scope::Pipeline => Some(prefixed(fact.pipeline.as_str())),
            Scope::Key => fact.thing.map(str::to_owned),
        }
    }

    fn sentence(self, fact: &Fact<'_>, says: &str) -> String {
        let Fact { pipeline, .. } = fact;
        match (self.scope, fact.day, fact.thing) {
            (Scope::Day, Some((schedule, date)), _) => {
                format!("Pipeline {pipeline} schedule {schedule} {says} on {date}")
            }
            (Scope::Thing, _, Some(thing)) => match thing.strip_prefix("the ") {
                Some(rest) => format!("The {rest} {says}"),
                None => format!("{thing} {says}"),
            },
            (Scope::Pipeline, ..) if **pipeline == PipelineId::system() => {
                format!("Interlock {says}")
            }
            (Scope::Day | Scope::Thing | Scope::Pipeline | Scope::Key, ..) => {
                format!("Pipeline {pipeline} {says}")
            }
        }
    }
}

/// What becomes of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It opens, for the first time or again, and is told.
    Open,
    /// One more joins what is known, silently.
    Join,
    /// Somebody looks at it; told if its opening was, and if nobody looked before.
    Acknowledge,
    /// It is over; told if its opening was.
    Resolve,
    /// Nothing.
    Nothing,
}

/// What a consequence does to an incident that stands like this, `None` when there is none.
pub fn step(state: Option<IncidentState>, consequence: &Consequence) -> Step {
    match (consequence, state) {
        (Consequence::Open(_), None | Some(IncidentState::Resolved)) => Step::Open,
        (Consequence::Open(_), Some(IncidentState::Open | IncidentState::Acknowledged)) => {
            Step::Join
        }
        (Consequence::Resolve { .. }, Some(IncidentState::Open | IncidentState::Acknowledged)) => {
            Step::Resolve
        }
        (
            Consequence::Acknowledge { .. },
            Some(IncidentState::Open | IncidentState::Acknowledged),
        ) => Step::Acknowledge,
        (
            Consequence::Resolve { .. } | Consequence::Acknowledge { .. },
            None | Some(IncidentState::Resolved),
        ) => Step::Nothing,
    }
}

#[cfg(test)]
mod tests;
