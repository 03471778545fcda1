//! All incidents that match a filter, acknowledged or resolved: their requests are left together, and their answers read together.

use std::{
    collections::BTreeSet,
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::Path,
    thread,
    time::Duration,
};

use interlock_answers::{IncidentRow, StoredIncident, incident_answer, table};
use interlock_core::{incident::Hand, text::counted};
use interlock_store::{Shard, record::AppliedRecord};
use jiff::Timestamp;
use serde_json::json;

use super::{Matching, hand_record};
use crate::{
    alone::Alone,
    arguments::HandleIncident,
    clock,
    exit::{ACCEPTED, Failure, PROBLEMS, SUCCESS},
    inbox::{fresh_key, plain, reason},
    ledger::{Ledger, PendingRequest},
    output::Output,
    writer::Writing,
};

/// How often answers are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So many answers are looked for together.
const LOOKED_AT: usize = 1_000;
/// So many refusals are told one by one.
const REFUSALS_MAX: usize = 5;

pub(super) fn run(
    directory: &Path,
    hand: Hand,
    asked: &HandleIncident,
    output: &mut Output,
) -> Result<u8, Failure> {
    check_filter(asked)?;
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
    if !is_agreed(hand, asked, rows.len(), output)? {
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
    let applied = applied(directory, &ledger, requests, asked)?;
    report(&applied, hand, asked, output)
}

/// Refuses a command that names neither an incident nor a filter.
pub(super) fn check_filter(asked: &HandleIncident) -> Result<(), Failure> {
    if asked.filter.is_set() {
        return Ok(());
    }
    Err(Failure::usage(
        "no incident is named",
        "Name one by its key, or those that match `--pipeline`, `--kind`, `--owner`, `--label` or `--upstream`; `interlock incidents` lists them.",
    ))
}

fn is_to_do(hand: Hand, (_, _, row): &StoredIncident) -> bool {
    match hand {
        Hand::Acknowledge => row.record.acknowledged.is_none(),
        Hand::Resolve | Hand::Note => true,
    }
}

fn show(
    rows: &[StoredIncident],
    asked: &HandleIncident,
    output: &mut Output,
) -> Result<u8, Failure> {
    if asked.sending.json {
        let keys = rows.iter().map(|(name, key, _)| json!({"pipeline": name.as_str(), "key": key}));
        output.json(&keys.collect())?;
    } else if rows.is_empty() {
        writeln!(output.out, "no open incidents match")?;
    } else {
        let row = |(pipeline, key, row): &StoredIncident| {
            let incident = IncidentRow { pipeline, key, record: &row.record };
            table::incident_row(&incident_answer(&incident, None))
        };
        let lines: Vec<_> = rows.iter().map(row).collect();
        output.table(table::INCIDENTS, &lines)?;
    }
    Ok(SUCCESS)
}

/// Asks whether all of them are meant. A script must say so beforehand.
pub(super) fn is_agreed(
    hand: Hand,
    asked: &HandleIncident,
    count: usize,
    output: &mut Output,
) -> Result<bool, Failure> {
    if asked.yes {
        return Ok(true);
    }
    let incidents = counted(count as u64, "incident");
    if asked.sending.json || !io::stdin().is_terminal() {
        let are = if count == 1 { "matches" } else { "match" };
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
pub(super) struct Applied {
    pub(super) accepted: usize,
    pub(super) refused: Vec<(PendingRequest, AppliedRecord)>,
    pub(super) pending: Vec<PendingRequest>,
    /// Who will apply what is pending, in words.
    pub(super) who: &'static str,
}

/// Waits for the answers; what no other process owns is applied here, until the time is over.
fn applied(
    directory: &Path,
    ledger: &Ledger,
    requests: Vec<PendingRequest>,
    asked: &HandleIncident,
) -> Result<Applied, Failure> {
    let give_up = clock::now().saturating_add(asked.sending.wait).unwrap_or(Timestamp::MAX);
    let mut found = Applied { pending: requests, ..Applied::default() };
    loop {
        found.take_first(ledger)?;
        if found.pending.is_empty() || clock::now() >= give_up {
            break;
        }
        if matches!(ledger.writing(), Writing::Nobody | Writing::StandIn(_)) {
            found.apply_here((directory, ledger), give_up)?;
        }
        thread::sleep(LOOK_EVERY);
    }
    found.take_all(ledger)?;
    found.who = match ledger.writing() {
        Writing::Serve => "`interlock serve` has not applied them yet",
        Writing::Command(_) | Writing::Nobody | Writing::StandIn(_) => {
            "the next `interlock serve` applies them"
        }
    };
    Ok(found)
}

impl Applied {
    /// Applies what is in shards that no other process owns, shard by shard.
    fn apply_here(
        &mut self,
        (directory, ledger): (&Path, &Ledger),
        give_up: Timestamp,
    ) -> Result<(), Failure> {
        let count = ledger.store().shard_count();
        let shards = self.pending.iter().map(|request| Shard::of(&request.pipeline, count));
        for shard in shards.collect::<BTreeSet<_>>() {
            let Some(mut alone) = Alone::take_incidents(directory, ledger, shard)? else {
                continue;
            };
            // Bounded: each pass answers some of them, else it is the last one.
            let mut before = usize::MAX;
            while self.pending.len() < before && clock::now() < give_up {
                before = self.pending.len();
                alone.pass()?;
                self.take_all(ledger)?;
            }
            alone.close()?;
        }
        Ok(())
    }

    /// Looks for answers, as far as there are any: requests are applied about in the order in which they were left.
    fn take_first(&mut self, ledger: &Ledger) -> Result<(), Failure> {
        let mut pending = std::mem::take(&mut self.pending).into_iter();
        let mut is_any_new = true;
        while is_any_new {
            let portion: Vec<_> = pending.by_ref().take(LOOKED_AT).collect();
            let before = (self.pending.len(), portion.len());
            self.take(ledger, portion)?;
            is_any_new = self.pending.len() < before.0 + before.1;
        }
        self.pending.extend(pending);
        Ok(())
    }

    /// Looks for the answers of all.
    fn take_all(&mut self, ledger: &Ledger) -> Result<(), Failure> {
        let pending = std::mem::take(&mut self.pending);
        self.take(ledger, pending)
    }

    fn take(&mut self, ledger: &Ledger, asked: Vec<PendingRequest>) -> Result<(), Failure> {
        let answers = ledger.answers(&asked)?;
        for (request, answer) in asked.into_iter().zip(answers) {
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

pub(super) fn report(
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
        Hand::Note => "noted",
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
