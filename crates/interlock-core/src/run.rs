//! The state machine of a run: one attempt at a slot.
