//! What Interlock knows, as typed answers.
//!
//! Commands with `--json`, the routes of the API and the pages print these types and nothing else, so that one fact has one
//! spelling (`docs/adr/0059-the-api.md`).
//!
//! - [`model`] is plain data: serde for the wire, a schema for the `OpenAPI` document. No record of the store is in it, so that a change
//!   of the ledger's format is no change of the API, and no path of a host gets out.
//! - `read` makes it from a store and from declarations, through a [`Reader`], which has no state of its own.
//! - `plan` says what would happen before anything does, by the engine's own functions (S5).
//! - [`words`] says it in sentences.
//! - [`LogContent`] reads what jobs wrote, piece by piece.
//! - [`Listing`] is a page of a list, with the opaque cursor behind which the next one begins.
//!
//! What is asked for comes as a query type beside the answer (`RunsQuery` beside `RunAnswer`), the same for the command line and HTTP.
//!
//! **Invariant:** the work of a question is bounded. What was not looked at is said, and continued by the cursor (S17).

mod cursor;
pub mod declaration;
mod declarations;
mod error;
mod error_code;
mod fleet;
mod listing;
mod log_content;
pub mod model;
mod plan;
mod process_health;
pub mod prose;
mod read;
mod reader;
pub mod table;
pub mod words;

pub use cursor::Cursor;
pub use declarations::{DeclarationFuture, DeclarationInForce, Declarations, InForceFuture};
pub use error::{AnswerError, ProblemAnswer};
pub use error_code::ErrorCode;
pub use fleet::{
    FleetFollower, FleetTally, IsTimeLeft, PIPELINES_MAX, PipelineGauge, PipelineGauges,
};
pub use listing::{LIMIT_DEFAULT, LIMIT_MAX, Listing, SCAN_MAX, UnreadableRow};
pub use log_content::{LogContent, PIECE_BYTES};
pub use plan::{BackfillPlan, CatchupLines, ResumeLines, line_answers, silence_of};
pub use process_health::ProcessHealth;
pub use read::{
    COUNT_DEFAULT, SlotWindow, UnaskedEvaluators,
    absence::{AbsenceInput, absence},
    backfill::{backfill_answer, backfill_eta},
    declaration_json, declared_answer, declared_with_next, evaluation_answer,
    event::event_answer,
    incident::{IncidentRow, incident_answer},
    incident_groups::group_incidents,
    incident_list::StoredIncident,
    instance::GONE_AFTER,
    last_owed,
    log::{FoundLog, LogSource, LogStart, RunLog},
    next_slots_of,
    run::run_answer,
    silence::silence_answer,
    slot::{ledger_answer, slot_answer, slot_key},
    slots_within,
    story::{SlotEvents, StoryQuery, StoryRows, story_answer},
    verdict_answer,
};
pub use reader::Reader;
