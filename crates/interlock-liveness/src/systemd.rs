//! systemd's notifications, without its library and without ever waiting for it.
//!
//! A manager that stops reading must not stop the program that it manages: a watchdog message that does not fit is dropped (the
//! next one is near), readiness is tried again.

use std::{
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    thread,
    time::Duration,
};

use crate::beat::{Carrier, Sign};

/// How often, and how long apart, what must be heard is tried again.
const TRIES: u32 = 20;
const TRY_AFTER: Duration = Duration::from_millis(50);
/// What people read who ask the manager while all is well.
const WELL: &str = "STATUS=every loop makes progress\n";

/// The manager that started this process.
#[derive(Debug)]
pub struct Systemd {
    address: SocketAddr,
    socket: UnixDatagram,
    watchdog: Option<Duration>,
    is_ready: bool,
    /// What it was told last is that something stands still.
    is_unwell: bool,
}

impl Systemd {
    /// The manager, if there is one. `variable` looks up the environment.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> io::Result<Option<Self>> {
        let Some(name) = variable("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let address = address(&name)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let watchdog = watchdog(&variable);
        let (is_ready, is_unwell) = (false, false);
        let mut systemd = Self { address, socket, watchdog, is_ready, is_unwell };
        // Whoever is not there yet may be there when something is said.
        let _not_there = systemd.connect();
        Ok(Some(systemd))
    }

    /// How often the manager wants to hear something: a third of its patience.
    pub fn every(&self) -> Option<Duration> {
        self.watchdog.map(|patience| patience / 3)
    }

    fn connect(&mut self) -> io::Result<()> {
        self.socket = UnixDatagram::unbound()?;
        self.socket.set_nonblocking(true)?;
        self.socket.connect_addr(&self.address)
    }

    /// Says something, once. A socket that was made anew is found again.
    fn say(&mut self, message: &str) -> io::Result<()> {
        let bytes = OsStr::new(message).as_bytes();
        match self.socket.send(bytes) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                self.connect()?;
                self.socket.send(bytes)?;
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        Ok(())
    }

    fn insist(&mut self, message: &str) -> bool {
        (0..TRIES).any(|_| {
            let is_heard = self.say(message).is_ok();
            if !is_heard {
                thread::sleep(TRY_AFTER);
            }
            is_heard
        })
    }
}

/// The address of a manager: a path, or a name that is in no folder.
fn address(name: &str) -> io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

/// How long the manager waits for a sign of life, if it does and if it is us whom it waits for.
fn watchdog(variable: &impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let is_ours = variable("WATCHDOG_PID")
        .is_none_or(|pid| pid.parse::<u32>().is_ok_and(|pid| pid == std::process::id()));
    let micros = variable("WATCHDOG_USEC")?.parse::<u64>().ok().filter(|micros| *micros > 0)?;
    is_ours.then(|| Duration::from_micros(micros))
}

impl Carrier for Systemd {
    fn carry(&mut self, sign: &Sign) {
        match sign {
            Sign::Alive if !self.is_ready => {
                self.is_ready = self.insist(&format!("READY=1\n{WELL}"));
            }
            Sign::Alive => {
                if self.watchdog.is_some() {
                    let _the_next_is_near = self.say("WATCHDOG=1\n");
                }
                // Only a remark, but one that stays until the next.
                self.is_unwell = self.is_unwell && self.say(WELL).is_err();
            }
            Sign::Unwell(expiry) => {
                self.is_unwell = true;
                let _the_next_is_near = self.say(&format!("STATUS={expiry}\n"));
            }
            Sign::Stopping => {
                self.insist("STOPPING=1\n");
            }
        }
    }

    fn every(&self) -> Option<Duration> {
        Self::every(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::Expiry;

    /// A manager at a name, and the program that it started.
    fn manager(name: &str, more: &[(&str, &str)]) -> (UnixDatagram, Option<Systemd>) {
        let socket = UnixDatagram::bind_addr(&address(name).unwrap()).unwrap();
        (socket, started(name, more))
    }

    fn started(name: &str, more: &[(&str, &str)]) -> Option<Systemd> {
        let look = |wanted: &str| {
            let own = [("NOTIFY_SOCKET", name)];
            let mut known = more.iter().chain(&own);
            known.find(|(key, _)| *key == wanted).map(|(_, value)| (*value).to_owned())
        };
        Systemd::from_variables(look).unwrap()
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn fault_29_paths_and_abstract_names_are_spoken_to_and_a_socket_made_anew_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify").to_str().unwrap().to_owned();
        let name = format!("@interlock-{}", std::process::id());
        for name in [&path, &name] {
            let (socket, systemd) = manager(name, &[("WATCHDOG_USEC", "3000000")]);
            let mut systemd = systemd.unwrap();
            systemd.carry(&Sign::Alive);
            assert!(heard(&socket).starts_with("READY=1\n"));
            systemd.carry(&Sign::Alive);
            assert_eq!(heard(&socket), "WATCHDOG=1\n");
            drop(socket);
            let _gone = std::fs::remove_file(name);
            let socket = UnixDatagram::bind_addr(&address(name).unwrap()).unwrap();
            systemd.carry(&Sign::Stopping);
            assert_eq!(heard(&socket), "STOPPING=1\n");
        }
    }

    #[test]
    fn what_people_read_says_that_something_stands_still_until_it_moves_again() {
        let name = format!("@interlock-status-{}", std::process::id());
        let (socket, systemd) = manager(&name, &[]);
        let mut systemd = systemd.unwrap();
        let expiry = Expiry {
            watch: "engine".into(),
            rung: crate::ladder::Rung::Soft,
            age: Duration::from_secs(7),
            phase: None,
            paused: None,
        };
        let signs = [Sign::Alive, Sign::Unwell(expiry), Sign::Alive, Sign::Alive, Sign::Stopping];
        for sign in &signs {
            systemd.carry(sign);
        }
        assert_eq!(heard(&socket), format!("READY=1\n{WELL}"));
        let unwell = "STATUS=`engine` has made no progress for 7.000 s (soft)\n";
        assert_eq!(
            [heard(&socket), heard(&socket), heard(&socket)],
            [unwell, WELL, "STOPPING=1\n"]
        );
    }

    #[test]
    fn fault_29_a_manager_that_does_not_read_holds_nobody_up() {
        let name = format!("@interlock-deaf-{}", std::process::id());
        let (socket, systemd) = manager(&name, &[("WATCHDOG_USEC", "3000000")]);
        let mut systemd = systemd.unwrap();
        for _ in 0..1_000 {
            systemd.carry(&Sign::Alive);
        }
        assert!(heard(&socket).starts_with("READY=1\n"));
        assert_eq!(heard(&socket), "WATCHDOG=1\n");
    }

    #[test]
    fn fault_29_the_watchdog_of_another_process_is_not_ours_and_no_manager_is_none() {
        let name = format!("@interlock-other-{}", std::process::id());
        let own = std::process::id().to_string();
        for (pid, is_ours) in [("1", false), (own.as_str(), true)] {
            let (_socket, systemd) =
                manager(&name, &[("WATCHDOG_USEC", "1500000"), ("WATCHDOG_PID", pid)]);
            assert_eq!(systemd.unwrap().every().is_some(), is_ours, "{pid}");
        }
        assert!(started("", &[]).is_none());
    }

    #[test]
    fn fault_30_the_period_is_below_half_of_every_patience() {
        let name = format!("@interlock-period-{}", std::process::id());
        for micros in [1_u64, 1_500_000, 500_000, u64::MAX] {
            let (_socket, systemd) = manager(&name, &[("WATCHDOG_USEC", &micros.to_string())]);
            let every = systemd.unwrap().every().unwrap();
            assert!(every < Duration::from_micros(micros) / 2, "{micros}");
            assert!(every > Duration::ZERO, "{micros}");
        }
    }
}
