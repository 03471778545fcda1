//! A process that owns several shards sums a downtime up once, and says once that it is over.

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex},
};

use interlock_engine::{Changes, Engine, EngineError};
use interlock_store::{Shard, memory::MemoryStore};
use jiff::SignedDuration;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::stage::{Job, Stage, at};

const SHARDS: u16 = 4;

/// What is logged of catch-ups: the event, and its numbers.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Line>>>);

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Line {
    event: String,
    numbers: BTreeMap<String, u64>,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "event" {
            value.clone_into(&mut self.event);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.numbers.insert(field.name().to_owned(), value);
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        if ["CATCHUP_SUMMARY", "CATCHUP_DONE"].contains(&line.event.as_str()) {
            self.0.lock().unwrap().push(line);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Runs an engine for each shard for a while, in one process.
fn live(stage: &Stage, minutes: i64) {
    let (until, files) =
        (stage.world.time() + SignedDuration::from_mins(minutes), stage.files.clone());
    let parts: Vec<_> = (0..SHARDS).map(|shard| (Shard(shard), stage.parts("test"))).collect();
    let mut life: Pin<Box<dyn Future<Output = Result<(), EngineError>> + Send>> =
        Box::pin(async move {
            let mut engines = Vec::new();
            for (shard, parts) in parts {
                let mut engine = Engine::open(parts, shard).await?.unwrap();
                let all = files.changes(&engine);
                let own = all.declared.into_iter();
                let own = own.filter(|it| Shard::of(&it.pipeline.name, SHARDS) == shard);
                engine.declare(&Changes { declared: own.collect(), removed: vec![] }).await?;
                engines.push(engine.run(Box::pin(std::future::pending())));
            }
            let mut engines = engines.into_iter();
            let mut next = || engines.next().unwrap();
            tokio::try_join!(next(), next(), next(), next()).map(|_| ())
        });
    assert!(stage.world.run(life.as_mut(), until).is_none(), "they live");
}

#[test]
fn a_downtime_is_summed_up_once_however_many_shards_there_are() {
    let files: Vec<String> = (0..12)
        .map(|number| {
            format!(
                "name: p-{number}\nschedule: '0 * * * *'\ntrigger: {{type: command, command: x}}\n"
            )
        })
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let mut stage = Stage::new(at("08:30"), &files, |_| Job::Succeeds(1));
    let clock = stage.world.clone();
    stage.store = Arc::new(MemoryStore::new(SHARDS, Arc::new(move || clock.time())));
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || {
        live(&stage, 5);
        assert_eq!(*log.0.lock().unwrap(), [], "nothing was missed");
        stage.crash();
        // Until 11:33: three slots of each of them.
        stage.world.pass(SignedDuration::from_mins(175));
        live(&stage, 5);
    });
    let lines = log.0.lock().unwrap().clone();
    let [summary, done] = lines.as_slice() else { panic!("one of each: {lines:#?}") };
    assert_eq!((summary.event.as_str(), done.event.as_str()), ("CATCHUP_SUMMARY", "CATCHUP_DONE"));
    for (name, number) in [("pipelines", 12), ("missed", 36), ("skipped", 36)] {
        let both = (summary.numbers.get(name), done.numbers.get(name));
        assert_eq!(both, (Some(&number), Some(&number)), "{name}: {lines:#?}");
    }
}
