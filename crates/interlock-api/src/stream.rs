//! `/api/v1/stream`: what happens, as server-sent events.
//!
//! One reader looks into the store for all subscribers ([`EventHub`]). A subscriber goes through what the hub has, at its own pace: one that
//! resumes further back reads the store until it is there, one that falls behind later is told where to resume, and ends.

mod hub;

use std::{
    collections::BTreeSet,
    convert::Infallible,
    fmt::Write as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::State,
    http::{
        HeaderMap, HeaderValue,
        header::{CONNECTION, CONTENT_TYPE},
    },
    response::Response,
};
use hyper::body::Frame;
use interlock_answers::{
    ErrorCode, event_answer,
    model::event::{EventAnswer, StreamQuery},
};
use interlock_store::Store;
use tokio::sync::mpsc;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::hub::EventHub;
use self::hub::{RecentEvents, StreamSeat};
use crate::{desk::refused, error::ApiError, question::AskedQuery, surface::Surface};

/// How long it may be silent.
const COMMENT_EVERY: Duration = Duration::from_secs(15);
/// Events that are looked at in one go.
const BATCH: usize = 200;
/// Batches that wait to be written to one subscriber.
const WRITTEN_AHEAD: usize = 4;

pub(crate) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(stream_events))
}

/// Says of an answer that it goes on for as long as it is listened to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndlessAnswer;

/// What happens, as server-sent events, from now on or behind an event.
///
/// Each has the event's number as `id`, its kind as `event`, and the event as `data`. The kind `resume` is no event: it says that
/// the stream ends because it was not read in time; go on with `Last-Event-ID`. There is a comment every 15 s.
#[utoipa::path(get, path = "/api/v1/stream", tag = "events",
    params(StreamQuery, ("Last-Event-ID" = Option<u64>, Header, description = "Behind this event.")),
    responses((status = 200, body = EventAnswer, content_type = "text/event-stream")))]
async fn stream_events(
    State(surface): State<Arc<Surface>>,
    AskedQuery(asked): AskedQuery<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let store = Arc::clone(surface.open_store()?);
    let after = match last_seen(&headers)?.or(asked.after) {
        Some(after) => after,
        None => store.mark().await.map_err(refused)?.number,
    };
    let seat = surface.events.enter().ok_or_else(too_many)?;
    let (frames, written) = mpsc::channel(WRITTEN_AHEAD);
    let subscriber = Subscriber {
        store,
        hub: surface.events.clone(),
        pipelines: asked.pipeline.into_iter().collect(),
        kinds: asked.kind.into_iter().collect(),
        after,
        frames,
    };
    tokio::spawn(subscriber.serve(seat));
    let mut response = Response::new(Body::new(EventBody { written }));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response.extensions_mut().insert(EndlessAnswer);
    Ok(response)
}

/// Behind which event a subscriber goes on.
fn last_seen(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| {
        let hint = "It is the `id` of an event that came, a number.";
        ApiError::new(ErrorCode::BadCursor, "`Last-Event-ID` is no number", hint)
    })
}

fn too_many() -> ApiError {
    let message = format!("{} streams are open already", hub::STREAMS_MAX);
    let hint = "Close some, or ask `/api/v1/events?after=NUMBER` from time to time.";
    ApiError::new(ErrorCode::TooManyStreams, message, hint)
}

/// What is written to a subscriber.
struct EventBody {
    written: mpsc::Receiver<Bytes>,
}

impl HttpBody for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.written.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// One that listens.
struct Subscriber {
    store: Arc<dyn Store>,
    hub: EventHub,
    /// Of which pipelines; of all when empty.
    pipelines: BTreeSet<String>,
    /// Of which kinds; of all when empty.
    kinds: BTreeSet<String>,
    /// The last event that it has looked at.
    after: u64,
    frames: mpsc::Sender<Bytes>,
}

/// Why a stream ends.
enum StreamEnd {
    /// The other end has gone, or this process stops: the client comes back by itself.
    Closed,
    /// It did not keep up.
    Behind,
}

impl Subscriber {
    /// Tells what happens until one of both ends.
    async fn serve(mut self, seat: StreamSeat) {
        let mut news = self.hub.news();
        let told = async {
            self.write("retry: 2000\n\n".to_owned()).await?;
            self.catch_up().await?;
            loop {
                match self.hub.recent(self.after, BATCH) {
                    RecentEvents::Behind => return Err(StreamEnd::Behind),
                    RecentEvents::Some(events) => self.tell(&events).await?,
                    RecentEvents::None => {
                        // Bounded: by the comment that is due.
                        match tokio::time::timeout(COMMENT_EVERY, news.changed()).await {
                            Ok(Ok(())) => {}
                            Ok(Err(_closed)) => return Err(StreamEnd::Closed),
                            Err(_silent) => self.write(":\n\n".to_owned()).await?,
                        }
                    }
                }
            }
        };
        let ended: Result<Infallible, StreamEnd> = told.await;
        if matches!(ended, Err(StreamEnd::Behind)) {
            let resume = format!("id: {0}\nevent: resume\ndata: {{\"after\":{0}}}\n\n", self.after);
            let _gone_too = self.write(resume).await;
        }
        drop(seat);
    }

    /// Reads from the store what the hub no longer has, or not yet.
    async fn catch_up(&mut self) -> Result<(), StreamEnd> {
        loop {
            let begins = self.hub.begins_after().await.ok_or(StreamEnd::Closed)?;
            if self.after >= begins {
                return Ok(());
            }
            let page = {
                let _permit = self.hub.reading().await.ok_or(StreamEnd::Closed)?;
                self.store.events(None, self.after, BATCH).await.map_err(|error| {
                    tracing::warn!(%error, "cannot read a stream from the store");
                    StreamEnd::Behind
                })?
            };
            if page.items.is_empty() {
                self.after = begins;
                return Ok(());
            }
            let events: Vec<_> =
                page.items.into_iter().map(|row| Arc::new(event_answer(row))).collect();
            self.tell(&events).await?;
        }
    }

    async fn tell(&mut self, events: &[Arc<EventAnswer>]) -> Result<(), StreamEnd> {
        let mut text = String::new();
        for event in events.iter().filter(|event| self.wants(event)) {
            let data = serde_json::to_string(event.as_ref()).unwrap_or_default();
            // Writing to a text cannot fail.
            let _never =
                write!(text, "id: {}\nevent: {}\ndata: {data}\n\n", event.number, event.kind);
        }
        self.after = events.last().map_or(self.after, |event| event.number);
        if text.is_empty() { Ok(()) } else { self.write(text).await }
    }

    fn wants(&self, event: &EventAnswer) -> bool {
        let of = |chosen: &BTreeSet<String>, name: &str| chosen.is_empty() || chosen.contains(name);
        of(&self.pipelines, &event.pipeline) && of(&self.kinds, &event.kind)
    }

    async fn write(&self, text: String) -> Result<(), StreamEnd> {
        // Bounded: a connection that takes nothing for a while is given up, and its body with it.
        self.frames.send(text.into()).await.map_err(|_gone| StreamEnd::Closed)
    }
}
