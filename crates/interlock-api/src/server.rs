//! The thread that listens: one runtime of its own, connections under limits, a bounded end.

use std::{
    collections::BTreeSet,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};

use crate::{access::Tokens, limits::Limits, loops::LOOK_EVERY, routes, surface::Surface};

/// Connections at once; more wait to be taken.
const CONNECTIONS_MAX: usize = 512;
/// How long a request's head may take: who says nothing holds a place no longer.
const HEAD_IN: Duration = Duration::from_secs(15);
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

/// Answers on a listener, on a thread of its own.
pub fn start(
    listener: StdListener,
    surface: Arc<Surface>,
    tokens: Tokens,
    limits: Limits,
) -> io::Result<Running> {
    let address = listener.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let router = routes::routes(Arc::clone(&surface), tokens, limits);
    let thread = thread::Builder::new().name("http".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let watching = tokio::spawn(watch_loops(surface));
            match TcpListener::from_std(listener) {
                Ok(listener) => answer(listener, router, stopped).await,
                Err(error) => tracing::error!(%error, "the HTTP interface cannot listen"),
            }
            watching.abort();
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

async fn answer(listener: TcpListener, router: Router, mut stopped: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = GracefulShutdown::new();
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            biased;
            _ = stopped.changed() => break,
            next = next => next,
        };
        match (accepted, place) {
            (Ok((stream, _)), Ok(place)) => talk(stream, place, router.clone(), &connections),
            (Err(error), _) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(PAUSE).await;
            }
            (Ok(_), Err(_closed)) => break,
        }
    }
    drop(listener);
    let _elapsed = tokio::time::timeout(END_IN, connections.shutdown()).await;
}

fn talk(
    stream: TcpStream,
    place: OwnedSemaphorePermit,
    router: Router,
    connections: &GracefulShutdown,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_IN)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        let _place = place;
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection broke off");
        }
    });
}
