//! Whole directories: defaults, references between files, and what cannot be read.

use std::path::Path;

use interlock_config::Loaded;

use crate::support::{load, render};

/// A directory with some files.
pub(crate) fn dir(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

pub(crate) fn told(dir: &Path, loaded: &Loaded) -> String {
    render(&loaded.problems).replace(&dir.display().to_string(), "DIR")
}

pub(crate) fn names(loaded: &Loaded) -> Vec<&str> {
    loaded.pipelines.iter().map(|found| found.pipeline.name.as_str()).collect()
}

const STEPS: &str = "steps: [{name: a, command: x}]\n";

pub(crate) fn simple(name: &str, more: &str) -> String {
    format!("name: {name}\n{STEPS}{more}")
}

#[test]
fn an_empty_directory_is_a_valid_project() {
    let dir = dir(&[]);
    let loaded = load(dir.path());
    assert_eq!(told(dir.path(), &loaded), "");
    assert!(loaded.pipelines.is_empty());
}

#[test]
fn one_bad_file_does_not_silence_the_others() {
    let dir = dir(&[
        ("pipelines/a.yaml", "name: aa\nschedule: nonsense\nsteps: 5\n"),
        ("pipelines/b.yaml", &simple("bb", "dependsOn: aa\n")),
    ]);
    let loaded = load(dir.path());
    assert_eq!(names(&loaded), ["bb"], "a dependency on a broken pipeline is not an error too");
    assert_eq!(loaded.problems.len(), 2, "{}", told(dir.path(), &loaded));
    assert!(loaded.has_errors());
}

#[test]
fn names_must_be_unique_and_both_files_are_named() {
    let calendar = "name: days\ndates: ['2026-01-01']\n";
    let dir = dir(&[
        ("pipelines/a.yaml", &simple("aa", "")),
        ("pipelines/b.yaml", &simple("aa", "")),
        ("calendars/x.yaml", calendar),
        ("calendars/y.yaml", calendar),
    ]);
    let loaded = load(dir.path());
    let told = told(dir.path(), &loaded);
    assert!(told.contains("the pipeline `aa` is already defined in DIR/pipelines/a.yaml\n --> DIR/pipelines/b.yaml:1:7"), "{told}");
    assert!(
        told.contains("the calendar `days` is already defined in DIR/calendars/x.yaml"),
        "{told}"
    );
    assert_eq!(names(&loaded), ["aa"]);
}

#[test]
fn upstreams_must_exist_and_not_wait_for_each_other() {
    let dir = dir(&[
        ("pipelines/a.yaml", &simple("aa", "dependsOn: [bb]\n")),
        ("pipelines/b.yaml", &simple("bb", "dependsOn: {pipeline: cc}\n")),
        ("pipelines/c.yaml", &simple("cc", "dependsOn: [aa]\n")),
        ("pipelines/d.yaml", &simple("dd", "dependsOn: [orders-dailly]\n")),
        ("pipelines/e.yaml", &simple("orders-daily", "")),
        (
            "pipelines/f.yaml",
            &simple("ff", "dependsOn: {pipeline: orders-daily, schedule: cron}\n"),
        ),
        ("pipelines/g.yaml", &simple("gg", "dependsOn: gg\n")),
    ]);
    let loaded = load(dir.path());
    let told = told(dir.path(), &loaded);
    assert!(told.contains("pipelines wait for each other: aa -> bb -> cc -> aa"), "{told}");
    assert!(told.contains("there is no pipeline `orders-dailly`"), "{told}");
    assert!(told.contains("Did you mean `orders-daily`?"), "{told}");
    assert!(told.contains("the pipeline `orders-daily` has no schedule `cron`"), "{told}");
    assert!(told.contains("`gg` depends on itself"), "{told}");
    assert_eq!(loaded.problems.len(), 4, "{told}");
    assert_eq!(names(&loaded), ["orders-daily"]);
}

#[test]
fn named_directories_must_exist_and_default_ones_need_not() {
    let dir = dir(&[("interlock.yaml", "pipelineDirs:\n  - jobs\nevaluatorDirs: [scripts]\n")]);
    let loaded = load(dir.path());
    let told = told(dir.path(), &loaded);
    assert!(told.contains("there is no directory `jobs`\n --> DIR/interlock.yaml:2:5"), "{told}");
    assert!(told.contains("there is no directory `scripts`"), "{told}");
    assert_eq!(loaded.problems.len(), 2, "{told}");
}

#[test]
fn what_cannot_be_read_is_named() {
    let dir = dir(&[("pipelines/a.yaml", ""), ("calendars", "a file")]);
    std::fs::write(dir.path().join("pipelines/latin1.yaml"), b"name: caf\xe9\n").unwrap();
    std::fs::write(dir.path().join("pipelines/large.yaml"), vec![b'#'; 2 << 20]).unwrap();
    let loaded = load(dir.path());
    let told = told(dir.path(), &loaded);
    assert!(told.contains("error[IL0101]: cannot read it: Not a directory"), "{told}");
    assert!(told.contains("byte 9, on line 1, is not UTF-8 text"), "{told}");
    assert!(told.contains("the file is larger than 1 MiB"), "{told}");
    assert!(told.contains("the file says nothing"), "{told}");
    let missing = load(&dir.path().join("nowhere"));
    assert!(render(&missing.problems).contains("there is no directory"), "{:?}", missing.problems);
}

#[test]
fn defaults_hold_for_every_pipeline_and_are_blamed_where_they_stand() {
    let dir = dir(&[
        (
            "interlock.yaml",
            "defaults:\n  timezone: Europe/Rigga\n  retry: {maxAttempts: 7}\n  grace: 2m\n",
        ),
        ("pipelines/a.yaml", &simple("aa", "retry: {backoffSeconds: 5}\nschedule: '* * * * *'\n")),
        ("pipelines/b.yaml", &simple("bb", "timezone: UTC\nschedule: '0 9 * * *'\n")),
    ]);
    let loaded = load(dir.path());
    let told = told(dir.path(), &loaded);
    assert!(
        told.contains("there is no time zone `Europe/Rigga`\n --> DIR/interlock.yaml:2:13"),
        "{told}"
    );
    assert!(
        told.contains("longer than the gap") && told.contains("DIR/interlock.yaml:4:10"),
        "{told}"
    );
    assert_eq!(loaded.problems.len(), 2, "each once: {told}");
    assert_eq!(names(&loaded), ["bb"]);
    assert_eq!(loaded.pipelines[0].pipeline.retry.attempts_max, 7);
}

#[test]
fn a_version_follows_what_is_said_and_not_how() {
    let version = |pipeline: &str, calendar: &str| {
        let dir = dir(&[("pipelines/a.yaml", pipeline), ("calendars/c.yaml", calendar)]);
        let loaded = load(dir.path());
        assert_eq!(told(dir.path(), &loaded), "");
        loaded.pipelines[0].version
    };
    let calendar = "name: days\ndates: ['2026-01-01']\n";
    let pipeline = simple("aa", "schedule: '0 9 * * *'\ncalendar: days\n");
    let base = version(&pipeline, calendar);
    let same = "# comment\ncalendar: \"days\"\nschedule: 0 9 * * *\nsteps:\n  - command: x\n    name: a\nname: aa\n";
    assert_eq!(version(same, calendar), base);
    assert_ne!(version(&pipeline.replace("0 9", "0 8"), calendar), base);
    assert_ne!(version(&pipeline, &calendar.replace("01-01", "01-02")), base);
}
