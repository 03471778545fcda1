//! Versions: a hash of everything that a pipeline's slots follow from.
//!
//! What counts is what the files say, not how: comments, order of keys and quoting change nothing.

use interlock_core::{calendar::Calendar, id::fnv1a};

use crate::yaml::{Node, Value};

/// The hash of what a tree says.
pub(crate) fn fingerprint(node: &Node) -> u64 {
    let mut bytes = Vec::new();
    write(node, &mut bytes);
    fnv1a(&bytes)
}

/// The hash of some hashes.
pub(crate) fn combine(parts: &[u64]) -> u64 {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_le_bytes()).collect();
    fnv1a(&bytes)
}

/// The hash of a calendar's days.
pub(crate) fn of_calendar(calendar: &Calendar) -> u64 {
    let mut parts = vec![calendar.name.clone()];
    parts.extend(calendar.weekdays.names().map(str::to_owned));
    parts.extend(calendar.dates.iter().map(ToString::to_string));
    parts.extend(calendar.yearly.iter().map(|(month, day)| format!("{month}-{day}")));
    parts.extend(calendar.ranges.iter().map(|(first, last)| format!("{first}..{last}")));
    let text = parts.join(";");
    fnv1a(text.as_bytes())
}

/// A kind byte, then the content with its length, so that no two trees look alike.
fn write(node: &Node, bytes: &mut Vec<u8>) {
    match &node.value {
        Value::Null => bytes.push(b'n'),
        Value::Bool(value) => bytes.extend([b'b', u8::from(*value)]),
        Value::Int(value) => {
            bytes.push(b'i');
            bytes.extend(value.to_le_bytes());
        }
        Value::Float(value) => {
            bytes.push(b'f');
            bytes.extend(value.to_bits().to_le_bytes());
        }
        Value::Text(text) => write_text(b't', &text.value, bytes),
        Value::List(items) => {
            bytes.push(b'l');
            bytes.extend((items.len() as u32).to_le_bytes());
            for item in items {
                write(item, bytes);
            }
        }
        Value::Map(entries) => {
            bytes.push(b'm');
            bytes.extend((entries.len() as u32).to_le_bytes());
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_by(|a, b| a.key.cmp(&b.key));
            for entry in sorted {
                write_text(b'k', &entry.key, bytes);
                write(&entry.value, bytes);
            }
        }
    }
}

fn write_text(kind: u8, text: &str, bytes: &mut Vec<u8>) {
    bytes.push(kind);
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
}
