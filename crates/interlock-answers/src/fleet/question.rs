//! What is asked about the fleet, checked.

use std::collections::BTreeSet;

use interlock_core::{id::PipelineId, zone::Zone};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::{
    cells::{QUARTER, Quarter},
    tallied::{TalliedAbout, first_kept},
};
use crate::{
    AnswerError, Cursor, Declarations, ErrorCode,
    listing::limit,
    model::fleet::{FleetOrder, FleetPlace, FleetQuery, FleetState},
};

/// What the range is when it is not said: so far back, and a quarter of that ahead.
const BACK: SignedDuration = SignedDuration::from_hours(12);
const AHEAD_OF: i32 = 4;
/// The longest range.
const RANGE_MAX: SignedDuration = SignedDuration::from_hours(120 * 24);
/// Buckets when their width is not said, and at most.
const BUCKETS: i64 = 100;
const BUCKETS_MAX: i64 = 1_000;
/// Pixels of the range when it is not said.
const WIDTH: u32 = 900;
/// Pixels between slots that are shown each by itself.
const SLOT_PIXELS: i64 = 6;
/// Rows that need attention and come before groups.
const ATTENTION: usize = 20;
/// The list that a cursor is of.
const LIST: &str = "fleet";
/// Seconds of an hour: so exact is what is known of the time before the last 48 hours.
const HOUR: i64 = 3_600;

/// A question about the fleet.
#[derive(Debug, Clone)]
pub(super) struct FleetQuestion {
    pub(super) now: Timestamp,
    pub(super) from: Quarter,
    pub(super) until: Quarter,
    pub(super) bucket: i64,
    pub(super) width: i64,
    pub(super) zone: TimeZone,
    pub(super) zone_name: String,
    pub(super) group: Option<GroupBy>,
    pub(super) expand: BTreeSet<String>,
    pub(super) collapse: BTreeSet<String>,
    pub(super) members: Option<usize>,
    pub(super) attention: usize,
    pub(super) filter: FleetFilter,
    pub(super) order: FleetOrder,
    pub(super) after: Option<SortKey>,
    pub(super) limit: usize,
}

/// By what pipelines are grouped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GroupBy {
    Owner,
    Label(String),
}

/// Which pipelines are asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct FleetFilter {
    q: Option<String>,
    owners: Vec<String>,
    labels: Vec<(String, Option<String>)>,
    pub(super) states: Vec<StateFilter>,
}

/// Which rows are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateFilter {
    State(FleetState),
    Attention,
    Place(FleetPlace),
}

/// Where a row stands in the order of a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SortKey {
    pub(super) rank: i64,
    pub(super) name: String,
}

impl SortKey {
    fn decode(text: &str) -> Result<Self, AnswerError> {
        let named = Cursor::decode(text)?.named(LIST)?;
        let (rank, name) = named.split_once('/').ok_or_else(crate::cursor::not_ours)?;
        let rank = rank.parse().map_err(|_no_number| crate::cursor::not_ours())?;
        Ok(Self { rank, name: name.to_owned() })
    }

    /// The cursor behind it.
    pub(super) fn encode(&self) -> String {
        let name = format!("{}/{}", self.rank, self.name);
        Cursor::Named { list: LIST.to_owned(), name }.encode()
    }
}

impl GroupBy {
    /// The group of a pipeline; none of one without an owner or that label.
    pub(super) fn of<'a>(&self, about: &'a TalliedAbout) -> Option<&'a str> {
        match self {
            Self::Owner => about.owner.as_deref(),
            Self::Label(key) => about.labels.get(key).map(String::as_str),
        }
    }
}

impl FleetQuestion {
    /// What is asked, if it can be.
    pub(super) fn of(
        asked: &FleetQuery,
        declarations: &dyn Declarations,
        now: Timestamp,
    ) -> Result<Self, AnswerError> {
        let (from, until) = range(asked, now)?;
        let (bucket, until) = buckets(asked.bucket, from, until, now)?;
        let zone = zone(asked.tz.as_deref(), declarations)?;
        let width = match asked.width {
            None => WIDTH,
            Some(width @ 100..=20_000) => width,
            Some(width) => {
                return Err(refused(format!("`width` is {width}"), "It is 100 to 20,000 pixels."));
            }
        };
        Ok(Self {
            now,
            from,
            until,
            bucket,
            width: i64::from(width),
            zone_name: zone.as_ref().map_or("UTC", Zone::name).to_owned(),
            zone: zone.map_or(TimeZone::UTC, |zone| zone.time_zone().clone()),
            group: asked.group.as_deref().map(group_by).transpose()?.flatten(),
            expand: asked.expand.iter().cloned().collect(),
            collapse: asked.collapse.iter().cloned().collect(),
            members: asked.members,
            attention: asked.attention.unwrap_or(ATTENTION),
            filter: FleetFilter::of(asked)?,
            order: asked.order.unwrap_or_default(),
            after: asked.after.as_deref().map(SortKey::decode).transpose()?,
            limit: limit(asked.limit)?,
        })
    }

    /// How many buckets the range has.
    pub(super) fn buckets(&self) -> u32 {
        ((self.until.0 - self.from.0) * QUARTER / self.bucket) as u32
    }

    /// The bucket of a quarter of the range.
    pub(super) fn bucket_of(&self, at: Quarter) -> Option<u32> {
        let is_within = self.from <= at && at < self.until;
        is_within.then(|| ((at.0 - self.from.0) * QUARTER / self.bucket) as u32)
    }

    /// How many slots of the range can be shown each by itself.
    pub(super) fn slots_apart(&self) -> u64 {
        (self.width / SLOT_PIXELS) as u64
    }

    /// How many seconds a pixel stands for.
    pub(super) fn seconds_per_pixel(&self) -> i64 {
        (self.until.0 - self.from.0) * QUARTER / self.width
    }

    /// The last midnight of the zone.
    pub(super) fn midnight(&self) -> Timestamp {
        let local = self.now.to_zoned(self.zone.clone());
        local.start_of_day().map_or(self.now, |midnight| midnight.timestamp())
    }
}

impl FleetFilter {
    fn of(asked: &FleetQuery) -> Result<Self, AnswerError> {
        let label = |text: &String| match text.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (text.clone(), None),
        };
        Ok(Self {
            q: asked.q.as_deref().filter(|q| !q.is_empty()).map(str::to_lowercase),
            owners: asked.owner.clone(),
            labels: asked.label.iter().map(label).collect(),
            states: asked
                .state
                .iter()
                .map(|word| StateFilter::parse(word))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether it leaves out no pipeline, whatever the states that are asked for.
    pub(super) fn is_of_all(&self) -> bool {
        self.q.is_none() && self.owners.is_empty() && self.labels.is_empty()
    }

    /// Whether a pipeline is asked for, whatever its state.
    pub(super) fn holds(&self, name: &PipelineId, about: &TalliedAbout) -> bool {
        let owner = about.owner.as_deref().unwrap_or_default();
        let has_label = |(key, value): &(String, Option<String>)| {
            let found = about.labels.get(key);
            found.is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
        };
        let has_text = |q: &String| {
            name.as_str().contains(q)
                || owner.to_lowercase().contains(q)
                || about.description.as_deref().is_some_and(|text| text.to_lowercase().contains(q))
        };
        (self.owners.is_empty() || self.owners.iter().any(|one| one == owner))
            && (self.labels.is_empty() || self.labels.iter().any(has_label))
            && self.q.as_ref().is_none_or(has_text)
    }
}

impl StateFilter {
    fn parse(word: &str) -> Result<Self, AnswerError> {
        if word == "attention" {
            return Ok(Self::Attention);
        }
        let state = FleetState::ALL.into_iter().find(|state| state.as_str() == word);
        let places = [FleetPlace::CaughtUp, FleetPlace::Skipped, FleetPlace::Cancelled];
        let place = places.into_iter().find(|place| place.as_str() == word);
        let found = state.map(Self::State).or(place.map(Self::Place));
        found.ok_or_else(|| {
            let words: Vec<_> = FleetState::ALL.into_iter().map(FleetState::as_str).collect();
            let hint = format!("attention, {}, caughtUp, skipped, cancelled.", words.join(", "));
            refused(format!("`state` is `{word}`"), &hint)
        })
    }
}

impl FleetState {
    /// All of them, worst first.
    pub const ALL: [Self; 13] = [
        Self::Failed,
        Self::Missed,
        Self::Unknown,
        Self::NotReady,
        Self::AtRisk,
        Self::Late,
        Self::CatchingUp,
        Self::PausedLong,
        Self::Running,
        Self::Waiting,
        Self::Paused,
        Self::OnTime,
        Self::NotDue,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Missed => "missed",
            Self::Unknown => "unknown",
            Self::NotReady => "notReady",
            Self::AtRisk => "atRisk",
            Self::Late => "late",
            Self::CatchingUp => "catchingUp",
            Self::PausedLong => "pausedLong",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::OnTime => "onTime",
            Self::NotDue => "notDue",
        }
    }

    /// Whether it needs a person.
    pub fn needs_attention(self) -> bool {
        self <= Self::PausedLong
    }
}

fn range(asked: &FleetQuery, now: Timestamp) -> Result<(Quarter, Quarter), AnswerError> {
    let from = asked.from.unwrap_or_else(|| now.saturating_sub(BACK).unwrap_or(now));
    let ahead = now.duration_since(from).max(SignedDuration::ZERO) / AHEAD_OF;
    let until = asked.until.unwrap_or_else(|| {
        let end = now.saturating_add(ahead).unwrap_or(Timestamp::MAX);
        end.max(from.saturating_add(SignedDuration::from_hours(1)).unwrap_or(end))
    });
    let length = until.duration_since(from);
    if !(SignedDuration::from_secs(1)..=RANGE_MAX).contains(&length) {
        let message = format!("the range from {from} until {until} cannot be shown");
        return Err(refused(message, "It ends after it begins, at most 120 days later."));
    }
    let mut from = Quarter::of(from);
    if from < first_kept(now) {
        from = Quarter(from.0.div_euclid(HOUR / QUARTER) * (HOUR / QUARTER));
    }
    Ok((from, Quarter::at_or_after(until)))
}

/// How wide buckets are, and where the last one ends.
fn buckets(
    asked: Option<u32>,
    from: Quarter,
    until: Quarter,
    now: Timestamp,
) -> Result<(i64, Quarter), AnswerError> {
    // So exact is what is known.
    let unit = if from < first_kept(now) { HOUR } else { QUARTER };
    let length = (until.0 - from.0) * QUARTER;
    let bucket = match asked.map(i64::from) {
        None => multiple((length + BUCKETS - 1) / BUCKETS, unit),
        Some(bucket) if bucket > 0 && bucket % QUARTER == 0 => multiple(bucket, unit),
        Some(bucket) => {
            return Err(refused(
                format!("`bucket` is {bucket}"),
                "It is a multiple of 900 seconds.",
            ));
        }
    };
    let count = (length + bucket - 1) / bucket;
    if count > BUCKETS_MAX {
        return Err(refused(
            format!("`bucket` makes {count} buckets"),
            "At most 1,000 are counted: make them wider, or the range shorter.",
        ));
    }
    Ok((bucket, from.after(count * bucket / QUARTER)))
}

/// The next multiple of a unit, at least one.
fn multiple(length: i64, unit: i64) -> i64 {
    ((length + unit - 1) / unit).max(1) * unit
}

fn zone(asked: Option<&str>, declarations: &dyn Declarations) -> Result<Option<Zone>, AnswerError> {
    let Some(name) = asked.filter(|name| *name != "UTC") else { return Ok(None) };
    let found = declarations.zone(name);
    found.map(Some).ok_or_else(|| {
        refused(format!("`tz` is `{name}`"), "It is a name such as `Europe/Berlin`.")
    })
}

fn group_by(word: &str) -> Result<Option<GroupBy>, AnswerError> {
    match word.split_once(':') {
        None if word == "none" => Ok(None),
        None if word == "owner" => Ok(Some(GroupBy::Owner)),
        Some(("label", key)) if !key.is_empty() => Ok(Some(GroupBy::Label(key.to_owned()))),
        _ => Err(refused(
            format!("`group` is `{word}`"),
            "It is `owner`, `none`, or `label:` and the key of a label.",
        )),
    }
}

fn refused(message: String, hint: &str) -> AnswerError {
    AnswerError::question(ErrorCode::BadParameter, message, hint.to_owned())
}
