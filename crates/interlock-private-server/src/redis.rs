//! A private Redis.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    keeper::{Keeper, Plan, Signal, last_words},
    port::Port,
};

/// Keeps everything at once.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// A Redis of our own, which keeps everything at once unless it is told otherwise.
#[derive(Debug)]
pub struct PrivateRedis {
    plan: Plan,
    port: u16,
    keeper: Option<Keeper>,
    /// Given up after the server.
    _ports: Vec<Port>,
}

impl PrivateRedis {
    /// One that is durable: `appendfsync always`, `noeviction`.
    pub fn start() -> Self {
        Self::start_with(&DURABLE)
    }

    /// One with more arguments for `redis-server`.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_at(Vec::new(), arguments)
    }

    /// One that listens on more ports than its own.
    pub(crate) fn start_at(mut ports: Vec<Port>, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap().keep();
        let own_port = Port::take();
        let port = own_port.number;
        ports.push(own_port);
        let line = line(port, &folder, arguments);
        let plan = Plan { line, user: None, signal: "KILL", folder };
        let mut server = Self { plan, port, keeper: None, _ports: ports };
        assert!(
            server.start_again(),
            "redis-server does not start (`cargo xtask test` installs it):\n{}",
            last_words(&server.plan.folder)
        );
        server
    }

    /// One that speaks TLS too, by a certificate in this folder; see [`crate::certify`]. `clients` says whether it wants to
    /// see one of whoever connects: `yes` or `no`.
    pub fn start_tls(certificates: &Path, clients: &str) -> (Self, u16) {
        let file = |name: &str| certificates.join(name).display().to_string();
        let (cert, key, ca) = (file("cert.pem"), file("key.pem"), file("ca.pem"));
        let port = Port::take();
        let (number, text) = (port.number, port.number.to_string());
        let mut words = vec!["--appendonly", "yes", "--appendfsync", "always"];
        words.extend(["--tls-port", &text, "--tls-cert-file", &cert, "--tls-key-file", &key]);
        words.extend(["--tls-ca-cert-file", &ca, "--tls-auth-clients", clients]);
        (Self::start_at(vec![port], &words), number)
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its data lies.
    pub fn folder(&self) -> PathBuf {
        self.plan.folder.clone()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.keeper.as_ref().unwrap().signal(signal);
    }

    /// Kills it, as a failing machine would; its data stays.
    pub fn kill(&mut self) {
        let keeper = self.keeper.take().unwrap();
        keeper.signal(Signal::KILL);
        keeper.wait_and_keep();
    }

    /// Ends it if it runs; its ports stay its own.
    pub(crate) fn end(&mut self) {
        drop(self.keeper.take());
    }

    /// Starts another one on its port, without its data and settings.
    pub(crate) fn start_stranger(&mut self) {
        std::fs::remove_dir_all(&self.plan.folder).unwrap();
        std::fs::create_dir(&self.plan.folder).unwrap();
        self.plan.line = line(self.port, &self.plan.folder, &DURABLE);
        assert!(self.start_again(), "{}", last_words(&self.plan.folder));
    }

    /// Starts it on the data that it left; false if it ended at once.
    pub fn start_again(&mut self) -> bool {
        self.keeper = Keeper::start_and_wait(&self.plan, || ping(self.port));
        self.keeper.is_some()
    }
}

/// How `redis-server` is called.
fn line(port: u16, folder: &Path, arguments: &[&str]) -> Vec<String> {
    let (port, dir) = (port.to_string(), folder.display().to_string());
    let own = ["redis-server", "--port", &port, "--bind", "127.0.0.1", "--dir", &dir, "--save", ""];
    // By default it waits five seconds for more replicas before it sends its data to the first.
    let at_once = ["--repl-diskless-sync-delay", "0"];
    own.iter().chain(&at_once).chain(arguments).map(|word| (*word).to_owned()).collect()
}

fn ping(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let mut answer = [0; 7];
    stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
        && stream.write_all(b"PING\r\n").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && matches!(&answer, b"+PONG\r\n" | b"-NOAUTH")
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        if self.keeper.is_none() {
            let _gone = std::fs::remove_dir_all(&self.plan.folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::PrivateRedis;

    #[test]
    fn what_a_server_said_that_does_not_start_is_told() {
        let refused = catch_unwind(|| PrivateRedis::start_with(&["--appendfsync", "now-and-then"]));
        let said = *refused.unwrap_err().downcast::<String>().unwrap();
        assert!(said.contains("now-and-then"), "{said}");
    }

    #[test]
    fn the_port_of_a_server_that_is_killed_stays_its_own() {
        let mut first = PrivateRedis::start();
        first.kill();
        let others = [PrivateRedis::start(), PrivateRedis::start()];
        assert!(others.iter().all(|other| other.port() != first.port()));
        assert!(first.start_again());
    }
}
