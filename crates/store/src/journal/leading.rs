//! Whether a replica leads. Who leads is for the server to say; a leader stops by its own clock, before anybody else can begin.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Whether a replica leads, and whether it wants to. Clones are the same.
#[derive(Clone)]
pub struct Leading(Arc<Inner>);

struct Inner {
    is_candidate: AtomicBool,
    changed: Notify,
    until: Mutex<Option<Instant>>,
}

impl Leading {
    pub fn new(is_candidate: bool) -> Leading {
        let is_candidate = AtomicBool::new(is_candidate);
        Leading(Arc::new(Inner { is_candidate, changed: Notify::new(), until: Mutex::new(None) }))
    }

    /// Whether this replica leads now.
    pub fn leads(&self) -> bool {
        self.0.until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Says whether this replica may lead. One that leads and may no longer lets others.
    pub fn stand(&self, is_candidate: bool) {
        if !is_candidate {
            *self.0.until.lock() = None;
        }
        self.0.is_candidate.store(is_candidate, Ordering::Release);
        self.wake();
    }

    pub fn is_candidate(&self) -> bool {
        self.0.is_candidate.load(Ordering::Acquire)
    }

    /// It leads until then, if it still wants to.
    pub fn lead_until(&self, until: Instant) {
        let mut own = self.0.until.lock();
        // Whoever said in between that it does not stand has been heard.
        *own = self.is_candidate().then_some(until);
    }

    pub fn lead_no_more(&self) {
        *self.0.until.lock() = None;
    }

    /// Waits a while, or until somebody says something else.
    pub async fn pause(&self, pause: Duration) {
        tokio::time::timeout(pause, self.0.changed.notified()).await.ok();
    }

    /// Ends a pause.
    pub fn wake(&self) {
        self.0.changed.notify_one();
    }
}

/// Where a journal was at which time, so that a leader lets the server forget what is old enough.
#[derive(Debug, Default)]
pub struct Marks(VecDeque<(Instant, u64)>);

impl Marks {
    /// The journal is at `position` now. Says up to where it is older than `history`.
    pub fn pass(&mut self, now: Instant, position: u64, history: Duration) -> Option<u64> {
        // A few marks are enough to forget in steps.
        if self.0.back().is_none_or(|(at, _)| now.duration_since(*at) >= history / 10) {
            self.0.push_back((now, position));
        }
        self.0.iter().take_while(|(at, _)| now.duration_since(*at) >= history).last().map(|(_, own)| *own)
    }

    /// All up to a position is forgotten.
    pub fn forgotten(&mut self, position: u64) {
        self.0.retain(|(_, own)| *own > position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_old_is_forgotten() {
        let (mut marks, begun, history) = (Marks::default(), Instant::now(), Duration::from_secs(10));
        let mut pass = |seconds, position| {
            let old = marks.pass(begun + Duration::from_secs(seconds), position, history);
            old.inspect(|old| marks.forgotten(*old))
        };
        let told: Vec<_> = (0..14).map(|second| pass(second, 100 + second)).collect();
        assert_eq!(told[..10], [None; 10]);
        assert_eq!(told[10..], [Some(100), Some(101), Some(102), Some(103)]);
        assert_eq!(pass(60, 500), Some(113));
    }

    #[test]
    fn who_does_not_stand_does_not_lead() {
        let leading = Leading::new(true);
        let later = Instant::now() + Duration::from_secs(60);
        leading.lead_until(later);
        assert!(leading.leads());
        leading.stand(false);
        leading.lead_until(later);
        assert!(!leading.leads());
    }
}
