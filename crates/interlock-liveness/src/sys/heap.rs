//! What the C library's allocator says of itself.

/// Bytes, as the allocator counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeapBytes {
    /// Handed out and not given back, large pieces that were mapped for one caller included.
    pub(crate) in_use: u64,
    /// Kept for the next caller.
    pub(crate) free: u64,
    /// Had from the kernel.
    pub(crate) held: u64,
}

/// Asks the allocator. Takes the lock of each of its arenas in turn: where a thread hangs with one of them, so does this.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn heap_bytes() -> HeapBytes {
    // SAFETY: takes nothing and gives back numbers; any thread may call it at any time.
    let said = unsafe { libc::mallinfo2() };
    let [own, mapped, used, free] =
        [said.arena, said.hblkhd, said.uordblks, said.fordblks].map(|bytes| bytes as u64);
    HeapBytes { in_use: used + mapped, free, held: own + mapped }
}

/// Asks the allocator, where it counts anything.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) const ASK: Option<fn() -> HeapBytes> = Some(heap_bytes);

/// Other C libraries count nothing.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) const ASK: Option<fn() -> HeapBytes> = None;
