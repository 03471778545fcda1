//! `interlock wait`: until a run or a slot has ended.

use std::{io::Write as _, path::Path, thread, time::Duration};

use interlock_core::id::{PipelineId, SlotKey};
use interlock_store::{RunKey, story};
use jiff::SignedDuration;

use super::logs;
use crate::{
    exit::{ACCEPTED, Failure, PROBLEMS, SUCCESS},
    ledger::Ledger,
    output::Output,
    project,
    slot_name::{self, Typed},
};

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is waited for.
enum Awaited {
    Run(PipelineId, RunKey),
    Slot(SlotKey),
}

/// How it stands.
enum Look {
    /// It has ended.
    Ended { how: String, code: u8 },
    /// It has not.
    Open(String),
}

pub(super) fn run(
    directory: &Path,
    what: &str,
    timeout: Option<SignedDuration>,
    output: &mut Output,
) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let awaited = find(directory, &ledger, what)?;
    let mut waited = Duration::ZERO;
    loop {
        match awaited.look(&ledger)? {
            Look::Ended { how, code } => {
                writeln!(output.out, "{what} is {how}")?;
                return Ok(code);
            }
            Look::Open(state) if timeout.is_some_and(|timeout| is_over(waited, timeout)) => {
                writeln!(output.out, "{what} is still {state}")?;
                return Ok(ACCEPTED);
            }
            Look::Open(_) => {}
        }
        thread::sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
}

fn is_over(waited: Duration, timeout: SignedDuration) -> bool {
    SignedDuration::try_from(waited).is_ok_and(|waited| waited >= timeout)
}

fn find(directory: &Path, ledger: &Ledger, what: &str) -> Result<Awaited, Failure> {
    if what.contains('~') {
        let (pipeline, key, _) = logs::find(ledger, what)?;
        return Ok(Awaited::Run(pipeline, key));
    }
    let Some((pipeline, slot)) = what.split_once('/') else {
        return Err(Failure::usage(
            format!("`{what}` is neither a run nor a slot"),
            "Write a run's id, or a slot such as `orders/daily/2026-02-25T09:00:00Z`.",
        ));
    };
    let pipeline = ledger.known(directory, pipeline)?;
    let loaded = project::load(directory)?;
    let typed = Typed::parse(&pipeline, slot)?;
    Ok(Awaited::Slot(slot_name::resolve(&loaded, ledger, &pipeline, &typed)?))
}

impl Awaited {
    fn look(&self, ledger: &Ledger) -> Result<Look, Failure> {
        match self {
            Self::Run(pipeline, key) => {
                let Some(record) = ledger.run(pipeline, key)? else {
                    return Ok(Look::Ended { how: "gone".to_owned(), code: PROBLEMS });
                };
                let state =
                    record.state().map_err(|error| Failure::failed(error.to_string(), ""))?;
                let how = record.status;
                Ok(if state.is_terminal() {
                    ended(how.to_string(), "COMPLETED")
                } else {
                    Look::Open(how.to_string())
                })
            }
            Self::Slot(key) => look_at_slot(ledger, key),
        }
    }
}

fn look_at_slot(ledger: &Ledger, key: &SlotKey) -> Result<Look, Failure> {
    let SlotKey { pipeline, schedule, nominal } = key;
    if let Some(slot) = ledger.slot(pipeline, schedule, *nominal)? {
        let state = story::slot_state(&slot);
        return Ok(if slot.is_open() { Look::Open(state) } else { ended(state, "completed") });
    }
    let rows = ledger.rows_at(pipeline, *nominal)?;
    let span = rows.into_iter().find(|row| row.schedule == *schedule);
    Ok(match span.map(|row| row.entry) {
        Some(interlock_store::LedgerEntry::Span(span)) => {
            ended(story::span_state(&span), "completed")
        }
        _ => Look::Open("not recorded".to_owned()),
    })
}

fn ended(how: String, good: &str) -> Look {
    let code = if how == good { SUCCESS } else { PROBLEMS };
    Look::Ended { how, code }
}
