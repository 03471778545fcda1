//! The scanner at its pace: so slow that nobody notices, and never done.
//!
//! After each page it rests a thousand times as long as the page took, two seconds at least: a thousandth of one core,
//! however many pipelines there are.

use std::{collections::BTreeSet, sync::Arc};

use interlock_store::{Change, Group, Shard, Store, StoreError};
use jiff::{SignedDuration, Timestamp};

use crate::{
    durable::system_event,
    owed::plus,
    plan::Planned,
    resident::{Watchdog, WatchdogError},
    scan::{Scanned, Scanner, Violation},
    seam::ZoneBook,
};

/// Pipelines of one page.
const PAGE: usize = 10;
/// Incidents of one page, when it is looked up what people were told.
const INCIDENTS: usize = 1_000;
/// How many times longer than a page took it rests.
const RESTS: i32 = 1_000;
const REST_MIN: SignedDuration = SignedDuration::from_secs(2);
const REST_MAX: SignedDuration = SignedDuration::from_mins(10);

/// How far the scan is, and what it found.
#[derive(Debug)]
pub(crate) struct Scanning {
    scanner: Scanner,
    next_at: Timestamp,
    patient_until: Timestamp,
    /// What people were told of; `None` until that was looked up, for a process before this one may have told them.
    told: Option<BTreeSet<Violation>>,
}

impl Scanning {
    pub(crate) fn new(zones: ZoneBook, next_at: Timestamp) -> Self {
        let patient_until = Timestamp::MIN;
        Self { scanner: Scanner::new(zones), next_at, patient_until, told: None }
    }

    /// Goes on soon, whatever it waits for.
    pub(crate) fn begin_again(&mut self, now: Timestamp) {
        self.next_at = self.next_at.min(plus(now, REST_MAX));
    }

    /// What can pass by itself is not told before an instant: the engine may be about to mend it.
    pub(crate) fn be_patient_until(&mut self, at: Timestamp) {
        self.patient_until = at;
    }

    /// What is newly wrong, and what is no longer.
    fn news(&mut self, scanned: Scanned, now: Timestamp) -> (Vec<Violation>, Vec<Violation>) {
        let Scanned { pipelines, violations, .. } = scanned;
        let is_over = |told: &Violation| {
            told.can_pass() && pipelines.contains(&told.pipeline) && !is_among(told, &violations)
        };
        let told = self.told.get_or_insert_default();
        let over: Vec<_> = told.iter().filter(|told| is_over(told)).cloned().collect();
        told.retain(|told| !over.contains(told));
        let is_patient = now < self.patient_until;
        let new = violations.into_iter().filter(|found| !is_among(found, told));
        let new: Vec<_> = new.filter(|found| !(is_patient && found.can_pass())).collect();
        told.extend(new.iter().cloned());
        (new, over)
    }
}

/// Whether the same is wrong with the same schedule, whatever the words.
fn is_among(one: &Violation, others: &BTreeSet<Violation>) -> bool {
    others.iter().any(|other| other.thing() == one.thing())
}

/// What people were told of and is not over, by the incidents that are open.
async fn told(store: &dyn Store, shard: Shard) -> Result<BTreeSet<Violation>, StoreError> {
    let (mut told, mut last) = (BTreeSet::new(), None);
    loop {
        let page = store.open_incidents(shard, last.as_ref(), INCIDENTS).await?;
        for (pipeline, key, _) in &page.items {
            told.extend(Violation::of_incident(pipeline, key));
        }
        last = page.items.last().map(|(pipeline, key, _)| (pipeline.clone(), key.clone()));
        if !page.more {
            return Ok(told);
        }
    }
}

impl Watchdog {
    /// Looks at a page of the ledger, if it is time to.
    pub(crate) async fn scan(&mut self, now: Timestamp) -> Result<(), WatchdogError> {
        if now < self.scanning.next_at {
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        let shard = self.writer.shard;
        if self.scanning.told.is_none() {
            self.scanning.told = Some(told(store.as_ref(), shard).await?);
        }
        let scanned = match self.scanning.scanner.page(store.as_ref(), (shard, PAGE), now).await {
            // What can never be read is told of by the checks that need it; the others must not end with this.
            Err(error) if !error.is_retryable => {
                tracing::error!(%error, "cannot scan the ledger");
                self.scanning.next_at = plus(now, self.pace.rotation);
                return Ok(());
            }
            scanned => scanned?,
        };
        let took = self.world.now().duration_since(now);
        let least = if scanned.is_last { self.pace.rotation } else { REST_MIN };
        self.scanning.next_at = plus(now, (took * RESTS).min(REST_MAX).max(least));
        let (new, over) = self.scanning.news(scanned, now);
        let broken = new.iter().map(|found| ("INVARIANT_BROKEN", found, found.says.clone()));
        let holds =
            over.iter().map(|found| ("INVARIANT_HOLDS", found, "it holds again".to_owned()));
        let mut planned = Vec::new();
        for (kind, found, says) in broken.chain(holds) {
            tracing::error!(pipeline = %found.pipeline, "{kind}: {}: {says}", found.thing());
            let mut event = system_event(kind, says, now);
            event.details.insert("thing".to_owned(), found.thing().into());
            event.details.insert("invariant".to_owned(), found.invariant.into());
            let (pipeline, writer) = (found.pipeline.clone(), self.writer);
            let group = Group { pipeline, writer, changes: vec![Change::Append(event.into())] };
            planned.push(Planned::only(group));
        }
        let left = self.make_durable(planned).await?;
        // What could not be said is found again.
        let told = self.scanning.told.get_or_insert_default();
        told.retain(|told| left.none_of(&told.pipeline));
        Ok(())
    }
}
