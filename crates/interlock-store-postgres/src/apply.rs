//! Groups: all of a call are judged against one look at the store, then written by a few statements.
//!
//! Two journeys to the server. The first locks the shards, and reads the leases and the revision of each row
//! that the groups name. Nobody else can change these until the commit, so the groups are then judged here,
//! one after the other, as if each had been applied before the next. The second writes what came of it: each
//! row once, whatever happened to it in between.
//!
//! A row that is expected to be absent nearly always is, and looking for it costs nearly as much as writing it. So
//! the first attempt believes it, and inserts it in a way that fails if it is there; then nothing of the call was
//! written, and the second attempt looks at everything.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use interlock_core::id::PipelineId;
use interlock_store::{
    Accepted, Change, Expect, Group, Key, Refusal, Role, Shard, StoreError, Term, Writer,
};
use interlock_store_remote::{Stored, key_text};
use tokio_postgres::{error::SqlState, types::Type};

use crate::{
    failure::said,
    pool::{Lent, Pool, bounded},
    queue,
    read::ByKind,
    witness::{Known, Witness},
};

/// How many groups are written in one transaction.
const GROUPS_MAX: usize = 2_000;

type Outcome = Result<Accepted, Refusal>;

/// Where a row is: kind, pipeline, key.
type Place<'a> = (&'static str, &'a str, &'a str);

/// A group with its records encoded.
struct Prepared {
    pipeline: PipelineId,
    /// The pipeline's own, which is the writer's for all but `_system`.
    shard: Shard,
    writer: Writer,
    refusal: Option<Refusal>,
    changes: Vec<PreparedChange>,
}

enum PreparedChange {
    Row { key: Key, text: String, expect: Expect, put: Option<Stored> },
    Append(String),
}

impl Prepared {
    fn new(group: Group, shards: u16) -> Result<Self, StoreError> {
        let refusal = group.refusal();
        let Group { pipeline, writer, changes } = group;
        let shard = Shard::of(&pipeline, shards);
        let changes = changes.into_iter().map(prepare).collect::<Result<_, _>>()?;
        Ok(Self { pipeline, shard, writer, refusal, changes })
    }

    /// The rows that it names, and whether it writes them as new ones; none if it cannot be applied at all.
    fn rows(&self) -> impl Iterator<Item = (Place<'_>, bool)> {
        let changes = if self.refusal.is_some() { &[] } else { self.changes.as_slice() };
        changes.iter().filter_map(|change| match change {
            PreparedChange::Row { key, text, expect, put } => {
                let is_new = *expect == Expect::Absent && put.is_some();
                Some(((key.kind(), self.pipeline.as_str(), text.as_str()), is_new))
            }
            PreparedChange::Append(_) => None,
        })
    }
}

fn prepare(change: Change) -> Result<PreparedChange, StoreError> {
    let row = |key: Key, expect, put| {
        let text = key_text(&key);
        check_text(&text)?;
        Ok(PreparedChange::Row { key, text, expect, put })
    };
    match change {
        Change::Put(key, expect, record) => {
            let stored = Stored::of(&key, &record);
            row(key, expect, Some(stored))
        }
        Change::Delete(key, expect) => row(key, expect, None),
        Change::Append(event) => Ok(PreparedChange::Append(event.encode())),
    }
}

/// Refuses what PostgreSQL cannot keep in a text. JSON writes it in another way.
pub(crate) fn check_text(text: &str) -> Result<(), StoreError> {
    if text.contains('\0') {
        return Err(StoreError::permanent(format!(
            "PostgreSQL cannot keep a NUL in a key: {text:?}"
        )));
    }
    Ok(())
}

/// Applies the groups of one call; a result each.
pub(crate) async fn commit(
    (pool, witness): (&Arc<Pool>, &Witness),
    groups: Vec<Group>,
    shards: u16,
) -> Result<Vec<Outcome>, StoreError> {
    let groups = groups.into_iter().map(|group| Prepared::new(group, shards));
    let groups: Vec<Prepared> = groups.collect::<Result<_, _>>()?;
    let mut refused = BTreeSet::new();
    let mut results = Vec::with_capacity(groups.len());
    for part in groups.chunks(GROUPS_MAX) {
        let mut absence = Absence::Believed;
        let (outcome, behind) = loop {
            let (known, mut behind) = (witness.known(), refused.clone());
            let trying = commit_part((pool, witness), (part, absence), &known, &mut behind);
            match bounded(trying).await? {
                Part::Done(outcome) => break (outcome, behind),
                Part::Forgotten => witness.recover(pool, &known).await?,
                Part::WasThere if absence == Absence::Believed => absence = Absence::LookedFor,
                Part::WasThere => {
                    let moved = "rows changed under the lock of their shard";
                    return Err(StoreError::retryable(moved));
                }
            }
        };
        results.extend(outcome);
        refused = behind;
    }
    Ok(results)
}

/// What is done about rows that are expected to be absent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absence {
    /// They are written as if they were.
    Believed,
    LookedFor,
}

/// What came of some groups.
enum Part {
    Done(Vec<Outcome>),
    /// Nothing: a row was there whose absence was believed.
    WasThere,
    /// Nothing: the server does not have any more what it acknowledged.
    Forgotten,
}

/// Applies some groups in one transaction.
async fn commit_part<'a>(
    (pool, witness): (&Arc<Pool>, &Witness),
    (groups, absence): (&'a [Prepared], Absence),
    known: &Known,
    refused: &mut BTreeSet<&'a PipelineId>,
) -> Result<Part, StoreError> {
    let lent = pool.take().await?;
    let (mut desk, heard) = look(&lent, (groups, absence), known).await?;
    if heard.iter().any(|row| witness.hears(row, 0)) {
        return Ok(Part::Forgotten);
    }
    let mut results: Vec<Outcome> = groups.iter().map(|group| desk.judge(group, refused)).collect();
    let base = match desk.write(&lent, absence).await {
        Ok(base) => base,
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            return Ok(Part::WasThere);
        }
        Err(error) => return Err(said(&error)),
    };
    lent.done();
    if let Some(last) = desk.events.last() {
        witness.wrote(base + desk.events.len() as u64, &last.writer);
    }
    for accepted in results.iter_mut().flatten().filter(|accepted| accepted.last_event > 0) {
        accepted.last_event += base;
    }
    Ok(Part::Done(results))
}

/// A row that groups name: what it was, and what it is to become.
struct RowState<'a> {
    place: Place<'a>,
    shard: Shard,
    /// Whether it has to be looked for.
    is_asked: bool,
    found: u64,
    revision: u64,
    put: Option<&'a Stored>,
}

/// An event, and under which right it is written: `role:shard:term`.
struct Appended<'a> {
    pipeline: &'a str,
    body: &'a str,
    writer: String,
}

/// What was found, and what is to be written.
struct Desk<'a> {
    leases: BTreeMap<(Shard, Role), (Term, bool)>,
    rows: Vec<RowState<'a>>,
    index: HashMap<Place<'a>, usize>,
    events: Vec<Appended<'a>>,
    answered: Vec<(&'a str, &'a str)>,
}

/// Begins the transaction, locks the shards, and reads what the groups speak of, and what is known to be written.
async fn look<'a>(
    lent: &Lent,
    (groups, absence): (&'a [Prepared], Absence),
    known: &Known,
) -> Result<(Desk<'a>, Vec<tokio_postgres::Row>), StoreError> {
    let mut desk = Desk {
        leases: BTreeMap::new(),
        rows: Vec::new(),
        index: HashMap::new(),
        events: Vec::new(),
        answered: Vec::new(),
    };
    for group in groups {
        for (place, is_new) in group.rows() {
            if let Some(row) = desk.index.get(&place).and_then(|at| desk.rows.get_mut(*at)) {
                // What several groups do to it may leave nothing to write, and then nothing would fail.
                row.is_asked = true;
                continue;
            }
            let is_asked = absence == Absence::LookedFor || !is_new;
            let (shard, found, revision) = (group.shard, 0, 0);
            desk.index.insert(place, desk.rows.len());
            desk.rows.push(RowState { place, shard, is_asked, found, revision, put: None });
        }
    }
    // Rows of `_system` are written by the owners of all shards: its own shard is their lock.
    let of = |group: &Prepared| [group.writer.shard, group.shard];
    let shards: BTreeSet<i32> =
        groups.iter().flat_map(of).map(|shard| i32::from(shard.0)).collect();
    let shards: Vec<i32> = shards.into_iter().collect();
    let lock = lent.sql(LOCK);
    let lock_params = [(&shards as _, Type::INT4_ARRAY)];
    let witnessed = lent.sql(&format!("SELECT {}", Known::sql(1)));
    let witnessed_params = known.params();
    let ((), leases, heard, (), found) = tokio::try_join!(
        biased;
        lent.begin(),
        lent.client().query_typed(&lock, &lock_params),
        lent.client().query_typed(&witnessed, &witnessed_params),
        desk.lock_outbox(lent),
        desk.find(lent),
    )
    .map_err(|error| said(&error))?;
    for row in leases {
        let role = if row.get::<_, &str>(1) == Role::Engine.as_str() {
            Role::Engine
        } else {
            Role::Watchdog
        };
        let term = Term(row.get::<_, i64>(2) as u64);
        desk.leases.insert((Shard(row.get::<_, i32>(0) as u16), role), (term, row.get(3)));
    }
    let mut asked: Vec<_> = desk.rows.iter_mut().filter(|row| row.is_asked).collect();
    for row in found {
        let at = row.get::<_, i64>(1) as usize;
        if let Some(state) = asked.get_mut(at) {
            state.found = row.get::<_, i64>(0) as u64;
            state.revision = state.found;
        }
    }
    Ok((desk, heard))
}

/// Locks shards, in one order for everybody.
pub(crate) const LOCK: &str = "SELECT shard, role, term, holder IS NOT NULL FROM @leases
    WHERE shard = ANY($1) ORDER BY shard, role FOR UPDATE";

/// Claims come without the shard's lock: they are waited for.
const LOCK_OUTBOX: &str = "SELECT o.revision FROM unnest($1, $2) u(pipeline, key)
    JOIN @outbox o ON o.pipeline = u.pipeline AND o.key = u.key
    ORDER BY o.pipeline, o.key FOR UPDATE OF o";

impl<'a> Desk<'a> {
    async fn find(&self, lent: &Lent) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
        let asked = self.rows.iter().filter(|row| row.is_asked);
        let place = |row: &RowState<'a>| (row.place.0, (row.place.1, row.place.2.to_owned()));
        let asked = ByKind::of(asked.map(place));
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        lent.client().query_typed(&lent.sql(&asked.sql("r.revision")), &asked.params()).await
    }

    async fn lock_outbox(&self, lent: &Lent) -> Result<(), tokio_postgres::Error> {
        let letters = || self.rows.iter().filter(|row| row.place.0 == "outbox");
        if letters().next().is_none() {
            return Ok(());
        }
        let pipelines: Vec<&str> = letters().map(|row| row.place.1).collect();
        let keys: Vec<&str> = letters().map(|row| row.place.2).collect();
        let params = [(&pipelines as _, Type::TEXT_ARRAY), (&keys as _, Type::TEXT_ARRAY)];
        lent.client().query_typed(&lent.sql(LOCK_OUTBOX), &params).await.map(drop)
    }

    fn judge(&mut self, group: &'a Prepared, refused: &mut BTreeSet<&'a PipelineId>) -> Outcome {
        let outcome = if refused.contains(&group.pipeline) {
            Err(Refusal::Behind)
        } else {
            self.check(group).map(|()| self.take(group))
        };
        if outcome.is_err() {
            refused.insert(&group.pipeline);
        }
        outcome
    }

    fn check(&self, group: &Prepared) -> Result<(), Refusal> {
        if let Some(refusal) = &group.refusal {
            return Err(refusal.clone());
        }
        let Writer { role, shard, term } = group.writer;
        let (current, is_held) =
            self.leases.get(&(shard, role)).copied().unwrap_or((Term(0), false));
        if !is_held || current != term {
            return Err(Refusal::Term { current });
        }
        for change in &group.changes {
            let PreparedChange::Row { key, text, expect, .. } = change else { continue };
            let place = (key.kind(), group.pipeline.as_str(), text.as_str());
            let state = self.index.get(&place).and_then(|at| self.rows.get(*at));
            let found = state.map_or(0, |state| state.revision);
            if !expect.holds(found) {
                return Err(Refusal::Conflict { key: key.clone(), found });
            }
        }
        Ok(())
    }

    /// Takes over what a group changes; its event's number is counted from the first of this call.
    fn take(&mut self, group: &'a Prepared) -> Accepted {
        let pipeline = group.pipeline.as_str();
        let mut last_event = 0;
        for change in &group.changes {
            match change {
                PreparedChange::Append(body) => {
                    let Writer { role, shard, term } = group.writer;
                    let writer = format!("{}:{}:{}", role.as_str(), shard.0, term.0);
                    self.events.push(Appended { pipeline, body, writer });
                    last_event = self.events.len() as u64;
                }
                PreparedChange::Row { key, text, put, .. } => {
                    if let (Key::Applied(name), Some(_)) = (key, put) {
                        self.answered.push((pipeline, name));
                    }
                    let at = self.index.get(&(key.kind(), pipeline, text.as_str()));
                    if let Some(state) = at.and_then(|at| self.rows.get_mut(*at)) {
                        state.revision = if put.is_some() { state.revision + 1 } else { 0 };
                        state.put = put.as_ref();
                    }
                }
            }
        }
        Accepted { last_event }
    }

    /// The rows that an archive hears of: written or deleted, and of a kind that is archived.
    fn noted(&self) -> Vec<Place<'a>> {
        let rows = self.rows.iter().filter(|row| {
            let is_changed = row.put.is_some() || (row.revision == 0 && row.found > 0);
            is_changed && matches!(row.place.0, "slot" | "span" | "run" | "incident")
        });
        rows.map(|row| row.place).collect()
    }

    /// Writes and commits; the number before that of the first event.
    async fn write(&self, lent: &Lent, absence: Absence) -> Result<u64, tokio_postgres::Error> {
        let rows = self.rows.iter().filter_map(|row| {
            let (place, shard, revision) = (row.place, row.shard, row.revision);
            let is_new = absence == Absence::Believed && row.found == 0;
            row.put.map(|stored| (is_new, Written { place, shard, revision, stored }))
        });
        let (new, known): (Vec<_>, Vec<_>) = rows.partition(|(is_new, _)| *is_new);
        let plain = |rows: Vec<(bool, Written<'a>)>| -> Vec<Written<'a>> {
            rows.into_iter().map(|(_, row)| row).collect()
        };
        let (new, known) = (plain(new), plain(known));
        let gone: Vec<Place<'_>> = self
            .rows
            .iter()
            .filter(|row| row.put.is_none() && row.revision == 0 && row.found > 0)
            .map(|row| row.place)
            .collect();
        let noted = self.noted();
        let ((), (), (), (), base, ()) = tokio::try_join!(
            biased;
            insert(lent, &new, ""),
            upsert(lent, &known),
            delete(lent, &gone),
            queue::forget_answered(lent, &self.answered),
            append(lent, &self.events, &noted),
            lent.commit(),
        )?;
        Ok(base)
    }
}

/// A row as it will be.
pub(crate) struct Written<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) shard: Shard,
    pub(crate) revision: u64,
    pub(crate) stored: &'a Stored,
}

const INSERT: &str = "INSERT INTO @rows
    (kind, pipeline, key, shard, revision, at_us, until_us, name, rank, word, more, body)
    SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ";
const UPDATE: &str = "ON CONFLICT (pipeline, key, kind) DO UPDATE SET revision = EXCLUDED.revision, at_us = EXCLUDED.at_us,
    until_us = EXCLUDED.until_us, word = EXCLUDED.word, more = EXCLUDED.more, body = EXCLUDED.body";

/// Writes rows over what is there.
pub(crate) async fn upsert(lent: &Lent, rows: &[Written<'_>]) -> Result<(), tokio_postgres::Error> {
    insert(lent, rows, UPDATE).await
}

/// Writes rows that are not there.
pub(crate) async fn add(lent: &Lent, rows: &[Written<'_>]) -> Result<(), tokio_postgres::Error> {
    insert(lent, rows, "ON CONFLICT (pipeline, key, kind) DO NOTHING").await
}

/// Writes rows; fails if one is there, unless it is said what to do otherwise.
async fn insert(
    lent: &Lent,
    rows: &[Written<'_>],
    otherwise: &str,
) -> Result<(), tokio_postgres::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let kinds: Vec<&str> = rows.iter().map(|row| row.place.0).collect();
    let pipelines: Vec<&str> = rows.iter().map(|row| row.place.1).collect();
    let keys: Vec<&str> = rows.iter().map(|row| row.place.2).collect();
    let shards: Vec<i32> = rows.iter().map(|row| i32::from(row.shard.0)).collect();
    let revisions: Vec<i64> = rows.iter().map(|row| row.revision as i64).collect();
    let ats: Vec<i64> = rows.iter().map(|row| row.stored.at).collect();
    let untils: Vec<Option<i64>> = rows.iter().map(|row| row.stored.until).collect();
    let names: Vec<&str> = rows.iter().map(|row| row.stored.name.as_str()).collect();
    let ranks: Vec<i64> = rows.iter().map(|row| row.stored.rank).collect();
    let words: Vec<&str> = rows.iter().map(|row| row.stored.word.as_str()).collect();
    let mores: Vec<&str> = rows.iter().map(|row| row.stored.more.as_str()).collect();
    let bodies: Vec<&str> = rows.iter().map(|row| row.stored.body.as_str()).collect();
    let (text, number) = (Type::TEXT_ARRAY, Type::INT8_ARRAY);
    let params = [
        (&kinds as _, text.clone()),
        (&pipelines as _, text.clone()),
        (&keys as _, text.clone()),
        (&shards as _, Type::INT4_ARRAY),
        (&revisions as _, number.clone()),
        (&ats as _, number.clone()),
        (&untils as _, number.clone()),
        (&names as _, text.clone()),
        (&ranks as _, number),
        (&words as _, text.clone()),
        (&mores as _, text.clone()),
        (&bodies as _, text),
    ];
    let sql = lent.sql(&format!("{INSERT}{otherwise}"));
    lent.client().execute_typed(&sql, &params).await.map(drop)
}

/// The table of a kind.
pub(crate) fn table(kind: &str) -> String {
    match kind {
        "due" | "outbox" | "applied" => kind.to_owned(),
        other => format!("{other}s"),
    }
}

/// Removes rows, in one statement: the commit is on its way behind it.
pub(crate) async fn delete(lent: &Lent, places: &[Place<'_>]) -> Result<(), tokio_postgres::Error> {
    if places.is_empty() {
        return Ok(());
    }
    let mut kinds: BTreeMap<&'static str, (Vec<&str>, Vec<&str>)> = BTreeMap::new();
    for (kind, pipeline, key) in places {
        let (pipelines, keys) = kinds.entry(kind).or_default();
        pipelines.push(pipeline);
        keys.push(key);
    }
    let (mut parts, mut params) = (Vec::new(), Vec::new());
    for (kind, (pipelines, keys)) in &kinds {
        let (table, first) = (table(kind), params.len() + 1);
        parts.push(format!(
            "gone_{kind} AS (DELETE FROM @{table} r USING unnest(${first}, ${}) u(pipeline, key)
             WHERE r.pipeline = u.pipeline AND r.key = u.key)",
            first + 1
        ));
        params.push((pipelines as _, Type::TEXT_ARRAY));
        params.push((keys as _, Type::TEXT_ARRAY));
    }
    let sql = lent.sql(&format!("WITH {} SELECT 1", parts.join(", ")));
    lent.client().execute_typed(&sql, &params).await.map(drop)
}

/// The counter's row stays locked until the commit: numbers are in the order of commits.
/// Whether changes are noted is asked of that row too, so that nobody begins to follow in between.
const APPEND: &str = "WITH counted AS (
        UPDATE @counters SET value = value + $1 + CASE WHEN since IS NULL THEN 0 ELSE $4 END
        WHERE name = 'event'
        RETURNING value - $1 - CASE WHEN since IS NULL THEN 0 ELSE $4 END AS base, since
    ), appended AS (
        INSERT INTO @events (number, pipeline, body, writer)
        SELECT base + u.n, u.pipeline, u.body, u.writer
        FROM counted, unnest($2, $3, $8) WITH ORDINALITY u(pipeline, body, writer, n)
    ), noted AS (
        INSERT INTO @changes (number, kind, pipeline, key)
        SELECT base + $1 + u.n, u.kind, u.pipeline, u.key
        FROM counted, unnest($5, $6, $7) WITH ORDINALITY u(kind, pipeline, key, n)
        WHERE since IS NOT NULL
    )
    SELECT base FROM counted";

/// Appends events, and notes what changed if somebody follows; the number before that of the first event.
async fn append(
    lent: &Lent,
    events: &[Appended<'_>],
    noted: &[Place<'_>],
) -> Result<u64, tokio_postgres::Error> {
    if events.is_empty() && noted.is_empty() {
        return Ok(0);
    }
    let pipelines: Vec<&str> = events.iter().map(|event| event.pipeline).collect();
    let bodies: Vec<&str> = events.iter().map(|event| event.body).collect();
    let writers: Vec<&str> = events.iter().map(|event| event.writer.as_str()).collect();
    let (count, changes) = (events.len() as i64, noted.len() as i64);
    let kinds: Vec<&str> = noted.iter().map(|place| place.0).collect();
    let owners: Vec<&str> = noted.iter().map(|place| place.1).collect();
    let keys: Vec<&str> = noted.iter().map(|place| place.2).collect();
    let text = Type::TEXT_ARRAY;
    let params = [
        (&count as _, Type::INT8),
        (&pipelines as _, text.clone()),
        (&bodies as _, text.clone()),
        (&changes as _, Type::INT8),
        (&kinds as _, text.clone()),
        (&owners as _, text.clone()),
        (&keys as _, text.clone()),
        (&writers as _, text),
    ];
    let rows = lent.client().query_typed(&lent.sql(APPEND), &params).await?;
    Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
}
