//! The pages in a real browser, against a daemon at work: what a person does on a bad night, step by step.
//!
//! The steps are `browser/flows.mjs` (playwright with Debian's Chromium; `cargo xtask browser` runs them alone). Each flow tells on its standard
//! output when something is to happen on this side, and fails with what it saw.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use interlock_wait::{ChildWithin as _, Lines};
use serde_json::Value;

use crate::{Daemon, pings::curl, project::Project};

/// How long a step of a flow may take: a browser starts, pages load, jobs run; on a machine that has other work.
const STEP: Duration = Duration::from_mins(2);

/// Two jobs whose slots come every few seconds, one that nobody ever reports, and one that fails.
const PIPELINES: &[(&str, &str)] = &[
    (
        "gappy",
        "name: gappy\nowner: finance\nlabels: {tier: gold}\nschedules: [{id: often, every: 5s}]\nstartGrace: 3s\ntrigger: {type: command, command: 'echo done'}\n",
    ),
    (
        "failing",
        "name: failing\nowner: growth\nschedules: [{id: often, every: 10s}]\nretry: {maxAttempts: 1}\ntrigger: {type: command, command: 'echo about to fail; exit 3'}\n",
    ),
    (
        "daily-report",
        "name: daily-report\nowner: finance\nschedule: '30 2 * * *'\ntimezone: Europe/Berlin\ntrigger: {type: command, command: 'true'}\n",
    ),
    (
        "nightly-backup",
        "name: nightly-backup\nowner: ops\nschedule: '0 3 * * *'\ntrigger: {type: external}\n",
    ),
];

/// A project that is served on a port that stays the same when it is served again.
struct BrowsedSite {
    project: Project,
    daemon: Option<Daemon>,
    base: String,
}

impl BrowsedSite {
    fn new(more: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let project = Project::new(PIPELINES);
        let config = format!("server:\n  addr: '127.0.0.1:{port}'\n{more}");
        fs::write(project.path().join("interlock.yaml"), config).unwrap();
        let mut site = Self { project, daemon: None, base: format!("http://127.0.0.1:{port}") };
        site.start();
        site
    }

    fn start(&mut self) {
        self.daemon = Some(Daemon::start(self.project.path()));
        self.project.until("it answers", || {
            (curl(&["-o", "/dev/null", "-w", "%{http_code}", &format!("{}/readyz", self.base)])
                .stdout
                == "200")
                .then_some(())
        });
    }

    fn kill(&mut self) {
        drop(self.daemon.take());
    }

    fn items(&self, path: &str) -> Vec<Value> {
        let answer = curl(&[&format!("{}{path}", self.base)]);
        let answer: Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
        answer["items"].as_array().cloned().unwrap_or_default()
    }

    /// A slot that nobody ran: it was due while nothing was served.
    fn missed_slot(&mut self) -> String {
        self.project.until("a slot has run", || {
            (!self.items("/api/v1/slots?pipeline=gappy&disposition=completed").is_empty())
                .then_some(())
        });
        self.kill();
        // What is due now is older than `startGrace` when it is served again.
        std::thread::sleep(Duration::from_secs(14));
        self.start();
        self.project.until("a slot was missed", || {
            let missed = self.items(
                "/api/v1/slots?pipeline=gappy&expand=true&disposition=skipped&disposition=missed",
            );
            let first = missed.first()?;
            Some(format!("/pipelines/gappy/slots/often/{}", first["utc"].as_str()?))
        })
    }
}

/// A flow under way.
struct Flow {
    child: Child,
    stdin: ChildStdin,
    said: Lines,
    script: PathBuf,
}

impl Flow {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools/node");
        let is_there = tools.join("node_modules/playwright-core").exists();
        assert!(is_there, "playwright-core is missing: `cargo xtask test` installs it");
        // Modules are looked for beside the script.
        let folder = tools.join("flows");
        fs::create_dir_all(&folder).unwrap();
        let script = folder.join(format!("{name}-{}.mjs", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/browser/flows.mjs");
        fs::copy(source, &script).unwrap();
        let mut node = Command::new("node");
        node.arg(&script).arg(name).args(arguments);
        let mut child = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, said: Lines::of(stdout), script }
    }

    /// Waits until the flow has come so far.
    #[track_caller]
    fn until(&mut self, word: &str) {
        let found = self.said.find_within(word, STEP, |line| line == word);
        assert!(found.is_some(), "the flow ended before `{word}`: {:#?}", self.said.heard());
    }

    /// Lets it go on.
    fn go_on(&mut self) {
        self.stdin.write_all(b"go\n").unwrap();
    }

    /// Waits for its end, which must be a good one.
    #[track_caller]
    fn ends(mut self) {
        // Each line that it says is a step.
        while self.said.next_within("the next step of the flow", STEP).is_some() {}
        let status = self.child.wait_within("the flow ends", STEP);
        let _already_gone = fs::remove_file(&self.script);
        assert!(status.success(), "{:#?}", self.said.heard());
    }
}

#[test]
fn a_missed_slot_is_explained_planned_filled_and_completed() {
    let mut site = BrowsedSite::new("");
    let missed = site.missed_slot();
    let mut flow = Flow::start("gap", &[&site.base, &missed]);
    flow.until("another plan");
    // What is planned on the page is done by another hand before it is asked for.
    let (_, slot) = missed.split_once("/slots/").unwrap();
    let body = format!("{{\"slot\": \"{slot}\"}}");
    let run = format!("{}/api/v1/pipelines/gappy/run", site.base);
    assert!(curl(&["-d", &body, &run]).stdout.contains("\"applied\":true"));
    flow.go_on();
    flow.ends();
}

/// All pages in a theme and at a width.
fn is_accessible(theme: &str, width: &str) {
    let mut site = BrowsedSite::new("");
    let missed = site.missed_slot();
    let is_open = || (!site.items("/api/v1/incidents").is_empty()).then_some(());
    site.project.until("an incident is open", is_open);
    Flow::start("axe", &[&site.base, &missed, theme, width]).ends();
}

#[test]
fn every_page_is_accessible_light_and_wide_and_keeps_to_the_policy() {
    is_accessible("light", "1440");
}

#[test]
fn every_page_is_accessible_dark_and_narrow_and_keeps_to_the_policy() {
    is_accessible("dark", "360");
}

#[test]
fn a_page_says_that_the_server_is_gone_in_every_tab_and_comes_back() {
    let mut site = BrowsedSite::new("");
    let mut flow = Flow::start("gone", &[&site.base]);
    flow.until("eight tabs are live");
    site.kill();
    flow.until("offline");
    site.start();
    flow.until("live again");
    flow.ends();
}

#[test]
fn a_token_opens_the_pages_until_it_is_revoked_without_script_too() {
    let site = BrowsedSite::new("");
    let made = site.project.run(&["token", "create", "marta", "--scope", "operator"]);
    let token = made.stdout.split_whitespace().find(|word| word.starts_with("il_")).unwrap();
    let tokens = site.project.run(&["token", "list", "--json"]);
    let tokens: Value = serde_json::from_str(&tokens.stdout).unwrap();
    let id = tokens[0]["id"].as_str().unwrap();
    let mut flow = Flow::start("token", &[&site.base, token]);
    flow.until("revoke");
    assert_eq!(site.project.run(&["token", "create", "other", "--scope", "admin"]).code, 0);
    assert_eq!(site.project.run(&["token", "revoke", id]).code, 0);
    flow.go_on();
    flow.ends();
}
