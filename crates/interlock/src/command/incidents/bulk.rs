//! All incidents that match a filter, acknowledged or resolved: their requests are left together, and their answers read together.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::Path,
    thread,
    time::Duration,
};

use interlock_core::{id::PipelineId, incident::Hand, text::counted};
use interlock_store::{record::AppliedRecord, story};
use jiff::Timestamp;
use serde_json::json;

use super::{Matching, hand_record, incident};
use crate::{
    arguments::HandleIncident,
    clock,
    exit::{ACCEPTED, Failure, PROBLEMS, SUCCESS},
    inbox::{Inbox, fresh_key, plain, reason},
    ledger::{IncidentRow, Ledger, PendingRequest},
    output::Output,
    writer::Writing,
};

/// How often answers are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So many refusals are told one by one.
const REFUSALS_MAX: usize = 5;

pub(super) fn run(
    directory: &Path,
    hand: Hand,
    asked: &HandleIncident,
    output: &mut Output,
) -> Result<u8, Failure> {
    if !asked.filter.is_set() {
        return Err(Failure::usage(
            "which incidents are meant is not said",
            "Name one by its key, or those that match `--pipeline`, `--kind`, `--owner`, `--label` or `--upstream`; `interlock incidents` lists them.",
        ));
    }
    let ledger = Ledger::open(directory)?;
    let matching = Matching::of(directory, &ledger, &asked.filter)?;
    let mut rows = ledger.open_incidents(matching.pipeline.as_ref())?;
    // An acknowledgement that is there stays.
    rows.retain(|row| matching.holds(row) && is_to_do(hand, row));
    if asked.dry_run {
        return show(&rows, asked, output);
    }
    if rows.is_empty() {
        return report(&Applied::default(), hand, asked, output);
    }
    if !is_agreed(hand, asked, &rows, output)? {
        writeln!(output.err, "nothing was done")?;
        return Ok(SUCCESS);
    }
    let requests: Vec<_> = rows
        .into_iter()
        .map(|(pipeline, key, _)| {
            let record = hand_record(hand, asked, key);
            PendingRequest { pipeline, key: fresh_key(), record }
        })
        .collect();
    ledger.post_all(&requests)?;
    let applied = applied(directory, ledger, requests, asked)?;
    report(&applied, hand, asked, output)
}

fn is_to_do(hand: Hand, (_, _, row): &IncidentRow) -> bool {
    match hand {
        Hand::Acknowledge => row.record.acknowledged.is_none(),
        Hand::Resolve => true,
    }
}

fn show(rows: &[IncidentRow], asked: &HandleIncident, output: &mut Output) -> Result<u8, Failure> {
    if asked.sending.json {
        let keys = rows.iter().map(|(name, key, _)| json!({"pipeline": name.as_str(), "key": key}));
        output.json(&keys.collect())?;
    } else if rows.is_empty() {
        writeln!(output.out, "no open incidents match")?;
    } else {
        let lines: Vec<_> = rows.iter().map(|row| incident(row, None)).collect();
        output.table(story::INCIDENTS, &lines)?;
    }
    Ok(SUCCESS)
}

/// Asks whether all of them are meant. A script must say so beforehand.
fn is_agreed(
    hand: Hand,
    asked: &HandleIncident,
    rows: &[IncidentRow],
    output: &mut Output,
) -> Result<bool, Failure> {
    if asked.yes {
        return Ok(true);
    }
    let incidents = counted(rows.len() as u64, "incident");
    if asked.sending.json || !io::stdin().is_terminal() {
        let are = if rows.len() == 1 { "matches" } else { "match" };
        return Err(Failure::usage(
            format!("{incidents} {are}, and there is no terminal to ask at"),
            "Say `--yes` if all of them are meant; `--dry-run` lists them.",
        ));
    }
    write!(output.err, "{} {incidents}? [y/N] ", hand.as_str())?;
    output.err.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What came of the requests.
#[derive(Default)]
struct Applied {
    accepted: usize,
    refused: Vec<(PendingRequest, AppliedRecord)>,
    pending: Vec<PendingRequest>,
    /// Who will apply what is pending, in words.
    who: &'static str,
}

/// Waits for the answers; while no other process writes, each pipeline's requests are applied here, until the time is over.
fn applied(
    directory: &Path,
    ledger: Ledger,
    requests: Vec<PendingRequest>,
    asked: &HandleIncident,
) -> Result<Applied, Failure> {
    let give_up = clock::now().saturating_add(asked.sending.wait).unwrap_or(Timestamp::MAX);
    let mut found = Applied { pending: requests, ..Applied::default() };
    let mut inbox = Inbox::of(directory, ledger, PipelineId::system());
    loop {
        found.take(&inbox.ledger)?;
        if found.pending.is_empty() || clock::now() >= give_up {
            break;
        }
        if matches!(inbox.ledger.writing(), Writing::Nobody | Writing::StandIn(_)) {
            apply_alone(&mut inbox, &found.pending, give_up)?;
            found.take(&inbox.ledger)?;
            break;
        }
        thread::sleep(LOOK_EVERY);
    }
    found.who = match inbox.ledger.writing() {
        Writing::Serve => "`interlock serve` has not got to them",
        Writing::Command(_) | Writing::Nobody | Writing::StandIn(_) => {
            "the next `interlock serve` applies them"
        }
    };
    Ok(found)
}

fn apply_alone(
    inbox: &mut Inbox,
    pending: &[PendingRequest],
    give_up: Timestamp,
) -> Result<(), Failure> {
    let mut by_pipeline: BTreeMap<&PipelineId, &PendingRequest> = BTreeMap::new();
    for request in pending {
        by_pipeline.insert(&request.pipeline, request);
    }
    for (pipeline, request) in by_pipeline {
        if clock::now() >= give_up {
            break;
        }
        inbox.pipeline = pipeline.clone();
        let Some(alone) = inbox.alone("interlock")? else { break };
        let left = give_up.duration_since(clock::now());
        alone.apply(&inbox.ledger, (pipeline, &request.record), left)?;
    }
    Ok(())
}

impl Applied {
    /// Looks for answers.
    fn take(&mut self, ledger: &Ledger) -> Result<(), Failure> {
        let answers = ledger.answers(&self.pending)?;
        for (request, answer) in std::mem::take(&mut self.pending).into_iter().zip(answers) {
            match answer {
                Some(answer) if answer.accepted => self.accepted += 1,
                Some(answer) => self.refused.push((request, answer)),
                None => self.pending.push(request),
            }
        }
        Ok(())
    }

    fn exit_code(&self) -> u8 {
        if !self.refused.is_empty() {
            PROBLEMS
        } else if !self.pending.is_empty() {
            ACCEPTED
        } else {
            SUCCESS
        }
    }
}

fn report(
    found: &Applied,
    hand: Hand,
    asked: &HandleIncident,
    output: &mut Output,
) -> Result<u8, Failure> {
    let (refused, pending) = (found.refused.len(), found.pending.len());
    let all = found.accepted + refused + pending;
    if asked.sending.json {
        let refusals = found.refused.iter().map(|(request, answer)| {
            json!({"pipeline": request.pipeline.as_str(), "reason": plain(&answer.result)})
        });
        output.json(&json!({
            "matched": all,
            "accepted": found.accepted,
            "refused": refusals.collect::<Vec<_>>(),
            "pending": pending,
        }))?;
        return Ok(found.exit_code());
    }
    if all == 0 {
        writeln!(output.out, "no open incidents match")?;
        return Ok(SUCCESS);
    }
    let done = match hand {
        Hand::Acknowledge => "acknowledged",
        Hand::Resolve => "resolved",
    };
    writeln!(output.out, "{done} {} of {}", found.accepted, counted(all as u64, "incident"))?;
    for (request, answer) in found.refused.iter().take(REFUSALS_MAX) {
        writeln!(output.err, "refused for {}: {}", request.pipeline, reason(&answer.result))?;
    }
    if refused > REFUSALS_MAX {
        writeln!(output.err, "and {} more were refused", refused - REFUSALS_MAX)?;
    }
    if pending > 0 {
        writeln!(output.out, "{pending} accepted, not yet applied: {}", found.who)?;
    }
    Ok(found.exit_code())
}
