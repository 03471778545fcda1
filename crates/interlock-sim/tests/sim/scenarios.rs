//! Every script of `scenarios/` is played, and its answers are compared. `UPDATE_SCENARIOS=1` writes them.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use interlock_sim::scenario::play;

/// What scripts are about, by the first word of their names.
const SHELVES: [&str; 4] = ["seed", "dagu", "go", "dst"];

fn shelf(path: &Path) -> Option<&'static str> {
    let name = path.file_name().unwrap().to_string_lossy();
    let first = name.split('-').next().unwrap().to_owned();
    SHELVES.into_iter().find(|shelf| *shelf == first)
}

/// Plays the scripts of a shelf, or those that stand on none; there are at least so many.
#[track_caller]
fn check(on: Option<&str>, at_least: usize) {
    let is_update = env::var_os("UPDATE_SCENARIOS").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut scripts: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.retain(|path| shelf(path) == on);
    scripts.sort();
    assert!(scripts.len() >= at_least, "some are missing: {scripts:?}");
    let problems: Vec<String> =
        scripts.iter().filter_map(|path| problem(path, is_update)).collect();
    let cure = "if the new answers are right: UPDATE_SCENARIOS=1 cargo nextest run -p interlock-sim scenarios";
    assert!(problems.is_empty(), "{}\n{cure}", problems.join("\n\n"));
}

#[test]
fn the_examples_of_the_seeds() {
    check(Some("seed"), 26);
}

#[test]
fn the_traps_of_dagu() {
    check(Some("dagu"), 25);
}

#[test]
fn the_traps_of_the_go_interlock() {
    check(Some("go"), 27);
}

#[test]
fn nights_in_which_the_clock_is_changed() {
    check(Some("dst"), 6);
}

#[test]
fn other_bad_days() {
    check(None, 10);
}

/// What is wrong with a script, or with what was answered.
#[expect(clippy::fn_params_excessive_bools, reason = "the variable is set or not")]
fn problem(path: &Path, is_update: bool) -> Option<String> {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(path).unwrap();
    match play(&name, &text) {
        Err(wrong) => return Some(wrong.to_string()),
        Ok(played) if played == text => {}
        Ok(played) if is_update => fs::write(path, played).unwrap(),
        Ok(played) => return Some(difference(&name, &text, &played)),
    }
    None
}

/// Where two texts differ first.
fn difference(name: &str, expected: &str, found: &str) -> String {
    let same = expected.lines().zip(found.lines()).take_while(|(one, other)| one == other).count();
    let rest = |text: &str| text.lines().skip(same).take(8).collect::<Vec<_>>().join("\n  ");
    format!(
        "{name}:{} is answered differently; expected\n  {}\nfound\n  {}",
        same + 1,
        rest(expected),
        rest(found)
    )
}

#[test]
fn a_wrong_line_is_told_with_its_place() {
    let script = "# A story.\nat 2026-02-25T09:00Z\nstart\ndance\n";
    let wrong = play("dance.txt", script).unwrap_err().to_string();
    assert!(wrong.starts_with("dance.txt:4: there is no command `dance`"), "{wrong}");
    let early = play("early.txt", "start\n").unwrap_err().to_string();
    assert!(early.starts_with("early.txt:1: a script begins with `at`"), "{early}");
    let back = play("back.txt", "at 2026-02-25T09:00Z\nat 08:00\n").unwrap_err().to_string();
    assert!(back.starts_with("back.txt:2: it is 2026-02-25T09:00:00Z already"), "{back}");
    let file = "at 2026-02-25T09:00Z\nfile\n    name: orders\n    scedule: '* * * * *'\n";
    let file = play("file.txt", file).unwrap_err().to_string();
    assert!(file.starts_with("file.txt:2: ") && file.contains("schedule"), "{file}");
    let answer = play("answer.txt", "at 2026-02-25T09:00Z\n\n| told\n").unwrap_err().to_string();
    assert!(answer.starts_with("answer.txt:3: an answer stands below"), "{answer}");
}

#[test]
fn answers_are_replaced_and_the_story_is_kept() {
    let script = "# A story.\nat 2026-02-25T09:00Z\n\nslots\n| what it was\n# The end.\n";
    let played = play("story.txt", script).unwrap();
    let expected = script.replace("what it was", "no slots are recorded in this time");
    assert_eq!(played, expected);
    assert_eq!(play("story.txt", &played).unwrap(), played, "played again it is the same");
}
