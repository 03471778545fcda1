//! The thread that listens: one runtime of its own, connections under limits, a bounded end.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use axum::{Router, extract::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::Instant,
};
use tower_service::Service as _;

use crate::{
    access::{Doorkeeper, stored_tokens},
    crowd::{Crowd, Place},
    hearing::{self, Hearing},
    limits::Limits,
    loops::LOOK_EVERY,
    patient::Patient,
    routes,
    surface::Surface,
};

/// Connections at once; for more, those that have been still for longest make room.
const CONNECTIONS_MAX: usize = 512;
/// How long a request's head may take: who says nothing holds a place no longer.
const HEAD_IN: Duration = Duration::from_secs(15);
/// How often the tokens are read again: for so long a revoked one still opens the door.
const TOKENS_EVERY: Duration = Duration::from_secs(1);
/// How long requests that are being answered are waited for at the end.
const END_IN: Duration = Duration::from_secs(2);
/// After a failure to take a connection (no file left, say).
const PAUSE: Duration = Duration::from_millis(100);

/// The interface, at work.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
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
            tracing::error!("the thread of the HTTP interface had panicked");
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Peer {
    /// Who sent a request; ourselves, if it did not come over a connection.
    pub(crate) fn of<B>(request: &axum::http::Request<B>) -> IpAddr {
        let nobody = IpAddr::V4(Ipv4Addr::LOCALHOST);
        request.extensions().get::<Self>().map_or(nobody, |peer| peer.0.to_canonical())
    }
}

/// Answers on a listener, on a thread of its own.
pub fn start(
    listener: StdListener,
    surface: Arc<Surface>,
    door: Doorkeeper,
    limits: Limits,
    hearing: Hearing,
) -> io::Result<Running> {
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let router = routes::routes(Arc::clone(&surface), door.clone(), limits);
    let thread = thread::Builder::new().name("http".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let saying = hearing::say(Arc::clone(&surface), hearing, stopped.clone());
            let saying = tokio::spawn(saying);
            let reading = tokio::spawn(read_tokens(Arc::clone(&surface), door));
            let watching = tokio::spawn(watch_loops(surface));
            match TcpListener::from_std(listener) {
                Ok(listener) => answer(listener, (router, limits.unread), stopped).await,
                Err(error) => tracing::error!(%error, "the HTTP interface cannot listen"),
            }
            watching.abort();
            reading.abort();
            let _elapsed = tokio::time::timeout(END_IN, saying).await;
        });
    })?;
    Ok(Running { address, stop, thread })
}

/// Looks at the pulses whether or not anybody asks, so that a verdict does not begin with the first question.
async fn watch_loops(surface: Arc<Surface>) {
    let mut late_before = BTreeSet::new();
    loop {
        let standing = surface.loops.look(Instant::now());
        let late = standing.iter().filter(|standing| standing.is_late());
        let late: BTreeSet<_> = late.map(|standing| standing.name).collect();
        for name in late.difference(&late_before) {
            tracing::error!("the loop `{name}` has not come round in time; /healthz says so");
        }
        for name in late_before.difference(&late) {
            tracing::info!("the loop `{name}` comes round again");
        }
        late_before = late;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Keeps up with the tokens of the store. While it does not answer, those hold that were read last.
async fn read_tokens(surface: Arc<Surface>, door: Doorkeeper) {
    loop {
        if let Some(store) = surface.store.get() {
            match stored_tokens(store.as_ref()).await {
                Ok(tokens) => door.take(tokens),
                Err(error) => {
                    tracing::warn!(%error, "the tokens cannot be read; the last ones hold");
                }
            }
        }
        tokio::time::sleep(TOKENS_EVERY).await;
    }
}

async fn answer(
    listener: TcpListener,
    (router, unread): (Router, Duration),
    mut stopped: watch::Receiver<bool>,
) {
    let crowd = Crowd::new(CONNECTIONS_MAX);
    let connections = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopped.changed() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let stream = Patient::new(stream, unread);
                talk(stream, (crowd.enter(), Peer(peer.ip())), router.clone(), &connections);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
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
            place.moves();
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
