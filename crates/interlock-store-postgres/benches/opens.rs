//! How many slots are opened through the store in a second, as a share of what batched inserts of the same rows into the same
//! tables reach in the same run.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::time::Instant;

use interlock_private_server::PrivatePostgres;
use interlock_store_conformance::opens::{BATCH, PIPELINES, open_all, report};
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use tokio_postgres::{
    NoTls,
    types::{ToSql, Type},
};

const ROUNDS: u32 = 5;

/// Rows as the client sends them: one list for each column.
#[derive(Default)]
struct Columns {
    texts: [Vec<String>; 7],
    shards: Vec<i32>,
    numbers: [Vec<i64>; 3],
    until: Vec<Option<i64>>,
}

const TEXTS: [&str; 7] = ["kind", "pipeline", "key", "name", "word", "more", "body"];
const NUMBERS: [&str; 3] = ["revision", "at_us", "rank"];

impl Columns {
    fn take(&mut self, row: &tokio_postgres::Row) {
        for (column, name) in self.texts.iter_mut().zip(TEXTS) {
            column.push(row.get(name));
        }
        for (column, name) in self.numbers.iter_mut().zip(NUMBERS) {
            column.push(row.get(name));
        }
        self.shards.push(row.get("shard"));
        self.until.push(row.get("until_us"));
    }
}

/// Seconds that inserts take of what the store left in a schema, into the empty tables of another: one transaction for each batch,
/// with the rows sent by the client.
async fn inserted(server: &PrivatePostgres, (from, to): (&str, &str)) -> f64 {
    let (client, connection) = tokio_postgres::connect(&server.dsn(), NoTls).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    let rows =
        client.query(&format!("SELECT * FROM {from}.rows ORDER BY at_us"), &[]).await.unwrap();
    let find = format!("SELECT * FROM {from}.events ORDER BY number");
    let events = client.query(&find, &[]).await.unwrap();
    let size = |count: usize| count.div_ceil(PIPELINES as usize / BATCH);
    let mut batches = Vec::new();
    for (rows, events) in rows.chunks(size(rows.len())).zip(events.chunks(size(events.len()))) {
        let mut columns = Columns::default();
        for row in rows {
            columns.take(row);
        }
        let numbers: Vec<i64> = events.iter().map(|row| row.get("number")).collect();
        let pipelines: Vec<String> = events.iter().map(|row| row.get("pipeline")).collect();
        let bodies: Vec<String> = events.iter().map(|row| row.get("body")).collect();
        batches.push((columns, (numbers, pipelines, bodies)));
    }
    let insert_rows = format!(
        "INSERT INTO {to}.rows (kind, pipeline, key, name, word, more, body, revision, at_us, rank, shard, until_us)
         SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
    );
    let insert_events = format!(
        "INSERT INTO {to}.events (number, pipeline, body) SELECT * FROM unnest($1, $2, $3)"
    );
    client.batch_execute("CHECKPOINT").await.unwrap();
    let began = Instant::now();
    for (columns, (numbers, pipelines, bodies)) in &batches {
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> = Vec::new();
        params.extend(columns.texts.iter().map(|it| (it as _, Type::TEXT_ARRAY)));
        params.extend(columns.numbers.iter().map(|it| (it as _, Type::INT8_ARRAY)));
        params.push((&columns.shards, Type::INT4_ARRAY));
        params.push((&columns.until, Type::INT8_ARRAY));
        client.batch_execute("BEGIN").await.unwrap();
        client.execute_typed(&insert_rows, &params).await.unwrap();
        let events: [(&(dyn ToSql + Sync), Type); 3] = [
            (numbers, Type::INT8_ARRAY),
            (pipelines, Type::TEXT_ARRAY),
            (bodies, Type::TEXT_ARRAY),
        ];
        client.execute_typed(&insert_events, &events).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
    }
    began.elapsed().as_secs_f64()
}

fn main() {
    let server = PrivatePostgres::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let open = |schema: &str| {
        let schema = schema.to_owned();
        PostgresStore::open(&PostgresSettings { schema, ..PostgresSettings::new(server.dsn()) })
            .unwrap()
    };
    let rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|round| {
            let (from, to) = (format!("store_{round}"), format!("insert_{round}"));
            let store = open_all(&open(&from));
            drop(open(&to));
            (store, runtime.block_on(inserted(&server, (&from, &to))))
        })
        .collect();
    println!("{}", report("postgres", "insert", &rounds));
}
