//! The thread that listens: one runtime of its own, connections under limits, a bounded end.

mod plain;

use std::{
    collections::BTreeSet,
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener},
    sync::Arc,
    thread,
    time::Duration,
};

use axum::{Router, extract::Request, response::Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use interlock_engine::vitals::Pulse;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior},
};
use tokio_rustls::server::TlsStream;
use tower_service::Service as _;

use crate::{
    access::{Doorkeeper, stored_tokens},
    address::{self, Exposure},
    crowd::{Crowd, Place},
    fleet_thread,
    hearing::{self, Hearing},
    limits::Limits,
    loops::LOOK_EVERY,
    patient::Patient,
    routes::{self, MakePages, RoutesInput},
    stream::{EndlessAnswer, EventHub},
    surface::{Reach, Surface},
    tls::ListenerCertificate,
};

/// Connections at once; for more, those that have been still for longest make room.
const CONNECTIONS_MAX: usize = 512;
/// How long a request's head may take: who says nothing holds a place no longer.
const HEAD_IN: Duration = Duration::from_secs(15);
/// How often the tokens are read again: for so long a revoked one still opens the door.
const TOKENS_EVERY: Duration = Duration::from_secs(1);
/// How long the thread may not come round before it counts as late: whoever reports meanwhile waits.
pub const BOUND: Duration = Duration::from_secs(15);
/// How often an address is tried that somebody else has.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// How long requests that are being answered are waited for at the end.
const END_IN: Duration = Duration::from_secs(2);
/// After a failure to take a connection (no file left, say).
const PAUSE: Duration = Duration::from_millis(100);

/// Where it listens.
pub enum Post {
    /// Here.
    Taken(StdListener),
    /// On this address of loopback as soon as it can be had; `then` is called once it is.
    Wanted {
        /// Which.
        address: SocketAddr,
        /// Why it cannot be had now.
        because: String,
        /// What is to be done when it is.
        then: Box<dyn FnOnce() + Send>,
    },
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(listener) => f.debug_tuple("Taken").field(listener).finish(),
            Self::Wanted { address, .. } => f.debug_tuple("Wanted").field(address).finish(),
        }
    }
}

/// What the interface is built from.
pub struct InterfaceDeps {
    /// Where it listens.
    pub post: Post,
    /// What it shows.
    pub surface: Arc<Surface>,
    /// Who may ask.
    pub door: Doorkeeper,
    /// What a request may cost.
    pub limits: Limits,
    /// Says that reports can arrive.
    pub hearing: Hearing,
    /// Makes the pages for people, where there are some.
    pub pages: Option<MakePages>,
}

impl fmt::Debug for InterfaceDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterfaceDeps").field("post", &self.post).finish_non_exhaustive()
    }
}

/// The interface, at work.
#[derive(Debug)]
pub struct Running {
    /// Where it listens, or means to.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: thread::JoinHandle<()>,
}

impl Running {
    /// Takes no more connections, lets those that are being answered end, and returns when that is done, at
    /// the latest after two seconds.
    pub fn stop(self) {
        let _it_has_ended = self.stop.send(true);
        if self.thread.join().is_err() {
            tracing::error!("the thread of the HTTP interface crashed");
        }
    }
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Who asks.
    pub(crate) remote: SocketAddr,
    /// Where they reached us.
    pub(crate) local: SocketAddr,
    /// Whether they speak TLS.
    pub(crate) is_tls: bool,
}

impl Peer {
    /// From which address it is asked.
    pub(crate) fn remote_ip(self) -> IpAddr {
        self.remote.ip().to_canonical()
    }

    /// Who sent a request; ourselves, if it did not come over a connection.
    pub(crate) fn ip<B>(request: &axum::http::Request<B>) -> IpAddr {
        let nobody = IpAddr::V4(Ipv4Addr::LOCALHOST);
        request.extensions().get::<Self>().map_or(nobody, |peer| peer.remote_ip())
    }
}

/// When answers that have no end of their own are to end.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// Ready when the interface is about to stop.
    pub(crate) async fn begins(&mut self) {
        // A sender that is gone means the same.
        let _stopped = self.0.wait_for(|is_stopped| *is_stopped).await;
    }
}

/// Answers where it is posted, on a thread of its own, which is one of the loops that are watched.
pub fn start(deps: InterfaceDeps) -> io::Result<Running> {
    let InterfaceDeps { post, surface, door, limits, hearing, pages } = deps;
    let (address, reach) = match &post {
        Post::Taken(listener) => {
            let address = listener.local_addr()?;
            (address, Reach::At(address))
        }
        Post::Wanted { address, because, .. } => (*address, Reach::Shut(because.clone())),
    };
    surface.is_reached(reach);
    let pulse = Pulse::default();
    surface.loops.register("http", pulse.clone(), BOUND);
    let (stop, stopped) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shutdown = Shutdown(stopped.clone());
    let (shown, doors) = (Arc::clone(&surface), door.clone());
    let input = RoutesInput { surface: shown, door: doors, limits, shutdown, pages };
    let router = routes::routes(input);
    fleet_thread::start(Arc::clone(&surface), stopped.clone())?;
    let thread = thread::Builder::new().name("http".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let reading = tokio::spawn(read_tokens(Arc::clone(&surface), door));
            let watching = tokio::spawn(watch_loops(Arc::clone(&surface)));
            let listener = take(post, &surface, (&hearing, &pulse), stopped.clone()).await;
            if let Some(listener) = listener {
                let reading = tokio::spawn(read_events(Arc::clone(&surface)));
                let ending = tokio::spawn(end_streams(surface.events.clone(), stopped.clone()));
                let certificate = surface.certificate.get().cloned();
                let keeping = certificate.clone().map(|it| tokio::spawn(it.keep()));
                let saying = tokio::spawn(hearing::say(surface, hearing, stopped.clone()));
                answer(listener, (router, limits.unread), certificate, (pulse, stopped)).await;
                let _elapsed = tokio::time::timeout(END_IN, saying).await;
                drop(keeping.inspect(JoinHandle::abort));
                ending.abort();
                reading.abort();
            }
            watching.abort();
            reading.abort();
        });
        // A disk that hangs under a log must not keep the process.
        runtime.shutdown_background();
    })?;
    Ok(Running { address, stop, thread })
}

/// The listener, at once or when its address can be had; `None` if it ends before.
async fn take(
    post: Post,
    surface: &Surface,
    (hearing, pulse): (&Hearing, &Pulse),
    mut stopped: watch::Receiver<bool>,
) -> Option<TcpListener> {
    let (address, then) = match post {
        Post::Taken(listener) => return asynchronous(listener),
        Post::Wanted { address, then, .. } => (address, then),
    };
    let mut is_said = false;
    loop {
        pulse.beat();
        if let Some(store) = surface.store.get().filter(|_| !is_said) {
            is_said = hearing::cannot(store.as_ref(), hearing).await;
        }
        tokio::select! {
            biased;
            _ = stopped.changed() => return None,
            () = tokio::time::sleep(TRY_EVERY) => {}
        }
        match address::bind(&address.to_string(), Exposure::LoopbackOnly) {
            Ok(listener) => {
                tracing::info!("{address} is free; jobs can report over HTTP");
                surface.is_reached(Reach::At(address));
                then();
                return asynchronous(listener);
            }
            Err(refusal) => surface.is_reached(Reach::Shut(refusal.to_string())),
        }
    }
}

fn asynchronous(listener: StdListener) -> Option<TcpListener> {
    let listener = TcpListener::from_std(listener);
    listener.inspect_err(|error| tracing::error!(%error, "the HTTP interface cannot listen")).ok()
}

/// Looks at the pulses whether or not anybody asks, so that a verdict does not begin with the first question.
async fn watch_loops(surface: Arc<Surface>) {
    let mut late_before = BTreeSet::new();
    loop {
        let standing = surface.loops.look(Instant::now());
        let late = standing.iter().filter(|standing| standing.is_late());
        let late: BTreeSet<_> = late.map(|standing| standing.name).collect();
        for name in late.difference(&late_before) {
            tracing::error!("the loop `{name}` makes no progress; /healthz says so");
        }
        for name in late_before.difference(&late) {
            tracing::info!("the loop `{name}` makes progress again");
        }
        late_before = late;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Reads events for the streams, once the store is open.
async fn read_events(surface: Arc<Surface>) {
    let store = loop {
        if let Some(store) = surface.store.get() {
            break Arc::clone(store);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    surface.events.clone().read(store).await;
}

/// Streams end when the interface does: it waits for none of them.
async fn end_streams(events: EventHub, mut stopped: watch::Receiver<bool>) {
    // Bounded: the end of the interface is what is waited for, and ends this task.
    let _it_ends = stopped.changed().await;
    events.close();
}

/// Keeps up with the tokens of the store. While it does not answer, those hold that were read last.
async fn read_tokens(surface: Arc<Surface>, door: Doorkeeper) {
    loop {
        if let Some(store) = surface.store.get() {
            match stored_tokens(store.as_ref()).await {
                Ok(tokens) => door.take(tokens),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the tokens; the last ones stay in force");
                }
            }
        }
        tokio::time::sleep(TOKENS_EVERY).await;
    }
}

async fn answer(
    listener: TcpListener,
    (router, unread): (Router, Duration),
    certificate: Option<Arc<ListenerCertificate>>,
    (pulse, mut stopped): (Pulse, watch::Receiver<bool>),
) {
    let crowd = Crowd::new(CONNECTIONS_MAX);
    let connections = GracefulShutdown::new();
    let mut round = tokio::time::interval(LOOK_EVERY);
    round.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pulse.beat();
        let accepted = tokio::select! {
            biased;
            _ = stopped.changed() => break,
            _ = round.tick() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, remote)) => {
                let local = stream.local_addr().unwrap_or(remote);
                let answers = Answers {
                    peer: Peer { remote, local, is_tls: certificate.is_some() },
                    place: crowd.enter(),
                    router: router.clone(),
                    watcher: connections.watcher(),
                };
                let connection = Connection { stream, unread, answers };
                tokio::spawn(connection.talk(certificate.clone(), stopped.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    let _elapsed = tokio::time::timeout(END_IN, connections.shutdown()).await;
}

/// A connection that was taken.
struct Connection {
    stream: TcpStream,
    /// How long its other end may read nothing.
    unread: Duration,
    answers: Answers,
}

/// What the requests of a connection are answered from.
struct Answers {
    peer: Peer,
    place: Arc<Place>,
    router: Router,
    watcher: Watcher,
}

impl Connection {
    /// Answers what it asks until either end has enough, or another connection needs its place.
    async fn talk(
        self,
        certificate: Option<Arc<ListenerCertificate>>,
        stopped: watch::Receiver<bool>,
    ) {
        let place = Arc::clone(&self.answers.place);
        let talked = async {
            match certificate {
                None => self.answers.serve(Patient::new(self.stream, self.unread)).await,
                Some(certificate) => self.talk_tls(&certificate, stopped).await,
            }
        };
        tokio::select! {
            () = talked => {}
            () = place.is_needed() => tracing::debug!("a connection that was still made room"),
        }
    }

    async fn talk_tls(self, certificate: &ListenerCertificate, mut stopped: watch::Receiver<bool>) {
        let shaken = handshake(self.stream, self.unread, certificate);
        let shaken = tokio::select! {
            biased;
            // Nothing was asked yet.
            _ = stopped.changed() => return,
            shaken = tokio::time::timeout(HEAD_IN, shaken) => shaken,
        };
        match shaken {
            Ok(Ok(Some(stream))) => self.answers.serve(stream).await,
            Ok(Ok(None)) => tracing::debug!("a connection began with plain HTTP"),
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_elapsed) => tracing::debug!("a TLS handshake took too long"),
        }
    }
}

/// The beginning of a TLS connection. Who speaks plain HTTP is told so, and gets nothing else.
async fn handshake(
    mut stream: TcpStream,
    unread: Duration,
    certificate: &ListenerCertificate,
) -> io::Result<Option<TlsStream<Patient<TcpStream>>>> {
    let mut first = [0];
    let is_text = stream.peek(&mut first).await? == 1 && first.iter().all(u8::is_ascii_alphabetic);
    if is_text {
        plain::refuse(&mut stream).await?;
        return Ok(None);
    }
    certificate.acceptor().accept(Patient::new(stream, unread)).await.map(Some)
}

impl Answers {
    /// Answers the requests of a connection, one after the other.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let Self { peer, place, router, watcher } = self;
        let service = service_fn(move |mut request: Request<Incoming>| {
            place.moves();
            request.extensions_mut().insert(peer);
            let (mut router, place) = (router.clone(), Arc::clone(&place));
            async move {
                let response = router.call(request).await;
                let is_endless =
                    |response: &Response| response.extensions().get::<EndlessAnswer>().is_some();
                if response.as_ref().is_ok_and(is_endless) {
                    place.is_kept();
                } else {
                    place.moves();
                }
                response
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_IN)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection broke off");
        }
    }
}
