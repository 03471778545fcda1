//! The arena: where each thread stores its registers and the top of its stack.
//!
//! A memory file, mapped by the process and read by the helper. One place per thread; a place is a header of eight words and
//! the copied stack.

use std::{fs::File, io, os::unix::fs::FileExt as _};

/// For how many threads there is room.
pub(crate) const PLACES: usize = 256;
/// So much of each stack is copied.
pub(crate) const STACK: usize = 32 * 1_024;
/// The header of a place.
pub(crate) const HEADER: usize = 64;
pub(crate) const PLACE: usize = HEADER + STACK;
pub(crate) const LENGTH: usize = PLACES * PLACE;

/// How far a place is: the low bits of its first word, below the number of the dump.
pub(crate) const ASKED: u64 = 1;
pub(crate) const COPYING: u64 = 2;
pub(crate) const DONE: u64 = 3;

/// The registers that unwinding begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Registers {
    pub(crate) instruction: u64,
    pub(crate) stack: u64,
    pub(crate) frame: u64,
}

/// A thread as it was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) thread: i32,
    pub(crate) registers: Registers,
    /// What stood on the stack, from the stack register upwards.
    pub(crate) stack: Vec<u8>,
}

/// Reads what the threads stored for a dump.
pub(crate) fn read(arena: &File, dump: u64, places: usize) -> io::Result<Vec<Copied>> {
    let mut copied = Vec::new();
    for place in 0..places.min(PLACES) {
        let at = (place * PLACE) as u64;
        let mut header = [0; HEADER];
        arena.read_exact_at(&mut header, at)?;
        let word = |number: usize| {
            let bytes = header.chunks_exact(8).nth(number).and_then(|it| it.try_into().ok());
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        if word(0) != (dump << 2 | DONE) {
            continue;
        }
        let mut stack = vec![0; (word(5) as usize).min(STACK)];
        arena.read_exact_at(&mut stack, at + HEADER as u64)?;
        let registers = Registers { instruction: word(2), stack: word(3), frame: word(4) };
        copied.push(Copied { thread: word(1) as i32, registers, stack });
    }
    Ok(copied)
}
