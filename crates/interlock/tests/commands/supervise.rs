//! `supervise` and `heartbeat check`, as a user meets them. What supervision does with sick programs is tested where it is
//! made, in `interlock-liveness`.

#![expect(clippy::disallowed_methods, reason = "a real process in real time is what is tested")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use interlock_private_server::PrivateRedis;
use interlock_wait::{
    BOUND, ChildWithin as _, CommandWithin as _, Lines, read_within, wait_for_seeing,
};

use crate::{interlock, repository, run};

#[test]
fn exit_codes_are_those_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let supervise = |more: &[&str]| {
        let mut arguments = vec!["-C", directory, "supervise", "--restart", "never"];
        arguments.extend(more);
        interlock(&arguments)
    };
    assert_eq!(supervise(&["--", "/bin/sh", "-c", "exit 0"]).code, 0);
    let seven = supervise(&["--", "/bin/sh", "-c", "echo out; exit 7"]);
    assert_eq!((seven.code, seven.stdout.as_str()), (7, "out\n"), "{}", seven.stderr);
    assert!(seven.stderr.contains("it exited with 7"), "{}", seven.stderr);
    assert_eq!(supervise(&["--", "/bin/sh", "-c", "kill -KILL $$"]).code, 137);
    assert_eq!(supervise(&["--", "/no/such/program"]).code, 127);
    assert_eq!(supervise(&["--", "/etc/passwd"]).code, 126);
    let hung = ["--max-age", "200ms", "--first-beat", "200ms", "--", "/bin/sleep", "600"];
    let hung = supervise(&hung);
    assert_eq!(hung.code, 113, "{}", hung.stderr);
    assert!(hung.stderr.contains("what it was doing is in "), "{}", hung.stderr);
    assert_eq!(interlock(&["supervise", "--", "true"]).code, 2, "what is to be noticed?");
}

#[test]
fn a_program_that_dies_too_often_is_given_up_with_125() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let arguments = [
        "-C",
        directory,
        "supervise",
        "--max-age",
        "10s",
        "--backoff",
        "10ms",
        "--deaths",
        "3",
        "--",
        "/bin/sh",
        "-c",
        "exit 1",
    ];
    let ran = interlock(&arguments);
    assert_eq!(ran.code, 125, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("it exited with 1").count(), 3, "{}", ran.stderr);
    let again = interlock(&arguments);
    assert_eq!(again.code, 125, "{}", again.stderr);
    assert!(!again.stderr.contains("started, process"), "{}", again.stderr);
    // It says which, when that is over, and what to do who does not want to wait.
    let said = again.stderr.lines().find(|line| line.contains("giving up")).unwrap();
    assert!(said.contains("`sh-") && said.contains(" died 3 times of late"), "{said}");
    let seconds = said.split("again in ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!((500..=601).contains(&seconds.parse::<u32>().unwrap()), "{said}");
    let file = said.split("`rm ").nth(1).unwrap().trim_end_matches('`');
    // Another program under the same shell has nothing to do with that.
    let other = ["-C", directory, "supervise", "--max-age", "10s", "--", "/bin/sh", "-c", "exit 0"];
    assert_eq!(interlock(&other).code, 0);
    fs::remove_file(file).unwrap();
    let ran = interlock(&arguments);
    assert!(ran.stderr.contains("started, process"), "{}", ran.stderr);
}

/// Waits for the end of a process that may hang.
#[track_caller]
fn ends(child: &mut Child) -> ExitStatus {
    child.wait_within("the end of the supervisor", Duration::from_secs(30))
}

fn supervise(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
    command.arg("-C").arg(directory).arg("supervise").args(arguments).stdout(Stdio::null());
    command
}

const SOON_SILENT: [&str; 4] = ["--max-age", "300ms", "--first-beat", "300ms"];

#[test]
fn fault_12_a_program_that_hangs_on_a_log_that_nobody_reads_does_not_take_its_supervisor_along() {
    let folder = tempfile::tempdir().unwrap();
    let fills =
        ["--grace", "200ms", "--restart", "never", "--", "/bin/sh", "-c", "cat /dev/zero >&2"];
    let (reader, writer) = std::io::pipe().unwrap();
    let began = Instant::now();
    let arguments = [&SOON_SILENT[..], &fills].concat();
    let mut child = supervise(folder.path(), &arguments).stderr(writer).spawn().unwrap();
    assert_eq!(ends(&mut child).code(), Some(113));
    assert!(began.elapsed() > Duration::from_millis(300));
    drop(reader);
}

#[test]
fn who_asks_for_the_end_while_a_hung_program_is_ended_gets_it() {
    for signal in ["-TERM", "-INT"] {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap '' TERM ABRT; while :; do sleep 0.05; done";
        let hangs = ["--grace", "2s", "--backoff", "10ms", "--", "/bin/sh", "-c", script];
        let arguments = [&SOON_SILENT[..], &hangs].concat();
        let mut child =
            supervise(folder.path(), &arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut says = Lines::of(child.stderr.take().unwrap());
        let is_written = |line: &str| line.contains("what it was doing is in");
        let written = says.find_within("the report of the hang", BOUND, is_written);
        assert!(written.is_some(), "{:?}", says.heard());
        let asked =
            Command::new("kill").args([signal, &child.id().to_string()]).status_within(BOUND);
        assert!(asked.unwrap().success());
        let code = ends(&mut child).code();
        says.rest_within("the end of what it says", BOUND);
        let said = says.heard().join("\n");
        assert_eq!(code, Some(113), "{said}");
        assert_eq!(said.matches("started, process").count(), 1, "{said}");
    }
}

#[test]
fn a_pipe_is_no_heartbeat_file_and_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status_within(BOUND).unwrap().success());
    let pipe = pipe.to_str().unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_interlock"));
    check.args(["heartbeat", "check", pipe, "--max-age", "1s"]);
    let listen = ["--heartbeat", pipe, "--max-age", "1s", "--restart", "never", "--", "true"];
    for mut command in [supervise(folder.path(), &listen), check] {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let status = ends(&mut child);
        let said = read_within(child.stderr.take().unwrap(), "the end of what it says", BOUND);
        assert_eq!(status.code(), Some(3), "{said}");
        assert!(said.contains("it is no regular file"), "{said}");
    }
    assert!(!Path::new(&format!("{pipe}.seen")).exists());
}

#[test]
fn a_heartbeat_is_found_wherever_the_program_goes_and_one_that_cannot_be_is_said_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let script = "cd /; echo 1 > \"$INTERLOCK_HEARTBEAT_FILE\"; exit 5";
    let common = ["--max-age", "5s", "--restart", "never", "--", "/bin/sh", "-c", script];
    let arguments = [&["--heartbeat", "beat"], &common[..]].concat();
    let ran = run(supervise(folder.path(), &arguments).current_dir(folder.path()));
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(folder.path().join("beat").exists(), "{}", ran.stderr);
    assert!(!ran.stderr.contains("cannot be written"), "{}", ran.stderr);
    let arguments = [&["--heartbeat", "/no/such/folder/beat"], &common[..]].concat();
    let ran = run(&mut supervise(folder.path(), &arguments));
    let (before, _) = ran.stderr.split_once("started, process").unwrap();
    assert!(before.contains("/no/such/folder/beat cannot be written"), "{}", ran.stderr);
}

#[test]
fn fault_20_what_a_full_disk_does_not_keep_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=16k none \"$0\" 2>/dev/null || exit 77; cd \"$0\"; mkdir -p .interlock/supervise; \
                  touch .interlock/supervise/p.lock; cat /dev/zero > full 2>/dev/null; \
                  \"$1\" -C . supervise --name p --max-age 300ms --first-beat 300ms --restart never -- sleep 600; \
                  echo \"code $?\"; ls .interlock/supervise";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(folder.path());
    let ran = run(command.arg(env!("CARGO_BIN_EXE_interlock")));
    if ran.code == 77 || ran.code == 1 && ran.stdout.is_empty() {
        return;
    }
    assert_eq!(ran.stdout, "code 113\np.lock\n", "{}", ran.stderr);
    assert!(ran.stderr.contains("could not be written down: No space left"), "{}", ran.stderr);
    assert!(ran.stderr.contains("thread ") && ran.stderr.contains("`sleep`"), "{}", ran.stderr);
}

/// A supervisor whose words can be read one by one.
struct Watched {
    child: Child,
    says: Lines,
}

impl Watched {
    fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let says = Lines::of(child.stderr.take().unwrap());
        Self { child, says }
    }

    /// Reads until something was said so often.
    #[track_caller]
    fn until(&mut self, words: &str, times: usize) {
        let mut missing = times.saturating_sub(self.said().matches(words).count());
        if missing == 0 {
            return;
        }
        let what = format!("`{words}` for the {times}th time");
        let found = self.says.find_within(&what, BOUND, |line| {
            missing = missing.saturating_sub(line.matches(words).count());
            missing == 0
        });
        assert!(found.is_some(), "{words}: {}", self.said());
    }

    /// All that was read so far.
    fn said(&self) -> String {
        self.says.heard().join("\n")
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let mut kill = Command::new("kill");
        assert!(kill.args([name, &pid]).status_within(BOUND).unwrap().success());
    }

    /// Asks for its end; answers with its code and all that it said.
    fn stop(mut self) -> (Option<i32>, String) {
        self.signal("-TERM");
        let code = ends(&mut self.child).code();
        self.says.rest_within("the end of what it says", BOUND);
        (code, self.said())
    }
}

const FEW_DEATHS: [&str; 6] = ["--restart", "always", "--deaths", "2", "--backoff", "10ms"];

#[test]
fn whoever_is_done_or_was_ended_by_a_wish_has_not_died() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [&FEW_DEATHS[..], &["--name", "done", "--", "/bin/true"]].concat();
    let mut done = Watched::start(supervise(folder.path(), &arguments));
    done.until("it exited with 0", 4);
    // Between two of them, or with one that is up just then.
    let (code, said) = done.stop();
    assert!(matches!(code, Some(0 | 143)), "{code:?}: {said}");
    let arguments = [&FEW_DEATHS[..], &["--name", "wish", "--", "/bin/sleep", "600"]].concat();
    let mut wished = Watched::start(supervise(folder.path(), &arguments));
    for (signal, times) in [("-HUP", 1), ("-USR1", 2), ("-HUP", 3)] {
        wished.until("started, process", times);
        wished.signal(signal);
        wished.until("it was ended by signal", times);
    }
    wished.until("started, process", 4);
    let (code, said) = wished.stop();
    assert_eq!(code, Some(143), "{said}");
    let left = fs::read_dir(folder.path().join(".interlock/supervise")).unwrap().flatten();
    let left: Vec<_> = left.filter(|it| it.path().extension().unwrap() != "lock").collect();
    assert!(left.is_empty(), "nobody is to be told of anything: {left:?}");
}

#[test]
fn a_program_that_is_away_for_a_moment_is_started_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let write = |text: &str| {
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("#!/bin/sh\nrm \"$0\"; exit 3\n");
    let path = program.to_str().unwrap();
    let common = ["--restart", "on-failure", "--backoff", "300ms", "--"];
    let mut away = Watched::start(supervise(folder.path(), &[&common[..], &[path]].concat()));
    away.until("it cannot be started again: ", 1);
    write("#!/bin/sh\nexit 0\n");
    assert_eq!(ends(&mut away.child).code(), Some(0));
    away.until("started, process", 2);
    // Away for good it is given up, like everything else that does not work.
    write("#!/bin/sh\nrm \"$0\"; exit 3\n");
    let common =
        ["--restart", "on-failure", "--backoff", "10ms", "--deaths", "4", "--name", "gone"];
    let ran = run(&mut supervise(folder.path(), &[&common[..], &["--", path]].concat()));
    assert_eq!(ran.code, 125, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("it cannot be started again").count(), 3, "{}", ran.stderr);
}

#[test]
fn when_the_terminal_is_closed_the_program_ends_and_is_not_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let (program, said) = (env!("CARGO_BIN_EXE_interlock"), folder.path().join("said"));
    let command = format!(
        "exec {program} -C {} supervise --restart always --backoff 10ms -- /bin/sleep 600 2>{}",
        folder.path().display(),
        said.display()
    );
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &command, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut terminal = terminal.spawn().unwrap();
    let said = || fs::read_to_string(&said).unwrap_or_default();
    let until = |words: &str| {
        let look = || said().contains(words).then_some(());
        wait_for_seeing(words, Duration::from_secs(30), look, said);
    };
    until("started, process");
    terminal.kill_and_wait();
    until("it was asked to end");
    assert_eq!(said().matches("started, process").count(), 1, "{}", said());
}

#[test]
fn names_that_hide_and_times_that_are_too_short_are_refused() {
    for wrong in [["--name", ".."], ["--name", "a/b"], ["--max-age", "1ms"], ["--max-age", "99ms"]]
    {
        let arguments =
            [&["supervise", "--restart", "never"], &wrong[..], &["--", "true"]].concat();
        let refused = interlock(&arguments);
        assert_eq!(refused.code, 2, "{wrong:?}: {}", refused.stderr);
    }
}

#[test]
fn the_help_says_what_is_required() {
    let help = interlock(&["supervise", "--help"]).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("Required, unless `--restart` is given"), "{help}");
    assert!(!help.contains("[default: only its end is noticed]"), "{help}");
    assert_eq!(interlock(&["supervise", "--max-age", "1s", "--deaths", "0", "--", "true"]).code, 2);
}

#[test]
fn the_unit_has_systemd_watch_and_never_give_up() {
    let unit = fs::read_to_string(repository().join("deploy/systemd/interlock.service")).unwrap();
    let (head, service) = unit.split_once("[Service]").unwrap();
    assert!(head.lines().any(|line| line == "StartLimitIntervalSec=0"), "{head}");
    for line in ["Type=notify", "NotifyAccess=main", "WatchdogSec=30", "Restart=always"] {
        assert!(service.lines().any(|it| it == line), "{line}");
    }
}

#[test]
fn a_signal_ends_the_program_first_and_its_code_is_ours() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("-C")
        .arg(folder.path())
        .args(["supervise", "--restart", "always", "--", "/bin/sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut says = Lines::of(child.stdout.take().unwrap());
    assert_eq!(says.next_within("`ready`", BOUND).unwrap(), "ready");
    let pid = child.id().to_string();
    // A second one is told who has it.
    let directory = folder.path().to_str().unwrap();
    let second = ["-C", directory, "supervise", "--max-age", "9s", "--", "/bin/sh", "-c", script];
    let second = interlock(&second);
    assert_eq!(second.code, 3, "{}", second.stderr);
    assert!(second.stderr.contains("`sh-"), "{}", second.stderr);
    let named = format!("` runs already, under process {pid}, since 20");
    assert!(second.stderr.contains(&named), "{}", second.stderr);
    assert!(second.stderr.contains(&format!("kill {pid}")), "{}", second.stderr);
    assert!(Command::new("kill").args(["-TERM", &pid]).status_within(BOUND).unwrap().success());
    assert_eq!(ends(&mut child).code(), Some(9));
}

#[test]
fn a_heartbeat_file_is_judged_by_its_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("beat");
    let path = file.to_str().unwrap();
    let check = |max_age: &str| interlock(&["heartbeat", "check", path, "--max-age", max_age]);
    assert_eq!(check("10s").code, 1, "there is none yet");
    // An hour ago by the wall clock, which says nothing.
    fs::write(&file, "1700000000\n").unwrap();
    let first = check("10s");
    assert_eq!(first.code, 0);
    assert!(first.stdout.starts_with("not known yet: this is the first look"), "{}", first.stdout);
    let second = check("10s").stdout;
    assert!(second.starts_with("alive: the last sign is "), "{second}");
    let stale = check("1ms");
    assert_eq!(stale.code, 1, "{}", stale.stdout);
    assert!(stale.stdout.starts_with("stale: the last sign is "), "{}", stale.stdout);
    fs::write(&file, "1600000000\n").unwrap();
    assert_eq!(check("1ms").code, 0, "it has just changed, and be it backwards");
    fs::write(&file, [b"ILKBEAT1".as_slice(), &[7; 56]].concat()).unwrap();
    assert_eq!(check("10s").code, 1, "a record that is damaged");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(check("10s").code, 3, "it cannot be read");
}

/// A key of the server, by the real client.
fn redis(server: &PrivateRedis, command: &[&str]) -> String {
    let port = server.port().to_string();
    let ran =
        Command::new("redis-cli").args(["-p", &port]).args(command).output_within(BOUND).unwrap();
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_key_that_some_program_writes_is_judged_by_its_changes() {
    let server = PrivateRedis::start();
    let key = format!("redis://{}/app:beat", server.address());
    let check = |max_age: &str| interlock(&["heartbeat", "check", &key, "--max-age", max_age]);
    let none = check("10s");
    assert_eq!(none.code, 1, "there is none yet: {}", none.stderr);
    // As the seed writes it: a time, which says nothing.
    redis(&server, &["SET", "app:beat", "1700000000"]);
    let first = check("10s");
    assert_eq!(first.code, 0);
    assert!(first.stdout.starts_with("not known yet: this is the first look"), "{}", first.stdout);
    let second = check("10s");
    assert_eq!(second.code, 0, "and again, by what was kept");
    assert!(second.stdout.starts_with("alive: the last sign is "), "{}", second.stdout);
    // By the server's own clock it was seen a minute ago.
    let ten_years_less_a_minute = (3_650_u64 * 24 * 60 - 1) * 60_000;
    redis(&server, &["PEXPIRE", "app:beat:seen", &ten_years_less_a_minute.to_string()]);
    let stale = check("50s");
    assert_eq!(stale.code, 1, "{}", stale.stdout);
    assert!(stale.stdout.starts_with("stale: the last sign is 60."), "{}", stale.stdout);
    assert_eq!(check("70s").code, 0);
    // Nor does it come back to life when the day is over, and it can be stale after two.
    let three_days_ago = (3_647_u64 * 24 * 3_600_000).to_string();
    redis(&server, &["PEXPIRE", "app:beat:seen", &three_days_ago]);
    assert_eq!((check("48h").code, check("96h").code), (1, 0));
    redis(&server, &["SET", "app:beat", "1600000000", "EX", "30"]);
    assert_eq!(check("50s").code, 0, "it has just changed, and be it backwards");
    redis(&server, &["DEL", "app:beat"]);
    assert_eq!(check("10s").code, 1, "it is gone");
    assert_eq!(redis(&server, &["EXISTS", "app:beat:seen"]), "0", "and so is what was seen");
    redis(&server, &["RPUSH", "app:beat", "something else"]);
    assert_eq!(check("10s").code, 3, "that is no value");
    drop(server);
    let away = check("10s");
    assert_eq!((away.code, away.stderr.contains("cannot be asked")), (3, true), "{}", away.stderr);
    assert_eq!(interlock(&["heartbeat", "check", "redis://h", "--max-age", "1s"]).code, 2);
    let supervise = ["supervise", "--heartbeat", &key, "--max-age", "1s", "--", "true"];
    assert_eq!(interlock(&supervise).code, 2, "nobody listens to a key");
}
