//! What is wrong with files, so that a person can act on it.
//!
//! Every problem has a stable code, a place, a message that names the value, and usually a help
//! sentence. They are collected and shown together, never one at a time.

mod render;

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use interlock_core::text::{TextError, counted};

use crate::source::{Origin, SourceFile, Span, overwrite};

pub use crate::code::Code;

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but probably says something else than was meant.
    Warning,
}

impl Severity {
    /// The word people see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One thing that is wrong in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// In which file.
    pub file: Arc<SourceFile>,
    /// Where in it; an empty stretch at the start for the file as a whole.
    pub span: Range<usize>,
    /// How bad it is.
    pub severity: Severity,
    /// What kind of problem it is.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// What to do next; empty when the message says it.
    pub help: String,
}

impl Problem {
    /// A problem with a file or directory as a whole.
    pub fn whole_file(
        file: Arc<SourceFile>,
        code: Code,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let (message, help) = (message.into(), help.into());
        Self { file, span: 0..0, severity: code.severity(), code, message, help }
    }
}

/// A problem before its file is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    span: Span,
    code: Code,
    message: String,
    help: String,
}

/// Collects what is wrong in one file, at most [`FINDINGS_MAX`] things; the rest is counted.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    found: Vec<Finding>,
    cut_off: usize,
    secrets: BTreeSet<Span>,
    of: Text,
}

/// What is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Text {
    /// A file, which a person can edit.
    #[default]
    File,
    /// A version that the store kept: what was accepted once is read as it was then (S16).
    Stored,
}

/// Nobody reads more about one file, and showing them costs time for each (S17).
const FINDINGS_MAX: usize = 200;

impl Problems {
    /// None yet, of a file or of what was stored.
    pub(crate) fn of(of: Text) -> Self {
        Self { of, ..Self::default() }
    }

    /// Notes a problem; the same one at the same place is noted once.
    pub(crate) fn add(
        &mut self,
        span: Span,
        code: Code,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if code == Code::Refused && self.of == Text::Stored {
            return;
        }
        if self.is_full() {
            self.cut_off += 1;
            return;
        }
        let finding = Finding { span, code, message: message.into(), help: help.into() };
        if !self.found.contains(&finding) {
            self.found.push(finding);
        }
    }

    /// Whether further problems are only counted, so that nobody needs to explain them.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= FINDINGS_MAX
    }

    /// Notes a mistake that a parser of short texts found.
    pub(crate) fn add_text(&mut self, span: Span, code: Code, error: TextError) {
        self.add(span, code, error.message, error.help);
    }

    /// Marks a stretch as never to be shown.
    pub(crate) fn hide(&mut self, span: Span) {
        self.secrets.insert(span);
    }

    /// Whether something makes the file unusable.
    pub(crate) fn has_errors(&self) -> bool {
        self.cut_off > 0
            || self.found.iter().any(|finding| finding.code.severity() == Severity::Error)
    }

    /// The stretches of a text that must not be shown.
    pub(crate) fn hidden(&self, origin: Origin) -> Vec<Range<usize>> {
        self.secrets.iter().filter(|span| span.origin == origin).map(|span| span.range()).collect()
    }

    /// The file as it may be shown.
    pub(crate) fn source(&self, path: &std::path::Path, text: &str) -> Arc<SourceFile> {
        let text = overwrite(text, &self.hidden(Origin::File));
        Arc::new(SourceFile { path: path.into(), text })
    }

    /// Attaches files: the one that was read, and the one that holds the defaults.
    pub(crate) fn finish(
        self,
        file: &Arc<SourceFile>,
        defaults: Option<&Arc<SourceFile>>,
    ) -> Vec<Problem> {
        let attach = |finding: Finding| Problem {
            file: match finding.span.origin {
                Origin::File => Arc::clone(file),
                Origin::Defaults => Arc::clone(defaults.unwrap_or(file)),
            },
            span: finding.span.range(),
            severity: finding.code.severity(),
            code: finding.code,
            message: finding.message,
            help: finding.help,
        };
        let mut problems: Vec<_> = self.found.into_iter().map(attach).collect();
        problems.sort_by_key(|problem| (problem.span.start, problem.code));
        if self.cut_off > 0 {
            let message = format!("this file has {}", counted(self.cut_off, "more problem"));
            let help = "Mend the others first.";
            let mut more = Problem::whole_file(Arc::clone(file), Code::More, message, help);
            more.span = file.text.len()..file.text.len();
            problems.push(more);
        }
        problems
    }

    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}
