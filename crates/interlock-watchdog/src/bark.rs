//! The bark: a miss that did not happen, told like one that did, again and again, to prove that somebody would hear.
//!
//! Whether one is due is derived from the standing order and the last bark; nothing is handed on from bark to bark that
//! could get lost. It goes the way of a finding: event, incident, outbox, channels. Then it is looked for in the outbox:
//! what was delivered is no longer there. What is still there after five minutes did not arrive, and that is an incident
//! for whoever still hears.

use std::sync::Arc;

use interlock_core::{id::PipelineId, incident::RESOLVED_BY_HAND};
use interlock_store::{
    Change, Expect, Group, Key, Record,
    kept::{BARKS_KEY, LastBark, barks},
    record::EventRecord,
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    durable::system_event,
    owed::plus,
    plan::Planned,
    resident::{Watchdog, WatchdogError},
};

/// How often it is looked whether one has arrived.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);
/// By then everybody has heard.
const HEARD_IN: SignedDuration = SignedDuration::from_mins(5);

/// How often to bark, and since when that is ordered.
type Order = (SignedDuration, Timestamp);

/// How a bark stands on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// Everybody has it who is to have it.
    Arrived,
    /// It is under way, to these.
    Waiting(Vec<String>),
    /// These will not get it.
    Lost(Vec<String>),
}

impl Watchdog {
    /// Barks if one is due, and sees whether the last one was heard.
    pub(crate) async fn bark(&mut self, now: Timestamp) -> Result<(), WatchdogError> {
        // One of them barks for all shards.
        if now < self.bark_at || !self.is_mine(&PipelineId::system()) {
            return Ok(());
        }
        let (order, last) = self.standing(now).await?;
        match (order, last) {
            (_, Some(last)) if last.state == "out" => self.look_for(last, now).await,
            (Some((every, _)), last)
                if last.as_ref().is_none_or(|it| plus(it.at, every) <= now) =>
            {
                self.begin_bark(now).await
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// The order to bark and the last bark, and from them when to look again.
    pub(crate) async fn standing(
        &mut self,
        now: Timestamp,
    ) -> Result<(Option<Order>, Option<LastBark>), WatchdogError> {
        let keys = [Key::Sensor(BARKS_KEY.to_owned()), LastBark::key()];
        let (mut order, mut last) = (None, None);
        for row in self.store.read(&PipelineId::system(), &keys).await?.into_iter().flatten() {
            if let Record::Sensor(record) = &row.record {
                order = barks(record);
            } else if let Record::Due(record) = &row.record {
                last = LastBark::from_record(record);
            }
        }
        self.bark_at = match (&order, &last) {
            // A delivery is no event: whether it arrived is asked again and again.
            (_, Some(last)) if last.state == "out" => plus(now, LOOK_EVERY),
            (Some((every, _)), Some(last)) => plus(last.at, *every),
            (Some(_), None) => now,
            (None, _) => Timestamp::MAX,
        };
        Ok((order, last))
    }

    async fn begin_bark(&mut self, now: Timestamp) -> Result<(), WatchdogError> {
        let id = format!("standing-{}", now.as_millisecond());
        let message = "the regular test alert; nothing is wrong, nothing to do";
        let mut event = system_event("BARK", message.to_owned(), now);
        event.details.insert("bark".to_owned(), id.as_str().into());
        event.details.insert("test".to_owned(), true.into());
        let last = LastBark { id, at: now, state: "out".to_owned() };
        self.say(&last, vec![event]).await
    }

    async fn look_for(&mut self, last: LastBark, now: Timestamp) -> Result<(), WatchdogError> {
        let is_late = now >= plus(last.at, HEARD_IN);
        let (state, event) = match self.way(&last).await? {
            Way::Arrived => {
                let message = "the test alert reached every channel that takes misses";
                ("heard", system_event("BARK_HEARD", message.to_owned(), now))
            }
            Way::Waiting(_) if !is_late => return Ok(()),
            Way::Waiting(names) => {
                ("lost", lost(&names, "did not arrive within five minutes on", now))
            }
            Way::Lost(names) => ("lost", lost(&names, "was given up on", now)),
        };
        let mut over = system_event(RESOLVED_BY_HAND, "the test has ended".to_owned(), now);
        over.details.insert("incident".to_owned(), format!("bark:{}", last.id).into());
        over.details.insert("by".to_owned(), "interlock".into());
        self.say(&LastBark { state: state.to_owned(), ..last }, vec![over, event]).await
    }

    /// Where the notifications of a bark are.
    async fn way(&self, last: &LastBark) -> Result<Way, WatchdogError> {
        let told = format!("bark:{}~1~opened", last.id);
        let names = (self.hears)();
        if names.is_empty() {
            return Ok(Way::Lost(vec!["every channel: none takes misses".to_owned()]));
        }
        let mut keys = vec![Key::Outbox(told.clone())];
        keys.extend(names.iter().map(|name| Key::Outbox(format!("{told}@{name}"))));
        let rows = self.store.read(&PipelineId::system(), &keys).await?;
        let (mut waiting, mut lost) = (Vec::new(), Vec::new());
        let names = std::iter::once("the notifier").chain(names.iter().map(String::as_str));
        for (name, row) in names.zip(rows) {
            let Some(Record::Outbox(row)) = row.map(|row| row.record) else { continue };
            if row.dead {
                lost.push(name.to_owned());
            } else if row.held.is_none() {
                // What somebody silenced is not lost.
                waiting.push(name.to_owned());
            }
        }
        Ok(match (lost.is_empty(), waiting.is_empty()) {
            (false, _) => Way::Lost(lost),
            (true, false) => Way::Waiting(waiting),
            (true, true) => Way::Arrived,
        })
    }

    async fn say(
        &mut self,
        last: &LastBark,
        events: Vec<EventRecord>,
    ) -> Result<(), WatchdogError> {
        let (pipeline, writer) = (PipelineId::system(), self.writer);
        let record = Record::Due(last.to_record());
        let mut changes = vec![Change::Put(LastBark::key(), Expect::Any, record)];
        changes.extend(events.into_iter().map(Arc::new).map(Change::Append));
        let group = Group { pipeline, writer, changes };
        // Somebody who was faster changed the incident: it is looked at again in a second.
        let _left = self.make_durable(vec![Planned::only(group)]).await?;
        Ok(())
    }
}

fn lost(names: &[String], how: &str, now: Timestamp) -> EventRecord {
    let message = format!("the test alert {how} {}", names.join(", "));
    tracing::error!("{message}");
    system_event("BARK_LOST", message, now)
}
