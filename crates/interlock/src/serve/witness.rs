//! What this machine remembers of the store, beyond the life of the process.
//!
//! A server may come back without what it had acknowledged: after a power cut, as a restored backup, as a replica that
//! lagged. A process that goes on running notices that by itself; one that was started again knows nothing, so it looks
//! into the file `witness` of its folder: which store it was, and the last number that it had given. A store that has
//! given fewer has forgotten something (`STORE_ROLLBACK`); another store has not, and is only mentioned.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use interlock_private_files as private_files;
use interlock_store::{Mark, Recalled, Store, StoreError, StoreId};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::{exit::Failure, place::Place};

/// How often it is written: what is written later is not missed when it is gone. A Redis with `appendfsync everysec` loses
/// about as much.
const EVERY: Duration = Duration::from_secs(1);
/// How long the end of the process may wait for it.
const LAST_IN: Duration = Duration::from_secs(2);

/// The file, and whose it is.
#[derive(Debug, Clone)]
pub(crate) struct Witness {
    store: Arc<dyn Store>,
    path: PathBuf,
    identity: StoreId,
}

impl Witness {
    /// Compares the store with what is remembered of it; nothing for a file, which is with its witness in one folder.
    pub(crate) async fn ask(
        place: &Place,
        store: &Arc<dyn Store>,
    ) -> Result<Option<Self>, Failure> {
        if place.is_embedded() {
            return Ok(None);
        }
        let path = place.folder.join("witness");
        if let Some(remembered) = read(&path) {
            // Those who notice it have it told.
            if store.recall(remembered).await? == Recalled::Another {
                tracing::warn!(
                    "{place} is another store than the one that was served here last (it was {}): what was recorded there \
                     is not here",
                    remembered.store
                );
            }
        }
        let mark = store.mark().await?;
        let witness = Self { store: Arc::clone(store), path, identity: mark.store };
        witness.keep(mark).await.map_err(|error| Failure::file("write", &witness.path, &error))?;
        Ok(Some(witness))
    }

    /// Writes it every so often until the process ends.
    pub(crate) async fn go_on(self) {
        let mut is_told = false;
        loop {
            sleep(EVERY).await;
            // A store that does not answer is told of by others.
            if let Ok(Err(error)) = self.look().await
                && !is_told
            {
                is_told = true;
                let path = self.path.display();
                tracing::warn!(%error, "cannot write {path}: after a restart Interlock could not tell whether the store lost writes");
            }
        }
    }

    /// Writes it once more, before the process ends.
    pub(crate) async fn last(self) {
        let _as_it_was = timeout(LAST_IN, self.look()).await;
    }

    async fn look(&self) -> Result<io::Result<()>, StoreError> {
        let mark = self.store.mark().await?;
        // One that was emptied under us says nothing until that was noticed.
        if mark.store != self.identity {
            return Ok(Ok(()));
        }
        Ok(self.keep(mark).await)
    }

    async fn keep(&self, mark: Mark) -> io::Result<()> {
        let path = self.path.clone();
        let kept = spawn_blocking(move || write(&path, mark)).await;
        kept.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

/// What is remembered, if it can be read.
fn read(path: &Path) -> Option<Mark> {
    let text = fs::read_to_string(path).ok()?;
    let (store, number) = text.trim().split_once(' ')?;
    Some(Mark { store: StoreId::parse(store)?, number: number.parse().ok()? })
}

/// Writes down what is to be remembered, if that has changed.
fn write(path: &Path, mark: Mark) -> io::Result<()> {
    let text = format!("{} {}\n", mark.store, mark.number);
    if fs::read_to_string(path).is_ok_and(|known| known == text) {
        return Ok(());
    }
    private_files::replace(path, &text)
}
