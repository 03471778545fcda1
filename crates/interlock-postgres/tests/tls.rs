//! Over TLS, with a real server: who is believed, who is not, and what is then said.
#![cfg(test)]

use std::path::Path;

use interlock_postgres::{Address, whole};
use interlock_private_server::{PrivatePostgres, certify};
use tempfile::TempDir;

fn certified() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    folder
}

fn address(server: &PrivatePostgres, host: &str, rest: &str) -> String {
    format!("postgres://interlock@{host}:{}/postgres?{rest}", server.port())
}

/// Whether the server says that the connection is secure, or why there is none.
async fn secure(address: &str) -> Result<bool, String> {
    let address = Address::parse(address).map_err(|error| error.to_string())?;
    let (client, connection) = address.connect().await.map_err(|error| whole(&error))?;
    let speaking = tokio::spawn(connection);
    let asked = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let row = client.query_one(asked, &[]).await.map_err(|error| whole(&error))?;
    drop(client);
    speaking.await.unwrap().unwrap();
    Ok(row.get(0))
}

async fn check_refused(address: &str, expected: &str) {
    let said = secure(address).await.unwrap_err();
    assert!(said.contains(expected), "{address}: {said}");
}

fn with_authority(folder: &Path, mode: &str) -> String {
    format!("sslmode={mode}&sslrootcert={}", folder.join("ca.pem").display())
}

#[tokio::test]
async fn servers_are_believed_as_far_as_the_address_says() {
    let folder = certified();
    let server = PrivatePostgres::start_tls(folder.path(), "no");
    let believing = |mode: &str| with_authority(folder.path(), mode);
    // Its certificate is for `localhost`, by an authority that nobody on this machine knows.
    for (host, rest) in [
        ("127.0.0.1", "sslmode=prefer".to_owned()),
        ("127.0.0.1", String::new()),
        ("127.0.0.1", "sslmode=require".to_owned()),
        ("127.0.0.1", believing("require")),
        ("127.0.0.1", believing("verify-ca")),
        ("localhost", believing("verify-full")),
    ] {
        assert_eq!(secure(&address(&server, host, &rest)).await, Ok(true), "{host} {rest}");
    }
    check_refused(&address(&server, "127.0.0.1", &believing("verify-full")), "verify-ca").await;
    check_refused(&address(&server, "localhost", "sslmode=verify-ca"), "sslrootcert").await;
    check_refused(&address(&server, "127.0.0.1", "sslmode=disable"), "no encryption").await;
}

#[tokio::test]
async fn servers_that_want_to_know_who_asks_are_told() {
    let folder = certified();
    let server = PrivatePostgres::start_tls(folder.path(), "yes");
    let believing = with_authority(folder.path(), "verify-full");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let ours = format!("{believing}&sslcert={}&sslkey={}", file("cert.pem"), file("key.pem"));
    assert_eq!(secure(&address(&server, "localhost", &ours)).await, Ok(true));
    check_refused(&address(&server, "localhost", &believing), "client certificate").await;
}

#[tokio::test]
async fn a_server_without_tls_is_not_spoken_to_where_it_was_demanded() {
    let server = PrivatePostgres::start();
    assert_eq!(secure(&address(&server, "127.0.0.1", "sslmode=prefer")).await, Ok(false));
    check_refused(&address(&server, "127.0.0.1", "sslmode=require"), "sslmode=disable").await;
}
