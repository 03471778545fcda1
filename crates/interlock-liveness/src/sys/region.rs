//! Memory for many of a kind, side by side, and in large pages where it is much.
//!
//! One by one in pages of four kibibytes each new page is looked up again, and the processor stops reading ahead at its end: a scan of ten thousand
//! watches would pay for that besides reading them.

use std::{fmt, io, ops::Deref, ptr::NonNull, slice, sync::atomic::AtomicBool};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::slot::{Found, Own};

/// A large page, and from how much on it is worth one.
const LARGE: usize = 2 << 20;
const MUCH: usize = 256 << 10;

/// What all zeroes is a valid value of.
///
/// # Safety
///
/// It must be, and dropping one must do nothing.
pub(crate) unsafe trait Zeroed: Sync {}

// SAFETY: atomic numbers, nothing else.
unsafe impl Zeroed for Own {}
// SAFETY: as above.
unsafe impl Zeroed for Found {}
// SAFETY: false.
unsafe impl Zeroed for AtomicBool {}

/// So many of a kind, all zeroes at first. What is never used takes no memory, unless it is much.
pub(crate) struct Region<T: Zeroed> {
    start: NonNull<T>,
    count: usize,
    mapped: NonNull<std::ffi::c_void>,
    length: usize,
}

// SAFETY: only shared references to the elements are handed out, and those may be shared.
unsafe impl<T: Zeroed> Send for Region<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroed> Sync for Region<T> {}

impl<T: Zeroed> Region<T> {
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let wanted = count.saturating_mul(size_of::<T>()).max(1);
        let is_much = wanted >= MUCH;
        // Room to begin where a large page does.
        let length = if is_much { wanted.next_multiple_of(LARGE) + LARGE } else { wanted };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, MapFlags::PRIVATE) }?;
        let mapped = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        let skipped = if is_much { start.align_offset(LARGE) } else { 0 };
        // SAFETY: within the mapping, which is larger than what is wanted by a large page.
        let start = unsafe { mapped.byte_add(skipped) };
        if is_much {
            // Where there are no large pages it is slower, and as right.
            // SAFETY: the range lies within the mapping, and only its pages' size is spoken of.
            let _none = unsafe {
                madvise(start.as_ptr(), wanted.next_multiple_of(LARGE), Advice::LinuxHugepage)
            };
        }
        Ok(Self { start: start.cast(), count, mapped, length })
    }
}

impl<T: Zeroed> Deref for Region<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has room for so many, it is aligned to a page, its zeroes are valid values, and it lives as long
        // as `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T: Zeroed> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, to which no reference is left.
        let _it_is_ours = unsafe { munmap(self.mapped.as_ptr(), self.length) };
    }
}

impl<T: Zeroed> fmt::Debug for Region<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_regions_are_zero_from_end_to_end_and_their_elements_are_apart() {
        for count in [0, 1, 64, 4_095, 4_096, 64_000] {
            let region = Region::<Own>::new(count).unwrap();
            assert_eq!(region.len(), count);
            for own in region.iter() {
                assert_eq!(own.progress(), 0);
                own.advance(7);
            }
            assert!(region.iter().all(|own| own.progress() == 7));
            let is_much = count * size_of::<Own>() >= MUCH;
            assert!(!is_much || region.as_ptr().addr().is_multiple_of(LARGE));
        }
    }
}
