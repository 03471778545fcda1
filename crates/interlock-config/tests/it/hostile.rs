//! Files that were not written in good faith.

use interlock_config::FileKind;

use crate::support::{codes, problems};

#[test]
fn odd_bytes_are_refused_with_a_sentence() {
    assert_eq!(codes("name: a\0b\n"), ["IL0104"]);
    assert_eq!(codes("name:\t\"x y\"\n"), ["IL0901", "IL0306"]);
    assert_eq!(codes("\u{feff}name: a1\r\nsteps:\r\n  - name: a\r\n    command: x\r\n"), [""; 0]);
    assert_eq!(codes(""), ["IL0108"]);
    assert_eq!(codes("- a\n- b\n"), ["IL0202"]);
    assert_eq!(codes("just text\n"), ["IL0202"]);
}

#[test]
fn the_work_on_a_hostile_file_is_bounded_and_what_was_cut_off_is_said() {
    let many = |line: &str, count: usize| -> String {
        (0..count).map(|n| line.replace("{n}", &n.to_string())).collect()
    };
    for (text, last) in [
        (format!("name: a1\nsteps:\n{}", many("  - {nam{n}: x}\n", 10_000)), "IL0109"),
        (
            format!("name: a1\nschedules:\n{}", many("  - {id: a, timezone: Rig{n}}\n", 8_000)),
            "IL0109",
        ),
        (
            format!("name: a1\nschedules:\n{}", many("  - CRON_TZ=Rig{n} 0 9 * * *\n", 9_000)),
            "IL0109",
        ),
        (format!("name: a1\ndependsOn:\n{}", many("  - up-{n}\n", 40_000)), "IL0901"),
        (many("key{n}: 1\n", 20_000), "IL0106"),
        (format!("name: a1\nenv: {{a: 1{}}}\n", ", a: 1".repeat(900)), "IL0109"),
        (format!("name: a1\nenv: {{{}}}\n", "a: 1, ".repeat(20_000)), "IL0109"),
        (format!("{}: 1\n", "k".repeat(1_000)), "IL0203"),
        (format!("name: a1\nschedules:\n{}", many("  - '{n} 9 31 2 *'\n", 60)), "IL0401"),
    ] {
        let found = problems(FileKind::Pipeline, &text);
        assert!(found.len() <= 202, "{}", found.len());
        let found: Vec<_> = found.iter().map(|problem| problem.code.as_str()).collect();
        assert!(found.contains(&last), "{found:?} has no {last}");
    }
}

#[test]
fn no_truncation_or_single_byte_change_of_a_good_file_panics() {
    for kind in FileKind::ALL {
        for (_, text) in crate::support::files(&format!("good/{}", kind.as_str())) {
            for end in (0..text.len()).step_by(7).filter(|end| text.is_char_boundary(*end)) {
                problems_of(kind, &text[..end]);
            }
            for (at, with) in
                (0..text.len()).step_by(5).zip("{}[]:&*!|>'\"%@`-\n\t#,?".chars().cycle())
            {
                if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                    problems_of(kind, &format!("{}{with}{}", &text[..at], &text[at + 1..]));
                }
            }
        }
    }
}

/// Renders everything, since a problem with a wild span fails only then.
fn problems_of(kind: FileKind, text: &str) {
    // Archetypes and calendars go through the disk; their text is hostile as a pipeline, too.
    let kind = if kind == FileKind::Config { kind } else { FileKind::Pipeline };
    for problem in problems(kind, text) {
        assert!(problem.span.end <= text.len(), "{problem:?}");
        assert!(!problem.render().is_empty());
        assert!(problem.to_json().is_object());
    }
}
