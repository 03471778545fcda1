//! Evaluators that are programs.

use std::time::{Duration, Instant};

use crate::house::{House, is_alive, line, spec, until};

#[tokio::test]
async fn case_40_every_way_to_answer_and_to_fail() {
    let house = House::new();
    for (name, script, expected) in [
        ("pass", r#"echo '{"status":"PASS"}'"#, "PASS  "),
        (
            "fail",
            r#"echo '{"status":"FAIL","reason":"deliberate test failure"}'"#,
            "FAIL  deliberate test failure",
        ),
        ("one", "exit 1", "ERROR TRANSIENT EVALUATOR_ERROR: it ended with exit code 1"),
        (
            "two",
            "echo first >&2; echo 'bad config' >&2; exit 2",
            "ERROR PERMANENT EVALUATOR_ERROR: it ended with exit code 2 (stderr: first bad config)",
        ),
        (
            "crash",
            "exit 130",
            "ERROR EVALUATOR_CRASH EVALUATOR_ERROR: it ended with exit code 130 (signal 2)",
        ),
        (
            "killed",
            "kill -9 $$",
            "ERROR EVALUATOR_CRASH EVALUATOR_ERROR: it ended with exit code 137 (signal 9)",
        ),
        ("limit", "exit 127", "ERROR TRANSIENT EVALUATOR_ERROR: it ended with exit code 127"),
        (
            "garbage",
            "echo all is well",
            "ERROR PERMANENT EVALUATOR_OUTPUT_INVALID: it is not JSON: expected value at line 1 column 1",
        ),
        ("silence", "exit 0", "ERROR PERMANENT EVALUATOR_OUTPUT_INVALID: it said nothing"),
    ] {
        house.script(name, script);
        assert_eq!(line(&house.ask(name).await), expected, "{name}");
    }
}

#[tokio::test]
async fn case_40_the_question_comes_on_standard_input() {
    let house = House::new();
    house.script("ask", r#"printf '{"status":"PASS","value":%s}' "$(cat)""#);
    let answer = house.ask("ask").await;
    let expected = serde_json::json!({
        "pipelineId": "orders", "traitType": "freshness", "config": {"table": "orders"},
    });
    assert_eq!(answer.value, Some(expected), "{}", line(&answer));
}

#[tokio::test]
async fn programs_run_in_the_project() {
    let house = House::new();
    house.script("where", r#"printf '{"status":"PASS","value":"%s"}' "$(pwd)""#);
    let here = house.path("").canonicalize().unwrap();
    let answer = house.ask("where").await;
    assert_eq!(answer.value, Some(here.display().to_string().into()), "{}", line(&answer));
}

#[tokio::test]
async fn programs_ignore_and_block_nothing_however_their_guard_was_started() {
    let ignores =
        ["env", "--ignore-signal=HUP,INT,QUIT,PIPE,USR1,TERM", "--block-signal=TERM,USR2"];
    let house = House::with(|options| {
        options.guard.splice(..0, ignores.map(Into::into));
    });
    let list = r"$(sed -nE 's/^Sig(Blk|Ign):\t(.*)/\2/p' /proc/self/status | tr '\n' ' ')";
    house.script("shows", &format!(r#"printf '{{"status":"PASS","value":"%s"}}' "{list}""#));
    let answer = house.ask("shows").await;
    let masks = answer.value.as_ref().and_then(|value| value.as_str()).unwrap_or_default();
    let masks = masks.split_whitespace().map(|mask| u64::from_str_radix(mask, 16).unwrap());
    // Without the two numbers that the C library keeps for itself, and has ignored in every program.
    let masks: Vec<_> = masks.map(|mask| mask & !(0b11 << 31)).collect();
    assert_eq!(masks, [0, 0], "{}", line(&answer));
}

#[tokio::test]
async fn case_40_a_program_that_sleeps_is_ended_with_its_time() {
    let house = House::new();
    house.script("sleep", "echo $$ > $HERE/pid; sleep 60");
    let start = Instant::now();
    let answer = house.ask_within("sleep", 500).await;
    assert_eq!(line(&answer), "ERROR TIMEOUT EVALUATOR_TIMEOUT: no answer within 500ms");
    assert!(start.elapsed() < Duration::from_millis(1_500), "{:?}", start.elapsed());
    assert!(!is_alive(house.pid("pid").await));
}

#[tokio::test]
async fn a_program_that_ignores_term_is_killed() {
    let house = House::new();
    house.script("deaf", "trap '' TERM; echo $$ > $HERE/pid; while :; do sleep 1; done");
    let start = Instant::now();
    let answer = house.ask_within("deaf", 500).await;
    assert!(line(&answer).starts_with("ERROR TIMEOUT"), "{}", line(&answer));
    assert!(start.elapsed() < Duration::from_millis(1_500), "{:?}", start.elapsed());
    assert!(!is_alive(house.pid("pid").await));
}

#[tokio::test]
async fn whoever_a_program_leaves_behind_is_ended_and_delays_no_answer() {
    let house = House::new();
    for (name, leave) in [
        ("in-its-group", "sleep 60 &"),
        ("in-a-session-of-its-own", "setsid sleep 60 &"),
        ("twice-removed", "(setsid sh -c 'sleep 60 & echo $! > $0/pid; wait' $HERE &)"),
    ] {
        let note = if name == "twice-removed" { "" } else { "echo $! > $HERE/pid" };
        let wait = "until [ -s $HERE/pid ]; do sleep 0.01; done";
        house.script(name, &format!("{leave}\n{note}\n{wait}\necho '{{\"status\":\"PASS\"}}'"));
        let start = Instant::now();
        let answer = house.ask_within(name, 20_000).await;
        assert_eq!(line(&answer), "PASS  ", "{name}");
        assert!(start.elapsed() < Duration::from_secs(10), "{name}: {:?}", start.elapsed());
        assert!(!is_alive(house.pid("pid").await), "{name} is left behind");
        std::fs::remove_file(house.path("pid")).unwrap();
    }
}

#[tokio::test]
async fn a_child_that_holds_the_output_open_delays_nothing_beyond_the_time_limit() {
    let house = House::new();
    house.script("fork", "sleep 60 & echo $! > $HERE/pid; wait");
    let start = Instant::now();
    let answer = house.ask_within("fork", 700).await;
    assert!(line(&answer).starts_with("ERROR TIMEOUT"), "{}", line(&answer));
    assert!(start.elapsed() < Duration::from_millis(1_700), "{:?}", start.elapsed());
    assert!(!is_alive(house.pid("pid").await), "the child is left behind");
}

#[tokio::test]
async fn ten_megabytes_are_no_answer() {
    let house = House::new();
    house.script("flood", "echo $$ > $HERE/pid; head -c 10485760 /dev/zero; sleep 60");
    let answer = house.ask("flood").await;
    let expected = "ERROR PERMANENT EVALUATOR_OUTPUT_INVALID: it is longer than 1048576 bytes";
    assert_eq!(line(&answer), expected);
    assert!(!is_alive(house.pid("pid").await));
}

#[tokio::test]
async fn of_a_long_complaint_the_end_is_shown() {
    let house = House::new();
    house.script("moan", "head -c 10485760 /dev/zero | tr '\\0' x >&2; echo the cause >&2; exit 1");
    let said = line(&house.ask("moan").await);
    assert!(said.contains("xxxthe cause)") && said.len() < 1_200, "{} {said}", said.len());
}

#[tokio::test]
async fn a_program_need_not_read_a_long_question() {
    let house = House::new();
    house.script("incurious", r#"echo '{"status":"PASS"}'"#);
    house.script("hangs", "sleep 60");
    let mut long = spec("incurious", None);
    long.config.insert("list".to_owned(), "x".repeat(5_000_000).into());
    assert_eq!(line(&house.question(&long).await), "PASS  ");
    long.evaluator = Some("hangs".to_owned());
    long.timeout = Some(jiff::SignedDuration::from_secs(1));
    let answer = line(&house.question(&long).await);
    assert!(answer.starts_with("ERROR TIMEOUT"), "{answer}");
}

#[tokio::test]
async fn a_program_that_cannot_run_says_why() {
    let house = House::new();
    house.script("broken", "");
    std::fs::write(house.path("broken"), "#!/no/such/interpreter\n").unwrap();
    let said = line(&house.ask("broken").await);
    assert!(said.starts_with("ERROR TRANSIENT EVALUATOR_ERROR: it ended with exit code 126"));
    assert!(said.contains("cannot be started: No such file or directory"), "{said}");
    let said = line(&house.ask("../escape").await);
    assert!(said.starts_with("ERROR PERMANENT EVALUATOR_ERROR: `../escape` is not a path below"));
    let said = line(&house.ask("absent").await);
    let here = house.path("").display().to_string();
    assert!(said.contains(here.trim_end_matches('/')), "it says where it looked: {said}");
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_ends_its_program() {
    let house = House::new();
    house.script("long", "echo $$ > $HERE/pid; sleep 600");
    let asked = tokio::spawn(house.question(&spec("long", None)));
    let pid = house.pid("pid").await;
    asked.abort();
    until("its end", || (!is_alive(pid)).then_some(())).await;
}
