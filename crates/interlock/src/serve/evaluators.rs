//! Evaluators that are programs: a question as JSON on standard input, an answer as JSON on standard output.
//!
//! An evaluator has a time limit and a process group of its own, which ends with it. Whatever it does, there
//! is an answer: garbage, a crash or silence is "cannot tell", never "ready".

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use interlock_core::{
    id::PipelineId,
    readiness::{TraitResult, TraitSpec, TraitStatus},
    retry::FailureCategory,
};
use interlock_engine::seam::{Evaluators, Task};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, process::Command, sync::Semaphore};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Evaluators at once.
const AT_ONCE: usize = 64;

/// Programs looked up in the project's evaluator directories.
#[derive(Debug)]
pub(crate) struct CommandEvaluators {
    folders: Vec<PathBuf>,
    places: Arc<Semaphore>,
}

impl CommandEvaluators {
    pub(crate) fn new(directory: &Path, folders: &[PathBuf]) -> Self {
        let folders = folders.iter().map(|folder| directory.join(folder)).collect();
        Self { folders, places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    fn find(&self, name: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    }
}

impl Evaluators for CommandEvaluators {
    fn evaluate(&self, pipeline: &PipelineId, trait_spec: &TraitSpec) -> Task<TraitResult> {
        let name = trait_spec.evaluator.clone().unwrap_or_default();
        let Some(program) = self.find(&name) else {
            let reason = format!("there is no evaluator `{name}` in the evaluator directories");
            return Box::pin(std::future::ready(failed(reason, FailureCategory::Permanent)));
        };
        let question = json!({
            "pipelineId": pipeline.as_str(),
            "traitType": trait_spec.kind,
            "config": trait_spec.config,
        });
        let limit = trait_spec.timeout.and_then(|t| Duration::try_from(t).ok()).unwrap_or(TIMEOUT);
        let places = Arc::clone(&self.places);
        Box::pin(async move {
            let _place = places.acquire().await;
            let question = question.to_string();
            let asked = tokio::time::timeout(limit, ask(&program, &question));
            asked.await.unwrap_or_else(|_elapsed| {
                failed("EVALUATOR_TIMEOUT".to_owned(), FailureCategory::Timeout)
            })
        })
    }
}

async fn ask(program: &Path, question: &str) -> TraitResult {
    let child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            return failed(format!("EVALUATOR_ERROR: {error}"), FailureCategory::Transient);
        }
    };
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its question may answer all the same.
        let _unread = stdin.write_all(question.as_bytes()).await;
    }
    match child.wait_with_output().await {
        Ok(output) => read(output.status.code(), &output.stdout, &output.stderr),
        Err(error) => failed(format!("EVALUATOR_ERROR: {error}"), FailureCategory::Transient),
    }
}

fn read(code: Option<i32>, stdout: &[u8], stderr: &[u8]) -> TraitResult {
    let category = match code {
        Some(0) => return answer(stdout),
        Some(2) => FailureCategory::Permanent,
        Some(1..128) => FailureCategory::Transient,
        Some(_) | None => FailureCategory::EvaluatorCrash,
    };
    let said: String = String::from_utf8_lossy(stderr).chars().take(500).collect();
    failed(format!("EVALUATOR_ERROR: it ended with {code:?} (stderr: {})", said.trim()), category)
}

fn answer(stdout: &[u8]) -> TraitResult {
    let invalid = |reason: String| {
        failed(format!("EVALUATOR_OUTPUT_INVALID: {reason}"), FailureCategory::Permanent)
    };
    let answer: Value = match serde_json::from_slice(stdout) {
        Ok(answer) => answer,
        Err(error) => return invalid(error.to_string()),
    };
    let text = |key: &str| answer.get(key).and_then(Value::as_str).map(str::to_owned);
    let status = match text("status").as_deref().map(TraitStatus::parse) {
        Some(Ok(status)) => status,
        Some(Err(error)) => return invalid(error.message),
        None => return invalid("it has no `status`".to_owned()),
    };
    TraitResult {
        status,
        value: answer.get("value").cloned(),
        reason: text("reason"),
        category: text("failureCategory").and_then(|word| FailureCategory::parse(&word).ok()),
    }
}

fn failed(reason: String, category: FailureCategory) -> TraitResult {
    let status = TraitStatus::Error;
    TraitResult { status, value: None, reason: Some(reason), category: Some(category) }
}
