//! A bounded number of those who wait for the same thing. A place is given back however the waiting ends.

use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    /// A place, unless there are as many as there may be.
    pub(super) fn enter(count: &'a AtomicUsize, len_max: usize) -> Option<Waiting<'a>> {
        let place = Waiting(count);
        (count.fetch_add(1, Ordering::Relaxed) < len_max).then_some(place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back() {
        let count = AtomicUsize::new(0);
        let first = Waiting::enter(&count, 1);
        assert!(first.is_some() && Waiting::enter(&count, 1).is_none());
        drop(first);
        assert!(Waiting::enter(&count, 1).is_some());
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
