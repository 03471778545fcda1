//! Scans of real folders: what is told, and what is not even read.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use super::*;

/// A project on disk, and what the engine would have in force.
struct World {
    folder: tempfile::TempDir,
    files: Files,
    in_force: Vec<(PipelineId, u64)>,
    /// When the next look is.
    now: Instant,
    /// How many the last one found absent.
    absent: usize,
}

/// What a scan told, by name.
#[derive(Debug, Default, PartialEq)]
struct Told {
    declared: Vec<String>,
    removed: Vec<String>,
    problems: Vec<String>,
    spared: usize,
}

fn text(name: &str, more: &str) -> String {
    format!("name: {name}\nschedule: \"0 3 * * *\"\ntrigger: {{type: external}}\n{more}")
}

impl World {
    fn new(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("pipelines")).unwrap();
        let files = Files::new(folder.path(), folder.path(), Arc::default());
        let world = Self { folder, files, in_force: vec![], now: Instant::now(), absent: 0 };
        for name in names {
            world.write(name, &text(name, ""));
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("pipelines/{name}.yaml"))
    }

    /// Writes a file in place, as if long ago.
    fn write(&self, name: &str, text: &str) {
        self.write_at(name, text, 1_000_000);
    }

    fn write_at(&self, name: &str, text: &str, seconds: u64) {
        fs::write(self.path(name), text).unwrap();
        let file = fs::File::options().write(true).open(self.path(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }

    fn scan(&mut self, since: &Since) -> Told {
        let mut told = Told::default();
        let in_force = &mut self.in_force;
        let mut tell = |changes: Changes| {
            for new in changes.declared {
                in_force.retain(|(name, _)| *name != new.pipeline.name);
                in_force.push((new.pipeline.name.clone(), new.version));
                told.declared.push(new.pipeline.name.to_string());
            }
            for name in changes.removed {
                in_force.retain(|(known, _)| *known != name);
                told.removed.push(name.to_string());
            }
            true
        };
        let scan = self.files.scan(since, &mut tell).map_err(|failure| failure.message).unwrap();
        (told.spared, self.absent) = (scan.spared, scan.absent);
        told.problems = scan.problems.into_iter().map(|problem| problem.message).collect();
        assert_eq!(scan.changes, told.declared.len() + told.removed.len());
        told
    }

    /// A look at what changed; what is not there is looked for again when it has been away for long enough.
    fn look(&mut self) -> Told {
        let first = self.scan(&Since::LastScan(self.now));
        if self.absent == 0 {
            return first;
        }
        self.now += ABSENT_MAX;
        let again = self.scan(&Since::LastScan(self.now));
        assert_eq!(self.absent, 0, "it does not wait for ever");
        Told { declared: [first.declared, again.declared].concat(), ..again }
    }

    /// A new process: it knows what the ledger and the index say.
    fn restart(&mut self) -> Told {
        self.files = Files::new(self.folder.path(), self.folder.path(), Arc::default());
        let since = Since::Start(self.in_force.clone(), Agreement::Given, Box::new(|_| true));
        self.scan(&since)
    }
}

fn declared(names: &[&str]) -> Told {
    let declared = names.iter().map(|name| (*name).to_owned()).collect();
    Told { declared, ..Told::default() }
}

fn removed(names: &[&str]) -> Told {
    let removed = names.iter().map(|name| (*name).to_owned()).collect();
    Told { removed, ..Told::default() }
}

#[test]
fn a_file_that_looks_the_same_is_not_read() {
    let mut world = World::new(&["aa", "bb"]);
    assert_eq!(world.restart(), declared(&["aa", "bb"]));
    assert_eq!(world.restart(), Told::default());
    // The same size, time and inode: only somebody who reads it can know.
    world.write("aa", &text("aa", "").replace('3', "4"));
    assert_eq!(world.restart(), Told::default());
    assert_eq!(world.look(), Told::default());
    world.write_at("aa", &text("aa", "").replace('3', "4"), 1_000_001);
    assert_eq!(world.look(), declared(&["aa"]));
    assert_eq!(world.look(), Told::default());
}

#[test]
fn whatever_is_doubtful_is_read() {
    let mut world = World::new(&["aa", "bb"]);
    world.restart();
    // The ledger does not have what the index says.
    world.in_force.retain(|(name, _)| name.as_str() == "aa");
    assert_eq!(world.restart(), declared(&["bb"]));
    // Something around the pipelines changed.
    world.write("aa", &text("aa", "").replace('3', "4"));
    fs::write(world.folder.path().join("interlock.yaml"), "timezone: Europe/Riga\n").unwrap();
    assert_eq!(world.look(), declared(&["aa", "bb"]));
    // There is no index, but nothing changed either.
    fs::write(world.folder.path().join("files.index"), "something").unwrap();
    assert_eq!(world.restart(), Told::default());
}

#[test]
fn what_is_gone_is_told_unless_it_is_too_much() {
    let mut world = World::new(&["aa", "bb", "cc"]);
    world.restart();
    fs::remove_file(world.path("aa")).unwrap();
    assert_eq!(world.look(), removed(&["aa"]));
    fs::remove_file(world.path("bb")).unwrap();
    fs::remove_file(world.path("cc")).unwrap();
    assert_eq!(world.look(), Told { spared: 2, ..Told::default() });
    assert_eq!(world.restart(), removed(&["bb", "cc"]));
}

#[test]
fn a_file_that_is_back_within_seconds_was_never_gone() {
    let mut world = World::new(&["aa", "bb", "cc"]);
    world.restart();
    let kept = fs::read(world.path("aa")).unwrap();
    for _ in 0..3 {
        fs::remove_file(world.path("aa")).unwrap();
        assert_eq!(world.scan(&Since::LastScan(world.now)), Told::default());
        world.now += ABSENT_MAX / 2;
        assert_eq!(world.scan(&Since::LastScan(world.now)), Told::default());
        assert_eq!(world.absent, 1, "it is to be looked for again");
        fs::write(world.path("aa"), &kept).unwrap();
        assert_eq!(world.scan(&Since::LastScan(world.now)), Told::default());
        assert_eq!(world.absent, 0);
        world.now += ABSENT_MAX;
    }
    // Under another name it was not away for a moment, and a restart does not wait.
    fs::rename(world.path("aa"), world.path("zz")).unwrap();
    assert_eq!((world.look(), world.absent), (Told::default(), 0));
    fs::remove_file(world.path("zz")).unwrap();
    assert_eq!(world.restart(), removed(&["aa"]));
}

#[test]
fn a_broken_file_keeps_its_last_good_version_over_a_restart() {
    let mut world = World::new(&["aa", "bb"]);
    world.restart();
    let before = world.in_force.clone();
    world.write_at("aa", "name: aa\nschedul: x\n", 1_000_001);
    fs::remove_file(world.path("bb")).unwrap();
    let told = world.look();
    assert_eq!((told.declared.len(), told.removed), (0, vec!["bb".to_owned()]));
    assert!(!told.problems.is_empty());
    let told = world.restart();
    assert_eq!((told.declared.len(), told.removed.len()), (0, 0));
    assert!(!told.problems.is_empty(), "it is told again at each start");
    assert_eq!(world.in_force, before[..1]);
    world.write_at("aa", &text("aa", ""), 1_000_002);
    assert_eq!(world.look(), Told::default());
}

#[test]
fn while_a_broken_file_hides_its_name_nothing_is_retired() {
    let mut world = World::new(&["aa", "bb", "cc"]);
    world.restart();
    fs::remove_file(world.path("aa")).unwrap();
    world.write("new", ": [");
    let told = world.look();
    assert_eq!((told.removed.len(), told.spared), (0, 1));
    fs::remove_file(world.path("new")).unwrap();
    assert_eq!(world.restart(), removed(&["aa"]));
}

#[test]
fn who_waits_in_vain_is_refused_also_when_only_the_other_changed() {
    let mut world = World::new(&["aa", "cc"]);
    world.write("bb", &text("bb", "dependsOn: [{pipeline: aa, schedule: cron}]\n"));
    assert_eq!(world.restart(), declared(&["aa", "cc", "bb"]));
    assert_eq!(world.restart(), Told::default());
    world.write_at(
        "aa",
        &text("aa", "")
            .replace("schedule: \"0 3 * * *\"", "schedules: [{id: x, cron: \"0 3 * * *\"}]"),
        1_000_001,
    );
    let told = world.look();
    assert_eq!(told.declared, ["aa"]);
    assert_eq!(told.problems, ["the pipeline `aa` has no schedule `cron`"]);
    world.write("dd", &text("dd", "dependsOn: [nobody]\n"));
    let told = world.look();
    assert_eq!((told.declared.len(), told.removed.len()), (0, 0));
    assert!(told.problems.iter().any(|it| it == "there is no pipeline `nobody`"), "{told:?}");
}

#[test]
fn the_first_of_two_files_with_one_name_wins() {
    let mut world = World::new(&["aa"]);
    world.write("zz", &text("aa", "owner: me\n"));
    let told = world.restart();
    assert_eq!(told.declared, ["aa"]);
    assert_eq!(told.problems.len(), 1);
    let told = world.restart();
    assert_eq!((told.declared.len(), told.problems.len()), (0, 1));
}
