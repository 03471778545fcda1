//! The record of a heartbeat: 64 bytes, rewritten in place.
//!
//! In place, because a file that is emptied and written anew is empty on a full disk, with a fresh time; and one that is
//! replaced stays old there. It names the boot, the process and when that was started, so that what an earlier process left
//! behind is never taken for a sign of life.

use std::{fs, io};

use crate::clock::monotonic;

/// How long a record is.
pub(crate) const LENGTH: usize = 64;
const MAGIC: &[u8; 8] = b"ILKBEAT1";

/// Which process a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Which start of the machine.
    pub boot: [u8; 16],
    /// Which process.
    pub pid: u32,
    /// When that was started, in the kernel's ticks since the boot: a number may be given twice, not both.
    pub started: u64,
}

impl Origin {
    /// This process.
    pub fn here() -> io::Result<Self> {
        Ok(Self { boot: boot()?, pid: std::process::id(), started: started("self")? })
    }

    /// Whether that process is still there.
    pub fn is_alive(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot)
            && started(&self.pid.to_string()).is_ok_and(|started| started == self.started)
    }
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
    // The name may hold anything, even parentheses.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks = after.split_whitespace().nth(19).and_then(|ticks| ticks.parse().ok());
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

    /// How long ago it was written, if that was since the machine was started.
    pub fn age(&self) -> Option<std::time::Duration> {
        let is_this_boot = boot().is_ok_and(|boot| boot == self.origin.boot);
        let age = monotonic().saturating_sub(self.at);
        is_this_boot.then(|| std::time::Duration::from_nanos(age))
    }

    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.origin.boot);
        bytes.extend_from_slice(&self.origin.pid.to_le_bytes());
        bytes.extend_from_slice(&self.origin.started.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.at.to_le_bytes());
        bytes.resize(LENGTH - 4, 0);
        bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
        let mut record = [0; LENGTH];
        record.copy_from_slice(&bytes);
        record
    }

    /// Reads a record; nothing, if it is none or is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..LENGTH)?;
        let (body, sum) = bytes.split_at(LENGTH - 4);
        let body = body.strip_prefix(MAGIC)?;
        let (boot, rest) = body.split_first_chunk::<16>()?;
        let (pid, rest) = rest.split_first_chunk::<4>()?;
        let (started, rest) = rest.split_first_chunk::<8>()?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        let (at, _) = rest.split_first_chunk::<8>()?;
        let is_whole = checksum(bytes.get(..LENGTH - 4)?).to_le_bytes() == *sum;
        is_whole.then(|| Self {
            origin: Origin {
                boot: *boot,
                pid: u32::from_le_bytes(*pid),
                started: u64::from_le_bytes(*started),
            },
            sequence: u64::from_le_bytes(*sequence),
            at: u64::from_le_bytes(*at),
        })
    }
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
        assert!(record.origin.is_alive());
        for at in 0..LENGTH {
            let mut damaged = bytes;
            damaged[at] ^= 4;
            assert_eq!(Record::decode(&damaged), None, "{at}");
        }
        assert_eq!(Record::decode(&bytes[..LENGTH - 1]), None);
        assert_eq!(checksum(b"123456789"), 0xCBF4_3926, "the well-known check value");
    }

    #[test]
    fn fault_23_who_has_the_number_of_a_dead_process_is_not_that_process() {
        let here = Origin::here().unwrap();
        assert!(!Origin { started: here.started + 1, ..here }.is_alive());
        assert!(!Origin { boot: [7; 16], ..here }.is_alive());
    }
}
