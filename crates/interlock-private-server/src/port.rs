//! Ports for servers of our own.
//!
//! They lie below those that the kernel gives to outgoing connections, and whoever takes one holds a lock for as long as its
//! server is wanted: a port that was only looked for could be somebody else's a moment later, and that of a server which
//! was killed belonged to whoever connected anywhere before it was started again.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

const PORTS: Range<u16> = 15_000..30_000;

/// How many ports this process has looked at. The next search goes on from there: a port that was just given up is the last one to be
/// taken again, so that a late request to the server which had it meets a closed door and not another test's server.
static LOOKED_AT: AtomicUsize = AtomicUsize::new(0);

/// A port that is ours until this is dropped.
#[derive(Debug)]
pub struct Port {
    /// Its number.
    pub number: u16,
    _held: File,
}

impl Port {
    /// One that nobody listens on, and that no other test will choose.
    pub fn take() -> Self {
        let folder = folder();
        // Tests that begin together begin to look at different places.
        let first = std::process::id().wrapping_mul(7_919) as usize % PORTS.len();
        let next = || {
            let offset = LOOKED_AT.fetch_add(1, Ordering::Relaxed);
            PORTS.start + ((first + offset) % PORTS.len()) as u16
        };
        let mut ports = std::iter::repeat_with(next).take(PORTS.len());
        ports.find_map(|number| Self::hold(&folder, number)).expect("one of 15,000 ports is free")
    }

    /// Takes this one, unless another test has it or something listens on it.
    pub(crate) fn hold(folder: &Path, number: u16) -> Option<Self> {
        let held = File::create(folder.join(number.to_string())).unwrap();
        held.try_lock().ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _held: held })
    }
}

/// Where the locks are, for all tests of a user.
pub(crate) fn folder() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("interlock-ports-{user}"));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_just_given_up_is_not_the_next_to_be_taken() {
        let given_up = Port::take().number;
        let next: Vec<u16> = [Port::take(), Port::take()].map(|port| port.number).into();
        assert!(!next.contains(&given_up), "{given_up} is in {next:?}");
    }
}
