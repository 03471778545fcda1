//! What commands print: results on standard output, everything else on standard error.
//!
//! Colour goes only to terminals (`anstream` strips it elsewhere and honours `NO_COLOR`).

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use interlock_store::story;
pub(crate) use interlock_store::story::instant;
use serde_json::Value;

use crate::exit::Failure;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HELP: Style = AnsiColor::Cyan.on_default().bold();
const HEADING: Style = Style::new().bold();

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// For scripts.
    Json,
}

impl Form {
    /// What a `--json` flag asks for.
    #[expect(clippy::fn_params_excessive_bools, reason = "the flag arrives as a bool")]
    pub(crate) fn asked(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Both output streams.
pub(crate) struct Output {
    pub(crate) out: anstream::AutoStream<io::Stdout>,
    pub(crate) err: anstream::AutoStream<io::Stderr>,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { out: anstream::stdout(), err: anstream::stderr() }
    }

    /// Prints bytes as they are, with whatever control sequences are in them: somebody else wrote them.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.flush()?;
        let mut raw = io::stdout().lock();
        raw.write_all(bytes)?;
        Ok(raw.flush()?)
    }

    /// Prints a result as indented JSON. In one piece: standard output is flushed at each line otherwise.
    pub(crate) fn json(&mut self, value: &Value) -> Result<(), Failure> {
        self.bytes(format!("{value:#}\n").as_bytes())
    }

    /// Prints why a command failed. Nothing is left to do when even that cannot be written.
    pub(crate) fn error(&mut self, failure: &Failure) {
        let _unwritable = writeln!(self.err, "{ERROR}error{ERROR:#}: {}", failure.message);
        if !failure.help.is_empty() {
            let _unwritable = writeln!(self.err, "{HELP}help{HELP:#}: {}", failure.help);
        }
    }

    /// Prints rows under headings, columns as wide as they need to be.
    pub(crate) fn table<const N: usize>(
        &mut self,
        headings: [&str; N],
        rows: &[[String; N]],
    ) -> Result<(), Failure> {
        let (heading, lines) = story::layout(headings, rows);
        writeln!(self.out, "{HEADING}{heading}{HEADING:#}")?;
        let lines = lines.into_iter().map(|line| line + "\n");
        Ok(self.out.write_all(lines.collect::<String>().as_bytes())?)
    }
}
