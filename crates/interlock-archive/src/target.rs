//! The archive's side: a connection, and one transaction for each batch.

use std::{fmt, pin::pin, time::Duration};

use interlock_store::{Record, RunKey};
use tokio::time::timeout;
use tokio_postgres::{
    Client, Config, NoTls,
    binary_copy::BinaryCopyInWriter,
    types::{ToSql, Type},
};

use crate::{
    batch::Batch,
    failure::ArchiveError,
    reading::Position,
    schema::{self, sql},
    table::{
        Cell, INCIDENTS, RUN_LOGS, RUNS, Rows, SLOTS, SPANS, instant, json, maybe, number, text,
    },
};

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long one statement may take, and a client that was stopped may hold a transaction open.
const STATEMENT_MAX: Duration = Duration::from_mins(1);

/// The tables, and the way to them.
pub struct Target {
    client: Client,
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
        let mut config: Config = dsn
            .parse()
            .map_err(|error: tokio_postgres::Error| ArchiveError::Address(error.to_string()))?;
        config.connect_timeout(CONNECT_MAX).tcp_user_timeout(STATEMENT_MAX).keepalives(true);
        config.application_name("interlock-archiver");
        let slow = |_elapsed| ArchiveError::Archive {
            message: format!("the archive cannot be reached within {} s", CONNECT_MAX.as_secs()),
            is_retryable: true,
        };
        let (client, connection) =
            timeout(CONNECT_MAX, config.connect(NoTls)).await.map_err(slow)??;
        tokio::spawn(async move {
            // Whoever waits for it hears of it.
            let _ended = connection.await;
        });
        schema::prepare(&client).await?;
        Ok(Self { client })
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

    /// Writes a batch and moves the cursors, all or nothing.
    pub(crate) async fn write(
        &self,
        batch: &Batch,
        (from, to): (&Position, &Position),
    ) -> Result<Written, ArchiveError> {
        let limit = STATEMENT_MAX.as_millis();
        let begin = format!(
            "BEGIN; SET LOCAL statement_timeout = {limit}; \
             SET LOCAL idle_in_transaction_session_timeout = {limit}"
        );
        self.client.batch_execute(&begin).await?;
        let written = self.write_all(batch, (from, to)).await;
        let end = if matches!(written, Ok(Written::Done)) { "COMMIT" } else { "ROLLBACK" };
        self.client.batch_execute(end).await?;
        written
    }

    async fn write_all(
        &self,
        batch: &Batch,
        (from, to): (&Position, &Position),
    ) -> Result<Written, ArchiveError> {
        if !self.advance(from, to).await? {
            return Ok(Written::Overtaken);
        }
        self.events(batch).await?;
        self.runs(batch).await?;
        self.slots(batch).await?;
        self.run_logs(batch).await?;
        self.spans(batch).await?;
        self.incidents(batch).await?;
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

    async fn events(&self, batch: &Batch) -> Result<(), ArchiveError> {
        if batch.events.is_empty() {
            return Ok(());
        }
        let copy =
            sql("COPY @events (number, pipeline_id, kind, at, slot, run_id, message, details)
            FROM STDIN BINARY");
        let sink = self.client.copy_in(&copy).await?;
        let text = Type::TEXT;
        let types = [
            Type::INT8,
            text.clone(),
            text.clone(),
            Type::TIMESTAMPTZ,
            text.clone(),
            text.clone(),
            text,
            Type::JSONB,
        ];
        let mut rows = pin!(BinaryCopyInWriter::new(sink, &types));
        for event in &batch.events {
            let columns: [&(dyn ToSql + Sync); 8] = [
                &event.number,
                &event.pipeline,
                &event.kind,
                &event.at,
                &event.slot,
                &event.run_id,
                &event.message,
                &event.details,
            ];
            rows.as_mut().write(&columns).await?;
        }
        // Without this nothing of it is there.
        rows.as_mut().finish().await?;
        Ok(())
    }

    async fn runs(&self, batch: &Batch) -> Result<(), ArchiveError> {
        let mut table = Rows::default();
        for (id, (pipeline, key, run)) in &batch.runs {
            table.push([
                text(id),
                text(pipeline.as_str()),
                text(key.schedule.as_str()),
                instant(Some(key.nominal)),
                number(key.generation),
                number(key.attempt),
                text(&run.status),
                text(&run.trigger_type),
                instant(Some(run.created_at)),
                instant(run.started_at),
                instant(run.ended_at),
                maybe(run.message.as_deref()),
                maybe(run.category.as_deref()),
                json(serde_json::json!(run.metadata).to_string()),
            ]);
        }
        table.upsert(&self.client, RUNS).await
    }

    async fn slots(&self, batch: &Batch) -> Result<(), ArchiveError> {
        let mut table = Rows::default();
        for ((pipeline, schedule, nominal), slot) in &batch.slots {
            table.push([
                text(pipeline.as_str()),
                text(schedule.as_str()),
                instant(Some(*nominal)),
                text(&slot.date.to_string()),
                text(&slot.state),
                maybe(slot.disposition.as_deref()),
                maybe(slot.reason.as_deref()),
                number(slot.generation),
                number(slot.attempt),
                text(&slot.opened_by),
                instant(Some(slot.opened_at)),
                instant(slot.marks.missed_at),
                Cell::Flag(slot.marks.late),
                Cell::Flag(slot.marks.uncertain),
                instant(slot.sla.as_ref().and_then(|sla| sla.breach_at)),
                text(&slot.version),
                json(Record::Slot(slot.clone()).encode()),
            ]);
        }
        table.upsert(&self.client, SLOTS).await
    }

    async fn run_logs(&self, batch: &Batch) -> Result<(), ArchiveError> {
        let mut table = Rows::default();
        for ((pipeline, date, schedule), (nominal, slot)) in &batch.run_logs {
            let status = slot.disposition.as_ref().filter(|_| !slot.is_open());
            let run = RunKey {
                schedule: schedule.clone(),
                nominal: *nominal,
                generation: slot.generation,
                attempt: slot.attempt,
            };
            let run_id = (slot.attempt > 0).then(|| run.id(pipeline));
            table.push([
                text(pipeline.as_str()),
                text(date),
                text(schedule.as_str()),
                instant(Some(*nominal)),
                text(status.unwrap_or(&slot.state)),
                number(slot.attempt),
                maybe(run_id.as_deref()),
                instant(Some(slot.opened_at)),
            ]);
        }
        table.upsert(&self.client, RUN_LOGS).await
    }

    async fn spans(&self, batch: &Batch) -> Result<(), ArchiveError> {
        let mut table = Rows::default();
        for ((pipeline, schedule, first), span) in &batch.spans {
            table.push([
                text(pipeline.as_str()),
                text(schedule.as_str()),
                instant(Some(*first)),
                instant(Some(span.last)),
                text(&span.count.to_string()),
                text(&span.disposition),
                maybe(span.reason.as_deref()),
                text(&span.version),
                instant(Some(span.recorded_at)),
            ]);
        }
        table.upsert(&self.client, SPANS).await
    }

    async fn incidents(&self, batch: &Batch) -> Result<(), ArchiveError> {
        let mut table = Rows::default();
        for ((pipeline, key), incident) in &batch.incidents {
            table.push([
                text(pipeline.as_str()),
                text(key),
                text(&incident.state),
                text(&incident.kind),
                text(&incident.level),
                text(&incident.message),
                instant(Some(incident.opened_at)),
                instant(Some(incident.updated_at)),
                text(&incident.count.to_string()),
                json(Record::Incident(incident.clone()).encode()),
            ]);
        }
        table.upsert(&self.client, INCIDENTS).await
    }
}

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
