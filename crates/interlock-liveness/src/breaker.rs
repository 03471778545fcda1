//! The breaker: a watch that expires again and again is set aside for a while, instead of being dumped and told each time.

use std::time::Duration;

use crate::clock::nanos;

/// How many expiries are remembered.
const REMEMBERED: usize = 8;

/// When a watch counts as one that keeps expiring. Only for soft ladders: a hard one ends the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// So many expiries (8 at most) …
    pub expiries: usize,
    /// … within this time …
    pub within: Duration,
    /// … set it aside for this long.
    pub open_for: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { expiries: 3, within: Duration::from_mins(10), open_for: Duration::from_mins(5) }
    }
}

/// Whether a watch is set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is judged as ever.
    Closed = 0,
    /// It is not judged; who it belongs to had better stop the futile work.
    Open = 1,
    /// It has one chance: its next expiry opens it again, its next progress closes it.
    HalfOpen = 2,
}

impl State {
    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Closed,
            1 => Self::Open,
            _ => Self::HalfOpen,
        }
    }
}

/// A breaker with its memory.
#[derive(Debug)]
pub(crate) struct Fuse {
    breaker: Breaker,
    state: State,
    at: [u64; REMEMBERED],
    count: usize,
}

impl Fuse {
    pub(crate) fn new(breaker: Breaker) -> Self {
        let breaker = Breaker { expiries: breaker.expiries.clamp(1, REMEMBERED), ..breaker };
        Self { breaker, state: State::Closed, at: [0; REMEMBERED], count: 0 }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// An expiry; says for how long the watch is set aside, if it is.
    pub(crate) fn expired(&mut self, now: u64) -> Option<u64> {
        if let Some(place) = self.at.get_mut(self.count % REMEMBERED) {
            *place = now;
        }
        self.count += 1;
        let within = nanos(self.breaker.within);
        let known = self.at.iter().take(self.count);
        let recent = known.filter(|at| now.saturating_sub(**at) <= within).count();
        let opens = self.state == State::HalfOpen || recent >= self.breaker.expiries;
        opens.then(|| {
            self.state = State::Open;
            nanos(self.breaker.open_for)
        })
    }

    pub(crate) fn half_open(&mut self) {
        self.state = State::HalfOpen;
    }

    /// Progress; says whether that closed the breaker.
    pub(crate) fn moved(&mut self) -> bool {
        let closes = self.state == State::HalfOpen;
        if closes {
            (self.state, self.count) = (State::Closed, 0);
        }
        closes
    }
}
