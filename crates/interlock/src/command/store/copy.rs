//! `interlock store copy`: a ledger moves house.
//!
//! Nobody may own either store meanwhile: a file is locked, and on a server the leases are held, renewed beside the work
//! ([`Keeper`]) so that they can be short: whoever kills the copy does not wait for long. The target must be empty, and
//! says that it is a copy until all was compared; `serve` refuses one that is not finished. From then on the source says that
//! it was moved, and `serve` refuses that too: two that go on from the same ledger would run everything twice.

mod keeper;

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use interlock_core::id::{PipelineId, fnv1a};
use interlock_store::{
    Change, Expect, Freight, Group, InboxEntry, Key, Record, Role, Row, Rows, Shard, Store,
    StoredRow, Writer, block_on,
    kept::{COPYING_KEY, MOVED_KEY},
    record::SensorRecord,
};
use jiff::Timestamp;

use self::keeper::{Interrupt, Keeper};
use crate::{
    clock,
    exit::{Failure, SUCCESS},
    output::Output,
    place::{self, Place},
    progress::Progress,
    writer,
};

/// How many rows go over at once.
const PORTION: usize = 500;
/// More entries than an inbox has.
const INBOX_MAX: usize = 1_000_000;
/// What the lock of a file calls this process.
const WHAT: &str = "interlock store copy";

/// One end of the move.
struct End {
    place: Place,
    store: Arc<dyn Store>,
    keeper: Keeper,
    interrupt: Interrupt,
}

pub(super) fn run((from, to): (&Path, &Path), output: &mut Output) -> Result<u8, Failure> {
    let interrupt = Interrupt::listen()?;
    let (from, to) = (place_of(from)?, place_of(to)?);
    if !from.exists()? {
        return Err(Failure::failed(
            format!("nothing was recorded yet in {from}"),
            "Name the project, or a file like interlock.yaml, whose ledger is to move, with `--from`.",
        ));
    }
    let from = End::open((from, &interrupt), Place::open_reader)?;
    let to = End::open((to, &interrupt), |place| place.open_writer(WHAT, Duration::ZERO))?;
    refuse_full(&to)?;
    to.mark()?;
    let carried = carry_and_compare(&from, &to, output)?;
    // Before the target may be served: the one that is left never is again.
    let moved = fact(serde_json::json!({ "to": to.place.to_string() }));
    from.change(Change::Put(mark(MOVED_KEY), Expect::Any, moved))?;
    to.change(Change::Delete(mark(COPYING_KEY), Expect::Any))?;
    for (kind, count) in &carried {
        writeln!(output.out, "  {kind:<10} {count}")?;
    }
    writeln!(output.out, "copied {} to {}, and both hold the same", from.place, to.place)?;
    writeln!(
        output.out,
        "Now let interlock.yaml name the new store; the old one is not served any more (`interlock store reclaim` undoes that)."
    )?;
    Ok(SUCCESS)
}

/// Lets a store be served again that was moved elsewhere.
pub(super) fn reclaim(directory: &Path, output: &mut Output) -> Result<u8, Failure> {
    let end = End::open((Place::of(directory)?, &Interrupt::default()), Place::open_reader)?;
    end.change(Change::Delete(mark(MOVED_KEY), Expect::Any))?;
    writeln!(output.out, "{} may be served again", end.place)?;
    Ok(SUCCESS)
}

/// The store that a project's directory, or a file, names.
fn place_of(path: &Path) -> Result<Place, Failure> {
    if path.is_dir() {
        return Place::of(path);
    }
    if !path.is_file() {
        return Err(Failure::failed(
            format!("{} names no store", path.display()),
            "Name a project's directory, or a file like interlock.yaml.",
        ));
    }
    let store = place::store(path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory: PathBuf = directory.unwrap_or(Path::new(".")).to_path_buf();
    Ok(Place::named(&directory, &store))
}

impl End {
    /// Opens a store and keeps everybody else from owning it.
    fn open(
        (place, interrupt): (Place, &Interrupt),
        on_server: impl FnOnce(&Place) -> Result<Arc<dyn Store>, Failure>,
    ) -> Result<Self, Failure> {
        let store: Arc<dyn Store> = if place.is_embedded() {
            let opened = writer::try_open(&place.folder, WHAT)?;
            Arc::new(opened.ok_or_else(|| busy(&place, None))?)
        } else {
            on_server(&place)?
        };
        let keeper = Keeper::hold(&place, &store)?;
        Ok(Self { place, store, keeper, interrupt: interrupt.clone() })
    }

    /// Goes on, if it still may.
    fn go_on(&self) -> Result<(), Failure> {
        if self.interrupt.is_asked_for() {
            return Err(Failure::failed("the copy was interrupted", ""));
        }
        if self.keeper.has_lost() {
            return Err(Failure::failed(
                format!("another process owns {} now: the copy is incomplete", self.place),
                "Stop `interlock serve` everywhere.",
            ));
        }
        Ok(())
    }

    /// Says in the target that it is not whole yet; without a number of its own, as everything that it gets.
    fn mark(&self) -> Result<(), Failure> {
        let row = Row { record: fact(serde_json::json!({})), revision: 1 };
        let key = mark(COPYING_KEY);
        let rows = vec![StoredRow { pipeline: PipelineId::system(), key, row }];
        Ok(block_on(self.store.import(Freight { rows, ..Freight::default() }))?)
    }

    /// Changes what the store says about itself.
    fn change(&self, change: Change) -> Result<(), Failure> {
        let pipeline = PipelineId::system();
        let shard = Shard::of(&pipeline, self.store.shard_count());
        let owns = |writer: &&Writer| writer.role == Role::Engine && writer.shard == shard;
        let writer = self.keeper.leases.iter().find(owns).copied();
        let Some(writer) = writer else { return Ok(()) };
        let group = Group { pipeline, writer, changes: vec![change] };
        for result in block_on(self.store.commit(vec![group]))? {
            result.map_err(|refusal| Failure::failed(refusal.to_string(), ""))?;
        }
        Ok(())
    }

    /// Everything that it holds, portion by portion.
    fn each(&self, mut take: impl FnMut(Freight) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut from = String::new();
        loop {
            self.go_on()?;
            let portion = block_on(self.store.rows(Rows::All, &from, PORTION))?;
            let marks = [COPYING_KEY, MOVED_KEY].map(mark);
            let is_ours =
                |row: &StoredRow| row.pipeline != PipelineId::system() || !marks.contains(&row.key);
            let rows = portion.items.into_iter().filter(is_ours).collect();
            take(Freight { rows, ..Freight::default() })?;
            let Some(next) = portion.next else { break };
            from = next;
        }
        let mut after = 0;
        loop {
            self.go_on()?;
            let page = block_on(self.store.events(None, after, PORTION))?;
            after = page.items.last().map_or(after, |event| event.number);
            take(Freight { events: page.items, ..Freight::default() })?;
            if !page.more {
                break;
            }
        }
        let mut inbox: Vec<InboxEntry> = Vec::new();
        for shard in (0..self.store.shard_count()).map(Shard) {
            inbox.extend(block_on(self.store.inbox(shard, INBOX_MAX))?.items);
        }
        let last = block_on(self.store.changes(u64::MAX, 1))?.last;
        let store = Some(block_on(self.store.mark())?.store);
        take(Freight { inbox, last, store, ..Freight::default() })
    }
}

/// What is said of a store that somebody owns.
fn busy(place: &Place, holder: Option<(String, Timestamp)>) -> Failure {
    let holder = holder.map_or_else(String::new, |(holder, until)| {
        format!(": {holder} has it until {until}, or longer")
    });
    Failure::failed(
        format!("another process writes {place}{holder}"),
        format!(
            "Stop `interlock serve` everywhere first. What a dead instance or a dead copy held is free after {} s.",
            keeper::HELD.as_secs()
        ),
    )
}

/// Where a store says such a thing about itself.
fn mark(key: &str) -> Key {
    Key::Sensor(key.to_owned())
}

fn fact(value: serde_json::Value) -> Record {
    let now = clock::now();
    Record::Sensor(SensorRecord { value, at: now, received_at: now, unheeded: false }.into())
}

/// Refuses a target that holds anything.
fn refuse_full(to: &End) -> Result<(), Failure> {
    let mut found = 0;
    to.each(|freight| {
        found += freight.rows.len() + freight.events.len() + freight.inbox.len();
        Ok(())
    })?;
    let marked = block_on(to.store.read(&PipelineId::system(), &[mark(COPYING_KEY)]))?;
    if found == 0 && marked.iter().all(Option::is_none) {
        return Ok(());
    }
    let what =
        if marked.iter().all(Option::is_none) { "" } else { ": a copy that was not finished" };
    Err(Failure::failed(
        format!("{} is not empty{what}", to.place),
        format!(
            "Nothing was changed. Name a store that holds nothing: another folder, prefix or schema. To empty this one: {}",
            to.place.how_to_empty()
        ),
    ))
}

/// Does the work. Whatever stops it, the source is as it was, and the target is to be emptied.
fn carry_and_compare(
    from: &End,
    to: &End,
    output: &mut Output,
) -> Result<BTreeMap<&'static str, usize>, Failure> {
    let done = carry(from, to, output).and_then(|carried| {
        compare((from, to), carried.values().sum::<usize>() as u64, output)?;
        from.go_on()?;
        to.go_on()?;
        Ok(carried)
    });
    done.map_err(|mut failure| {
        let help = format!(
            "{} {} is as it was. {} is not finished, and `serve` refuses it. To empty it, before the copy begins again: {}",
            failure.help,
            from.place,
            to.place,
            to.place.how_to_empty()
        );
        help.trim_start().clone_into(&mut failure.help);
        failure
    })
}

/// Carries everything over; how many there were of each kind.
fn carry(
    from: &End,
    to: &End,
    output: &mut Output,
) -> Result<BTreeMap<&'static str, usize>, Failure> {
    let mut carried = BTreeMap::new();
    // How many there are is known when all were read.
    let mut progress = Progress::unbounded("things copied");
    from.each(|freight| {
        for row in &freight.rows {
            *carried.entry(row.key.kind()).or_insert(0) += 1;
        }
        *carried.entry("event").or_insert(0) += freight.events.len();
        *carried.entry("inbox").or_insert(0) += freight.inbox.len();
        to.go_on()?;
        block_on(to.store.import(freight))?;
        progress.step(carried.values().sum::<usize>() as u64, output)
    })?;
    progress.finish(output)?;
    Ok(carried)
}

/// What a store holds, as hashes: of the address and of the content of each thing.
fn digest(
    end: &End,
    mut looked_at: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<BTreeMap<u64, u64>, Failure> {
    let mut held = BTreeMap::new();
    let mut keep = |address: String, content: String| {
        held.insert(fnv1a(address.as_bytes()), fnv1a(content.as_bytes()));
    };
    end.each(|freight| {
        for StoredRow { pipeline, key, row } in &freight.rows {
            keep(format!("{pipeline} {key}"), format!("{} {}", row.revision, row.record.encode()));
        }
        for event in &freight.events {
            let content = format!("{} {}", event.pipeline, event.record.encode());
            keep(format!("event {}", event.number), content);
        }
        for (place, entry) in freight.inbox.iter().enumerate() {
            let content = format!("{place} {} {}", entry.received_at, entry.record.encode());
            keep(format!("inbox {} {}", entry.pipeline, entry.key), content);
        }
        looked_at((freight.rows.len() + freight.events.len() + freight.inbox.len()) as u64)
    })?;
    Ok(held)
}

/// Compares both ends: what is missing, what is too much, what is not the same.
fn compare((from, to): (&End, &End), count: u64, output: &mut Output) -> Result<(), Failure> {
    let mut progress = Progress::of("things compared", 2 * count);
    let mut compared = 0;
    let mut looked_at = |some: u64| {
        compared += some;
        progress.step(compared, output)
    };
    let (source, target) = (digest(from, &mut looked_at)?, digest(to, &mut looked_at)?);
    progress.finish(output)?;
    let missing = source.keys().filter(|key| !target.contains_key(key)).count();
    let extra = target.keys().filter(|key| !source.contains_key(key)).count();
    let differs = |(key, content): &(&u64, &u64)| target.get(key).is_some_and(|it| it != *content);
    let different = source.iter().filter(differs).count();
    if missing + extra + different == 0 {
        return Ok(());
    }
    Err(Failure::failed(
        format!(
            "the copy is not the same: of {} things {missing} are missing and {different} differ, and {extra} are too many",
            source.len()
        ),
        "Another process wrote to the old store meanwhile (a report, a request).",
    ))
}
