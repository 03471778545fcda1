//! Configuration files: whatever is wrong is said at a place that exists, and only then.

use std::{path::Path, sync::LazyLock};

use interlock_config::{
    Context, Problem, Severity, SystemZones, ZoneSource, parse_config, parse_pipeline,
};

static ZONES: LazyLock<SystemZones> = LazyLock::new(SystemZones::new);
static CONTEXT: LazyLock<Context> = LazyLock::new(Context::default);

/// Reads the input as a pipeline, and renders every problem.
pub fn pipeline(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let path = Path::new("pipeline.yaml");
    let (read, problems) = parse_pipeline(path, text, &CONTEXT, &*ZONES, &environment);
    check(read.is_some(), &problems);
}

/// Reads the input as `interlock.yaml`, and renders every problem.
pub fn config(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let (read, problems) = parse_config(Path::new("interlock.yaml"), text, &*ZONES, &environment);
    check(read.is_some(), &problems);
}

/// Prepares everything that is made once per process, so that no input is charged for it.
pub fn prepare() {
    LazyLock::force(&CONTEXT);
    assert!(!ZONES.names().is_empty(), "the zone database is empty");
}

fn environment(name: &str) -> Option<String> {
    (name == "HOME").then(|| "/home/someone".to_owned())
}

/// Something was read exactly when there is no error.
fn check(is_read: bool, problems: &[Problem]) {
    let is_refused = problems.iter().any(|problem| problem.severity == Severity::Error);
    assert_ne!(is_read, is_refused, "{problems:?}");
    for problem in problems {
        assert!(!problem.message.is_empty(), "no message: {problem:?}");
        assert!(problem.file.text.get(problem.span.clone()).is_some(), "no place: {problem:?}");
        assert!(!problem.render().is_empty());
    }
}
