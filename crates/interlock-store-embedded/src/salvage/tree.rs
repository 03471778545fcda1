//! Pages of b-trees, cell by cell: what a cell cannot say for sure is left out, and the others are kept.

use std::collections::BTreeSet;

use rusqlite::types::Value;

use super::pages::{Pages, u16_at, u32_at};

/// What a tree holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tree {
    /// Rows by their numbers.
    Table,
    /// Rows by their keys: an index, or a table without row numbers.
    Index,
}

/// A row as it is stored: its number, if it has one, and its columns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoredRow {
    pub(super) number: Option<i64>,
    pub(super) columns: Vec<Value>,
}

/// A page, read.
#[derive(Debug)]
pub(super) struct TreePage {
    pub(super) tree: Tree,
    /// In the order of the tree: the child before a row, and the row.
    pub(super) cells: Vec<(Option<u32>, Option<StoredRow>)>,
    /// The child behind the last row.
    pub(super) last: Option<u32>,
    /// Cells that could not be read.
    pub(super) unreadable: usize,
    /// The pages that the rows go on in.
    pub(super) overflow: BTreeSet<u32>,
}

impl TreePage {
    /// Reads a page; nothing if it is none of a b-tree.
    pub(super) fn read(pages: &Pages, number: u32) -> Option<Self> {
        let page = pages.get(number)?;
        let start = if number == 1 { 100 } else { 0 };
        let (tree, is_leaf) = match page.get(start)? {
            0x0d => (Tree::Table, true),
            0x05 => (Tree::Table, false),
            0x0a => (Tree::Index, true),
            0x02 => (Tree::Index, false),
            _ => return None,
        };
        let count = usize::from(u16_at(&page, start + 3));
        let first = start + if is_leaf { 8 } else { 12 };
        if first + 2 * count > pages.usable {
            return None;
        }
        let last = (!is_leaf).then(|| u32_at(&page, start + 8));
        let mut found =
            Self { tree, cells: vec![], last, unreadable: 0, overflow: BTreeSet::new() };
        for index in 0..count {
            let at = usize::from(u16_at(&page, first + 2 * index));
            let mut reader = CellReader { pages, page: &page, at, overflow: &mut found.overflow };
            let child = if is_leaf { None } else { reader.child() };
            let row = match (tree, is_leaf) {
                (Tree::Table, false) => None,
                _ => reader.row(tree),
            };
            let has_row = tree == Tree::Index || is_leaf;
            found.unreadable += usize::from(has_row && row.is_none());
            found.cells.push((child, row));
        }
        Some(found)
    }
}

/// Reads one cell.
struct CellReader<'a> {
    pages: &'a Pages,
    page: &'a [u8],
    at: usize,
    overflow: &'a mut BTreeSet<u32>,
}

impl CellReader<'_> {
    fn child(&mut self) -> Option<u32> {
        let child = u32_at(self.page, self.at);
        self.at += 4;
        (child > 0).then_some(child)
    }

    fn row(&mut self, tree: Tree) -> Option<StoredRow> {
        let usable = self.pages.usable;
        let length = usize::try_from(varint(self.page, &mut self.at)?).ok()?;
        let number = match tree {
            Tree::Table => Some(varint(self.page, &mut self.at)?),
            Tree::Index => None,
        };
        let max = match tree {
            Tree::Table => usable - 35,
            Tree::Index => (usable - 12) * 64 / 255 - 23,
        };
        let min = (usable - 12) * 32 / 255 - 23;
        // No row of ours is near this; a length that is damage would ask for all memory.
        if length > usable.saturating_mul(self.pages.count as usize) {
            return None;
        }
        let here = if length <= max {
            length
        } else {
            let spilled = min + (length - min) % (usable - 4);
            if spilled <= max { spilled } else { min }
        };
        let mut payload = self.page.get(self.at..self.at + here)?.to_vec();
        if self.at + here > usable {
            return None;
        }
        let mut next = if here < length { u32_at(self.page, self.at + here) } else { 0 };
        while payload.len() < length {
            let page = self.pages.get(next)?;
            if !self.overflow.insert(next) {
                return None;
            }
            let rest = (length - payload.len()).min(usable - 4);
            payload.extend_from_slice(page.get(4..4 + rest)?);
            next = u32_at(&page, 0);
        }
        Some(StoredRow { number, columns: columns(&payload)? })
    }
}

/// The columns of a record.
fn columns(payload: &[u8]) -> Option<Vec<Value>> {
    let mut at = 0;
    let header = usize::try_from(varint(payload, &mut at)?).ok()?;
    let (mut body, mut columns) = (header, Vec::new());
    while at < header {
        let kind = varint(payload, &mut at)?;
        let width = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 | 7 => 8,
            kind if kind >= 12 => usize::try_from((kind - 12) / 2).ok()?,
            _ => return None,
        };
        let bytes = payload.get(body..body.checked_add(width)?)?;
        body += width;
        columns.push(match kind {
            0 => Value::Null,
            8 => Value::Integer(0),
            9 => Value::Integer(1),
            1..=6 => Value::Integer(integer(bytes)),
            7 => Value::Real(f64::from_be_bytes(bytes.try_into().ok()?)),
            kind if kind % 2 == 1 => Value::Text(String::from_utf8(bytes.to_vec()).ok()?),
            _ => Value::Blob(bytes.to_vec()),
        });
    }
    (at == header && body == payload.len()).then_some(columns)
}

/// A number of up to eight bytes, with its sign.
fn integer(bytes: &[u8]) -> i64 {
    let sign = if bytes.first().is_some_and(|first| first & 0x80 != 0) { -1 } else { 0 };
    bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte))
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let mut number: u64 = 0;
    for index in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if index == 8 {
            return Some((number << 8 | u64::from(byte)) as i64);
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(number as i64);
        }
    }
    None
}
