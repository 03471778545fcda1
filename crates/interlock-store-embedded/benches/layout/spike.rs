//! The measurements that decided the layout of the ledger.

use std::path::Path;

use rusqlite::{Connection, params, types::Value};

use crate::{
    Outcome,
    candidates::{ALL, Candidate, FillOrder, Find, SHARED},
    now, percentile,
};

const PIPELINES: i64 = 10_000;
const HOUR: i64 = 3_600_000_000;
/// 2026-01-01, on the hour.
const ORIGIN: i64 = 1_767_225_600_000_000;
/// How many groups the writer takes into one transaction.
const GROUPS: usize = 2_000;

const SLOT: &str = r#"{"format":1,"state":"waiting","generation":1,"attempt":0,"openedBy":"schedule","date":"2026-02-25","openedAt":"2026-02-25T09:00:00.123456Z","closesAt":"2026-02-26T09:00:00Z","version":"0123456789abcdef"}"#;
const EVENT: &str = r#"{"format":1,"kind":"SLOT_OPENED","at":"2026-02-25T09:00:00.123456Z","slot":"hourly/2026-02-25T09:00:00Z","message":"the slot is due"}"#;
const WATERMARK: &str = r#"{"format":1,"at":"2026-02-25T09:00:00Z"}"#;
const DUE: &str = r#"{"format":1,"details":{}}"#;

/// Measures every candidate, or one.
pub(crate) fn run(rows: i64, only: Option<&str>) -> Outcome<()> {
    for candidate in ALL.iter().filter(|it| only.is_none_or(|only| only == it.name)) {
        let folder = tempfile::tempdir_in(".")?;
        let mut bench = Bench::fill(candidate, &folder.path().join("ledger.db"), rows)?;
        bench.instant()?;
        bench.catch_up()?;
        bench.listing()?;
    }
    Ok(())
}

struct Bench<'a> {
    candidate: &'a Candidate,
    db: Connection,
    hours: i64,
}

impl<'a> Bench<'a> {
    fn fill(candidate: &'a Candidate, path: &Path, rows: i64) -> Outcome<Self> {
        let begun = now();
        let hours = rows / PIPELINES;
        let mut db = Connection::open(path)?;
        db.execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -400000;",
        )?;
        db.execute_batch(candidate.schema)?;
        db.execute_batch(SHARED)?;
        let transaction = db.transaction()?;
        match candidate.fill_order {
            FillOrder::Time => {
                for (hour, pipeline) in pairs(hours, PIPELINES) {
                    candidate.close_slot(&transaction, pipeline, hour)?;
                }
            }
            FillOrder::Pipeline => {
                for (pipeline, hour) in pairs(PIPELINES, hours) {
                    candidate.close_slot(&transaction, pipeline, hour)?;
                }
            }
        }
        for number in 0..rows {
            transaction
                .prepare_cached("INSERT INTO events (number, pipeline, body) VALUES (?1, ?2, ?3)")?
                .execute(params![number + 1, candidate.pipeline(number % PIPELINES), EVENT])?;
        }
        for pipeline in 0..PIPELINES {
            let row = params![candidate.pipeline(pipeline), WATERMARK];
            transaction.execute("INSERT INTO watermarks VALUES (?1, 'hourly', 1, ?2)", row)?;
        }
        transaction.commit()?;
        db.execute_batch(candidate.indexes)?;
        drop(db);
        candidate.say("filled", "seconds", begun.elapsed().as_secs_f64());
        candidate.say("file", "rss_mb", std::fs::metadata(path)?.len() as f64 / 1e6);
        Ok(Self { candidate, db: reopened(path)?, hours })
    }

    /// 10,000 slots at one instant, ten times; each is done when its transaction is durable.
    fn instant(&mut self) -> Outcome<()> {
        let mut latencies = Vec::new();
        let begun = now();
        for hour in self.hours..self.hours + 10 {
            let due = now();
            for chunk in 0..PIPELINES / GROUPS as i64 {
                let transaction = self.db.transaction()?;
                for index in 0..GROUPS as i64 {
                    let pipeline = self.candidate.pipeline(chunk * GROUPS as i64 + index);
                    open_slot(&transaction, &pipeline, "hourly", ORIGIN + hour * HOUR)?;
                    record(&transaction, &pipeline, "hourly")?;
                    remind(&transaction, &pipeline, "hourly", ORIGIN + hour * HOUR)?;
                }
                transaction.commit()?;
                latencies.extend(std::iter::repeat_n(due.elapsed(), GROUPS));
            }
        }
        let total = begun.elapsed().as_secs_f64();
        latencies.sort();
        self.candidate.say("instant_p99", "seconds", percentile(&latencies, 0.99));
        self.candidate.say("instant", "per_second", latencies.len() as f64 / total);
        Ok(())
    }

    /// 72 hours of 50 pipelines that owe a slot each minute: groups of 20 slots.
    fn catch_up(&mut self) -> Outcome<()> {
        let begun = now();
        let first = ORIGIN + (self.hours - 72).max(0) * HOUR;
        let minute = HOUR / 60;
        let groups: Vec<(i64, i64)> =
            (0..216).flat_map(|group| (0..50).map(move |pipeline| (group, pipeline))).collect();
        for chunk in groups.chunks(GROUPS) {
            let transaction = self.db.transaction()?;
            for (group, pipeline) in chunk {
                let pipeline = self.candidate.pipeline(pipeline * 199);
                for slot in group * 20..group * 20 + 20 {
                    open_slot(&transaction, &pipeline, "minutely", first + slot * minute)?;
                }
                record(&transaction, &pipeline, "minutely")?;
            }
            transaction.commit()?;
        }
        self.candidate.say("catch_up", "per_second", 216_000.0 / begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// `slots P --from …`: 1,000 rows of one pipeline from the middle on; then one without any.
    fn listing(&mut self) -> Outcome<()> {
        let middle = ORIGIN + self.hours / 2 * HOUR;
        let end = ORIGIN + (self.hours + 10) * HOUR;
        let mut times = Vec::new();
        for round in 0..200 {
            let begun = now();
            let found =
                self.find(&self.candidate.pipeline(round * 7919 % PIPELINES), middle, end)?;
            times.push(begun.elapsed());
            assert!(found > 100, "{found}");
        }
        times.sort();
        self.candidate.say("listing_p50", "seconds", percentile(&times, 0.5));
        self.candidate.say("listing_p99", "seconds", percentile(&times, 0.99));
        let begun = now();
        self.find(&self.candidate.pipeline(PIPELINES + 1), ORIGIN, end)?;
        self.candidate.say("listing_none", "seconds", begun.elapsed().as_secs_f64());
        let begun = now();
        let mut statement = self.db.prepare(
            "SELECT nominal, pipeline, schedule, body FROM slots WHERE nominal >= ?1 ORDER BY nominal, pipeline LIMIT 1000")?;
        let found = statement.query_map([middle], |row| row.get::<_, String>(3))?.count();
        self.candidate.say("listing_all", "seconds", begun.elapsed().as_secs_f64());
        assert_eq!(found, 1_000);
        Ok(())
    }

    fn find(&self, pipeline: &Value, from: i64, until: i64) -> Outcome<usize> {
        let mut found = 0;
        if self.candidate.find == Find::Range {
            let sql =
                "SELECT nominal, schedule, body FROM slots WHERE pipeline = ?1 AND nominal >= ?2
                 AND nominal < ?3 ORDER BY nominal, schedule LIMIT 1000";
            let mut statement = self.db.prepare_cached(sql)?;
            let rows = statement
                .query_map(params![pipeline, from, until], |row| row.get::<_, String>(2))?;
            return Ok(rows.count());
        }
        let sql = "SELECT nominal, schedule, body FROM slots INDEXED BY slots_by_hour
             WHERE nominal / 3600000000 = ?1 AND pipeline = ?2 ORDER BY nominal, schedule LIMIT 1000";
        let mut statement = self.db.prepare_cached(sql)?;
        for hour in from / HOUR..=until / HOUR {
            found += statement
                .query_map(params![hour, pipeline], |row| row.get::<_, String>(2))?
                .count();
            if found >= 1_000 {
                break;
            }
        }
        Ok(found)
    }
}

impl Candidate {
    /// A slot of history.
    fn close_slot(&self, db: &Connection, pipeline: i64, hour: i64) -> Outcome<()> {
        db.prepare_cached(
            "INSERT INTO slots (nominal, pipeline, schedule, revision, open, disposition, body)
             VALUES (?1, ?2, 'hourly', 3, 0, 'completed', ?3)",
        )?
        .execute(params![ORIGIN + hour * HOUR, self.pipeline(pipeline), SLOT])?;
        Ok(())
    }

    fn pipeline(&self, number: i64) -> Value {
        if self.named {
            Value::Text(format!("pipeline-{number:06}"))
        } else {
            Value::Integer(number)
        }
    }

    fn say(&self, figure: &str, unit: &str, value: f64) {
        println!("RESULT name=layout/{}/{figure} {unit}={value:.6}", self.name);
    }
}

fn open_slot(db: &Connection, pipeline: &Value, schedule: &str, nominal: i64) -> Outcome<()> {
    db.prepare_cached(
        "INSERT INTO slots (nominal, pipeline, schedule, revision, open, disposition, body)
         VALUES (?1, ?2, ?3, 1, 1, NULL, ?4)",
    )?
    .execute(params![nominal, pipeline, schedule, SLOT])?;
    Ok(())
}

/// The event and the watermark that go with a group.
fn record(db: &Connection, pipeline: &Value, schedule: &str) -> Outcome<()> {
    db.prepare_cached("INSERT INTO events (pipeline, body) VALUES (?1, ?2)")?
        .execute(params![pipeline, EVENT])?;
    db.prepare_cached("INSERT OR REPLACE INTO watermarks VALUES (?1, ?2, 2, ?3)")?
        .execute(params![pipeline, schedule, WATERMARK])?;
    Ok(())
}

/// The due entry that goes with a slot that waits.
fn remind(db: &Connection, pipeline: &Value, schedule: &str, nominal: i64) -> Outcome<()> {
    db.prepare_cached("INSERT INTO due VALUES (?1, 0, ?2, ?3, ?4)")?.execute(params![
        nominal + 24 * HOUR,
        pipeline,
        schedule,
        DUE
    ])?;
    Ok(())
}

/// All pairs of numbers below two others, the second running faster.
fn pairs(first: i64, second: i64) -> impl Iterator<Item = (i64, i64)> {
    (0..first).flat_map(move |outer| (0..second).map(move |inner| (outer, inner)))
}

/// The file as a daemon uses it.
fn reopened(path: &Path) -> Outcome<Connection> {
    let db = Connection::open(path)?;
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;",
    )?;
    Ok(db)
}
