//! Which requests of a plane go on and which wait: the seats of its priority levels.
//!
//! A level has a part of the plane's seats by its shares. What it does not lend is its own at any time; beyond that it takes
//! what is free and nobody else's own, as far as it may borrow. So who lent gets back what it needs as soon as somebody is
//! done. Within a level, flows are dealt hands of its queues and line up in the shortest; queues are served by the seats that
//! were given to them so far, so that a flow with much waiting delays another by little.
//!
//! Invariant: `in_use` is the sum of what the levels have in use, and a level that has nothing in use, waiting or to be
//! remembered has no entry.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use polder_registry::flows::{Extent, Flows, Level, WhenFull};

/// The seats of one plane, and what waits for them.
#[derive(Debug)]
pub(crate) struct Seats<T> {
    /// What was in force when somebody last came.
    rules: Option<Rules>,
    levels: Vec<LevelSeats<T>>,
    in_use: u64,
    waiting: u64,
    next: u64,
}

#[derive(Debug)]
struct Rules {
    flows: Arc<Flows>,
    all: u64,
    /// What all levels do not lend.
    own_sum: u64,
}

#[derive(Debug)]
struct LevelSeats<T> {
    uid: Bytes,
    extent: Extent,
    in_use: u64,
    /// Where the queue stood that was served last.
    now: u64,
    queues: Vec<Queue<T>>,
}

#[derive(Debug)]
struct Queue<T> {
    number: u64,
    /// Seats given to it, counted from where the others were when it began.
    served: u64,
    waiting: VecDeque<Waiting<T>>,
}

#[derive(Debug)]
struct Waiting<T> {
    number: u64,
    width: u64,
    who: T,
}

/// A request that wants seats.
pub(crate) struct Wish<'a> {
    pub(crate) flows: &'a Arc<Flows>,
    pub(crate) level: &'a Level,
    /// How many seats it should have; it has fewer where that is more than one request may have.
    pub(crate) width: u64,
    /// How many seats the plane has.
    pub(crate) all: u64,
}

/// What came of a wish.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    /// So many seats.
    Seats(u64),
    /// Its number in line.
    Waits(u64),
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its level has no queues.
    Full,
    QueueFull,
}

impl<T> Default for Seats<T> {
    fn default() -> Seats<T> {
        Seats { rules: None, levels: Vec::new(), in_use: 0, waiting: 0, next: 0 }
    }
}

impl<T> Seats<T> {
    pub(crate) fn in_use(&self) -> u64 {
        self.in_use
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    #[cfg(test)]
    pub(crate) fn is_forgotten(&self) -> bool {
        self.levels.is_empty()
    }

    /// Takes seats, or a place in line: then `who` is asked who waits, and for a number that tells its flow from others.
    pub(crate) fn enter(&mut self, wish: &Wish<'_>, who: impl FnOnce() -> (u64, T)) -> Granted {
        self.adopt(wish.flows, wish.all);
        let at = self.level_at(wish.level);
        let level = &self.levels[at];
        let width = wish.width.clamp(1, level.extent.widest());
        let fits = match wish.level.full {
            // They go on whatever the level has, but not without end.
            WhenFull::Exempt => level.in_use < wish.all,
            _ => !level.has_waiting() && self.fits(at, width),
        };
        if fits {
            self.levels[at].in_use += width;
            self.in_use += width;
            return Granted::Seats(width);
        }
        let WhenFull::Queue { queues, hand, len_max } = wish.level.full else {
            self.sweep();
            return Granted::Refused(Refusal::Full);
        };
        // No more waits than could be under way, so that nobody's memory is filled with what waits.
        if self.waiting >= wish.all {
            return Granted::Refused(Refusal::QueueFull);
        }
        let (number, level) = (self.next, &mut self.levels[at]);
        let (flow, who) = who();
        let queue = level.shortest(deal(flow, queues, hand));
        if queue.waiting.len() as u64 >= len_max {
            return Granted::Refused(Refusal::QueueFull);
        }
        queue.waiting.push_back(Waiting { number, width, who });
        self.next += 1;
        self.waiting += 1;
        Granted::Waits(number)
    }

    /// Gives seats of a level back. Who gets them is handed to `seat` with the number of its seats.
    pub(crate) fn leave(&mut self, uid: &Bytes, width: u64, seat: impl FnMut(T, u64)) {
        if let Some(level) = self.levels.iter_mut().find(|level| level.uid == *uid) {
            level.in_use = level.in_use.saturating_sub(width);
            self.in_use = self.in_use.saturating_sub(width);
        }
        self.call(seat);
        self.sweep();
    }

    /// Somebody waits no longer, if it still did.
    pub(crate) fn give_up(&mut self, uid: &Bytes, number: u64, seat: impl FnMut(T, u64)) {
        let Some(level) = self.levels.iter_mut().find(|level| level.uid == *uid) else { return };
        let found = level.queues.iter_mut().find_map(|queue| {
            let at = queue.waiting.iter().position(|waiting| waiting.number == number)?;
            queue.waiting.remove(at)
        });
        if found.is_some() {
            self.waiting -= 1;
            // It may have been in the way of somebody who wants less.
            self.call(seat);
            self.sweep();
        }
    }

    /// Gives free seats to those who wait.
    fn call(&mut self, mut seat: impl FnMut(T, u64)) {
        while let Some((at, queue)) = self.next_to_go() {
            let level = &mut self.levels[at];
            let queue = &mut level.queues[queue];
            let Some(first) = queue.waiting.pop_front() else { return };
            level.now = queue.served;
            queue.served += first.width;
            level.in_use += first.width;
            self.in_use += first.width;
            self.waiting -= 1;
            seat(first.who, first.width);
        }
    }

    /// The level and queue whose first may go: of the level that has least of its part in use, the queue that was given
    /// least.
    fn next_to_go(&self) -> Option<(usize, usize)> {
        let mut best: Option<(usize, usize)> = None;
        for (at, level) in self.levels.iter().enumerate() {
            let Some((queue, width)) = level.first() else { continue };
            let less = |best: usize| {
                let other = &self.levels[best];
                u128::from(level.in_use) * u128::from(other.extent.nominal.max(1))
                    < u128::from(other.in_use) * u128::from(level.extent.nominal.max(1))
            };
            if best.is_none_or(|(best, _)| less(best)) && self.fits(at, width) {
                best = Some((at, queue));
            }
        }
        best
    }

    /// Whether a level may have so many seats more.
    fn fits(&self, at: usize, width: u64) -> bool {
        let (Some(rules), level) = (&self.rules, &self.levels[at]) else { return false };
        let (own, all) = (level.in_use + width, self.in_use + width);
        if all > rules.all && self.in_use > 0 {
            return false;
        }
        if own <= level.extent.own {
            return true;
        }
        let used = |level: &LevelSeats<T>| level.in_use.min(level.extent.own);
        let all_used: u64 = self.levels.iter().map(used).sum();
        // What others could still ask for as their own.
        let kept = rules.own_sum.saturating_sub(all_used).saturating_sub(level.extent.own - used(level));
        let is_alone = self.in_use == 0;
        own <= level.extent.most.max(width) && (is_alone || all.saturating_add(kept) <= rules.all)
    }

    /// Goes by what is in force now.
    fn adopt(&mut self, flows: &Arc<Flows>, all: u64) {
        let is_same = |rules: &Rules| rules.all == all && Arc::ptr_eq(&rules.flows, flows);
        if self.rules.as_ref().is_some_and(is_same) {
            return;
        }
        let own_sum = flows.extents(all).map(|(_, extent)| extent.own).sum();
        for own in &mut self.levels {
            let found = flows.extents(all).find(|(level, _)| level.uid == own.uid);
            own.extent = found.map(|(_, extent)| extent).unwrap_or_default();
        }
        self.rules = Some(Rules { flows: flows.clone(), all, own_sum });
    }

    fn level_at(&mut self, level: &Level) -> usize {
        if let Some(at) = self.levels.iter().position(|own| own.uid == level.uid) {
            return at;
        }
        let extents = self.rules.iter().flat_map(|rules| rules.flows.extents(rules.all));
        let extent = extents.into_iter().find(|(own, _)| own.uid == level.uid);
        let extent = extent.map(|(_, extent)| extent).unwrap_or_default();
        let (uid, queues) = (level.uid.clone(), Vec::new());
        self.levels.push(LevelSeats { uid, extent, in_use: 0, now: 0, queues });
        self.levels.len() - 1
    }

    /// Forgets what is of no account any more.
    fn sweep(&mut self) {
        self.levels.retain_mut(|level| {
            let now = level.now;
            level.queues.retain(|queue| !queue.waiting.is_empty() || queue.served > now);
            let is_idle = level.in_use == 0 && !level.has_waiting();
            !is_idle
        });
    }
}

impl<T> LevelSeats<T> {
    fn has_waiting(&self) -> bool {
        self.queues.iter().any(|queue| !queue.waiting.is_empty())
    }

    /// The queue to be served next, and what its first wants.
    fn first(&self) -> Option<(usize, u64)> {
        let all = self.queues.iter().enumerate();
        let waiting = all.filter_map(|(at, queue)| Some((at, queue.served, queue.waiting.front()?.width)));
        waiting.min_by_key(|(_, served, _)| *served).map(|(at, _, width)| (at, width))
    }

    /// The queue of a hand in which least waits.
    fn shortest(&mut self, hand: impl Iterator<Item = u64>) -> &mut Queue<T> {
        let len = |level: &LevelSeats<T>, number: u64| {
            let queue = level.queues.iter().position(|queue| queue.number == number);
            (queue.map_or(0, |at| level.queues[at].waiting.len()), number)
        };
        let (_, number) =
            hand.map(|number| len(self, number)).min_by_key(|(len, _)| *len).unwrap_or_default();
        let at = self.queues.iter().position(|queue| queue.number == number).unwrap_or_else(|| {
            self.queues.push(Queue { number, served: self.now, waiting: VecDeque::new() });
            self.queues.len() - 1
        });
        let queue = &mut self.queues[at];
        queue.served = queue.served.max(self.now);
        queue
    }
}

/// Most cards anybody is dealt.
const HAND_MAX: u64 = 64;

/// Different queues of so many, by a flow's hash: two flows seldom have all of theirs in common.
fn deal(hash: u64, queues: u64, hand: u64) -> impl Iterator<Item = u64> {
    let (mut hash, mut dealt) = (hash, Vec::<u64>::new());
    for left in 0..hand.min(queues).min(HAND_MAX) {
        // Draws among the queues not dealt yet, and counts past those that are.
        let mut card = hash % (queues - left);
        hash = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ left;
        let mut sorted = dealt.clone();
        sorted.sort_unstable();
        for other in sorted {
            card += u64::from(card >= other);
        }
        dealt.push(card);
    }
    dealt.into_iter()
}
