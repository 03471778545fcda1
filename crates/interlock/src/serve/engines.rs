//! The engines of `serve`: one for each shard that it owns, which share the jobs, the files and the numbers.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use interlock_core::id::PipelineId;
use interlock_engine::{
    Changes, Engine, EngineError, Limits, Overview, Pace, Parts,
    host::Host,
    seam::{Evaluators, Specs, Task, World},
};
use interlock_store::{Role, Shard, Store};
use interlock_trigger::Triggers;
use tokio::{
    sync::{Mutex, mpsc, oneshot, watch},
    task::{JoinSet, spawn_blocking},
    time::interval,
};

use crate::serve::{
    files::{Agreement, Files, Scan, Since},
    letters::Ways,
    shards::{AtWork, Begun, Ended, Work},
    unreached::Unreached,
};

/// How many portions of changed files may wait for the engines.
const PORTIONS: usize = 2;
/// How often leases are looked at while files are read.
const KEEP_EVERY: Duration = Duration::from_millis(500);

/// What engines are made of, and how they begin.
pub(crate) struct Engines {
    pub(crate) world: Arc<dyn World>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) specs: Arc<dyn Specs>,
    pub(crate) triggers: Arc<dyn Triggers>,
    pub(crate) evaluators: Arc<dyn Evaluators>,
    pub(crate) ways: Ways,
    pub(crate) holder: String,
    pub(crate) pace: Pace,
    pub(crate) limits: Limits,
    pub(crate) host: Host,
    pub(crate) files: Files,
    pub(crate) agreement: Agreement,
    /// Engines begin their passes once this says so: what is to be told of the start is in the inbox by then.
    pub(crate) gate: watch::Sender<bool>,
    /// What was found at the start, until somebody asks for it.
    pub(crate) begun: Mutex<Option<(Overview, Scan)>>,
    pub(crate) unreached: Arc<Unreached>,
}

impl Work for Engines {
    fn begin(self: Arc<Self>, shards: Vec<Shard>) -> Task<Begun> {
        Box::pin(async move {
            let mut engines = self.open(shards).await?;
            let scan = self.declare(&mut engines).await?;
            let overview = engines.iter().map(|(_, engine)| engine.overview());
            let overview = overview.reduce(Overview::and).unwrap_or_default();
            *self.begun.lock().await = Some((overview, scan));
            Ok(engines
                .into_iter()
                .map(|(shard, engine)| (shard, run(engine, self.gate.subscribe())))
                .collect())
        })
    }
}

impl Engines {
    /// The engines of those shards that can be had.
    async fn open(&self, shards: Vec<Shard>) -> Result<Vec<(Shard, Engine)>, EngineError> {
        let mut opening = JoinSet::new();
        for shard in shards {
            let parts = self.parts(shard);
            opening.spawn(async move { (shard, Engine::open(parts, shard).await) });
        }
        let (mut engines, mut failed) = (Vec::new(), None);
        while let Some(opened) = opening.join_next().await {
            match opened {
                Ok((shard, Ok(Some(engine)))) => engines.push((shard, engine)),
                Ok((shard, Err(error))) => {
                    if let Some(error) = error.of_the_store() {
                        self.unreached.failed(Role::Engine, shard, &error);
                    }
                    failed = Some(error);
                }
                Err(broken) if broken.is_panic() => std::panic::resume_unwind(broken.into_panic()),
                // Somebody else has it. Nobody aborts these tasks.
                Ok((_, Ok(None))) | Err(_) => {}
            }
        }
        engines.sort_by_key(|(shard, _)| *shard);
        match failed {
            // One of several servers may be away: shards of the others need not wait for it.
            Some(EngineError::Store(error)) if error.is_retryable && !engines.is_empty() => {
                tracing::warn!(%error, "cannot take over all shards; trying again");
                Ok(engines)
            }
            Some(error) => Err(error),
            None => Ok(engines),
        }
    }

    fn parts(&self, shard: Shard) -> Parts {
        let (reports, declarations) = self.ways.open(shard);
        Parts {
            world: Arc::clone(&self.world),
            store: Arc::clone(&self.store),
            specs: Arc::clone(&self.specs),
            triggers: Arc::clone(&self.triggers),
            evaluators: Arc::clone(&self.evaluators),
            reports,
            declarations,
            holder: self.holder.clone(),
            pace: self.pace,
            limits: self.limits,
            host: self.host.clone(),
        }
    }

    /// Has each engine take over its part of what changed, all at once: a server writes for one while another waits.
    async fn take_over(
        &self,
        engines: Vec<(Shard, Engine)>,
        portion: Changes,
    ) -> Result<Vec<(Shard, Engine)>, EngineError> {
        let mut sorted = self.ways.sorted(portion);
        let mut declaring = JoinSet::new();
        let mut kept = Vec::new();
        for (shard, mut engine) in engines {
            let Some(changes) = sorted.remove(&shard) else {
                kept.push((shard, engine));
                continue;
            };
            declaring.spawn(async move {
                let declared = engine.declare(&changes).await;
                (shard, engine, declared)
            });
        }
        while let Some(declared) = declaring.join_next().await {
            match declared {
                Ok((shard, engine, declared)) => {
                    kept.extend(still_ours(declared)?.map(|()| (shard, engine)));
                }
                Err(broken) if broken.is_panic() => std::panic::resume_unwind(broken.into_panic()),
                // Nobody aborts these tasks.
                Err(_) => {}
            }
        }
        kept.sort_by_key(|(shard, _)| *shard);
        Ok(kept)
    }

    /// Has engines take over what the files say, portion by portion while they are read.
    /// Those that somebody else owns by then are let go.
    async fn declare(&self, engines: &mut Vec<(Shard, Engine)>) -> Result<Scan, EngineError> {
        let in_force = engines.iter().flat_map(|(_, engine)| engine.in_force());
        let in_force = in_force.map(|(name, version)| (name.clone(), version)).collect();
        let mine: BTreeSet<Shard> = engines.iter().map(|(shard, _)| *shard).collect();
        let count = self.store.shard_count();
        let is_mine = move |name: &PipelineId| count <= 1 || mine.contains(&Shard::of(name, count));
        let (tell, mut told) = mpsc::channel(PORTIONS);
        let scanning = self.files.clone();
        let is_needed = self.agreement == Agreement::Open && count > 1;
        let agreement = if is_needed { Agreement::Needed } else { self.agreement };
        let scan = spawn_blocking(move || {
            let since = Since::Start(in_force, agreement, Box::new(is_mine));
            scanning.scan(&since, &mut |changes| tell.blocking_send(changes).is_ok())
        });
        let mut tick = interval(KEEP_EVERY);
        loop {
            tokio::select! {
                portion = told.recv() => {
                    let Some(portion) = portion else { break };
                    *engines = self.take_over(std::mem::take(engines), portion).await?;
                }
                // Files may be read for longer than a lease lasts.
                _ = tick.tick() => {
                    let mut kept = Vec::new();
                    for (shard, mut engine) in std::mem::take(engines) {
                        let renewed = engine.keep_the_lease().await;
                        kept.extend(still_ours(renewed)?.map(|()| (shard, engine)));
                    }
                    *engines = kept;
                }
            }
        }
        let scan = scan.await.map_err(|error| EngineError::Declaration(error.to_string()))?;
        match scan {
            Ok(scan) => Ok(scan),
            // What the ledger has stays in force.
            Err(failure) if *self.gate.borrow() => {
                tracing::error!("{}; the last good version stays in force", failure.message);
                Ok(Scan {
                    problems: vec![],
                    count: 0,
                    changes: 0,
                    is_whole: false,
                    spared: 0,
                    absent: 0,
                })
            }
            Err(failure) => Err(EngineError::Declaration(failure.message)),
        }
    }
}

/// Nothing when somebody else owns the shard by now, which is no failure.
fn still_ours(done: Result<(), EngineError>) -> Result<Option<()>, EngineError> {
    match done {
        Ok(()) => Ok(Some(())),
        Err(EngineError::Deposed) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lets an engine's loop run.
fn run(engine: Engine, mut gate: watch::Receiver<bool>) -> AtWork {
    let pulse = engine.pulse();
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move {
        // A sender that is gone asks for the same.
        let _asked = stopped.await;
    };
    let task = tokio::spawn(async move {
        // A gate that is gone keeps nobody out.
        drop(gate.wait_for(|is_open| *is_open).await);
        match engine.run(Box::pin(stopped)).await {
            Ok(()) => Ended::GivenBack,
            Err(EngineError::Deposed) => Ended::Followed,
            Err(EngineError::Store(error)) if error.is_retryable => Ended::Again(error),
            Err(error) => Ended::Broken(error),
        }
    });
    AtWork { task, stop, pulse }
}
