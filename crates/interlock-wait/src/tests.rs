//! Every wait ends at its bound, and says what it waited for.

use std::{
    io::Write as _,
    net::{TcpListener, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    process::{Command, Stdio},
    sync::mpsc,
};

use super::*;

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_mins(1);

/// What a wait that fails says, and that it did not take much longer than its bound.
fn failure<T>(wait: impl FnOnce() -> T) -> String {
    let began = Instant::now();
    let failed = catch_unwind(AssertUnwindSafe(|| drop(wait()))).expect_err("it has a bound");
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    *failed.downcast::<String>().expect("a panic with a text")
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn is_there(pid: &str) -> bool {
    std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()
}

#[test]
fn a_condition_that_holds_ends_the_wait_and_one_that_does_not_is_named() {
    let mut looks = 0;
    let found = wait_for("the third look", LONG, || {
        looks += 1;
        (looks == 3).then_some("found")
    });
    assert_eq!((found, looks), ("found", 3));
    let said = failure(|| wait_until("the moon", SHORT, || false));
    assert_eq!(said, "waited 100ms for the moon");
    let said = failure(|| wait_for_seeing("the moon", SHORT, || None::<()>, || "clouds".into()));
    assert_eq!(said, "waited 100ms for the moon; seen instead:\nclouds");
}

#[test]
fn what_holds_already_needs_no_time() {
    wait_until("what holds already", Duration::ZERO, || true);
}

#[test]
fn a_command_returns_what_it_printed_and_how_it_ended() {
    let output = shell("cat; echo out; echo err >&2; exit 3").output_within(LONG).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (&b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(shell("exit 4").status_within(LONG).unwrap().code(), Some(4));
    let missing = Command::new("no-such-program").output_within(LONG).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn more_output_than_a_pipe_holds_does_not_block_the_program() {
    let output = shell("head -c 1000000 /dev/zero").output_within(LONG).unwrap();
    assert_eq!(output.stdout.len(), 1_000_000);
}

#[test]
fn a_command_that_hangs_is_killed_and_its_words_are_shown() {
    let said = failure(|| shell("echo $$; exec sleep 600").output_within(SHORT));
    let start =
        "waited 100ms for the end of `sh -c echo $$; exec sleep 600`; seen instead:\nprocess ";
    assert!(said.starts_with(start), "{said}");
    let pid = said.split("stdout: ").nth(1).unwrap().split('\n').next().unwrap();
    assert!(!pid.is_empty() && !is_there(pid), "{said}");
}

#[test]
fn output_that_another_process_holds_is_not_waited_for_either() {
    let said = failure(|| shell("echo here; sleep 5 & exit 0").output_within(SHORT * 5));
    assert!(said.contains("but another holds its output\nstdout: here\n"), "{said}");
}

#[test]
fn a_child_is_waited_for_and_its_input_ends_first() {
    let mut child = shell("cat; exit 5").stdin(Stdio::piped()).spawn().unwrap();
    assert_eq!(child.wait_within("the end of `cat`", LONG).code(), Some(5));
    let mut child = shell("exec sleep 600").stderr(Stdio::piped()).spawn().unwrap();
    let said = failure(|| child.wait_within("the end of the sleeper", SHORT));
    assert!(said.starts_with("waited 100ms for the end of the sleeper; seen instead:\n"), "{said}");
    assert!(!is_there(&child.id().to_string()));
    child.kill_and_wait();
}

#[test]
fn lines_are_read_one_by_one_and_those_that_do_not_come_are_named() {
    let script = "echo one; echo two; printf three; exec sleep 600";
    let mut child = shell(script).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(child.stdout.take().unwrap());
    assert_eq!(lines.next_within("the first line", LONG).unwrap(), "one");
    assert_eq!(lines.find_within("`two`", LONG, |line| line == "two").unwrap(), "two");
    let said = failure(|| lines.next_within("the third line", SHORT));
    assert_eq!(said, "waited 100ms for the third line; seen instead:\none\ntwo");
    let said = failure(|| lines.find_within("`four`", SHORT, |line| line == "four"));
    assert_eq!(said, "waited 100ms for `four`; seen instead:\none\ntwo");
    child.kill_and_wait();
    assert_eq!(lines.rest_within("the end", LONG), ["three"]);
    assert_eq!(lines.next_within("nothing", LONG), None);
}

#[test]
fn a_pipe_is_read_to_its_end() {
    let mut child = shell("echo all of it").stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(read_within(child.stdout.take().unwrap(), "its words", LONG), "all of it\n");
    child.kill_and_wait();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"a part").unwrap();
    let said = failure(|| read_within(reader, "the whole", SHORT));
    assert_eq!(said, "waited 100ms for the whole; seen instead:\na part");
}

#[test]
fn threads_and_channels_have_bounds() {
    let (sender, receiver) = mpsc::channel::<u8>();
    assert_eq!(failure(|| receiver.recv_within("a number", SHORT)), "waited 100ms for a number");
    let waits = thread::spawn(move || receiver.recv_within("a number", LONG));
    let finished = thread::spawn(|| 7);
    assert_eq!(finished.join_within("the number", LONG).unwrap(), 7);
    sender.send(8).unwrap();
    assert_eq!(waits.join_within("the receiver", LONG).unwrap(), 8);
    let (sender, receiver) = mpsc::channel::<u8>();
    let (held, holds) = mpsc::channel::<()>();
    let stays = thread::spawn(move || holds.recv_timeout(LONG));
    assert_eq!(failure(|| stays.join_within("its end", SHORT)), "waited 100ms for its end");
    for number in 1..=3 {
        sender.send(number).unwrap();
    }
    assert_eq!(receiver.find_within("a two", LONG, |number| *number == 2), 2);
    let said = failure(|| receiver.find_within("a four", SHORT, |number| *number == 4));
    assert_eq!(said, "waited 100ms for a four; seen instead:\n1 other messages");
    drop((held, sender));
    let said = failure(|| receiver.recv_within("a number", SHORT));
    assert_eq!(said, "the sender ended without a number");
}

#[test]
fn a_connection_is_accepted_and_its_reads_have_the_same_bound() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let said = failure(|| listener.accept_within("a client", SHORT));
    assert_eq!(said, "waited 100ms for a client");
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let stream = listener.accept_within("a client", LONG);
    assert_eq!(stream.read_timeout().unwrap(), Some(LONG));
}
