//! What people are told about broken files: one snapshot per file.

use interlock_config::{FileKind, Severity};

use crate::support::{files, problems, render};

#[test]
fn broken_files_are_explained() {
    let mut count = 0;
    for kind in FileKind::ALL {
        for (name, text) in files(&format!("broken/{}", kind.as_str())) {
            let found = problems(kind, &text);
            assert!(
                found.iter().any(|problem| problem.severity == Severity::Error),
                "{name} is not broken"
            );
            // Archetypes and calendars are loaded from a temporary directory.
            let rendered = render(&found);
            let rendered: String = rendered
                .lines()
                .map(|line| match (line.find("--> "), line.find("/a.yaml")) {
                    (Some(arrow), Some(file)) => {
                        format!("{}{}s{}\n", &line[..arrow + 4], kind.as_str(), &line[file..])
                    }
                    _ => format!("{line}\n"),
                })
                .collect();
            insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
                insta::assert_snapshot!(format!("{}_{name}", kind.as_str()), rendered);
            });
            count += 1;
        }
    }
    assert!(count >= 40, "only {count} broken files");
}

#[test]
fn every_message_is_a_lower_case_sentence_and_every_help_a_full_one() {
    for kind in FileKind::ALL {
        for (name, text) in files(&format!("broken/{}", kind.as_str())) {
            for problem in problems(kind, &text) {
                let message = &problem.message;
                assert!(!message.ends_with('.'), "{name}: {message}");
                let first = message.chars().next().unwrap();
                assert!(
                    !first.is_uppercase() || message.starts_with("PERMANENT"),
                    "{name}: {message}"
                );
                let help = &problem.help;
                assert!(help.is_empty() || help.ends_with(['.', '?']), "{name}: {help}");
            }
        }
    }
}
