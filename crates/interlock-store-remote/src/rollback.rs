//! A server that has forgotten what it acknowledged: what is said then, by whichever store notices it.

use std::sync::Arc;

use interlock_store::record::InboxRecord;

/// Hears that the server has forgotten what it acknowledged.
pub type OnRollback = Arc<dyn Fn(&str) + Send + Sync>;

/// How many numbers are left out then: those that were given and forgotten are not given again, nor are those of others.
pub const NUMBERS_SKIPPED: u64 = 1_000_000;

/// What people are told: of which server, and how that comes about there.
pub fn forgotten(server: &str, how: &str) -> String {
    format!(
        "{server} has forgotten writes that it acknowledged ({how}); every term was ended, and owners read the store again: \
         look whether jobs ran whose runs are not recorded, or ran a second time"
    )
}

/// The letter to whoever owns `_system` next: a letter, because this process may end before anybody is the owner.
pub fn letter(message: String) -> InboxRecord {
    let (event, thing) = ("STORE_ROLLBACK".to_owned(), "the store".to_owned());
    InboxRecord::Noticed { event, thing, message, over: false }
}

/// A name by chance: nobody else has it.
pub fn chance() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}
