//! A log that another instance has, on its way through this one.

use std::{io, pin::Pin, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    http::{
        HeaderName, StatusCode,
        header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE},
    },
    response::Response,
};
use futures_util::{future::poll_fn, stream};
use hyper::body::Incoming;
use interlock_answers::RunLog;
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use super::{LOG_SOURCE, LOG_START, LogRequestParts};
use crate::{
    peer::{self, PeerError, PeerRequest},
    server::Shutdown,
    surface::Surface,
};

/// How long the other instance may send nothing of a log that is there. One that is followed may be silent for as long as its job is.
const SILENT_FOR: Duration = Duration::from_secs(15);
/// How long one that is followed may be silent: as long as it is followed at most.
const FOLLOWED_SILENT_FOR: Duration = Duration::from_mins(61);
/// What an answer says of itself that is passed on.
const PASSED_ON: [HeaderName; 6] = [
    CONTENT_TYPE,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    ACCEPT_RANGES,
    HeaderName::from_static(LOG_START),
    HeaderName::from_static(LOG_SOURCE),
];

/// What the instance on another host answered.
pub(super) struct FetchedLog(Response<Incoming>);

/// Its bytes, one piece after the other.
struct FetchedBody {
    body: Incoming,
    silent_for: Duration,
    shutdown: Shutdown,
    #[expect(dead_code, reason = "a place is given up when it is dropped")]
    place: Option<OwnedSemaphorePermit>,
}

impl FetchedLog {
    /// Asks the instance on a host; none if it has nothing of the log.
    pub(super) async fn ask(
        surface: &Surface,
        host: &str,
        log: &RunLog,
        asked: &LogRequestParts,
    ) -> Result<Option<Self>, PeerError> {
        let (Some(store), Some(identity)) = (surface.store.get(), surface.identity.get()) else {
            return Err(PeerError::Gone);
        };
        let query = asked.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        // A run's name has no character that a path could not have.
        let target = format!("/api/v1/instances/runs/{}/log{query}", log.run);
        let request = PeerRequest { target: &target, range: asked.range.as_ref() };
        let response = peer::ask_host(store.as_ref(), identity, host, request).await?;
        match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                Ok(Some(Self(response)))
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
            status => Err(PeerError::Silent {
                address: host.to_owned(),
                source: io::Error::other(format!("it answered {status}")),
            }),
        }
    }

    /// The same answer from here.
    pub(super) fn response(
        self,
        place: Option<OwnedSemaphorePermit>,
        shutdown: Shutdown,
    ) -> Response {
        let (head, body) = self.0.into_parts();
        let silent_for = if place.is_some() { FOLLOWED_SILENT_FOR } else { SILENT_FOR };
        let body = FetchedBody { body, silent_for, shutdown, place };
        let pieces = stream::try_unfold(body, |mut body| async move {
            Ok::<_, io::Error>(body.next().await?.map(|piece| (piece, body)))
        });
        let mut response = Response::new(Body::from_stream(pieces));
        *response.status_mut() = head.status;
        for name in PASSED_ON {
            if let Some(value) = head.headers.get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        response
    }
}

impl FetchedBody {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            // Bounded: by the silence that is allowed, and by the end of this process.
            let frame = tokio::select! {
                biased;
                () = self.shutdown.begins() => return Ok(None),
                frame = timeout(self.silent_for, frame) => frame,
            };
            let silent = |_elapsed| io::Error::other("the other instance says nothing any more");
            let Some(frame) = frame.map_err(silent)? else { return Ok(None) };
            if let Ok(piece) = frame.map_err(io::Error::other)?.into_data() {
                return Ok(Some(piece));
            }
        }
    }
}
