//! Waits for a connection.

use std::{
    io::ErrorKind,
    net::{TcpListener, TcpStream},
    time::Duration,
};

use crate::{expired, poll};

/// `accept` with a bound.
pub trait ListenerWithin {
    /// The next connection. A read or a write on it fails after the same bound.
    #[track_caller]
    fn accept_within(&self, what: &str, bound: Duration) -> TcpStream;
}

impl ListenerWithin for TcpListener {
    #[track_caller]
    fn accept_within(&self, what: &str, bound: Duration) -> TcpStream {
        let set = |is_polled| match self.set_nonblocking(is_polled) {
            Ok(()) => {}
            Err(error) => panic!("cannot wait for {what}: {error}"),
        };
        set(true);
        let accepted = poll(bound, || match self.accept() {
            Ok((stream, _)) => Some(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("cannot accept {what}: {error}"),
        });
        set(false);
        let Some(stream) = accepted else { expired(what, bound, "") };
        let ready = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(bound)))
            .and_then(|()| stream.set_write_timeout(Some(bound)));
        match ready {
            Ok(()) => stream,
            Err(error) => panic!("cannot bound the reads of {what}: {error}"),
        }
    }
}
