//! A daemon that is killed leaves no evaluator behind.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use interlock_wait::ChildWithin as _;

use crate::house::{is_alive, until, write_script};

const ORDERS: &str = "
name: orders
schedules: [{id: second, every: 1s}]
traits: {freshness: {evaluator: long, timeout: 1h}}
trigger: {type: command, command: echo ran}
";

fn serve(project: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["serve", "--log", "json"])
        .arg(project)
        .stdout(Stdio::null())
        .stderr(fs::File::create(project.join("serve.log")).unwrap())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn kill_9_of_the_daemon_ends_the_evaluator_and_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path();
    for folder in ["pipelines", "evaluators"] {
        fs::create_dir(project.join(folder)).unwrap();
    }
    fs::write(project.join("pipelines/orders.yaml"), ORDERS).unwrap();
    let here = project.display();
    let text = format!("sleep 600 & echo $! > {here}/child; echo $$ > {here}/pid; wait");
    write_script(&project.join("evaluators/long"), &text);
    let mut daemon = serve(project);
    let pid = |name: &str| -> Option<i32> {
        fs::read_to_string(project.join(name)).ok()?.strip_suffix('\n')?.parse().ok()
    };
    let evaluator = until("the evaluator", || pid("pid")).await;
    let child = until("its child", || pid("child")).await;
    assert!(is_alive(evaluator) && is_alive(child));
    daemon.kill_and_wait();
    until("the evaluator's end", || (!is_alive(evaluator)).then_some(())).await;
    until("its child's end", || (!is_alive(child)).then_some(())).await;
}
