//! What a program leaves behind comes to us, because we are its subreaper; none of it may outlive it, and what has ended is
//! waited for at once: the number of processes is bounded, and those that nobody waits for count.

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};

use crate::{kin, sys};

/// So many are waited for in one look; the next one is near.
const REAPED_MAX: u32 = 1_000;

/// Waits for every child that has ended but the program itself, whose end is for its supervisor to see.
pub(super) fn reap(program: Pid) {
    for _ in 0..REAPED_MAX {
        let Some(child) = sys::ended_child().filter(|child| *child != program) else { return };
        let _already_gone = waitid(WaitId::Pid(child), WaitIdOptions::EXITED);
    }
}

/// How often is looked; each look ends a generation, and what it left comes to us next.
const LOOKS: u32 = 100;

/// Ends every child that is left, until there is none.
pub(super) fn end_all() {
    for _ in 0..LOOKS {
        let children = kin::children_of(getpid().as_raw_nonzero().get());
        if children.is_empty() {
            return;
        }
        for child in children.into_iter().filter_map(Pid::from_raw) {
            // Through a descriptor: by its number somebody else could be meant.
            let Ok(descriptor) = pidfd_open(child, PidfdFlags::empty()) else { continue };
            let _already_gone = pidfd_send_signal(&descriptor, Signal::KILL);
            let _already_gone = waitid(WaitId::Pid(child), WaitIdOptions::EXITED);
        }
    }
}
