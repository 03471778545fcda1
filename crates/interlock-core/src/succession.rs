//! Schedules that come and go: where the watermarks of a pipeline's schedules begin when it is declared anew, and which
//! slots nobody owes because their schedule was not there.
//!
//! A schedule's id may change although its owner means the same one: entries of a list without ids are named after their
//! expressions. So what comes in the place of what goes takes over where that stood, or an edit made while nobody
//! was watching would lose everything that was missed. What went away, and what was away for a while, is recorded
//! as such: no instant is left without an answer (S3).

use jiff::Timestamp;

use crate::{agenda::Agenda, id::ScheduleId, pipeline::StartSchedule};

/// A pipeline that is declared anew, or not any more.
#[derive(Debug)]
pub struct Heir<'a, F> {
    /// What was declared, if its slots were owed to anybody.
    pub old: Option<&'a Agenda>,
    /// What was last declared, whether owed or not: by it a time away is told.
    pub last: Option<&'a Agenda>,
    /// What is declared now; nothing if its file is gone.
    pub new: Option<&'a Agenda>,
    /// How far a schedule is recorded.
    pub watermark: F,
    /// Whether nothing from before now is left to be planned: what was due is recorded.
    pub is_settled: bool,
    /// Now.
    pub now: Timestamp,
}

/// What becomes of its schedules.
#[derive(Debug, Default)]
pub struct Succession<'a> {
    /// Those that have no watermark, and where it begins.
    pub begins: Vec<(&'a ScheduleId, Timestamp)>,
    /// Slots of those that went, or that come back.
    pub away: Vec<Away<'a>>,
}

/// A time in which a schedule was not declared.
#[derive(Debug, Clone, Copy)]
pub struct Away<'a> {
    /// Which schedule.
    pub start: &'a StartSchedule,
    /// The last instant that is recorded.
    pub from: Timestamp,
    /// The last instant of it.
    pub until: Timestamp,
    /// Whether it is declared from now on.
    pub is_back: bool,
}

impl<'a, F: Fn(&ScheduleId) -> Option<Timestamp>> Heir<'a, F> {
    /// What becomes of the schedules.
    pub fn succeed(&self) -> Succession<'a> {
        let old = || self.old.into_iter().flat_map(Agenda::timed);
        let new = || self.new.into_iter().flat_map(Agenda::timed);
        let gone = old().filter(|was| !new().any(|is| is.schedule.id() == was.schedule.id()));
        let gone = gone.filter_map(|start| Some((start, (self.watermark)(start.schedule.id())?)));
        let away = gone.map(|(start, from)| Away { start, from, until: self.now, is_back: false });
        let away: Vec<_> = away.collect();
        let inherited = away.iter().map(|gone| gone.from).min().filter(|_| !self.is_settled);
        let mut succession = Succession { begins: vec![], away };
        for start in self.new.into_iter().flat_map(|new| &new.starts).filter(|it| !it.is_switch()) {
            let id = start.schedule.id();
            let first = start.first_watermark(self.now);
            let begin = inherited.map_or(first, |inherited| inherited.min(first));
            match (self.watermark)(id) {
                None => succession.begins.push((id, begin)),
                Some(from)
                    if from < begin
                        && new().any(|it| it.schedule.id() == id)
                        && !old().any(|it| it.schedule.id() == id) =>
                {
                    let mut last = self.last.into_iter().flat_map(Agenda::timed);
                    let start = last.find(|it| it.schedule.id() == id).unwrap_or(start);
                    succession.away.push(Away { start, from, until: begin, is_back: true });
                }
                Some(_) => {}
            }
        }
        succession
    }
}

#[cfg(test)]
mod tests;
