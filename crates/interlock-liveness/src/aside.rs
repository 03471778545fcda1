//! What may be held up for ever, done on a thread of its own: a file system whose server is gone holds up whoever touches it, and the
//! kernel whoever asks about a process that hangs inside it. Nobody here waits longer than it says.

use std::{
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use crate::sys;

/// How long an answer is waited for; a file that can be read is read within a fraction of it.
const ANSWERS_IN: Duration = Duration::from_millis(5);

/// Has something done, and waits for that so long at most. Whoever does it hears no signals.
pub(crate) fn within<T: Send + 'static>(
    most: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (found, finding) = sync_channel(1);
    let works = move || {
        sys::block_signals(None);
        let _too_late = found.send(work());
    };
    thread::Builder::new().name("lv-aside".to_owned()).spawn(works)?;
    finding.recv_timeout(most).map_err(|ended| match ended {
        RecvTimeoutError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "it took too long"),
        RecvTimeoutError::Disconnected => io::Error::other("it could not be done"),
    })
}

/// Somebody who looks when asked, and may be held up.
#[derive(Debug)]
pub(crate) struct Aside<T> {
    ask: SyncSender<()>,
    answers: Receiver<T>,
    /// A question is unanswered.
    is_asked: bool,
}

impl<T: Send + 'static> Aside<T> {
    pub(crate) fn start(mut look: impl FnMut() -> T + Send + 'static) -> io::Result<Self> {
        let (ask, asked) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        let looks = move || {
            // They are for others to hear.
            sys::block_signals(None);
            while let Ok(()) = asked.recv() {
                if answer.send(look()).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("lv-ear".to_owned()).spawn(looks)?;
        Ok(Self { ask, answers, is_asked: false })
    }

    /// What is there now; nothing, if that cannot be said in a moment. An answer that came too late is the next one.
    pub(crate) fn look(&mut self) -> Option<T> {
        // Who has kept us waiting once is not waited for again.
        let patience = if self.is_asked { Duration::ZERO } else { ANSWERS_IN };
        self.answer_within(patience)
    }

    /// What is there now, and not what was there when somebody asked before; it is waited for twice as long as this.
    pub(crate) fn look_afresh(&mut self, most: Duration) -> Option<T> {
        if self.is_asked {
            self.answer_within(most)?;
        }
        self.answer_within(most)
    }

    fn answer_within(&mut self, most: Duration) -> Option<T> {
        let was_asked = std::mem::replace(&mut self.is_asked, true);
        if !was_asked && self.ask.try_send(()).is_err() {
            return None;
        }
        let answer = self.answers.recv_timeout(most).ok();
        self.is_asked = answer.is_none();
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use interlock_wait::{BOUND, ChannelWithin as _, wait_for, wait_until};

    use super::*;

    #[test]
    fn what_takes_too_long_is_not_waited_for() {
        assert_eq!(within(Duration::from_mins(1), || 7).unwrap(), 7);
        let (_held, hold) = channel::<()>();
        // Bounded: the test drops the sender at its end, and `within` is what is tested.
        let late = within(Duration::from_millis(20), move || hold.recv());
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn who_is_held_up_answers_later_and_nobody_waits_meanwhile() {
        let (let_go, held) = channel();
        let mut number = 0;
        let mut aside = Aside::start(move || {
            held.recv_within("the leave to answer", BOUND);
            number += 1;
            number
        })
        .unwrap();
        for _ in 0..3 {
            assert_eq!(aside.look(), None);
        }
        let_go.send(()).unwrap();
        let answer = wait_for("the first answer", BOUND, || aside.look());
        assert_eq!(answer, 1, "one question, one answer");
        let_go.send(()).unwrap();
        wait_until("the second answer", BOUND, || aside.look() == Some(2));
    }
}
