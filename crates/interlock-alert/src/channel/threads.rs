//! Which thread a channel's messages about a pipeline's day are in.
//!
//! A receiver's numbers are no part of the record, so they are kept in a file of their own beside it, one line for each
//! thread as it began. A file that is lost, or a line that is, costs no more than a thread that begins anew.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_private_files as private_files;
use serde_json::{Value, json};

/// Threads that are remembered; the oldest days go first.
const THREADS_MAX: usize = 10_000;
/// Lines that the file may have before it is written anew.
const LINES_MAX: usize = 2 * THREADS_MAX;

/// Whose thread: the day, the channel's name and the pipeline. The day comes first: the oldest are forgotten first.
pub(crate) type Place = (String, String, String);

/// The threads that there are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Threads(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    by_place: BTreeMap<Place, String>,
    file: Option<PathBuf>,
    lines: usize,
}

impl Threads {
    /// Those that a file remembers; it need not be there yet.
    pub(crate) fn kept_in(file: PathBuf) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let by_place: BTreeMap<_, _> = text.lines().filter_map(read).collect();
        let lines = text.lines().count();
        Self(Arc::new(Mutex::new(Kept { by_place, file: Some(file), lines })))
    }

    pub(crate) fn get(&self, place: &Place) -> Option<String> {
        self.lock().by_place.get(place).cloned()
    }

    /// Remembers where a thread began. That the file cannot be written is no reason to say that nothing was delivered.
    pub(crate) fn begin(&self, place: Place, thread: String) {
        let mut kept = self.lock();
        let line = line(&place, &thread);
        kept.by_place.insert(place, thread);
        while kept.by_place.len() > THREADS_MAX {
            kept.by_place.pop_first();
        }
        let Some(file) = kept.file.clone() else { return };
        let written = if kept.lines >= LINES_MAX {
            kept.lines = kept.by_place.len();
            rewrite(&file, &kept.by_place)
        } else {
            kept.lines += 1;
            append(&file, &line)
        };
        if let Err(error) = written {
            let file = file.display();
            tracing::warn!(%file, %error, "the threads of alerts cannot be kept; after a restart they begin anew");
        }
    }

    pub(crate) fn forget(&self, place: &Place) {
        self.lock().by_place.remove(place);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line((day, channel, pipeline): &Place, thread: &str) -> String {
    format!("{}\n", json!([day, channel, pipeline, thread]))
}

fn read(line: &str) -> Option<(Place, String)> {
    let said: Value = serde_json::from_str(line).ok()?;
    let word = |at: usize| said.get(at)?.as_str().map(str::to_owned);
    Some(((word(0)?, word(1)?, word(2)?), word(3)?))
}

/// A line at a time: one that was broken off by a crash stands alone, because each begins a new line.
fn append(file: &Path, line: &str) -> io::Result<()> {
    let mut file = private_files::open_options().create(true).append(true).open(file)?;
    file.write_all(format!("\n{line}").as_bytes())
}

fn rewrite(file: &Path, threads: &BTreeMap<Place, String>) -> io::Result<()> {
    let text: String = threads.iter().map(|(place, thread)| line(place, thread)).collect();
    private_files::replace(file, &text)
}
