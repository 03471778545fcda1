//! The examples, run to their ends as they stand: `cargo run -p interlock-liveness --example …`.

#[path = "../examples/leader_loop.rs"]
mod leader_loop;
#[cfg(feature = "tokio")]
#[path = "../examples/tokio_service.rs"]
mod tokio_service;
#[path = "../examples/worker_loop.rs"]
mod worker_loop;

#[test]
fn the_worker_does_its_work() {
    worker_loop::main().unwrap();
}

#[test]
fn the_leader_writes_under_its_term_and_not_after_it() {
    leader_loop::main().unwrap();
}

#[cfg(feature = "tokio")]
#[test]
fn the_service_polls_and_is_live() {
    tokio_service::main().unwrap();
}
