//! A server that has forgotten what it acknowledged: what is said then, by whichever store notices it.

use std::sync::Arc;

use interlock_store::record::InboxRecord;

/// Hears that the server has forgotten what it acknowledged.
pub type OnRollback = Arc<dyn Fn(&str) + Send + Sync>;

/// How many numbers are left out then: those that were given and forgotten are not given again, nor are those of others.
pub const NUMBERS_SKIPPED: u64 = 1_000_000;

/// What people are told: of which server, how that comes about there, and whose terms were ended.
pub fn forgotten(server: &str, how: &str, ended: &str) -> String {
    format!(
        "{server} has forgotten writes that it acknowledged ({how}); {ended} ended, and owners read again what they own: \
         look whether jobs ran whose runs are not recorded, or ran a second time"
    )
}

/// What has forgotten something, if all of it may have.
pub const THE_STORE: &str = "the store";
/// What is ended then.
pub const EVERY_TERM: &str = "every term was";

/// The letter to whoever owns `_system` next: a letter, because this process may end before anybody is the owner. Each thing is an
/// incident of its own.
pub fn letter(thing: &str, message: String) -> InboxRecord {
    let (event, thing) = ("STORE_ROLLBACK".to_owned(), thing.to_owned());
    InboxRecord::Noticed { event, thing, message, over: false }
}

/// A name by chance: nobody else has it.
pub fn chance() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}
