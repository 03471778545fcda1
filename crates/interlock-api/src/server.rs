//! The thread that listens: one runtime of its own, connections under limits, a bounded end.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use axum::{Router, extract::Request, response::Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use interlock_engine::vitals::Pulse;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{Instant, MissedTickBehavior},
};
use tower_service::Service as _;

use crate::{
    access::{Doorkeeper, stored_tokens},
    address::{self, Exposure},
    crowd::{Crowd, Place},
    hearing::{self, Hearing},
    limits::Limits,
    loops::LOOK_EVERY,
    patient::Patient,
    routes,
    stream::{EndlessAnswer, EventHub},
    surface::{Reach, Surface},
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

/// The interface, at work.
#[derive(Debug)]
pub struct Running {
    /// Where it listens, or means to.
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
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
pub fn start(
    post: Post,
    surface: Arc<Surface>,
    door: Doorkeeper,
    limits: Limits,
    hearing: Hearing,
) -> io::Result<Running> {
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
    let router =
        routes::routes(Arc::clone(&surface), door.clone(), limits, Shutdown(stopped.clone()));
    let thread = thread::Builder::new().name("http".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let reading = tokio::spawn(read_tokens(Arc::clone(&surface), door));
            let watching = tokio::spawn(watch_loops(Arc::clone(&surface)));
            let listener = take(post, &surface, (&hearing, &pulse), stopped.clone()).await;
            if let Some(listener) = listener {
                let reading = tokio::spawn(read_events(Arc::clone(&surface)));
                let ending = tokio::spawn(end_streams(surface.events.clone(), stopped.clone()));
                let saying = tokio::spawn(hearing::say(surface, hearing, stopped.clone()));
                answer(listener, (router, limits.unread), (pulse, stopped)).await;
                let _elapsed = tokio::time::timeout(END_IN, saying).await;
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
                let stream = Patient::new(stream, unread);
                let place = crowd.enter();
                talk(stream, (place, Peer { remote, local }), router.clone(), &connections);
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

fn talk(
    stream: Patient<TcpStream>,
    (place, peer): (Arc<Place>, Peer),
    router: Router,
    connections: &GracefulShutdown,
) {
    let at_work = Arc::clone(&place);
    let service = service_fn(move |mut request: Request<Incoming>| {
        at_work.moves();
        request.extensions_mut().insert(peer);
        let (mut router, place) = (router.clone(), Arc::clone(&at_work));
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
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        tokio::select! {
            ended = connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke off");
                }
            }
            () = place.is_needed() => tracing::debug!("a connection that was still made room"),
        }
    });
}
