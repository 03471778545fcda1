//! Listings with filters: what no index finds is looked for row by row, and in bounded work (S17).
//!
//! A listing walks the rows of one index, or of several that have nothing in common (one for each word that is asked for), in the
//! order of the list. It stops when the page is full, at the end, or when it has looked at [`SCAN_MAX`] rows: then the page may
//! hold fewer rows than were asked for, none even, and says where to go on.

mod events;
mod incidents;
mod runs;
mod slots;
#[cfg(test)]
mod tests;

use crate::{Page, StoreError, StoreFuture, for_each};

pub use self::{
    events::{EventFilter, find_events},
    incidents::{IncidentFilter, IncidentRow, find_incidents},
    runs::{RunFilter, find_runs},
    slots::{SlotFilter, find_slots},
};

/// Most rows that one listing looks at.
pub const SCAN_MAX: usize = 5_000;

/// Rows that are asked for at once, where a filter may leave few of them.
const CHUNK: usize = 500;

/// A page of a listing with filters.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanPage<T, P> {
    /// What was found, in order.
    pub items: Vec<T>,
    /// The place to go on after; none at the end.
    pub next: Option<P>,
    /// How many rows were looked at.
    pub scanned: usize,
}

impl<T, P> ScanPage<T, P> {
    /// The same with another kind of place.
    fn with_places<Q>(self, place: impl Fn(P) -> Q) -> ScanPage<T, Q> {
        ScanPage { items: self.items, next: self.next.map(place), scanned: self.scanned }
    }
}

/// What a filter says of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Take,
    Pass,
    /// This row and all after it are not asked for.
    Stop,
}

impl From<bool> for Verdict {
    /// Whether the row is asked for.
    fn from(is_asked_for: bool) -> Self {
        if is_asked_for { Self::Take } else { Self::Pass }
    }
}

/// The rows of one index, in the order of their places.
trait Walk: Sync {
    type Item: Send;
    type Place: Ord + Clone + Send;

    /// Rows after a place.
    fn page(&self, after: Option<Self::Place>, limit: usize) -> StoreFuture<'_, Page<Self::Item>>;

    fn place(&self, item: &Self::Item) -> Self::Place;

    fn judge(&self, item: &Self::Item) -> Verdict;
}

/// What one walk found, and where it stopped before the end.
struct Found<W: Walk> {
    items: Vec<(W::Place, W::Item)>,
    stopped: Option<W::Place>,
    scanned: usize,
}

/// One page of several walks that have no row in common.
async fn scan<W: Walk>(
    walks: &[W],
    after: Option<W::Place>,
    limit: usize,
) -> Result<ScanPage<W::Item, W::Place>, StoreError> {
    // Each may have to fill the page alone.
    let budget = (SCAN_MAX / walks.len().max(1)).max(limit + 1);
    let found =
        for_each(walks.iter().collect(), |it: &W| walk(it, after.clone(), (limit, budget))).await?;
    let scanned = found.iter().map(|found| found.scanned).sum();
    // What lies after the place where one of them stopped is for the next page.
    let horizon = found.iter().filter_map(|found| found.stopped.clone()).min();
    let mut items: Vec<_> = found.into_iter().flat_map(|found| found.items).collect();
    items.retain(|(place, _)| horizon.as_ref().is_none_or(|horizon| place <= horizon));
    items.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut next = horizon;
    if items.len() > limit {
        items.truncate(limit);
        next = items.last().map(|(place, _)| place.clone()).or(after);
    }
    Ok(ScanPage { items: items.into_iter().map(|(_, item)| item).collect(), next, scanned })
}

async fn walk<W: Walk>(
    walk: &W,
    mut after: Option<W::Place>,
    (limit, budget): (usize, usize),
) -> Result<Found<W>, StoreError> {
    let (mut items, mut scanned) = (Vec::new(), 0);
    let mut chunk = limit + 1;
    loop {
        let page = walk.page(after.clone(), chunk.min(budget - scanned)).await?;
        for item in page.items {
            let place = walk.place(&item);
            scanned += 1;
            match walk.judge(&item) {
                Verdict::Stop => return Ok(Found { items, stopped: None, scanned }),
                Verdict::Take => items.push((place.clone(), item)),
                Verdict::Pass => {}
            }
            after = Some(place);
        }
        if !page.more {
            return Ok(Found { items, stopped: None, scanned });
        }
        if scanned >= budget || items.len() > limit {
            return Ok(Found { items, stopped: after, scanned });
        }
        chunk = CHUNK;
    }
}

/// Whether a word is one of those that are asked for; none are asked for when all are.
fn is_among(words: &[String], word: &str) -> bool {
    words.is_empty() || words.iter().any(|asked| asked == word)
}
