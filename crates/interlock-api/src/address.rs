//! Where the interface listens, and where it may not.

use std::{
    io,
    net::{SocketAddr, TcpListener, ToSocketAddrs as _},
};

/// Why there is no interface.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// It is no address.
    #[error("`server.addr: {addr}` is no address: {reason}")]
    NoAddress {
        /// What was written.
        addr: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Everybody could reach it.
    #[error(
        "`server.addr: {addr}` can be reached from other machines, and no token is set: everyone who reaches it \
         could do everything"
    )]
    Exposed {
        /// What was written.
        addr: String,
    },
    /// Somebody else listens there.
    #[error("{addr} is taken by another process")]
    Taken {
        /// The address.
        addr: String,
    },
    /// The system says no.
    #[error("cannot listen on {addr}")]
    Refused {
        /// The address.
        addr: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Listens on an address such as `127.0.0.1:8420`, `localhost:8420`, `[::1]:8420` or `:8420` (every
/// interface). Port 0 is any free one.
pub fn bind(addr: &str, exposure: Exposure) -> Result<TcpListener, BindError> {
    let addresses = resolve(addr)?;
    let is_exposed = addresses.iter().any(|address| !address.ip().is_loopback());
    if is_exposed && exposure == Exposure::LoopbackOnly {
        return Err(BindError::Exposed { addr: addr.to_owned() });
    }
    let refused = |source: io::Error| {
        let addr = addr.to_owned();
        if source.kind() == io::ErrorKind::AddrInUse {
            BindError::Taken { addr }
        } else {
            BindError::Refused { addr, source }
        }
    };
    let listener = TcpListener::bind(addresses.as_slice()).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    Ok(listener)
}

/// Who may reach the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// This machine: there is no token.
    LoopbackOnly,
    /// Anybody: a token is asked for.
    Anywhere,
}

fn resolve(addr: &str) -> Result<Vec<SocketAddr>, BindError> {
    let no_address = |reason: String| BindError::NoAddress { addr: addr.to_owned(), reason };
    let full = if addr.starts_with(':') { format!("0.0.0.0{addr}") } else { addr.to_owned() };
    let found = full.to_socket_addrs().map_err(|error| no_address(error.to_string()))?;
    let found: Vec<_> = found.collect();
    if found.is_empty() { Err(no_address("it names no machine".to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_token_only_loopback_is_allowed() {
        let check = |addr, exposure| bind(addr, exposure).map(|_| ()).map_err(|e| e.to_string());
        for addr in ["127.0.0.1:0", "localhost:0", "127.1.2.3:0"] {
            assert_eq!(check(addr, Exposure::LoopbackOnly), Ok(()), "{addr}");
        }
        for addr in ["0.0.0.0:0", ":0", "[::]:0"] {
            let refusal = check(addr, Exposure::LoopbackOnly).unwrap_err();
            assert!(refusal.contains("no token is set"), "{addr}: {refusal}");
        }
        assert_eq!(check("0.0.0.0:0", Exposure::Anywhere), Ok(()));
    }

    #[test]
    fn what_is_no_address_and_what_is_taken_are_told_apart() {
        let refusal = bind("somewhere", Exposure::LoopbackOnly).unwrap_err();
        assert!(matches!(refusal, BindError::NoAddress { .. }), "{refusal}");
        let first = bind("127.0.0.1:0", Exposure::LoopbackOnly).unwrap();
        let taken = first.local_addr().unwrap().to_string();
        let refusal = bind(&taken, Exposure::LoopbackOnly).unwrap_err();
        assert!(matches!(refusal, BindError::Taken { .. }), "{refusal}");
    }
}
