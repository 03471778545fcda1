//! How answers are made, one file for each thing that is asked about.

pub(crate) mod absence;
mod agenda;
pub(crate) mod backfill;
mod coverage;
mod dead_letter;
mod declared;
mod delivery;
mod duration;
pub(crate) mod event;
pub(crate) mod incident;
pub(crate) mod incident_groups;
pub(crate) mod incident_list;
pub(crate) mod instance;
pub(crate) mod last_slot;
pub(crate) mod log;
mod marked_day;
pub(crate) mod next_slot;
pub(crate) mod pipeline;
mod pipeline_facts;
mod pipeline_walk;
pub(crate) mod run;
mod run_of_slot;
mod sensor;
pub(crate) mod silence;
pub(crate) mod slot;
mod slot_expanded;
mod spec;
pub(crate) mod story;
mod token;
mod verdict;

pub use declared::{declared_answer, declared_with_next};
pub use next_slot::{COUNT_DEFAULT, SlotWindow, next_slots_of, slots_within};
pub(crate) use pipeline::Breadth;
pub use spec::declaration_json;
pub use verdict::{UnaskedEvaluators, evaluation_answer, last_owed, verdict_answer};
