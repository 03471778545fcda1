//! The examples, run to their ends as they stand: `cargo run -p interlock-liveness --example …`.

#[path = "../examples/leader_loop.rs"]
mod leader_loop;
#[path = "../examples/post_mortem.rs"]
mod post_mortem;
#[cfg(feature = "tokio")]
#[path = "../examples/tokio_service.rs"]
mod tokio_service;
#[path = "../examples/worker_loop.rs"]
mod worker_loop;

/// Not a test: the helper of the one below, which is this program again.
#[test]
fn helper() {
    if std::env::args().any(|argument| argument == post_mortem::HELPER) {
        post_mortem::main().unwrap();
    }
}

#[test]
fn what_hung_is_written_down_and_told() {
    let mut helper = std::process::Command::new(std::env::current_exe().unwrap());
    helper.args(["--exact", "helper", "--nocapture", post_mortem::HELPER]);
    let folder = tempfile::tempdir().unwrap();
    post_mortem::run(helper, folder.path()).unwrap();
    let told = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path());
    let told: Vec<_> =
        told.filter(|path| path.extension().is_some_and(|it| it == "told")).collect();
    assert!(!told.is_empty());
    let text: String = told.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!(text.contains("`worker` S"), "{text}");
}

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
