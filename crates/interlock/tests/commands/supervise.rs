//! `supervise` and `heartbeat check`, as a user meets them. What supervision does with sick programs is tested where it is
//! made, in `interlock-liveness`.

#![expect(clippy::disallowed_methods, reason = "a real process in real time is what is tested")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use interlock_private_server::PrivateRedis;
use interlock_wait::wait_for_seeing;
use rustix::process::Signal;

use crate::{
    Ran,
    process::{BOUND, Lines, PLAIN, SHOW, Started, UNUSUAL, output, signals, started_by},
    repository,
};

/// Runs `interlock` in the repository's root.
#[track_caller]
fn interlock(arguments: &[&str]) -> Ran {
    let mut interlock = Command::new(env!("CARGO_BIN_EXE_interlock"));
    run(interlock.args(arguments).current_dir(repository()).env_clear())
}

/// Runs a program, for a while at most.
#[track_caller]
fn run(command: &mut Command) -> Ran {
    output(command).into()
}

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

/// A supervisor that inherits no ignored and no blocked signal.
fn supervise(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = started_by(&[PLAIN], &bare(directory, arguments));
    command.stdout(Stdio::null());
    command
}

/// A supervisor that inherits what these tests do.
fn bare(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
    command.arg("-C").arg(directory).arg("supervise").args(arguments);
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
    let mut command = supervise(folder.path(), &arguments);
    let mut started = Started::new(command.stderr(writer));
    assert_eq!(started.ends("a supervisor whose log is full").code(), Some(113));
    assert!(began.elapsed() > Duration::from_millis(300));
    drop(reader);
}

#[test]
fn who_asks_for_the_end_while_a_hung_program_is_ended_gets_it() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap '' TERM ABRT; while :; do sleep 0.05; done";
        let hangs = ["--grace", "2s", "--backoff", "10ms", "--", "/bin/sh", "-c", script];
        let arguments = [&SOON_SILENT[..], &hangs].concat();
        let mut asked = Watched::start(supervise(folder.path(), &arguments));
        asked.says.until("what it was doing is in", 1);
        let (code, said) = asked.end_by(signal);
        assert_eq!(code, Some(113), "{said}");
        assert_eq!(said.matches("started, process").count(), 1, "{said}");
    }
}

#[test]
fn a_pipe_is_no_heartbeat_file_and_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert_eq!(run(Command::new("mkfifo").arg(&pipe)).code, 0);
    let pipe = pipe.to_str().unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_interlock"));
    check.args(["heartbeat", "check", pipe, "--max-age", "1s"]);
    let listen = ["--heartbeat", pipe, "--max-age", "1s", "--restart", "never", "--", "true"];
    for mut command in [supervise(folder.path(), &listen), check] {
        let ran = run(&mut command);
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        assert!(ran.stderr.contains("it is no regular file"), "{}", ran.stderr);
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
    process: Started,
    says: Lines,
}

impl Watched {
    #[track_caller]
    fn start(mut command: Command) -> Self {
        let mut process = Started::new(command.stderr(Stdio::piped()));
        let says = Lines::of(process.child.stderr.take().unwrap());
        Self { process, says }
    }

    /// Asks for its end; answers with its code and all that it said.
    #[track_caller]
    fn end_by(mut self, signal: Signal) -> (Option<i32>, String) {
        self.process.signal(signal);
        let code = self.process.ends("a supervisor that was asked to end").code();
        let said = self.says.rest("a supervisor that has ended");
        (code, said)
    }
}

const FEW_DEATHS: [&str; 6] = ["--restart", "always", "--deaths", "2", "--backoff", "10ms"];

#[test]
fn whoever_is_done_or_was_ended_by_a_wish_has_not_died() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [&FEW_DEATHS[..], &["--name", "done", "--", "/bin/true"]].concat();
    let mut done = Watched::start(supervise(folder.path(), &arguments));
    done.says.until("it exited with 0", 4);
    // Between two of them, or with one that is up just then.
    let (code, said) = done.end_by(Signal::TERM);
    assert!(matches!(code, Some(0 | 143)), "{code:?}: {said}");
    let arguments = [&FEW_DEATHS[..], &["--name", "wish", "--", "/bin/sleep", "600"]].concat();
    let mut wished = Watched::start(supervise(folder.path(), &arguments));
    for (signal, times) in [(Signal::HUP, 1), (Signal::USR1, 2), (Signal::HUP, 3)] {
        wished.says.until("started, process", times);
        wished.process.signal(signal);
        wished.says.until("it was ended by signal", times);
    }
    wished.says.until("started, process", 4);
    let (code, said) = wished.end_by(Signal::TERM);
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
    away.says.until("it cannot be started again: ", 1);
    write("#!/bin/sh\nexit 0\n");
    let ended = away.process.ends("a supervisor whose program is done");
    assert_eq!(ended.code(), Some(0));
    away.says.until("started, process", 2);
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
    let at = AtTerminal::start("");
    at.until("started, process", 1);
    let at = at.close();
    at.until("it was asked to end", 1);
    assert_eq!(at.said().matches("started, process").count(), 1, "{}", at.said());
}

/// A supervisor of `/bin/sleep` at a terminal of its own.
struct AtTerminal {
    folder: tempfile::TempDir,
    terminal: Option<Started>,
}

impl AtTerminal {
    /// Started by other words, such as `nohup`.
    fn start(words: &str) -> Self {
        let (folder, program) = (tempfile::tempdir().unwrap(), env!("CARGO_BIN_EXE_interlock"));
        let (plain, path) = (PLAIN.join(" "), folder.path().display());
        let command = format!(
            "echo $$ > {path}/pid; exec {plain} {words} {program} -C {path} supervise --restart always --backoff 10ms \
             -- /bin/sleep 600 >{path}/out 2>{path}/said"
        );
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &command, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::null());
        Self { folder, terminal: Some(Started::new(&mut terminal)) }
    }

    /// Closes the terminal; the kernel sends SIGHUP to the supervisor.
    fn close(mut self) -> Self {
        let mut terminal = self.terminal.take().unwrap();
        terminal.signal(Signal::KILL);
        terminal.ends("the terminal that was killed");
        self
    }

    /// Signals the supervisor.
    fn signal(&self, name: &str) {
        let pid = fs::read_to_string(self.folder.path().join("pid")).unwrap();
        assert_eq!(run(Command::new("kill").args([name, pid.trim()])).code, 0);
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap_or_default()
    }

    #[track_caller]
    fn until(&self, words: &str, times: usize) {
        let what = format!("`{words}` to be said {times} times");
        let is_said = || (self.said().matches(words).count() >= times).then_some(());
        wait_for_seeing(&what, BOUND, is_said, || self.said());
    }
}

#[test]
fn under_nohup_the_terminal_may_be_closed() {
    let at = AtTerminal::start("nohup");
    at.until("started, process", 1);
    let at = at.close();
    // A SIGHUP by hand is no different: a shell that ends sends it in the same way.
    at.signal("-HUP");
    // That it still does its work shows that neither has ended it, nor the program.
    at.signal("-USR1");
    at.until("it was ended by signal 10", 1);
    at.until("started, process", 2);
    at.signal("-TERM");
    at.until("it was asked to end", 1);
    assert_eq!(at.said().matches("it was ended by signal").count(), 1, "{}", at.said());
}

#[test]
fn a_program_ignores_and_blocks_nothing_however_its_supervisor_was_started() {
    for words in UNUSUAL {
        let folder = tempfile::tempdir().unwrap();
        let arguments = [&["--restart", "never", "--"], &SHOW[..]].concat();
        let command = bare(folder.path(), &arguments);
        let direct = output(&mut started_by(&[PLAIN, words], Command::new(SHOW[0]).arg(SHOW[1])));
        assert_ne!(signals(&direct.stdout), [0; 3], "{words:?} does nothing");
        let shown = output(&mut started_by(&[PLAIN, words], &command));
        assert_eq!(shown.status.code(), Some(0), "{words:?}: {shown:?}");
        assert_eq!(signals(&shown.stdout), [0; 3], "{words:?}");
    }
}

#[test]
fn a_signal_that_a_supervisor_inherits_as_ignored_stays_ignored_but_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [&FEW_DEATHS[..], &["--", "/bin/sleep", "600"]].concat();
    let ignores = ["env", "--ignore-signal=HUP,INT,USR1,TERM", "--block-signal=HUP,INT,TERM"];
    let command = started_by(&[PLAIN, &ignores], &bare(folder.path(), &arguments));
    let mut deaf = Watched::start(command);
    deaf.says.until("started, process", 1);
    for signal in [Signal::HUP, Signal::INT, Signal::USR1] {
        deaf.process.signal(signal);
    }
    // What was not ignored is passed on, and by then those before it would have been.
    deaf.process.signal(Signal::USR2);
    deaf.says.until("it was ended by signal 12", 1);
    deaf.says.until("started, process", 2);
    let (code, said) = deaf.end_by(Signal::TERM);
    assert_eq!(code, Some(143), "{said}");
    assert_eq!(said.matches("it was ended by signal").count(), 1, "{said}");
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
    let arguments = ["--restart", "always", "--", "/bin/sh", "-c", script];
    let mut first = supervise(folder.path(), &arguments);
    let mut first = Started::new(first.stdout(Stdio::piped()).stderr(Stdio::null()));
    Lines::of(first.child.stdout.take().unwrap()).until("ready", 1);
    let pid = first.child.id().to_string();
    // A second one is told who has it.
    let directory = folder.path().to_str().unwrap();
    let second = ["-C", directory, "supervise", "--max-age", "9s", "--", "/bin/sh", "-c", script];
    let second = interlock(&second);
    assert_eq!(second.code, 3, "{}", second.stderr);
    assert!(second.stderr.contains("`sh-"), "{}", second.stderr);
    let named = format!("` runs already, under process {pid}, since 20");
    assert!(second.stderr.contains(&named), "{}", second.stderr);
    assert!(second.stderr.contains(&format!("kill {pid}")), "{}", second.stderr);
    first.signal(Signal::TERM);
    assert_eq!(first.ends("a supervisor that was asked to end").code(), Some(9));
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
    assert!(first.stdout.starts_with("not known yet: this is the first check"), "{}", first.stdout);
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
    let ran = run(Command::new("redis-cli").args(["-p", &port]).args(command));
    ran.stdout.trim().to_owned()
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
    assert!(first.stdout.starts_with("not known yet: this is the first check"), "{}", first.stdout);
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
