//! Memory for bodies of requests and answers, over the whole server: who may have how much, and who is next.
//!
//! What is small is counted and goes on. What is large asks for room first, and waits while there is none. Planes take
//! turns in getting it, and the fuller the server is, the less one plane may have: whoever holds much waits for itself,
//! whoever holds next to nothing is served as long as there is any room at all.
//!
//! **Invariant.** Whoever waits for room holds none that only it could give back: a list lets go of its page before it
//! asks for the next, so that nobody waits for somebody who waits.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;
use parking_lot::Mutex;
use polder_model::PlaneId;
use slab::Slab;

/// What needs no more than this does not wait.
pub(crate) const SMALL_BYTES_MAX: usize = 64 * 1024;
/// A plane that holds no more than this is not told that it holds too much.
const LITTLE_BYTES: usize = 1024 * 1024;
/// A plane may have this part of all there is.
const PLANE_PART: usize = 16;
/// And it may not, though the server is small, have to do with less than this.
const PLANE_BYTES_MIN: usize = 64 * 1024 * 1024;
/// And it may have this part of what nobody has yet.
const FREE_PART: usize = 8;
/// This part is kept for what is small.
const SMALL_PART: usize = 8;

/// The bytes of all planes.
pub(crate) struct Budget {
    bytes_max: usize,
    plane_bytes_max: usize,
    used: AtomicUsize,
    /// How many wait; zero nearly always.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    asking: Slab<Waiting>,
    planes: HashMap<PlaneId, VecDeque<usize>>,
    /// Planes with somebody waiting, the next one first.
    order: VecDeque<PlaneId>,
}

struct Waiting {
    account: Arc<Account>,
    bytes: usize,
    waker: Waker,
    given: bool,
}

/// The bytes of one plane.
pub(crate) struct Account {
    budget: Arc<Budget>,
    plane: PlaneId,
    used: AtomicUsize,
}

/// Bytes that are counted until this is dropped.
pub(crate) struct Room {
    account: Arc<Account>,
    bytes: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(bytes_max: usize) -> Budget {
        Budget {
            bytes_max,
            plane_bytes_max: (bytes_max / PLANE_PART).max(PLANE_BYTES_MIN),
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        }
    }

    pub(crate) fn account(self: &Arc<Self>, plane: PlaneId) -> Arc<Account> {
        Arc::new(Account { budget: self.clone(), plane, used: AtomicUsize::new(0) })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// What large bodies may take together.
    fn large_bytes_max(&self) -> usize {
        self.bytes_max - self.bytes_max / SMALL_PART
    }

    fn free(&self) -> usize {
        self.large_bytes_max().saturating_sub(self.used())
    }

    fn fits(&self, account: &Account, bytes: usize) -> bool {
        let (free, own) = (self.free(), account.used.load(Ordering::SeqCst));
        bytes <= free && (own <= LITTLE_BYTES || own + bytes <= self.plane_bytes_max.min(free / FREE_PART))
    }

    /// Gives room to whoever waits and can have it.
    fn give(&self) {
        let mut wakers = Vec::new();
        let mut queue = self.queue.lock();
        let queue = &mut *queue;
        let mut passed_over = 0;
        while passed_over < queue.order.len() {
            let Some(plane) = queue.order.pop_front() else { break };
            let first = queue.planes.get(&plane).and_then(|waiting| waiting.front().copied());
            let Some(slot) = first else { continue };
            let waiting = &mut queue.asking[slot];
            if waiting.bytes > self.free() {
                // Its turn stays its turn, or the large would wait for ever while the less large go by.
                queue.order.push_front(plane);
                break;
            }
            if !self.fits(&waiting.account, waiting.bytes) {
                queue.order.push_back(plane);
                passed_over += 1;
                continue;
            }
            waiting.account.add(waiting.bytes);
            waiting.given = true;
            wakers.push(waiting.waker.clone());
            queue.leave(plane, slot);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if queue.planes.contains_key(&plane) {
                queue.order.push_back(plane);
            }
            passed_over = 0;
        }
        for waker in wakers {
            waker.wake();
        }
    }
}

impl Queue {
    /// Takes somebody out of the plane's line; the plane too if nobody is left. The order is the caller's.
    fn leave(&mut self, plane: PlaneId, slot: usize) {
        let Some(line) = self.planes.get_mut(&plane) else { return };
        line.retain(|one| *one != slot);
        if line.is_empty() {
            self.planes.remove(&plane);
        }
    }
}

impl Account {
    /// Whether the plane has as much as it may have, or everybody together has.
    pub(crate) fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.plane_bytes_max()
            || self.budget.used.load(Ordering::Relaxed) >= self.budget.bytes_max
    }

    /// Whether the plane holds so much that it has only itself to wait for.
    pub(crate) fn owes_much(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.plane_bytes_max() / 2
    }

    pub(crate) fn plane_bytes_max(&self) -> usize {
        self.budget.plane_bytes_max
    }

    /// Counts what is there already.
    pub(crate) fn count(self: &Arc<Self>, bytes: usize) -> Room {
        self.add(bytes);
        Room { account: self.clone(), bytes: AtomicUsize::new(bytes) }
    }

    /// Waits for room. There is always an end to it, but it may be far: give it a deadline.
    pub(crate) fn room(self: &Arc<Self>, bytes: usize) -> Asking {
        // More than there is cannot be waited for.
        let bytes = bytes.min(self.budget.large_bytes_max());
        Asking { account: self.clone(), bytes, slot: None }
    }

    fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::SeqCst);
        self.budget.used.fetch_add(bytes, Ordering::SeqCst);
    }

    fn give_back(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        self.budget.used.fetch_sub(bytes, Ordering::SeqCst);
        if self.budget.waiting.load(Ordering::SeqCst) > 0 {
            self.budget.give();
        }
    }
}

impl Room {
    /// Counts so many bytes from now on: what was asked for is known better when it is there.
    pub(crate) fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::SeqCst);
        if bytes > before {
            self.account.add(bytes - before);
        } else {
            self.account.give_back(before - bytes);
        }
    }

    /// Parts with some of the bytes. Whoever needs two rooms asks for both at once: to ask for one while holding the other
    /// might be to wait for oneself.
    pub(crate) fn split(&self, bytes: usize) -> Room {
        let bytes = bytes.min(self.bytes.load(Ordering::SeqCst));
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        Room { account: self.account.clone(), bytes: AtomicUsize::new(bytes) }
    }

    /// Counts at least so many.
    pub(crate) fn raise(&self, bytes: usize) {
        if bytes > self.bytes.load(Ordering::SeqCst) {
            self.set(bytes);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.account.give_back(*self.bytes.get_mut());
    }
}

/// Somebody who wants room.
pub(crate) struct Asking {
    account: Arc<Account>,
    bytes: usize,
    slot: Option<usize>,
}

impl Asking {
    fn given(&self) -> Poll<Room> {
        Poll::Ready(Room { account: self.account.clone(), bytes: AtomicUsize::new(self.bytes) })
    }
}

impl Future for Asking {
    type Output = Room;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Room> {
        let account = self.account.clone();
        let (budget, plane) = (&account.budget, account.plane);
        let mut queue = budget.queue.lock();
        if let Some(slot) = self.slot {
            if queue.asking[slot].given {
                queue.asking.remove(slot);
                self.slot = None;
                return self.given();
            }
            queue.asking[slot].waker.clone_from(context.waker());
            return Poll::Pending;
        }
        // Counted first, so that whoever gives room back between the look and the wait sees us.
        budget.waiting.fetch_add(1, Ordering::SeqCst);
        if !queue.planes.contains_key(&plane) && budget.fits(&account, self.bytes) {
            budget.waiting.fetch_sub(1, Ordering::SeqCst);
            account.add(self.bytes);
            return self.given();
        }
        let waiting = Waiting {
            account: account.clone(),
            bytes: self.bytes,
            waker: context.waker().clone(),
            given: false,
        };
        let slot = queue.asking.insert(waiting);
        self.slot = Some(slot);
        let line = queue.planes.entry(plane).or_default();
        line.push_back(slot);
        if line.len() == 1 {
            queue.order.push_back(plane);
        }
        Poll::Pending
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        let budget = &self.account.budget;
        let mut queue = budget.queue.lock();
        let waiting = queue.asking.remove(slot);
        if waiting.given {
            drop(queue);
            self.account.give_back(self.bytes);
            return;
        }
        queue.leave(self.account.plane, slot);
        if !queue.planes.contains_key(&self.account.plane) {
            let plane = self.account.plane;
            queue.order.retain(|one| *one != plane);
        }
        drop(queue);
        budget.waiting.fetch_sub(1, Ordering::SeqCst);
        // Whoever stood behind may need less.
        budget.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    const MIB: usize = 1024 * 1024;

    fn budget(mib: usize) -> Arc<Budget> {
        Arc::new(Budget::new(mib * MIB))
    }

    /// As many rooms of a size as there are at once.
    fn fill(account: &Arc<Account>, bytes: usize) -> Vec<Room> {
        std::iter::from_fn(|| account.room(bytes).now_or_never()).take(10_000).collect()
    }

    #[test]
    fn one_plane_does_not_get_everything() {
        let budget = budget(2048);
        let greedy = budget.account(PlaneId(2));
        let held = fill(&greedy, 2 * MIB);
        assert_eq!(held.len(), 64, "a sixteenth of all");
        assert!(!greedy.is_full() || greedy.used.load(Ordering::SeqCst) == greedy.plane_bytes_max());
        assert!(budget.account(PlaneId(3)).room(2 * MIB).now_or_never().is_some());
        drop(held);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn many_greedy_planes_leave_room_for_another() {
        let budget = budget(1024);
        let held: Vec<_> =
            (0..20).map(|plane| fill(&budget.account(PlaneId(plane + 2)), 512 * 1024)).collect();
        assert!(held.iter().all(|rooms| !rooms.is_empty()));
        assert!(budget.used() < 850 * MIB, "{}", budget.used());
        assert!(budget.account(PlaneId(1000)).room(3 * MIB).now_or_never().is_some());
    }

    #[test]
    fn what_is_given_back_goes_to_the_planes_in_turn() {
        let budget = budget(8);
        let all = fill(&budget.account(PlaneId(2)), 7 * MIB);
        let (one, other) = (budget.account(PlaneId(3)), budget.account(PlaneId(4)));
        let mut asking: Vec<_> = [&one, &one, &one, &other].map(|plane| plane.room(3 * MIB)).into();
        let mut poll = |index: usize| (&mut asking[index]).now_or_never();
        assert!((0..4).all(|index| poll(index).is_none()));
        drop(all);
        let given: Vec<Room> = (0..4).filter_map(&mut poll).collect();
        let planes: Vec<u64> = given.iter().map(|room| room.account.plane.0).collect();
        assert_eq!(planes, [3, 4]);
        drop(given);
        assert!(poll(1).is_some());
        drop(asking);
        assert_eq!((budget.used(), budget.waiting.load(Ordering::SeqCst)), (0, 0));
        assert!(budget.queue.lock().order.is_empty() && budget.queue.lock().asking.is_empty());
    }

    #[test]
    fn whoever_goes_away_makes_way() {
        let budget = budget(8);
        let held = fill(&budget.account(PlaneId(2)), 5 * MIB);
        let (large, less) = (budget.account(PlaneId(3)), budget.account(PlaneId(4)));
        let (mut first, mut second) = (large.room(6 * MIB), less.room(MIB));
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_some(), "there is room and nobody of this plane waits");
        let mut third = less.room(4 * MIB);
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        drop(held);
        assert!(third.now_or_never().is_some());
        assert_eq!(budget.used(), 0);
    }
}
