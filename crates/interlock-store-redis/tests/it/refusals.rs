//! Servers that would lose what is recorded are refused or warned of, each with what to do.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
};

use interlock_private_server::PrivateRedis;
use interlock_store::{Store as _, block_on};
use interlock_store_redis::{RedisSettings, RedisStore};

use crate::cast::{open, redis_cli, redis_cli_as};

#[test]
fn server_that_keeps_nothing_is_refused() {
    let server = PrivateRedis::start_with(&[]);
    let error = open(server.address()).unwrap_err();
    assert!(error.message.contains("appendonly yes") && !error.is_retryable, "{error}");
}

#[test]
fn server_that_evicts_is_refused() {
    let log = ["--appendonly", "yes", "--appendfsync", "always"];
    let full = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = PrivateRedis::start_with(&[&log[..], &full[..]].concat());
    let error = open(server.address()).unwrap_err();
    assert!(
        error.message.contains("allkeys-lru") && error.message.contains("noeviction"),
        "{error}"
    );
    // A limit can be set later, and then it is too late to look.
    redis_cli(&server.address(), &["CONFIG", "SET", "maxmemory", "0"]);
    let store = open(server.address()).unwrap();
    assert!(block_on(store.cautions()).unwrap().concat().contains("allkeys-lru"), "{store:?}");
    redis_cli(&server.address(), &["CONFIG", "SET", "maxmemory", "100mb"]);
    redis_cli(&server.address(), &["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    let store = open(server.address()).unwrap();
    assert!(store.warnings().iter().any(|said| said.contains("volatile-ttl")), "{store:?}");
    redis_cli(&server.address(), &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_eq!(open(server.address()).unwrap().warnings(), [""; 0]);
}

#[test]
fn server_that_may_forget_the_last_second_is_warned_of() {
    let server = PrivateRedis::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let store = open(server.address()).unwrap();
    assert!(store.warnings().iter().any(|said| said.contains("everysec")), "{store:?}");
    redis_cli(&server.address(), &["CONFIG", "SET", "appendonly", "no"]);
    redis_cli(&server.address(), &["CONFIG", "SET", "save", "3600 1"]);
    let store = open(server.address()).unwrap();
    assert!(store.warnings().iter().any(|said| said.contains("append-only")), "{store:?}");
}

#[test]
fn password_is_used_and_never_said() {
    let log = ["--appendonly", "yes", "--appendfsync", "always", "--requirepass", "hunter2"];
    let server = PrivateRedis::start_with(&log);
    let with = |password: &str| {
        let password = Some(password.to_owned());
        RedisStore::open(&RedisSettings { password, ..RedisSettings::new(server.address()) })
    };
    let store = with("hunter2").unwrap();
    assert!(!format!("{store:?}").contains("hunter2"));
    let error = with("wrong-word").unwrap_err();
    assert!(!error.message.contains("wrong-word"), "{error}");
    assert!(!error.is_retryable && error.message.contains("`redis.password`"), "{error}");
    let error = open(server.address()).unwrap_err();
    assert!(!error.is_retryable && error.message.contains("`redis.password`"), "{error}");
}

/// Something else listens there, such as a web server.
#[test]
fn what_is_no_redis_is_said_in_a_sentence() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        // Bounded: no test waits for this thread; it ends with the test's process.
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // Bounded: no test waits for this thread; it ends with the test's process.
            let _asked = stream.read(&mut [0; 1_000]);
            let _gone = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = open(address.clone()).unwrap_err();
    let said = format!("what answers at {address} does not speak as Redis does: is that its port?");
    assert_eq!(error.message, said);
}

/// Nobody listens there: whoever typed the address hears it before giving up on the command.
#[test]
fn wrong_address_is_said_soon() {
    let mut server = PrivateRedis::start();
    let address = server.address();
    server.kill();
    #[expect(clippy::disallowed_methods, reason = "how long a person waits is what is measured")]
    let began = std::time::Instant::now();
    let error = open(address).unwrap_err();
    assert!(error.is_retryable && error.message.contains("cannot be reached"), "{error}");
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn keys_of_another_format_are_refused() {
    let server = PrivateRedis::start();
    drop(open(server.address()).unwrap());
    redis_cli(&server.address(), &["HSET", "interlock:about", "format", "99"]);
    let error = open(server.address()).unwrap_err();
    assert!(error.message.contains("format 99"), "{error}");
}

#[test]
fn addresses_and_prefixes_that_cannot_be_are_refused() {
    for addr in ["rediss://localhost:6379", "localhost:port"] {
        let error = open(addr.to_owned()).unwrap_err();
        assert!(error.message.contains(addr) && !error.is_retryable, "{error}");
    }
    let wrong =
        RedisSettings { key_prefix: "{tag}".into(), ..RedisSettings::new("127.0.0.1:1".into()) };
    assert!(RedisStore::open(&wrong).unwrap_err().message.contains("keyPrefix"));
}

#[test]
fn who_only_looks_makes_no_store_and_may_look_at_one_that_is_in_danger() {
    let server = PrivateRedis::start();
    let looking = RedisSettings::new(server.address());
    assert!(RedisStore::find(&looking).unwrap().is_none());
    assert_eq!(redis_cli(&server.address(), &["DBSIZE"]), "0", "nothing was made");
    let store = open(server.address()).unwrap();
    assert_eq!(block_on(store.cautions()).unwrap(), [""; 0]);
    redis_cli(&server.address(), &["CONFIG", "SET", "maxmemory", "100mb"]);
    redis_cli(&server.address(), &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    open(server.address()).unwrap_err();
    let look = RedisStore::find(&looking).unwrap().unwrap();
    for cautions in [look.warnings().to_vec(), block_on(store.cautions()).unwrap()] {
        assert!(matches!(&cautions[..], [one] if one.contains("allkeys-lru")), "{cautions:?}");
    }
}

#[test]
fn users_of_a_server_are_named() {
    let server = PrivateRedis::start();
    let (addr, rights) = (server.address(), ["on", ">hunter2", "~*", "&*", "+@all"]);
    redis_cli(&addr, &[&["ACL", "SETUSER", "pipelines"], &rights[..]].concat());
    redis_cli(&addr, &["ACL", "SETUSER", "default", "off"]);
    let as_user = |username: Option<&str>| {
        let (username, password) = (username.map(str::to_owned), Some("hunter2".to_owned()));
        RedisStore::open(&RedisSettings { username, password, ..RedisSettings::new(addr.clone()) })
    };
    assert_eq!(as_user(Some("pipelines")).unwrap().warnings(), [""; 0]);
    let forbid = ["ACL", "SETUSER", "pipelines", "-config"];
    assert_eq!(redis_cli_as(("pipelines", "hunter2"), &addr, &forbid), "OK");
    let store = as_user(Some("pipelines")).unwrap();
    let said = store.warnings().concat();
    assert!(said.contains("does not tell whether") && said.contains("+config|get"), "{said}");
    assert_eq!(block_on(store.cautions()).unwrap(), [""; 0], "that is nobody's danger");
    let error = as_user(None).unwrap_err();
    assert!(error.message.contains("`redis.username`") && !error.is_retryable, "{error}");
}
