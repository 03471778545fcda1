//! Ports for servers of our own.
//!
//! They lie below those that the kernel gives to outgoing connections, and whoever takes one holds a lock for as long as its
//! server is wanted: a port that was only looked for could be somebody else's a moment later, and that of a server which
//! was killed belonged to whoever connected anywhere before it was started again.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    path::Path,
};

const PORTS: Range<u16> = 15_000..30_000;

/// A port that is ours until this is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    _held: File,
}

impl Port {
    /// One that nobody listens on, and that no other test will choose.
    pub(crate) fn take() -> Self {
        let user = rustix::process::geteuid().as_raw();
        let folder = std::env::temp_dir().join(format!("interlock-ports-{user}"));
        fs::create_dir_all(&folder).unwrap();
        // Tests that begin together begin to look at different places.
        let first = std::process::id().wrapping_mul(7_919) as usize % PORTS.len();
        let mut ports = PORTS.cycle().skip(first).take(PORTS.len());
        ports.find_map(|number| Self::hold(&folder, number)).expect("one of 15,000 ports is free")
    }

    fn hold(folder: &Path, number: u16) -> Option<Self> {
        let held = File::create(folder.join(number.to_string())).unwrap();
        held.try_lock().ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _held: held })
    }
}
