//! Over TLS, with a real server: who is believed, who is not, and what is then said.

use std::path::{Path, PathBuf};

use interlock_private_server::{PrivateRedis, certify};
use interlock_store::{Expect, Store as _, StoreError, block_on};
use interlock_store_redis::{RedisSettings, RedisStore, RedisTls};

use crate::cast::{LONG, acquire, advance};

fn open(addr: String, tls: Option<RedisTls>) -> Result<RedisStore, StoreError> {
    RedisStore::open(&RedisSettings { tls, ..RedisSettings::new(addr) })
}

fn believing(folder: &Path) -> RedisTls {
    RedisTls { ca: Some(folder.join("ca.pem")), client: None }
}

/// It is refused for good, and it is said what to do.
fn check_refused(opened: Result<RedisStore, StoreError>, says: &str) {
    let error = opened.unwrap_err();
    assert!(error.message.contains(says) && !error.is_retryable, "{error}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is looked at")]
fn server_that_proves_who_it_is_gets_everything_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let (mut server, port) = PrivateRedis::start_tls(folder.path(), "no");
    let localhost = format!("localhost:{port}");
    let store = open(localhost.clone(), Some(believing(folder.path()))).unwrap();
    let writer = acquire(&store, "us", LONG).unwrap();
    advance(&store, writer, Expect::Absent).unwrap().unwrap();
    // A connection that breaks is made again, over TLS too.
    server.kill();
    assert!(server.start_again());
    advance(&store, writer, Expect::Revision(1)).unwrap().unwrap();
    assert_eq!(block_on(store.events(None, 0, 10)).unwrap().items.len(), 0);

    // Nobody on this machine knows that authority; and the certificate is for another name.
    check_refused(open(localhost.clone(), Some(RedisTls::default())), "redis.ca");
    check_refused(open(format!("127.0.0.1:{port}"), Some(believing(folder.path()))), "redis.addr");
    // A server without TLS waits for the rest of a greeting that it does not know; we do not wait for ever.
    let began = std::time::Instant::now();
    let error = open(server.address(), Some(believing(folder.path()))).unwrap_err();
    assert!(error.is_retryable && began.elapsed().as_secs() < 20, "{error}");
}

#[test]
fn server_that_asks_who_we_are_is_told() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let (_server, port) = PrivateRedis::start_tls(folder.path(), "yes");
    let localhost = format!("localhost:{port}");
    let file = |name: &str| -> PathBuf { folder.path().join(name) };
    check_refused(open(localhost.clone(), Some(believing(folder.path()))), "redis.cert");
    let client = Some((file("cert.pem"), file("key.pem")));
    let known = RedisTls { client, ..believing(folder.path()) };
    open(localhost.clone(), Some(known.clone())).unwrap();

    let absent = RedisTls { ca: Some(file("nowhere.pem")), ..known.clone() };
    check_refused(open(localhost.clone(), Some(absent)), "nowhere.pem");
    let names = RedisTls { ca: Some(file("names")), ..known };
    check_refused(open(localhost, Some(names)), "PEM");
}
