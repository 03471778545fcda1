//! The record of a heartbeat: 64 bytes, rewritten in place.
//!
//! In place, because a file that is emptied and written anew is empty on a full disk, with a fresh time; and one that is
//! replaced stays old there. It names the boot, the process and when that was started, so that what an earlier process left
//! behind is never taken for a sign of life.

use std::{fs, io, os::unix::fs::MetadataExt as _, time::Duration};

use crate::{clock::monotonic, kin::after_name};

/// How long a record is.
pub(crate) const LENGTH: usize = 64;
const MAGIC: &[u8; 8] = b"ILKBEAT1";
/// What is written later than now was not written by the clock that everybody here shares, whatever the processors disagree by.
const AHEAD_MAX: u64 = 1_000_000_000;

/// Which process a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Which start of the machine.
    pub boot: [u8; 16],
    /// Which process.
    pub pid: u32,
    /// When that was started, in the kernel's ticks since the boot: a number may be given twice, not both.
    pub started: u64,
    /// In which namespace that number means it; 0 if it did not say.
    pub namespace: u64,
}

/// Whether a process is there, as far as it can be seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    There,
    /// It has ended, or was of another start of the machine.
    Gone,
    /// It has numbers of its own, as in another container: only what it writes says whether it is there.
    Unseen,
}

impl Origin {
    /// This process.
    pub fn here() -> io::Result<Self> {
        let (pid, started) = (std::process::id(), started("self")?);
        Ok(Self { boot: boot()?, pid, started, namespace: namespace()? })
    }

    /// Whether that process is still there.
    pub fn presence(&self) -> Presence {
        if !boot().is_ok_and(|boot| boot == self.boot) {
            return Presence::Gone;
        }
        // The same number means somebody else in another container, or nobody.
        if self.namespace != 0 && namespace().is_ok_and(|ours| ours != self.namespace) {
            return Presence::Unseen;
        }
        let started = started(&self.pid.to_string());
        if started.is_ok_and(|started| started == self.started) {
            Presence::There
        } else {
            Presence::Gone
        }
    }
}

/// Which namespace the numbers of processes here are of.
fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// The id of this start of the machine.
pub(crate) fn boot() -> io::Result<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut boot = [0; 16];
    for (byte, pair) in boot.iter_mut().zip(digits.chunks(2)) {
        let pair = str::from_utf8(pair).map_err(io::Error::other)?;
        *byte = u8::from_str_radix(pair, 16).map_err(io::Error::other)?;
    }
    Ok(boot)
}

/// When a process was started.
pub(crate) fn started(pid: &str) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = after_name(&stat).nth(19).and_then(|ticks| ticks.parse().ok());
    ticks.ok_or_else(|| io::Error::other("a line of /proc is not understood"))
}

/// One heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Whose it is.
    pub origin: Origin,
    /// Which one; grows by one.
    pub sequence: u64,
    /// When it was written, by the clock that all processes of a boot share.
    pub at: u64,
}

impl Record {
    pub(crate) fn now(origin: Origin, sequence: u64) -> Self {
        Self { origin, sequence, at: monotonic() }
    }

    /// How long ago it was written, if that was since the machine was started and is not still to come.
    pub fn age(&self) -> Option<Duration> {
        let is_this_boot = boot().is_ok_and(|boot| boot == self.origin.boot);
        let now = monotonic();
        let is_sound = is_this_boot && self.at <= now.saturating_add(AHEAD_MAX);
        is_sound.then(|| Duration::from_nanos(now.saturating_sub(self.at)))
    }

    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.origin.boot);
        bytes.extend_from_slice(&self.origin.pid.to_le_bytes());
        bytes.extend_from_slice(&self.origin.started.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.at.to_le_bytes());
        bytes.extend_from_slice(&self.origin.namespace.to_le_bytes());
        bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
        let mut record = [0; LENGTH];
        record.copy_from_slice(&bytes);
        record
    }

    /// Reads what a heartbeat file holds.
    pub(crate) fn read(bytes: &[u8]) -> Content {
        match Self::decode(bytes) {
            Some(record) => Content::Record(record),
            None if bytes.starts_with(MAGIC) => Content::Damaged,
            None => Content::Foreign,
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..LENGTH)?;
        let (body, sum) = bytes.split_at(LENGTH - 4);
        let body = body.strip_prefix(MAGIC)?;
        let (boot, rest) = body.split_first_chunk::<16>()?;
        let (pid, rest) = rest.split_first_chunk::<4>()?;
        let (started, rest) = rest.split_first_chunk::<8>()?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        let (at, rest) = rest.split_first_chunk::<8>()?;
        let (namespace, _) = rest.split_first_chunk::<8>()?;
        let is_whole = checksum(bytes.get(..LENGTH - 4)?).to_le_bytes() == *sum;
        is_whole.then(|| Self {
            origin: Origin {
                boot: *boot,
                pid: u32::from_le_bytes(*pid),
                started: u64::from_le_bytes(*started),
                namespace: u64::from_le_bytes(*namespace),
            },
            sequence: u64::from_le_bytes(*sequence),
            at: u64::from_le_bytes(*at),
        })
    }
}

/// What is found in a heartbeat file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// A record.
    Record(Record),
    /// What begins as one and is none.
    Damaged,
    /// What some other program writes.
    Foreign,
}

/// CRC-32, bit by bit: sixty bytes once a second.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { (sum >> 1) ^ 0xEDB8_8320 } else { sum >> 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_damaged_one_not_at_all() {
        let record = Record::now(Origin::here().unwrap(), 7);
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Some(record));
        assert_eq!(record.origin.presence(), Presence::There);
        for at in 0..LENGTH {
            let mut damaged = bytes;
            damaged[at] ^= 4;
            let says_ours = at >= MAGIC.len();
            let read = if says_ours { Content::Damaged } else { Content::Foreign };
            assert_eq!(Record::read(&damaged), read, "{at}");
        }
        assert_eq!(Record::decode(&bytes[..LENGTH - 1]), None);
        assert_eq!(checksum(b"123456789"), 0xCBF4_3926, "the well-known check value");
    }

    #[test]
    fn fault_23_who_has_the_number_of_a_dead_process_is_not_that_process() {
        let here = Origin::here().unwrap();
        let others =
            [Origin { started: here.started + 1, ..here }, Origin { boot: [7; 16], ..here }];
        assert_eq!(others.map(|other| other.presence()), [Presence::Gone; 2]);
    }

    #[test]
    fn who_has_numbers_of_its_own_is_not_taken_for_gone_and_older_records_are_judged_as_before() {
        let here = Origin::here().unwrap();
        let elsewhere = Origin { namespace: here.namespace + 1, pid: u32::MAX, ..here };
        assert_eq!(elsewhere.presence(), Presence::Unseen);
        let older = Origin { namespace: 0, ..here };
        assert_eq!(Record::decode(&Record::now(older, 1).encode()).unwrap().origin, older);
        assert_eq!(older.presence(), Presence::There);
        assert_eq!(Origin { pid: u32::MAX, ..older }.presence(), Presence::Gone);
    }

    #[test]
    fn a_record_that_is_still_to_be_written_has_no_age() {
        let record = Record::now(Origin::here().unwrap(), 1);
        assert!(record.age().is_some());
        assert_eq!(Record { at: record.at + 60_000_000_000, ..record }.age(), None);
    }
}
