//! The socket: who may speak, and how lines become events.
//!
//! A connection is two threads: one reads requests, one writes what the runner could not write itself
//! at once. A daemon that does not read (stopped, swapped out) is cut off after a while instead of
//! being waited for; what it missed is told again when it comes back.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufRead, BufReader, Read, Write},
    net::Shutdown,
    os::{
        fd::AsRawFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, SyncSender},
    },
    thread,
    time::Duration,
};

use rustix::net::SendFlags;

use super::{
    Event,
    desk::complain,
    protocol::{LINE_BYTES_MAX, Request},
};

/// More daemons than this have no business here.
const CONNECTIONS_MAX: usize = 32;

/// How long a daemon may leave its lines unread once the socket's buffer is full.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

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
    fs::set_permissions(address.path(), Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Takes in connections for ever.
pub(crate) fn accept(listener: &UnixListener, events: &SyncSender<Event>) {
    let open = Arc::new(AtomicUsize::new(0));
    for connection in 1u64.. {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                complain(format_args!("a connection could not be accepted: {error}"));
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            complain(format_args!("more than {CONNECTIONS_MAX} connections; one is refused"));
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = serve(stream, connection, events, &open) {
            open.fetch_sub(1, Ordering::Relaxed);
            complain(format_args!("a connection could not be served: {error}"));
        }
    }
}

fn serve(
    stream: UnixStream,
    connection: u64,
    events: &SyncSender<Event>,
    open: &Arc<AtomicUsize>,
) -> io::Result<()> {
    let outgoing = Outgoing::new(&stream)?;
    let (events, open) = (events.clone(), Arc::clone(open));
    thread::Builder::new().name("reader".to_owned()).spawn(move || {
        if events.send(Event::Connected { connection, outgoing }).is_ok() {
            read(&stream, connection, &events);
        }
        let _ended = events.send(Event::Disconnected { connection });
        open.fetch_sub(1, Ordering::Relaxed);
    })?;
    Ok(())
}

/// What goes to a daemon. It is written at once; what the socket does not take waits with a thread, so that nobody
/// who does not read can hold up the runner.
#[derive(Debug)]
pub(crate) struct Outgoing {
    stream: UnixStream,
    backlog: mpsc::Sender<Vec<u8>>,
    /// How many texts the thread has not written yet; while there are any, the next goes behind them.
    waiting: Arc<AtomicUsize>,
}

impl Outgoing {
    fn new(stream: &UnixStream) -> io::Result<Self> {
        let (backlog, texts) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let (writing, written) = (stream.try_clone()?, Arc::clone(&waiting));
        writing.set_write_timeout(Some(WRITE_PATIENCE))?;
        thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || write(&writing, &texts, &written))?;
        Ok(Self { stream: stream.try_clone()?, backlog, waiting })
    }

    /// Sends a text; a peer that is gone is noticed by its reader.
    pub(crate) fn send(&self, mut text: Vec<u8>) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = rustix::net::send(&self.stream, &text, flags).unwrap_or(0);
            text.drain(..sent);
        }
        if !text.is_empty() {
            self.waiting.fetch_add(1, Ordering::Release);
            let _gone = self.backlog.send(text);
        }
    }
}

fn write(mut stream: &UnixStream, texts: &mpsc::Receiver<Vec<u8>>, waiting: &AtomicUsize) {
    while let Ok(text) = texts.recv() {
        if stream.write_all(&text).is_err() {
            break;
        }
        waiting.fetch_sub(1, Ordering::Release);
    }
    // Whatever ended it, the reader must notice.
    let _gone = stream.shutdown(Shutdown::Both);
}

fn read(stream: &UnixStream, connection: u64, events: &SyncSender<Event>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limited = reader.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line);
        if !matches!(limited, Ok(1..)) || line.pop() != Some(b'\n') {
            break;
        }
        let event = match serde_json::from_slice::<Request>(&line) {
            Ok(request) => Event::Asked { connection, request },
            Err(error) => Event::Malformed { connection, message: error.to_string() },
        };
        if events.send(event).is_err() {
            break;
        }
    }
    let _gone = stream.shutdown(Shutdown::Both);
}
