//! Signs of life that leave the process.
//!
//! A heartbeat is the aggregate of all critical watches: the monitor lets one out at the end of a look in which each was
//! within its bound. It is written on a thread of its own, because a disk may hang; if the last one is still under way, the
//! next is dropped and counted.

use std::{
    fmt, io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use crate::{clock::nanos, hooks::Expiry, watch::Section};

/// What is told to whoever waits for signs of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// Every critical watch is within its bound.
    Alive,
    /// One has expired. No beats follow until it moves again.
    Unwell(Expiry),
    /// The program ends its watching in good order.
    Stopping,
}

/// A way for signs of life to leave the process.
pub trait Carrier: Send + fmt::Debug {
    /// Lets a sign out. A failure is the carrier's to count: nobody dies of it.
    fn carry(&mut self, sign: &Sign);

    /// How often signs are wanted at least, if somebody says so.
    fn every(&self) -> Option<Duration> {
        None
    }
}

impl Carrier for Box<dyn Carrier> {
    fn carry(&mut self, sign: &Sign) {
        self.as_mut().carry(sign);
    }

    fn every(&self) -> Option<Duration> {
        self.as_ref().every()
    }
}

/// The monitor's end of the queue.
#[derive(Debug)]
pub(crate) struct Beater {
    queue: SyncSender<Sign>,
    every: u64,
    next: u64,
    has_carriers: bool,
}

/// The other end.
#[derive(Debug)]
pub(crate) struct Beats {
    queue: Receiver<Sign>,
    carriers: Vec<Box<dyn Carrier>>,
}

impl Beater {
    pub(crate) fn new(carriers: Vec<Box<dyn Carrier>>, every: Duration) -> (Self, Beats) {
        let (tell, queue) = sync_channel(1);
        let has_carriers = !carriers.is_empty();
        let every = carriers.iter().filter_map(Carrier::every).fold(every, Duration::min);
        (
            Self { queue: tell, every: nanos(every), next: 0, has_carriers },
            Beats { queue, carriers },
        )
    }

    /// Lets a beat out if one is due; says whether it was taken.
    pub(crate) fn beat(&mut self, now: u64) -> Option<bool> {
        if !self.has_carriers || now < self.next {
            return None;
        }
        self.next = now.saturating_add(self.every);
        Some(self.send(Sign::Alive))
    }

    pub(crate) fn send(&self, sign: Sign) -> bool {
        self.has_carriers && self.queue.try_send(sign).is_ok()
    }
}

impl Beats {
    pub(crate) fn start(mut self, mut watch: Section) -> io::Result<()> {
        let carry = move || {
            for sign in &self.queue {
                let inside = watch.enter();
                for carrier in &mut self.carriers {
                    carrier.carry(&sign);
                }
                drop(inside);
            }
        };
        thread::Builder::new().name("lv-beat".to_owned()).spawn(carry)?;
        Ok(())
    }
}
