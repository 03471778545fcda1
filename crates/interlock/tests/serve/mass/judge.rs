//! What must hold after a mass event: every incident once, every alert once where programs read it, one message where people do.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use super::{receiver::Message, site::Site};

/// So many alerts may come twice around one kill: those whose tries were under way or not settled. Each channel claims so many.
const DOUBLED_BY_A_KILL: usize = 1_000;

/// What was to be told of each pipeline.
pub(crate) struct Expected {
    /// The kind of its incident, such as `SCHEDULE_MISSED`.
    pub(crate) kind: &'static str,
    /// The type of its alert, such as `schedule_missed`.
    pub(crate) alert_type: &'static str,
    /// How many kills there were while alerts were on their way.
    pub(crate) kills: usize,
    /// Whether its end is told too.
    pub(crate) is_resolved: bool,
    /// The pipelines; all of them in most events.
    pub(crate) pipelines: BTreeSet<String>,
}

/// How many messages a burst is at most where people read: one for its first half minute, and then ever fewer.
fn digests_of(burst: SignedDuration) -> usize {
    let (mut window, mut until, mut count) =
        (SignedDuration::from_secs(30), SignedDuration::ZERO, 0);
    while until <= burst {
        (until, window, count) = (until + window, window * 2, count + 1);
    }
    count
}

impl Expected {
    /// Each pipeline of a site has an incident.
    pub(crate) fn of_all(site: &Site, kind: &'static str, alert_type: &'static str) -> Self {
        let pipelines = site.names().collect();
        Self { kind, alert_type, kills: 0, is_resolved: false, pipelines }
    }

    fn states(&self) -> &'static [&'static str] {
        if self.is_resolved { &["open", "resolved"] } else { &["open"] }
    }

    /// How many messages each channel of programs gets.
    pub(crate) fn messages(&self) -> usize {
        self.pipelines.len() * self.states().len()
    }

    /// Whether everybody has been told.
    pub(crate) fn is_told(&self, site: &Site) -> bool {
        let file = site.project.path().join("alerts.jsonl");
        let is_long = site.receiver.count("/program") >= self.messages();
        // To read the file is slow, so it comes last.
        is_long
            && self.people(site) >= self.messages() as u64
            && super::receiver::in_file(&file).len() >= self.messages()
    }

    /// How many alerts people were told of, each by itself or in a digest.
    fn people(&self, site: &Site) -> u64 {
        let messages = site.receiver.messages("/people");
        messages.iter().filter_map(|message| message.types.get(self.alert_type)).sum()
    }

    /// Says what is lost, doubled, or should not be.
    pub(crate) fn judge(&self, site: &mut Site) -> Vec<(&'static str, String)> {
        self.judge_incidents(site);
        let mut doubled_most = 0;
        for (channel, messages) in site.programs() {
            doubled_most = doubled_most.max(self.judge_channel(site, channel, &messages));
        }
        let people = site.receiver.messages("/people");
        let (told, messages) = (self.people(site), people.len());
        let burst = site.observer.seen().burst_of(self.kind);
        let most = self.states().len() * (self.kills + digests_of(burst));
        if (told as usize) < self.messages() || (self.kills == 0 && told as usize > self.messages())
        {
            site.faults.push(format!("people were told of {told} of {}", self.messages()));
        }
        if !self.pipelines.is_empty() && messages > most {
            let sizes: Vec<u64> = people.iter().map(|it| it.types.values().sum()).collect();
            let first: Vec<u64> = sizes.into_iter().take(20).collect();
            site.faults
                .push(format!("people got {messages} messages and not {most}: of {first:?} …"));
        }
        vec![("messages to people", messages.to_string()), ("doubled", doubled_most.to_string())]
    }

    fn judge_incidents(&self, site: &mut Site) {
        let state = if self.is_resolved { "resolved" } else { "open" };
        let mut found = site.incidents();
        let own = found.remove(&(self.kind.to_owned(), state.to_owned())).unwrap_or_default();
        let count = own.len();
        let own: BTreeSet<String> = own.into_iter().collect();
        if own != self.pipelines || count != own.len() {
            let missing = self.pipelines.difference(&own).count();
            site.faults.push(format!(
                "{count} incidents {} ({state}) of {} pipelines, {missing} missing",
                self.kind,
                own.len()
            ));
        }
        for ((kind, state), of) in found {
            let first = of.first().cloned().unwrap_or_default();
            site.faults
                .push(format!("{} incidents {kind} ({state}) besides, of {first}", of.len()));
        }
    }

    /// Each alert once; answers how many came more often.
    fn judge_channel(&self, site: &mut Site, channel: &str, messages: &[Message]) -> usize {
        let mut times: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut strange: BTreeMap<&str, &str> = BTreeMap::new();
        for message in messages {
            if message.alert_type == self.alert_type {
                *times.entry((&message.pipeline, &message.state)).or_default() += 1;
            } else {
                strange.insert(&message.alert_type, &message.text);
            }
        }
        let wanted =
            self.pipelines.iter().flat_map(|it| self.states().iter().map(move |state| (it, state)));
        let lost: Vec<_> =
            wanted.filter(|(it, state)| !times.contains_key(&(it.as_str(), **state))).collect();
        let doubled = times.values().filter(|times| **times > 1).count();
        if let Some(first) = lost.first() {
            site.faults.push(format!("{} alerts never reached {channel}: {first:?}", lost.len()));
        }
        if times.len() > self.messages() {
            site.faults.push(format!(
                "{} alerts reached {channel}, {} are owed",
                times.len(),
                self.messages()
            ));
        }
        if doubled > self.kills * DOUBLED_BY_A_KILL {
            site.faults.push(format!("{doubled} alerts reached {channel} more than once"));
        }
        for (alert_type, text) in strange {
            site.faults.push(format!("an alert of type {alert_type} reached {channel}: {text}"));
        }
        doubled
    }
}
