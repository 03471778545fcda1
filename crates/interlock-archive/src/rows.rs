//! Rows on their way to a table: as `COPY` takes them, and as an array for each column.

use std::error::Error;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::SinkExt as _;
use jiff::{Timestamp, civil::Date};
use tokio_postgres::{
    Client,
    types::{IsNull, ToSql, Type, to_sql_checked},
};

use crate::{
    json::{clean, clean_json},
    table::Table,
};

/// Where PostgreSQL begins to count: 2000-01-01, after 1970.
const EPOCH_US: i64 = 946_684_800_000_000;
const EPOCH: Date = Date::constant(2000, 1, 1);
/// How much is handed over at once.
const PIECE: usize = 256 * 1024;

/// The value of one column of a row.
#[derive(Debug, Clone)]
pub(crate) enum Cell {
    Null,
    Text(String),
    Json(String),
    /// Microseconds since 2000.
    Instant(i64),
    /// Days since 2000.
    Date(i32),
    Number(i32),
    Large(i64),
    Flag(bool),
}

pub(crate) fn text(text: &str) -> Cell {
    Cell::Text(clean(text))
}

pub(crate) fn maybe(found: Option<&str>) -> Cell {
    found.map_or(Cell::Null, text)
}

pub(crate) fn json(text: String) -> Cell {
    Cell::Json(clean_json(text))
}

pub(crate) fn instant(at: Option<Timestamp>) -> Cell {
    at.map_or(Cell::Null, |at| Cell::Instant(at.as_microsecond() - EPOCH_US))
}

pub(crate) fn date(date: Date) -> Cell {
    let days = date.duration_since(EPOCH).as_hours() / 24;
    Cell::Date(days as i32)
}

pub(crate) fn number(number: u32) -> Cell {
    Cell::Number(number as i32)
}

impl Cell {
    /// Its bytes, as the server's types are sent.
    fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Null => {}
            Self::Text(text) => out.put_slice(text.as_bytes()),
            Self::Json(text) => {
                // The only version that there is.
                out.put_u8(1);
                out.put_slice(text.as_bytes());
            }
            Self::Instant(number) | Self::Large(number) => out.put_i64(*number),
            Self::Date(number) | Self::Number(number) => out.put_i32(*number),
            Self::Flag(flag) => out.put_u8(u8::from(*flag)),
        }
    }

    /// How many bytes that are, as `COPY` says it.
    fn len(&self) -> i32 {
        match self {
            Self::Null => -1,
            Self::Text(text) => text.len() as i32,
            Self::Json(text) => text.len() as i32 + 1,
            Self::Instant(_) | Self::Large(_) => 8,
            Self::Date(_) | Self::Number(_) => 4,
            Self::Flag(_) => 1,
        }
    }
}

impl ToSql for Cell {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.write(out);
        Ok(if matches!(self, Self::Null) { IsNull::Yes } else { IsNull::No })
    }

    fn accepts(_: &Type) -> bool {
        // Each table names its columns' types, and the server would find another.
        true
    }

    to_sql_checked!();
}

/// Rows of one table.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) table: &'static Table,
    columns: Vec<Vec<Cell>>,
    /// The same rows, as `COPY` takes them.
    copied: BytesMut,
}

impl Rows {
    pub(crate) fn of(table: &'static Table) -> Self {
        let mut copied = BytesMut::new();
        // The signature, no flags, nothing more in the header.
        copied.put_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
        Self { table, columns: vec![Vec::new(); table.columns.len()], copied }
    }

    /// Takes a row: a cell for each column of the table.
    pub(crate) fn push<const N: usize>(&mut self, cells: [Cell; N]) {
        self.copied.put_i16(N as i16);
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            self.copied.put_i32(cell.len());
            cell.write(&mut self.copied);
            column.push(cell);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }

    /// Writes them, and fails if one is there.
    pub(crate) async fn copy(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let sink = client.copy_in::<_, Bytes>(&self.table.copy()).await?;
        let mut sink = std::pin::pin!(sink);
        for piece in self.copied.chunks(PIECE) {
            sink.feed(Bytes::copy_from_slice(piece)).await?;
        }
        // What ends the rows.
        sink.feed(Bytes::from_static(&[0xff, 0xff])).await?;
        // Without this nothing of it is there.
        sink.finish().await.map(drop)
    }

    /// Writes them over what is there.
    pub(crate) async fn upsert(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let types = self.table.columns.iter().map(|(_, of)| array(of));
        let columns = self.columns.iter().map(|column| column as &(dyn ToSql + Sync));
        let params: Vec<_> = columns.zip(types).collect();
        client.execute_typed(&self.table.upsert(), &params).await.map(drop)
    }
}

/// The type of an array.
fn array(of: &Type) -> Type {
    match *of {
        Type::INT4 => Type::INT4_ARRAY,
        Type::INT8 => Type::INT8_ARRAY,
        Type::BOOL => Type::BOOL_ARRAY,
        Type::DATE => Type::DATE_ARRAY,
        Type::TIMESTAMPTZ => Type::TIMESTAMPTZ_ARRAY,
        Type::JSONB => Type::JSONB_ARRAY,
        _ => Type::TEXT_ARRAY,
    }
}
