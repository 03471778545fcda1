//! One line of a script, read word by word.

use interlock_core::{
    duration::{self, Units},
    id::{PipelineId, ScheduleId},
    readiness::TraitStatus,
};
use jiff::{SignedDuration, Timestamp, civil};
use serde_json::Value;

use super::cast::Habit;
use crate::clockwork::Pid;

/// What a line says.
#[derive(Debug)]
pub(super) enum Command {
    At(Moment),
    Advance(SignedDuration),
    File(String),
    Remove(PipelineId),
    Validate(String),
    Start(Pid, Roles),
    Stop(Pid),
    Crash(Pid, Death, u32),
    Freeze(Pid, SignedDuration),
    Suspend(SignedDuration),
    Clock(Pid, SignedDuration),
    Store(Way),
    Channel(Phone),
    Job(Rule),
    Trait(PipelineId, String, TraitStatus),
    Ask(PipelineId, Wish),
    Ping(PipelineId, Ping),
    Print(Question),
}

/// An instant, or a time of the present day.
#[derive(Debug, Clone, Copy)]
pub(super) enum Moment {
    Instant(Timestamp),
    Today(civil::Time),
}

/// What an instance does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Roles {
    All,
    /// The watchdog, and whoever tells people.
    Watchdog,
}

/// Where an instance dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    Here,
    BeforeCommit,
    AfterCommit,
}

/// How the store is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Cut,
    Mended,
    LosesAnAnswer,
}

/// Whether people can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phone {
    Up,
    Down,
}

/// What the jobs of a pipeline do, or those of one slot.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) pipeline: PipelineId,
    pub(super) slot: Option<Timestamp>,
    pub(super) habit: Habit,
    /// Whether only the next job does it.
    pub(super) is_once: bool,
}

/// A slot, by its instant and perhaps its schedule.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) schedule: Option<ScheduleId>,
    pub(super) at: Moment,
}

/// What somebody asks for.
#[derive(Debug)]
pub(super) enum Wish {
    Run(Option<Slot>),
    Rerun(Slot),
    Cancel(Slot),
    Pause(String),
    Resume(Option<String>),
    Catchup,
    Backfill { from: Moment, to: Moment, reprocess: String },
    Sensor { key: String, value: Value, of: Option<Moment> },
}

/// What a job of somebody else says.
#[derive(Debug)]
pub(super) struct Ping {
    pub(super) said: String,
    pub(super) rid: Option<String>,
    pub(super) of: Option<Moment>,
}

/// What is to be seen.
#[derive(Debug)]
pub(super) enum Question {
    Plan(Option<PipelineId>),
    Slots(Option<PipelineId>),
    Runs(Option<PipelineId>),
    Events(Option<PipelineId>),
    Jobs(Option<PipelineId>),
    Why(PipelineId, Slot),
    Incidents,
    Told,
}

/// Reads a line and the text below it.
pub(super) fn read(line: &str, block: &str) -> Result<Command, String> {
    let mut words = Words { rest: line };
    let name = words.next("a command")?;
    let command = match name {
        "file" | "validate" if block.is_empty() => {
            return Err(format!("`{name}` has its text below, indented"));
        }
        "file" => Command::File(block.to_owned()),
        "validate" => Command::Validate(block.to_owned()),
        _ if !block.is_empty() => return Err(format!("`{name}` has no text below it")),
        "at" => Command::At(words.moment()?),
        "advance" => Command::Advance(words.duration()?),
        "remove" => Command::Remove(words.pipeline()?),
        "start" => Command::Start(words.instance()?, words.roles()?),
        "stop" => Command::Stop(words.instance()?),
        "crash" => Command::Crash(words.instance()?, words.death()?, words.count()?),
        "freeze" => Command::Freeze(words.instance()?, words.duration()?),
        "suspend" => Command::Suspend(words.duration()?),
        "clock" => Command::Clock(words.instance()?, words.offset()?),
        "store" => Command::Store(words.way()?),
        "channel" => Command::Channel(match words.next("`up` or `down`")? {
            "up" => Phone::Up,
            "down" => Phone::Down,
            other => return Err(format!("a channel is `up` or `down`, not `{other}`")),
        }),
        "job" => Command::Job(words.rule()?),
        "trait" => {
            Command::Trait(words.pipeline()?, words.next("a trait")?.to_owned(), words.status()?)
        }
        "ping" => Command::Ping(words.pipeline()?, words.ping()?),
        "plan" | "slots" | "runs" | "events" | "jobs" | "why" | "incidents" | "told" => {
            Command::Print(words.question(name)?)
        }
        _ => Command::Ask(words.pipeline_for(name)?, words.wish(name)?),
    };
    match words.rest.trim() {
        "" => Ok(command),
        rest => Err(format!("`{name}` ends before `{rest}`")),
    }
}

/// What is left of a line.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.rest.split_whitespace().next()
    }

    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        let word = self.peek().ok_or_else(|| format!("{what} is missing at the end"))?;
        self.rest = self.rest.trim_start().strip_prefix(word).unwrap_or_default();
        Ok(word)
    }

    /// Takes a word if it is the next one.
    fn takes(&mut self, word: &str) -> bool {
        let is_it = self.peek() == Some(word);
        if is_it {
            self.rest = self.rest.trim_start().strip_prefix(word).unwrap_or_default();
        }
        is_it
    }

    /// Everything else.
    fn all(&mut self, what: &str) -> Result<&'a str, String> {
        let rest = std::mem::take(&mut self.rest).trim();
        if rest.is_empty() { Err(format!("{what} is missing at the end")) } else { Ok(rest) }
    }

    fn pipeline(&mut self) -> Result<PipelineId, String> {
        PipelineId::parse(self.next("a pipeline")?).map_err(|error| error.message)
    }

    fn maybe_pipeline(&mut self) -> Result<Option<PipelineId>, String> {
        self.peek().is_some().then(|| self.pipeline()).transpose()
    }

    /// The pipeline of a wish, if that is one.
    fn pipeline_for(&mut self, name: &str) -> Result<PipelineId, String> {
        const WISHES: [&str; 8] =
            ["run", "rerun", "cancel", "pause", "resume", "catchup", "backfill", "sensor"];
        if WISHES.contains(&name) {
            return self.pipeline();
        }
        Err(format!(
            "there is no command `{name}`; `crates/interlock-sim/src/scenario.rs` lists them"
        ))
    }

    fn instance(&mut self) -> Result<Pid, String> {
        match self.peek().and_then(|word| word.parse().ok()) {
            Some(number @ 1..=3) => {
                self.next("an instance")?;
                Ok(number)
            }
            Some(number) => Err(format!("there are the instances 1 to 3, and no {number}")),
            None => Ok(1),
        }
    }

    fn duration(&mut self) -> Result<SignedDuration, String> {
        read_duration(self.next("a duration")?)
    }

    fn offset(&mut self) -> Result<SignedDuration, String> {
        let word = self.next("an offset such as `+2h`")?;
        match (word.strip_prefix('+'), word.strip_prefix('-')) {
            (Some(ahead), _) => read_duration(ahead),
            (_, Some(behind)) => read_duration(behind).map(|behind| -behind),
            (None, None) if word == "right" => Ok(SignedDuration::ZERO),
            (None, None) => Err(format!("a clock is `right`, `+2h` or `-2h`, not `{word}`")),
        }
    }

    fn moment(&mut self) -> Result<Moment, String> {
        read_moment(self.next("an instant")?)
    }

    /// An instant after a word, if the word is there.
    fn moment_after(&mut self, word: &str) -> Result<Option<Moment>, String> {
        self.takes(word).then(|| self.moment()).transpose()
    }

    fn slot(&mut self) -> Result<Slot, String> {
        let word = self.next("a slot")?;
        let (schedule, at) = match word.split_once('/') {
            Some((schedule, at)) => {
                (Some(ScheduleId::any(schedule).map_err(|error| error.message)?), at)
            }
            None => (None, word),
        };
        Ok(Slot { schedule, at: read_moment(at)? })
    }

    fn roles(&mut self) -> Result<Roles, String> {
        if !self.takes("as") {
            return Ok(Roles::All);
        }
        match self.next("`watchdog`")? {
            "watchdog" => Ok(Roles::Watchdog),
            other => Err(format!("an instance starts whole or `as watchdog`, not as `{other}`")),
        }
    }

    fn death(&mut self) -> Result<Death, String> {
        let death = match self.peek() {
            None => return Ok(Death::Here),
            Some("before") => Death::BeforeCommit,
            Some("after") => Death::AfterCommit,
            Some(other) => {
                return Err(format!("`crash before commit` or `after commit`, not `{other}`"));
            }
        };
        self.next("`before` or `after`")?;
        match self.next("`commit`")? {
            "commit" => Ok(death),
            other => Err(format!("an instance dies before or after a `commit`, not `{other}`")),
        }
    }

    fn count(&mut self) -> Result<u32, String> {
        let wrong = |word: &str| format!("`{word}` is not a number from 1 on");
        let Some(word) = self.peek() else { return Ok(1) };
        self.next("a number")?;
        word.parse().ok().filter(|count| *count > 0).ok_or_else(|| wrong(word))
    }

    fn way(&mut self) -> Result<Way, String> {
        match self.all("`away`, `back` or `loses an answer`")? {
            "away" => Ok(Way::Cut),
            "back" => Ok(Way::Mended),
            "loses an answer" => Ok(Way::LosesAnAnswer),
            other => Err(format!("a store is `away`, `back` or `loses an answer`, not `{other}`")),
        }
    }

    fn status(&mut self) -> Result<TraitStatus, String> {
        match self.next("what it answers")? {
            "passes" => Ok(TraitStatus::Pass),
            "fails" => Ok(TraitStatus::Fail),
            "errs" => Ok(TraitStatus::Error),
            other => Err(format!("a trait `passes`, `fails` or `errs`, not `{other}`")),
        }
    }

    fn rule(&mut self) -> Result<Rule, String> {
        let word = self.next("a pipeline")?;
        let (name, slot) = match word.split_once('@') {
            Some((name, slot)) => (name, Some(slot)),
            None => (word, None),
        };
        let pipeline = PipelineId::parse(name).map_err(|error| error.message)?;
        let slot = slot.map(|slot| {
            slot.parse().map_err(|error| format!("`{slot}` is not an instant: {error}"))
        });
        let text = self.all("what it does")?;
        let (text, is_once) = match text.strip_suffix(" once") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let habit = match text.strip_prefix("takes ") {
            Some(time) => Habit::Takes(read_duration(time)?),
            None => Habit::parse(text)?,
        };
        Ok(Rule { pipeline, slot: slot.transpose()?, habit, is_once })
    }

    fn ping(&mut self) -> Result<Ping, String> {
        let said = match self.peek() {
            Some(word @ ("start" | "success" | "fail")) => {
                self.next("a word")?;
                word
            }
            _ => "success",
        };
        let rid = self.takes("as").then(|| self.next("a name").map(str::to_owned)).transpose()?;
        Ok(Ping { said: said.to_owned(), rid, of: self.moment_after("of")? })
    }

    fn wish(&mut self, name: &str) -> Result<Wish, String> {
        Ok(match name {
            "run" => Wish::Run(self.peek().is_some().then(|| self.slot()).transpose()?),
            "rerun" => Wish::Rerun(self.slot()?),
            "cancel" => Wish::Cancel(self.slot()?),
            "pause" => Wish::Pause(self.all("a reason")?.to_owned()),
            "resume" => {
                Wish::Resume(self.peek().map(|_| self.next("how")).transpose()?.map(str::to_owned))
            }
            "catchup" => Wish::Catchup,
            "backfill" => {
                let (from, to) = (self.moment()?, self.moment()?);
                let reprocess = self.peek().map_or(Ok("missing"), |_| self.next("which"))?;
                Wish::Backfill { from, to, reprocess: reprocess.to_owned() }
            }
            _ => {
                let key = self.next("a key")?.to_owned();
                let text = self.all("a value in JSON")?;
                let (json, of) = match text.rsplit_once(" of ") {
                    Some((json, of)) => (json, Some(read_moment(of.trim())?)),
                    None => (text, None),
                };
                Wish::Sensor { key, value: read_json(json)?, of }
            }
        })
    }

    fn question(&mut self, name: &str) -> Result<Question, String> {
        Ok(match name {
            "plan" => Question::Plan(self.maybe_pipeline()?),
            "slots" => Question::Slots(self.maybe_pipeline()?),
            "runs" => Question::Runs(self.maybe_pipeline()?),
            "events" => Question::Events(self.maybe_pipeline()?),
            "jobs" => Question::Jobs(self.maybe_pipeline()?),
            "why" => Question::Why(self.pipeline()?, self.slot()?),
            "incidents" => Question::Incidents,
            _ => Question::Told,
        })
    }
}

fn read_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("`{text}` is not JSON: {error}"))
}

fn read_duration(text: &str) -> Result<SignedDuration, String> {
    let wrong =
        |error: interlock_core::text::TextError| format!("{}. {}", error.message, error.help);
    duration::parse(text, Units::SecondsToDays).map_err(wrong)
}

fn read_moment(text: &str) -> Result<Moment, String> {
    if let Ok(instant) = text.parse() {
        return Ok(Moment::Instant(instant));
    }
    let help = "write `2026-02-25T09:00Z`, `2026-03-29T01:30+01:00` or `09:30`";
    let is_time = text.contains(':') && !text.contains('T');
    match text.parse::<civil::Time>() {
        Ok(time) if is_time => Ok(Moment::Today(time)),
        _ => Err(format!("`{text}` is not an instant: {help}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuses(line: &str, expected: &str) {
        let message = read(line, "").unwrap_err();
        assert!(message.contains(expected), "{line}: {message}");
    }

    #[test]
    fn a_wrong_line_is_told_what_to_write() {
        refuses("dance", "there is no command `dance`");
        refuses("file", "has its text below");
        refuses("at", "an instant is missing");
        refuses("at noon", "`noon` is not an instant");
        refuses("advance 3", "3");
        refuses("start 4", "the instances 1 to 3");
        refuses("crash now", "not `now`");
        refuses("clock 2h", "`+2h` or `-2h`");
        refuses("store gone", "`away`, `back`");
        refuses("job orders sings", "sings");
        refuses("sensor orders ready yes", "not JSON");
        refuses("slots orders twice", "`slots` ends before `twice`");
        assert!(read("start", "name: orders\n").unwrap_err().contains("no text below"));
    }

    #[test]
    fn a_sensor_may_have_its_own_time() {
        let command = read("sensor orders ready {\"n\": 1} of 09:30", "").unwrap();
        let Command::Ask(_, Wish::Sensor { key, value, of: Some(Moment::Today(of)) }) = command
        else {
            panic!("{command:?}")
        };
        assert_eq!((key.as_str(), value.to_string().as_str()), ("ready", "{\"n\":1}"));
        assert_eq!(of, civil::time(9, 30, 0, 0));
        assert!(read("sensor orders ready 3", "").is_ok());
    }
}
