//! The archive's side: a connection, and one transaction for each batch.

use std::{collections::BTreeMap, fmt, time::Duration};

use interlock_postgres::Address;
use interlock_store::StoreId;
use tokio::time::timeout;
use tokio_postgres::{
    Client,
    error::SqlState,
    types::{ToSql, Type},
};

use crate::{
    failure::ArchiveError,
    load::Load,
    reading::Position,
    rows::Rows,
    schema::{self, sql},
    table::Kind,
};

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long one statement may take, and a client that was stopped may hold a transaction open.
const STATEMENT_MAX: Duration = Duration::from_mins(1);

/// The tables, and the way to them.
pub struct Target {
    client: Client,
    /// By table.
    hopes: BTreeMap<&'static str, Hope>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").finish_non_exhaustive()
    }
}

/// What came of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is there, and the cursors have moved.
    Done,
    /// Somebody else has moved them: nothing was written.
    Overtaken,
}

impl Target {
    /// Connects to the archive, and makes or updates its tables. Needs a runtime that lives as long as it is used.
    pub async fn open(dsn: &str) -> Result<Self, ArchiveError> {
        let mut address =
            Address::parse(dsn).map_err(|error| ArchiveError::Address(error.to_string()))?;
        let config = address.config();
        config.connect_timeout(CONNECT_MAX).tcp_user_timeout(STATEMENT_MAX).keepalives(true);
        config.application_name("interlock-archiver");
        let slow = |_elapsed| ArchiveError::Archive {
            message: format!("the archive cannot be reached within {} s", CONNECT_MAX.as_secs()),
            is_retryable: true,
        };
        let connecting = timeout(CONNECT_MAX, address.connect()).await;
        let connected = connecting.map_err(slow).and_then(|it| Ok(it?));
        let (client, connection) = connected.map_err(|error| error.at(&address))?;
        tokio::spawn(async move {
            // Whoever waits for it hears of it.
            let _ended = connection.await;
        });
        schema::prepare(&client).await.map_err(|error| error.at(&address))?;
        Ok(Self { client, hopes: BTreeMap::new() })
    }

    /// How far the archive has read.
    pub(crate) async fn position(&self) -> Result<Position, ArchiveError> {
        let rows = self.client.query_typed(&sql("SELECT name, place FROM @cursors"), &[]).await?;
        let place = |name: &str| {
            let row = rows.iter().find(|row| row.get::<_, &str>(0) == name);
            row.map(|row| row.get::<_, String>(1)).ok_or_else(|| lost(name))
        };
        let number = |name: &str| place(name)?.parse().map_err(|_broken| lost(name));
        let walk = place("rows")?.strip_prefix(WALKS).map(str::to_owned);
        Ok(Position { events: number("events")?, changes: number("changes")?, walk })
    }

    /// Which store the archive belongs to: the first that says so.
    pub(crate) async fn store(&self, store: StoreId) -> Result<String, ArchiveError> {
        let name = store.to_string();
        let claim = sql("WITH claimed AS (INSERT INTO @cursors (name, place) VALUES ('store', $1)
                ON CONFLICT (name) DO NOTHING RETURNING place)
            SELECT place FROM claimed UNION ALL SELECT place FROM @cursors WHERE name = 'store'");
        // Nothing is found only while another one is just saying so.
        loop {
            let rows = self.client.query_typed(&claim, &[(&name, Type::TEXT)]).await?;
            if let Some(row) = rows.first() {
                return Ok(row.get(0));
            }
        }
    }

    /// Writes a batch and moves the cursors, all or nothing.
    pub(crate) async fn write(
        &mut self,
        load: &Load,
        (from, to): (&Position, &Position),
    ) -> Result<Written, ArchiveError> {
        let limit = STATEMENT_MAX.as_millis();
        let begin = format!(
            "BEGIN; SET LOCAL statement_timeout = {limit}; \
             SET LOCAL idle_in_transaction_session_timeout = {limit}"
        );
        self.client.batch_execute(&begin).await?;
        let written = self.write_all(load, (from, to)).await;
        let end = if matches!(written, Ok(Written::Done)) { "COMMIT" } else { "ROLLBACK" };
        self.client.batch_execute(end).await?;
        written
    }

    async fn write_all(
        &mut self,
        load: &Load,
        (from, to): (&Position, &Position),
    ) -> Result<Written, ArchiveError> {
        if !self.advance(from, to).await? {
            return Ok(Written::Overtaken);
        }
        if load.events.len() > 0 {
            load.events.copy(&self.client).await?;
        }
        for rows in &load.tables {
            self.put(rows).await?;
        }
        Ok(Written::Done)
    }

    async fn advance(&self, from: &Position, to: &Position) -> Result<bool, ArchiveError> {
        let names = ["events", "changes", "rows"];
        let (old, new) = (places(from), places(to));
        let statement = sql("UPDATE @cursors c SET place = u.new, updated_at = now()
            FROM unnest($1, $2, $3) u(name, old, new) WHERE c.name = u.name AND c.place = u.old");
        let text = Type::TEXT_ARRAY;
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&names.as_slice(), text.clone()), (&old, text.clone()), (&new, text)];
        Ok(self.client.execute_typed(&statement, &params).await? == names.len() as u64)
    }

    /// Writes the rows of a table: as new ones if they may be, over what is there if not.
    async fn put(&mut self, rows: &Rows) -> Result<(), ArchiveError> {
        if rows.len() == 0 {
            return Ok(());
        }
        let hope = self.hopes.entry(rows.table.name).or_default();
        if rows.table.rows == Kind::OftenNew && hope.tries() {
            self.client.batch_execute("SAVEPOINT rows").await?;
            match rows.copy(&self.client).await {
                Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => hope.fails(),
                answer => {
                    hope.holds();
                    return Ok(answer?);
                }
            }
            self.client.batch_execute("ROLLBACK TO SAVEPOINT rows").await?;
        }
        Ok(rows.upsert(&self.client).await?)
    }
}

/// Whether the next rows of a table may all be new. `COPY` takes new rows faster than they are written over others,
/// and nothing at all if one is there; so after each failure it is tried half as often.
#[derive(Debug, Default)]
struct Hope {
    failures: u32,
    /// How many batches are still written the slower way.
    rest: u32,
}

impl Hope {
    fn tries(&mut self) -> bool {
        let now = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        now
    }

    fn fails(&mut self) {
        self.failures = (self.failures + 1).min(HOPELESS);
        self.rest = 1 << self.failures;
    }

    fn holds(&mut self) {
        *self = Self::default();
    }
}

/// However often it failed, new rows are hoped for once in 64 batches.
const HOPELESS: u32 = 6;

/// Before the place of a walk that is under way.
const WALKS: &str = "at ";
/// When there is none.
const WALKED: &str = "all";

fn places(position: &Position) -> Vec<String> {
    let walk = position.walk.as_ref();
    let walk = walk.map_or_else(|| WALKED.to_owned(), |place| format!("{WALKS}{place}"));
    vec![position.events.to_string(), position.changes.to_string(), walk]
}

fn lost(name: &str) -> ArchiveError {
    ArchiveError::refused(format!(
        "the cursor `{name}` of the archive cannot be read: put it back from a backup, or let the archive begin anew in \
         an empty database"
    ))
}
