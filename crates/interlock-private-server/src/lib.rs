//! Real Redis and PostgreSQL servers for tests.
//!
//! Each is started for one test, on a free port of the loopback, with temporary data, and relies on nothing
//! that the machine runs besides. It ends with its owner: dropped, it is ended by its pid; and if the owner
//! dies without a word, its keeper notices (see the module `keeper`). PostgreSQL and PgBouncer refuse to run
//! as root; they then run as an unprivileged user.
//!
//! Whatever is wrong is a panic that says what to install: this is for tests alone.

#![expect(
    clippy::disallowed_methods,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "this is test code that is shared: it waits by the real clock, and what cannot be started fails the test"
)]

mod bouncer;
mod certificates;
mod cluster;
mod keeper;
mod port;
mod postgres;
mod python;
mod redis;
mod redis_client;

pub use self::{
    bouncer::PrivateBouncer,
    certificates::certify,
    cluster::{Move, PrivateCluster},
    keeper::Signal,
    port::Port,
    postgres::PrivatePostgres,
    python::PythonServer,
    redis::PrivateRedis,
    redis_client::{RedisClient, redis_cli},
};

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a server may take to be ready, on a machine that is busy.
const READY_IN: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Waits until something is so; false if it takes too long, or `gave_up` says that it never will be.
fn wait_until(mut is_so: impl FnMut() -> bool, mut gave_up: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > READY_IN || gave_up() {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
    true
}

/// Waits until something is so; `seen` tells what was so instead.
#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool, seen: impl FnOnce() -> String) {
    interlock_wait::wait_for_seeing(what, READY_IN, || is_so().then_some(()), seen);
}
