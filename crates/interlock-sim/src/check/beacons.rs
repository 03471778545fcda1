//! Whether somebody outside hears the truth about the instances (L5).
//!
//! The outside knows only when an instance last said that it is well. It must not say so when one of its loops has stood
//! still for too long, or when no write of its has reached the store for too long; and in calm weather it must say so
//! again and again, or somebody is woken for nothing. What really stands still is known from whoever made it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Finding, SETTLING};
use crate::{clockwork::Pid, road::Reach};

/// What an instance promised the outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manners {
    /// How often its sentinel looks, and calls when all is well.
    pub(crate) look: SignedDuration,
    /// How long any of its loops may stand still.
    pub(crate) bound: SignedDuration,
}

/// How long the store may take, and what else passes between two looks.
const SLACK: SignedDuration = SignedDuration::from_secs(60);

/// What is known of the instances.
#[derive(Debug, Default)]
pub(crate) struct Beacons {
    manners: Option<Manners>,
    /// Since when a loop of an instance stands still.
    still: BTreeMap<(Pid, &'static str), Timestamp>,
    /// When each was last heard of.
    heard: BTreeMap<Pid, Timestamp>,
}

impl Beacons {
    pub(crate) fn expect(&mut self, manners: Manners) {
        self.manners = Some(manners);
    }

    pub(crate) fn stands_still(&mut self, pid: Pid, name: &'static str, now: Timestamp) {
        self.still.entry((pid, name)).or_insert(now);
    }

    pub(crate) fn goes_on(&mut self, pid: Pid, name: &'static str) {
        self.still.remove(&(pid, name));
    }

    /// It died, and nothing of it stands still any more.
    pub(crate) fn died(&mut self, pid: Pid) {
        self.still.retain(|(of, _), _| *of != pid);
    }

    /// An instance says that it is well.
    pub(crate) fn is_well(
        &mut self,
        pid: Pid,
        reach: Reach,
        now: Timestamp,
        calm_since: Option<Timestamp>,
    ) -> Result<(), Finding> {
        let Some(Manners { look, bound }) = self.manners else { return Ok(()) };
        // It may have been seen to come round just before, at the look after that.
        let in_time = bound + look * 4 + SLACK;
        for ((_, name), since) in self.still.iter().filter(|((of, _), _)| *of == pid) {
            // A store that is away excuses a loop, and so does a process that stood still as a whole.
            let since = (*since).max(reach.troubled_until);
            if now.duration_since(since) > in_time {
                let message = format!(
                    "instance {pid} says that it is well, and `{name}` stands still since {since}"
                );
                return Err(Finding::of("L5", message));
            }
        }
        if let Some(since) = reach.cut_since
            && now.duration_since(since) > look * 3 + SLACK
        {
            let message =
                format!("instance {pid} says that it is well, and writes nothing since {since}");
            return Err(Finding::of("L5", message));
        }
        let last = self.heard.insert(pid, now);
        Self::was_heard((pid, last), now, (look, calm_since))
    }

    /// In calm weather nobody is silent for long.
    fn was_heard(
        (pid, last): (Pid, Option<Timestamp>),
        now: Timestamp,
        (look, calm_since): (SignedDuration, Option<Timestamp>),
    ) -> Result<(), Finding> {
        let Some(since) = calm_since.map(|since| since + SETTLING) else { return Ok(()) };
        let last = last.map_or(since, |last| last.max(since));
        if now.duration_since(last) > look * 3 + SLACK {
            let message = format!("nobody heard of instance {pid} since {last}, and all is well");
            return Err(Finding::of("L5", message));
        }
        Ok(())
    }

    /// At the end everybody was heard of lately.
    pub(crate) fn were_heard(
        &self,
        pids: &[Pid],
        now: Timestamp,
        calm_since: Option<Timestamp>,
    ) -> Result<(), Finding> {
        let Some(Manners { look, .. }) = self.manners else { return Ok(()) };
        pids.iter().try_for_each(|pid| {
            Self::was_heard((*pid, self.heard.get(pid).copied()), now, (look, calm_since))
        })
    }
}
