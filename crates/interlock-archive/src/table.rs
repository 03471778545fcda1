//! The tables, and the statements that write them.

use tokio_postgres::types::Type;

use crate::schema::sql;

/// A table whose rows are replaced by newer looks at the same thing.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    key: &'static [&'static str],
    pub(crate) columns: &'static [(&'static str, Type)],
    /// What must be true of the row `t` that is there.
    only: &'static str,
    /// Which rows a batch brings.
    pub(crate) rows: Kind,
}

/// Which rows a batch brings to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Of things that are often there for the first time: every row, while an archive makes up for what it has not read.
    OftenNew,
    /// Of things that several batches have something to say about.
    OftenThere,
}

pub(crate) const EVENTS: &Table = &Table {
    name: "events",
    key: &["number"],
    columns: &[
        ("number", Type::INT8),
        ("pipeline_id", Type::TEXT),
        ("kind", Type::TEXT),
        ("at", Type::TIMESTAMPTZ),
        ("slot", Type::TEXT),
        ("run_id", Type::TEXT),
        ("message", Type::TEXT),
        ("details", Type::JSONB),
    ],
    only: "TRUE",
    rows: Kind::OftenNew,
};

pub(crate) const RUNS: &Table = &Table {
    name: "runs",
    key: &["run_id"],
    columns: &[
        ("run_id", Type::TEXT),
        ("pipeline_id", Type::TEXT),
        ("schedule_id", Type::TEXT),
        ("slot", Type::TIMESTAMPTZ),
        ("generation", Type::INT4),
        ("attempt", Type::INT4),
        ("status", Type::TEXT),
        ("trigger_type", Type::TEXT),
        ("created_at", Type::TIMESTAMPTZ),
        ("started_at", Type::TIMESTAMPTZ),
        ("ended_at", Type::TIMESTAMPTZ),
        ("message", Type::TEXT),
        ("failure_category", Type::TEXT),
        ("metadata", Type::JSONB),
    ],
    only: "TRUE",
    rows: Kind::OftenNew,
};

pub(crate) const SLOTS: &Table = &Table {
    name: "slots",
    key: &["pipeline_id", "schedule_id", "slot"],
    columns: &[
        ("pipeline_id", Type::TEXT),
        ("schedule_id", Type::TEXT),
        ("slot", Type::TIMESTAMPTZ),
        ("date", Type::DATE),
        ("state", Type::TEXT),
        ("disposition", Type::TEXT),
        ("reason", Type::TEXT),
        ("generation", Type::INT4),
        ("attempt", Type::INT4),
        ("opened_by", Type::TEXT),
        ("opened_at", Type::TIMESTAMPTZ),
        ("missed_at", Type::TIMESTAMPTZ),
        ("late", Type::BOOL),
        ("uncertain", Type::BOOL),
        ("sla_breach_at", Type::TIMESTAMPTZ),
        ("version", Type::TEXT),
        ("record", Type::JSONB),
    ],
    only: "TRUE",
    rows: Kind::OftenNew,
};

pub(crate) const RUN_LOGS: &Table = &Table {
    name: "run_logs",
    key: &["pipeline_id", "date", "schedule_id"],
    columns: &[
        ("pipeline_id", Type::TEXT),
        ("date", Type::DATE),
        ("schedule_id", Type::TEXT),
        ("slot", Type::TIMESTAMPTZ),
        ("status", Type::TEXT),
        ("attempt", Type::INT4),
        ("run_id", Type::TEXT),
        ("opened_at", Type::TIMESTAMPTZ),
    ],
    // An earlier slot of the same date may still change.
    only: "t.slot <= excluded.slot",
    rows: Kind::OftenThere,
};

pub(crate) const SPANS: &Table = &Table {
    name: "spans",
    key: &["pipeline_id", "schedule_id", "first"],
    columns: &[
        ("pipeline_id", Type::TEXT),
        ("schedule_id", Type::TEXT),
        ("first", Type::TIMESTAMPTZ),
        ("last", Type::TIMESTAMPTZ),
        ("count", Type::INT8),
        ("disposition", Type::TEXT),
        ("reason", Type::TEXT),
        ("version", Type::TEXT),
        ("recorded_at", Type::TIMESTAMPTZ),
    ],
    only: "TRUE",
    rows: Kind::OftenNew,
};

pub(crate) const INCIDENTS: &Table = &Table {
    name: "incidents",
    key: &["pipeline_id", "key"],
    columns: &[
        ("pipeline_id", Type::TEXT),
        ("key", Type::TEXT),
        ("state", Type::TEXT),
        ("kind", Type::TEXT),
        ("level", Type::TEXT),
        ("message", Type::TEXT),
        ("opened_at", Type::TIMESTAMPTZ),
        ("updated_at", Type::TIMESTAMPTZ),
        ("count", Type::INT8),
        ("record", Type::JSONB),
    ],
    only: "TRUE",
    rows: Kind::OftenNew,
};

impl Table {
    fn names(&self) -> String {
        self.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// Takes rows that are not there, and fails if one is.
    pub(crate) fn copy(&self) -> String {
        sql(&format!("COPY @{} ({}) FROM STDIN BINARY", self.name, self.names()))
    }

    /// Writes rows over what is there; an array for each column.
    pub(crate) fn upsert(&self) -> String {
        let Self { name, key, columns, only, .. } = self;
        let marks: Vec<String> = (1..=columns.len()).map(|at| format!("${at}")).collect();
        let set = columns.iter().filter(|(column, _)| !key.contains(column));
        let set: Vec<String> =
            set.map(|(column, _)| format!("{column} = excluded.{column}")).collect();
        sql(&format!(
            "INSERT INTO @{name} AS t ({}) SELECT * FROM unnest({})
             ON CONFLICT ({}) DO UPDATE SET {} WHERE {only}",
            self.names(),
            marks.join(", "),
            key.join(", "),
            set.join(", ")
        ))
    }
}
