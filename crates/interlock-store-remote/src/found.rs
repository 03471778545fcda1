//! A row as it comes back from a server.

use std::sync::Arc;

use interlock_core::id::PipelineId;
use interlock_store::{
    BackfillRow, DueRow, Key, LedgerEntry, LedgerRow, OutboxRow, Record, Row, RunRow, StoreError,
    record::IncidentRecord,
};
use jiff::Timestamp;

/// A row with its address.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Whose it is.
    pub pipeline: PipelineId,
    /// Which row.
    pub key: Key,
    /// What it holds.
    pub record: Record,
    /// How often it was written.
    pub revision: u64,
}

impl Found {
    /// Reads a row: the kind and text of its key, until when it is claimed if it is a notification, and its text.
    pub fn read(
        pipeline: &str,
        (kind, key): (&str, &str),
        revision: u64,
        claimed: Option<i64>,
        body: &str,
    ) -> Result<Self, StoreError> {
        let text = if key.is_empty() && kind == "pipeline" {
            kind.to_owned()
        } else {
            format!("{kind}/{key}")
        };
        let unreadable = |what: &dyn std::fmt::Display| {
            StoreError::permanent(format!(
                "the store holds what cannot be read: {text} of {pipeline}: {what}"
            ))
        };
        let key = Key::parse(&text).ok_or_else(|| unreadable(&"no such key"))?;
        let mut record = Record::decode(&key, body).map_err(|error| unreadable(&error))?;
        if let Record::Outbox(outbox) = &mut record {
            let claimed = claimed.map(Timestamp::from_microsecond).transpose();
            Arc::make_mut(outbox).claimed_until = claimed.map_err(|error| unreadable(&error))?;
        }
        let pipeline = PipelineId::any(pipeline).map_err(|error| unreadable(&error.message))?;
        Ok(Self { pipeline, key, record, revision })
    }

    fn misplaced(&self) -> StoreError {
        let Self { pipeline, key, .. } = self;
        StoreError::permanent(format!(
            "the store lists {key} of {pipeline} where it does not belong"
        ))
    }

    /// The row without its address.
    pub fn row(self) -> Row<Record> {
        Row { record: self.record, revision: self.revision }
    }

    /// As a row of the ledger.
    pub fn ledger(self) -> Result<LedgerRow, StoreError> {
        let (schedule, nominal, entry) = match (&self.key, &self.record) {
            (Key::Slot(schedule, at), Record::Slot(slot)) => {
                (schedule.clone(), *at, LedgerEntry::Slot(slot.clone()))
            }
            (Key::Span(schedule, at), Record::Span(span)) => {
                (schedule.clone(), *at, LedgerEntry::Span(span.as_ref().clone()))
            }
            _ => return Err(self.misplaced()),
        };
        Ok(LedgerRow { pipeline: self.pipeline, schedule, nominal, entry, revision: self.revision })
    }

    /// As a run.
    pub fn run(self) -> Result<RunRow, StoreError> {
        match (self.key, self.record) {
            (Key::Run(key), Record::Run(record)) => Ok(RunRow {
                pipeline: self.pipeline,
                key,
                record: Arc::unwrap_or_clone(record),
                revision: self.revision,
            }),
            (key, record) => Err(Self { key, record, ..self }.misplaced()),
        }
    }

    /// As an incident.
    pub fn incident(self) -> Result<(PipelineId, String, Row<IncidentRecord>), StoreError> {
        match (self.key, self.record) {
            (Key::Incident(key), Record::Incident(record)) => Ok((
                self.pipeline,
                key,
                Row { record: Arc::unwrap_or_clone(record), revision: self.revision },
            )),
            (key, record) => Err(Self { key, record, ..self }.misplaced()),
        }
    }

    /// As a due entry.
    pub fn due(self) -> Result<DueRow, StoreError> {
        match (self.key, self.record) {
            (Key::Due(at, kind, name), Record::Due(record)) => {
                Ok(DueRow { pipeline: self.pipeline, at, kind, name, record })
            }
            (key, record) => Err(Self { key, record, ..self }.misplaced()),
        }
    }

    /// As a backfill.
    pub fn backfill(self) -> Result<BackfillRow, StoreError> {
        match (self.key, self.record) {
            (Key::Backfill(number), Record::Backfill(record)) => Ok(BackfillRow {
                pipeline: self.pipeline,
                number,
                record: Arc::unwrap_or_clone(record),
                revision: self.revision,
            }),
            (key, record) => Err(Self { key, record, ..self }.misplaced()),
        }
    }

    /// As a notification.
    pub fn outbox(self) -> Result<OutboxRow, StoreError> {
        match (self.key, self.record) {
            (Key::Outbox(name), Record::Outbox(record)) => Ok(OutboxRow {
                pipeline: self.pipeline,
                name,
                record: Arc::unwrap_or_clone(record),
                revision: self.revision,
            }),
            (key, record) => Err(Self { key, record, ..self }.misplaced()),
        }
    }
}
