//! A page of a list.

use interlock_store::Page;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AnswerError, Cursor, ErrorCode, model::page::PageQuery};

/// Items on a page when no limit is given.
pub const LIMIT_DEFAULT: usize = 100;
/// Items on a page at most.
pub const LIMIT_MAX: usize = 1_000;
/// Rows that one question looks at, at most, where a filter cannot be handed to the store.
pub const SCAN_MAX: usize = 5_000;

/// A page of a list, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Listing<T> {
    /// What was found, in the order of the list.
    pub items: Vec<T>,
    /// Behind what to go on (`after=`); null at the end. A page may have fewer items than asked for, none even, and still a next one.
    pub next: Option<String>,
    /// How many rows were looked at for this page.
    pub scanned: u64,
    /// Rows that cannot be read and are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRow>,
}

/// A row that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnreadableRow {
    /// Whose it is.
    pub pipeline: String,
    /// Which row.
    pub key: String,
    /// What is wrong with it.
    pub message: String,
}

impl<T> Listing<T> {
    /// A page on which everything fits.
    pub fn whole(items: Vec<T>) -> Self {
        let scanned = items.len() as u64;
        Self { items, next: None, scanned, unreadable: vec![] }
    }
}

/// How many items a page has, of what was asked for.
pub(crate) fn limit(asked: Option<usize>) -> Result<usize, AnswerError> {
    match asked {
        None => Ok(LIMIT_DEFAULT),
        Some(limit @ 1..=LIMIT_MAX) => Ok(limit),
        Some(limit) => Err(AnswerError::question(
            ErrorCode::BadParameter,
            format!("`limit` is {limit}"),
            format!("It is 1 to {LIMIT_MAX}; `after` goes on behind a page."),
        )),
    }
}

/// A page of a list that the store gives out as a whole, in the order of its names.
#[derive(Debug)]
pub(crate) struct NamedPage {
    list: &'static str,
    after: Option<String>,
    limit: usize,
}

impl NamedPage {
    /// The page of a list that is asked for.
    pub(crate) fn of(list: &'static str, asked: &PageQuery) -> Result<Self, AnswerError> {
        let after = asked.after.as_deref().map(Cursor::decode).transpose()?;
        let after = after.map(|cursor| cursor.named(list)).transpose()?;
        Ok(Self { list, after, limit: limit(asked.limit)? })
    }

    /// Those of all that are on it.
    pub(crate) fn listing<T>(
        self,
        all: impl Iterator<Item = T>,
        name: impl Fn(&T) -> String,
    ) -> Listing<T> {
        let mut scanned = 0;
        let behind = |item: &T| self.after.as_ref().is_none_or(|after| name(item) > *after);
        let mut rest = all.inspect(|_| scanned += 1).filter(behind);
        let items: Vec<T> = rest.by_ref().take(self.limit).collect();
        let is_more = rest.next().is_some();
        let last = items.last().filter(|_| is_more).map(&name);
        let list = self.list.to_owned();
        let next = last.map(|name| Cursor::Named { list, name }.encode());
        Listing { items, next, scanned, unreadable: vec![] }
    }
}

/// Looks through rows until a page is full or enough was looked at.
pub(crate) struct Scan<R> {
    limit: usize,
    found: Vec<R>,
    scanned: usize,
    /// The last row that was looked at, while there is more behind it.
    last: Option<Cursor>,
    more: bool,
}

impl<R> Scan<R> {
    /// A search for so many rows.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, found: vec![], scanned: 0, last: None, more: true }
    }

    /// How many rows to read next; none when the search is over.
    pub(crate) fn wants(&self) -> Option<usize> {
        let is_over = !self.more || self.found.len() >= self.limit || self.scanned >= SCAN_MAX;
        let missing = self.limit.saturating_sub(self.found.len());
        // A filter that lets one in a hundred pass would ask a hundred times.
        let rows = if self.scanned == 0 { missing } else { missing.max(LIMIT_MAX) };
        (!is_over).then(|| rows.min(SCAN_MAX.saturating_sub(self.scanned)))
    }

    /// Takes a page of rows that were read, in the order of the list. Those behind the last that fits are left for the next page.
    pub(crate) fn take(
        &mut self,
        page: Page<R>,
        place: impl Fn(&R) -> Cursor,
        holds: impl Fn(&R) -> bool,
    ) {
        self.more = page.more;
        let mut rows = page.items.into_iter();
        while self.found.len() < self.limit
            && let Some(row) = rows.next()
        {
            self.scanned += 1;
            self.last = Some(place(&row));
            if holds(&row) {
                self.found.push(row);
            }
        }
        self.more |= rows.next().is_some();
    }

    /// What was found.
    pub(crate) fn listing<T>(self, answer: impl FnMut(R) -> T) -> Listing<T> {
        let next = self.last.filter(|_| self.more).map(|cursor| cursor.encode());
        let items = self.found.into_iter().map(answer).collect();
        Listing { items, next, scanned: self.scanned as u64, unreadable: vec![] }
    }
}
