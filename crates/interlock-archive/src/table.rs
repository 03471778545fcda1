//! Rows of one table, written by one statement: an array for each column.

use std::time::SystemTime;

use jiff::Timestamp;
use tokio_postgres::{
    Client,
    types::{ToSql, Type},
};

use crate::{
    batch::system,
    failure::ArchiveError,
    json::{Json, clean},
    schema::sql,
};

/// A table whose rows are replaced by newer looks at the same thing.
pub(crate) struct Table {
    name: &'static str,
    key: &'static [&'static str],
    /// Names and, where an array of texts is sent for another type, what it becomes.
    columns: &'static [(&'static str, &'static str)],
    /// What must be true of the row `t` that is there.
    only: &'static str,
}

pub(crate) const RUNS: &Table = &Table {
    name: "runs",
    key: &["run_id"],
    columns: &[
        ("run_id", ""),
        ("pipeline_id", ""),
        ("schedule_id", ""),
        ("slot", ""),
        ("generation", ""),
        ("attempt", ""),
        ("status", ""),
        ("trigger_type", ""),
        ("created_at", ""),
        ("started_at", ""),
        ("ended_at", ""),
        ("message", ""),
        ("failure_category", ""),
        ("metadata", "::jsonb"),
    ],
    only: "TRUE",
};

pub(crate) const SLOTS: &Table = &Table {
    name: "slots",
    key: &["pipeline_id", "schedule_id", "slot"],
    columns: &[
        ("pipeline_id", ""),
        ("schedule_id", ""),
        ("slot", ""),
        ("date", "::date"),
        ("state", ""),
        ("disposition", ""),
        ("reason", ""),
        ("generation", ""),
        ("attempt", ""),
        ("opened_by", ""),
        ("opened_at", ""),
        ("missed_at", ""),
        ("late", ""),
        ("uncertain", ""),
        ("sla_breach_at", ""),
        ("version", ""),
        ("record", "::jsonb"),
    ],
    only: "TRUE",
};

pub(crate) const RUN_LOGS: &Table = &Table {
    name: "run_logs",
    key: &["pipeline_id", "date", "schedule_id"],
    columns: &[
        ("pipeline_id", ""),
        ("date", "::date"),
        ("schedule_id", ""),
        ("slot", ""),
        ("status", ""),
        ("attempt", ""),
        ("run_id", ""),
        ("opened_at", ""),
    ],
    // An earlier slot of the same date may still change.
    only: "t.slot <= excluded.slot",
};

pub(crate) const SPANS: &Table = &Table {
    name: "spans",
    key: &["pipeline_id", "schedule_id", "first"],
    columns: &[
        ("pipeline_id", ""),
        ("schedule_id", ""),
        ("first", ""),
        ("last", ""),
        ("count", "::int8"),
        ("disposition", ""),
        ("reason", ""),
        ("version", ""),
        ("recorded_at", ""),
    ],
    only: "TRUE",
};

pub(crate) const INCIDENTS: &Table = &Table {
    name: "incidents",
    key: &["pipeline_id", "key"],
    columns: &[
        ("pipeline_id", ""),
        ("key", ""),
        ("state", ""),
        ("kind", ""),
        ("level", ""),
        ("message", ""),
        ("opened_at", ""),
        ("updated_at", ""),
        ("count", "::int8"),
        ("record", "::jsonb"),
    ],
    only: "TRUE",
};

impl Table {
    fn statement(&self) -> String {
        let Self { name, key, columns, only } = self;
        let join = |make: &dyn Fn(usize, &(&str, &str)) -> String| {
            let parts = columns.iter().enumerate().map(|(at, column)| make(at, column));
            parts.collect::<Vec<_>>().join(", ")
        };
        let names = join(&|_, (column, _)| (*column).to_owned());
        let values = join(&|at, (_, cast)| format!("u.c{at}{cast}"));
        let marks = join(&|at, _| format!("${}", at + 1));
        let aliases = join(&|at, _| format!("c{at}"));
        let set = columns.iter().filter(|(column, _)| !key.contains(column));
        let set = set.map(|(column, _)| format!("{column} = excluded.{column}"));
        sql(&format!(
            "INSERT INTO @{name} AS t ({names}) SELECT {values} FROM unnest({marks}) u({aliases})
             ON CONFLICT ({}) DO UPDATE SET {} WHERE {only}",
            key.join(", "),
            set.collect::<Vec<_>>().join(", ")
        ))
    }
}

/// The value of one column of a row.
pub(crate) enum Cell {
    Text(Option<String>),
    Instant(Option<SystemTime>),
    Number(i32),
    Flag(bool),
}

pub(crate) fn text(text: &str) -> Cell {
    Cell::Text(Some(clean(text)))
}

pub(crate) fn maybe(text: Option<&str>) -> Cell {
    Cell::Text(text.map(clean))
}

pub(crate) fn json(text: String) -> Cell {
    Cell::Text(Some(Json::from_text(text).0))
}

pub(crate) fn instant(at: Option<Timestamp>) -> Cell {
    Cell::Instant(at.map(system))
}

pub(crate) fn number(number: u32) -> Cell {
    Cell::Number(number as i32)
}

/// The values of one column.
enum Column {
    Text(Vec<Option<String>>),
    Instant(Vec<Option<SystemTime>>),
    Number(Vec<i32>),
    Flag(Vec<bool>),
}

impl Column {
    fn parameter(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Text(values) => (values, Type::TEXT_ARRAY),
            Self::Instant(values) => (values, Type::TIMESTAMPTZ_ARRAY),
            Self::Number(values) => (values, Type::INT4_ARRAY),
            Self::Flag(values) => (values, Type::BOOL_ARRAY),
        }
    }
}

/// Rows on their way to a table.
#[derive(Default)]
pub(crate) struct Rows {
    columns: Vec<Column>,
}

impl Rows {
    /// Takes a row; all rows of a table have the same kinds of cells.
    pub(crate) fn push<const N: usize>(&mut self, cells: [Cell; N]) {
        if self.columns.is_empty() {
            let column = |cell: &Cell| match cell {
                Cell::Text(_) => Column::Text(Vec::new()),
                Cell::Instant(_) => Column::Instant(Vec::new()),
                Cell::Number(_) => Column::Number(Vec::new()),
                Cell::Flag(_) => Column::Flag(Vec::new()),
            };
            self.columns = cells.iter().map(column).collect();
        }
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            match (column, cell) {
                (Column::Text(values), Cell::Text(value)) => values.push(value),
                (Column::Instant(values), Cell::Instant(value)) => values.push(value),
                (Column::Number(values), Cell::Number(value)) => values.push(value),
                (Column::Flag(values), Cell::Flag(value)) => values.push(value),
                // A column without a value would be found by the server.
                _ => {}
            }
        }
    }

    /// Writes them over what is there.
    pub(crate) async fn upsert(self, client: &Client, table: &Table) -> Result<(), ArchiveError> {
        if self.columns.is_empty() {
            return Ok(());
        }
        let params: Vec<_> = self.columns.iter().map(Column::parameter).collect();
        client.execute_typed(&table.statement(), &params).await?;
        Ok(())
    }
}
