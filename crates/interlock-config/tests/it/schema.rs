//! The JSON Schema accepts what loads and refuses what does not; the reference page is up to date.

use std::path::Path;

use interlock_config::{FileKind, json_schema, parse_data, reference};

use crate::support::{files, fixtures, problems};

fn accepts(kind: FileKind, text: &str) -> bool {
    let (data, _) = parse_data("a.yaml".as_ref(), text);
    let validator = jsonschema::validator_for(&json_schema(kind)).unwrap();
    data.is_some_and(|data| validator.is_valid(&data))
}

#[test]
fn the_schemas_are_draft_2020_12() {
    for kind in FileKind::ALL {
        let schema = json_schema(kind);
        assert!(jsonschema::meta::is_valid(&schema), "{}", kind.as_str());
        assert_eq!(schema["additionalProperties"], false);
    }
}

#[test]
fn every_good_example_is_accepted() {
    for kind in FileKind::ALL {
        for (name, text) in files(&format!("good/{}", kind.as_str())) {
            let (data, _) = parse_data("a.yaml".as_ref(), &text);
            let validator = jsonschema::validator_for(&json_schema(kind)).unwrap();
            let errors: Vec<_> =
                validator.iter_errors(&data.unwrap()).map(|error| error.to_string()).collect();
            assert_eq!(errors, Vec::<String>::new(), "{name}");
        }
    }
}

#[test]
fn every_shipped_example_is_accepted() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let Ok(entries) = std::fs::read_dir(examples) else { return };
    for project in entries.map(|entry| entry.unwrap().path()) {
        let kinds = [
            ("pipelines", FileKind::Pipeline),
            ("calendars", FileKind::Calendar),
            ("archetypes", FileKind::Archetype),
            (".", FileKind::Config),
        ];
        for (dir, kind) in kinds {
            let Ok(files) = std::fs::read_dir(project.join(dir)) else { continue };
            for path in files.map(|entry| entry.unwrap().path()) {
                if path.extension().is_some_and(|extension| extension == "yaml") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    assert!(accepts(kind, &text), "{}", path.display());
                }
            }
        }
    }
}

/// Codes of mistakes that a schema can see: structure, and texts with a pattern.
const VISIBLE: [&str; 11] = [
    "IL0201", "IL0202", "IL0203", "IL0204", "IL0205", "IL0206", "IL0211", "IL0301", "IL0302",
    "IL0306", "IL0309",
];

/// Mistakes of these kinds that only the decoders can see, because they depend on another key.
const DECODED: [&str; 6] = [
    "threshold",
    "needs_poll_url",
    "age_is_no_duration",
    "empty_lists",
    "archiver_without_dsn",
    "store_without_dsn",
];

#[test]
fn every_structurally_broken_example_is_refused() {
    let mut refused = 0;
    for kind in FileKind::ALL {
        for (name, text) in files(&format!("broken/{}", kind.as_str())) {
            let visible = problems(kind, &text).iter().any(|p| VISIBLE.contains(&p.code.as_str()));
            if visible && !DECODED.contains(&name.as_str()) {
                assert!(!accepts(kind, &text), "{} {name}", kind.as_str());
                refused += 1;
            }
        }
    }
    assert!(refused >= 25, "only {refused} examples are structurally broken");
}

#[test]
fn the_reference_page_is_up_to_date() {
    let path = fixtures().join("../../../docs/reference.md");
    let page = reference();
    if std::env::vars().any(|(name, _)| name == "UPDATE_REFERENCE") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "run UPDATE_REFERENCE=1 cargo nextest run -p interlock-config reference"
    );
}
