//! The log: a line each for people, or one JSON object a line for machines.
//!
//! For people: when, which pipeline, what happened, and what to ask `interlock` about to learn more (the run, else
//! the slot). For machines: `time`, `level`, `message`, and `event`, `pipeline`, `slot`, `run` where they apply,
//! beside whatever else a line carries. A reader of the log that hangs or goes away stops nothing.

mod queue;

use std::{
    fmt::{self, Write as _},
    io::{self, IsTerminal as _},
};

use anstyle::{AnsiColor, Style};
use interlock_core::message::label;
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

pub(crate) use self::queue::finish;
use crate::{arguments::LogForm, clock};

/// Sends the log to standard error. `INTERLOCK_LOG` sets what is shown, `info` when absent.
pub(crate) fn start(form: LogForm) {
    let filter = crate::environment::variable("INTERLOCK_LOG");
    let filter = tracing_subscriber::EnvFilter::new(filter.as_deref().unwrap_or("info"));
    let no_color = crate::environment::variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal() && !no_color)
        .with_writer(move || queue::queue(form))
        .event_format(Lines(form))
        .init();
}

/// How an event becomes a line.
struct Lines(LogForm);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields { form: self.0, values: Map::new() };
        event.record(&mut fields);
        let level = *event.metadata().level();
        let line = match self.0 {
            LogForm::Json => fields.into_json(level),
            LogForm::Text if writer.has_ansi_escapes() => fields.into_text(level, &COLOURED),
            LogForm::Text => fields.into_text(level, &PLAIN),
        };
        writeln!(writer, "{line}")
    }
}

/// What an event carries, by name.
struct Fields {
    form: LogForm,
    values: Map<String, Value>,
}

/// The field that holds more of them, as the text of a JSON object. For people the message says it.
const DETAILS: &str = "details";

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match (field.name(), self.form) {
            (DETAILS, LogForm::Text) => {}
            (DETAILS, LogForm::Json) => self.put_details(&format!("{value:?}")),
            _ => self.put(field, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

/// How the parts of a line look.
struct Look {
    faint: Style,
    name: Style,
    good: Style,
    bad: Style,
    odd: Style,
}

const PLAIN: Look = Look {
    faint: Style::new(),
    name: Style::new(),
    good: Style::new(),
    bad: Style::new(),
    odd: Style::new(),
};
const COLOURED: Look = Look {
    faint: Style::new().dimmed(),
    name: Style::new().bold(),
    good: AnsiColor::Green.on_default(),
    bad: AnsiColor::Red.on_default(),
    odd: AnsiColor::Yellow.on_default(),
};

/// Names fill at least this much, so that what happened stands in one column.
const NAME_WIDTH: usize = 16;

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.values.insert(field.name().to_owned(), value.into());
    }

    fn put_details(&mut self, text: &str) {
        let Ok(Value::Object(details)) = serde_json::from_str(text) else { return };
        for (name, value) in details {
            // A run's id is the line's `run`; a plan's detail of that name is a number of slots.
            let name = if name == "run" { "toRun".to_owned() } else { name };
            self.values.entry(name).or_insert(value);
        }
    }

    fn into_json(self, level: Level) -> String {
        let mut fields = self.values;
        fields.insert("time".to_owned(), crate::output::instant(clock::now()).into());
        fields.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
        Value::Object(fields).to_string()
    }

    fn take(&mut self, name: &str) -> Option<String> {
        match self.values.remove(name)? {
            Value::String(text) => Some(text),
            other @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_)) => Some(other.to_string()),
        }
    }

    fn into_text(mut self, level: Level, look: &Look) -> String {
        let Look { faint, name, .. } = look;
        let mut line = format!("{faint}{}{faint:#} ", clock::now().strftime("%Y-%m-%d %H:%M:%SZ"));
        let pipeline = self.take("pipeline");
        let _never =
            write!(line, "{name}{:NAME_WIDTH$}{name:#} ", pipeline.as_deref().unwrap_or("-"));
        let kind = self.take("event");
        let message = self.take("message").unwrap_or_default();
        let style = style_of(level, kind.as_deref(), look);
        let is_event = kind.is_some();
        let shown = match kind.filter(|_| pipeline.is_some()) {
            Some(kind) => format!("{}: {message}", label(&kind)),
            None => message,
        };
        let word = match level {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        let _never = write!(line, "{style}{word}{shown}{style:#}");
        // A run's name holds its slot's.
        let (slot, run) = (self.take("slot"), self.take("run"));
        if let Some(place) = run.or(slot) {
            let _never = write!(line, " {faint}[{place}]{faint:#}");
        }
        // Words that a message repeats are for machines, and so are the numbers of an event, whose message says what matters.
        let rest = self.values.into_iter();
        let rest = rest.filter(|(_, value)| value.is_string() || value.is_number() && !is_event);
        let rest = rest.filter(|(_, value)| !value.as_str().is_some_and(|it| shown.contains(it)));
        for (key, value) in rest {
            let _never = write!(line, " {faint}{key}={value}{faint:#}");
        }
        line
    }
}

/// What a line's sentence looks like: how bad it is, or how it ended.
fn style_of(level: Level, kind: Option<&str>, look: &Look) -> Style {
    let has =
        |words: &[&str]| kind.is_some_and(|kind| words.iter().any(|word| kind.contains(word)));
    if level == Level::ERROR || has(&["FAILED", "MISSED", "BREACH"]) {
        look.bad
    } else if level == Level::WARN || has(&["EXHAUSTED", "RETRY", "UNCERTAIN", "SKIPPED", "CANCEL"])
    {
        look.odd
    } else if has(&["COMPLETED"]) {
        look.good
    } else {
        Style::new()
    }
}
