//! Scenarios: a script of what happens, and below each question what Interlock answers.
//!
//! A script is a text for people, and a test. Lines begin with a command in the first column, with four spaces (the text of
//! a file), with `#` (the story) or with `|` (what was answered). Playing a script gives the same text with the answers
//! as they are now. The engine, the watchdog and the notifier are the real ones, on virtual time; jobs, evaluators and
//! the phone of the people who are told do what the script says.
//!
//! | command | what happens |
//! |---|---|
//! | `at INSTANT`, `advance 3h` | time passes; the first `at` is the beginning. `HH:MM` is on the present day, in UTC |
//! | `file` and its text; `remove P` | a pipeline's file is written, or edited; or removed |
//! | `validate` and a text | what `interlock validate` says of a file |
//! | `start`, `stop`, `crash` | an instance begins, is asked to end, dies; a number names another one than 1. `start 2 as watchdog`: it only watches |
//! | `crash before commit`, `crash after commit 2` | it dies at its next commit, or the one after: nothing is written, or nobody hears that it was |
//! | `freeze 90s` | it stands still, as if stopped by the system, and does not know it |
//! | `suspend 3h` | the machine sleeps |
//! | `clock +2h`, `clock -2h`, `clock right` | the clock of an instance is set, not the store's |
//! | `store away`, `store back`, `store loses an answer` | the way to the store |
//! | `channel down`, `channel up` | whether the phone works |
//! | `job P[@SLOT] HABIT [once]` | what jobs do from now on: `takes 5m`, `fails`, `fails for good`, `hangs`, `tells nobody`, `reports twice`, `refuses to start`, `begins unheard`, `gives no answer` |
//! | `trait P KIND passes`, `fails`, `errs` | what an evaluator answers |
//! | `sensor P KEY JSON [of INSTANT]` | a fact is reported, with its own time |
//! | `ping P [start`, `success`, `fail] [as RID] [of INSTANT]` | a job that somebody else runs says something |
//! | `run P [SLOT]`, `rerun P SLOT`, `cancel P SLOT`, `pause P REASON`, `resume P [none`, `latest`, `all]`, `catchup P` | what people ask for, with the answer |
//! | `backfill P FROM TO [missing`, `failed`, `all]` | the same |
//! | `plan`, `slots`, `runs`, `events`, `jobs`, each with `[P]`; `why P SLOT`; `incidents`; `told` | what there is to see. `jobs` is what really happened; `told` is what people heard since the last `told` |
//!
//! Why it is so: `docs/adr/0026-scenarios.md`.

mod ask;
mod cast;
mod house;
mod line;
mod print;
mod script;
mod shelf;
mod way;

use std::fmt;

pub use self::shelf::find;
use self::{house::House, script::Piece};

/// What is wrong with a script, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The script.
    pub name: String,
    /// Its line, from 1.
    pub line: usize,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.name, self.line, self.message)
    }
}

/// Plays a script; answers with its text as it should read.
pub fn play(name: &str, text: &str) -> Result<String, Wrong> {
    let wrong = |(line, message)| Wrong { name: name.to_owned(), line, message };
    let pieces = script::read(text).map_err(wrong)?;
    let mut house: Option<House> = None;
    let mut played = String::new();
    for piece in pieces {
        let step = match piece {
            Piece::Kept(line) => {
                played += &line;
                played.push('\n');
                continue;
            }
            Piece::Step(step) => step,
        };
        for line in &step.text {
            played += line;
            played.push('\n');
        }
        let answer = match &mut house {
            Some(house) => house.follow(&step.command),
            None => House::begin(&step.command).map(|begun| {
                house = Some(begun);
                vec![]
            }),
        };
        for line in answer.map_err(|message| wrong((step.line, message)))? {
            played += format!("| {line}").trim_end();
            played.push('\n');
        }
    }
    Ok(played)
}
