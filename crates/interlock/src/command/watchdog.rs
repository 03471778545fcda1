//! `interlock watchdog --once`: one pass of the watchdog, for a cron job or a function. It delivers what it wrote before it ends.

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use interlock_config::{SystemZones, ZoneSource as _};
use interlock_core::{id::SlotKey, text::counted, zone::Zone};
use interlock_engine::{DeliveryState, Undelivered};
use interlock_store::{Store, whole_milliseconds};
use interlock_watchdog::{
    CheckName, Finding, WatchdogError,
    once::{CheckOptions, Report, all_shards},
    seam::ZoneBook,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    arguments::WatchdogPass,
    clock,
    exit::{Failure, PROBLEMS, SUCCESS},
    output::{Form, Output},
    place::Place,
    serve::{files::Files, notifier, specs::StoredSpecs, telling::EngineTelling},
};

/// How long a command that is just writing is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long delivering may take: a receiver that hangs is tried twice within it.
const DELIVERED_IN: SignedDuration = SignedDuration::from_secs(30);
/// And if the clock does not say when that is over, or the store does not answer.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(45);

pub(super) fn run(
    directory: &Path,
    asked: &WatchdogPass,
    output: &mut Output,
) -> Result<u8, Failure> {
    let place = Place::of(directory)?;
    let form = Form::asked(asked.json);
    if !place.exists()? {
        return Outcome::default().print(form, output);
    }
    let now = clock::now();
    let at = asked.at.map(|at| at.at(now, &Zone::utc()));
    let watched_by = place.watched_by().filter(|_| at.is_none());
    let writes = at.is_none() && watched_by.is_none();
    let store: Arc<dyn Store> = if writes {
        place.open_writer("interlock watchdog", PATIENCE)?
    } else {
        place.open_reader()?
    };
    let zones = Arc::new(SystemZones::new());
    let pass = OnePass { directory: directory.to_path_buf(), place, store, zones };
    let options = pass.options(asked, at.unwrap_or(now));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}"), ""))?;
    let outcome = if writes {
        runtime.block_on(pass.write(options, output))?
    } else {
        Outcome::found(runtime.block_on(all_shards(&options))?)
    };
    // A delivery that hangs must not keep the process.
    runtime.shutdown_background();
    if let Some(process) = watched_by {
        writeln!(
            output.err,
            "{process} is at work here: its watchdog records what is found; this only prints"
        )?;
    }
    outcome.print(form, output)
}

/// A pass, and what it works with.
struct OnePass {
    directory: PathBuf,
    place: Place,
    store: Arc<dyn Store>,
    zones: Arc<SystemZones>,
}

impl OnePass {
    fn options(&self, asked: &WatchdogPass, now: Timestamp) -> CheckOptions {
        let zones = Arc::clone(&self.zones);
        let zones: ZoneBook = Arc::new(move |name| zones.zone(name));
        let options = CheckOptions::new(Arc::clone(&self.store), zones, whole_milliseconds(now));
        match asked.check.as_deref().and_then(CheckName::parse) {
            Some(name) => options.only(name),
            None => options,
        }
    }

    /// Judges, records and delivers. Where another watchdog has every shard, it only looks.
    async fn write(&self, looks: CheckOptions, output: &mut Output) -> Result<Outcome, Failure> {
        let mut writes = looks.clone().telling(Arc::new(EngineTelling));
        // Whoever has the store's lock need not wait for the lease of a daemon that died.
        writes.holder = self.place.holder();
        let report = all_shards(&writes).await?;
        let elsewhere = report.held_elsewhere.len();
        if elsewhere == usize::from(self.store.shard_count()) {
            writeln!(
                output.err,
                "another watchdog is at work: it records and delivers what is found; this only prints"
            )?;
            return Ok(Outcome::found(all_shards(&looks).await?));
        }
        if elsewhere > 0 {
            let shards = counted(elsewhere, "shard");
            writeln!(
                output.err,
                "another watchdog judges {shards}: what it finds is not listed here"
            )?;
        }
        let undelivered = self.deliver(&report, output).await?;
        let written = report.notifications.len();
        Ok(Outcome { report, delivery: Some(DeliveryOutcome { written, undelivered }) })
    }

    /// Delivers what the outbox holds, and waits for what this pass wrote.
    async fn deliver(
        &self,
        report: &Report,
        output: &mut Output,
    ) -> Result<Vec<Undelivered>, Failure> {
        let around = Files::around(&self.directory, &self.zones)?;
        if around.has_errors() {
            writeln!(
                output.err,
                "interlock.yaml has problems: alerts go to the channels that could be read (`interlock validate` shows them)"
            )?;
        }
        let files = Files::new(&self.directory, &self.place.folder, Arc::clone(&self.zones));
        files.use_channels(&around.config.alerts);
        let specs = StoredSpecs::new(Arc::clone(&self.store), Arc::clone(&self.zones));
        let notifier = notifier::open(notifier::Around {
            files,
            specs,
            store: Arc::clone(&self.store),
            outbound: &around.config.engine.outbound,
            vitals: Arc::default(),
            pulse: interlock_engine::vitals::Pulse::default(),
            threads: self.place.folder.join("threads.jsonl"),
            // Standard output is for what was found.
            console: notifier::console_on_stderr(),
            news: Arc::default(),
        });
        let notifier = notifier
            .map_err(|error| Failure::failed(format!("cannot make an HTTP client: {error}"), ""))?;
        let deadline = clock::now().saturating_add(DELIVERED_IN).unwrap_or(Timestamp::MAX);
        let drained = notifier.drain(&report.notifications, deadline);
        // The deadline is one of the wall clock, which may be set back meanwhile.
        match tokio::time::timeout(GIVEN_UP_AFTER, drained).await {
            Ok(undelivered) => Ok(undelivered?),
            Err(_elapsed) => Err(Failure::failed(
                format!(
                    "what was found is recorded, and could not be delivered in {} s",
                    GIVEN_UP_AFTER.as_secs()
                ),
                "It stays in the outbox: the next pass, or `interlock serve`, goes on with it.",
            )),
        }
    }
}

impl From<WatchdogError> for Failure {
    fn from(error: WatchdogError) -> Self {
        Self::failed(error.to_string(), "")
    }
}

/// What came of a pass.
#[derive(Default)]
struct Outcome {
    report: Report,
    /// None if it wrote nothing.
    delivery: Option<DeliveryOutcome>,
}

/// What came of the alerts that a pass wrote.
struct DeliveryOutcome {
    written: usize,
    undelivered: Vec<Undelivered>,
}

impl DeliveryOutcome {
    /// How many every channel has that asks for them.
    fn delivered(&self) -> usize {
        let left: BTreeSet<_> =
            self.undelivered.iter().map(|it| (&it.pipeline, &it.name)).collect();
        self.written.saturating_sub(left.len())
    }

    /// Whether a channel could not be reached.
    fn has_failed(&self) -> bool {
        self.undelivered.iter().any(|left| !matches!(left.state, DeliveryState::Held(_)))
    }

    fn print(&self, output: &mut Output) -> Result<(), Failure> {
        if self.written > 0 {
            writeln!(output.err, "{} delivered", counted(self.delivered(), "alert"))?;
        }
        for left in &self.undelivered {
            let (word, reason) = words(&left.state);
            let channel = if left.channel.is_empty() { "any channel" } else { &left.channel };
            writeln!(
                output.err,
                "{}: not delivered to {channel} ({word}): {reason}",
                left.pipeline
            )?;
        }
        if self.has_failed() {
            writeln!(
                output.err,
                "the next pass, or `interlock serve`, goes on with what is retrying; `interlock incidents dead` lists what was given up"
            )?;
        }
        Ok(())
    }
}

/// How an alert stands that was not delivered, and why.
fn words(state: &DeliveryState) -> (&'static str, &str) {
    match state {
        DeliveryState::Retrying { error, .. } => {
            ("retrying", error.as_deref().unwrap_or("there was no time to try it"))
        }
        DeliveryState::Held(reason) => ("held", reason),
        DeliveryState::Dead(reason) => ("dead", reason),
    }
}

impl Outcome {
    fn found(report: Report) -> Self {
        Self { report, delivery: None }
    }

    fn print(&self, form: Form, output: &mut Output) -> Result<u8, Failure> {
        let Report { findings, failed, .. } = &self.report;
        match form {
            Form::Json => output.json(&self.to_json())?,
            Form::Text if findings.is_empty() => writeln!(output.out, "nothing is missing")?,
            Form::Text => {
                let rows: Vec<_> = findings.iter().map(row).collect();
                output.table(["CHECK", "EVENT", "PIPELINE", "SLOT", "MESSAGE"], &rows)?;
            }
        }
        for (name, reason) in failed {
            writeln!(output.err, "the check {name} failed: {reason}")?;
        }
        let mut is_well = failed.is_empty();
        if let Some(delivery) = &self.delivery {
            delivery.print(output)?;
            is_well &= !delivery.has_failed();
        }
        Ok(if is_well { SUCCESS } else { PROBLEMS })
    }

    fn to_json(&self) -> Value {
        let Report { findings, failed, .. } = &self.report;
        let found: Vec<_> = findings.iter().map(finding).collect();
        let names: Vec<_> = failed.keys().map(|name| name.as_str()).collect();
        let mut json = json!({ "findings": found, "failed": names });
        if let Some(delivery) = &self.delivery {
            let undelivered = delivery.undelivered.iter().map(|left| {
                let (state, reason) = words(&left.state);
                json!({
                    "pipeline": left.pipeline.as_str(),
                    "channel": left.channel,
                    "state": state,
                    "reason": reason,
                })
            });
            json["alerts"] = json!({
                "written": delivery.written,
                "delivered": delivery.delivered(),
                "undelivered": undelivered.collect::<Vec<_>>(),
            });
        }
        json
    }
}

fn slot(finding: &Finding) -> Option<String> {
    let (nominal, schedule) = finding.slot.clone()?;
    let pipeline = finding.pipeline.clone();
    Some(SlotKey { pipeline, schedule, nominal }.to_string())
}

fn finding(finding: &Finding) -> Value {
    json!({
        "check": finding.check.as_str(),
        "event": finding.event,
        "pipeline": finding.pipeline.as_str(),
        "schedule": finding.slot.as_ref().map(|(_, schedule)| schedule.as_str()),
        "slot": slot(finding),
        "date": finding.date.map(|date| date.to_string()),
        "runId": finding.run_id,
        "message": message(finding),
        "details": finding.details,
    })
}

fn row(finding: &Finding) -> [String; 5] {
    [
        finding.check.to_string(),
        finding.event.unwrap_or_default().to_owned(),
        finding.pipeline.to_string(),
        slot(finding).unwrap_or_default(),
        message(finding).to_owned(),
    ]
}

fn message(finding: &Finding) -> &str {
    finding.alert.as_deref().unwrap_or(&finding.message)
}
