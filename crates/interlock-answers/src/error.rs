//! Why there is no answer.

use interlock_engine::EngineError;
use interlock_store::{StoreError, record::Unreadable};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ErrorCode;

/// Why a question got no answer: a word for programs, a sentence, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AnswerError {
    /// Which kind.
    pub code: ErrorCode,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// An error as HTTP answers it (RFC 9457, `application/problem+json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub struct ProblemAnswer {
    /// `urn:interlock:problem:` and the code.
    #[serde(rename = "type")]
    pub problem_type: String,
    /// What kind of error it is, in two or three words.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// What is wrong, in a sentence.
    pub detail: String,
    /// The word for programs.
    pub code: ErrorCode,
    /// What to do.
    pub hint: String,
}

impl AnswerError {
    /// A question that cannot be answered as it was asked.
    pub fn question(code: ErrorCode, message: String, hint: String) -> Self {
        Self { code, message, hint }
    }

    /// Nothing has that name.
    pub fn not_found(message: String, hint: &str) -> Self {
        Self { code: ErrorCode::NotFound, message, hint: hint.to_owned() }
    }

    /// No pipeline has that name.
    pub fn unknown_pipeline(name: &str) -> Self {
        Self {
            code: ErrorCode::PipelineUnknown,
            message: format!("there is no pipeline `{name}`"),
            hint: "`interlock list` names them.".to_owned(),
        }
    }

    /// A declaration cannot be loaded.
    pub(crate) fn unreadable_declaration(name: &str, message: &str) -> Self {
        Self {
            code: ErrorCode::DeclarationUnreadable,
            message: format!("the declaration of `{name}` cannot be loaded: {message}"),
            hint: "What is recorded of it can be read all the same.".to_owned(),
        }
    }

    /// A row of the store cannot be read.
    pub(crate) fn unreadable(error: &Unreadable) -> Self {
        Self {
            code: ErrorCode::UnreadableRow,
            message: error.to_string(),
            hint: "`interlock doctor` looks closer.".to_owned(),
        }
    }

    /// As HTTP answers it.
    pub fn into_problem(self) -> ProblemAnswer {
        let Self { code, message, hint } = self;
        ProblemAnswer {
            problem_type: code.urn(),
            title: code.title().to_owned(),
            status: code.status(),
            detail: message,
            code,
            hint,
        }
    }
}

impl From<StoreError> for AnswerError {
    fn from(error: StoreError) -> Self {
        Self {
            code: ErrorCode::StoreUnreachable,
            message: format!("the store: {}", error.message),
            hint: "Try again; `interlock doctor` looks closer.".to_owned(),
        }
    }
}

impl From<EngineError> for AnswerError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            EngineError::Damaged(message) => StoreError::permanent(message).into(),
            EngineError::Unreadable(error) => Self::unreadable(&error),
            EngineError::Declaration(message) => Self {
                code: ErrorCode::DeclarationUnreadable,
                message: format!("a declaration cannot be loaded: {message}"),
                hint: "What is recorded can be read all the same.".to_owned(),
            },
            EngineError::Deposed => Self {
                code: ErrorCode::StoreUnreachable,
                message: error.to_string(),
                hint: "Try again.".to_owned(),
            },
        }
    }
}
