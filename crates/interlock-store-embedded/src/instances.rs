//! What instances say of themselves: a row each, written over and over.

use interlock_store::{INSTANCES_KEPT, InstanceRow, record::InstanceRecord};
use jiff::Timestamp;
use rusqlite::{Connection, params};

use crate::{
    failure::Failure,
    read::{instant, timestamp},
};

/// Keeps what an instance says; what others said long ago goes.
pub(crate) fn report(
    db: &Connection,
    (instance, body): (&str, &str),
    now: Timestamp,
) -> Result<(), Failure> {
    let oldest = instant(now).saturating_sub(INSTANCES_KEPT.as_micros() as i64);
    db.prepare_cached("DELETE FROM instances WHERE said_at < ?1")?.execute([oldest])?;
    db.prepare_cached("INSERT OR REPLACE INTO instances VALUES (?1, ?2, ?3)")?.execute(params![
        instance,
        instant(now),
        body
    ])?;
    Ok(())
}

/// What all of them said last, by name.
pub(crate) fn all(db: &Connection) -> Result<Vec<InstanceRow>, Failure> {
    let sql = "SELECT instance, said_at, body FROM instances ORDER BY instance";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let record = InstanceRecord::decode(&row.get::<_, String>(2)?)?;
        let (instance, said_at) = (row.get(0)?, timestamp(row.get(1)?)?);
        found.push(InstanceRow { instance, said_at, record });
    }
    Ok(found)
}
