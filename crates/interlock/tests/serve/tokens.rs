//! Who may ask, over real connections: tokens made and revoked with and without a daemon.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use interlock_wait::{BOUND, CommandWithin as _};
use serde_json::Value;

use crate::{Daemon, log, project::Project};

const HOURLY: &str =
    "name: hourly\nschedule: '0 * * * *'\ntrigger: {type: command, command: 'true'}\n";

fn project(addr: &str) -> Project {
    let project = Project::new(&[("hourly", HOURLY)]);
    fs::write(project.path().join("interlock.yaml"), format!("server: {{addr: '{addr}'}}\n"))
        .unwrap();
    project
}

/// The status of `/metrics`, asked with these headers on this machine.
fn metrics(project: &Project, headers: &str) -> Option<u16> {
    metrics_page(project, headers)?.split(' ').nth(1)?.parse().ok()
}

/// What `/metrics` says, with its head.
pub(crate) fn metrics_page(project: &Project, headers: &str) -> Option<String> {
    let told = fs::read_to_string(project.folder().join("http.json")).ok()?;
    let told: Value = serde_json::from_str(&told).ok()?;
    let port = told["address"].as_str()?.rsplit_once(':')?.1.to_owned();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).ok()?;
    stream.set_read_timeout(Some(BOUND)).ok()?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn create(project: &Project, arguments: &[&str]) -> (String, String) {
    let ran = project.run(&[&["token", "create", "--json"], arguments].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let made: Value = serde_json::from_str(&ran.stdout).unwrap();
    (made["id"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
}

#[test]
fn tokens_are_made_listed_used_and_revoked_with_and_without_a_daemon() {
    let project = project("127.0.0.1:0");
    // Nobody serves yet.
    let (looking, look) = create(&project, &["ann", "--by", "ben"]);
    let daemon = Daemon::start(project.path());
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let asked = || metrics(&project, &bearer(&look)).filter(|status| *status == 200);
    project.until("the token opens the door", asked);
    assert_eq!(metrics(&project, ""), Some(401));
    // While it serves: a second one, for pings only, and an end of the first.
    let (pinging, ping) = create(&project, &["cron", "--scope", "ping", "--pipeline", "hour*"]);
    project.until("it is known, and not enough", || {
        metrics(&project, &bearer(&ping)).filter(|status| *status == 403)
    });
    let listed = project.run(&["token", "list"]).stdout;
    assert!(listed.contains(&looking) && listed.contains("ping hour*"), "{listed}");
    assert_eq!(listed.matches("until it is revoked").count(), 2, "they are in force: {listed}");
    for secret in [&look, &ping] {
        assert!(!listed.contains(secret.as_str()), "{listed}");
    }
    assert_eq!(project.run(&["token", "revoke", &looking]).code, 0);
    project.until("it opens nothing", || {
        metrics(&project, &bearer(&look)).filter(|status| *status == 401)
    });
    assert_eq!(project.run(&["token", "revoke", &looking]).code, 1, "there is none");
    drop(daemon);
    assert_eq!(project.run(&["token", "revoke", &pinging]).code, 0, "nobody serves");
    assert!(project.run(&["token", "list"]).stdout.contains("no tokens"));
    let events = project.run(&["events", "_system"]).stdout;
    assert_eq!(events.matches("TOKEN_CREATED").count(), 2, "{events}");
    assert_eq!(events.matches("TOKEN_REVOKED").count(), 2, "{events}");
    // Nothing that opens anything is anywhere on the disk, the log included.
    for secret in [&look, &ping] {
        let secret = secret.trim_start_matches("il_");
        assert!(!log(project.path()).contains(secret) && !events.contains(secret));
        let kept = std::process::Command::new("grep")
            .args(["-rl", secret])
            .arg(project.path())
            .output_within(BOUND);
        assert_eq!(String::from_utf8(kept.unwrap().stdout).unwrap(), "", "it is kept");
    }
}

#[test]
fn beyond_loopback_nobody_is_served_without_a_token_not_even_when_the_last_is_revoked() {
    let project = project("0.0.0.0:0");
    let ran = project.run(&["serve"]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("no token is set"), "{}", ran.stderr);
    assert!(ran.stderr.contains("interlock token create"), "{}", ran.stderr);
    let (id, token) = create(&project, &["ann", "--scope", "admin"]);
    let _daemon = Daemon::start(project.path());
    let with = format!("X-API-Key: {token}\r\n");
    project.until("it serves", || metrics(&project, &with).filter(|status| *status == 200));
    assert_eq!(project.run(&["token", "revoke", &id]).code, 0);
    project.until("it opens nothing", || metrics(&project, &with).filter(|status| *status == 401));
    assert_eq!(metrics(&project, ""), Some(401), "and the door is not open");
}

#[test]
fn a_token_for_pings_names_its_pipelines_and_no_other_does() {
    let project = project("127.0.0.1:0");
    for arguments in [
        &["token", "create", "a", "--scope", "ping"][..],
        &["token", "create", "a", "--scope", "viewer", "--pipeline", "orders"],
        &["token", "create", "a", "--scope", "root"],
    ] {
        assert_eq!(project.run(arguments).code, 2, "{arguments:?}");
    }
    assert!(!project.folder().exists(), "nothing is made for a mistake");
}
