//! What would happen, before anything does: plans, one file for each act.
//!
//! A plan is made by the same functions as the engine's own, from the same rows (S5). Making one may take long; HTTP does it on a thread
//! of its own.

mod backfill;
mod catchup;
mod resume;
mod silence;

use jiff::{SignedDuration, Timestamp};

use crate::{AnswerError, ErrorCode, Reader};

pub use backfill::BackfillPlan;
pub use catchup::{CatchupLines, line_answers};
pub use resume::ResumeLines;
pub use silence::silence_of;

/// How far ahead a plan may be asked for: what is owed until then is gone through slot by slot.
const AHEAD_MAX: SignedDuration = SignedDuration::from_hours(400 * 24);

impl Reader<'_> {
    /// The same as of another instant, for plans.
    pub fn planned_at(&self, at: Option<Timestamp>) -> Result<Self, AnswerError> {
        let last = self.now.saturating_add(AHEAD_MAX).unwrap_or(Timestamp::MAX);
        match at {
            Some(at) if at > last => Err(AnswerError::question(
                ErrorCode::BadParameter,
                format!("`at` is {at}"),
                format!("Plans are made for 400 days ahead, until {last}."),
            )),
            at => Ok(self.at(at)),
        }
    }
}
