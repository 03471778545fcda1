//! Connections, handed out one call at a time.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use interlock_postgres::{Address, Line};
use interlock_store::StoreError;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_postgres::{
    Client, Row,
    types::{ToSql, Type},
};

use crate::failure::said;

/// How long a client may do nothing in the middle of a transaction before the server ends it. It holds a
/// shard's lock meanwhile, so this is shorter than any lease.
pub const STOPPED_MAX: Duration = Duration::from_secs(2);
/// How long one statement may take.
const STATEMENT_MAX: Duration = Duration::from_secs(10);
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a call may take before it counts as failed.
const CALL_MAX: Duration = Duration::from_secs(15);

/// A parameter with its type: statements without a name cannot ask for it.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The way to the server.
pub(crate) struct Pool {
    address: Address,
    /// Begins every table's name.
    prefix: String,
    idle: Mutex<Vec<Client>>,
    permits: Arc<Semaphore>,
}

/// A connection for one call. Dropped without [`Lent::done`] it is closed: what it was in the middle of is
/// undone by the server.
pub(crate) struct Lent {
    client: Client,
    is_fresh: bool,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// A pool of so many connections at most. The schema's name is a plain word.
    pub(crate) fn new(mut address: Address, schema: &str, connections_max: usize) -> Self {
        let config = address.config();
        config.connect_timeout(CONNECT_MAX).tcp_user_timeout(CONNECT_MAX).keepalives(true);
        config.application_name("interlock");
        let permits = Arc::new(Semaphore::new(connections_max.max(1)));
        Self { address, prefix: format!("\"{schema}\"."), idle: Mutex::default(), permits }
    }

    /// A statement with the schema's name in place of each `@`.
    pub(crate) fn sql(&self, text: &str) -> String {
        text.replace('@', &self.prefix)
    }

    /// A connection: one that was used before, else a new one.
    pub(crate) async fn take(self: &Arc<Self>) -> Result<Lent, StoreError> {
        let waiting = timeout(CALL_MAX, Arc::clone(&self.permits).acquire_owned());
        let permit = waiting.await.map_err(|_elapsed| slow(CALL_MAX))?;
        let permit = permit.map_err(|error| StoreError::retryable(error.to_string()))?;
        let (client, is_fresh) = match self.find_idle() {
            Some(client) => (client, false),
            None => (self.connect().await?, true),
        };
        Ok(Lent { client, is_fresh, pool: Arc::clone(self), _permit: permit })
    }

    fn find_idle(&self) -> Option<Client> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|client| !client.is_closed());
        idle.pop()
    }

    /// A connection of one's own, beside those that are handed out; whoever has it lets it speak.
    pub(crate) async fn line(&self) -> Result<Line, StoreError> {
        let connecting = timeout(CONNECT_MAX, self.address.connect());
        let connected = match connecting.await {
            Ok(connected) => connected.map_err(|error| said(&error)),
            Err(_elapsed) => Err(slow(CONNECT_MAX)),
        };
        connected.map_err(|error| StoreError {
            message: format!("{} (at {})", error.message, self.address),
            ..error
        })
    }

    async fn connect(&self) -> Result<Client, StoreError> {
        let (client, connection) = self.line().await?;
        tokio::spawn(async move {
            // The calls that were waiting for it hear of it themselves.
            let _ended = connection.await;
        });
        Ok(client)
    }

    /// Asks one question. A connection that turns out to be dead is replaced once.
    pub(crate) async fn query(
        self: &Arc<Self>,
        text: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let sql = self.sql(text);
        loop {
            let lent = self.take().await?;
            let answer = timeout(CALL_MAX, lent.client.query_typed(&sql, params)).await;
            match answer.map_err(|_elapsed| slow(CALL_MAX))? {
                Ok(rows) => {
                    lent.done();
                    return Ok(rows);
                }
                Err(error) if error.as_db_error().is_some() => {
                    lent.done();
                    return Err(said(&error));
                }
                Err(error) if lent.is_fresh => return Err(said(&error)),
                Err(_) => {}
            }
        }
    }
}

impl Lent {
    /// The connection.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// A statement; see [`Pool::sql`].
    pub(crate) fn sql(&self, text: &str) -> String {
        self.pool.sql(text)
    }

    /// Begins a transaction that cannot outlive a client that was stopped.
    pub(crate) async fn begin(&self) -> Result<(), tokio_postgres::Error> {
        let (idle, statement) = (STOPPED_MAX.as_millis(), STATEMENT_MAX.as_millis());
        let begin = format!(
            "BEGIN; SET LOCAL idle_in_transaction_session_timeout = {idle}; \
             SET LOCAL statement_timeout = {statement}"
        );
        self.client.batch_execute(&begin).await
    }

    /// Ends a transaction.
    pub(crate) async fn commit(&self) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute("COMMIT").await
    }

    /// Gives it back for the next call.
    pub(crate) fn done(self) {
        let Self { client, pool, .. } = self;
        if !client.is_closed() {
            pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
    }
}

/// Bounds a piece of work with a connection.
pub(crate) async fn bounded<T>(
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(CALL_MAX, work).await.map_err(|_elapsed| slow(CALL_MAX))?
}

fn slow(max: Duration) -> StoreError {
    StoreError::retryable(format!("PostgreSQL did not answer within {} s", max.as_secs()))
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address holds a password.
        f.debug_struct("Pool").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
