//! A part of something shared, found once: finding it anew at each kick costs as much as the kick.

use std::{fmt, ops::Deref, ptr::NonNull, sync::Arc};

/// A part of `O`, which lives as long as this does.
pub(crate) struct Held<O, T> {
    owner: Arc<O>,
    part: NonNull<T>,
}

// SAFETY: it is a shared reference to a part of what the `Arc` shares.
unsafe impl<O: Send + Sync, T: Sync> Send for Held<O, T> {}
// SAFETY: as above.
unsafe impl<O: Send + Sync, T: Sync> Sync for Held<O, T> {}

impl<O, T> Held<O, T> {
    /// Whatever is found has to be part of the owner, or to last for ever: nothing else lives as long as any borrow of it may.
    pub(crate) fn new(owner: Arc<O>, find: impl for<'a> FnOnce(&'a O) -> &'a T) -> Self {
        let part = NonNull::from(find(&owner));
        Self { owner, part }
    }

    pub(crate) fn owner(&self) -> &Arc<O> {
        &self.owner
    }
}

impl<O, T> Deref for Held<O, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: it was found in the owner, which the `Arc` keeps where it is, alive and only ever shared.
        unsafe { self.part.as_ref() }
    }
}

impl<O, T> Clone for Held<O, T> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner), part: self.part }
    }
}

impl<O, T: fmt::Debug> fmt::Debug for Held<O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_outlives_everybody_else_who_has_the_whole() {
        let whole = Arc::new(vec![1_u32, 2, 3]);
        let part = Held::new(Arc::clone(&whole), |whole| &whole[1]);
        let other = part.clone();
        drop((whole, part));
        assert_eq!((*other, other.owner().len()), (2, 3));
    }
}
