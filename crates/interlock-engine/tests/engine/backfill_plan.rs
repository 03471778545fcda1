//! The dry run of a backfill is what it does.
