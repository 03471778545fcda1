//! The stream of events over real sockets: its end, and what a reader gets that comes in the middle.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use interlock_api::{
    Doorkeeper, Hearing, InterfaceDeps, Limits, Post, Running, Surface,
    address::{Exposure, bind},
    start,
};
use interlock_core::id::PipelineId;
use interlock_store::{
    Change, Group, Role, Shard, Store, Writer, block_on, memory::MemoryStore, record::EventRecord,
};
use interlock_wait::read_within;
use jiff::{SignedDuration, Timestamp};

const PATIENCE: Duration = Duration::from_mins(1);

struct Site {
    store: Arc<MemoryStore>,
    writer: Writer,
    running: Running,
}

impl Site {
    fn new() -> Self {
        let surface = Arc::new(Surface::new("1.2.3"));
        let clock: interlock_api::access::Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        let store = Arc::new(MemoryStore::new(1, Arc::new(|| Timestamp::UNIX_EPOCH)));
        surface.store.set(Arc::clone(&store) as Arc<dyn Store>).unwrap();
        let ttl = SignedDuration::from_secs(60);
        let lease = block_on(store.acquire(Role::Engine, Shard(0), "test", ttl)).unwrap().unwrap();
        let door = Doorkeeper::new(vec![], Exposure::LoopbackOnly, Arc::clone(&clock));
        let (time, unread) = (Duration::from_secs(10), Duration::from_secs(5));
        let limits = Limits { time, body_max: 64, per_second: 10, unread };
        let post = Post::Taken(bind("127.0.0.1:0", Exposure::LoopbackOnly).unwrap());
        let hearing = Hearing { instance: "here".to_owned(), clock };
        let running =
            start(InterfaceDeps { post, surface, door, limits, hearing, pages: None }).unwrap();
        Self { store, writer: lease.writer, running }
    }

    /// Something happens, to a pipeline.
    fn happens(&self, pipeline: &str, kind: &'static str) {
        let record = EventRecord {
            kind: kind.into(),
            at: Timestamp::UNIX_EPOCH,
            slot: None,
            run_id: None,
            message: "it did".to_owned(),
            details: [].into(),
        };
        let pipeline = PipelineId::parse(pipeline).unwrap();
        let changes = vec![Change::Append(record.into())];
        let group = Group { pipeline, writer: self.writer, changes };
        assert!(block_on(self.store.commit(vec![group])).unwrap()[0].is_ok());
    }

    fn listen(&self, query: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.running.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("GET /api/v1/stream{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        BufReader::new(stream)
    }
}

/// The next so many kinds of events.
fn kinds(stream: &mut BufReader<TcpStream>, count: usize) -> Vec<String> {
    let lines = stream.by_ref().lines().map(Result::unwrap);
    lines.filter_map(|line| line.strip_prefix("event: ").map(str::to_owned)).take(count).collect()
}

#[test]
fn a_stream_tells_what_was_and_what_comes_and_ends_with_the_interface() {
    let site = Site::new();
    site.happens("orders", "SLOT_OPENED");
    site.happens("billing", "SLOT_OPENED");
    site.happens("orders", "JOB_FAILED");
    let mut all = site.listen("?after=0");
    assert_eq!(kinds(&mut all, 3), ["SLOT_OPENED", "SLOT_OPENED", "JOB_FAILED"]);
    let mut some = site.listen("?after=0&pipeline=orders&kind=JOB_FAILED");
    assert_eq!(kinds(&mut some, 1), ["JOB_FAILED"]);
    for kind in ["JOB_COMPLETED", "JOB_FAILED", "JOB_COMPLETED"] {
        site.happens("orders", kind);
        assert_eq!(kinds(&mut all, 1), [kind]);
    }
    assert_eq!(kinds(&mut some, 1), ["JOB_FAILED"], "and nothing that was not asked for");
    site.running.stop();
    let rest = read_within(all, "the rest of the stream", PATIENCE);
    assert!(rest.ends_with("0\r\n\r\n") || rest.is_empty(), "it ends like an answer: {rest:?}");
}
