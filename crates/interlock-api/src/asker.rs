//! Who asks for something, and from where: kept with the request, and told in its events.
//!
//! A token has a name. On an open door there is none; there the system knows which user's program has the other end of a connection.

use std::{
    fs,
    io::Read as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use axum::http::{Extensions, HeaderMap};
use interlock_store::record::AskerRecord;

use crate::{access::Caller, server::Peer};

/// The tables of connections, as Linux shows them.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// How long that may take: a machine with very many connections has long tables.
const LOOKED_UP_IN: Duration = Duration::from_millis(250);
/// How much of each is looked through.
const TABLE_MAX: u64 = 4 * 1_024 * 1_024;
/// The clients by which a person asks; every other is a program.
const PEOPLE: [&str; 2] = ["cli", "ui"];

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    /// By which name, and from which address.
    pub(crate) record: AskerRecord,
    /// Whether a person asks, by the command line or a page.
    pub(crate) is_person: bool,
}

impl Asker {
    /// Who sent a request.
    pub(crate) async fn of(extensions: &Extensions, headers: &HeaderMap) -> Self {
        let peer = extensions.get::<Peer>().copied();
        let name = extensions.get::<Caller>().and_then(|caller| caller.name.as_deref());
        let by = match name {
            Some(name) => format!("token {name}"),
            None => local(peer).await,
        };
        let from = peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), Peer::remote_ip);
        let client = headers.get("interlock-client").and_then(|value| value.to_str().ok());
        let record = AskerRecord { by, from: from.to_string(), fingerprint: None };
        Self { record, is_person: client.is_some_and(|client| PEOPLE.contains(&client)) }
    }
}

/// Whose program is at the other end of a connection, where the door is open.
async fn local(peer: Option<Peer>) -> String {
    let known = peer.filter(|peer| peer.remote_ip().is_loopback());
    let user = match known {
        Some(peer) => {
            let looking = tokio::task::spawn_blocking(move || user_of(peer));
            let found = tokio::time::timeout(LOOKED_UP_IN, looking).await;
            found.ok().and_then(Result::ok).flatten()
        }
        None => None,
    };
    user.map_or_else(|| "local".to_owned(), |user| format!("local uid {user}"))
}

fn user_of(peer: Peer) -> Option<u32> {
    TABLES.iter().find_map(|table| {
        let mut text = String::new();
        fs::File::open(table).ok()?.take(TABLE_MAX).read_to_string(&mut text).ok()?;
        find_user(&text, peer)
    })
}

/// The user whose end of the connection is the other one.
fn find_user(table: &str, peer: Peer) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (own, other) = (fields.nth(1)?, fields.next()?);
        let is_it =
            address(own)? == canonical(peer.remote) && address(other)? == canonical(peer.local);
        // Behind the addresses come the state, two queues in one field, a timer, and retries.
        if is_it { fields.nth(4)?.parse().ok() } else { None }
    })
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// An address such as `0100007F:20E4`: words in the order of the machine, then the port.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (words, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(words.get(at * 8..at * 8 + 8)?, 16).ok();
    let ip = match words.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some((ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn a_table_names_the_user_at_the_other_end() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:20E4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 1\n\
            \x20  1: 0100007F:C350 0100007F:20E4 01 00000000:00000000 00:00000000 00000000  1000        0 2\n\
            \x20  2: 0100007F:20E4 0100007F:C350 01 00000000:00000000 00:00000000 00000000     7        0 3\n";
        let peer = |remote: &str, local: &str| Peer {
            is_tls: false,
            remote: remote.parse().unwrap(),
            local: local.parse().unwrap(),
        };
        assert_eq!(find_user(table, peer("127.0.0.1:50000", "127.0.0.1:8420")), Some(1000));
        assert_eq!(
            find_user(table, peer("[::ffff:127.0.0.1]:50000", "127.0.0.1:8420")),
            Some(1000)
        );
        assert_eq!(find_user(table, peer("127.0.0.1:50001", "127.0.0.1:8420")), None);
        let mapped = address("0000000000000000FFFF00000100007F:20E4");
        assert_eq!(mapped, Some((Ipv4Addr::LOCALHOST.into(), 8420)));
        assert_eq!(
            address("00000000000000000000000001000000:1"),
            Some((Ipv6Addr::LOCALHOST.into(), 1))
        );
        assert_eq!(address("nonsense"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_real_connection_is_found_with_our_own_user() {
        for ip in ["127.0.0.1:0", "[::1]:0"] {
            // A machine without IPv6 has nothing to find.
            let Ok(listener) = TcpListener::bind(ip) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let peer = Peer {
                is_tls: false,
                remote: client.local_addr().unwrap(),
                local: listener.local_addr().unwrap(),
            };
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let own = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
            let own: u32 = own.split_whitespace().nth(1).unwrap().parse().unwrap();
            assert_eq!(user_of(peer), Some(own), "{ip}");
        }
    }
}
