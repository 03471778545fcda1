//! A file: one JSON object a line, on the disk before it counts as delivered.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use interlock_ports::channel::Delivery;
use serde_json::Value;

/// Appends what a program is sent. One at a time, by the lock: a line that could not be written whole is taken back.
pub(crate) async fn deliver(
    path: PathBuf,
    one_at_a_time: Arc<Mutex<()>>,
    payload: Value,
) -> Delivery {
    let what = path.display().to_string();
    let line = format!("{payload}\n");
    super::blocking(&what, move || {
        let _turn = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        append(&path, &line)
    })
    .await
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let before = file.metadata()?.len();
    // After a crash in the middle of a line the next one begins on its own.
    let text =
        if ends_in_a_line(&mut file, before)? { line.to_owned() } else { format!("\n{line}") };
    file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).inspect_err(|_| {
        // Half a line is worse than none; if even that fails, the next one begins on its own.
        let _kept = file.set_len(before);
    })
}

fn ends_in_a_line(file: &mut File, length: u64) -> io::Result<bool> {
    if length == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(length - 1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}
