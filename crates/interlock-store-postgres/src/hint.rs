//! Hints by `NOTIFY` that something was posted: the owner of a shard need not wait until it looks into the inbox again.
//!
//! A hint is sent after the post is committed, by a statement of its own: inside the transaction it would make all posts queue
//! for one lock of the server. Those of 20 ms go together. Nothing depends on one: whoever waits also looks now and then.
//!
//! Behind a pooler `LISTEN` says nothing and hears nothing. So a listener believes that it hears only while it hears itself: it
//! sends an echo over another connection, at first and then twice a minute.

use std::{
    collections::BTreeSet,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use interlock_core::id::fnv1a;
use interlock_postgres::Line;
use interlock_store::{Hint, Shard, StoreError};
use interlock_store_remote::Desk;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_postgres::{AsyncMessage, types::Type};

use crate::{failure::said, pool::Pool};

/// How long hints are gathered after one was sent.
const GATHERED: Duration = Duration::from_millis(20);
/// How often the listener makes sure that it hears.
const ECHO_EVERY: Duration = Duration::from_secs(30);
/// How long an echo may take.
const ECHO_MAX: Duration = Duration::from_secs(10);
/// When a connection that broke is made again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// When one that hears nothing is tried again: there is a pooler, and it stays.
const DEAF_FOR: Duration = Duration::from_mins(10);

const NOTIFY: &str = "SELECT pg_notify($1, word) FROM unnest($2) word";

/// Both ends of the hints of one store.
#[derive(Debug)]
pub(crate) struct Hints {
    channel: String,
    /// One for each shard; changes when something was posted.
    shards: Vec<watch::Sender<()>>,
    /// The last echo that was heard.
    echo: watch::Sender<u64>,
    echoes: AtomicU64,
    is_listening: AtomicBool,
    hears: AtomicBool,
    sending: Mutex<Sending>,
}

/// Shards to be told of, and whether somebody is at it.
#[derive(Debug, Default)]
struct Sending {
    waiting: BTreeSet<u16>,
    is_under_way: bool,
}

/// Why a listener stopped.
enum Stopped {
    /// The connection broke, or could not be made.
    Broken,
    /// It lives, and says nothing.
    Deaf,
}

impl Hints {
    pub(crate) fn new(schema: &str, shards: u16) -> Self {
        Self {
            // A name of a channel is as short as one of a schema.
            channel: format!("interlock_{:016x}", fnv1a(schema.as_bytes())),
            shards: (0..shards).map(|_| watch::channel(()).0).collect(),
            echo: watch::channel(0).0,
            // Each counts from another number.
            echoes: AtomicU64::new(u64::from(std::process::id()) << 32),
            is_listening: AtomicBool::new(false),
            hears: AtomicBool::new(false),
            sending: Mutex::default(),
        }
    }

    /// Ends when something was posted for a shard. The first call begins to listen, and gets nothing yet.
    pub(crate) fn wait(
        self: &Arc<Self>,
        desk: &Desk,
        pool: &Arc<Pool>,
        shard: Shard,
    ) -> Option<Hint> {
        if !self.is_listening.swap(true, Ordering::AcqRel) {
            let (hints, pool) = (Arc::clone(self), Arc::clone(pool));
            drop(desk.ask(async move { hints.listen(&pool).await }));
        }
        if !self.hears.load(Ordering::Acquire) {
            return None;
        }
        let mut posted = self.shards.get(usize::from(shard.0))?.subscribe();
        Some(Box::pin(async move {
            if posted.changed().await.is_err() {
                // The store is gone; nothing more comes.
                std::future::pending::<()>().await;
            }
        }))
    }

    /// Tells everybody that something was posted for a shard; at once, or with what is told next.
    pub(crate) fn tell(self: &Arc<Self>, pool: &Arc<Pool>, shard: Shard) {
        let mut sending = self.sending();
        sending.waiting.insert(shard.0);
        if !std::mem::replace(&mut sending.is_under_way, true) {
            let (hints, pool) = (Arc::clone(self), Arc::clone(pool));
            tokio::spawn(async move { hints.send(&pool).await });
        }
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, pool: &Arc<Pool>) {
        loop {
            let words: Vec<String> = {
                let mut sending = self.sending();
                let words: Vec<String> = sending.waiting.iter().map(u16::to_string).collect();
                sending.waiting.clear();
                sending.is_under_way = !words.is_empty();
                words
            };
            if words.is_empty() {
                return;
            }
            // One that is lost is looked for.
            let _a_hint = self.notify(pool, &words).await;
            sleep(GATHERED).await;
        }
    }

    async fn notify(&self, pool: &Arc<Pool>, words: &[String]) -> Result<(), StoreError> {
        let params = [(&self.channel as _, Type::TEXT), (&words as _, Type::TEXT_ARRAY)];
        pool.query(NOTIFY, &params).await.map(drop)
    }

    /// Listens as long as the store lives.
    async fn listen(self: Arc<Self>, pool: &Arc<Pool>) -> Result<(), StoreError> {
        loop {
            let stopped = match pool.line().await {
                Ok(line) => self.listen_on(line, pool).await,
                Err(_later) => Stopped::Broken,
            };
            self.hears.store(false, Ordering::Release);
            // Whoever waited for a hint asks again, and looks more often then.
            self.shards.iter().for_each(|shard| shard.send_replace(()));
            let pause = match stopped {
                Stopped::Broken => AGAIN_AFTER,
                Stopped::Deaf => DEAF_FOR,
            };
            sleep(pause).await;
        }
    }

    async fn listen_on(&self, (client, mut connection): Line, pool: &Arc<Pool>) -> Stopped {
        let hearing = async {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(heard))) => self.heard(heard.payload()),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Stopped::Broken,
                }
            }
        };
        let sounding = async {
            let begin = format!("LISTEN {}", self.channel);
            if client.batch_execute(&begin).await.map_err(|error| said(&error)).is_err() {
                return Stopped::Broken;
            }
            let mut heard = Stopped::Deaf;
            while let Ok(hears) = self.hears_itself(pool).await {
                if !hears {
                    return heard;
                }
                // One that heard once is not behind a pooler.
                heard = Stopped::Broken;
                self.hears.store(true, Ordering::Release);
                sleep(ECHO_EVERY).await;
            }
            Stopped::Broken
        };
        tokio::select! {
            stopped = hearing => stopped,
            stopped = sounding => stopped,
        }
    }

    /// Whether what is sent over another connection arrives.
    async fn hears_itself(&self, pool: &Arc<Pool>) -> Result<bool, StoreError> {
        let number = self.echoes.fetch_add(1, Ordering::AcqRel) + 1;
        let mut echo = self.echo.subscribe();
        self.notify(pool, &[format!("echo {number}")]).await?;
        let heard = timeout(ECHO_MAX, echo.wait_for(|heard| *heard == number)).await;
        Ok(heard.is_ok_and(|heard| heard.is_ok()))
    }

    fn heard(&self, word: &str) {
        if let Some(number) = word.strip_prefix("echo ") {
            // Others sound too; theirs must not hide ours.
            let number = number.parse().unwrap_or_default();
            if number == self.echoes.load(Ordering::Acquire) {
                self.echo.send_replace(number);
            }
        } else if let Some(shard) = word.parse().ok().and_then(|at: usize| self.shards.get(at)) {
            shard.send_replace(());
        }
    }
}
