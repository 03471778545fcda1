//! Requests: left in the inbox under a fresh key, applied by whoever writes the ledger, and answered there.

use std::{
    hash::{BuildHasher as _, RandomState},
    io::Write as _,
    path::Path,
    thread,
    time::Duration,
};

use interlock_core::id::PipelineId;
use interlock_store::record::{AppliedRecord, InboxRecord};
use serde_json::{Value, json};

use crate::{
    arguments::Sending,
    clock,
    exit::{ACCEPTED, Failure, PROBLEMS, SUCCESS},
    ledger::Ledger,
    output::Output,
};

/// How often the answer is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A project's ledger and one of its pipelines, to ask something of.
pub(crate) struct Inbox {
    pub(crate) ledger: Ledger,
    pub(crate) pipeline: PipelineId,
}

impl Inbox {
    /// The inbox of a pipeline that the ledger or the files know.
    pub(crate) fn open(directory: &Path, pipeline: &str) -> Result<Self, Failure> {
        let ledger = Ledger::open(directory)?;
        let pipeline = ledger.known(directory, pipeline)?;
        Ok(Self { ledger, pipeline })
    }

    /// Leaves a request, waits for its answer and prints it.
    pub(crate) fn send(
        &self,
        record: &InboxRecord,
        sending: Sending,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let key = fresh_key();
        self.ledger.post(&self.pipeline, &key, record)?;
        let answer = self.answer(&key, sending)?;
        if sending.json {
            output.json(&to_json(&key, answer.as_ref()))?;
            return Ok(exit_code(answer.as_ref()));
        }
        match answer {
            Some(answer) if answer.accepted => {
                writeln!(output.out, "done{}", sentence(&answer.result))?;
                Ok(SUCCESS)
            }
            Some(answer) => Err(Failure::refused(reason(&answer.result), "")),
            None => self.say_not_applied(output),
        }
    }

    fn answer(&self, key: &str, sending: Sending) -> Result<Option<AppliedRecord>, Failure> {
        let looks = sending.wait.as_millis() / LOOK_EVERY.as_millis() as i128;
        for _ in 0..looks {
            if let Some(answer) = self.ledger.applied(&self.pipeline, key)? {
                return Ok(Some(answer));
            }
            thread::sleep(LOOK_EVERY);
        }
        self.ledger.applied(&self.pipeline, key)
    }

    fn say_not_applied(&self, output: &mut Output) -> Result<u8, Failure> {
        write!(output.out, "accepted, not yet applied")?;
        if self.ledger.is_served() {
            writeln!(output.out, ": `interlock serve` has not got to it")?;
        } else {
            writeln!(
                output.out,
                ": no `interlock serve` seems to be running; it will be applied then"
            )?;
        }
        Ok(ACCEPTED)
    }
}

/// A key that nobody has used: time, process and chance.
fn fresh_key() -> String {
    let chance = RandomState::new().hash_one(std::process::id());
    format!("cli-{}-{}-{chance:016x}", clock::now().as_millisecond(), std::process::id())
}

fn exit_code(answer: Option<&AppliedRecord>) -> u8 {
    match answer {
        Some(answer) if answer.accepted => SUCCESS,
        Some(_) => PROBLEMS,
        None => ACCEPTED,
    }
}

fn to_json(key: &str, answer: Option<&AppliedRecord>) -> Value {
    json!({
        "key": key,
        "applied": answer.is_some(),
        "accepted": answer.map(|answer| answer.accepted),
        "at": answer.map(|answer| answer.at.to_string()),
        "result": answer.map(|answer| &answer.result),
    })
}

/// What came of it, in words: `: slot orders/manual/…`.
fn sentence(result: &Value) -> String {
    let Some(fields) = result.as_object().filter(|fields| !fields.is_empty()) else {
        return String::new();
    };
    let parts = fields.iter().map(|(name, value)| format!("{name} {}", plain(value)));
    format!(": {}", parts.collect::<Vec<_>>().join(", "))
}

fn reason(result: &Value) -> String {
    result.get("reason").map_or_else(|| result.to_string(), plain)
}

/// A text without quotes, anything else as JSON.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_in_words() {
        assert_eq!(sentence(&json!({ "slot": "a/b/c", "count": 2 })), ": count 2, slot a/b/c");
        assert_eq!(sentence(&json!({})), "");
        assert_eq!(reason(&json!({ "reason": "no" })), "no");
        assert_eq!(reason(&json!(3)), "3");
        assert_ne!(fresh_key(), fresh_key());
    }
}
