//! The opaque places behind which lists go on.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{IncidentPlace, LedgerPlace, RunKey, RunPlace};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{AnswerError, ErrorCode};

/// Where a page ended. What it holds is private: it is encoded, and may change from version to version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "camelCase")]
pub enum Cursor {
    /// Behind a run.
    Runs {
        /// When it was made.
        at: Timestamp,
        /// Its id.
        id: String,
    },
    /// Behind a slot or a span.
    Slots {
        /// Its instant.
        at: Timestamp,
        /// Whose it is.
        pipeline: String,
        /// Of which schedule.
        schedule: String,
        /// Whether it is a span.
        span: bool,
    },
    /// Behind an incident.
    Incidents {
        /// When it was opened.
        at: Timestamp,
        /// Whose it is.
        pipeline: String,
        /// Its key.
        key: String,
    },
    /// Behind an event.
    Events {
        /// Its number.
        number: u64,
    },
    /// Behind a pipeline.
    Pipelines {
        /// Its name.
        name: String,
    },
    /// Behind the watermark of a schedule.
    Watermarks {
        /// Behind which pipeline; at the beginning when absent.
        pipeline: Option<String>,
        /// Behind which schedule of the next one.
        schedule: Option<String>,
    },
    /// Behind a dead letter.
    DeadLetters {
        /// When it was to be tried.
        at: Timestamp,
        /// Whose it is.
        pipeline: String,
        /// Its name.
        name: String,
    },
    /// Behind something that has a name in its list.
    Named {
        /// Which list.
        list: String,
        /// Its name.
        name: String,
    },
    /// Behind a backfill.
    Backfills {
        /// Whose it is.
        pipeline: String,
        /// Its number there.
        number: u64,
    },
}

/// Where an alert that was given up stands among them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeadLetterPlace {
    /// When it was to be tried.
    pub(crate) at: Timestamp,
    /// Whose it is.
    pub(crate) pipeline: String,
    /// Its name.
    pub(crate) name: String,
}

impl Cursor {
    /// The text that stands for it.
    pub fn encode(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        BASE64_URL_SAFE_NO_PAD.encode(text)
    }

    /// The cursor of a text.
    pub fn decode(text: &str) -> Result<Self, AnswerError> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(not_ours)
    }

    /// The cursor behind a run.
    pub fn of_run(place: &RunPlace) -> Self {
        Self::Runs { at: place.created_at, id: place.key.id(&place.pipeline) }
    }

    /// The cursor behind a row of the ledger.
    pub fn of_ledger(place: &LedgerPlace) -> Self {
        Self::Slots {
            at: place.nominal,
            pipeline: place.pipeline.to_string(),
            schedule: place.schedule.to_string(),
            span: place.is_span,
        }
    }

    /// The cursor behind an incident.
    pub fn of_incident(place: &IncidentPlace) -> Self {
        let (pipeline, key) = (place.pipeline.to_string(), place.key.clone());
        Self::Incidents { at: place.opened_at, pipeline, key }
    }

    /// The run behind which a list of runs goes on.
    pub fn run(self) -> Result<RunPlace, AnswerError> {
        let Self::Runs { at, id } = self else { return Err(not_ours()) };
        let (pipeline, key) = RunKey::parse(&id).map_err(|_malformed| not_ours())?;
        Ok(RunPlace { created_at: at, pipeline, key })
    }

    /// The row behind which a list of slots goes on.
    pub fn ledger(self) -> Result<LedgerPlace, AnswerError> {
        let Self::Slots { at, pipeline, schedule, span } = self else { return Err(not_ours()) };
        let pipeline = PipelineId::parse(&pipeline).map_err(|_malformed| not_ours())?;
        let schedule = ScheduleId::any(&schedule).map_err(|_malformed| not_ours())?;
        Ok(LedgerPlace { nominal: at, pipeline, schedule, is_span: span })
    }

    /// The backfill behind which a list of backfills goes on.
    pub fn backfill(self) -> Result<(PipelineId, u64), AnswerError> {
        let Self::Backfills { pipeline, number } = self else { return Err(not_ours()) };
        let pipeline = PipelineId::parse(&pipeline).map_err(|_malformed| not_ours())?;
        Ok((pipeline, number))
    }

    /// The event behind which a list of events goes on.
    pub fn event(self) -> Result<u64, AnswerError> {
        let Self::Events { number } = self else { return Err(not_ours()) };
        Ok(number)
    }

    /// The cursor behind an alert that was given up.
    pub(crate) fn of_dead_letter(place: DeadLetterPlace) -> Self {
        let DeadLetterPlace { at, pipeline, name } = place;
        Self::DeadLetters { at, pipeline, name }
    }

    /// The alert behind which a list of those that were given up goes on.
    pub(crate) fn dead_letter(self) -> Result<DeadLetterPlace, AnswerError> {
        let Self::DeadLetters { at, pipeline, name } = self else { return Err(not_ours()) };
        Ok(DeadLetterPlace { at, pipeline, name })
    }

    /// The name behind which a list of named things goes on.
    pub(crate) fn named(self, of: &str) -> Result<String, AnswerError> {
        let Self::Named { list, name } = self else { return Err(not_ours()) };
        if list == of { Ok(name) } else { Err(not_ours()) }
    }

    /// The incident behind which a list of incidents goes on.
    pub fn incident(self) -> Result<IncidentPlace, AnswerError> {
        let Self::Incidents { at, pipeline, key } = self else { return Err(not_ours()) };
        let pipeline = PipelineId::any(&pipeline).map_err(|_malformed| not_ours())?;
        Ok(IncidentPlace { opened_at: at, pipeline, key })
    }
}

/// It was made for another list, or by another program.
pub(crate) fn not_ours() -> AnswerError {
    AnswerError::question(
        ErrorCode::BadCursor,
        "`after` is no cursor of this list".to_owned(),
        "Take the `next` of the page before, or leave it out to begin anew.".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_and_another_text_is_refused() {
        let cursor = Cursor::Events { number: 7 };
        assert_eq!(Cursor::decode(&cursor.encode()).ok(), Some(cursor));
        for odd in ["", "x", "eyJvZiI6Im5vcGUifQ", "{}"] {
            assert!(Cursor::decode(odd).is_err(), "{odd}");
        }
        assert!(Cursor::Events { number: 7 }.run().is_err(), "of another list");
    }
}
