//! The ways a report goes: into the inbox's file beside the ledger, or to an interface by HTTP, over TLS if it says so.

use std::{
    io::{self, Read as _},
    net::{TcpStream, ToSocketAddrs as _},
    path::{Path, PathBuf},
    time::Duration,
};

use interlock_core::{id::PipelineId, report::Said};
use interlock_store::record::{InboxRecord, ReportRecord};
use interlock_store_embedded::OpenInbox;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::tls::{self, Trust};
use crate::clock;

/// How long an interface may take to be reached, and to answer.
const CONNECTED_IN: Duration = Duration::from_secs(1);
const ANSWERED_IN: Duration = Duration::from_secs(5);
/// How long others in the way of the inbox's file are waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of an answer that are read.
const ANSWER_MAX: u64 = 64 * 1_024;

/// A report with its address.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parcel {
    pub(crate) pipeline: PipelineId,
    pub(crate) key: String,
    pub(crate) report: ReportRecord,
}

/// Where reports go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// Into the inbox's file of a state folder: no interface is needed, nor anybody who serves.
    Inbox(PathBuf),
    /// To an interface.
    Http {
        /// `host:port`.
        authority: String,
        /// A token, if one is asked for.
        token: Option<String>,
        /// Whom it believes, when it speaks TLS.
        tls: Option<Trust>,
        /// The project whose interface it is: reports wait for that, wherever it listens next.
        project: Option<PathBuf>,
    },
    /// Nobody can be told, for a reason that does not pass by itself.
    Nowhere(String),
    /// To a project that does not say where its ledger is, and why not: reports wait until it does.
    Unknown(PathBuf, String),
}

/// Why a report did not arrive.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It may arrive later.
    Unreachable(String),
    /// It never will: whoever got it does not want it.
    Refused(String),
}

impl Way {
    /// The way to a URL such as `http://127.0.0.1:8420`, with whom to believe if it is an `https://`; what is only a host and
    /// a port is meant as one.
    pub(crate) fn to(url: &str, token: Option<String>, trust: Trust) -> Result<Self, String> {
        let (rest, port, tls) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (rest, 80, None),
            (None, Some(rest)) => (rest, 443, Some(trust)),
            (None, None) if has_port(url) && !url.contains("://") => (url, 80, None),
            (None, None) => {
                return Err(format!("`{url}` is no address: it begins with http:// or https://"));
            }
        };
        let authority = rest.trim_end_matches('/');
        if authority.is_empty() || authority.contains(['/', '?', '#', '@', ' ']) {
            return Err(format!("`{url}` is no address: write http://HOST:PORT"));
        }
        let is_whole = has_port(authority);
        let authority = if is_whole { authority.to_owned() } else { format!("{authority}:{port}") };
        Ok(Self::Http { authority, token, tls, project: None })
    }

    /// The same way, to the interface of a project.
    pub(crate) fn for_project(mut self, directory: &Path) -> Self {
        if let Self::Http { project, .. } = &mut self {
            *project = Some(directory.to_owned());
        }
        self
    }

    /// What tells this way from others, in a spool.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Inbox(folder) => format!("file:{}", whole(folder)),
            Self::Unknown(project, _) | Self::Http { project: Some(project), .. } => {
                project_name(project)
            }
            Self::Nowhere(_) => "nowhere".to_owned(),
            Self::Http { authority, tls: None, .. } => format!("http://{authority}"),
            Self::Http { authority, tls: Some(_), .. } => format!("https://{authority}"),
        }
    }

    /// Goes as far as it can be gone before there is something to say, without waiting for anybody.
    pub(crate) fn open(&self) -> Option<OpenInbox> {
        match self {
            Self::Inbox(folder) => OpenInbox::of(folder),
            Self::Http { .. } | Self::Nowhere(_) | Self::Unknown(..) => None,
        }
    }

    /// Delivers reports, in order, through what [`Self::open`] gave, if that still does; durable when it returns. What did
    /// not arrive is left in the list.
    pub(crate) fn deliver(
        &self,
        parcels: &mut Vec<Parcel>,
        opened: Option<OpenInbox>,
    ) -> Result<(), Trouble> {
        match self {
            Self::Inbox(folder) => {
                let entries: Vec<_> = parcels.iter().map(Parcel::entry).collect();
                let limits = || (clock::now(), PATIENCE);
                let left = opened.is_some_and(|inbox| inbox.leave(&entries, limits()));
                if !left && !entries.is_empty() {
                    let made = std::fs::create_dir_all(folder);
                    made.map_err(|error| Trouble::Unreachable(error.to_string()))?;
                    interlock_store_embedded::leave(folder, &entries, limits())
                        .map_err(|error| Trouble::Unreachable(error.message))?;
                }
                parcels.clear();
            }
            Self::Http { authority, token, tls, .. } => {
                let client = Client { authority, token: token.as_deref(), tls: tls.as_ref() };
                loop {
                    let told = match parcels.as_slice() {
                        [] => break,
                        [start, end, ..] if end.ends(start) => {
                            client.post(end, Some(start.report.at))?;
                            2
                        }
                        [parcel, ..] => {
                            client.post(parcel, None)?;
                            1
                        }
                    };
                    parcels.drain(..told);
                }
            }
            Self::Nowhere(reason) => return Err(Trouble::Refused(reason.clone())),
            Self::Unknown(_, reason) => return Err(Trouble::Unreachable(reason.clone())),
        }
        Ok(())
    }
}

fn has_port(authority: &str) -> bool {
    authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// The name under which reports wait for a project, wherever its ledger is.
pub(crate) fn project_name(directory: &Path) -> String {
    format!("project:{}", whole(directory))
}

fn whole(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_missing| path.to_owned()).display().to_string()
}

impl Parcel {
    fn entry(&self) -> (PipelineId, String, InboxRecord) {
        let record = InboxRecord::Report(Box::new(self.report.clone()));
        (self.pipeline.clone(), self.key.clone(), record)
    }

    /// Whether it tells the end of what another tells the beginning of.
    fn ends(&self, start: &Self) -> bool {
        let said = |it: &Self| Said::parse(&it.report.said);
        let is_whole = said(start) == Some(Said::Start) && said(self).and_then(Said::end).is_some();
        let is_named = self.report.rid.is_some() && self.report.rid == start.report.rid;
        is_whole && is_named && self.pipeline == start.pipeline
    }

    fn body(&self, began: Option<Timestamp>) -> Value {
        let ReportRecord { said, rid, at, exit_code, duration_ms, body, source, .. } = &self.report;
        json!({
            "said": said, "rid": rid, "at": at.to_string(), "sentAt": clock::now().to_string(), "exitCode": exit_code,
            "durationMs": duration_ms, "body": body, "source": source,
            "startedAt": began.map(|at| at.to_string()),
        })
    }
}

/// Who is spoken to, and how.
struct Client<'a> {
    authority: &'a str,
    token: Option<&'a str>,
    tls: Option<&'a Trust>,
}

impl Client<'_> {
    /// Tells a report, and with an end when that began, if nobody was told before.
    fn post(&self, parcel: &Parcel, began: Option<Timestamp>) -> Result<(), Trouble> {
        let authority = self.authority;
        let unreachable = |error: io::Error| Trouble::Unreachable(format!("{authority}: {error}"));
        let (status, answer) = self.send(&self.request(parcel, began)).map_err(unreachable)?;
        let body: Value = serde_json::from_str(&answer).unwrap_or_default();
        let message = body["detail"].as_str();
        // What stands between us and Interlock (a proxy, a page that says "not found") cannot refuse for it.
        let is_ours = message.is_some() && body["code"].is_string();
        let said = format!("{authority} answered {status}: {}", message.unwrap_or("(nothing)"));
        // Nor can it take a report: the page that asks for a login is answered with 200 as well.
        let is_taken = body["durable"] == true && body["key"].is_string();
        match status {
            200..=299 if is_taken => Ok(()),
            200..=299 => Err(Trouble::Unreachable(format!(
                "{authority} answered {status}, and not as Interlock does: something else stands in its place"
            ))),
            // Too many, too slow, or a token that may be put right.
            401 | 403 | 408 | 429 => Err(Trouble::Unreachable(said)),
            400..=499 if is_ours => Err(Trouble::Refused(said)),
            _ => Err(Trouble::Unreachable(said)),
        }
    }

    fn send(&self, request: &str) -> io::Result<(u16, String)> {
        let missing = || io::Error::other("the name has no address");
        let address = self.authority.to_socket_addrs()?.next().ok_or_else(missing)?;
        let mut stream = TcpStream::connect_timeout(&address, CONNECTED_IN)?;
        stream.set_read_timeout(Some(ANSWERED_IN))?;
        stream.set_write_timeout(Some(ANSWERED_IN))?;
        let text = match self.tls {
            None => exchange(&mut stream, request)?,
            Some(trust) => exchange(&mut tls::wrap(stream, self.authority, trust)?, request)?,
        };
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("it does not speak HTTP"))?;
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        Ok((status, if is_chunked(head) { whole_body(body) } else { body.to_owned() }))
    }

    fn request(&self, parcel: &Parcel, began: Option<Timestamp>) -> String {
        let body = parcel.body(began).to_string();
        let token = self.token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        format!(
            "POST /api/v1/pipelines/{}/reports HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nIdempotency-Key: {}\r\n{}\r\n{body}",
            parcel.pipeline,
            self.authority,
            body.len(),
            parcel.key,
            token.unwrap_or_default(),
        )
    }
}

/// Whether a body comes in pieces, as a proxy may send it on.
fn is_chunked(head: &str) -> bool {
    head.lines().filter_map(|line| line.split_once(':')).any(|(name, value)| {
        name.eq_ignore_ascii_case("transfer-encoding")
            && value.to_ascii_lowercase().contains("chunked")
    })
}

/// A body that came in pieces, each after its length; as far as they are whole.
fn whole_body(mut pieces: &str) -> String {
    let mut body = String::new();
    while let Some((length, rest)) = pieces.split_once("\r\n") {
        let length = length.split(';').next().unwrap_or_default().trim();
        let Ok(length @ 1..) = usize::from_str_radix(length, 16) else { break };
        let Some((piece, rest)) = rest.split_at_checked(length) else { break };
        body.push_str(piece);
        pieces = rest.strip_prefix("\r\n").unwrap_or(rest);
    }
    body
}

/// Says something and hears the answer.
fn exchange(stream: &mut (impl io::Read + io::Write), request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut bytes = Vec::new();
    match stream.take(ANSWER_MAX).read_to_end(&mut bytes) {
        // Some hang up without saying that this is all; what came before is true.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !bytes.is_empty() => {}
        read => _ = read?,
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_in_pieces_is_put_together() {
        assert!(is_chunked("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked"));
        assert!(!is_chunked("HTTP/1.1 200 OK\r\nContent-Length: 7"));
        assert_eq!(whole_body("3\r\n{\"a\r\n4;x=y\r\n\":1}\r\n0\r\n\r\n"), r#"{"a":1}"#);
        for odd in ["", "zz\r\nab", "5\r\nab", "ffffffffffffffffff\r\nab", "2\r\né"] {
            assert!(whole_body(odd).len() <= 2, "{odd:?}");
        }
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let authority = |url: &str| match Way::to(url, None, Trust::default()) {
            Ok(Way::Http { authority, .. }) => Some(authority),
            Ok(Way::Inbox(_) | Way::Nowhere(_) | Way::Unknown(..)) | Err(_) => None,
        };
        assert_eq!(authority("http://127.0.0.1:8420").as_deref(), Some("127.0.0.1:8420"));
        assert_eq!(authority("http://[::1]:8420/").as_deref(), Some("[::1]:8420"));
        assert_eq!(authority("http://interlock").as_deref(), Some("interlock:80"));
        assert_eq!(authority("https://interlock").as_deref(), Some("interlock:443"));
        assert_eq!(authority("127.0.0.1:8420").as_deref(), Some("127.0.0.1:8420"));
        for odd in [
            "https://",
            "ftp://a",
            "ftp://a:1",
            "http://",
            "http://a/b",
            "http://u:p@a",
            "a",
            "u@a:1",
        ] {
            assert_eq!(authority(odd), None, "{odd}");
        }
    }
}
