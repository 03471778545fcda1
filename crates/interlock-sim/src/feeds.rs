//! Who reports that data has come: in time, late, twice, in another order, now this and now that, about another period
//! than its own time's, or about none.
//!
//! What a report means is drawn as numbers, and its key and JSON are written from them. The checkers keep the numbers, so
//! that how a period is read from a report is judged by something that has never seen the reader.

use interlock_core::id::PipelineId;
use interlock_engine::seam::World as _;
use interlock_store::record::InboxRecord;
use jiff::{SignedDuration, Span, Timestamp, civil::Date};
use serde_json::{Value, json};

use crate::{
    clockwork::{NATURE, ProcessWorld},
    luck::seconds,
    naive,
    nemesis::Nemesis,
    random::Random,
    truth::{ARRIVED, Period, Truth},
};

/// A feed looks so far ahead for the next period.
const AHEAD: SignedDuration = SignedDuration::from_hours(49);

/// One report about data, as numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Whether it is what the schedule waits for.
    pub is_ready: bool,
    /// What its JSON names.
    pub named: Named,
    /// What its key names.
    pub in_key: Named,
    /// Whether the date of its JSON is no date.
    pub is_garbled: bool,
    /// When it says that it was.
    pub at: Timestamp,
    /// Tells reports apart that say the same.
    pub number: u64,
}

/// A date, an hour, both or nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Named {
    /// The date.
    pub date: Option<Date>,
    /// The hour.
    pub hour: Option<u8>,
}

impl Named {
    fn of((date, hour): (Date, Option<u8>)) -> Self {
        Self { date: Some(date), hour }
    }
}

impl Fact {
    /// One that is waited for, and names nothing.
    pub fn ready(at: Timestamp, number: u64) -> Self {
        let (named, in_key) = (Named::default(), Named::default());
        Self { is_ready: true, named, in_key, is_garbled: false, at, number }
    }

    /// The sensor's key.
    fn key(&self) -> String {
        match self.in_key {
            Named { date: None, .. } => ARRIVED.to_owned(),
            Named { date: Some(date), hour: None } => format!("{ARRIVED}#{date}"),
            Named { date: Some(date), hour: Some(hour) } => format!("{ARRIVED}#{date}T{hour:02}"),
        }
    }

    fn value(&self) -> Value {
        let state = if self.is_ready { "ready" } else { "loading" };
        let mut value = json!({ "state": state, "n": self.number });
        if let Some(date) = self.named.date {
            value["date"] = json!(date.to_string());
        }
        if self.is_garbled {
            value["date"] = json!("the day before yesterday");
        }
        if let Some(hour) = self.named.hour {
            value["hour"] = json!(hour);
        }
        value
    }

    /// As it is handed in.
    pub fn record(&self) -> InboxRecord {
        InboxRecord::Sensor { key: self.key(), value: self.value(), at: self.at }
    }

    /// The instants of the slots that it may be about, as a version of its pipeline has it: none if that cannot be told, or
    /// its date has no slots; two if it names an hour that is there twice.
    pub fn slots(&self, truth: &Truth) -> Vec<Timestamp> {
        let Some((_, period, _)) = truth.arrival() else { return vec![] };
        if self.is_garbled {
            return vec![];
        }
        let date = self.named.date.or(self.in_key.date);
        // The hour in a key is one of the key's date.
        let in_key = self.in_key.hour.filter(|_| self.in_key.date == date);
        match (period, date, self.named.hour.or(in_key)) {
            (Period::Day, Some(date), _) => naive::beginnings(truth, (date, None)),
            (Period::Hour, Some(date), Some(hour)) => naive::beginnings(truth, (date, Some(hour))),
            (Period::Hour, Some(_), None) | (Period::Hour, None, Some(_)) => vec![],
            (Period::Day, None, _) | (Period::Hour, None, None) => {
                // The one that it lies in, not another that shows the same.
                let shown = naive::reading(truth, period, self.at);
                let mut found = naive::beginnings(truth, shown);
                found.retain(|begin| *begin <= self.at);
                found.split_off(found.len().saturating_sub(1))
            }
        }
    }
}

/// What is reported about one period.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Never,
    InTime,
    Twice,
    Late,
    Flapping,
    OutOfOrder,
    OtherPeriod,
    ForgedTime,
    Unplaced,
}

/// Lets everybody report whose reports open slots, until an instant.
pub fn start(nemesis: &Nemesis, until: Timestamp) {
    let nature = nemesis.clockwork.process(NATURE);
    for name in nemesis.files.names() {
        let has_feed = nemesis.files.truth(&name).is_some_and(|truth| truth.arrival().is_some());
        if has_feed {
            let random = Random::of(nemesis.seed, &format!("feed {name}"));
            let (nemesis, world) = (nemesis.clone(), nature.clone());
            let feed = Feed { nemesis, world, name, random, sent: 0 };
            nature.spawn("a feed", Box::pin(feed.live(until)));
        }
    }
}

struct Feed {
    nemesis: Nemesis,
    world: ProcessWorld,
    name: PipelineId,
    random: Random,
    sent: u64,
}

impl Feed {
    async fn live(mut self, until: Timestamp) {
        let mut after = self.nemesis.clockwork.time();
        while after < until {
            let Some(truth) = self.nemesis.files.truth(&self.name) else { return };
            let Some((start, period, _)) = truth.arrival() else { return };
            let next = naive::walk(&truth, &start.pattern, after, after + AHEAD).next();
            let Some(begin) = next else {
                after += AHEAD;
                self.sleep_until(after).await;
                continue;
            };
            self.sleep_until(begin).await;
            let manner = self.draw();
            let named = naive::reading(&truth, period, begin);
            self.tell(begin, (named, period), manner).await;
            after = begin.max(after);
        }
    }

    fn draw(&mut self) -> Manner {
        let is_calm = self.nemesis.luck.is_calm();
        match self.random.below(16) {
            0 | 1 => Manner::Never,
            2 | 3 => Manner::Twice,
            4 | 5 => Manner::Late,
            _ if is_calm => Manner::InTime,
            6 | 7 => Manner::Flapping,
            8 | 9 => Manner::OutOfOrder,
            10 | 11 => Manner::OtherPeriod,
            12 => Manner::ForgedTime,
            13 => Manner::Unplaced,
            _ => Manner::InTime,
        }
    }

    /// Reports about one period; what comes late does so while the next goes on.
    async fn tell(
        &mut self,
        begin: Timestamp,
        (shown, period): ((Date, Option<u8>), Period),
        manner: Manner,
    ) {
        let unit = if period == Period::Day { 3_600 } else { 120 };
        let first = begin + seconds(self.random.between(5, unit * 6));
        let second = first + seconds(self.random.between(1, unit));
        let third = second + seconds(self.random.between(1, unit));
        let ready = self.fact(first, shown);
        let luck = self.nemesis.luck.clone();
        match manner {
            Manner::Never => luck.saw("sensor never"),
            Manner::InTime => self.says(ready, first).await,
            Manner::Twice => {
                luck.saw("sensor twice");
                self.says(ready.clone(), first).await;
                let confirmed = Fact { at: second, ..ready };
                self.says(confirmed.clone(), second).await;
                self.says(confirmed, third).await;
            }
            Manner::Late => {
                luck.saw("sensor late");
                let late = first + seconds(self.random.between(unit, unit * 30));
                self.says_later(ready, late);
            }
            Manner::Flapping => {
                luck.saw("sensor flapping");
                self.says(ready.clone(), first).await;
                let not_yet = Fact { is_ready: false, at: second, ..self.again(&ready) };
                self.says(not_yet, second).await;
                let at_last = Fact { at: third, ..self.again(&ready) };
                self.says(at_last, third).await;
            }
            Manner::OutOfOrder => {
                luck.saw("sensor out of order");
                let newer = Fact { is_ready: false, at: second, ..self.again(&ready) };
                self.says(newer, second).await;
                self.says(ready, third).await;
            }
            Manner::OtherPeriod => self.says_of_another(first, (shown, period)).await,
            Manner::ForgedTime => {
                luck.saw("sensor with a forged time");
                let by = seconds(self.random.between(60, 100_000));
                let at = if self.random.chance(500) { first - by } else { first + by };
                let fact = Fact::ready(at, self.next_number());
                self.says(fact, first).await;
            }
            Manner::Unplaced => {
                luck.saw("sensor about no period");
                let hour = Some(self.random.below(24) as u8);
                let named = Named { date: None, hour };
                let is_garbled = period == Period::Day || self.random.chance(500);
                self.says(Fact { named, is_garbled, in_key: Named::default(), ..ready }, first)
                    .await;
            }
        }
    }

    /// A report whose JSON names a period of the last days or of the next, whatever its key and its time say.
    async fn says_of_another(
        &mut self,
        first: Timestamp,
        ((date, hour), period): ((Date, Option<u8>), Period),
    ) {
        self.nemesis.luck.saw("sensor about another period");
        let days = self.random.between(0, 4) as i64 - 2;
        let other = date.checked_add(Span::new().days(days)).unwrap_or(date);
        let other_hour = hour.map(|_| self.random.below(24) as u8);
        let in_key =
            if self.random.chance(300) { Named::of((date, hour)) } else { Named::default() };
        let mut named = Named::of((other, other_hour));
        // A key that names the same date has its hour; another has none for it.
        if period == Period::Hour && self.random.chance(200) {
            named.hour = None;
        }
        let number = self.next_number();
        let fact = Fact { named, in_key, ..Fact::ready(first, number) };
        self.says(fact, first).await;
    }

    /// A report about a period, which its JSON, its key or its time says.
    fn fact(&mut self, at: Timestamp, shown: (Date, Option<u8>)) -> Fact {
        let number = self.next_number();
        let fact = Fact::ready(at, number);
        match self.random.below(3) {
            0 => Fact { named: Named::of(shown), ..fact },
            1 => Fact { in_key: Named::of(shown), ..fact },
            _ => fact,
        }
    }

    /// The same with something new in it.
    fn again(&mut self, fact: &Fact) -> Fact {
        Fact { number: self.next_number(), ..fact.clone() }
    }

    fn next_number(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    async fn says(&mut self, fact: Fact, at: Timestamp) {
        self.sleep_until(at).await;
        let key = format!("fact {}", self.next_number());
        self.nemesis.hand_in(&self.name, &key, fact);
    }

    fn says_later(&mut self, fact: Fact, at: Timestamp) {
        let key = format!("fact {}", self.next_number());
        let (nemesis, name, world) = (self.nemesis.clone(), self.name.clone(), self.world.clone());
        let wait = at.duration_since(nemesis.clockwork.time());
        let later = async move {
            world.sleep(wait).await;
            nemesis.hand_in(&name, &key, fact);
        };
        self.world.spawn("a late report", Box::pin(later));
    }

    async fn sleep_until(&self, at: Timestamp) {
        let now = self.nemesis.clockwork.time();
        if at > now {
            self.world.sleep(at.duration_since(now)).await;
        }
    }
}
