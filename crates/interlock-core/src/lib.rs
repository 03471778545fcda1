//! The rules of Interlock, as pure functions over plain data.
//!
//! Nothing here waits, reads a clock, draws a random number, or touches a disk or a network:
//! every function takes what it needs (`now` included) and returns a value. That is what lets the
//! same code serve the daemon, `--dry-run`, the simulator and the tests.
//!
//! Read the modules in this order: what text means ([`text`], [`duration`], [`time_of_day`], [`outbound`]), when it is ([`clock`]), who is
//! who ([`id`]), when something is owed ([`zone`], [`calendar`], [`cron`], [`schedule`]), whether it
//! should run ([`sensor`], [`readiness`], [`arrival`]), what becomes of it ([`slot`], [`run`], [`retry`], [`sla`]), who is
//! told ([`incident`], [`message`]), and the whole declaration ([`pipeline`]), of
//! which [`agenda`] keeps what opening slots needs, by [`catchup`] too.

pub mod text;

pub mod clock;
pub mod duration;
pub mod outbound;
pub mod ownership;
pub mod time_of_day;

pub mod id;

mod civil;
pub mod zone;

pub mod calendar;

pub mod cron;

pub mod schedule;

pub mod sensor;

pub mod readiness;

pub mod run;

pub mod slot;

pub mod arrival;

pub mod report;

pub mod firing;

pub mod control;

pub mod retry;

pub mod sla;

pub mod usual_duration;

pub mod incident;

pub mod message;

pub mod pipeline;

pub mod period;

pub mod agenda;

pub mod catchup;

pub mod succession;

pub mod backfill;

#[cfg(test)]
mod sample;
