//! Which table a row belongs to.
//!
//! The root of a tree says it. Where the way from the root is lost, the row itself has to: by its columns, and by what its
//! body is about.

use rusqlite::types::Value;

use super::tree::{StoredRow, Tree};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    /// The row's number, which is not among its columns.
    Number,
    Integer,
    IntegerOrNull,
    Text,
    TextOrNull,
    /// A text that is no checksum of a migration.
    Name,
    /// A record in JSON that has all of these fields and none of those.
    Body(&'static [&'static str], &'static [&'static str]),
}

/// What becomes of a row that is found twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Twice {
    /// The one with the higher revision is the newer; the number of key columns.
    Newer(usize),
    /// The first.
    First,
    /// A number that only grows.
    Larger,
}

/// A table, as its rows are stored.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) tree: Tree,
    names: &'static [&'static str],
    columns: &'static [Column],
    twice: Twice,
    /// Whether a row of it may be taken from a page that no tree leads to. It may have been deleted there: what asks for
    /// something (a letter, an alert) would be done again.
    pub(super) is_believed_alone: bool,
}

use Column::{Body, Integer, IntegerOrNull, Name, Number, Text, TextOrNull};

const ANY: Column = Body(&["v"], &[]);

/// All tables but `migrations` and `changes`: the first is made anew, and who reads the second begins again.
pub(super) const SHAPES: &[Shape] = &[
    Shape {
        name: "names",
        tree: Tree::Table,
        names: &["id", "name"],
        columns: &[Number, Name],
        twice: Twice::First,
        is_believed_alone: true,
    },
    Shape {
        name: "counters",
        tree: Tree::Index,
        names: &["name", "value"],
        columns: &[Text, Integer],
        twice: Twice::Larger,
        is_believed_alone: false,
    },
    Shape {
        name: "leases",
        tree: Tree::Index,
        names: &["role", "shard", "term", "holder", "expires"],
        columns: &[Text, Integer, Integer, TextOrNull, Integer],
        twice: Twice::First,
        is_believed_alone: false,
    },
    Shape {
        name: "pipelines",
        tree: Tree::Table,
        names: &["pipeline", "revision", "body"],
        columns: &[Number, Integer, Body(&["version", "firstSeen"], &[])],
        twice: Twice::Newer(1),
        is_believed_alone: true,
    },
    Shape {
        name: "versions",
        tree: Tree::Table,
        names: &["pipeline", "version", "revision", "body"],
        columns: &[Integer, Integer, Integer, Body(&["since", "source"], &[])],
        twice: Twice::Newer(2),
        is_believed_alone: true,
    },
    Shape {
        name: "watermarks",
        tree: Tree::Index,
        names: &["pipeline", "schedule", "revision", "body"],
        columns: &[Integer, Text, Integer, Body(&["at"], &["value", "accepted"])],
        twice: Twice::Newer(2),
        is_believed_alone: true,
    },
    Shape {
        name: "slots",
        tree: Tree::Index,
        names: &["nominal", "pipeline", "schedule", "revision", "disposition", "body"],
        columns: &[Integer, Integer, Text, Integer, Text, ANY],
        twice: Twice::Newer(3),
        is_believed_alone: true,
    },
    Shape {
        name: "spans",
        tree: Tree::Index,
        names: &["nominal", "pipeline", "schedule", "revision", "last", "disposition", "body"],
        columns: &[Integer, Integer, Text, Integer, Integer, Text, ANY],
        twice: Twice::Newer(3),
        is_believed_alone: true,
    },
    Shape {
        name: "runs",
        tree: Tree::Index,
        names: &[
            "nominal",
            "pipeline",
            "schedule",
            "generation",
            "attempt",
            "revision",
            "created_at",
            "status",
            "trigger_type",
            "body",
        ],
        columns: &[Integer, Integer, Text, Integer, Integer, Integer, Integer, Text, Text, ANY],
        twice: Twice::Newer(5),
        is_believed_alone: true,
    },
    Shape {
        name: "sensors",
        tree: Tree::Index,
        names: &["pipeline", "key", "revision", "body"],
        columns: &[Integer, Text, Integer, Body(&["value", "receivedAt"], &[])],
        twice: Twice::Newer(2),
        is_believed_alone: true,
    },
    Shape {
        name: "incidents",
        tree: Tree::Table,
        names: &["pipeline", "key", "revision", "opened_at", "body"],
        columns: &[Integer, Text, Integer, Integer, ANY],
        twice: Twice::Newer(2),
        is_believed_alone: true,
    },
    Shape {
        name: "due",
        tree: Tree::Index,
        names: &["at", "pipeline", "kind", "name", "revision", "body"],
        columns: &[Integer, Integer, Text, Text, Integer, ANY],
        twice: Twice::Newer(4),
        is_believed_alone: false,
    },
    Shape {
        name: "outbox",
        tree: Tree::Table,
        names: &["pipeline", "name", "revision", "not_before", "claimed_until", "dead", "body"],
        columns: &[Integer, Text, Integer, Integer, IntegerOrNull, Integer, ANY],
        twice: Twice::Newer(2),
        is_believed_alone: false,
    },
    Shape {
        name: "applied",
        tree: Tree::Index,
        names: &["pipeline", "key", "revision", "body"],
        columns: &[Integer, Text, Integer, Body(&["accepted"], &[])],
        twice: Twice::Newer(2),
        is_believed_alone: true,
    },
    Shape {
        name: "events",
        tree: Tree::Table,
        names: &["number", "pipeline", "body"],
        columns: &[Number, Integer, Body(&["kind", "at"], &[])],
        twice: Twice::First,
        is_believed_alone: true,
    },
    Shape {
        name: "inbox",
        tree: Tree::Table,
        names: &["number", "pipeline", "key", "received_at", "body"],
        columns: &[Number, Integer, Text, Integer, Text],
        twice: Twice::First,
        is_believed_alone: false,
    },
    Shape {
        name: "imports",
        tree: Tree::Index,
        names: &["epoch", "number"],
        columns: &[Text, Integer],
        twice: Twice::Larger,
        is_believed_alone: false,
    },
    Shape {
        name: "backfills",
        tree: Tree::Index,
        names: &["pipeline", "number", "revision", "unfinished", "body"],
        columns: &[Integer, Integer, Integer, Integer, ANY],
        twice: Twice::Newer(2),
        is_believed_alone: true,
    },
];

impl Shape {
    /// The table of a name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        SHAPES.iter().find(|shape| shape.name == name)
    }

    /// The table that a row belongs to by what it holds, if that may be believed.
    pub(super) fn of(tree: Tree, row: &StoredRow) -> Option<&'static Self> {
        let may_be = |shape: &&Self| shape.tree == tree && shape.is_believed_alone;
        SHAPES.iter().filter(may_be).find(|shape| shape.values(row).is_some())
    }

    /// The row as it is written again; nothing if it cannot be one of this table.
    pub(super) fn values(&self, row: &StoredRow) -> Option<Vec<Value>> {
        if row.columns.len() != self.columns.len() {
            return None;
        }
        let mut values = Vec::with_capacity(self.columns.len());
        for (column, value) in self.columns.iter().zip(&row.columns) {
            let fits = match (column, value) {
                (Number, Value::Null | Value::Integer(_)) => {
                    values.push(Value::Integer(row.number?));
                    continue;
                }
                (Integer | IntegerOrNull, Value::Integer(_))
                | (Text | TextOrNull, Value::Text(_))
                | (IntegerOrNull | TextOrNull, Value::Null) => true,
                (Name, Value::Text(text)) => !is_checksum(text),
                (Body(has, lacks), Value::Text(text)) => is_record(text, has, lacks),
                _ => false,
            };
            if !fits {
                return None;
            }
            values.push(value.clone());
        }
        Some(values)
    }

    /// What writes a row; one that is there already stays, unless this one is newer.
    pub(super) fn insert(&self) -> String {
        let Self { name, names, .. } = self;
        let marks: Vec<_> = (1..=names.len()).map(|at| format!("?{at}")).collect();
        let (columns, marks) = (names.join(", "), marks.join(", "));
        let insert = format!("INSERT INTO {name} ({columns}) VALUES ({marks})");
        match self.twice {
            Twice::First => format!("{insert} ON CONFLICT DO NOTHING"),
            Twice::Larger => {
                let (key, number) = (names[0], names[1]);
                format!(
                    "{insert} ON CONFLICT ({key}) DO UPDATE SET {number} = max({number}, excluded.{number})"
                )
            }
            Twice::Newer(keys) => {
                let (key, rest) = names.split_at(keys);
                let set: Vec<_> = rest.iter().map(|it| format!("{it} = excluded.{it}")).collect();
                format!(
                    "{insert} ON CONFLICT ({}) DO UPDATE SET {} WHERE excluded.revision > {name}.revision",
                    key.join(", "),
                    set.join(", ")
                )
            }
        }
    }
}

fn is_record(text: &str, has: &[&str], lacks: &[&str]) -> bool {
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(text) else { return false };
    has.iter().all(|name| fields.contains_key(*name))
        && !lacks.iter().any(|name| fields.contains_key(*name))
}

fn is_checksum(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
