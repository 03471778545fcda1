//! What the tests share: a zone source, an environment, and the files around a pipeline.

use std::{
    path::{Path, PathBuf},
    sync::LazyLock,
};

use interlock_config::{
    Context, FileKind, Loaded, Problem, Severity, SystemZones, decode_version, load_dir,
    parse_config, parse_pipeline, server::ServerConfig,
};
use interlock_core::pipeline::Pipeline;

/// Variables that tests may name.
pub(crate) fn environment(name: &str) -> Option<String> {
    let value = match name {
        "STORE_DSN" => "postgres://store",
        "API_KEY" => "api-key-from-env",
        "CI_TOKEN" => "ci-token-from-env",
        "HOOK" => "hook-from-env",
        "SLACK" => "slack-from-env",
        "API_TOKEN" | "JOBS_TOKEN" => "token-from-env",
        _ => return None,
    };
    Some(value.to_owned())
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The files of a directory below the fixtures, by name.
pub(crate) fn files(dir: &str) -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(fixtures().join(dir))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Every test shares one zone cache.
pub(crate) fn zones() -> &'static SystemZones {
    static ZONES: LazyLock<SystemZones> = LazyLock::new(SystemZones::new);
    &ZONES
}

/// The calendars and archetypes of the good examples.
pub(crate) fn context() -> &'static Context {
    static CONTEXT: LazyLock<Context> = LazyLock::new(load_context);
    &CONTEXT
}

fn load_context() -> Context {
    let dir = tempfile::tempdir().unwrap();
    for (kind, target) in [("calendar", "calendars"), ("archetype", "archetypes")] {
        std::fs::create_dir(dir.path().join(target)).unwrap();
        for (name, text) in files(&format!("good/{kind}")) {
            std::fs::write(dir.path().join(target).join(format!("{name}.yaml")), text).unwrap();
        }
    }
    let loaded = load(dir.path());
    assert_eq!(render(&loaded.problems), "");
    loaded.context()
}

pub(crate) fn load(dir: &Path) -> Loaded {
    load_dir(dir, zones(), &environment)
}

/// Problems as people see them.
pub(crate) fn render(problems: &[Problem]) -> String {
    problems.iter().map(Problem::render).collect::<Vec<_>>().join("\n")
}

/// Everything wrong with a file of some kind.
pub(crate) fn problems(kind: FileKind, text: &str) -> Vec<Problem> {
    match kind {
        FileKind::Pipeline => read(text).1,
        FileKind::Config => parse_config("interlock.yaml".as_ref(), text, zones(), &environment).1,
        FileKind::Archetype | FileKind::Calendar => {
            let dir = tempfile::tempdir().unwrap();
            let target = dir.path().join(format!("{}s", kind.as_str()));
            std::fs::create_dir(&target).unwrap();
            std::fs::write(target.join("a.yaml"), text).unwrap();
            load(dir.path()).problems
        }
    }
}

pub(crate) fn read(text: &str) -> (Option<Pipeline>, Vec<Problem>) {
    let (loaded, problems) =
        parse_pipeline("pipelines/a.yaml".as_ref(), text, context(), zones(), &environment);
    (loaded.map(|loaded| loaded.pipeline), problems)
}

/// A pipeline that must have no errors.
pub(crate) fn pipeline(text: &str) -> Pipeline {
    let (pipeline, problems) = read(text);
    let errors: Vec<_> =
        problems.into_iter().filter(|problem| problem.severity == Severity::Error).collect();
    assert_eq!(render(&errors), "");
    pipeline.unwrap()
}

/// The codes of everything wrong with a pipeline.
pub(crate) fn codes(text: &str) -> Vec<&'static str> {
    read(text).1.iter().map(|problem| problem.code.as_str()).collect()
}

pub(crate) fn config(text: &str) -> ServerConfig {
    let (config, problems) = parse_config("interlock.yaml".as_ref(), text, zones(), &environment);
    assert_eq!(render(&problems), "");
    config.unwrap()
}

/// A pipeline as a store kept it, with the calendars and archetypes of the good examples.
pub(crate) fn stored(text: &str) -> Pipeline {
    let named = |kind: &str| {
        let files = files(&format!("good/{kind}")).into_iter();
        let name = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix("name: "));
            line.unwrap().to_owned()
        };
        files.map(|(_, text)| (format!("{kind}/{}", name(&text)), text)).collect::<Vec<_>>()
    };
    let context = [named("calendar"), named("archetype")].concat().into_iter().collect();
    decode_version(text, &context, zones(), &environment).unwrap().pipeline
}

pub(crate) fn broken(kind: &str, name: &str) -> String {
    std::fs::read_to_string(fixtures().join(format!("broken/{kind}/{name}.yaml"))).unwrap()
}

pub(crate) fn good(kind: &str, name: &str) -> String {
    std::fs::read_to_string(fixtures().join(format!("good/{kind}/{name}.yaml"))).unwrap()
}
