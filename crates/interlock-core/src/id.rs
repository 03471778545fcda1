//! Names of pipelines, schedules, slots and runs.
//!
//! Invariant: an id that exists is well formed; `~` and `/` never occur in a name, so that slot
//! keys and run ids can be taken apart again.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use jiff::Timestamp;

use crate::text::TextError;

/// A pipeline's name, which is its identity. Copies of it share the text: there are many.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipelineId(Name);

/// A schedule's name within its pipeline. Copies of it share the text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId(Name);

/// A text that copies share. Names are compared at every step through a map, mostly with a copy of themselves, which is
/// seen without looking at the text.
#[derive(Clone, Eq)]
struct Name(Arc<str>);

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T: Into<Arc<str>>> From<T> for Name {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

/// Schedule ids that Interlock uses for its own slots.
pub const RESERVED_SCHEDULE_IDS: [&str; 3] = ["manual", "stop", "restart"];

const NAME_LENGTH_MAX: usize = 255;

/// Interlock's own pipeline name: begins with what [`check_name`] forbids, so that it cannot be declared.
const SYSTEM: &str = "_system";

impl PipelineId {
    /// Reads a pipeline name: 2 to 255 of `a-z 0-9 . _ -`, letter or digit at both ends.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        if text.len() < 2 {
            return Err(TextError::new(
                0..text.len(),
                format!("the pipeline name `{text}` is too short"),
                "A pipeline name has 2 to 255 characters.",
            ));
        }
        check_name("pipeline", text)?;
        Ok(Self(text.into()))
    }

    /// Under which Interlock keeps what belongs to no pipeline: `_system`, which no file can declare.
    pub fn system() -> Self {
        Self(SYSTEM.into())
    }

    /// Reads any pipeline name, Interlock's own included: for names that come from the ledger.
    pub fn any(text: &str) -> Result<Self, TextError> {
        if text == SYSTEM { Ok(Self::system()) } else { Self::parse(text) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0.0
    }
}

impl ScheduleId {
    /// Reads a schedule id: 1 to 255 of `a-z 0-9 . _ -`, letter or digit at both ends, and none of
    /// [`RESERVED_SCHEDULE_IDS`].
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let id = Self::any(text)?;
        if RESERVED_SCHEDULE_IDS.contains(&text) || id.is_control() {
            return Err(TextError::new(
                0..text.len(),
                format!("the schedule id `{text}` is reserved"),
                "Interlock uses `manual`, `stop` and `restart` for slots of its own; choose another id.",
            ));
        }
        Ok(id)
    }

    /// Whether this is the id of a stop or restart schedule: `stop`, `restart`, or one of several, which
    /// [`hashed`](Self::hashed) named.
    pub fn is_control(&self) -> bool {
        let (kind, hash) = self.as_str().split_once('-').unwrap_or((self.as_str(), "00000000"));
        let is_hash = hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        matches!(kind, "stop" | "restart") && is_hash
    }

    /// Reads any schedule id, Interlock's own included: for ids that come from the ledger.
    pub fn any(text: &str) -> Result<Self, TextError> {
        check_name("schedule", text)?;
        Ok(Self(text.into()))
    }

    /// The id that schedules without one get from their kind: `cron`, `stream` or `daily`.
    pub fn from_static(id: &'static str) -> Self {
        Self(id.into())
    }

    /// The id of one unnamed entry in a list: stable under reordering, because it is made from what
    /// the entry says and not from where it stands.
    pub fn hashed(kind: &'static str, expression: &str) -> Self {
        Self(format!("{kind}-{:08x}", fnv1a(expression.as_bytes()) as u32).into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0.0
    }
}

impl fmt::Display for PipelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One instant at which one schedule of one pipeline owes a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotKey {
    /// Whose slot it is.
    pub pipeline: PipelineId,
    /// Which of its schedules owes it.
    pub schedule: ScheduleId,
    /// The nominal instant.
    pub nominal: Timestamp,
}

impl fmt::Display for SlotKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.pipeline, self.schedule, self.nominal)
    }
}

/// A 64-bit FNV-1a hash: small, stable for ever, and good enough to spread names.
///
/// Stored ids and jitter depend on it, so it must never change.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Refuses what cannot begin the keys of a store on Redis: braces decide on which server of a cluster a key is, and spaces part
/// what keys are made of.
pub fn check_key_prefix(text: &str) -> Result<(), &'static str> {
    if text.is_empty() || text.contains(['{', '}']) || text.contains(char::is_whitespace) {
        return Err("it needs a name without braces and spaces");
    }
    Ok(())
}

/// Refuses what cannot be the schema of a store on PostgreSQL: only a word that needs no care in a statement is one.
pub fn check_schema(text: &str) -> Result<(), &'static str> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if !text.bytes().all(is_plain) || !(1..=63).contains(&text.len()) || text.starts_with("pg_") {
        return Err(
            "it needs a name of small letters, digits and `_`, 63 at most, that does not begin with `pg_`",
        );
    }
    Ok(())
}

/// Checks a name of any kind of thing: 1 to 255 of `a-z 0-9 . _ -`, letter or digit at both ends.
pub fn check_name(what: &str, text: &str) -> Result<(), TextError> {
    if text.is_empty() || text.len() > NAME_LENGTH_MAX {
        return Err(TextError::new(
            0..text.len(),
            format!(
                "a {what} name has 1 to {NAME_LENGTH_MAX} characters, this one has {}",
                text.len()
            ),
            "",
        ));
    }
    let legal = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-');
    if let Some((at, found)) = text.char_indices().find(|(_, c)| !legal(*c)) {
        return Err(TextError::new(
            at..at + found.len_utf8(),
            format!("`{found}` is not allowed in the {what} name `{text}`"),
            "Use lower-case letters, digits, `.`, `_` and `-`.",
        ));
    }
    let edge = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    for at in [0, bytes.len() - 1] {
        if !bytes.get(at).copied().is_some_and(edge) {
            return Err(TextError::new(
                at..at + 1,
                format!("the {what} name `{text}` must begin and end with a letter or a digit"),
                "",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipeline_names_follow_the_table_of_case_87() {
        for good in ["ab", "my.pipeline-v2", "daily_orders", "a1"] {
            assert!(PipelineId::parse(good).is_ok(), "{good}");
        }
        for bad in
            ["", "a", "UPPER", "has space", "../../etc", "key:injection", "a~b", "-ab", "ab."]
        {
            assert!(PipelineId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn interlocks_own_pipeline_cannot_be_declared() {
        assert!(PipelineId::parse("_system").is_err());
        assert_eq!(PipelineId::any("_system"), Ok(PipelineId::system()));
        assert_eq!(PipelineId::any("orders"), PipelineId::parse("orders"));
        assert!(PipelineId::any("_other").is_err());
    }

    #[test]
    fn a_bad_character_is_pointed_at() {
        let error = PipelineId::parse("orders daily").unwrap_err();
        assert_eq!(error.span, 6..7);
        assert_eq!(error.message, "` ` is not allowed in the pipeline name `orders daily`");
    }

    #[test]
    fn reserved_schedule_ids_are_refused() {
        assert!(ScheduleId::parse("manual").is_err());
        assert!(ScheduleId::parse("nightly").is_ok());
        // Those of stops and restarts, alone and as one of several, are never those of starts.
        for hashed in [ScheduleId::hashed("stop", "0 * * * *"), ScheduleId::hashed("restart", "x")]
        {
            assert!(hashed.is_control(), "{hashed}");
            assert!(ScheduleId::parse(hashed.as_str()).is_err(), "{hashed}");
        }
        for usual in ["cron-21361d8f", "stop-nightly", "stops", "restart-1", "manual"] {
            assert!(!ScheduleId::any(usual).unwrap().is_control(), "{usual}");
        }
    }

    #[test]
    fn hashed_ids_never_change() {
        assert_eq!(ScheduleId::hashed("cron", "0 * * * *").as_str(), "cron-21361d8f");
    }
}
