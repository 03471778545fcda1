//! What is a wait without a bound, what is none, and what says that there is one.

use super::*;
use crate::tidy::{printed, tree};

/// The lines of a test file at which a wait is reported.
fn lines(text: &str) -> Vec<usize> {
    let problems = check_waits(&tree(&[("crates/a/tests/it.rs", text)]));
    problems.into_iter().map(|problem| problem.line).collect()
}

/// The lines at which the body of a function is reported, its first line being 1.
fn in_body(body: &str) -> Vec<usize> {
    lines(&format!("fn test() {{\n{body}\n}}\n")).into_iter().map(|line| line - 1).collect()
}

#[test]
fn each_blocking_call_is_reported_once_and_named() {
    for (statement, counterpart) in [
        ("child.wait().unwrap();", "wait_within"),
        ("let said = child.wait_with_output().unwrap();", "output_within"),
        ("let said = Command::new(\"true\").output();", "output_within"),
        ("Command::new(\"kill\").args([signal, &pid]).status();", "status_within"),
        ("kill.arg(pid).status();", "status_within"),
        ("thread.join().unwrap();", "join_within"),
        ("let event = told.recv().unwrap();", "recv_within"),
        ("let (stream, _) = listener.accept().unwrap();", "accept_within"),
        ("let (stream, _) = listener.accept().await.unwrap();", "accept_within"),
        ("for stream in listener.incoming() { answer(stream); }", "accept_within"),
        ("let lines = BufReader::new(child.stdout.take().unwrap()).lines();", "Lines"),
        ("stream.read(&mut bytes).unwrap();", "set_read_timeout"),
        ("reader.read_line(&mut line).unwrap();", "Lines"),
        ("reader.read_until(0, &mut bytes).unwrap();", "Lines"),
        ("stream.read_to_end(&mut answer).unwrap();", "read_within"),
        ("stream.read_to_string(&mut answer).unwrap();", "read_within"),
        ("pipe.read_exact(&mut byte).unwrap();", "set_read_timeout"),
        ("thread::park();", "park_timeout"),
        ("std::thread::park();", "park_timeout"),
    ] {
        let text = format!("fn test() {{\n    {statement}\n}}\n");
        let problems = printed(&check_waits(&tree(&[("crates/a/tests/it.rs", &text)])));
        assert_eq!(problems.len(), 1, "{statement}: {problems:?}");
        assert!(problems[0].starts_with("crates/a/tests/it.rs:2: `"), "{problems:?}");
        assert!(problems[0].contains(counterpart), "{problems:?}");
    }
}

#[test]
fn calls_of_the_same_names_that_block_on_nothing_are_left_alone() {
    for statement in [
        "child.wait_within(\"its end\", BOUND);",
        "assert_eq!(response.status(), 200);",
        "assert!(said.status.success());",
        "let path = folder.join(name);",
        "let words = words.join(\" \");",
        "for line in text.lines() {}",
        "let lines = BufReader::new(File::open(path)?).lines();",
        "let text = fs::read_to_string(&path).unwrap();",
        "let event = told.recv_timeout(LIMIT);",
        "let event = told.try_recv();",
        "let report = tokio::time::timeout(PATIENCE, reports.recv()).await;",
        "stream.set_read_timeout(Some(BOUND)).unwrap();\nstream.read_to_end(&mut answer).unwrap();",
        "let stream = listener.accept_within(\"a client\", BOUND);\nstream.read_line(&mut a).unwrap();",
        "let table = shared.read().unwrap();",
        "// child.wait() would hang",
        "let text = \"child.wait()\";",
        "let text = r#\"say \"child.wait()\" \"#;",
        "/* child.wait() /* told.recv() */ */",
    ] {
        assert_eq!(in_body(statement), Vec::<usize>::new(), "{statement}");
    }
}

#[test]
fn a_method_of_our_own_is_not_the_standard_librarys() {
    assert_eq!(in_body("self.wait();"), Vec::<usize>::new());
    for body in ["self.child.wait();", "self.0.wait();", "myself.wait();"] {
        assert_eq!(in_body(body), [1], "{body}");
    }
}

#[test]
fn a_read_timeout_counts_for_its_function_only() {
    let text = "fn one() {\n stream.set_read_timeout(Some(BOUND));\n}\nfn two() {\n stream.read_line(&mut a);\n}\n";
    assert_eq!(lines(text), [5]);
    let taken_away = "stream.set_read_timeout(None);\nstream.read_line(&mut a);";
    assert_eq!(in_body(taken_away), [2]);
}

#[test]
fn a_loop_that_pauses_and_looks_at_no_clock_is_reported_at_its_beginning() {
    for body in [
        "loop {\n if done() {\n break;\n }\n thread::sleep(PAUSE);\n}",
        "while !done() {\n thread::sleep(PAUSE);\n}",
        "while !done() {\n tokio::time::sleep(PAUSE).await;\n}",
        "while probe.is_live() {\n thread::yield_now();\n}",
        "loop {\n for _ in 0..3 {}\n std::hint::spin_loop();\n}",
    ] {
        assert_eq!(in_body(body), [1], "{body}");
    }
}

#[test]
fn a_loop_that_ends_by_the_clock_or_by_counting_is_left_alone() {
    for body in [
        "loop {\n assert!(began.elapsed() < BOUND);\n thread::sleep(PAUSE);\n}",
        "while Instant::now() < ends {\n thread::sleep(PAUSE);\n}",
        "for _ in 0..100 {\n thread::sleep(PAUSE);\n}",
        "while let Some(next) = rest.pop() {\n for _ in 0..3 {\n  thread::sleep(PAUSE);\n }\n}",
        "while let Some(next) = rest.pop() {\n use_it(next);\n}",
    ] {
        assert_eq!(in_body(body), Vec::<usize>::new(), "{body}");
    }
}

#[test]
fn an_inner_loop_is_judged_by_itself() {
    let body = "loop {\n while !done() {\n  thread::sleep(PAUSE);\n }\n assert!(began.elapsed() < BOUND);\n}";
    assert_eq!(in_body(body), [2]);
}

#[test]
fn a_reason_stands_beside_the_call_or_above_its_statement() {
    for body in [
        "child.wait(); // Bounded: the kernel ends it",
        "// Bounded: the kernel ends it.\nchild.wait();",
        "// Bounded: the kernel ends it, and a comment may\n// go on for a second line.\nchild.wait();",
        "// Bounded: the kernel ends it.\nlet ended = guard\n .child()\n .wait();",
        "// Bounded: the test joins it.\nwhile !done() {\n thread::sleep(PAUSE);\n}",
        "let ended = guard\n // Bounded: the kernel ends it.\n .wait();",
    ] {
        assert_eq!(in_body(body), Vec::<usize>::new(), "{body}");
    }
    for body in [
        "child.wait(); // it ends",
        "// Bounded: the kernel ends it.\none();\nchild.wait();",
        "// It is bounded.\nchild.wait();",
    ] {
        assert_eq!(in_body(body).len(), 1, "{body}");
    }
}

#[test]
fn a_reason_without_words_is_reported() {
    for body in ["// Bounded:\nchild.wait();", "// Bounded: yes\nchild.wait();"] {
        let text = format!("fn test() {{\n{body}\n}}\n");
        let problems = printed(&check_waits(&tree(&[("crates/a/tests/it.rs", &text)])));
        assert_eq!(
            problems,
            ["crates/a/tests/it.rs:3: say after `// Bounded:` what ends this wait"]
        );
    }
}

#[test]
fn only_test_code_is_read() {
    let wait = "fn f() {\n child.wait();\n}\n";
    let marked =
        "fn f() {\n child.wait();\n}\n#[cfg(test)]\nmod tests {\n fn g() { child.wait(); }\n}\n";
    let files = [
        (
            "crates/a/src/lib.rs",
            "#[cfg(test)]\nmod inner;\nmod outer;\n#[cfg(test)]\npub(crate) mod seen;\n",
        ),
        ("crates/a/src/inner.rs", wait),
        ("crates/a/src/inner/deep.rs", wait),
        ("crates/a/src/outer.rs", "#[cfg(test)]\nmod tests;\n"),
        ("crates/a/src/outer/tests.rs", wait),
        ("crates/a/src/outer/test.rs", wait),
        ("crates/a/src/seen.rs", wait),
        ("crates/a/src/marked.rs", marked),
        ("crates/a/src/both.rs", &marked.replace("(test)", "(all(test, unix))")),
        ("crates/a/benches/speed.rs", wait),
        ("crates/interlock-private-server/src/keeper.rs", wait),
        ("fuzz/src/lib.rs", wait),
        ("xtask/src/main.rs", marked),
        ("docs/tests.md", "child.wait()"),
    ];
    let problems = check_waits(&tree(&files));
    let places: Vec<_> = problems.iter().map(|it| format!("{}:{}", it.path, it.line)).collect();
    let expected = [
        "crates/a/src/inner.rs:2",
        "crates/a/src/inner/deep.rs:2",
        "crates/a/src/outer/tests.rs:2",
        "crates/a/src/seen.rs:2",
        "crates/a/src/marked.rs:6",
        "crates/a/src/both.rs:6",
        "crates/interlock-private-server/src/keeper.rs:2",
        "xtask/src/main.rs:6",
    ];
    assert_eq!(places, expected);
}

#[test]
fn quotes_lifetimes_and_braces_in_texts_do_not_confuse_the_reader() {
    let text = "fn f<'a>(x: &'a str) -> char { let s = \"}{\\\"\"; let c = '\"'; let d = '\\''; let e = 'ä'; c }\n\
                fn g() {\n child.wait();\n}\n";
    assert_eq!(lines(text), [3]);
    let raw = "fn f() { let s = br##\"a\"#{{\"##; let r#type = 1; }\nfn g() { let t = r\"\\\"; child.wait(); }\n";
    assert_eq!(lines(raw), [2]);
}
