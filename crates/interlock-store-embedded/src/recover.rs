//! `serve --recover`: a damaged ledger is set aside, and a new one begins with what can be read of it.
//!
//! Nothing is deleted, and no moment at which the process dies loses anything: the new file is written beside the old one
//! and is complete before it gets the name `ledger.db.recovered`. From then on whoever opens the ledger to write it
//! finishes what is left: the old file and its log get another name, and the new file theirs.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use interlock_core::{id::PipelineId, text::counted};
use interlock_store::{StoreError, record::InboxRecord};
use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, TransactionBehavior, params};

use crate::{
    failure::{Failure, Trouble},
    file::{check_folder, create_database, ledger_path, open_reading, open_writing},
    lock::DaemonLock,
    mailbox::open_existing,
    salvage::{Mending, is_log_cut, letters, mend, salvage},
    schema,
};

/// The new file while it is written, and when it is complete.
const UNFINISHED: &str = "ledger.db.recovering";
const COMPLETE: &str = "ledger.db.recovered";
/// A commit may be a moment older than the time of its file.
const MARGIN: SignedDuration = SignedDuration::from_secs(1);
/// How many files of one second may be set aside.
const ASIDE_MAX: u32 = 1_000;

/// What a recovery did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// What it set aside, for people.
    pub aside: Vec<PathBuf>,
    /// What was lost and from when on, in sentences.
    pub message: String,
}

/// Recovers the ledger and the inbox of a folder, whichever is damaged; nothing if both are sound.
pub fn recover(folder: &Path, now: Timestamp) -> Result<Option<Recovery>, StoreError> {
    check_folder(folder)?;
    if !folder.exists() {
        return Ok(None);
    }
    let _lock = DaemonLock::take(folder, "interlock serve --recover")?;
    finish(folder)?;
    let mut recovery = Recovery { aside: vec![], message: String::new() };
    let path = ledger_path(folder);
    if path.exists() {
        let written_until = last_written(folder, now);
        if let Some(damage) = damage_of(folder)? {
            let aside = free_name(folder, "ledger.db", now)?;
            let name = aside.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let message = write_new(folder, (&name, &damage), (written_until, now))?;
            finish_as(folder, &aside)?;
            recovery.aside.push(aside);
            recovery.message = message;
        }
    }
    recover_inbox(folder, now, &mut recovery)?;
    Ok((!recovery.aside.is_empty()).then_some(recovery))
}

/// Gives a recovered ledger its name, if a process died before it could.
pub(crate) fn finish(folder: &Path) -> Result<(), StoreError> {
    let complete = folder.join(COMPLETE);
    let made = match fs::metadata(&complete).and_then(|it| it.modified()) {
        Ok(made) => Timestamp::try_from(made).unwrap_or(Timestamp::UNIX_EPOCH),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(&complete, "read", &error)),
    };
    finish_as(folder, &free_name(folder, "ledger.db", made)?)
}

/// Sets the old file aside under a name and puts the new one in its place. Its log goes first: under the new file it would
/// be replayed into it. The old file is never without a name, and the new one is complete.
fn finish_as(folder: &Path, aside: &Path) -> Result<(), StoreError> {
    let path = ledger_path(folder);
    match fs::hard_link(&path, aside) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&path, "set aside", &error)),
    }
    for ending in ["-wal", "-shm"] {
        let from = beside(&path, ending);
        match fs::rename(&from, beside(aside, ending)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&from, "set aside", &error)),
        }
    }
    let complete = folder.join(COMPLETE);
    fs::rename(&complete, &path).map_err(|error| failed(&complete, "rename", &error))?;
    sync(folder)
}

/// What is wrong with a ledger; nothing if it is sound. One that a newer Interlock wrote is refused.
fn damage_of(folder: &Path) -> Result<Option<String>, StoreError> {
    let path = ledger_path(folder);
    if is_log_cut(&path, &beside(&path, "-wal")) {
        // SQLite would go on without what comes after, and say nothing.
        return Ok(Some("its log is damaged".to_owned()));
    }
    let db = match open_reading(&path) {
        Ok(db) => db,
        Err(error) if error.is_retryable => return Err(error),
        Err(error) => return Ok(Some(error.message)),
    };
    match schema::refuse_foreign(&db, &path) {
        Ok(()) => {}
        Err(error) if schema::is_newer(&db) || error.is_retryable => return Err(error),
        Err(error) => return Ok(Some(error.message)),
    }
    let problem = db.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0));
    match problem {
        Ok(problem) if problem == "ok" => Ok(None),
        Ok(problem) => Ok(Some(problem.split_whitespace().collect::<Vec<_>>().join(" "))),
        Err(error) => {
            let trouble = Trouble::of(error.into(), &path).error();
            if trouble.is_retryable { Err(trouble) } else { Ok(Some(trouble.message)) }
        }
    }
}

/// Writes the new ledger beside the old one; answers with what was lost.
fn write_new(
    folder: &Path,
    (aside, damage): (&str, &str),
    (written_until, now): (Timestamp, Timestamp),
) -> Result<String, StoreError> {
    let (old, new) = (ledger_path(folder), folder.join(UNFINISHED));
    remove(&new)?;
    let outcome = make(&new).and_then(|mut db| {
        schema::migrate(&mut db, &new).map_err(Failure::Said)?;
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // The old one's, if it can be read.
        transaction.execute("DELETE FROM counters WHERE name = 'identity'", [])?;
        let salvaged = salvage((&old, &beside(&old, "-wal")), &transaction)?;
        let message =
            mend(&transaction, &Mending { salvaged: &salvaged, aside, written_until, now })?;
        transaction.commit()?;
        Ok(message)
    });
    let message = match outcome {
        Ok(message) => message,
        Err(failure) => {
            // The old one stands as it stood.
            let _also_in_the_way = remove(&new);
            return Err(Trouble::of(failure, &new).error());
        }
    };
    File::open(&new).and_then(|file| file.sync_all()).map_err(|it| failed(&new, "write", &it))?;
    let complete = folder.join(COMPLETE);
    fs::rename(&new, &complete).map_err(|error| failed(&complete, "write", &error))?;
    sync(folder)?;
    // What to do about it, which comes after the first sentence, is being done.
    let why = damage.split(". ").next().unwrap_or(damage);
    Ok(format!("ledger.db is set aside as {aside}, because {why}: {message}"))
}

fn make(path: &Path) -> Result<Connection, Failure> {
    create_database(path);
    let db = Connection::open(path)?;
    // One file: its log would have to be moved with it.
    db.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL;")?;
    Ok(db)
}

/// Sets a damaged inbox aside; its letters go into the ledger, which knows those that it has.
fn recover_inbox(folder: &Path, now: Timestamp, done: &mut Recovery) -> Result<(), StoreError> {
    let path = folder.join("inbox.db");
    if !path.exists() || is_sound(&path) {
        return Ok(());
    }
    let found = letters(&path, &beside(&path, "-wal")).map_err(|it| failed(&path, "read", &it))?;
    let aside = free_name(folder, "inbox.db", now)?;
    let name = aside.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let ledger = ledger_path(folder);
    let mut db = open_writing(&ledger)?;
    schema::migrate(&mut db, &ledger)?;
    let message = format!(
        "{} were taken over into the ledger, others may be lost. Send again what got no answer",
        counted(found.len() as u64, "report or request")
    );
    let notice = InboxRecord::Noticed {
        event: "STORE_RECOVERED".to_owned(),
        thing: name.clone(),
        message: message.clone(),
        over: false,
    };
    let own = (PipelineId::system().to_string(), format!("recovered/{name}"));
    let own = (own.0, own.1, now.as_microsecond(), notice.encode());
    let taken = take_letters(&mut db, found.into_iter().chain([own]));
    taken.map_err(|failure| Trouble::of(failure, &ledger).error())?;
    for ending in ["", "-wal", "-shm"] {
        let from = beside(&path, ending);
        match fs::rename(&from, beside(&aside, ending)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&from, "set aside", &error)),
        }
    }
    done.aside.push(aside);
    let message = format!("inbox.db was damaged and is kept as {name}: {message}");
    let both = [done.message.as_str(), &message].join(" ");
    both.trim().clone_into(&mut done.message);
    sync(folder)
}

/// Puts letters into the ledger's own inbox, except for those that it has or had.
fn take_letters(
    db: &mut Connection,
    letters: impl Iterator<Item = (String, String, i64, String)>,
) -> Result<(), Failure> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (pipeline, key, received_at, body) in letters {
        let name = "INSERT INTO names (name) VALUES (?1) ON CONFLICT DO NOTHING";
        transaction.execute(name, [&pipeline])?;
        let number = "INSERT INTO counters VALUES ('inbox', 1)
             ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value";
        let number: i64 = transaction.query_row(number, [], |row| row.get(0))?;
        let put = "INSERT INTO inbox SELECT ?1, n.id, ?3, ?4, ?5 FROM names n WHERE n.name = ?2
               AND NOT EXISTS (SELECT 1 FROM applied a WHERE a.pipeline = n.id AND a.key = ?3)
             ON CONFLICT DO NOTHING";
        transaction.execute(put, params![number, pipeline, key, received_at, body])?;
    }
    Ok(transaction.commit()?)
}

fn is_sound(path: &Path) -> bool {
    let checked = open_existing(path).and_then(|db| {
        db.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0))
    });
    match checked {
        Ok(said) => said == "ok" && !is_log_cut(path, &beside(path, "-wal")),
        // Somebody is just writing to it.
        Err(error) => !matches!(
            error.sqlite_error_code(),
            Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase)
        ),
    }
}

/// When the ledger was last written, by its files: nothing began after that. A time that is yet to come says nothing.
fn last_written(folder: &Path, now: Timestamp) -> Timestamp {
    let path = ledger_path(folder);
    let times = ["", "-wal"].iter().filter_map(|ending| {
        let modified = fs::metadata(beside(&path, ending)).and_then(|it| it.modified()).ok()?;
        Timestamp::try_from(modified).ok()
    });
    let last = times.max().unwrap_or(now);
    last.saturating_add(MARGIN).unwrap_or(now).min(now)
}

/// A name that no file has.
fn free_name(folder: &Path, name: &str, now: Timestamp) -> Result<PathBuf, StoreError> {
    let base = format!("{name}.damaged-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let numbered = (2..ASIDE_MAX).map(|number| format!("{base}-{number}"));
    let mut names = std::iter::once(base.clone()).chain(numbered);
    let free = names.find(|name| !folder.join(name).exists());
    free.map(|name| folder.join(name)).ok_or_else(|| {
        StoreError::permanent(format!("{} holds too many files `{base}`", folder.display()))
    })
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn remove(path: &Path) -> Result<(), StoreError> {
    for ending in ["", "-journal"] {
        match fs::remove_file(beside(path, ending)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(path, "remove", &error)),
        }
    }
    Ok(())
}

/// Names are on the disk when the folder is.
fn sync(folder: &Path) -> Result<(), StoreError> {
    File::open(folder).and_then(|it| it.sync_all()).map_err(|it| failed(folder, "write", &it))
}

fn failed(path: &Path, what: &str, error: &io::Error) -> StoreError {
    StoreError::permanent(format!("cannot {what} {}: {error}", path.display()))
}
