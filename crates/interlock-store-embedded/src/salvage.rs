//! What can still be read of a damaged ledger, written into a new one.
//!
//! SQLite reads a table from its root on and stops at the first page that is damaged. Here every page that a root leads to
//! is read by itself, then every page that no root leads to any more and whose rows say which table they are of; so a
//! damaged page costs the rows on it. The rows go into a new file, which is [mended](mend()) before anybody opens it.
//! Decided in `docs/adr/0052-recover.md`.

mod mend;
mod pages;
mod shape;
mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use interlock_core::text::counted;
use rusqlite::{Connection, Transaction, params_from_iter, types::Value};

pub(crate) use self::mend::{Mending, mend};
use self::{
    pages::{Log, Pages, u32_at},
    shape::Shape,
    tree::{StoredRow, Tree, TreePage},
};
use crate::failure::Failure;

/// How deep a tree may be: one of a terabyte has seven levels.
const DEPTH_MAX: usize = 20;
/// The index over names: what it says of a name is what the table says.
const NAME_INDEX: &str = "sqlite_autoindex_names_1";

/// What was found and what was not.
#[derive(Debug)]
pub(crate) struct Salvaged {
    /// Rows by table.
    pub(crate) rows: BTreeMap<&'static str, u64>,
    /// Pages that cannot be read, and rows on others, by table.
    pub(crate) lost_pages: BTreeMap<String, u64>,
    pub(crate) lost_rows: u64,
    /// Rows on pages that no root leads to.
    pub(crate) strays: u64,
    /// Whether no table of contents was found.
    pub(crate) is_without_schema: bool,
    /// From which instant on (in microseconds) slots or spans may be lost, if any are.
    pub(crate) lost_from: Option<i64>,
    pub(crate) log: Log,
    /// The names that the index over them has.
    names: BTreeMap<i64, String>,
}

impl Salvaged {
    /// Whether rows about slots and runs may be missing, or be older than what was acknowledged.
    pub(crate) fn is_doubtful(&self) -> bool {
        let about_slots =
            ["slots", "runs"].iter().any(|table| self.lost_pages.contains_key(*table));
        let is_cut = self.is_without_schema || self.log != Log::Whole;
        is_cut || about_slots || self.lost_rows > 0 || self.strays > 0
    }

    /// What is missing, for people.
    pub(crate) fn losses(&self) -> String {
        let mut losses = Vec::new();
        if self.is_without_schema {
            losses.push("the page that names its tables".to_owned());
        }
        for (table, pages) in &self.lost_pages {
            losses.push(format!("{} of `{table}`", counted(*pages, "page")));
        }
        if self.lost_rows > 0 {
            losses.push(format!("{} on other pages", counted(self.lost_rows, "row")));
        }
        match self.log {
            Log::Whole => {}
            Log::Torn => losses.push("the last frame of its log".to_owned()),
            Log::Cut => losses.push("the end of its log".to_owned()),
        }
        if losses.is_empty() { "nothing that holds rows".to_owned() } else { losses.join(", ") }
    }

    fn lose_page(&mut self, table: &str) {
        *self.lost_pages.entry(table.to_owned()).or_default() += 1;
    }
}

/// Reads what can be read of a file and its log, and writes it into a new ledger.
pub(crate) fn salvage(
    (path, wal): (&Path, &Path),
    into: &Transaction<'_>,
) -> Result<Salvaged, Failure> {
    let pages = Pages::open(path, wal).map_err(|error| {
        let message = format!("{} cannot be read: {error}", path.display());
        Failure::Said(interlock_store::StoreError::permanent(message))
    })?;
    let found = Salvaged {
        rows: BTreeMap::new(),
        lost_pages: BTreeMap::new(),
        lost_rows: 0,
        strays: 0,
        is_without_schema: false,
        lost_from: None,
        log: pages.log,
        names: BTreeMap::new(),
    };
    let mut reader = Reader { pages, into, seen: BTreeSet::new(), found };
    let roots = reader.roots();
    reader.found.is_without_schema = roots.is_empty();
    for (name, root) in roots {
        let shape = Shape::named(&name);
        let mut walk = Walk { name, shape, last: None };
        reader.walk(&mut walk, (root, None), 0)?;
    }
    if reader.found.is_without_schema {
        reader.found.lost_from = Some(i64::MIN);
    }
    reader.read_strays()?;
    for (id, name) in std::mem::take(&mut reader.found.names) {
        let sql = "INSERT INTO names VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        into.prepare_cached(sql)?.execute((id, name))?;
    }
    Ok(reader.found)
}

/// The table that is walked, and the instant of its last row, where rows are in order of time.
struct Walk {
    name: String,
    shape: Option<&'static Shape>,
    last: Option<i64>,
}

impl Walk {
    fn is_by_time(&self) -> bool {
        matches!(self.name.as_str(), "slots" | "spans")
    }
}

struct Reader<'a> {
    pages: Pages,
    into: &'a Connection,
    /// Pages whose place is known.
    seen: BTreeSet<u32>,
    found: Salvaged,
}

impl Reader<'_> {
    /// The roots by name, as the first page says.
    fn roots(&mut self) -> Vec<(String, u32)> {
        let mut roots = Vec::new();
        let (mut next, mut read) = (vec![1], BTreeSet::new());
        while let Some(number) = next.pop() {
            if !read.insert(number) {
                continue;
            }
            let Some(page) =
                TreePage::read(&self.pages, number).filter(|it| it.tree == Tree::Table)
            else {
                continue;
            };
            self.seen.insert(number);
            self.seen.extend(&page.overflow);
            next.extend(page.last);
            for (child, row) in page.cells {
                next.extend(child);
                let Some(columns) = row.map(|row| row.columns) else { continue };
                if let [Value::Text(_), Value::Text(name), _, Value::Integer(root), _] =
                    columns.as_slice()
                    && let Ok(root) = u32::try_from(*root)
                    && root > 1
                {
                    roots.push((name.clone(), root));
                }
            }
        }
        roots
    }

    /// Reads a tree from a page on, in its order.
    fn walk(
        &mut self,
        walk: &mut Walk,
        (number, tree): (u32, Option<Tree>),
        depth: usize,
    ) -> Result<(), Failure> {
        let fits = |page: &TreePage| {
            let is_own = walk.shape.is_none_or(|shape| shape.tree == page.tree);
            is_own && tree.is_none_or(|tree| tree == page.tree)
        };
        let page = if self.seen.contains(&number) || depth > DEPTH_MAX {
            None
        } else {
            TreePage::read(&self.pages, number).filter(fits)
        };
        let Some(page) = page else {
            self.lose(walk);
            return Ok(());
        };
        self.seen.insert(number);
        self.seen.extend(&page.overflow);
        let tree = Some(page.tree);
        if page.unreadable > 0 && walk.shape.is_some() {
            self.found.lost_rows += page.unreadable as u64;
            self.lose_time(walk);
        }
        for (child, row) in page.cells {
            if let Some(child) = child {
                self.walk(walk, (child, tree), depth + 1)?;
            }
            if let Some(row) = row {
                self.keep(walk, &row)?;
            }
        }
        match page.last {
            Some(last) => self.walk(walk, (last, tree), depth + 1),
            None => Ok(()),
        }
    }

    /// A page of a tree is gone.
    fn lose(&mut self, walk: &Walk) {
        if walk.shape.is_some() {
            self.found.lose_page(&walk.name);
            self.lose_time(walk);
        }
    }

    /// What came after the last row may be lost.
    fn lose_time(&mut self, walk: &Walk) {
        if walk.is_by_time() {
            // Slots of other pipelines may have the instant of the last.
            let from = walk.last.map_or(i64::MIN, |last| last - 1);
            self.found.lost_from = Some(self.found.lost_from.map_or(from, |known| known.min(from)));
        }
    }

    fn keep(&mut self, walk: &mut Walk, row: &StoredRow) -> Result<(), Failure> {
        if walk.name == NAME_INDEX
            && let [Value::Text(name), Value::Integer(id)] = row.columns.as_slice()
        {
            self.found.names.insert(*id, name.clone());
        }
        let Some(shape) = walk.shape else { return Ok(()) };
        if let (true, Some(Value::Integer(at))) = (walk.is_by_time(), row.columns.first()) {
            walk.last = Some(*at);
        }
        if !self.write(shape, row)? {
            self.found.lost_rows += 1;
            self.lose_time(walk);
        }
        Ok(())
    }

    /// Writes a row; false if it cannot be one of the table.
    fn write(&mut self, shape: &'static Shape, row: &StoredRow) -> Result<bool, Failure> {
        let Some(values) = shape.values(row) else { return Ok(false) };
        self.into.prepare_cached(&shape.insert())?.execute(params_from_iter(values))?;
        *self.found.rows.entry(shape.name).or_default() += 1;
        Ok(true)
    }

    /// Reads what no root leads to any more, and was not given back.
    fn read_strays(&mut self) -> Result<(), Failure> {
        self.pass_over_free();
        for number in 2..=self.pages.count {
            if self.seen.contains(&number) {
                continue;
            }
            let Some(page) = TreePage::read(&self.pages, number) else { continue };
            for row in page.cells.into_iter().filter_map(|(_, row)| row) {
                if let Some(shape) = Shape::of(page.tree, &row)
                    && self.write(shape, &row)?
                {
                    self.found.strays += 1;
                }
            }
        }
        Ok(())
    }

    /// Pages that were given back hold what was deleted.
    fn pass_over_free(&mut self) {
        let mut trunk = self.pages.get(1).map_or(0, |first| u32_at(&first, 32));
        while let Some(page) = self.pages.get(trunk)
            && self.seen.insert(trunk)
        {
            let count = (u32_at(&page, 4) as usize).min(self.pages.usable / 4 - 2);
            self.seen.extend((0..count).map(|index| u32_at(&page, 8 + 4 * index)));
            trunk = u32_at(&page, 0);
        }
    }
}

/// How the log beside a file was found.
pub(crate) fn is_log_cut(path: &Path, wal: &Path) -> bool {
    Pages::open(path, wal).is_ok_and(|pages| pages.log == Log::Cut)
}

/// The letters that can still be read of an `inbox.db`: pipeline, key, when it was received, and what it says.
pub(crate) fn letters(
    path: &Path,
    wal: &Path,
) -> std::io::Result<Vec<(String, String, i64, String)>> {
    let pages = Pages::open(path, wal)?;
    let mut letters = Vec::new();
    for number in 2..=pages.count {
        let Some(page) = TreePage::read(&pages, number) else { continue };
        for row in page.cells.into_iter().filter_map(|(_, row)| row) {
            if let [
                _,
                Value::Text(pipeline),
                Value::Text(key),
                Value::Integer(at),
                Value::Text(body),
            ] = row.columns.as_slice()
            {
                letters.push((pipeline.clone(), key.clone(), *at, body.clone()));
            }
        }
    }
    Ok(letters)
}
