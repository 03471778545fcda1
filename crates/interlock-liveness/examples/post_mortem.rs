//! What a process was doing when it hung: written down by a helper, told by the next start.
//!
//! The helper is this program again, started while all is well. It ends with this process. With the feature `forensics` it names functions and
//! lines; without it there are places in files.

#![expect(clippy::print_stdout, reason = "an example says what it does")]

use std::{path::Path, process::Command, sync::mpsc, thread, time::Duration};

use interlock_liveness::{
    Ladder, Monitor,
    forensics::{Forensics, found, help},
};

/// With this argument the program is the helper; what comes after it is for [`help`].
pub(crate) const HELPER: &str = "be-the-helper";

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|it| it == HELPER) {
        let for_helper = arguments.get(at + 1..).unwrap_or_default();
        // A log is a good place for the text as well: files may end with their container.
        help(for_helper, |written| println!("written: {}", written.path.display()))?;
        return Ok(());
    }
    let mut helper = Command::new(std::env::current_exe()?);
    helper.arg(HELPER);
    let folder = std::env::temp_dir().join(format!("post-mortem-{}", std::process::id()));
    run(helper, &folder)?;
    Ok(std::fs::remove_dir_all(&folder)?)
}

/// Hangs, and finds what was written about that as the next start would.
pub(crate) fn run(helper: Command, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    tell(folder)?;
    let monitor = Monitor::builder()
        .forensics(Forensics::start(helper, folder, "example")?)
        .on_event(|event| println!("{event}"))
        .start()?;
    // A real program uses `Ladder::hard`: one more report, and then its end.
    let watch = monitor.watch("worker", Ladder::soft(Duration::from_millis(400))).register()?;
    let (_never_sends, wait) = mpsc::channel::<()>();
    thread::Builder::new().name("worker".to_owned()).spawn(move || {
        watch.arm();
        // Nobody ever answers: this is the line that the report names.
        let _hangs = wait.recv();
    })?;
    while !tell(folder)? {
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What every start does first: tells what earlier processes left, once. Says whether one had expired.
fn tell(folder: &Path) -> Result<bool, Box<dyn std::error::Error>> {
    let mut has_expired = false;
    for report in found(folder) {
        let text = std::fs::read_to_string(&report.path)?;
        let threads = text.lines().filter(|line| line.starts_with("thread ")).count();
        println!("`{}`: {}; {threads} threads are described", report.name, report.why);
        report.is_told()?;
        has_expired |= report.why.ends_with("(soft)");
    }
    Ok(has_expired)
}
