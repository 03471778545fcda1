//! The socket: who may speak, and how lines become requests.
//!
//! A daemon that does not read (stopped, swapped out) is cut off after a while instead of being waited for; what it
//! missed is told again when it comes back.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read},
    os::{
        fd::AsRawFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    net::SendFlags,
};

use super::{
    protocol::{LINE_BYTES_MAX, Line, Request},
    time::Moment,
};

/// More daemons than this have no business here.
pub(crate) const CONNECTIONS_MAX: usize = 32;

/// How long a daemon may leave its lines unread once the socket's buffer is full.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// How long "it runs" waits for the end of the job: that of a short one is told with it, and the daemon wakes once.
const START_PATIENCE: Duration = Duration::from_millis(5);

/// How much is read at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// An address that fits into a socket's name.
#[derive(Debug)]
pub(crate) struct Address {
    path: PathBuf,
    /// Keeps the short name of a long directory valid.
    _dir: Option<File>,
}

impl Address {
    /// The runner's socket in a directory. A name of more than about a hundred bytes cannot be
    /// bound; such a directory is named by its open file.
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        const NAME: &str = "runner.sock";
        let path = dir.join(NAME);
        if path.as_os_str().len() < 100 {
            return Ok(Self { path, _dir: None });
        }
        let open = File::open(dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", open.as_raw_fd()));
        Ok(Self { path, _dir: Some(open) })
    }

    /// The name to bind or to connect to, while this lives.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens the socket; the caller holds the directory's lock, so that one found there is stale.
pub(crate) fn listen(dir: &Path) -> io::Result<UnixListener> {
    let address = Address::new(dir)?;
    match fs::remove_file(address.path()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(address.path())?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(address.path(), Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A connected daemon. Nothing here ever waits: the runner says when there is something to read or room to write.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    /// The beginning of a line.
    incoming: Vec<u8>,
    /// Lines that are not sent yet.
    outgoing: Vec<u8>,
    /// When they are to be sent.
    send_at: Option<Moment>,
    /// When a peer that does not read is cut off.
    cut_off_at: Option<Moment>,
    pub(crate) is_subscribed: bool,
    is_over: bool,
}

impl Connection {
    /// Somebody who has said nothing yet.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            send_at: None,
            cut_off_at: None,
            is_subscribed: false,
            is_over: false,
        })
    }

    /// What to wait for.
    pub(crate) fn interest(&self) -> PollFd<'_> {
        let room = if self.cut_off_at.is_some() { PollFlags::OUT } else { PollFlags::empty() };
        PollFd::new(&self.stream, PollFlags::IN | room)
    }

    /// When it wants to be flushed, whatever happens until then.
    pub(crate) fn wake(&self) -> Option<Moment> {
        self.cut_off_at.or(self.send_at)
    }

    /// Whether nothing more will come from it.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads what is there: requests, or why a line is none.
    pub(crate) fn read(&mut self) -> Vec<Result<Request, String>> {
        let mut chunk = [0; CHUNK_BYTES];
        let read = match self.stream.read(&mut chunk) {
            Ok(read) => chunk.get(..read).unwrap_or_default(),
            Err(error) if is_passing(error.kind()) => return Vec::new(),
            Err(_) => &[],
        };
        let mut requests = Vec::new();
        for piece in read.split_inclusive(|byte| *byte == b'\n') {
            self.incoming.extend_from_slice(piece);
            self.is_over |= self.incoming.len() > LINE_BYTES_MAX;
            if self.is_over {
                break;
            }
            if let Some(line) = self.incoming.strip_suffix(b"\n") {
                requests.push(serde_json::from_slice(line).map_err(|error| error.to_string()));
                self.incoming.clear();
            }
        }
        self.is_over |= read.is_empty();
        requests
    }

    /// Adds a line to what is sent next.
    pub(crate) fn say(&mut self, line: &Line) {
        // Lines are strings and numbers in maps; they can always be written.
        let _written = serde_json::to_writer(&mut self.outgoing, line);
        self.outgoing.push(b'\n');
        let now = Moment::now();
        let at = if line.is_about_a_start() { now.after(START_PATIENCE) } else { now };
        self.send_at = Some(self.send_at.map_or(at, |sooner| sooner.min(at)));
    }

    /// Sends what it is time for. What the socket does not take waits for room, so that nobody who does not read can
    /// hold up the runner; and it waits for that only so long.
    pub(crate) fn flush(&mut self) {
        let now = Moment::now();
        if self.send_at.is_none_or(|at| at > now) {
            return;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&self.stream, &self.outgoing, flags) {
            Ok(sent) => {
                self.outgoing.drain(..sent);
                self.cut_off_at = None;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A peer that is gone is noticed once everything is read that it had to say.
            Err(_) => self.outgoing.clear(),
        }
        if self.outgoing.is_empty() {
            (self.send_at, self.cut_off_at) = (None, None);
        } else {
            let at = self.cut_off_at.get_or_insert(now.after(WRITE_PATIENCE));
            self.is_over |= *at <= now;
        }
    }
}

fn is_passing(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::runner::protocol::{Ask, News, Reply, Told};

    fn pair() -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (Connection::new(ours).unwrap(), theirs)
    }

    fn received(mut stream: &UnixStream) -> String {
        let mut bytes = vec![0; 64 * 1024];
        // Bounded: `pair` makes the stream one that does not block.
        let length = stream.read(&mut bytes).unwrap_or(0);
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    fn told(news: News) -> Line {
        Line::Told(Told { run_id: "a".to_owned(), at: jiff::Timestamp::UNIX_EPOCH, news })
    }

    #[test]
    fn lines_are_requests_however_they_are_cut() {
        let (mut connection, mut theirs) = pair();
        theirs.write_all(b"{\"id\":1,\"ask\":\"list\"}\nnonsense\n{\"id\":2,").unwrap();
        let first = connection.read();
        assert!(matches!(first[0], Ok(Request { id: 1, ask: Ask::List })), "{first:?}");
        assert!(first[1].is_err() && first.len() == 2, "{first:?}");
        assert!(connection.read().is_empty() && !connection.is_over());
        theirs.write_all(b"\"ask\":\"list\"}\n").unwrap();
        drop(theirs);
        assert!(matches!(connection.read()[..], [Ok(Request { id: 2, .. })]));
        assert!(connection.read().is_empty() && connection.is_over());
    }

    #[test]
    fn a_line_that_never_ends_ends_the_connection() {
        let (mut connection, mut theirs) = pair();
        let mut sent = 0;
        while !connection.is_over() {
            assert!(sent <= LINE_BYTES_MAX + CHUNK_BYTES, "{sent} bytes were taken");
            sent += theirs.write(&[b'x'; CHUNK_BYTES]).unwrap();
            assert!(connection.read().is_empty());
        }
        assert!(sent > LINE_BYTES_MAX, "{sent} bytes are no reason to end it");
    }

    #[test]
    fn a_start_is_told_with_the_end_when_that_follows_at_once() {
        let (mut connection, theirs) = pair();
        connection.say(&Line::Reply { id: 1, reply: Reply::Done });
        connection.say(&told(News::Started { metadata: [].into() }));
        connection.flush();
        assert_eq!(received(&theirs), "", "it waits a moment for the end");
        let wake = connection.wake().unwrap();
        assert!(Moment::now().until(wake) <= START_PATIENCE);
        connection.say(&Line::Reply { id: 2, reply: Reply::Already });
        connection.flush();
        assert_eq!(received(&theirs).lines().count(), 3, "an answer takes along what waits");
        assert_eq!(connection.wake(), None);

        connection.say(&Line::Reply { id: 3, reply: Reply::Done });
        let wake = connection.wake().unwrap();
        // Bounded: the loop ends by the clock, at `wake`.
        while Moment::now() < wake {
            std::thread::yield_now();
        }
        connection.flush();
        assert_eq!(received(&theirs).lines().count(), 1, "it does not wait longer");
    }

    #[test]
    fn what_the_socket_does_not_take_waits_in_order_and_not_for_ever() {
        let (mut connection, theirs) = pair();
        let mut said = 0;
        while connection.cut_off_at.is_none() {
            said += 1;
            connection.say(&Line::Reply { id: said, reply: Reply::Already });
            connection.flush();
        }
        assert!(!connection.outgoing.is_empty() && !connection.is_over());
        let mut text = String::new();
        while text.lines().count() < said as usize || !text.ends_with('\n') {
            text.push_str(&received(&theirs));
            connection.flush();
        }
        let last = Line::Reply { id: said, reply: Reply::Already };
        assert_eq!(text.lines().next_back(), serde_json::to_string(&last).ok().as_deref());
        assert!(connection.wake().is_none() && !connection.is_over());

        while connection.cut_off_at.is_none() {
            connection.say(&Line::Reply { id: said, reply: Reply::Already });
            connection.flush();
        }
        connection.cut_off_at = Some(Moment::now());
        connection.flush();
        assert!(connection.is_over(), "nobody reads");
    }
}
