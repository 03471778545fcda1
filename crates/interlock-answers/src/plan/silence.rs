//! Which alerts a silence would keep back: incidents that are open, and those of the last week that would have been.

use std::collections::{BTreeMap, BTreeSet};

use interlock_config::{
    SystemZones,
    route::Subject,
    server::AlertFilter,
    silence::{Silence, Windows},
};
use interlock_core::{
    duration::{self, Units},
    id::PipelineId,
    text::TextError,
};
use interlock_store::{IncidentPlace, IncidentQuery, Row, Shard, record::IncidentRecord};
use jiff::{SignedDuration, Timestamp};

use crate::{
    AnswerError, ErrorCode, Reader,
    model::plan::{
        AlertFilterAnswer, HiddenIncidentAnswer, PlanHash, SilencePlanAnswer, SilencePlanRequest,
    },
    model::silence::SilenceAnswer,
    read::silence::silence_answer,
};

/// A preview looks so far back: what would have been hidden lately is what will be hidden.
const LOOKS_BACK: SignedDuration = SignedDuration::from_hours(7 * 24);
/// So many incidents are looked through, of those that are open and of the others.
const INCIDENTS_MAX: usize = 10_000;
/// Rows asked for at once.
const PAGE: usize = 1_000;

/// An incident with its pipeline and its key.
type IncidentRow = (PipelineId, String, Row<IncidentRecord>);

/// Incidents that a silence may be about.
#[derive(Default)]
struct RecentIncidents {
    rows: Vec<IncidentRow>,
    more: bool,
}

impl Reader<'_> {
    /// What a silence would hide.
    pub async fn plan_silence(
        &self,
        asked: &SilencePlanRequest,
        by: &str,
    ) -> Result<SilencePlanAnswer, AnswerError> {
        let silence = silence_of(asked, by, self.now)?;
        self.silence_plan(&silence).await
    }

    /// What a silence would hide that is put together already.
    pub async fn silence_plan(&self, silence: &Silence) -> Result<SilencePlanAnswer, AnswerError> {
        let RecentIncidents { mut rows, more } = self.recent_incidents().await?;
        let declared = if silence.when.owners.is_empty() && silence.when.labels.is_empty() {
            BTreeMap::new()
        } else {
            // What belongs to no pipeline has no owner.
            let own = rows.iter().filter(|row| row.0 != PipelineId::system());
            let names: BTreeSet<String> = own.map(|row| row.0.to_string()).collect();
            self.declared_of(&names.into_iter().collect::<Vec<_>>()).await?
        };
        rows.retain(|(pipeline, _, row)| {
            let (declared, record) = (declared.get(pipeline), &row.record);
            let alert_type = record.details.get("type").and_then(serde_json::Value::as_str);
            silence.when.matches(&Subject {
                level: &record.level,
                alert_type: alert_type.unwrap_or_default(),
                pipeline: pipeline.as_str(),
                owner: declared.and_then(|declared| declared.owner.as_deref()),
                labels: declared.map(|declared| &declared.labels),
            })
        });
        let incidents = rows.into_iter().map(|(pipeline, key, row)| HiddenIncidentAnswer {
            pipeline: pipeline.to_string(),
            key,
            state: row.record.state.to_string(),
            opened_at: row.record.opened_at,
        });
        Ok(plan_of(silence, incidents.collect(), PlanScope { now: self.now, more }))
    }

    /// The incidents that are open, and those of the last week, each newest first.
    async fn recent_incidents(&self) -> Result<RecentIncidents, AnswerError> {
        let mut found = RecentIncidents::default();
        for shard in (0..self.store.shard_count()).map(Shard) {
            let mut after: Option<(PipelineId, String)> = None;
            loop {
                let page = self.store.open_incidents(shard, after.as_ref(), PAGE).await?;
                after = page.items.last().map(|(name, key, _)| (name.clone(), key.clone()));
                found.rows.extend(page.items);
                if !page.more {
                    break;
                }
                if found.rows.len() >= INCIDENTS_MAX {
                    found.more = true;
                    break;
                }
            }
        }
        found.rows.sort_by_key(|(.., row)| std::cmp::Reverse(row.record.opened_at));
        let since = self.now.saturating_sub(LOOKS_BACK).unwrap_or(Timestamp::MIN);
        let mut query =
            IncidentQuery { pipeline: None, is_open: Some(false), after: None, limit: PAGE };
        for _ in 0..INCIDENTS_MAX / PAGE {
            let page = self.store.incidents_by(&query).await?;
            query.after = page.items.last().map(IncidentPlace::of);
            let is_old = page.items.last().is_some_and(|(.., row)| row.record.opened_at < since);
            let recent = |row: &IncidentRow| row.2.record.opened_at >= since;
            found.rows.extend(page.items.into_iter().filter(recent));
            if is_old || !page.more {
                return Ok(found);
            }
        }
        found.more = true;
        Ok(found)
    }
}

/// As of when a preview is, and whether it saw everything.
#[derive(Clone, Copy)]
struct PlanScope {
    now: Timestamp,
    more: bool,
}

fn plan_of(
    silence: &Silence,
    incidents: Vec<HiddenIncidentAnswer>,
    scope: PlanScope,
) -> SilencePlanAnswer {
    let SilenceAnswer { when, windows, .. } = silence_answer(silence, scope.now);
    let mut hash = PlanHash::default();
    hash.add(&format!("{when:?} {windows:?}"));
    for incident in &incidents {
        hash.add(&format!("{}/{} {}", incident.pipeline, incident.key, incident.state));
    }
    SilencePlanAnswer {
        id: silence.id.clone(),
        when,
        from: silence.from,
        until: silence.until,
        windows,
        reason: silence.reason.clone(),
        by: silence.by.clone(),
        is_in_force: silence.in_force(scope.now).is_some(),
        plan: hash.finish(),
        incidents,
        more: scope.more,
    }
}

fn refused(message: impl Into<String>, hint: impl Into<String>) -> AnswerError {
    AnswerError::question(ErrorCode::BadParameter, message.into(), hint.into())
}

/// The silence that is asked for.
pub fn silence_of(
    asked: &SilencePlanRequest,
    by: &str,
    now: Timestamp,
) -> Result<Silence, AnswerError> {
    let zones = SystemZones::new();
    let wrong = |error: TextError| refused(error.message, error.help);
    let zone = asked.timezone.as_deref().unwrap_or("UTC");
    let length = asked.length.as_deref().map(|text| duration::parse(text, Units::SecondsToDays));
    let length = length.transpose().map_err(wrong)?;
    let windows = match (&asked.weekly, &asked.cron, length) {
        (Some(weekly), ..) => Some(Windows::weekly(weekly, zone, &zones).map_err(wrong)?),
        (None, Some(cron), Some(length)) => {
            Some(Windows::new(cron, zone, length, &zones).map_err(wrong)?)
        }
        (None, Some(_), None) => {
            return Err(refused("windows need a length", "Say `for`, such as `2h`."));
        }
        (None, None, _) => None,
    };
    let from = asked.from.unwrap_or(now);
    let length = length.filter(|_| asked.cron.is_none());
    let until = asked.until.or_else(|| length.and_then(|length| from.saturating_add(length).ok()));
    if until.is_none() && windows.is_none() {
        let help =
            "Write `--for 2h` or `--until T`; or when it recurs, with `--weekly` or `--cron`.";
        return Err(refused("a silence needs an end", help));
    }
    if let Some(until) = until.filter(|until| *until <= now.max(from)) {
        return Err(AnswerError::question(
            ErrorCode::BadTime,
            format!("{until} is already over"),
            String::new(),
        ));
    }
    let id = asked.id.clone().unwrap_or_else(|| fresh_id(asked, now));
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if id.is_empty() || !id.chars().all(is_name) {
        let help = "Use letters, digits, `-`, `_` and `.`.";
        return Err(refused(format!("`{id}` cannot be the name of a silence"), help));
    }
    let (reason, by) = (asked.reason.clone(), by.to_owned());
    Ok(Silence { id, when: filter_of(&asked.when)?, from, until, windows, reason, by })
}

/// A name that depends on what is asked for and when.
fn fresh_id(asked: &SilencePlanRequest, now: Timestamp) -> String {
    let hash = interlock_core::id::fnv1a(format!("{asked:?} {now}").as_bytes());
    format!("s-{:06x}", hash & 0xff_ffff)
}

fn filter_of(asked: &AlertFilterAnswer) -> Result<AlertFilter, AnswerError> {
    let AlertFilterAnswer { levels, types, pipelines, owners, labels } = asked.clone();
    let filter = AlertFilter { levels, types, pipelines, owners, labels };
    if filter == AlertFilter::default() {
        let help = "Name a pipeline, a type, a level, an owner or a label; `--pipeline '*'` for everything.";
        return Err(refused("what is to be kept back?", help));
    }
    Ok(filter)
}
