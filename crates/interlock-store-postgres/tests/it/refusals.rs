//! Servers and schemas that are not what they should be are refused with what to do, and never changed.

use interlock_private_server::PrivatePostgres;
use tokio_postgres::{Client, NoTls};

use crate::cast::open;
use interlock_store::{Store as _, block_on};
use interlock_store_postgres::{PostgresSettings, PostgresStore};

/// Runs statements beside the store.
pub(crate) fn beside(dsn: &str, statements: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        connect(dsn).await.batch_execute(statements).await.unwrap();
    });
}

/// A connection of somebody else.
pub(crate) async fn connect(dsn: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(dsn, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[test]
fn server_that_may_forget_is_refused() {
    for setting in ["fsync", "synchronous_commit"] {
        let server = PrivatePostgres::start_with(&[&format!("{setting}=off")]);
        let error = open(&server.dsn()).unwrap_err();
        assert!(error.message.contains(&format!("`{setting} = off`")), "{error}");
        assert!(!error.is_retryable);
    }
}

#[test]
fn schema_of_others_or_of_another_version_is_refused_and_kept() {
    let server = PrivatePostgres::start();
    let dsn = server.dsn();
    beside(&dsn, "CREATE SCHEMA interlock; CREATE TABLE interlock.theirs (x int4)");
    let error = open(&dsn).unwrap_err();
    assert!(error.message.contains("another program's tables"), "{error}");
    beside(&dsn, "DROP TABLE interlock.theirs");
    drop(open(&dsn).unwrap());
    beside(&dsn, "INSERT INTO interlock.migrations VALUES (99, 'later')");
    let error = open(&dsn).unwrap_err();
    assert!(error.message.contains("newer Interlock"), "{error}");
    beside(&dsn, "DELETE FROM interlock.migrations WHERE step = 99");
    beside(&dsn, "UPDATE interlock.migrations SET checksum = 'edited'");
    let error = open(&dsn).unwrap_err();
    assert!(error.message.contains("step 1 of the schema"), "{error}");
}

#[test]
fn wrong_address_is_said_without_the_password() {
    let error = open("postgres://u:hunter2@127.0.0.1:1/x").unwrap_err();
    assert!(error.is_retryable && !error.message.contains("hunter2"), "{error}");
    let error = open("not an address hunter2").unwrap_err();
    assert!(!error.is_retryable && !error.message.contains("hunter2"), "{error}");
}

#[test]
fn who_only_looks_makes_no_store_and_may_look_at_one_that_is_in_danger() {
    let server = PrivatePostgres::start();
    let dsn = server.dsn();
    let looking = PostgresSettings::new(dsn.clone());
    assert!(PostgresStore::find(&looking).unwrap().is_none());
    beside(&dsn, "DO $$ BEGIN ASSERT to_regnamespace('interlock') IS NULL; END $$");
    let store = open(&dsn).unwrap();
    assert_eq!(block_on(store.cautions()).unwrap(), [""; 0]);
    beside(&dsn, "ALTER ROLE interlock SET synchronous_commit = off");
    open(&dsn).unwrap_err();
    let cautions = block_on(PostgresStore::find(&looking).unwrap().unwrap().cautions()).unwrap();
    assert!(matches!(&cautions[..], [one] if one.contains("synchronous_commit")), "{cautions:?}");
    beside(&dsn, "DELETE FROM interlock.migrations WHERE step > 1");
    let error = PostgresStore::find(&looking).unwrap_err();
    assert!(error.message.contains("older Interlock"), "{error}");
}
