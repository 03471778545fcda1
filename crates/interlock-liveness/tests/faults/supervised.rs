//! Programs that are supervised: they crash, hang, ignore signals and leave children behind.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use interlock_liveness::{
    forensics::recovered,
    supervise::{Backoff, GAVE_UP, GiveUp, Note, Restart, SuperviseError, Supervision, run},
};
use interlock_wait::{BOUND, CommandWithin as _, wait_for_seeing, wait_until};
use tempfile::TempDir;

use crate::{PART, Patient, is_between, patient::say};

/// What the supervisor is told, for the process that plays it.
const SCRIPT: &str = "LIVENESS_SCRIPT";
const FOLDER: &str = "LIVENESS_FOLDER";
/// After how many milliseconds it counts as well; ten minutes unless somebody says so.
const HEALTHY: &str = "LIVENESS_HEALTHY";
const MAX_AGE: Duration = Duration::from_millis(500);

/// Is the supervisor.
pub(crate) fn supervise() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let folder = Path::new(&variable(FOLDER)).to_path_buf();
    let healthy_for = std::env::var(HEALTHY).map_or(Backoff::default().healthy_for, |millis| {
        Duration::from_millis(millis.parse().unwrap())
    });
    let supervision = Supervision {
        command: vec!["sh".into(), "-c".into(), variable(SCRIPT).into()],
        name: "patient".to_owned(),
        heartbeat: Some(folder.join("beat")),
        max_age: Some(MAX_AGE),
        first_beat: Duration::from_secs(5),
        grace: Duration::from_millis(300),
        restart: Restart::OnFailure,
        backoff: Backoff { first: Duration::from_millis(20), healthy_for, ..Backoff::default() },
        give_up: GiveUp { deaths: 3, within: Duration::from_mins(10) },
        folder,
    };
    let mut tell = |note: Note<'_>| match note {
        Note::Started(pid) => say(&format!("STARTED {pid}")),
        Note::Silent(age) => say(&format!("SILENT {}", age.as_millis())),
        Note::Reported { kept, .. } => say(&format!("REPORTED {}", kept.unwrap().display())),
        Note::Ended(ended) => say(&format!("ENDED {ended:?}")),
        Note::GaveUp(deaths) => say(&format!("GAVE UP {}", deaths.number)),
        Note::Stalled(_) => say("STALLED"),
        Note::Waits(_)
        | Note::Unkillable
        | Note::Forgetful(_)
        | Note::NoHeartbeat(..)
        | Note::NotStarted(_)
        | Note::Untold(_) => {}
    };
    match run(&supervision, &mut tell) {
        Ok(code) => say(&format!("CODE {code}")),
        Err(SuperviseError::Running { name, holder }) => {
            let holder = holder.unwrap();
            let held = holder.since.elapsed().unwrap();
            assert!(held < Duration::from_mins(1), "since when: {held:?}");
            say(&format!("RUNNING {name} under {} {}", holder.pid, holder.is_there));
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// Tells a process that plays the supervisor what to supervise.
pub(crate) fn tell_what(command: &mut Command, folder: &TempDir, script: &str) {
    command.env(SCRIPT, script).env(FOLDER, folder.path());
}

fn start(folder: &TempDir, script: &str) -> Patient {
    let mut command = Patient::command(&[], "supervise");
    tell_what(&mut command, folder, script);
    Patient::spawn(&mut command)
}

/// Beats into the file, as the seed does it.
const BEATS: &str = "while :; do date +%s%N > $INTERLOCK_HEARTBEAT_FILE; sleep 0.02; done";

fn is_there(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn send(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status_within(BOUND).unwrap().success());
}

#[test]
fn fault_13_a_program_that_is_stopped_is_noticed_written_down_ended_and_started_again() {
    let folder = TempDir::new().unwrap();
    let asked = folder.path().join("asked");
    let script = format!("trap 'touch {}; exit 0' TERM; {BEATS}", asked.display());
    let mut supervisor = start(&folder, &script);
    let pid = supervisor.until("STARTED ");
    wait_until("the first beat", BOUND, || folder.path().join("beat").exists());
    send("-STOP", &pid);
    let age: u64 = supervisor.until("SILENT ").parse().unwrap();
    let age = Duration::from_millis(age);
    assert!(is_between(age, MAX_AGE, MAX_AGE + Duration::from_secs(1)), "{age:?}");
    let report = fs::read_to_string(supervisor.until("REPORTED ")).unwrap();
    assert!(report.contains("why: no sign of life") && report.contains("` T, "), "{report}");
    assert_eq!(supervisor.until("ENDED "), "Hung");
    assert!(asked.exists(), "it was woken, so that it could hear that it is to end");
    assert_ne!(supervisor.until("STARTED "), pid);
    assert!(!is_there(&pid));
}

#[test]
fn fault_15_a_supervisor_that_was_stopped_itself_blames_nobody() {
    let folder = TempDir::new().unwrap();
    let mut supervisor = start(&folder, BEATS);
    let pid = supervisor.until("STARTED ");
    wait_until("the first beat", BOUND, || folder.path().join("beat").exists());
    let began = Instant::now();
    // It does not beat while the supervisor cannot see it, and has left no beat to be found: that is the hard case.
    send("-STOP", &pid);
    thread::sleep(MAX_AGE / 5);
    supervisor.signal("-STOP");
    // What is tested is that time goes by.
    thread::sleep(MAX_AGE * 3);
    supervisor.signal("-CONT");
    supervisor.until("STALLED");
    // It is judged again from here on, and for what it has been silent since: had it been let go on at once, a beat of its own might
    // have saved it.
    let age: u64 = supervisor.until("SILENT ").parse().unwrap();
    let age = Duration::from_millis(age);
    assert!(is_between(age, MAX_AGE, MAX_AGE * 3), "{age:?}");
    assert!(began.elapsed() > MAX_AGE * 3 + MAX_AGE / 2, "{:?}", supervisor.heard());
}

#[test]
fn fault_16_a_clock_that_is_set_ends_nobody_and_keeps_nobody_alive() {
    let folder = TempDir::new().unwrap();
    // What it writes, and when the file says it was written, jump by hours; the last beat lies in the future.
    let script = "beat() { date -d \"$1\" +%s > $INTERLOCK_HEARTBEAT_FILE; touch -d \"$1\" $INTERLOCK_HEARTBEAT_FILE; sleep 0.2; }; \
                  for when in '+1 hour' '-1 hour' '+2 hours' '-2 hours' '+1 hour'; do beat \"$when\"; done; sleep 600";
    let mut supervisor = start(&folder, script);
    supervisor.until("STARTED ");
    let began = Instant::now();
    let age: u64 = supervisor.until("SILENT ").parse().unwrap();
    let age = Duration::from_millis(age);
    assert!(is_between(age, MAX_AGE, MAX_AGE + Duration::from_secs(1)), "{age:?}");
    assert!(began.elapsed() > MAX_AGE + Duration::from_millis(800), "{:?}", began.elapsed());
}

#[test]
fn fault_21_a_program_whose_file_is_gone_lives_by_another_way() {
    let folder = TempDir::new().unwrap();
    let beats = "echo 1 > $INTERLOCK_HEARTBEAT_FILE; sleep 0.1; rm $INTERLOCK_HEARTBEAT_FILE; \
                 for i in $(seq 20); do printf . >&$INTERLOCK_HEARTBEAT_PIPE; sleep 0.1; done; exit 5";
    let mut supervisor = start(&folder, &format!("exec bash -c '{beats}'"));
    assert_eq!(supervisor.until("ENDED "), "Exited(5)", "{:?}", supervisor.heard());
}

#[test]
fn fault_25_a_program_that_crashes_at_once_is_given_up_and_a_new_supervisor_knows_it() {
    let folder = TempDir::new().unwrap();
    let mut supervisor = start(&folder, "exit 7");
    assert_eq!(supervisor.until("GAVE UP "), "3");
    assert_eq!(supervisor.until("CODE "), GAVE_UP.to_string());
    let ends = supervisor.heard().iter().filter(|line| line.contains("ENDED Exited(7)")).count();
    assert_eq!(ends, 3);
    let mut next = start(&folder, "exit 7");
    assert_eq!(next.until("GAVE UP "), "3");
    assert!(!next.said("STARTED"));
}

#[test]
fn fault_26_a_program_that_is_well_for_a_while_and_hangs_again_is_given_up_too() {
    let folder = TempDir::new().unwrap();
    let script = "for i in 1 2 3 4 5; do date +%s%N > $INTERLOCK_HEARTBEAT_FILE; sleep 0.05; done; sleep 600";
    let mut supervisor = start(&folder, script);
    for _ in 0..3 {
        assert_eq!(supervisor.until("ENDED "), "Hung");
    }
    assert_eq!(supervisor.until("CODE "), GAVE_UP.to_string());
}

#[test]
fn fault_27_nothing_of_a_program_survives_it() {
    let folder = TempDir::new().unwrap();
    let left = folder.path().join("left");
    let script = format!(
        "trap '' TERM ABRT; (setsid sh -c 'trap \"\" TERM ABRT; echo $$ >> {0}; sleep 600; :' &); \
         sh -c 'echo $$ >> {0}; sleep 600; :' & \
         for i in 1 2 3; do date +%s%N > $INTERLOCK_HEARTBEAT_FILE; sleep 0.05; done; sleep 600; :",
        left.display()
    );
    let mut supervisor = start(&folder, &script);
    let pid = supervisor.until("STARTED ");
    let read = || fs::read_to_string(&left).unwrap_or_default();
    let others = wait_for_seeing(
        "the pids of two children",
        BOUND,
        || Some(read()).filter(|text| text.lines().count() == 2),
        read,
    );
    assert_eq!(supervisor.until("ENDED "), "Hung");
    let survivors: Vec<&str> =
        others.lines().chain([pid.as_str()]).filter(|pid| is_there(pid)).collect();
    assert_eq!(survivors, Vec::<&str>::new());
}

/// The children of a process that have ended, and that it has not waited for.
fn zombies(parent: u32) -> usize {
    let stats = fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|it| fs::read_to_string(it.path().join("stat")).ok());
    let is_one = |stat: &String| stat.contains(&format!(") Z {parent} "));
    stats.filter(is_one).count()
}

#[test]
fn fault_27_what_a_program_left_behind_is_waited_for_while_it_lives() {
    let folder = TempDir::new().unwrap();
    let made = folder.path().join("made");
    let script =
        format!("for i in $(seq 200); do (true &); done; touch {}; {BEATS}", made.display());
    let mut supervisor = start(&folder, &script);
    supervisor.until("STARTED ");
    wait_until("two hundred children that were left behind", BOUND, || made.exists());
    let pid = supervisor.child.id();
    wait_until("the supervisor to wait for them", Duration::from_secs(10), || zombies(pid) <= 1);
    assert!(!supervisor.said("ENDED"), "{:?}", supervisor.heard());
}

#[test]
fn what_hangs_behind_a_shell_is_written_down_too() {
    let folder = TempDir::new().unwrap();
    let beats = "for i in 1 2 3; do date +%s%N > $INTERLOCK_HEARTBEAT_FILE; sleep 0.05; done";
    // A child, a grandchild, and one that went its own way.
    let script = format!("{beats}; (setsid sleep 603 &); sh -c 'sleep 601 & sleep 602; :'; :");
    let mut supervisor = start(&folder, &script);
    let pid = supervisor.until("STARTED ");
    let age: u64 = supervisor.until("SILENT ").parse().unwrap();
    let most = MAX_AGE + Duration::from_secs(1);
    assert!(is_between(Duration::from_millis(age), MAX_AGE, most), "{age}");
    let report = fs::read_to_string(supervisor.until("REPORTED ")).unwrap();
    let (head, rest) = report.split_once("== processes\n").unwrap();
    for key in ["why: no sign of life", "name: patient", "time: 20", "host: ", "version: "] {
        assert!(head.lines().any(|line| line.starts_with(key)), "{key}: {report}");
    }
    let overview: Vec<&str> = rest.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(overview.len(), 5, "{report}");
    assert!(overview[0].starts_with(&format!("{pid} S, child of ")), "{report}");
    for seconds in ["601", "602", "603"] {
        let command = format!(": sleep {seconds}");
        let line = overview.iter().find(|line| line.ends_with(&command)).unwrap();
        let number = line.split(' ').next().unwrap();
        let title =
            format!("\n== threads of process {number}\n\nthread {number} `sleep` S, waits in ");
        let stack = report.split_once(&title).unwrap_or_else(|| panic!("{report}")).1;
        let stack = stack.split("\n\n").next().unwrap();
        assert!(stack.contains("nanosleep"), "{report}");
    }
    assert!(report.len() <= 256 * 1_024);
}

#[test]
fn fault_22_a_heartbeat_file_that_cannot_even_be_opened_holds_nobody_up() {
    let folder = TempDir::new().unwrap();
    // A file system whose server is there and never says anything.
    let mount = "exec 9<>/dev/fuse && mkdir $LIVENESS_FOLDER/stuck && \
                 mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 none $LIVENESS_FOLDER/stuck || exit 77; \
                 ln -s stuck/beat $LIVENESS_FOLDER/beat; exec \"$0\" \"$@\"";
    let beats =
        "for i in $(seq 15); do printf . >&$INTERLOCK_HEARTBEAT_PIPE; sleep 0.1; done; sleep 600";
    // Should it be held up after all, it is ended: nobody else can.
    let by = ["timeout", "-s", "KILL", "60", "unshare", "--mount", "bash", "-c", mount];
    let mut command = Patient::command(&by, "supervise");
    tell_what(&mut command, &folder, &format!("exec bash -c '{beats}'"));
    let mut supervisor = Patient::spawn(&mut command);
    let began = Instant::now();
    if supervisor.says.next_within("a first word", BOUND).is_none() {
        println!("only root may mount such a file system: not tried");
        return;
    }
    supervisor.until("STARTED ");
    let age: u64 = supervisor.until("SILENT ").parse().unwrap();
    let age = Duration::from_millis(age);
    assert!(is_between(age, MAX_AGE, MAX_AGE + Duration::from_secs(1)), "{age:?}");
    assert!(began.elapsed() > Duration::from_millis(1_500), "it lived by another way");
    assert_eq!(supervisor.until("ENDED "), "Hung");
    supervisor.until("STARTED ");
}

#[test]
fn who_has_been_well_for_long_after_trouble_says_so() {
    let folder = TempDir::new().unwrap();
    let died = folder.path().join("died");
    let script = format!("[ -e {0} ] || {{ touch {0}; exit 7; }}; {BEATS}", died.display());
    let mut command = Patient::command(&[], "supervise");
    tell_what(&mut command, &folder, &script);
    let mut supervisor = Patient::spawn(command.env(HEALTHY, "700"));
    assert_eq!(supervisor.until("ENDED "), "Exited(7)");
    supervisor.until("STARTED ");
    let began = Instant::now();
    let (unwell, well) = (folder.path().join("patient.unwell"), folder.path().join("patient.well"));
    assert!(unwell.exists() && !well.exists());
    wait_until("the file that says it is well", Duration::from_secs(20), || well.exists());
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
    assert!(!unwell.exists());
    let names: Vec<String> = recovered(folder.path()).into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["patient"]);
}

#[test]
fn fault_28_a_supervisor_that_is_killed_takes_its_program_along_and_two_are_never_at_work() {
    let folder = TempDir::new().unwrap();
    let mut first = start(&folder, BEATS);
    let pid = first.until("STARTED ");
    let mut second = start(&folder, BEATS);
    let holder = format!("patient under {} true", first.child.id());
    assert_eq!(second.until("RUNNING "), holder);
    first.signal("-KILL");
    let began = Instant::now();
    while is_there(&pid) {
        assert!(began.elapsed() < Duration::from_secs(10), "it lives on");
        thread::yield_now();
    }
    start(&folder, BEATS).until("STARTED ");
}

#[test]
fn fault_03_a_program_whose_loop_hangs_stops_beating_although_its_timers_go_on() {
    let folder = TempDir::new().unwrap();
    let this = std::env::current_exe().unwrap();
    for unset in [
        "INTERLOCK_HEARTBEAT_FILE INTERLOCK_HEARTBEAT_PIPE",
        "INTERLOCK_HEARTBEAT_FILE INTERLOCK_HEARTBEAT_MEMORY",
    ] {
        let script = format!(
            "unset {unset}; {PART}=beats exec {} --exact patient --nocapture",
            this.display()
        );
        let folder = TempDir::new_in(folder.path()).unwrap();
        let mut supervisor = start(&folder, &script);
        let began = Instant::now();
        assert_eq!(supervisor.until("ENDED "), "Hung");
        // It beat for 800 ms; the first beat may take 5 s.
        let lived = began.elapsed();
        assert!(
            is_between(lived, MAX_AGE + Duration::from_millis(600), Duration::from_secs(5)),
            "{lived:?}"
        );
    }
}

#[test]
fn fault_20_beats_go_on_when_the_disk_is_full() {
    let folder = TempDir::new().unwrap();
    let mount = format!(
        "mount -t tmpfs -o size=16k none {} 2>/dev/null || exit 77; exec \"$0\" \"$@\"",
        folder.path().display()
    );
    let mut command = Patient::command(&["unshare", "--mount", "sh", "-c", &mount], "full-disk");
    let mut patient = Patient::spawn(command.env(crate::patient::REPORTS, folder.path()));
    let ended = patient.ends();
    if ended.code() == Some(77) || ended.code() == Some(1) && patient.heard().is_empty() {
        println!("only root may mount a small disk: not tried");
        return;
    }
    assert!(patient.said("STILL BEATING"), "{ended:?} {:?}", patient.heard());
}
