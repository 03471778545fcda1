//! The log file of a run: opened for appending by the job itself, kept short by the runner.
//!
//! Output never passes through the runner: the job writes straight into the file, so that it costs
//! nothing, and a job outlives the runner without a broken pipe. The price is that the file is cut
//! afterwards: about once a second, one that has grown past its cap is reduced to its tail. What is
//! written in the instant between reading the tail and cutting is lost; the file says that it was
//! cut.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use interlock_core::id::fnv1a;
use rustix::fs::{CWD, RenameFlags, Timespec, Timestamps, UTIME_NOW, futimens, renameat_with};

/// File systems allow 255 bytes; a name stays well below.
const NAME_BYTES_MAX: usize = 200;

/// Where a run's output is.
pub fn log_path(dir: &Path, pipeline: &str, run_id: &str) -> PathBuf {
    dir.join("logs").join(short(pipeline)).join(format!("{}.log", short(run_id)))
}

/// A long name keeps its unique end and gets a hash of the rest (facts D1-15).
fn short(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let tail =
        name.char_indices().map(|(at, _)| at).find(|at| name.len() - at <= NAME_BYTES_MAX / 2);
    format!("{:016x}-{}", fnv1a(name.as_bytes()), name.get(tail.unwrap_or(0)..).unwrap_or_default())
}

/// Opens a log for a process to write to.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            options.open(path)
        }
        opened => opened,
    }
}

/// A log that exists before it is needed. Creating a file is the slowest part of starting a short job, and there is
/// time for it while the last one runs; a job's start is then a change of the file's name.
#[derive(Debug)]
pub(crate) struct Spare {
    path: PathBuf,
    file: Option<File>,
}

impl Spare {
    /// None yet. One that an earlier runner left behind is used.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { path: dir.join("logs").join("spare"), file: None }
    }

    /// Makes one. Where that is not possible, neither is a log, and that is said when one is opened.
    pub(crate) fn prepare(&mut self) {
        if self.file.is_none() {
            self.file = open(&self.path).ok();
        }
    }

    /// Opens a log for a process to write to. One that is there already goes on.
    pub(crate) fn open(&mut self, path: &Path) -> io::Result<File> {
        let Some(file) = self.file.take() else { return open(path) };
        if renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE).is_err() {
            self.file = Some(file);
            return open(path);
        }
        // A sweep goes by when it was last written to, and this may be an old file.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        futimens(&file, &Timestamps { last_access: now, last_modification: now })?;
        Ok(file)
    }
}

/// Adds a line of the runner's own.
pub(crate) fn note(path: &Path, text: &str) -> io::Result<()> {
    open(path)?.write_all(format!("── {text}\n").as_bytes())
}

/// Most lines of a job's output that are kept with its run.
const LINES_KEPT: usize = 100;

/// The last lines of a log, of no more than so many bytes; none of one that is empty or cannot be read. What is no text is shown as
/// such.
pub(crate) fn last_lines(path: &Path, bytes_max: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let skipped = length.saturating_sub(bytes_max);
    file.seek(SeekFrom::Start(skipped)).ok()?;
    let mut tail = Vec::new();
    Read::by_ref(&mut file).take(bytes_max).read_to_end(&mut tail).ok()?;
    // From the next full line, if there is one.
    let is_cut = skipped > 0;
    let begin = tail.iter().position(|byte| *byte == b'\n').filter(|_| is_cut);
    let whole = tail.get(begin.map_or(0, |at| at + 1)..).filter(|rest| !rest.is_empty());
    let text = String::from_utf8_lossy(whole.unwrap_or(&tail));
    let begin = text.trim_end_matches('\n').rmatch_indices('\n').nth(LINES_KEPT - 1);
    let last = text.get(begin.map_or(0, |(at, _)| at + 1)..).unwrap_or_default();
    (!last.is_empty()).then(|| last.to_owned())
}

/// Reduces a file that is longer than its cap to the newest half of that, from the next full line.
pub(crate) fn keep_tail(path: &Path, bytes_max: u64) -> io::Result<()> {
    let length = fs::metadata(path)?.len();
    if length <= bytes_max {
        return Ok(());
    }
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    let keep = bytes_max / 2;
    file.seek(SeekFrom::Start(length.saturating_sub(keep)))?;
    let mut tail = Vec::with_capacity(keep as usize);
    Read::by_ref(&mut file).take(bytes_max).read_to_end(&mut tail)?;
    let begin = tail.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let tail = tail.get(begin..).unwrap_or_default();
    let cut = length.saturating_sub(tail.len() as u64);
    file.set_len(0)?;
    file.write_all(format!("── {cut} bytes of older output were cut here\n").as_bytes())?;
    file.write_all(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_keeps_its_tail_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.log");
        let mut job = open(&path).unwrap();
        for number in 0..1000 {
            writeln!(job, "line {number}").unwrap();
        }
        keep_tail(&path, 20_000).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("line 0\n"));
        keep_tail(&path, 1000).unwrap();
        writeln!(job, "afterwards").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() < 600, "{}", text.len());
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].ends_with("bytes of older output were cut here"), "{}", lines[0]);
        assert!(lines[1].starts_with("line "));
        assert_eq!(lines[lines.len() - 2..], ["line 999", "afterwards"]);
    }

    #[test]
    fn the_last_lines_of_a_log_are_whole_and_few() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        assert_eq!(last_lines(&path, 1_000), None, "there is none");
        fs::write(&path, "").unwrap();
        assert_eq!(last_lines(&path, 1_000), None, "it is empty");
        fs::write(&path, "one\ntwo").unwrap();
        assert_eq!(last_lines(&path, 1_000).as_deref(), Some("one\ntwo"));
        let lines: Vec<String> = (0..1_000).map(|number| format!("line {number}\n")).collect();
        fs::write(&path, lines.concat()).unwrap();
        assert_eq!(last_lines(&path, 16_384), Some(lines[900..].concat()));
        assert_eq!(last_lines(&path, 25), Some(lines[998..].concat()), "no half line");
        fs::write(&path, [b"\xff\x00".as_slice(), &[b'x'; 50]].concat()).unwrap();
        let shown = format!("\u{fffd}\0{}", "x".repeat(50));
        assert_eq!(last_lines(&path, 1_000), Some(shown));
        assert_eq!(last_lines(&path, 20), Some("x".repeat(20)), "one line that is too long");
    }

    #[test]
    fn a_spare_becomes_a_log_and_never_replaces_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| log_path(dir.path(), "orders", name);
        let mut spare = Spare::new(dir.path());
        writeln!(spare.open(&path("one")).unwrap(), "made without a spare").unwrap();

        spare.prepare();
        writeln!(spare.open(&path("one")).unwrap(), "goes on").unwrap();
        assert_eq!(fs::read_to_string(path("one")).unwrap(), "made without a spare\ngoes on\n");

        // Prepared long before it is used, and left behind by a runner that died.
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
        File::open(&spare.path).unwrap().set_modified(old).unwrap();
        let mut spare = Spare::new(dir.path());
        spare.prepare();
        writeln!(spare.open(&path("two")).unwrap(), "its own").unwrap();
        assert_eq!(fs::read_to_string(path("two")).unwrap(), "its own\n");
        assert_ne!(fs::metadata(path("two")).unwrap().modified().unwrap(), old);
        assert!(!spare.path.exists());
    }

    #[test]
    fn long_names_stay_unique_and_legal() {
        let run = |end: &str| log_path(Path::new("/x"), "p", &format!("{}~{end}", "a".repeat(500)));
        assert!(run("1").file_name().unwrap().len() <= 255);
        assert_ne!(run("1"), run("2"));
        let path = log_path(Path::new("/x"), "orders", "orders~daily~1");
        assert_eq!(path, Path::new("/x/logs/orders/orders~daily~1.log"));
    }
}
