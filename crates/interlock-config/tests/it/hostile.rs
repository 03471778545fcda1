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
