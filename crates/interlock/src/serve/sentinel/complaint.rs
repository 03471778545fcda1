//! What is wrong with this process, judged from what it did: pure, with time handed in.

use std::time::Duration;

use tokio::time::Instant;

/// A store that takes longer to take a write is not believed to.
const STORE_ANSWERS_IN: Duration = Duration::from_secs(10);
/// So long nothing may be delivered once something could not be.
const OUTBOX_DRAINS_IN: Duration = Duration::from_mins(5);

/// Something that is wrong with this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// What, so that it is told once: `store`, `loop engine` …
    pub(crate) what: String,
    /// In a sentence.
    pub(crate) says: String,
}

impl Complaint {
    pub(crate) fn new(what: impl Into<String>, says: impl Into<String>) -> Self {
        Self { what: what.into(), says: says.into() }
    }
}

/// Whether the store takes writes, by what came of asking it.
#[derive(Debug, Default)]
pub(crate) struct StoreWatch {
    asked_at: Option<Instant>,
    failure: Option<String>,
    /// Whether it ever took a write.
    is_proven: bool,
}

impl StoreWatch {
    pub(crate) fn asked(&mut self, now: Instant) {
        self.asked_at = Some(now);
    }

    pub(crate) fn answered(&mut self, answer: Result<(), String>) {
        self.asked_at = None;
        self.is_proven |= answer.is_ok();
        self.failure = answer.err();
    }

    /// Whether it ever took a write. Until then there is nothing to complain of, and nothing to rely on.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    pub(crate) fn complaint(&self, now: Instant) -> Option<Complaint> {
        let waits = self.asked_at.map(|asked| now.saturating_duration_since(asked));
        let hangs = waits.filter(|waits| *waits > STORE_ANSWERS_IN);
        let hangs =
            hangs.map(|waits| format!("it has not taken a write for {} s", waits.as_secs()));
        let says = hangs.or_else(|| self.failure.clone())?;
        Some(Complaint::new("store", format!("the store: {says}")))
    }
}

/// Whether what is to be told goes out, by what was counted.
#[derive(Debug, Default)]
pub(crate) struct OutboxWatch {
    delivered: u64,
    failed: u64,
    /// Since when something failed and nothing was delivered.
    stuck_since: Option<Instant>,
}

impl OutboxWatch {
    /// Looks at what was delivered so far, and what was not.
    pub(crate) fn look(&mut self, delivered: u64, failed: u64, now: Instant) -> Option<Complaint> {
        if delivered > self.delivered {
            self.stuck_since = None;
        } else if failed > self.failed {
            self.stuck_since.get_or_insert(now);
        }
        (self.delivered, self.failed) = (delivered, failed);
        let stuck = now.saturating_duration_since(self.stuck_since?);
        (stuck > OUTBOX_DRAINS_IN).then(|| {
            let minutes = stuck.as_secs() / 60;
            Complaint::new("outbox", format!("nothing could be delivered for {minutes} minutes"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_fails_or_hangs_is_complained_of_until_it_takes_a_write() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watch = StoreWatch::default();
        assert!(watch.complaint(at(100)).is_none() && !watch.is_proven());
        watch.asked(at(100));
        assert_eq!(watch.complaint(at(110)), None);
        let hangs = watch.complaint(at(111)).unwrap();
        assert_eq!(hangs.says, "the store: it has not taken a write for 11 s");
        watch.answered(Err("the disk is full".into()));
        assert_eq!(watch.complaint(at(112)).unwrap().says, "the store: the disk is full");
        watch.asked(at(113));
        assert!(watch.complaint(at(114)).is_some(), "it has not yet been taken back");
        watch.answered(Ok(()));
        assert!(watch.complaint(at(115)).is_none() && watch.is_proven());
    }

    #[test]
    fn an_outbox_is_stuck_when_for_five_minutes_things_failed_and_nothing_went_out() {
        let start = Instant::now();
        let mut watch = OutboxWatch::default();
        let mut look = |delivered, failed, seconds| {
            watch.look(delivered, failed, start + Duration::from_secs(seconds)).is_some()
        };
        assert!(!look(0, 0, 0) && !look(0, 0, 9_999), "nothing to deliver is no failure");
        assert!(!look(0, 1, 10_000) && !look(0, 2, 10_300) && look(0, 2, 10_301));
        assert!(!look(1, 2, 10_302), "something went out");
        assert!(!look(1, 3, 10_400) && !look(2, 4, 10_600) && !look(2, 4, 11_000));
    }
}
