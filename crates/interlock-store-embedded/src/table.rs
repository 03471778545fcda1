//! Which table holds rows of a kind, and the four statements for each.
//!
//! Every table has the pipeline's number first, then the rest of the key, the revision, the columns that
//! are searched, and the body; so the statements follow from the names of the columns.

use std::sync::LazyLock;

use interlock_store::{Key, Record, record::SlotRecord};
use jiff::Timestamp;
use rusqlite::types::Value;

/// The columns of a table.
struct Shape {
    name: &'static str,
    /// The key after the pipeline, in the order of [`Address::of`].
    key: &'static [&'static str],
    /// What is searched, in the order of [`searched`].
    searched: &'static [&'static str],
    /// The primary key, in its own order, if that does not begin with the pipeline.
    order: &'static [&'static str],
}

/// The kinds of rows, in the order of [`SHAPES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pipeline,
    Version,
    Watermark,
    Slot,
    Span,
    Run,
    Sensor,
    Incident,
    Due,
    Outbox,
    Applied,
    Backfill,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Pipeline,
        Self::Version,
        Self::Watermark,
        Self::Slot,
        Self::Span,
        Self::Run,
        Self::Sensor,
        Self::Incident,
        Self::Due,
        Self::Outbox,
        Self::Applied,
        Self::Backfill,
    ];

    /// The kind of the row of a key.
    pub(crate) fn of(key: &Key) -> Self {
        match key {
            Key::Pipeline => Self::Pipeline,
            Key::Version(_) => Self::Version,
            Key::Watermark(_) => Self::Watermark,
            Key::Slot(..) => Self::Slot,
            Key::Span(..) => Self::Span,
            Key::Run(_) => Self::Run,
            Key::Sensor(_) => Self::Sensor,
            Key::Incident(_) => Self::Incident,
            Key::Due(..) => Self::Due,
            Key::Outbox(_) => Self::Outbox,
            Key::Applied(_) => Self::Applied,
            Key::Backfill(_) => Self::Backfill,
        }
    }
}

/// All tables with the kinds that they hold.
pub(crate) fn tables() -> impl Iterator<Item = (Kind, &'static Table)> {
    Kind::ALL.into_iter().zip(TABLES.iter())
}

const SHAPES: [Shape; 12] = [
    Shape { name: "pipelines", key: &[], searched: &[], order: &[] },
    Shape { name: "versions", key: &["version"], searched: &[], order: &[] },
    Shape { name: "watermarks", key: &["schedule"], searched: &[], order: &[] },
    Shape {
        name: "slots",
        key: &["schedule", "nominal"],
        searched: &["disposition"],
        order: &["nominal", "pipeline", "schedule"],
    },
    Shape {
        name: "spans",
        key: &["schedule", "nominal"],
        searched: &["last", "disposition"],
        order: &["nominal", "pipeline", "schedule"],
    },
    Shape {
        name: "runs",
        key: &["schedule", "nominal", "generation", "attempt"],
        searched: &["created_at", "status", "trigger_type"],
        order: &["nominal", "pipeline", "schedule", "generation", "attempt"],
    },
    Shape { name: "sensors", key: &["key"], searched: &[], order: &[] },
    Shape { name: "incidents", key: &["key"], searched: &["opened_at"], order: &[] },
    Shape {
        name: "due",
        key: &["at", "kind", "name"],
        searched: &[],
        order: &["at", "pipeline", "kind", "name"],
    },
    Shape {
        name: "outbox",
        key: &["name"],
        searched: &["not_before", "claimed_until", "dead"],
        order: &[],
    },
    Shape { name: "applied", key: &["key"], searched: &[], order: &[] },
    Shape { name: "backfills", key: &["number"], searched: &["unfinished"], order: &[] },
];

static TABLES: LazyLock<[Table; 12]> = LazyLock::new(|| SHAPES.map(|shape| Table::new(&shape)));

/// The statements of a table. The first parameters of each are the pipeline's number and the rest of the
/// key; what is written follows (the searched columns, the body), then the revision that is expected.
/// Those that expect something change nothing if it is not so.
#[derive(Debug)]
pub(crate) struct Table {
    /// Finds a row's revision.
    pub(crate) find: String,
    /// Reads a row: revision and body.
    pub(crate) get: String,
    /// Writes a row that is not there.
    pub(crate) create: String,
    /// Writes a row over a revision of it.
    pub(crate) replace: String,
    /// Writes a row, whatever is there.
    pub(crate) put: String,
    /// Removes a row at a revision.
    pub(crate) remove: String,
    /// Removes a row, whatever is there.
    pub(crate) delete: String,
    /// Writes a row with its revision, whatever is there.
    pub(crate) import: String,
    /// Lists rows in the order of the primary key, so many: name, revision, body and key of each.
    pub(crate) walk: String,
    /// The same after a row.
    pub(crate) walk_on: String,
}

impl Table {
    fn new(shape: &Shape) -> Self {
        let Shape { name, key, searched, order } = shape;
        let key: Vec<&str> = [&["pipeline"], *key].concat();
        let held: Vec<&str> = [*searched, &["body"]].concat();
        let set = |columns: &[&str], first: usize, between: &str| {
            let numbered = columns.iter().enumerate();
            let equations = numbered.map(|(at, column)| format!("{column} = ?{}", at + first));
            equations.collect::<Vec<_>>().join(between)
        };
        let matches = set(&key, 1, " AND ");
        let update = set(&held, key.len() + 1, ", ");
        let all = [key.as_slice(), held.as_slice()].concat();
        let marks = (1..=all.len()).map(|at| format!("?{at}")).collect::<Vec<_>>().join(", ");
        let (all, target, next) = (all.join(", "), key.join(", "), all.len() + 1);
        let insert = format!("INSERT INTO {name} ({all}, revision) VALUES ({marks}, 1)");
        Self {
            find: format!("SELECT revision FROM {name} WHERE {matches}"),
            get: format!("SELECT revision, body FROM {name} WHERE {matches}"),
            create: format!("{insert} ON CONFLICT DO NOTHING"),
            replace: format!(
                "UPDATE {name} SET {update}, revision = revision + 1 WHERE {matches} AND revision = ?{next}"
            ),
            put: format!(
                "{insert} ON CONFLICT ({target}) DO UPDATE SET {update}, revision = revision + 1"
            ),
            remove: format!("DELETE FROM {name} WHERE {matches} AND revision = ?{}", key.len() + 1),
            delete: format!("DELETE FROM {name} WHERE {matches}"),
            import: format!(
                "INSERT INTO {name} ({all}, revision) VALUES ({marks}, ?{next})
                 ON CONFLICT ({target}) DO UPDATE SET {update}, revision = excluded.revision"
            ),
            walk: walk(name, (&key, order), After::Nothing),
            walk_on: walk(name, (&key, order), After::Row),
        }
    }
}

/// Where a walk begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Nothing,
    Row,
}

fn walk(name: &str, (key, order): (&[&str], &[&str]), after: After) -> String {
    let order = if order.is_empty() { key } else { order };
    let list = |columns: &[&str]| {
        columns.iter().map(|column| format!("t.{column}")).collect::<Vec<_>>().join(", ")
    };
    let place = |column: &&str| key.iter().position(|own| own == column).unwrap_or_default() + 1;
    let marks = order.iter().map(|column| format!("?{}", place(column))).collect::<Vec<_>>();
    let (only, room) = match after {
        After::Nothing => (String::new(), 1),
        After::Row => (format!("WHERE ({}) > ({})", list(order), marks.join(", ")), key.len() + 1),
    };
    let key = list(key);
    format!(
        "SELECT n.name, t.revision, t.body, {key} FROM {name} t CROSS JOIN names n ON n.id = t.pipeline
         {only} ORDER BY {} LIMIT ?{room}",
        list(order)
    )
}

/// Where a row is: its table, and its key without the pipeline.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) table: &'static Table,
    pub(crate) key: Vec<Value>,
}

impl Address {
    /// Where the row of a key is.
    pub(crate) fn of(key: &Key) -> Self {
        let text = |text: &str| Value::Text(text.to_owned());
        let index = Kind::of(key);
        let key = match key {
            Key::Pipeline => vec![],
            // Any 64 bits: the sign means nothing.
            Key::Version(version) => vec![Value::Integer(*version as i64)],
            Key::Watermark(schedule) => vec![text(schedule.as_str())],
            Key::Slot(schedule, at) | Key::Span(schedule, at) => {
                vec![text(schedule.as_str()), instant(*at)]
            }
            Key::Run(run) => {
                let (generation, attempt) = (run.generation.into(), run.attempt.into());
                vec![text(run.schedule.as_str()), instant(run.nominal), generation, attempt]
            }
            Key::Sensor(name) | Key::Incident(name) | Key::Outbox(name) | Key::Applied(name) => {
                vec![text(name)]
            }
            Key::Due(at, kind, name) => vec![instant(*at), text(kind.as_str()), text(name)],
            Key::Backfill(number) => vec![Value::Integer(*number as i64)],
        };
        Self { table: &TABLES[index as usize], key }
    }
}

/// The columns by which a record is searched.
pub(crate) fn searched(record: &Record) -> Vec<Value> {
    let text = |text: &str| Value::Text(text.to_owned());
    match record {
        Record::Slot(slot) => vec![Value::Text(standing(slot).to_owned())],
        Record::Span(span) => vec![instant(span.last), text(&span.disposition)],
        Record::Run(run) => {
            vec![instant(run.created_at), text(&run.status), text(&run.trigger_type)]
        }
        Record::Incident(incident) => vec![instant(incident.opened_at)],
        Record::Outbox(outbox) => {
            let claimed_until = outbox.claimed_until.map_or(Value::Null, instant);
            vec![instant(outbox.not_before), claimed_until, outbox.dead.into()]
        }
        Record::Backfill(backfill) => vec![backfill.is_unfinished().into()],
        Record::Pipeline(_)
        | Record::Version(_)
        | Record::Watermark(_)
        | Record::Sensor(_)
        | Record::Due(_)
        | Record::Applied(_) => vec![],
    }
}

/// How a slot stands: `open`, or its disposition.
fn standing(slot: &SlotRecord) -> &str {
    if slot.is_open() { "open" } else { slot.disposition.as_deref().unwrap_or_default() }
}

fn instant(at: Timestamp) -> Value {
    Value::Integer(at.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_follow_from_the_columns() {
        let slots = &TABLES[3];
        let key = "pipeline = ?1 AND schedule = ?2 AND nominal = ?3";
        assert_eq!(slots.find, format!("SELECT revision FROM slots WHERE {key}"));
        assert_eq!(slots.delete, format!("DELETE FROM slots WHERE {key}"));
        assert_eq!(slots.remove, format!("DELETE FROM slots WHERE {key} AND revision = ?4"));
        let insert = "INSERT INTO slots (pipeline, schedule, nominal, disposition, body, revision) \
                      VALUES (?1, ?2, ?3, ?4, ?5, 1)";
        let update = "disposition = ?4, body = ?5, revision = revision + 1";
        let conflict = "ON CONFLICT (pipeline, schedule, nominal) DO UPDATE SET";
        assert_eq!(slots.create, format!("{insert} ON CONFLICT DO NOTHING"));
        assert_eq!(slots.put, format!("{insert} {conflict} {update}"));
        assert_eq!(
            slots.replace,
            format!("UPDATE slots SET {update} WHERE {key} AND revision = ?6")
        );
    }
}
