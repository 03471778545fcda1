//! Asking the instance on a host.

use std::{io, net::SocketAddr, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, Method, Request, Response, header::HOST},
};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use interlock_answers::GONE_AFTER;
use interlock_store::{InstanceRow, Store};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use super::{InstanceIdentity, signature::sign};
use crate::tls::{self, Fingerprint};

/// How long an instance may take to be reached, and to begin its answer.
const CONNECTED_IN: Duration = Duration::from_secs(2);
const ANSWERED_IN: Duration = Duration::from_secs(5);

/// Why the instance on a host did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// The host has none with an interface.
    #[error("no instance there has said anything for 15 s, or none listens (role `api`)")]
    Gone,
    /// It listens for its own machine alone.
    #[error("its instance listens on {0} only, which other machines cannot reach (`server.addr`)")]
    LoopbackOnly(SocketAddr),
    /// It does not answer.
    #[error("its instance at {address} does not answer: {source}")]
    Silent {
        /// Where.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What is asked of another instance.
#[derive(Debug)]
pub(crate) struct PeerRequest<'a> {
    /// Path and query.
    pub(crate) target: &'a str,
    /// Which bytes, if not all.
    pub(crate) range: Option<&'a HeaderValue>,
}

/// Asks the instance of a host, by the name by which runs know that.
pub(crate) async fn ask_host(
    store: &dyn Store,
    identity: &InstanceIdentity,
    host: &str,
    request: PeerRequest<'_>,
) -> Result<Response<Incoming>, PeerError> {
    let silent = |address: &str| {
        let address = address.to_owned();
        move |source| PeerError::Silent { address, source }
    };
    let unread =
        |error: interlock_store::StoreError| silent("the store")(io::Error::other(error.message));
    let now = store.now().await.map_err(unread)?;
    let rows = store.instances().await.map_err(unread)?;
    let is_there = |row: &&InstanceRow| {
        row.record.jobs_host.as_deref() == Some(host)
            && row.record.address.is_some()
            && now.duration_since(row.said_at) <= GONE_AFTER
    };
    let row = rows.iter().find(is_there).ok_or(PeerError::Gone)?;
    let url = row.record.address.as_deref().ok_or(PeerError::Gone)?;
    let authority = url.split_once("://").map_or(url, |(_, authority)| authority);
    let address: SocketAddr = authority.parse().map_err(|_odd| PeerError::Gone)?;
    if address.ip().is_loopback() && row.record.host != identity.host {
        return Err(PeerError::LoopbackOnly(address));
    }
    let signed = sign(identity, &row.instance, now, request.target, request.range);
    let mut asked = Request::new(Body::empty());
    *asked.method_mut() = Method::GET;
    let odd = || silent(authority)(io::Error::other("it cannot be asked for that"));
    *asked.headers_mut() = signed.ok_or_else(odd)?;
    *asked.uri_mut() = request.target.parse().map_err(|_odd| odd())?;
    let name = HeaderValue::from_str(authority).map_err(|_odd| odd())?;
    asked.headers_mut().insert(HOST, name);
    let certificate = row.record.certificate.as_deref().map(Fingerprint::known);
    let answered = timeout(CONNECTED_IN + ANSWERED_IN, send(address, certificate, asked));
    let late = || io::Error::other(format!("no answer in {} s", ANSWERED_IN.as_secs()));
    answered.await.unwrap_or_else(|_elapsed| Err(late())).map_err(silent(authority))
}

async fn send(
    address: SocketAddr,
    certificate: Option<Fingerprint>,
    request: Request<Body>,
) -> io::Result<Response<Incoming>> {
    let late = |_elapsed| io::Error::other("it cannot be reached in time");
    if let Some(certificate) = certificate {
        let connected = timeout(CONNECTED_IN, tls::connect(address, vec![certificate]));
        return exchange(connected.await.map_err(late)??, request).await;
    }
    let connected = timeout(CONNECTED_IN, TcpStream::connect(address));
    exchange(connected.await.map_err(late)??, request).await
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    request: Request<Body>,
) -> io::Result<Response<Incoming>> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with the answer, or when the client has gone.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(io::Error::other)
}
