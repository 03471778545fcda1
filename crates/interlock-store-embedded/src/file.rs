//! How the files are opened.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use interlock_private_files::{self as private_files, Extent};
use interlock_store::StoreError;
use rusqlite::{Connection, OpenFlags};

use crate::{
    failure::{Failure, Trouble},
    network::remote_type,
    schema,
    writer::STATEMENTS_MAX,
};

/// How long a connection waits for another process, at opening or when the log is taken over.
const PATIENCE: Duration = Duration::from_secs(5);

/// The ledger in a folder.
pub(crate) fn ledger_path(folder: &Path) -> PathBuf {
    folder.join("ledger.db")
}

/// What the names of the store's files begin with.
pub const FILE_NAMES: &[&str] = &["ledger.db", "inbox.db", "daemon.lock"];

/// Makes the folder of a ledger, for its owner alone.
pub(crate) fn create_folder(folder: &Path) -> Result<(), StoreError> {
    private_files::create_folder(folder).map_err(|error| {
        StoreError::permanent(format!("cannot create {}: {error}", folder.display()))
    })
}

/// Closes the files of a ledger to everybody but their owner: an older version made them for everybody to read. What
/// belongs to another user stays as it is, and `interlock doctor` names it.
pub(crate) fn restrict(folder: &Path) -> Result<(), StoreError> {
    let restricted = private_files::restrict(folder, Extent::Files(FILE_NAMES));
    restricted.map(|_not_ours| ()).map_err(|error| {
        StoreError::permanent(format!("cannot read the folder {}: {error}", folder.display()))
    })
}

/// Makes a database's file before SQLite does, which would make it for everybody to read; the log beside a database has the
/// database's permissions.
pub(crate) fn create_database(path: &Path) {
    // What is wrong with the path, SQLite says when it opens it.
    let _sqlite_says = private_files::create_file(path);
}

/// Refuses folders on which a ledger would come to harm.
pub(crate) fn check_folder(folder: &Path) -> Result<(), StoreError> {
    let Some(kind) = remote_type(folder) else { return Ok(()) };
    let message = format!(
        "{} is on a network file system ({kind}), where SQLite's locks cannot be relied on and the ledger \
         would be damaged sooner or later: use a folder on a local disk, or a store that is made for \
         several machines (redis, postgres)",
        folder.display()
    );
    Err(StoreError::permanent(message))
}

/// The connection that writes.
pub(crate) fn open_writing(path: &Path) -> Result<Connection, StoreError> {
    create_database(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let db = opened(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // Before anything is set: the journal mode is a change of the file, which may not be ours.
    schema::refuse_foreign(&db, path)?;
    // The log is copied by others; see the module `log`. The kernel caches the file too: a larger
    // cache of our own was memory for nothing (74 MB instead of 49 after the first load of 10,000 pipelines).
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
        PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864;
        PRAGMA cache_size = -4096;";
    configured(db, pragmas, path)
}

/// The connection that copies the log.
pub(crate) fn open_copying(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let pragmas = "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
        PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -512;";
    configured(opened(path, flags)?, pragmas, path)
}

/// A connection that reads.
pub(crate) fn open_reading(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    configured(opened(path, flags)?, "PRAGMA query_only = ON; PRAGMA cache_size = -512;", path)
}

fn opened(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, flags).and_then(|db| {
        db.busy_timeout(PATIENCE)?;
        // What the file says about itself is not to be trusted: it may be damaged, or somebody else's.
        db.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
        db.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Ok(db)
    });
    connection.map_err(|error| Trouble::of(Failure::Sql(error), path).error())
}

fn configured(db: Connection, pragmas: &str, path: &Path) -> Result<Connection, StoreError> {
    let outcome = db.execute_batch(pragmas);
    outcome.map_err(|error| Trouble::of(Failure::Sql(error), path).error())?;
    Ok(db)
}
