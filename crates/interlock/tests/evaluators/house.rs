//! A directory of evaluators, and whoever asks them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use interlock_core::{
    id::PipelineId,
    readiness::{TraitResult, TraitSpec},
    retry::FailureCategory,
};
use interlock_engine::seam::{Evaluators as _, Task};
use interlock_evaluator::{LocalEvaluators, Options};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tempfile::TempDir;

/// Long enough for anything that should happen at all.
pub(crate) const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

pub(crate) struct House {
    dir: TempDir,
    pub(crate) evaluators: LocalEvaluators,
}

impl House {
    pub(crate) fn new() -> Self {
        Self::with_places(32)
    }

    pub(crate) fn with_places(at_once: usize) -> Self {
        Self::with(|options| options.at_once = at_once)
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(dir.path().to_owned(), vec![dir.path().to_owned()]).unwrap();
        // What ships: the binary is its own guard.
        options.guard = vec![env!("CARGO_BIN_EXE_interlock").into(), "evaluator-guard".into()];
        options.timeout = PATIENCE;
        change(&mut options);
        let evaluators = LocalEvaluators::new(options, Arc::new(Timestamp::now)).unwrap();
        Self { dir, evaluators }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// An evaluator that is a shell script; `$HERE` is the directory.
    pub(crate) fn script(&self, name: &str, text: &str) -> &Self {
        let here = self.dir.path().display();
        write_script(&self.path(name), &format!("HERE={here}\n{text}"));
        self
    }

    pub(crate) fn question(&self, spec: &TraitSpec) -> Task<TraitResult> {
        self.evaluators.evaluate(&PipelineId::parse("orders").unwrap(), spec)
    }

    pub(crate) async fn ask(&self, name: &str) -> TraitResult {
        self.question(&spec(name, None)).await
    }

    pub(crate) async fn ask_within(&self, name: &str, milliseconds: i64) -> TraitResult {
        self.question(&spec(name, Some(milliseconds))).await
    }

    /// The process number that a script has written down.
    pub(crate) async fn pid(&self, name: &str) -> i32 {
        let path = self.path(name);
        until(&format!("a pid in {name}"), || {
            fs::read_to_string(&path).ok()?.strip_suffix('\n')?.parse().ok()
        })
        .await
    }
}

pub(crate) fn write_script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn spec(evaluator: &str, milliseconds: Option<i64>) -> TraitSpec {
    let config = [("table".to_owned(), Value::from("orders"))];
    TraitSpec {
        kind: "freshness".to_owned(),
        required: true,
        evaluator: Some(evaluator.to_owned()),
        config: BTreeMap::from(config),
        ttl: None,
        timeout: milliseconds.map(SignedDuration::from_millis),
    }
}

/// An answer in one line.
pub(crate) fn line(result: &TraitResult) -> String {
    let category = result.category.map(FailureCategory::as_str).unwrap_or_default();
    let reason = result.reason.clone().unwrap_or_default();
    format!("{} {category} {reason}", result.status.as_str())
}

/// Looks again and again until there is something.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a process runs; one that nobody has waited for does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
