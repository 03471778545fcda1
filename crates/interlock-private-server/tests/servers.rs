//! Private servers start, answer, and end with whoever started them.

#![expect(clippy::disallowed_methods, reason = "processes are waited for by the real clock")]

use std::{
    env,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use interlock_private_server::{PrivateBouncer, PrivatePostgres, PrivateRedis};

fn answers(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "waited 30 s for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn dropped_server_is_gone_with_its_data() {
    let server = PrivateRedis::start();
    let (port, folder) = (server.port(), server.folder());
    assert!(answers(port) && folder.exists());
    drop(server);
    assert!(!answers(port) && !folder.exists());
}

#[test]
fn killed_server_starts_again_on_its_data() {
    let mut server = PrivateRedis::start();
    let port = server.port();
    server.kill();
    assert!(!answers(port) && server.folder().exists());
    assert!(server.start_again() && answers(port));
}

#[test]
fn bouncer_stands_before_its_server() {
    let server = PrivatePostgres::start_with(&["fsync=off"]);
    let bouncer = PrivateBouncer::start(&server, 2);
    assert!(server.dsn().contains(&server.port().to_string()));
    assert!(!bouncer.dsn().contains(&server.port().to_string()));
}

/// The owner of the test below: another process, which is killed.
#[test]
fn owner_that_will_be_killed() {
    if env::var_os("PRIVATE_SERVER_OWNER").is_none() {
        return;
    }
    let server = PrivateRedis::start();
    let said = format!("\nserver {} {}", server.port(), server.folder().display());
    std::fs::write(env::var_os("PRIVATE_SERVER_OWNER").unwrap(), said).unwrap();
    // Longer than the test that kills this process, but not for ever if that test fails first.
    thread::sleep(Duration::from_mins(2));
}

#[test]
fn server_ends_when_its_owner_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let mut owner = Command::new(env::current_exe().unwrap())
        .args(["--exact", "owner_that_will_be_killed", "--nocapture"])
        .env("PRIVATE_SERVER_OWNER", &told)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the owner to tell the port and folder of its server", || read(&told).is_some());
    let (port, data) = read(&told).unwrap();
    assert!(answers(port) && data.exists());
    owner.kill().unwrap();
    owner.wait().unwrap();
    let is_gone = || !answers(port) && !data.exists();
    wait_for("the end of a server whose owner was killed", is_gone);
}

fn read(told: &Path) -> Option<(u16, PathBuf)> {
    let line = BufReader::new(std::fs::File::open(told).ok()?).lines().nth(1)?.ok()?;
    let mut words = line.split(' ').skip(1);
    Some((words.next()?.parse().ok()?, words.next()?.into()))
}
