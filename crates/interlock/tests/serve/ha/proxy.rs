//! A way to a server that can be cut: connections end at once, or nothing comes through any more, or all of it late.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

const OPEN: u8 = 0;
const CUT: u8 = 1;
const SILENT: u8 = 2;
const ENDED: u8 = 3;
/// So many parts are held back at once.
const IN_FLIGHT_MAX: usize = 4_096;

/// The way of one instance.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

struct State {
    is: AtomicU8,
    to: u16,
    /// How long what comes through is held back, in milliseconds.
    slow_by: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// A way to a port of this machine.
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let own = listener.local_addr().unwrap().port();
        let (is, slow_by) = (AtomicU8::new(OPEN), AtomicU64::new(0));
        let state = Arc::new(State { is, to: port, slow_by, streams: Mutex::default() });
        let at_work = Arc::clone(&state);
        thread::spawn(move || {
            // Bounded: no test waits for this thread; it ends with the test's process.
            for stream in listener.incoming().flatten() {
                match at_work.is.load(SeqCst) {
                    ENDED => return,
                    // Whoever comes now hears nothing, or is sent away.
                    CUT => drop(stream),
                    _ => at_work.carry(stream),
                }
            }
        });
        Self { port: own, state }
    }

    /// Every connection ends, and no new one is made.
    pub(crate) fn cut(&self) {
        self.state.become_closed(CUT);
    }

    /// Nothing comes through, and nobody says so.
    pub(crate) fn silence(&self) {
        self.state.is.store(SILENT, SeqCst);
    }

    /// Whatever comes through is held back for so long, each way.
    pub(crate) fn slow_by(&self, delay: Duration) {
        self.state.slow_by.store(delay.as_millis() as u64, SeqCst);
    }

    /// All is well again.
    pub(crate) fn heal(&self) {
        self.state.slow_by.store(0, SeqCst);
        self.state.is.store(OPEN, SeqCst);
    }
}

impl State {
    fn become_closed(&self, is: u8) {
        self.is.store(is, SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }

    fn carry(self: &Arc<Self>, here: TcpStream) {
        let Ok(there) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to)) else { return };
        for stream in [&here, &there] {
            let _slower = stream.set_nodelay(true);
            self.streams.lock().unwrap().push(stream.try_clone().unwrap());
        }
        let pairs = [(here.try_clone(), there.try_clone()), (Ok(there), Ok(here))];
        for (from, to) in pairs {
            let (from, to, state) = (from.unwrap(), to.unwrap(), Arc::clone(self));
            thread::spawn(move || state.pump(from, to));
        }
    }

    /// Carries one way: what was read is written when it has been held back for long enough, and meanwhile more is read. So a slow way
    /// has its delay and not less room.
    fn pump(self: &Arc<Self>, mut from: TcpStream, to: TcpStream) {
        let (sender, held_back) = mpsc::sync_channel(IN_FLIGHT_MAX);
        thread::spawn(move || write_in_time(&held_back, to));
        let mut buffer = vec![0; 64 * 1024];
        // Bounded: no test waits for this thread; it ends with the test's process.
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            // Bounded: no test waits for this thread, and a proxy that is dropped is not silent.
            while self.is.load(SeqCst) == SILENT {
                thread::sleep(Duration::from_millis(20));
            }
            let due = Instant::now() + Duration::from_millis(self.slow_by.load(SeqCst));
            if sender.send((due, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
        let _gone = from.shutdown(Shutdown::Read);
    }
}

/// Writes what was held back, each part at its time; then the way ends.
fn write_in_time(held_back: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
    // Bounded: the end of the thread that reads, whose end of the channel goes with it.
    while let Ok((due, bytes)) = held_back.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _gone = to.shutdown(Shutdown::Both);
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.become_closed(ENDED);
        // The one who listens looks up.
        let _gone = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}
