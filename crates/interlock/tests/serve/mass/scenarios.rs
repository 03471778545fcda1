//! The mass events, one function each.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Duration,
};

use interlock_store::{LedgerEntry, LedgerQuery, LedgerRow, block_on};
use jiff::{SignedDuration, Timestamp};

use super::{
    Report,
    judge::Expected,
    observer::address,
    pings::{Ping, ping_all},
    site::{Engine, Readiness, Site, in_seconds, since},
};

/// How much, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) pipelines: usize,
    /// How long it is looked at after all is told: the owner closes a minute later what the watchdog has closed.
    pub(crate) stay: Duration,
}

/// What a scenario measured, each by its name.
pub(crate) type Figures = Vec<(&'static str, String)>;

type Scenario = fn(Engine, Size) -> Report;

/// All of them.
pub(crate) const SCENARIOS: [(&str, Scenario); 6] = [
    ("miss", miss),
    ("failure", failure),
    ("edit", edit),
    ("pings", pings),
    ("slow", slow),
    ("restart", restart),
];

/// How long a site may take to serve all pipelines, to tell all alerts.
const SERVED_IN: Duration = Duration::from_mins(3);
const TOLD_IN: Duration = Duration::from_mins(5);
/// People's last digest comes after the last alert of programs, and a store that is slow takes its time.
const GRACE: SignedDuration = SignedDuration::from_secs(5);
const PAGE: usize = 5_000;

impl Size {
    /// When the mass event comes at the earliest: all pipelines must be served before it.
    fn lead(self) -> u64 {
        6 + self.pipelines as u64 / 250
    }
}

/// A site that serves all pipelines, and the instant of their event; on a machine that was too slow once more, with twice the time.
fn ready(
    (engine, size): (Engine, Size),
    text: impl Fn(&Site, Timestamp) -> String,
) -> (Site, Timestamp, Figures) {
    let mut lead = size.lead();
    loop {
        let mut site = Site::new(engine, size.pipelines);
        let at = in_seconds(lead);
        site.write_all(&text(&site, at));
        let took = site.serve(SERVED_IN);
        lead *= 2;
        if Timestamp::now() < at || lead > SERVED_IN.as_secs() {
            if Timestamp::now() >= at {
                site.faults.push("it was never ready in time".to_owned());
            }
            let took = took.map_or_else(|| "never".to_owned(), |took| format!("{took:.1?}"));
            return (site, at, vec![("served after", took)]);
        }
    }
}

fn watch_only(at: Timestamp) -> String {
    format!(
        "name: NAME\nschedules: [{{id: h, every: 1h, anchor: '{at}', grace: 5s}}]\ntrigger: {{type: external}}\n"
    )
}

/// Everything that waits for the same upstream misses one instant.
pub(crate) fn miss(engine: Engine, size: Size) -> Report {
    let (mut site, at, mut figures) = ready((engine, size), |_, at| watch_only(at));
    let expected = Expected::of_all(&site, "SCHEDULE_MISSED", "schedule_missed");
    until_told(&mut site, &expected);
    site.stay(size.stay);
    figures.extend(told_figures(&site, &expected, at + GRACE));
    conclude("miss", site, &expected, figures, at)
}

/// Everything fails, three times each: a local server answers 500. Commands would measure how fast processes are made.
fn failure(engine: Engine, size: Size) -> Report {
    let (mut site, at, mut figures) = ready((engine, size), |site, at| {
        let url = &site.receiver.url;
        format!(
            "name: NAME\nschedule: {{at: '{at}'}}\nretry: {{maxAttempts: 3, backoffSeconds: 2, backoffMultiplier: 1}}\n\
             trigger: {{type: http, url: '{url}/job/NAME'}}\n"
        )
    });
    let expected = Expected::of_all(&site, "RETRY_EXHAUSTED", "job_failed");
    until_told(&mut site, &expected);
    site.stay(size.stay);
    let jobs = site.receiver.jobs();
    let wrong: Vec<_> = jobs.iter().filter(|(_, times)| **times != 3).take(5).collect();
    if jobs.len() != size.pipelines || !wrong.is_empty() {
        site.faults.push(format!("{} jobs were asked for; not three times: {wrong:?}", jobs.len()));
    }
    figures.extend(told_figures(&site, &expected, at));
    conclude("failure", site, &expected, figures, at)
}

/// Every file is written anew.
fn edit(engine: Engine, size: Size) -> Report {
    let text = watch_only(in_seconds(3_500));
    let (mut site, _, mut figures) = ready((engine, size), |_, _| text.clone());
    let began = Timestamp::now();
    site.write_all(&text.replace("grace: 5s", "grace: 6s"));
    let written = Timestamp::now();
    let pipelines = size.pipelines;
    site.within("every edit is in the ledger", TOLD_IN, |_, seen| {
        (seen.events_of("PIPELINE_CHANGED") >= pipelines).then_some(())
    });
    site.stay(size.stay / 3);
    let seen = site.observer.seen();
    if seen.events_of("PIPELINE_CHANGED") != pipelines {
        let count = seen.events_of("PIPELINE_CHANGED");
        site.faults.push(format!("{count} changes of {pipelines} pipelines"));
    }
    figures.push(("files written", since(began, Some(written))));
    figures.push(("written → all in the ledger", since(written, seen.last_of("PIPELINE_CHANGED"))));
    let none = Expected { pipelines: BTreeSet::new(), ..Expected::of_all(&site, "", "") };
    conclude("edit", site, &none, figures, began)
}

/// Everybody reports around one deadline, over a few connections. A ping that was answered before the deadline is in time; one that
/// came after may find that its slot was missed, and ends that.
fn pings(engine: Engine, size: Size) -> Report {
    let (mut site, at, mut figures) = ready((engine, size), |_, at| watch_only(at));
    let deadline = at + GRACE;
    let begin = deadline - SignedDuration::from_millis(500 + size.pipelines as i64 / 8);
    until(begin.max(at + SignedDuration::from_millis(200)));
    let address = address(&site.project.folder().join("http.json")).unwrap();
    let sent = ping_all(address, &site.names().collect::<Vec<_>>());
    let refused: Vec<_> = sent.iter().filter(|ping| ping.status != "200").take(3).collect();
    if !refused.is_empty() {
        site.faults.push(format!("pings were not answered with 200: {refused:?}"));
    }
    let pipelines = size.pipelines;
    site.within("every slot is completed", TOLD_IN, |site, seen| {
        // Which events say so depends on whether it was missed; the ledger is read once something has come of each.
        let decided = seen.events.values().map(|of_kind| of_kind.count).sum::<usize>() > pipelines;
        (decided && completed_at(site, at).len() == pipelines).then_some(())
    });
    let missed = judge_pings(&mut site, &sent, at, deadline);
    let expected = Expected {
        is_resolved: true,
        pipelines: missed,
        ..Expected::of_all(&site, "SCHEDULE_MISSED", "schedule_missed")
    };
    until_told(&mut site, &expected);
    site.stay(size.stay);
    let in_time = sent.iter().filter(|ping| ping.answered < deadline).count();
    let last = sent.iter().map(|ping| ping.answered).max();
    let first = sent.iter().map(|ping| ping.sent).min().unwrap_or(at);
    figures.push(("pings answered in", since(first, last)));
    figures.push(("in time, missed", format!("{in_time}, {}", expected.pipelines.len())));
    conclude("pings", site, &expected, figures, at)
}

/// Everything misses one instant while the store is slow, from before it until a minute later.
fn slow(engine: Engine, size: Size) -> Report {
    let (mut site, at, mut figures) = ready((engine, size), |_, at| watch_only(at));
    until(at - SignedDuration::from_secs(3));
    let slowness = site.slow_down();
    thread::sleep(Duration::from_mins(1));
    drop(slowness);
    let expected = Expected::of_all(&site, "SCHEDULE_MISSED", "schedule_missed");
    until_told(&mut site, &expected);
    site.stay(size.stay);
    figures.extend(told_figures(&site, &expected, at + GRACE));
    conclude("slow", site, &expected, figures, at)
}

/// Everything misses one instant; the process is killed while alerts are on their way, and once more when all is quiet: with as many
/// open incidents as pipelines, and five times as many open slots.
fn restart(engine: Engine, size: Size) -> Report {
    let (mut site, at, mut figures) = ready((engine, size), |_, at| {
        let open = (0..5).map(|number| {
            format!(", {{id: open{number}, every: 24h, anchor: '{at}', grace: 20h}}")
        });
        watch_only(at).replace("}]", &format!("}}{}]", open.collect::<String>()))
    });
    let half = size.pipelines / 2;
    site.within("half is told", TOLD_IN, |site, _| {
        (site.receiver.count("/program") > half).then_some(())
    });
    let mut took = Vec::new();
    site.kill();
    took.extend(site.serve(SERVED_IN));
    let expected =
        Expected { kills: 1, ..Expected::of_all(&site, "SCHEDULE_MISSED", "schedule_missed") };
    until_told(&mut site, &expected);
    site.stay(Duration::from_secs(20));
    let told = site.receiver.count("/program");
    site.kill();
    took.extend(site.serve(SERVED_IN));
    site.stay(size.stay);
    let again = site.receiver.count("/program") - told;
    if again > 0 {
        site.faults.push(format!("{again} alerts were told again after a kill when all was quiet"));
    }
    let slots = site.open_slots();
    if !(size.pipelines * 5..=size.pipelines * 5 + 5).contains(&slots) {
        site.faults.push(format!("{slots} slots are open, {} should be", size.pipelines * 5));
    }
    figures.push(("restarts", format!("{took:.1?}")));
    figures.push(("open slots", slots.to_string()));
    figures.extend(told_figures(&site, &expected, at + GRACE));
    conclude("restart", site, &expected, figures, at)
}

fn until_told(site: &mut Site, expected: &Expected) {
    let told =
        site.within("everybody is told", TOLD_IN, |site, _| expected.is_told(site).then_some(()));
    if told.is_none() {
        let count = site.receiver.count("/program");
        site.faults.push(format!("{count} of {} alerts reached the webhook", expected.messages()));
    }
}

fn until(instant: Timestamp) {
    let left = instant.duration_since(Timestamp::now());
    thread::sleep(Duration::try_from(left).unwrap_or_default());
}

fn told_figures(site: &Site, expected: &Expected, deadline: Timestamp) -> Figures {
    let durable = site.observer.seen().last_of(expected.kind);
    let told = site.receiver.messages("/program").iter().filter_map(|message| message.at).max();
    vec![
        ("deadline → all durable", since(deadline, durable)),
        ("deadline → all told", since(deadline, told)),
    ]
}

/// Judges, and writes the row of the table.
fn conclude(
    name: &'static str,
    mut site: Site,
    expected: &Expected,
    mut figures: Figures,
    from: Timestamp,
) -> Report {
    let lag = site.neighbour_lag(from - SignedDuration::from_secs(2));
    // A store that is slow is not ready, and says so.
    let readiness = if name == "slow" { Readiness::ComesAndGoes } else { Readiness::Always };
    let seen = site.judge_health(readiness);
    figures.extend(expected.judge(&mut site));
    figures.push(("neighbour's lag", format!("{lag:.2} s")));
    figures.push(("loops still", format!("{:.2} s", seen.longest_still())));
    figures.push(("rss", format!("{:.0} MB", seen.rss_mb)));
    figures.push(("took", since(site.began(), Some(Timestamp::now()))));
    let mut log = site.warnings();
    if !site.faults.is_empty() {
        log.push_str(&site.log_tail());
    }
    Report { name, figures, faults: site.faults, log }
}

/// The pipelines whose slot of an instant is completed, each with whether it was missed before.
fn completed_at(site: &Site, at: Timestamp) -> BTreeMap<String, bool> {
    let store = site.store();
    let mut query = LedgerQuery::everything(PAGE);
    let mut found = BTreeMap::new();
    loop {
        let page = block_on(store.ledger(&query)).unwrap();
        query.after = page.items.last().map(LedgerRow::place);
        for row in page.items {
            let LedgerEntry::Slot(slot) = row.entry else { continue };
            if row.nominal == at && slot.disposition.as_deref() == Some("completed") {
                found.insert(row.pipeline.to_string(), slot.marks.missed_at.is_some());
            }
        }
        if !page.more {
            found.remove("neighbour");
            return found;
        }
    }
}

/// What was answered in time is not missed; says which were.
fn judge_pings(
    site: &mut Site,
    pings: &[Ping],
    at: Timestamp,
    deadline: Timestamp,
) -> BTreeSet<String> {
    let slots = completed_at(site, at);
    let wronged: Vec<_> = pings
        .iter()
        .filter(|ping| ping.answered < deadline && slots.get(&ping.pipeline) == Some(&true))
        .collect();
    if let Some(first) = wronged.first() {
        site.faults.push(format!("{} pings in time were called missed: {first:?}", wronged.len()));
    }
    slots.into_iter().filter(|(_, is_missed)| *is_missed).map(|(name, _)| name).collect()
}
