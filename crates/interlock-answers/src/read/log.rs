//! Where the output of a run's job is, and why it is nowhere.

use interlock_core::{
    id::PipelineId,
    run::{OUTPUT, RunState},
};
use interlock_engine::host::HOST;
use interlock_store::record::RunRecord;
use serde_json::Value;

use super::run::LOG_PATH;
use crate::{AnswerError, ErrorCode, LogContent, Reader, model::log::LogQuery};

/// Lines that are asked for at most.
const LINES_MAX: usize = 10_000;
/// What a job sent that reported by itself.
const SENT: &str = "body";

/// What is known about the output of a run's job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLog {
    /// The run, by its id.
    pub run: String,
    /// Whose it is.
    pub pipeline: PipelineId,
    /// The host on which its job ran, where there are several.
    pub host: Option<String>,
    /// What its job sent, if it runs elsewhere and reports by itself.
    pub sent: Option<String>,
    /// The last lines of what its job wrote, which outlive the file and its host.
    pub kept: Option<String>,
    /// Whether it may have begun to write.
    pub has_started: bool,
    /// Whether it writes no more.
    pub has_ended: bool,
    /// Whether there was a file.
    has_file: bool,
}

/// What there is of a log.
#[derive(Debug)]
pub struct FoundLog {
    /// Which part of it this is.
    pub source: LogSource,
    /// The bytes.
    pub content: LogContent,
}

/// Which part of a log there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSource {
    /// The file that the job wrote to.
    File,
    /// What a job sent that runs elsewhere.
    Sent,
    /// Only the last lines, which were kept with the run.
    Kept,
}

impl LogSource {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Sent => "sent",
            Self::Kept => "kept",
        }
    }
}

/// Where what is asked for begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStart {
    /// At a byte.
    Offset(u64),
    /// So many lines before the end.
    Lines(usize),
}

impl LogQuery {
    /// Where what is asked for begins.
    pub fn start(&self) -> Result<LogStart, AnswerError> {
        match (self.lines, self.offset) {
            (None, offset) => Ok(LogStart::Offset(offset.unwrap_or(0))),
            (Some(lines @ 1..=LINES_MAX), None) => Ok(LogStart::Lines(lines)),
            (Some(lines), None) => Err(AnswerError::question(
                ErrorCode::BadParameter,
                format!("`lines` is {lines}"),
                format!("It is 1 to {LINES_MAX}; without it the whole log is sent."),
            )),
            (Some(_), Some(_)) => Err(AnswerError::question(
                ErrorCode::BadParameter,
                "`lines` and `offset` cannot both say where the log begins".to_owned(),
                "Leave one of them out.".to_owned(),
            )),
        }
    }
}

impl Reader<'_> {
    /// What is known about the output of a run's job.
    pub async fn run_log(&self, id: &str) -> Result<RunLog, AnswerError> {
        let row = self.run_row(id).await?;
        // Its name as we spell it: a file is found by it.
        Ok(run_log(row.key.id(&row.pipeline), row.pipeline, &row.record))
    }
}

fn run_log(run: String, pipeline: PipelineId, record: &RunRecord) -> RunLog {
    let text = |key: &str| record.metadata.get(key).and_then(Value::as_str).map(str::to_owned);
    let state = record.state().ok();
    RunLog {
        run,
        pipeline,
        host: text(HOST),
        sent: text(SENT),
        kept: text(OUTPUT),
        has_started: !matches!(state, Some(RunState::Pending | RunState::Triggering)),
        has_ended: state.is_none_or(RunState::is_terminal),
        has_file: record.metadata.contains_key(LOG_PATH),
    }
}

impl RunLog {
    /// What the run itself has of it, where there is no file.
    pub fn left(&self) -> Option<FoundLog> {
        let found = |source, text: &String| {
            let content = LogContent::Text(text.clone());
            FoundLog { source, content }
        };
        let sent = self.sent.as_ref().map(|text| found(LogSource::Sent, text));
        sent.or_else(|| self.kept.as_ref().map(|text| found(LogSource::Kept, text)))
    }

    /// Why there is none on the host where it would be.
    pub fn absence(&self) -> AnswerError {
        let run = &self.run;
        if !self.has_started {
            return AnswerError::question(
                ErrorCode::NoLog,
                format!("{run} has not started, so it has no log yet"),
                "`interlock logs --follow` waits for it, as `?follow=true` does.".to_owned(),
            );
        }
        if self.has_file || self.host.is_some() {
            return AnswerError::question(
                ErrorCode::LogDeleted,
                format!("the log of {run} was deleted"),
                "`retention.logs` in interlock.yaml says how long logs are kept.".to_owned(),
            );
        }
        AnswerError::question(
            ErrorCode::NoLog,
            format!("{run} has no log"),
            "Its job runs elsewhere and sent nothing; what it sends with its end is shown here."
                .to_owned(),
        )
    }

    /// Why there is none of a job that ran on another host; empty if nothing is known but that.
    pub fn elsewhere(&self, host: &str, because: &str) -> AnswerError {
        let because = if because.is_empty() { String::new() } else { format!(": {because}") };
        AnswerError::question(
            ErrorCode::HostUnreachable,
            format!("{} ran on {host}, and its log is there{because}", self.run),
            "Ask there, while that host is up.".to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::*;

    fn log(status: &'static str, metadata: &[(&str, &str)]) -> RunLog {
        let metadata: BTreeMap<_, _> =
            metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        let record = RunRecord {
            status: status.into(),
            trigger_type: "scheduler".into(),
            created_at: Timestamp::UNIX_EPOCH,
            started_at: None,
            ended_at: None,
            message: None,
            category: None,
            metadata,
        };
        run_log("orders~daily~1".to_owned(), PipelineId::parse("orders").unwrap(), &record)
    }

    #[test]
    fn why_there_is_no_log_has_a_sentence_of_its_own() {
        let check =
            |status: &'static str, metadata: &[(&str, &str)], code: ErrorCode, said: &str| {
                let error = log(status, metadata).absence();
                assert_eq!(error.code, code, "{status} {metadata:?}");
                assert!(error.message.contains(said), "{}", error.message);
            };
        check("TRIGGERING", &[("host", "a")], ErrorCode::NoLog, "has not started");
        check("FAILED", &[("log", "/x")], ErrorCode::LogDeleted, "was deleted");
        check("RUNNING", &[("host", "a")], ErrorCode::LogDeleted, "was deleted");
        check("COMPLETED", &[], ErrorCode::NoLog, "has no log");
    }

    #[test]
    fn a_log_begins_at_one_place() {
        let start = |lines, offset| LogQuery { lines, offset, follow: false }.start().ok();
        assert_eq!(start(None, None), Some(LogStart::Offset(0)));
        assert_eq!(start(None, Some(7)), Some(LogStart::Offset(7)));
        assert_eq!(start(Some(7), None), Some(LogStart::Lines(7)));
        assert_eq!((start(Some(7), Some(7)), start(Some(0), None)), (None, None));
        assert_eq!(start(Some(LINES_MAX + 1), None), None);
    }
}
