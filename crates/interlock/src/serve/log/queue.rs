//! The way of a line to standard error: through the one voice of the process, so that a reader that hangs does not hold the engine.

use std::{
    io::{self, Write},
    sync::OnceLock,
    time::Duration,
};

use interlock_liveness::Voice;
use tracing::Level;

use super::{Fields, PLAIN};
use crate::arguments::LogForm;

/// How long the last lines are waited for at the end.
const END_IN: Duration = Duration::from_secs(1);

/// The voice of the process.
static VOICE: OnceLock<Voice> = OnceLock::new();

/// The near end; a line at a time is written to it.
pub(super) struct Queue(&'static Voice);

/// The queue; its thread begins with the first line.
pub(super) fn queue(form: LogForm) -> Queue {
    let start = || Voice::start("log", io::stderr(), move |count| left_out_line(count, form));
    Queue(VOICE.get_or_init(start))
}

/// Waits until what was logged is written, for a second at most.
pub(crate) fn finish() {
    if let Some(voice) = VOICE.get() {
        voice.finish(END_IN);
    }
}

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.say(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn left_out_line(count: u64, form: LogForm) -> String {
    let message = format!("{count} log lines were dropped: the reader was too slow");
    let values = [("message".to_owned(), message.into())].into_iter().collect();
    let fields = Fields { form, values };
    match form {
        LogForm::Json => fields.into_json(Level::WARN),
        LogForm::Text => fields.into_text(Level::WARN, &PLAIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_lines_were_left_out_is_a_line_of_either_form() {
        let text = left_out_line(2, LogForm::Text);
        assert!(text.contains("2 log lines were dropped"), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&left_out_line(2, LogForm::Json)).unwrap();
        assert_eq!(json["level"], "warn");
    }
}
