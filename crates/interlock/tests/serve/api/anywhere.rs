//! The commands against a server: what they print and how they end is what they print and how they end on its machine.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use interlock_wait::{BOUND, CommandWithin as _, ThreadWithin as _};

use super::*;
use crate::{
    process::{Lines, Started},
    project::Ran,
};

/// Each command that a server answers.
const LINES: &str = include_str!("anywhere.txt");

const DAILY: &str = "
name: daily
owner: data
labels: {team: sales}
timezone: Europe/Riga
schedule: '0 9 * * *'
trigger: {type: command, command: 'echo daily'}
";

const BY_HAND: &str = "
name: by-hand
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'echo one; echo two'}
";

const FAILING: &str = "
name: failing
schedule: '0 0 1 1 *'
retry: {maxAttempts: 1}
trigger: {type: command, command: 'echo bad; exit 3'}
";

const WAITING: &str = "
name: waiting
schedule: '0 0 1 1 *'
validation: {trigger: ALL, rules: [{key: landed, check: gte, value: 5}]}
trigger: {type: command, command: 'true'}
";

/// A command line of words.
fn interlock(directory: &Path, line: &[&str], environment: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
    command.args(line).current_dir(directory).env_clear();
    command.env("HOME", directory).envs(environment.iter().copied());
    command.output_within(BOUND).unwrap().into()
}

/// What stands for itself in a line.
fn filled<'a>(line: &'a str, words: &[(&str, &'a str)]) -> Vec<String> {
    let word = |word: &'a str| {
        words.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value))
    };
    line.split(' ').map(word).collect()
}

/// A server with a ledger that has something of everything, and nothing that moves any more.
struct Busy {
    site: ApiSite,
    slot: String,
    run: String,
    incident: String,
    number: String,
    /// Where nothing of a project is.
    elsewhere: tempfile::TempDir,
}

impl Busy {
    fn new() -> Self {
        let pipelines =
            [("daily", DAILY), ("by-hand", BY_HAND), ("failing", FAILING), ("waiting", WAITING)];
        let site = ApiSite::new(&pipelines);
        site.until_declared(pipelines.len());
        let project = &site.project;
        let ran = project.run(&["run", "by-hand", "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let told: Value = serde_json::from_str(&ran.stdout).unwrap();
        let slot = told["ended"]["slot"].as_str().unwrap().strip_prefix("by-hand/").unwrap();
        let run = told["ended"]["runs"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(project.run(&["run", "failing"]).code, 1);
        assert_eq!(project.run(&["run", "waiting", "--detach"]).code, 0);
        assert_eq!(project.run(&["sensor", "put", "waiting", "landed", "3"]).code, 0);
        let silence = ["silence", "add", "old", "--pipeline", "x", "--for", "9h", "--reason", "r"];
        assert_eq!(project.run(&silence).code, 0);
        let range = ["--from", "2026-01-01", "--to", "2026-01-03", "--yes", "--follow"];
        let ran = project.run(&[&["backfill", "start", "daily"][..], &range].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        let found = site.json_of(&["backfill", "list", "--json"]);
        let number = found[0]["id"].to_string();
        let found = site.json_of(&["incidents", "--json"]);
        let incident = found[0]["key"].as_str().unwrap().to_owned();
        let (slot, elsewhere) = (slot.to_owned(), tempfile::tempdir().unwrap());
        Self { site, slot, run, incident, number, elsewhere }
    }

    fn words(&self) -> [(&str, &str); 4] {
        [
            ("SLOT", &self.slot),
            ("RUN", &self.run),
            ("BAD", &self.incident),
            ("NUMBER", &self.number),
        ]
    }

    /// The same on the machine of the project.
    fn here(&self, line: &[&str]) -> Ran {
        let project = self.site.project.path().display().to_string();
        interlock(self.elsewhere.path(), &[&["-C", &project], line].concat(), &[])
    }

    /// Asks the server.
    fn there(&self, line: &[&str]) -> Ran {
        interlock(self.elsewhere.path(), &[&["--url", &self.site.base], line].concat(), &[])
    }

    #[track_caller]
    fn done(&self, line: &[&str]) -> Ran {
        let ran = self.there(line);
        assert_eq!(ran.code, 0, "{line:?}: {ran:?}");
        ran
    }
}

#[test]
fn a_server_tells_what_the_files_tell() {
    let busy = Busy::new();
    let looks = LINES.lines().filter_map(|line| line.strip_prefix("= "));
    let (mut differ, mut tried) = (Vec::new(), 0);
    for line in looks {
        let words = filled(line, &busy.words());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (here, there) = (busy.here(&words), busy.there(&words));
        tried += 1;
        if (here.code, &here.stdout) != (there.code, &there.stdout) {
            differ.push(format!("{line}\n--- here\n{here:?}\n--- there\n{there:?}"));
        }
    }
    assert!(tried > 50, "{tried}");
    assert!(differ.is_empty(), "{} of {tried}:\n{}", differ.len(), differ.join("\n\n"));
}

#[test]
fn what_is_asked_of_a_server_is_done_there() {
    let busy = Busy::new();
    let ran = busy.done(&["run", "by-hand"]);
    assert_eq!(ran.stdout, "one\ntwo\n", "what the job printed: {ran:?}");
    assert!(ran.stderr.contains("JOB_TRIGGERED") && ran.stderr.contains("is completed"), "{ran:?}");
    let failed = busy.there(&["run", "failing"]);
    assert_eq!((failed.code, &*failed.stdout), (1, "bad\n"), "{failed:?}");
    let told: Value =
        serde_json::from_str(&busy.done(&["run", "by-hand", "--json"]).stdout).unwrap();
    assert_eq!(
        (&told["accepted"], &told["ended"]["disposition"]),
        (&true.into(), &"completed".into())
    );
    // A person asked.
    let run = busy.site.json_of(&["runs", "by-hand", "--limit", "1", "--json"]);
    assert_eq!(run[0]["triggerType"], "manual");
    let ran = busy.done(&["rerun", "by-hand", &busy.slot, "--reason", "late"]);
    assert!(ran.stdout.starts_with("done"), "{ran:?}");
    assert_eq!(busy.there(&["wait", &format!("by-hand/{}", busy.slot)]).code, 0);
    // What is refused there is refused here, with the same words.
    let cancel = ["cancel", "by-hand", &busy.slot];
    let (there, here) = (busy.there(&cancel), busy.here(&cancel));
    assert_eq!((there.code, &there.stderr), (1, &here.stderr), "{there:?}");
    let json = busy.there(&[&cancel[..], &["--json"]].concat());
    let told: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &told["accepted"]), (1, &false.into()), "{json:?}");
    assert!(told["key"].as_str().is_some_and(|key| !key.is_empty()), "{told}");

    busy.done(&["pause", "daily", "--reason", "moving", "--until", "2099-01-01T00:00"]);
    let until = busy.site.json_of(&["status", "daily", "--json"]);
    assert_eq!(until[0]["paused"]["until"], "2098-12-31T22:00:00Z", "in the zone of the pipeline");
    busy.done(&["resume", "daily", "--yes"]);
    busy.done(&["sensor", "put", "waiting", "landed", "7"]);
    busy.done(&["catchup"]);
    let range = ["--from", "2026-01-05", "--to", "2026-01-08", "--follow", "--yes"];
    let ran = busy.done(&[&["backfill", "start", "daily"][..], &range].concat());
    assert!(ran.stderr.contains("is done: 3/3 completed"), "{ran:?}");
    busy.done(&["incidents", "ack", &busy.incident]);
    busy.done(&["incidents", "note", &busy.incident, "--note", "seen"]);
    let all = busy.done(&["incidents", "resolve", "--pipeline", "failing", "--yes"]);
    assert!(all.stdout.starts_with("resolved "), "{all:?}");
    busy.done(&["silence", "add", "moving", "--pipeline", "daily", "--for", "1h", "--reason", "r"]);
    busy.done(&["silence", "remove", "moving"]);
    assert_eq!(busy.there(&["silence", "remove", "moving"]).code, 1);
    busy.done(&["bark"]);
    let version = busy.done(&["version"]).stdout;
    assert_eq!(version.matches(env!("CARGO_PKG_VERSION")).count(), 2, "{version}");
    let named = busy.there(&["incidents", "ack", &busy.incident, "--by", "ann"]);
    assert_eq!(named.code, 2, "the token says who: {named:?}");
}

#[test]
fn a_token_is_asked_for_weighed_and_never_shown() {
    let busy = Busy::new();
    let made = busy.done(&["token", "create", "looker", "--json"]);
    let viewer: Value = serde_json::from_str(&made.stdout).unwrap();
    let viewer = viewer["token"].as_str().unwrap();
    busy.site
        .project
        .until("the door is closed", || (busy.there(&["list"]).code == 3).then_some(()));
    let none = busy.there(&["status"]);
    assert!(none.stderr.contains("wants a token") && none.stderr.contains("`--token`"), "{none:?}");
    let folder = busy.elsewhere.path().join(".config/interlock");
    fs::create_dir_all(&folder).unwrap();
    let contexts = format!("contexts: {{prod: {{url: '{}', tokenFile: token}}}}\n", busy.site.base);
    fs::write(folder.join("contexts.yaml"), contexts).unwrap();
    fs::write(folder.join("token"), format!("{viewer}\n")).unwrap();
    let elsewhere = busy.elsewhere.path();
    let by_name = interlock(elsewhere, &["--context", "prod", "list"], &[]);
    let by_environment = interlock(
        elsewhere,
        &["list"],
        &[("INTERLOCK_URL", &busy.site.base), ("INTERLOCK_TOKEN", viewer)],
    );
    let by_word = busy.there(&["--token", viewer, "list"]);
    for ran in [&by_name, &by_environment, &by_word] {
        assert_eq!((ran.code, &ran.stdout), (0, &by_name.stdout), "{ran:?}");
    }
    let listed = interlock(elsewhere, &["context", "list"], &[]);
    assert!(listed.stdout.contains("prod") && !listed.stdout.contains(viewer), "{listed:?}");
    let wrong = busy.there(&["--token", "il_wrong_word", "list"]);
    assert!(wrong.code == 3 && wrong.stderr.contains("does not accept the token"), "{wrong:?}");
    let weak = busy.there(&["--token", viewer, "pause", "daily", "--reason", "r"]);
    assert!(weak.code == 3 && weak.stderr.contains("does not let this token do that"), "{weak:?}");
    for ran in [none, wrong, weak, by_name, listed] {
        assert!(!ran.stderr.contains(viewer) && !ran.stderr.contains("il_wrong_word"), "{ran:?}");
    }
}

#[test]
fn a_command_for_a_server_that_is_not_there_says_so_and_asks_nobody_else() {
    // A port that was free a moment ago, and a project in the folder: it must not answer.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let project = Project::new(&[("daily", DAILY), ("by-hand", BY_HAND), ("waiting", WAITING)]);
    let words = [("SLOT", "2026-01-01T00:00Z"), ("RUN", "a~b~c"), ("NUMBER", "1"), ("BAD", "k")];
    let mut wrong = Vec::new();
    for line in LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let line = filled(line.trim_start_matches("= "), &words);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let url = format!("http://{free}");
        let ran = interlock(project.path(), &[&["--url", &url], &line[..]].concat(), &[]);
        // What is no run is refused before anybody is asked.
        let is_asked = ran.stderr.contains(&format!("no answer from {free}: "));
        if !(ran.code == 3 && is_asked || ran.code == 2 && line.contains(&"a~b~c")) {
            wrong.push(format!("{line:?}: {ran:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!project.folder().exists(), "no ledger was made");
}

#[test]
fn a_command_that_needs_this_machine_says_why() {
    let elsewhere = tempfile::tempdir().unwrap();
    for (line, why) in [
        (&["serve"][..], "is the server itself"),
        (&["store", "check"], "looks after the store itself"),
        (&["incidents", "test", "slack"], "sends from this machine"),
        (&["exec", "daily", "--", "true"], "runs a job on this machine"),
    ] {
        let line = [&["--url", "https://interlock.example"], line].concat();
        let ran = interlock(elsewhere.path(), &line, &[]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(
            ran.stderr.contains("cannot be asked of a server: it ") && ran.stderr.contains(why),
            "{ran:?}"
        );
    }
    // The environment names a server for the commands that can use it.
    let ran = interlock(elsewhere.path(), &["validate"], &[("INTERLOCK_URL", "https://a.example")]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let both = interlock(elsewhere.path(), &["--url", "https://a", "-C", ".", "list"], &[]);
    assert!(both.code == 2 && both.stderr.contains("name two places"), "{both:?}");
}

/// Something that answers every request with the same bytes, so many times.
fn answering(bytes: String, times: usize) -> (String, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = thread::spawn(move || {
        for _ in 0..times {
            // Bounded: by the client, whose end is waited for.
            let Ok((mut stream, _)) = listener.accept() else { return };
            stream.set_read_timeout(Some(BOUND)).unwrap();
            let mut head = [0; 4_096];
            let _read = stream.read(&mut head);
            let _written = stream.write_all(bytes.as_bytes());
        }
    });
    (url, serving)
}

#[test]
fn what_is_no_answer_of_interlock_is_told_in_a_sentence() {
    let head = |status: &str, headers: &str, body: &str| {
        format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let elsewhere = tempfile::tempdir().unwrap();
    for (answer, words) in [
        (
            head("302 Found", "Location: https://login.example/?a=b\r\n", ""),
            "sends us on to https://login.example/",
        ),
        (head("200 OK", "", "<html>welcome</html>"), "did not answer as Interlock does"),
        (
            head("200 OK", "Interlock-Version: 9.9.9\r\n", r#"{"rows": []}"#),
            "it is Interlock 9.9.9, and this is",
        ),
        (head("404 Not Found", "", "nothing"), "answered 404, and not as Interlock does"),
        (head("503 Unavailable", "", "later"), "answered 503, and not as Interlock does"),
    ] {
        let (url, serving) = answering(answer, 1);
        let ran = interlock(elsewhere.path(), &["--url", &url, "--token", "il_hush", "runs"], &[]);
        serving.join_within("the stand-in", BOUND).unwrap();
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.stderr.contains(words) && ran.stderr.contains("help: "), "{words}: {ran:?}");
        assert!(!ran.stderr.contains("il_hush"), "{ran:?}");
    }
}

#[test]
fn events_are_followed_across_a_restart_of_the_server() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = format!("server: {{addr: '{free}'}}\n");
    let site = ApiSite::with(&[("by-hand", BY_HAND)], &config);
    site.until_declared(1);
    assert_eq!(site.project.run(&["run", "by-hand"]).code, 0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
    command.args(["--url", &site.base, "events", "by-hand", "--follow", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut following = Started::new(&mut command);
    let mut lines = Lines::of(following.child.stdout.take().unwrap());
    lines.until("\"JOB_COMPLETED\"", 1);
    let ApiSite { project, daemon, .. } = site;
    drop(daemon);
    let daemon = Daemon::start(project.path());
    project.until("it runs again", || (project.run(&["run", "by-hand"]).code == 0).then_some(()));
    lines.until("\"JOB_COMPLETED\"", 2);
    drop(following);
    drop(daemon);
    let printed = lines.said();
    let numbers: Vec<u64> = printed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["number"].as_u64().unwrap())
        .collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "each once, in order: {numbers:?}");
}
