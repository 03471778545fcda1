//! `interlock bark`: a miss that did not happen, told like one that did.
//!
//! It goes the whole way: inbox, event, incident, outbox, routes, channels; so it proves that somebody would hear. It is
//! ended as soon as the channels have it, and the end is told too. With `--every` the watchdog of `serve` does the same
//! again and again.

mod there;

use std::{io::Write as _, path::Path, thread, time::Duration};

use interlock_config::route::Subject;
use interlock_core::id::PipelineId;
use interlock_store::record::{InboxRecord, OutboxRecord};
use serde_json::{Value, json};

use crate::{
    arguments::{Bark, Every, Sending},
    exit::{Failure, PROBLEMS, SUCCESS},
    inbox::{Inbox, fresh_key},
    ledger::Ledger,
    output::Output,
    project,
    target::Target,
};

/// How often the outbox is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What became of the bark on a channel.
struct Heard {
    channel: String,
    state: &'static str,
    error: Option<String>,
}

pub(super) fn run(target: &Target, asked: &Bark, output: &mut Output) -> Result<u8, Failure> {
    let directory: &Path = match target {
        Target::Project(directory) => directory,
        Target::Server(address) => {
            asked.by.check(target)?;
            return there::run(address, asked, output);
        }
    };
    if let Some(every) = asked.every {
        return order(directory, (every, asked), output);
    }
    let ledger = Ledger::open(directory)?;
    if !ledger.is_served() {
        let help = "Start `interlock serve`; `interlock incidents test CHANNEL` tries a channel without it.";
        return Err(Failure::failed(
            "no alert is delivered: `interlock serve` is not running",
            help,
        ));
    }
    let pipeline = match &asked.pipeline {
        Some(name) => ledger.known_or_system(directory, name)?,
        None => PipelineId::system(),
    };
    let channels = channels(directory, &pipeline)?;
    let inbox = Inbox::of(directory, ledger, pipeline);
    let sending = Sending { wait: asked.timeout, json: false };
    let (id, by) = (fresh_key(), asked.by.name());
    let key = format!("bark:{id}");
    let record = InboxRecord::Bark { id, by: by.clone() };
    if inbox.answer(&inbox.post(&record, sending)?)?.is_none() {
        return Err(Failure::failed("`interlock serve` did not accept it in time", ""));
    }
    let looks = asked.timeout.as_millis() / LOOK_EVERY.as_millis() as i128;
    let mut heard = look(&inbox, &key, &channels)?;
    for _ in 0..looks {
        if heard.iter().all(|one| one.state != "waiting") {
            break;
        }
        thread::sleep(LOOK_EVERY);
        heard = look(&inbox, &key, &channels)?;
    }
    let note = Some("the test has ended".to_owned());
    let end = InboxRecord::Incident { key, hand: "resolve".to_owned(), by, note };
    inbox.post_only(&end)?;
    print(&heard, asked, output)
}

/// Leaves a standing order, or ends it.
fn order(
    directory: &Path,
    (every, asked): (Every, &Bark),
    output: &mut Output,
) -> Result<u8, Failure> {
    let value = match every {
        Every::So(length) => Some(json!({ "seconds": length.as_secs() })),
        Every::Off => None,
    };
    let (kind, id) = ("barks".to_owned(), "standing".to_owned());
    let record = InboxRecord::Keep { kind, id, value, by: asked.by.name() };
    let sending = Sending { wait: asked.timeout, json: asked.json };
    Inbox::system(directory)?.send(&record, sending, output)
}

/// The channels that a miss of the pipeline goes to, by the files.
fn channels(directory: &Path, pipeline: &PipelineId) -> Result<Vec<String>, Failure> {
    let loaded = project::load(directory)?;
    let declared = project::find(&loaded, pipeline);
    let subject = Subject {
        level: "error",
        alert_type: "schedule_missed",
        pipeline: pipeline.as_str(),
        owner: declared.and_then(|declared| declared.owner.as_deref()),
        labels: declared.map(|declared| &declared.labels),
    };
    let wanted = loaded.config.alerts.iter().filter(|channel| channel.when.matches(&subject));
    Ok(wanted.map(|channel| channel.name.clone()).collect())
}

/// How far the bark is on each channel.
fn look(inbox: &Inbox, key: &str, channels: &[String]) -> Result<Vec<Heard>, Failure> {
    let told = format!("{key}~1~opened");
    let unrouted = inbox.ledger.outbox(&inbox.pipeline, &told)?;
    channels
        .iter()
        .map(|channel| {
            let row = inbox.ledger.outbox(&inbox.pipeline, &format!("{told}@{channel}"))?;
            let (state, error) = match (&unrouted, row) {
                (Some(OutboxRecord { held: Some(held), .. }), _) => ("held", Some(held.clone())),
                (Some(_), _) => ("waiting", None),
                (None, None) => ("delivered", None),
                (None, Some(row)) if row.dead => ("dead", row.last_error),
                (None, Some(row)) if row.held.is_some() => ("held", row.held),
                (None, Some(row)) => ("waiting", row.last_error),
            };
            Ok(Heard { channel: channel.clone(), state, error })
        })
        .collect()
}

fn print(heard: &[Heard], asked: &Bark, output: &mut Output) -> Result<u8, Failure> {
    if asked.json {
        let objects = heard.iter().map(|Heard { channel, state, error }| {
            json!({ "channel": channel, "state": state, "error": error })
        });
        output.json(&Value::Array(objects.collect()))?;
    } else if heard.is_empty() {
        writeln!(output.out, "no channel takes misses of this pipeline: no one would be told")?;
    } else {
        for Heard { channel, state, error } in heard {
            let error = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            writeln!(output.out, "{channel}: {state}{error}")?;
        }
    }
    let is_heard = heard.iter().any(|one| one.state == "delivered");
    let is_lost = heard.iter().any(|one| matches!(one.state, "waiting" | "dead"));
    Ok(if is_heard && !is_lost { SUCCESS } else { PROBLEMS })
}
