//! Noticing that files changed, without looking at each of them.
//!
//! On Linux the kernel tells (inotify), on a thread of its own that only waits. What it tells is a hint: who
//! listens looks at everything that may have changed, so an overflow of the kernel's queue is one more hint.
//! Bursts are gathered until they have ended. Where nothing is told (another system, a network file system) a
//! slow look at everything makes sure.

use std::{path::PathBuf, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

/// An editor that writes several files, or one in several steps, is done after this.
const QUIET: Duration = Duration::from_millis(200);
/// A burst that does not end is looked at all the same.
const BURST_MAX: Duration = Duration::from_secs(2);
/// How often everything is looked at although nothing was told.
const SAFETY: Duration = Duration::from_mins(1);
/// The same where nobody tells anything.
const BLIND: Duration = Duration::from_secs(5);
/// But after a look that took long it rests so many times as long: a hundred thousand files are most of a second.
const SAFETY_RESTS: u32 = 1_000;
const BLIND_RESTS: u32 = 50;
/// However long that was: it may have been one in which everything was read.
const REST_MAX: Duration = Duration::from_mins(10);

/// Tells when files may have changed.
#[derive(Debug)]
pub(crate) struct Watch {
    hints: mpsc::Receiver<()>,
    kernel: Option<kernel::Kernel>,
    /// Whether every folder is watched.
    is_complete: bool,
    /// How long the last look at everything took.
    looked_for: Duration,
}

impl Watch {
    /// Begins to watch; the folders come later.
    pub(crate) fn start() -> Self {
        let (sender, hints) = mpsc::channel(1);
        let kernel = kernel::Kernel::start(sender);
        Self { hints, is_complete: kernel.is_some(), kernel, looked_for: Duration::ZERO }
    }

    /// Says what to watch: in the project's own directory only what decides about the rest, in the folders
    /// everything. To be said again after each look: a folder may be another one by now.
    pub(crate) fn folders(&mut self, (directory, folders): (PathBuf, Vec<PathBuf>)) {
        let Some(kernel) = &self.kernel else { return };
        let was_complete = self.is_complete;
        self.is_complete = kernel.watch(&directory, &folders);
        if was_complete && !self.is_complete {
            tracing::warn!(
                "the system watches no more folders (fs.inotify.max_user_watches); \
                 the files are looked at every {} s instead",
                BLIND.as_secs()
            );
        }
    }

    /// Says how long a look at everything took.
    pub(crate) fn looked_for(&mut self, took: Duration) {
        self.looked_for = took;
    }

    /// How long nothing need be looked at that nobody told of.
    fn patience(&self) -> Duration {
        if self.is_complete {
            (self.looked_for * SAFETY_RESTS).clamp(SAFETY, REST_MAX)
        } else {
            (self.looked_for * BLIND_RESTS).clamp(BLIND, REST_MAX)
        }
    }

    /// Ready when it is time to look.
    pub(crate) async fn changed(&mut self) {
        match timeout(self.patience(), self.hints.recv()).await {
            Ok(Some(())) => {}
            Ok(None) => {
                // The thread is gone: from now on time alone tells.
                (self.is_complete, self.kernel) = (false, None);
                tokio::time::sleep(self.patience()).await;
                return;
            }
            Err(_nothing_was_told) => return,
        }
        let until = Instant::now() + BURST_MAX;
        while Instant::now() < until {
            let quiet = (Instant::now() + QUIET).min(until);
            if timeout_at(quiet, self.hints.recv()).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::{
        collections::BTreeMap,
        ffi::OsString,
        mem::MaybeUninit,
        os::{fd::OwnedFd, unix::ffi::OsStringExt as _},
        path::{Path, PathBuf},
        sync::{Arc, Mutex, PoisonError},
        thread,
    };

    use rustix::{
        fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
        io::Errno,
    };
    use tokio::sync::mpsc;

    const EVENTS: WatchFlags = WatchFlags::CLOSE_WRITE
        .union(WatchFlags::MODIFY)
        .union(WatchFlags::CREATE)
        .union(WatchFlags::DELETE)
        .union(WatchFlags::MOVE)
        .union(WatchFlags::ATTRIB)
        .union(WatchFlags::DELETE_SELF)
        .union(WatchFlags::MOVE_SELF);

    /// The kernel's watches.
    #[derive(Debug)]
    pub(super) struct Kernel {
        handle: Arc<OwnedFd>,
        names: Arc<Mutex<Names>>,
    }

    /// Which names count in which watched directory; all where there is no entry.
    type Names = BTreeMap<i32, Vec<OsString>>;

    impl Kernel {
        pub(super) fn start(sender: mpsc::Sender<()>) -> Option<Self> {
            let handle = Arc::new(inotify::init(CreateFlags::CLOEXEC).ok()?);
            let names = Arc::new(Mutex::new(Names::new()));
            let (reading, counting) = (Arc::clone(&handle), Arc::clone(&names));
            let listen = move || listen(&reading, &counting, &sender);
            thread::Builder::new().name("files".to_owned()).spawn(listen).ok()?;
            Some(Self { handle, names })
        }

        /// Watches folders; whether all that exist are watched.
        pub(super) fn watch(&self, directory: &Path, folders: &[PathBuf]) -> bool {
            let below = folders.iter().filter_map(|folder| folder.strip_prefix(directory).ok());
            let first = below.filter_map(|folder| folder.iter().next()).map(OsString::from);
            let mut counted: Vec<_> =
                ["interlock.yaml", "interlock.yml"].map(OsString::from).into();
            counted.extend(first);
            let is_watched = |folder: &Path| match inotify::add_watch(&*self.handle, folder, EVENTS)
            {
                Ok(watch) => Some(watch),
                // Its parent tells when it comes.
                Err(Errno::NOENT | Errno::NOTDIR) => Some(-1),
                Err(_) => None,
            };
            let Some(root) = is_watched(directory) else { return false };
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.clear();
            names.insert(root, counted);
            drop(names);
            folders.iter().all(|folder| folder == directory || is_watched(folder).is_some())
        }
    }

    fn listen(handle: &OwnedFd, names: &Mutex<Names>, sender: &mpsc::Sender<()>) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(handle, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            let name = event.file_name().map(|name| OsString::from_vec(name.to_bytes().to_vec()));
            let names = names.lock().unwrap_or_else(PoisonError::into_inner);
            let counts = match (names.get(&event.wd()), name) {
                (Some(counted), Some(name)) => counted.contains(&name),
                (Some(_) | None, _) => !event.events().contains(ReadFlags::IGNORED),
            };
            drop(names);
            // A hint that waits to be heard is enough.
            if counts && matches!(sender.try_send(()), Err(mpsc::error::TrySendError::Closed(()))) {
                return;
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use std::path::{Path, PathBuf};

    use tokio::sync::mpsc;

    /// Nobody tells.
    #[derive(Debug)]
    pub(super) struct Kernel;

    impl Kernel {
        pub(super) fn start(_: mpsc::Sender<()>) -> Option<Self> {
            None
        }

        pub(super) fn watch(&self, _: &Path, _: &[PathBuf]) -> bool {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_long_look_it_rests_longer_and_never_for_ever() {
        let mut watch = Watch::start();
        let mut patience = |is_complete, millis| {
            watch.is_complete = is_complete;
            watch.looked_for(Duration::from_millis(millis));
            watch.patience().as_secs()
        };
        assert_eq!((patience(true, 0), patience(false, 0)), (60, 5));
        assert_eq!((patience(true, 8), patience(false, 8)), (60, 5), "a thousand files");
        assert_eq!((patience(true, 500), patience(false, 500)), (500, 25), "a hundred thousand");
        assert_eq!((patience(true, 9_000), patience(false, 60_000)), (600, 600));
    }
}
