//! Schedules: all their spellings become one list of start and control schedules.
//!
//! `schedule` is a cron expression, a list, or a map that is either one schedule or start, stop and
//! restart; `schedules` is a list. Ids are chosen so that reordering a list changes nothing.

mod recurrence;

use interlock_core::{
    calendar::DayFilter,
    cron::{Cron, CronText, Seconds},
    id::ScheduleId,
    pipeline::{ControlAction, ControlSchedule, StartSchedule},
    readiness::SensorRule,
    schedule::{Dst, Gap, NeverFires, Overlap, Recurrence, Schedule, Timing},
    zone::Zone,
};
use jiff::{SignedDuration, Timestamp};

use self::recurrence::Found;
use super::{Decoder, days::all_but, flag, text};
use crate::{
    problem::Code,
    source::Span,
    yaml::{Node, Value},
    zones,
};

const GRACE: SignedDuration = SignedDuration::from_mins(5);
const START_GRACE: SignedDuration = SignedDuration::from_mins(1);
const DURATION_MAX: SignedDuration = SignedDuration::from_hours(24);

/// What a pipeline says for all its schedules.
pub(super) struct Shared {
    pub(super) zone: Zone,
    pub(super) days: DayFilter,
    pub(super) grace: Option<(SignedDuration, Span)>,
    pub(super) start_grace: Option<SignedDuration>,
    pub(super) watch_only: WatchOnly,
    /// How cron expressions that stand alone are read.
    pub(super) seconds: Seconds,
}

/// Whether Interlock only watches (`trigger: {type: external}`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchOnly {
    Yes,
    No,
}

/// Everything that `schedule` and `schedules` say.
#[derive(Default)]
pub(super) struct Schedules {
    pub(super) starts: Vec<StartSchedule>,
    pub(super) controls: Vec<ControlSchedule>,
    /// Sensor conditions of schedules that have a time of their own.
    pub(super) conditions: Vec<SensorRule>,
    /// Ids that are taken.
    ids: Vec<ScheduleId>,
}

/// How an entry without an id gets one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The only one: named by its kind.
    Single,
    /// One of a list: named by what it says.
    Listed,
}

impl Decoder<'_> {
    pub(super) fn schedules(&mut self, root: &Node, shared: &Shared) -> Schedules {
        let mut all = Schedules::default();
        if let (Some(_), Some(entry)) = (root.get("schedule"), root.entry("schedules")) {
            self.problems.add(
                entry.key_span,
                Code::Conflict,
                "`schedule` and `schedules` are both there",
                "Move the one into the other.",
            );
        }
        if let Some(node) = root.get("schedules") {
            self.starts(node, Place::Listed, shared, &mut all);
        } else if let Some(node) = root.get("schedule") {
            self.schedule(node, shared, &mut all);
        } else {
            self.starts(&Node::empty_map(root.span), Place::Single, shared, &mut all);
        }
        all
    }

    fn schedule(&mut self, node: &Node, shared: &Shared, all: &mut Schedules) {
        let start_stop = ["start", "stop", "restart"];
        if start_stop.iter().all(|key| node.get(key).is_none()) {
            let place = if is_list(node) { Place::Listed } else { Place::Single };
            return self.starts(node, place, shared, all);
        }
        for key in ["cron", "every", "at", "time", "dates", "sensor", "id"] {
            if let Some(entry) = node.entry(key) {
                let message = format!("`{key}` cannot stand beside start, stop and restart");
                self.problems.add(entry.key_span, Code::Conflict, message, "Put it under `start`.");
            }
        }
        let shared = &self.narrowed(node, shared);
        if let Some(start) = node.get("start") {
            let place = if is_list(start) { Place::Listed } else { Place::Single };
            self.starts(start, place, shared, all);
        }
        for (key, action) in [("stop", ControlAction::Stop), ("restart", ControlAction::Restart)] {
            let items = node.get(key).map(Node::items).unwrap_or_default();
            for item in items {
                let several = items.len() > 1;
                if let Some(schedule) = self.control(item, key, several.then_some(item), shared) {
                    all.controls.push(ControlSchedule { schedule, action });
                }
            }
        }
    }

    /// Zone and days that a start/stop/restart map says for all of its entries.
    fn narrowed(&mut self, node: &Node, shared: &Shared) -> Shared {
        let mut days = shared.days.clone();
        self.add_days(node, &mut days);
        Shared {
            zone: self.zone(node, "timezone").unwrap_or_else(|| shared.zone.clone()),
            days,
            grace: shared.grace,
            start_grace: shared.start_grace,
            watch_only: shared.watch_only,
            seconds: seconds(node),
        }
    }

    fn control(
        &mut self,
        node: &Node,
        kind: &'static str,
        one_of_several: Option<&Node>,
        shared: &Shared,
    ) -> Option<Schedule> {
        let cron = self.cron(node, shared.seconds)?;
        let zone = self.cron_zone(node, &cron).unwrap_or_else(|| shared.zone.clone());
        let id = match one_of_several {
            Some(_) => ScheduleId::hashed(kind, cron.cron.as_str()),
            None => ScheduleId::from_static(kind),
        };
        let timing = Timing {
            zone,
            dst: Dst::default(),
            days: shared.days.clone(),
            from: None,
            until: None,
        };
        self.fires(id, Recurrence::Cron(cron.cron), timing, node)
    }

    fn starts(&mut self, node: &Node, place: Place, shared: &Shared, all: &mut Schedules) {
        for item in node.items().iter().filter(|item| item.value != Value::Null) {
            let Some(found) = self.recurrence(item, shared) else { continue };
            let Some(id) = self.id_of(item, &found.recurrence, place) else { continue };
            if all.ids.contains(&id) {
                self.duplicate(item, &id);
                continue;
            }
            all.ids.push(id.clone());
            all.conditions.extend(found.condition.clone());
            all.starts.extend(self.start(item, id, found, shared));
        }
        if is_list(node) && node.items().is_empty() {
            let message = "there is no schedule in the list";
            self.problems.add(node.span, Code::NoValue, message, "Add one, or remove the key.");
        }
    }

    fn start(
        &mut self,
        node: &Node,
        id: ScheduleId,
        found: Found,
        shared: &Shared,
    ) -> Option<StartSchedule> {
        let mut days = shared.days.clone();
        self.add_days(node, &mut days);
        if !matches!(found.recurrence, Recurrence::At { .. })
            && let Some(kept) = self.weekdays(node, "days")
        {
            days.exclude.extend(all_but(kept));
        }
        days.include.extend(found.include);
        let timing = Timing {
            dst: dst(node),
            days,
            from: self.lower_bound(node, &found.zone),
            until: self.instant(node, "until", &found.zone),
            zone: found.zone,
        };
        let keys = ["cron", "every", "dates", "at", "time", "sensor"];
        let at = keys.into_iter().find_map(|key| node.get(key)).unwrap_or(node);
        let schedule = self.fires(id, found.recurrence, timing, at)?;
        let start_grace = self.duration(node, "startGrace").or(shared.start_grace);
        Some(StartSchedule {
            deadline: self.deadline(node, "deadline").or(found.deadline),
            grace: self.grace(node, &schedule, shared),
            start_grace: start_grace.unwrap_or(START_GRACE),
            early: self.early(node, &schedule),
            duration_max: self.seconds(node, "maxDuration").unwrap_or(DURATION_MAX),
            jitter: self.duration(node, "jitter").unwrap_or(SignedDuration::ZERO),
            schedule,
        })
    }

    fn lower_bound(&mut self, node: &Node, zone: &Zone) -> Option<Timestamp> {
        if node.get("from").and_then(Node::text) == Some("last") {
            return None;
        }
        self.instant(node, "from", zone)
    }

    /// Grace as written, which must fit between two slots; the default shrinks to fit.
    fn grace(&mut self, node: &Node, schedule: &Schedule, shared: &Shared) -> SignedDuration {
        let own = self.duration(node, "grace");
        let own = own.zip(node.get("grace").map(|node| node.span));
        let gap = shortest_gap(schedule);
        let Some((grace, span)) = own.or(shared.grace) else {
            return gap.map_or(GRACE, |gap| GRACE.min(gap));
        };
        if let Some(gap) = gap.filter(|gap| grace > *gap) {
            let (id, gap) = (schedule.id(), interlock_core::duration::format(gap));
            let message =
                format!("`grace` is longer than the gap between two slots of `{id}`, {gap}");
            let help = format!("Write at most `{gap}`.");
            self.problems.add(span, Code::GraceTooLong, message, help);
        }
        grace
    }

    /// Early as written: a report that is as early as a whole gap would always be the next slot's.
    fn early(&mut self, node: &Node, schedule: &Schedule) -> Option<SignedDuration> {
        let early = self.duration(node, "early")?;
        if let Some(gap) = shortest_gap(schedule).filter(|gap| early >= *gap) {
            let (id, gap) = (schedule.id(), interlock_core::duration::format(gap));
            let message =
                format!("`early` is not shorter than the gap between two slots of `{id}`, {gap}");
            let help = format!("Write less than `{gap}`; a tenth of it is the default.");
            let span = node.get("early").map_or(node.span, |node| node.span);
            self.problems.add(span, Code::EarlyTooLong, message, help);
        }
        Some(early)
    }

    fn fires(
        &mut self,
        id: ScheduleId,
        recurrence: Recurrence,
        timing: Timing,
        at: &Node,
    ) -> Option<Schedule> {
        let day_fields =
            if let Recurrence::Cron(cron) = &recurrence { Some(cron.day_fields()) } else { None };
        match Schedule::new(id, recurrence, timing) {
            Ok(schedule) => Some(schedule),
            Err(never) => {
                // When no day of an expression matches, its day fields are the place to look at.
                let span = match (never, day_fields) {
                    (NeverFires::Recurrence, Some(fields)) => at.span_within(fields),
                    _ => at.span,
                };
                self.problems.add(span, Code::NeverFires, never.to_string(), "");
                None
            }
        }
    }

    fn id_of(&mut self, node: &Node, recurrence: &Recurrence, place: Place) -> Option<ScheduleId> {
        if let Some(node) = node.get("id") {
            return self.read(node, Code::Name, ScheduleId::parse);
        }
        let written = |key: &str| text(node, key).unwrap_or_default();
        Some(match (recurrence, place) {
            (Recurrence::Daily, _) => ScheduleId::from_static("daily"),
            (Recurrence::Sensor { .. }, Place::Single) => ScheduleId::from_static("stream"),
            (Recurrence::Sensor { rule, .. }, Place::Listed) => {
                ScheduleId::hashed("stream", &rule.key)
            }
            (_, Place::Single) => ScheduleId::from_static("cron"),
            (Recurrence::Cron(cron), Place::Listed) => ScheduleId::hashed("cron", cron.as_str()),
            (Recurrence::Every { .. } | Recurrence::SinceLast { .. }, Place::Listed) => {
                ScheduleId::hashed("every", &written("every"))
            }
            (Recurrence::Dates { dates, time }, Place::Listed) => {
                let dates: Vec<_> = dates.iter().map(ToString::to_string).collect();
                ScheduleId::hashed("dates", &format!("{} {time}", dates.join(",")))
            }
            (Recurrence::At { time, .. }, Place::Listed) => {
                ScheduleId::hashed("at", &time.to_string())
            }
            (Recurrence::Once(at), Place::Listed) => ScheduleId::hashed("at", &at.to_string()),
        })
    }

    fn duplicate(&mut self, node: &Node, id: &ScheduleId) {
        let (at, help) = match node.get("id") {
            Some(id) => (id.span, "Choose another id."),
            None => (node.span, "Give each of them an `id`, or remove one."),
        };
        let message = format!("two schedules of this pipeline have the id `{id}`");
        self.problems.add(at, Code::DuplicateSchedule, message, help);
    }

    /// A cron expression; what is legal but surprising is a warning.
    fn cron(&mut self, node: &Node, seconds: Seconds) -> Option<CronText> {
        let cron = self.read(node, Code::Cron, |text| Cron::parse(text, seconds))?;
        for warning in &cron.warnings {
            let span = node.span_within(warning.span.clone());
            self.problems.add_text(span, Code::CronSurprise, warning.clone());
        }
        Some(cron)
    }

    /// The zone of a `CRON_TZ=` prefix.
    fn cron_zone(&mut self, node: &Node, cron: &CronText) -> Option<Zone> {
        let (name, place) = cron.zone.as_ref()?;
        if self.problems.is_full() {
            return self.around.zones.zone(name);
        }
        match zones::resolve(self.around.zones, name) {
            Ok(zone) => Some(zone),
            Err(error) => {
                self.problems.add_text(node.span_within(place.clone()), Code::Zone, error);
                None
            }
        }
    }
}

fn is_list(node: &Node) -> bool {
    matches!(node.value, Value::List(_))
}

/// Whether cron expressions have a field for seconds.
fn seconds(node: &Node) -> Seconds {
    match flag(node, "seconds") {
        Some(true) => Seconds::Present,
        Some(false) | None => Seconds::Absent,
    }
}

fn dst(node: &Node) -> Dst {
    let Some(node) = node.get("dst") else { return Dst::default() };
    let word = |key| node.get(key).and_then(Node::text);
    Dst {
        gap: word("gap").map(|word| if word == "skip" { Gap::Skip } else { Gap::RunAfter }),
        overlap: word("overlap").map(|word| match word {
            "both" => Overlap::Both,
            "second" => Overlap::Second,
            _ => Overlap::First,
        }),
    }
}

/// The shortest time between two slots, as far as a sample of them tells.
fn shortest_gap(schedule: &Schedule) -> Option<SignedDuration> {
    const SAMPLE: usize = 100;
    // Any fixed time will do: validation must not depend on when it is run. These years have one leap day; more
    // of them would make a schedule that seldom fires slow to load.
    const FROM: Timestamp = Timestamp::constant(1_767_225_600, 0);
    const TO: Timestamp = Timestamp::constant(1_893_456_000, 0);
    let slots = schedule.slots(FROM, TO, SAMPLE).found;
    slots.windows(2).map(|pair| pair[1].duration_since(pair[0])).min()
}
