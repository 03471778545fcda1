//! Whether reports can come over HTTP: our own interface is asked as a job would ask it.
//!
//! That its thread comes round says that it could answer; only an answer says that it does, and that the address is ours.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use interlock_api::{
    Reach,
    tls::{self, Fingerprint, ListenerCertificate},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, timeout},
};

use interlock_engine::wellness::Complaint;

/// How often it is asked, and how long an answer may take.
const ASK_EVERY: Duration = Duration::from_secs(5);
const ANSWERS_IN: Duration = Duration::from_secs(5);
/// So often in a row it may leave us without an answer.
const UNANSWERED_MAX: u32 = 3;

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Interface {
    asking: Option<JoinHandle<Result<(), String>>>,
    next_asked: Option<Instant>,
    /// How often in a row it did not answer. Counted in questions, not in time: a machine that slept asked nothing.
    unanswered: u32,
    error: String,
    /// What is wrong with it.
    pub(super) complaint: Option<Complaint>,
    /// Whether people were told last that it can be reached; no alert was sent yet.
    told: Option<bool>,
    has_answered: bool,
}

/// What people should hear.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nobody can reach it.
    Shut(String),
    /// It can be reached again.
    Open,
    /// It can be reached; what an earlier process said of it is over.
    OpenFromTheStart,
}

impl Interface {
    /// Asks it when it is time, and takes up what came of asking.
    pub(super) async fn look(
        &mut self,
        reach: &Reach,
        certificate: Option<&Arc<ListenerCertificate>>,
        now: Instant,
    ) {
        if let Some(asking) = self.asking.take_if(|asking| asking.is_finished()) {
            self.answered(asking.await.unwrap_or_else(|broken| Err(broken.to_string())));
        }
        if let Reach::At(address) = reach
            && self.asking.is_none()
            && self.next_asked.is_none_or(|at| at <= now)
        {
            self.next_asked = Some(now + ASK_EVERY);
            let known = certificate.map(|certificate| certificate.fingerprints());
            self.asking = Some(tokio::spawn(ask(*address, known)));
        }
        self.complaint = self.judged(reach);
    }

    fn answered(&mut self, answer: Result<(), String>) {
        match answer {
            Ok(()) => (self.unanswered, self.has_answered) = (0, true),
            Err(error) => (self.unanswered, self.error) = (self.unanswered + 1, error),
        }
    }

    fn judged(&self, reach: &Reach) -> Option<Complaint> {
        let says = match reach {
            Reach::Unwanted => return None,
            Reach::Shut(because) => format!(
                "{because}; it is tried again, and `server.addr` in interlock.yaml names another address"
            ),
            Reach::At(_) if self.unanswered < UNANSWERED_MAX => return None,
            Reach::At(address) => format!("{address} does not answer: {}", self.error),
        };
        Some(Complaint::new("http", format!("jobs cannot report over HTTP: {says}")))
    }

    /// What people have not heard yet.
    pub(super) fn news(&mut self) -> Option<News> {
        let told = self.told;
        match &self.complaint {
            Some(complaint) if told != Some(false) => {
                self.told = Some(false);
                Some(News::Shut(complaint.says.clone()))
            }
            None if told != Some(true) && self.has_answered && self.unanswered == 0 => {
                self.told = Some(true);
                Some(if told.is_none() { News::OpenFromTheStart } else { News::Open })
            }
            Some(_) | None => None,
        }
    }
}

/// Any answer is one: what is asked is whether somebody listens.
async fn ask(address: SocketAddr, known: Option<Vec<Fingerprint>>) -> Result<(), String> {
    match timeout(ANSWERS_IN, exchange(reachable(address), known)).await {
        Ok(answered) => answered.map_err(|error| error.to_string()),
        Err(_elapsed) => Err(format!("no answer in {} s", ANSWERS_IN.as_secs())),
    }
}

/// Whoever listens everywhere is asked on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Over TLS if it shows a certificate, and only if that is one of ours.
async fn exchange(address: SocketAddr, known: Option<Vec<Fingerprint>>) -> io::Result<()> {
    match known {
        Some(known) => speak(address, tls::connect(address, known).await?).await,
        None => speak(address, TcpStream::connect(address).await?).await,
    }
}

async fn speak(
    address: SocketAddr,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut head = [0; 5];
    stream.read_exact(&mut head).await?;
    if &head == b"HTTP/" { Ok(()) } else { Err(io::Error::other("it does not speak HTTP")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_cannot_listen_or_does_not_answer_three_times_is_told_until_it_does() {
        let mut interface = Interface::default();
        let at = Reach::At("127.0.0.1:8420".parse().unwrap());
        let mut told = |reach: &Reach, answer: Option<Result<(), &str>>| {
            if let Some(answer) = answer {
                interface.answered(answer.map_err(str::to_owned));
            }
            interface.complaint = interface.judged(reach);
            interface.news()
        };
        assert_eq!(told(&Reach::Unwanted, None), None);
        assert_eq!(told(&at, None), None, "it was not asked yet");
        assert_eq!(told(&at, Some(Ok(()))), Some(News::OpenFromTheStart));
        assert_eq!(told(&at, Some(Err("refused"))), None);
        assert_eq!(told(&at, Some(Err("refused"))), None);
        let shut = told(&at, Some(Err("refused")));
        let says = "jobs cannot report over HTTP: 127.0.0.1:8420 does not answer: refused";
        assert_eq!(shut, Some(News::Shut(says.to_owned())));
        assert_eq!(told(&at, Some(Err("refused"))), None, "once");
        assert_eq!(told(&at, Some(Ok(()))), Some(News::Open));
        assert_eq!(told(&at, Some(Ok(()))), None);
        let shut = told(&Reach::Shut("it is taken".into()), None);
        assert!(matches!(shut, Some(News::Shut(says)) if says.contains("it is taken")));
    }

    #[tokio::test]
    async fn whoever_takes_connections_and_says_nothing_does_not_answer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = exchange(address, None);
        assert!(timeout(Duration::from_millis(200), asked).await.is_err());
        drop(listener);
        assert!(ask(address, None).await.is_err());
    }
}
