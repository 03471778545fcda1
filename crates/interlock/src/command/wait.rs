//! `interlock wait`: until a run or a slot has ended.

use std::{io::Write as _, thread, time::Duration};

use interlock_answers::table;
use interlock_core::{id::SlotKey, run::RunState};
use jiff::SignedDuration;

use crate::{
    exit::{ACCEPTED, Failure, PROBLEMS, SUCCESS},
    output::Output,
    source::Source,
    target::Target,
};

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same of what a server is asked about.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// What is waited for.
enum Awaited {
    Run(String),
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
    target: &Target,
    what: &str,
    timeout: Option<SignedDuration>,
    output: &mut Output,
) -> Result<u8, Failure> {
    let source = Source::open(target, output)?;
    let awaited = find(&source, what)?;
    let pause = match source {
        Source::Project(_) => LOOK_EVERY,
        Source::Server(_) => ASK_EVERY,
    };
    let mut waited = Duration::ZERO;
    loop {
        match awaited.look(&source)? {
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
        thread::sleep(pause);
        waited += pause;
    }
}

fn is_over(waited: Duration, timeout: SignedDuration) -> bool {
    SignedDuration::try_from(waited).is_ok_and(|waited| waited >= timeout)
}

fn find(source: &Source, what: &str) -> Result<Awaited, Failure> {
    if what.contains('~') {
        return Ok(Awaited::Run(source.run(what)?.id));
    }
    let Some((pipeline, slot)) = what.split_once('/') else {
        return Err(Failure::usage(
            format!("`{what}` is neither a run nor a slot"),
            "Write a run's id, or a slot such as `orders/daily/2026-02-25T09:00:00Z`.",
        ));
    };
    let pipeline = source.known(pipeline)?;
    Ok(Awaited::Slot(source.slot_of(&pipeline, slot)?))
}

impl Awaited {
    fn look(&self, source: &Source) -> Result<Look, Failure> {
        match self {
            Self::Run(id) => look_at_run(source, id),
            Self::Slot(key) => Ok(match source.slot(key)? {
                Some(slot) if slot.state == "closed" => {
                    ended(table::slot_state(&slot), "completed")
                }
                Some(slot) => Look::Open(table::slot_state(&slot)),
                None => Look::Open("not recorded".to_owned()),
            }),
        }
    }
}

fn look_at_run(source: &Source, id: &str) -> Result<Look, Failure> {
    let run = match source.run(id) {
        Ok(run) => run,
        Err(failure) if failure.exit_code() == PROBLEMS => {
            return Ok(Look::Ended { how: "gone".to_owned(), code: PROBLEMS });
        }
        Err(failure) => return Err(failure),
    };
    let state =
        RunState::parse(&run.status).map_err(|error| Failure::failed(error.message, error.help))?;
    Ok(if state.is_terminal() { ended(run.status, "COMPLETED") } else { Look::Open(run.status) })
}

fn ended(how: String, good: &str) -> Look {
    let code = if how == good { SUCCESS } else { PROBLEMS };
    Look::Ended { how, code }
}
