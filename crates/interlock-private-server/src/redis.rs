//! A private Redis.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    free_port,
    keeper::{Keeper, Plan, Signal, last_words},
    wait_until,
};

/// A Redis of our own, which keeps everything at once unless it is told otherwise.
#[derive(Debug)]
pub struct PrivateRedis {
    plan: Plan,
    port: u16,
    keeper: Option<Keeper>,
}

impl PrivateRedis {
    /// One that is durable: `appendfsync always`, `noeviction`.
    pub fn start() -> Self {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// One with more arguments for `redis-server`.
    pub fn start_with(arguments: &[&str]) -> Self {
        loop {
            let folder = tempfile::tempdir().unwrap().keep();
            let port = free_port();
            let mut line = vec!["redis-server".to_owned()];
            let (text, dir) = (port.to_string(), folder.display().to_string());
            let own = ["--port", &text, "--bind", "127.0.0.1", "--dir", &dir, "--save", ""];
            line.extend(own.iter().chain(arguments).map(|word| (*word).to_owned()));
            let plan = Plan { line, user: None, signal: "KILL", folder };
            let mut server = Self { plan, port, keeper: None };
            if server.start_again() {
                return server;
            }
            let said = last_words(&server.plan.folder);
            // Somebody else took the port meanwhile: try another.
            assert!(
                said.contains("Address already in use"),
                "redis-server does not start (`cargo xtask test` installs it):\n{said}"
            );
        }
    }

    /// One that speaks TLS too, by a certificate in this folder; see [`crate::certify`]. `clients` says whether it wants to
    /// see one of whoever connects: `yes` or `no`.
    pub fn start_tls(certificates: &Path, clients: &str) -> (Self, u16) {
        let file = |name: &str| certificates.join(name).display().to_string();
        let (cert, key, ca) = (file("cert.pem"), file("key.pem"), file("ca.pem"));
        let port = free_port();
        let text = port.to_string();
        let mut words = vec!["--appendonly", "yes", "--appendfsync", "always"];
        words.extend(["--tls-port", &text, "--tls-cert-file", &cert, "--tls-key-file", &key]);
        words.extend(["--tls-ca-cert-file", &ca, "--tls-auth-clients", clients]);
        (Self::start_with(&words), port)
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

    /// Starts it on the data that it left; false if it ended at once.
    pub fn start_again(&mut self) -> bool {
        let keeper = Keeper::start(&self.plan);
        let is_ready = wait_until(|| ping(self.port), || keeper.has_ended());
        self.keeper = is_ready.then_some(keeper);
        is_ready
    }
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
