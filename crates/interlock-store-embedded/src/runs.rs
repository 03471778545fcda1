//! Listings of runs, newest first.
//!
//! Runs of one pipeline are found like its slots: by an index by hour, here of their creation, walked
//! backwards.

use std::sync::Arc;

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{Key, Page, RunKey, RunPlace, RunQuery, RunRow};
use rusqlite::{CachedStatement, Connection, Row, named_params};

use crate::{
    failure::Failure,
    ledger::HOUR,
    memory::name_id,
    read::{decoded, instant, one_more, page, timestamp},
};

/// Runs, newest first.
pub(crate) fn runs(db: &Connection, query: &RunQuery) -> Result<Page<RunRow>, Failure> {
    let found = match (&query.pipeline, &query.slot) {
        (Some(pipeline), None) => runs_of(db, pipeline, query)?,
        _ => runs_of_all(db, query)?,
    };
    Ok(page(found, query.limit))
}

/// The statement for a source and a condition that says where in it to look.
fn statement<'a>(
    db: &'a Connection,
    query: &RunQuery,
    source: &str,
    place: &str,
) -> Result<CachedStatement<'a>, rusqlite::Error> {
    // The first comparison follows from the second; it is the one that an index is entered by.
    let after = if query.after.is_some() {
        "AND r.created_at <= :after_at AND (r.created_at, n.name, r.schedule, r.nominal, r.generation, r.attempt)
           < (:after_at, :after_pipeline, :after_schedule, :after_nominal, :after_generation, :after_attempt)"
    } else {
        ""
    };
    db.prepare_cached(&format!(
        "SELECT r.nominal, n.name, r.schedule, r.generation, r.attempt, r.revision, r.body
         FROM runs r {source} CROSS JOIN names n ON n.id = r.pipeline
         WHERE {place}
           AND (:status IS NULL OR r.status = :status)
           AND (:trigger_type IS NULL OR r.trigger_type = :trigger_type)
           {after}
         ORDER BY r.created_at DESC, n.name DESC, r.schedule DESC, r.nominal DESC,
           r.generation DESC, r.attempt DESC
         LIMIT :limit"
    ))
}

/// Runs of one pipeline, hour by hour.
fn runs_of(
    db: &Connection,
    pipeline: &PipelineId,
    query: &RunQuery,
) -> Result<Vec<RunRow>, Failure> {
    let Some(id) = name_id(db, pipeline)? else { return Ok(vec![]) };
    let newest = "SELECT max(created_at) FROM runs WHERE created_at < ?1";
    let mut newest = db.prepare_cached(newest)?;
    let place = "r.created_at / 3600000000 = :hour AND r.pipeline = :pipeline";
    let mut statement = statement(db, query, "INDEXED BY runs_by_hour", place)?;
    let mut found = Vec::new();
    let after = query.after.as_ref();
    let mut before = after.map_or(i64::MAX, |after| instant(after.created_at).saturating_add(1));
    while found.len() <= query.limit
        && let Some(at) = newest.query_one([before], |row| row.get::<_, Option<i64>>(0))?
    {
        let hour = at / HOUR;
        let parameters = named_params! {
            ":hour": hour,
            ":pipeline": id,
            ":status": query.status,
            ":trigger_type": query.trigger_type,
            ":limit": one_more(query.limit) - found.len() as i64,
        };
        collect(&mut statement, query, parameters, &mut found)?;
        // Division rounds towards zero, so the hours before 1970 have other edges.
        before = if hour > 0 { hour * HOUR } else { (hour - 1) * HOUR + 1 };
    }
    Ok(found)
}

/// Runs of all pipelines, or of one slot.
fn runs_of_all(db: &Connection, query: &RunQuery) -> Result<Vec<RunRow>, Failure> {
    let limit = one_more(query.limit);
    let (status, trigger_type) = (&query.status, &query.trigger_type);
    let mut found = Vec::new();
    if let Some((schedule, nominal)) = &query.slot {
        let place = "r.nominal = :nominal AND r.schedule = :schedule
            AND (:pipeline IS NULL OR r.pipeline = (SELECT id FROM names WHERE name = :pipeline))";
        let parameters = named_params! {
            ":nominal": instant(*nominal),
            ":schedule": schedule.as_str(),
            ":pipeline": query.pipeline.as_ref().map(PipelineId::as_str),
            ":status": status,
            ":trigger_type": trigger_type,
            ":limit": limit,
        };
        collect(&mut statement(db, query, "", place)?, query, parameters, &mut found)?;
        return Ok(found);
    }
    let (source, place) = match (status.as_deref(), trigger_type) {
        (Some(status), _) if status != "COMPLETED" => {
            ("INDEXED BY runs_by_status", "r.status = :status AND r.status <> 'COMPLETED'")
        }
        (_, Some(_)) => ("INDEXED BY runs_by_trigger_type", "r.trigger_type = :trigger_type"),
        _ => ("INDEXED BY runs_by_creation", "TRUE"),
    };
    let parameters =
        named_params! { ":status": status, ":trigger_type": trigger_type, ":limit": limit };
    collect(&mut statement(db, query, source, place)?, query, parameters, &mut found)?;
    Ok(found)
}

fn collect(
    statement: &mut CachedStatement<'_>,
    query: &RunQuery,
    parameters: &[(&str, &dyn rusqlite::ToSql)],
    found: &mut Vec<RunRow>,
) -> Result<(), Failure> {
    let mut rows = match &query.after {
        None => statement.query(parameters)?,
        Some(RunPlace { created_at, pipeline, key }) => {
            let after = named_params! {
                ":after_at": instant(*created_at),
                ":after_pipeline": pipeline.as_str(),
                ":after_schedule": key.schedule.as_str(),
                ":after_nominal": instant(key.nominal),
                ":after_generation": key.generation,
                ":after_attempt": key.attempt,
            };
            statement.query([parameters, after].concat().as_slice())?
        }
    };
    while let Some(row) = rows.next()? {
        found.push(run_row(row)?);
    }
    Ok(())
}

fn run_row(row: &Row<'_>) -> Result<RunRow, Failure> {
    let key = RunKey {
        schedule: ScheduleId::any(&row.get::<_, String>(2)?)?,
        nominal: timestamp(row.get(0)?)?,
        generation: row.get(3)?,
        attempt: row.get(4)?,
    };
    let record =
        Arc::unwrap_or_clone(decoded!(Run, &Key::Run(key.clone()), &row.get::<_, String>(6)?));
    let pipeline = PipelineId::any(&row.get::<_, String>(1)?)?;
    Ok(RunRow { pipeline, key, record, revision: row.get::<_, i64>(5)? as u64 })
}
