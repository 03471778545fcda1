//! Whether all instances have the same files (ADR 43).
//!
//! Each declares what its own files say about the pipelines of its shards. So what only one of them knows runs or does not
//! run, by chance. Each says what its files declare, in the store, and compares that with what the others say.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use interlock_core::{
    id::{PipelineId, fnv1a},
    text::counted,
};
use interlock_store::{Role, Roll, Store, StoreError, kept::FILES_PREFIX, record::InboxRecord};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    files::Files,
    notice::{Over, is_open, notice},
    roster::{hosts, speaks_for_all},
};
use crate::inbox::fresh_key;

const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A deployment that goes from host to host takes a while.
const PATIENCE: Duration = Duration::from_mins(1);
/// When what was said, and is not there yet, is said again.
const SAY_AGAIN: Duration = Duration::from_mins(1);
/// How long what a host said is kept after it was last seen to change.
const KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// So many pipelines are named one by one.
const NAMED_MAX: usize = 200;
/// So many are named to people.
const SHOWN_MAX: usize = 5;
const THING: &str = "the files of the instances";

/// What it needs of the rest.
pub(crate) struct Around {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) files: Files,
    /// This host, and who we are on the roll.
    pub(crate) host: String,
    pub(crate) me: String,
}

/// What the files of a host declare.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Declared {
    digest: String,
    count: usize,
    /// The version of each pipeline, where they are few enough.
    versions: Option<BTreeMap<String, String>>,
}

impl Declared {
    fn of(pipelines: &BTreeMap<PipelineId, u64>) -> Self {
        let mut text = String::new();
        for (name, version) in pipelines {
            let _never = writeln!(text, "{name} {version:016x}");
        }
        let versions = pipelines.iter().map(|(name, it)| (name.to_string(), format!("{it:016x}")));
        Self {
            digest: format!("{:016x}", fnv1a(text.as_bytes())),
            count: pipelines.len(),
            versions: (pipelines.len() <= NAMED_MAX).then(|| versions.collect()),
        }
    }

    fn to_value(&self) -> Value {
        json!({ "digest": self.digest, "count": self.count, "versions": self.versions })
    }

    fn from_value(value: &Value) -> Option<Self> {
        let versions = value.get("versions").and_then(Value::as_object).map(|all| {
            let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
            all.iter().map(|(name, version)| (name.clone(), text(version))).collect()
        });
        let count = usize::try_from(value.get("count")?.as_u64()?).ok()?;
        Some(Self { digest: value.get("digest")?.as_str()?.to_owned(), count, versions })
    }
}

/// What hosts say, and when that was.
type Said = BTreeMap<String, (Declared, Timestamp)>;

/// Looks until the process ends.
pub(crate) async fn go_on(around: Around) {
    let mut seen = Seen::default();
    loop {
        // A store that does not answer is told of by others.
        let _again_later = seen.look(&around).await;
        sleep(LOOK_EVERY).await;
    }
}

#[derive(Debug, Default)]
struct Seen {
    /// What was last said of this host, and when.
    told: Option<(Declared, Instant)>,
    /// Since when they differ.
    since: Option<Instant>,
    /// Whether this process has told: who resolves it by hand is not told again.
    is_told: bool,
}

impl Seen {
    async fn look(&mut self, around: &Around) -> Result<(), StoreError> {
        let store = around.store.as_ref();
        let Some(roll) = store.roll().await? else { return Ok(()) };
        let said = said(store).await?;
        if let Some(ours) = around.files.declared() {
            self.say(around, Declared::of(&ours), said.get(&around.host)).await?;
        }
        self.compare(around, &roll, &said).await?;
        if speaks_for_all((Role::Engine, &around.me), &roll)
            && let Some(host) = forgotten(&said, &roll)
        {
            keep(around, host, None).await?;
        }
        Ok(())
    }

    /// Says what the files of this host declare, unless the store has it.
    async fn say(
        &mut self,
        around: &Around,
        ours: Declared,
        known: Option<&(Declared, Timestamp)>,
    ) -> Result<(), StoreError> {
        if known.is_some_and(|(known, _)| *known == ours) {
            self.told = None;
            return Ok(());
        }
        let is_under_way =
            |(told, at): &(Declared, Instant)| *told == ours && at.elapsed() < SAY_AGAIN;
        if !self.told.as_ref().is_some_and(is_under_way) {
            keep(around, &around.host, Some(ours.to_value())).await?;
            self.told = Some((ours, Instant::now()));
        }
        Ok(())
    }

    async fn compare(
        &mut self,
        around: &Around,
        roll: &Roll,
        said: &Said,
    ) -> Result<(), StoreError> {
        let store = around.store.as_ref();
        let present = hosts(Role::Engine, roll);
        let here = said.iter().filter(|(host, _)| present.contains(host.as_str()));
        let here: Vec<_> = here.map(|(host, (declared, _))| (host.as_str(), declared)).collect();
        let differ = difference(&here);
        let is_ours_to_say = speaks_for_all((Role::Engine, &around.me), roll);
        let Some(message) = differ else {
            (self.since, self.is_told) = (None, false);
            if is_ours_to_say && is_open(store, format!("files:{THING}")).await? {
                let message = "all instances that are up have the same files".to_owned();
                notice(store, ("FILES_DIFFER", THING), message, Over::Yes).await;
            }
            return Ok(());
        };
        let since = *self.since.get_or_insert_with(Instant::now);
        if is_ours_to_say && !self.is_told && since.elapsed() >= PATIENCE {
            tracing::error!("{THING} differ: {message}");
            self.is_told = notice(store, ("FILES_DIFFER", THING), message, Over::No).await;
        }
        Ok(())
    }
}

/// What every host has said.
async fn said(store: &dyn Store) -> Result<Said, StoreError> {
    let rows = store.sensors(&PipelineId::system()).await?;
    let said = rows.into_iter().filter_map(|(key, row)| {
        let declared = Declared::from_value(&row.record.value)?;
        Some((key.strip_prefix(FILES_PREFIX)?.to_owned(), (declared, row.record.at)))
    });
    Ok(said.collect())
}

/// A host that has not been there for long.
fn forgotten<'a>(said: &'a Said, roll: &Roll) -> Option<&'a str> {
    let present = hosts(Role::Engine, roll);
    let is_old = |at: Timestamp| roll.now.duration_since(at) > KEPT;
    let mut gone =
        said.iter().filter(|(host, (_, at))| !present.contains(host.as_str()) && is_old(*at));
    gone.next().map(|(host, _)| host.as_str())
}

async fn keep(around: &Around, host: &str, value: Option<Value>) -> Result<(), StoreError> {
    let (kind, id, by) = ("files".to_owned(), host.to_owned(), around.host.clone());
    let record = InboxRecord::Keep { kind, id, value, by };
    around.store.post(&PipelineId::system(), &fresh_key(), &record).await
}

/// What differs between those that are there, in a sentence; nothing if they agree.
fn difference(here: &[(&str, &Declared)]) -> Option<String> {
    let digests: BTreeSet<&str> = here.iter().map(|(_, it)| it.digest.as_str()).collect();
    if digests.len() < 2 {
        return None;
    }
    let mut text = String::new();
    for digest in digests {
        let of: Vec<_> = here.iter().filter(|(_, it)| it.digest == digest).collect();
        let names: Vec<&str> = of.iter().map(|(host, _)| *host).collect();
        let count = of.first().map_or(0, |(_, it)| it.count);
        let verb = if names.len() == 1 { "declares" } else { "declare" };
        let _never = write!(text, "{} {verb} {}; ", some(&names), counted(count, "pipeline"));
    }
    let versions: Vec<_> = here.iter().filter_map(|(_, it)| it.versions.as_ref()).collect();
    let all: BTreeSet<&str> =
        versions.iter().flat_map(|it| it.keys()).map(String::as_str).collect();
    let found = |name: &str| -> BTreeSet<Option<&String>> {
        versions.iter().map(|it| it.get(name)).collect()
    };
    let (lacking, edited): (Vec<&str>, Vec<&str>) = all
        .into_iter()
        .filter(|name| found(name).len() > 1)
        .partition(|name| found(name).contains(&None));
    if !lacking.is_empty() {
        let _never = write!(text, "not everywhere: {}; ", some(&lacking));
    }
    if !edited.is_empty() {
        let _never = write!(text, "not the same everywhere: {}; ", some(&edited));
    }
    text.push_str(
        "the owner of a pipeline's shard goes by its own files. Give all instances the same files (and zone data), and each project \
         a prefix or schema of its own",
    );
    Some(text)
}

/// The first of them by name.
fn some(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().copied().take(SHOWN_MAX).collect();
    let more = names.len() - shown.len();
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{rest}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(pipelines: &[(&str, u64)]) -> Declared {
        let parse = |(name, version): &(&str, u64)| (PipelineId::parse(name).unwrap(), *version);
        Declared::of(&pipelines.iter().map(parse).collect())
    }

    #[test]
    fn what_is_said_is_read_again() {
        let few = declared(&[("orders", 1), ("sales", u64::MAX)]);
        assert_eq!(Declared::from_value(&few.to_value()), Some(few));
        let names: Vec<String> = (0..=NAMED_MAX).map(|number| format!("p{number}")).collect();
        let many: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let many = declared(&many);
        assert_eq!((many.versions.as_ref(), many.count), (None, NAMED_MAX + 1));
        assert_eq!(Declared::from_value(&many.to_value()), Some(many));
    }

    #[test]
    fn those_who_differ_are_named_with_what_differs() {
        let (one, same) = (declared(&[("aa", 1), ("bb", 2)]), declared(&[("aa", 1), ("bb", 2)]));
        assert_eq!(difference(&[("x", &one), ("y", &same)]), None);
        assert_eq!(difference(&[("x", &one)]), None);
        let other = declared(&[("aa", 1), ("bb", 3), ("cc", 1)]);
        let said = difference(&[("x", &one), ("y", &same), ("z", &other)]).unwrap();
        for part in [
            "x, y declare 2 pipelines",
            "z declares 3 pipelines",
            "not everywhere: cc;",
            "not the same everywhere: bb;",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
