//! The bytes of a log, on their way to who asked.

use std::{io, sync::Arc, time::Duration};

use axum::body::{Body, Bytes};
use futures_util::stream;
use interlock_answers::{LogContent, PIECE_BYTES, RunLog};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep, sleep_until},
};

use super::{open, unblocked};
use crate::{question::ReaderSource, server::Shutdown, surface::Surface};

/// How often a log that is followed is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// How long it is followed at most.
const FOLLOWED_FOR: Duration = Duration::from_hours(1);

/// A part of a log that is there.
#[derive(Debug)]
pub(super) struct LogPart {
    pub(super) content: Arc<LogContent>,
    pub(super) at: u64,
    pub(super) end: u64,
}

impl LogPart {
    /// How many bytes it has.
    pub(super) fn length(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    /// Sends it.
    pub(super) fn body(self) -> Body {
        Body::from_stream(stream::try_unfold(self, |mut part| async move {
            Ok::<_, io::Error>(part.next().await?.map(|piece| (piece, part)))
        }))
    }

    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let bytes = PIECE_BYTES.min(usize::try_from(self.length()).unwrap_or(PIECE_BYTES));
        if bytes == 0 {
            return Ok(None);
        }
        let (content, at) = (Arc::clone(&self.content), self.at);
        let piece = unblocked(move || content.piece(at, bytes)).await?;
        if piece.is_empty() {
            // Its length was promised: who asked must see that this is not all.
            return Err(io::Error::other("the log was cut to its tail while it was sent"));
        }
        self.at += piece.len() as u64;
        Ok(Some(piece.into()))
    }
}

/// A log of which more may come.
#[derive(Debug)]
pub(super) struct FollowedLog {
    pub(super) surface: Arc<Surface>,
    pub(super) source: ReaderSource,
    pub(super) log: RunLog,
    pub(super) content: Option<Arc<LogContent>>,
    pub(super) offset: u64,
    /// Whether the run had ended when it was last asked about.
    pub(super) is_over: bool,
    #[expect(dead_code, reason = "a place is given up when it is dropped")]
    pub(super) place: OwnedSemaphorePermit,
}

impl FollowedLog {
    /// Sends what is there and what comes, until the run has ended or this process is about to.
    pub(super) fn body(self, shutdown: Shutdown) -> Body {
        let until = Instant::now() + FOLLOWED_FOR;
        let state = (self, shutdown);
        Body::from_stream(stream::try_unfold(state, move |(mut log, mut shutdown)| async move {
            // Bounded: it ends with the run, with this process, or with its time.
            let piece = tokio::select! {
                biased;
                () = shutdown.begins() => None,
                () = sleep_until(until) => None,
                piece = log.next() => piece?,
            };
            Ok::<_, io::Error>(piece.map(|piece| (piece, (log, shutdown))))
        }))
    }

    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(piece) = self.piece().await? {
                return Ok(Some(piece));
            }
            if self.is_over {
                return Ok(None);
            }
            sleep(LOOK_EVERY).await;
            // Asked before the log is read again, so that what its job wrote at its end is sent.
            let log = self.source.reader().run_log(&self.log.run).await;
            self.log = log.map_err(io::Error::other)?;
            self.is_over = self.log.has_ended;
        }
    }

    /// What is new.
    async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        if self.content.is_none() {
            let found = open(&self.surface, &self.log).await;
            let found = found.map_err(|error| io::Error::other(error.message))?;
            self.content = found.map(|found| found.content);
        }
        let Some(content) = self.content.clone() else { return Ok(None) };
        let offset = self.offset;
        let read = unblocked(move || {
            let offset = content.resume(offset)?;
            content.piece(offset, PIECE_BYTES).map(|piece| (offset, piece))
        });
        let (offset, piece) = read.await?;
        self.offset = offset + piece.len() as u64;
        Ok((!piece.is_empty()).then(|| piece.into()))
    }
}
