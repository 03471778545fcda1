//! When no report could reach Interlock.

use interlock_store::coverage::deaf;

use crate::{
    AnswerError, Listing, Reader,
    model::coverage::{CoverageGapAnswer, CoverageGapsQuery},
};

impl Reader<'_> {
    /// The gaps that are known, oldest first. Before any instance listened none is known.
    pub async fn coverage_gaps(
        &self,
        asked: &CoverageGapsQuery,
    ) -> Result<Listing<CoverageGapAnswer>, AnswerError> {
        let mut gaps = deaf(self.store, &[], self.now).await?;
        gaps.sort_unstable();
        gaps.retain(|(from, until)| {
            asked.from.is_none_or(|asked| *until > asked)
                && asked.until.is_none_or(|asked| *from < asked)
        });
        let gap = |(from, until)| CoverageGapAnswer {
            from,
            until: Some(until).filter(|until| *until < self.now),
        };
        Ok(Listing::whole(gaps.into_iter().map(gap).collect()))
    }
}
