//! Alerts that were given up, those that came first first.

use interlock_store::OutboxRow;

use crate::{
    AnswerError, Cursor, Listing, Reader, SCAN_MAX,
    cursor::DeadLetterPlace,
    listing::limit,
    model::{incident::DeadLetterAnswer, page::PageQuery},
};

impl Reader<'_> {
    /// Alerts that were given up. Behind the first [`SCAN_MAX`] none are listed: they are to be dealt with first.
    pub async fn dead_letters(
        &self,
        asked: &PageQuery,
    ) -> Result<Listing<DeadLetterAnswer>, AnswerError> {
        let limit = limit(asked.limit)?;
        let after = asked.after.as_deref().map(Cursor::decode).transpose()?;
        let after = after.map(Cursor::dead_letter).transpose()?;
        // The store lists them from the beginning.
        let mut rows = self.store.dead_letters(SCAN_MAX).await?.items;
        let scanned = rows.len() as u64;
        rows.sort_by_cached_key(place);
        let mut rest =
            rows.into_iter().filter(|row| after.as_ref().is_none_or(|after| place(row) > *after));
        let found: Vec<OutboxRow> = rest.by_ref().take(limit).collect();
        let last = found.last().filter(|_| rest.next().is_some()).map(place);
        let next = last.map(|place| Cursor::of_dead_letter(place).encode());
        let items = found.into_iter().map(dead_letter).collect();
        Ok(Listing { items, next, scanned, unreadable: vec![] })
    }
}

fn place(row: &OutboxRow) -> DeadLetterPlace {
    let (pipeline, name) = (row.pipeline.to_string(), row.name.clone());
    DeadLetterPlace { at: row.record.not_before, pipeline, name }
}

fn dead_letter(row: OutboxRow) -> DeadLetterAnswer {
    DeadLetterAnswer {
        name: row.name,
        pipeline: row.pipeline.to_string(),
        channel: row.record.channel,
        tries: row.record.tries,
        error: row.record.last_error,
        alert: row.record.alert.as_ref().clone(),
    }
}
