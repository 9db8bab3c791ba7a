//! Memory for bodies of requests and answers, over the whole server: who may have how much, and who is next.
//!
//! There are three pools. What is **small** is counted and goes on. What is **large** asks for room first, and waits while
//! there is none. What **selectors** of open lists and watches take is given at once or not at all. The small may use what
//! the large leave, never the other way round: however much large bodies hold, small ones of other planes find room.
//!
//! In each pool one rule says how much a plane may have: a sixteenth of all there is, and an eighth of what nobody has, so
//! the fuller the server is, the less one plane may have. Whoever holds next to nothing is served with what an ordinary
//! request needs as long as there is any room at all. What nobody could ever be given is refused at once.
//!
//! Planes take turns in getting what is given back. Somebody who needs more than is free is passed over, but not for ever:
//! after a while what comes back is kept for it, and after another while, if that was in vain, others go on.
//!
//! **Invariant.** Whoever waits for room holds no large room that only it could give back, so that nobody waits for
//! somebody who waits. Nothing waits for selectors, and they are not part of what a plane that asks for room has already.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;
use parking_lot::Mutex;
use polder_model::PlaneId;

const MIB: usize = 1024 * 1024;
/// What needs no more than this does not wait.
pub(crate) const SMALL_BYTES_MAX: usize = 64 * 1024;
/// What an ordinary request needs at most at one time: the largest body with what it is parsed into, a step of a list.
pub(crate) const ORDINARY_BYTES: usize = 12 * MIB;
/// A plane that holds no more than this is not told that it holds too much.
const LITTLE_BYTES: usize = MIB;
/// The same for what is small.
const LITTLE_SMALL_BYTES: usize = MIB / 4;
/// A plane may have this part of all there is.
const PLANE_PART: usize = 16;
/// And it may not, though the server is small, have to do with less than this.
const PLANE_BYTES_MIN: usize = 64 * MIB;
/// And it may have this part of what nobody has yet.
const FREE_PART: usize = 8;
/// This part is kept for what is small,
const SMALL_PART: usize = 8;
/// and this for selectors.
const SELECTORS_PART: usize = 16;
/// So many get room before somebody who needs more than there is; then room is kept for it.
const OVERTAKEN_MAX: u32 = 16;
/// So many are kept waiting for it; then they go on.
const KEPT_WAITING_MAX: u32 = 64;
/// Planes that are looked at in vain when something is given back. The next time others are looked at.
const LOOKS_MAX: usize = 32;

/// What bytes are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Small,
    Large,
    Selectors,
}

/// Bytes by pool.
#[derive(Default)]
struct Used([AtomicUsize; 3]);

/// The bytes of all planes.
pub(crate) struct Budget {
    small_bytes_max: usize,
    large_bytes_max: usize,
    selectors_bytes_max: usize,
    plane_bytes_max: usize,
    used: Used,
    /// How many wait; zero nearly always.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Whoever comes gets the next number.
    next: u64,
    asking: HashMap<u64, Waiting>,
    /// Who waits, by plane. A line may be empty until its plane's turn comes.
    lines: HashMap<PlaneId, BTreeSet<u64>>,
    /// The planes that have a line, the next one first.
    order: VecDeque<PlaneId>,
    owed: Option<Owed>,
}

struct Waiting {
    account: Arc<Account>,
    bytes: usize,
    waker: Waker,
    given: bool,
}

/// Somebody who needs more than there is.
struct Owed {
    number: u64,
    /// Others who have gone before it, and then others who were kept waiting for it.
    others: u32,
}

/// The bytes of one plane.
pub(crate) struct Account {
    budget: Arc<Budget>,
    plane: PlaneId,
    used: Used,
}

/// Bytes that are counted until this is dropped.
pub(crate) struct Room {
    account: Arc<Account>,
    pool: Pool,
    bytes: AtomicUsize,
}

/// More was asked for than a plane can ever have at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a plane may have {bytes_max} bytes at one time")]
pub(crate) struct TooMuch {
    pub(crate) bytes_max: usize,
}

impl Used {
    fn of(&self, pool: Pool) -> &AtomicUsize {
        &self.0[pool as usize]
    }

    fn get(&self, pool: Pool) -> usize {
        self.of(pool).load(Ordering::SeqCst)
    }

    fn bodies(&self) -> usize {
        self.get(Pool::Small) + self.get(Pool::Large)
    }
}

impl Budget {
    pub(crate) fn new(bytes_max: usize) -> Budget {
        let (small, selectors) = (bytes_max / SMALL_PART, bytes_max / SELECTORS_PART);
        Budget {
            small_bytes_max: small,
            large_bytes_max: bytes_max - small - selectors,
            selectors_bytes_max: selectors,
            plane_bytes_max: (bytes_max / PLANE_PART).max(PLANE_BYTES_MIN),
            used: Used::default(),
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        }
    }

    pub(crate) fn account(self: &Arc<Self>, plane: PlaneId) -> Arc<Account> {
        Arc::new(Account { budget: self.clone(), plane, used: Used::default() })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.bodies() + self.used.get(Pool::Selectors)
    }

    fn free(&self, pool: Pool) -> usize {
        let (small, large) = (self.used.get(Pool::Small), self.used.get(Pool::Large));
        match pool {
            // What is large and had to be counted beyond its bound takes nothing from the small.
            Pool::Small => (self.small_bytes_max + self.large_bytes_max)
                .saturating_sub(small + large.min(self.large_bytes_max)),
            Pool::Large => {
                self.large_bytes_max.saturating_sub(large + small.saturating_sub(self.small_bytes_max))
            }
            Pool::Selectors => self.selectors_bytes_max.saturating_sub(self.used.get(Pool::Selectors)),
        }
    }

    /// What can be given to a plane that has nothing when nobody else has anything.
    fn large_bytes_at_once_max(&self) -> usize {
        let share = self.plane_bytes_max.min(self.large_bytes_max / FREE_PART);
        share.max(ORDINARY_BYTES.min(self.large_bytes_max))
    }

    fn fits(&self, account: &Account, pool: Pool, bytes: usize) -> bool {
        let (free, own) = (self.free(pool), account.own(pool));
        let little = match pool {
            Pool::Small => own + bytes <= LITTLE_SMALL_BYTES,
            Pool::Large => account.is_owed(bytes),
            Pool::Selectors => own + bytes <= LITTLE_BYTES,
        };
        bytes <= free && (little || own + bytes <= self.plane_bytes_max.min(free / FREE_PART))
    }

    /// Gives room to whoever waits and can have it.
    fn give(&self) {
        let mut wakers = Vec::new();
        let mut queue = self.queue.lock();
        if let Some(number) = queue.owed.as_ref().map(|owed| owed.number) {
            wakers.extend(self.grant(&mut queue, number));
        }
        let mut passed_over = 0;
        while passed_over < queue.order.len().min(LOOKS_MAX) && queue.may_go_on() {
            let Some(plane) = queue.order.pop_front() else { break };
            let Some(number) = queue.lines.get(&plane).and_then(BTreeSet::first).copied() else {
                queue.lines.remove(&plane);
                continue;
            };
            queue.order.push_back(plane);
            let waker = self.grant(&mut queue, number);
            passed_over = if waker.is_some() { 0 } else { passed_over + 1 };
            wakers.extend(waker);
        }
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Gives room to somebody who waits, if there is enough. If not, and it has nothing, it is owed some.
    fn grant(&self, queue: &mut Queue, number: u64) -> Option<Waker> {
        let waiting = queue.asking.get_mut(&number)?;
        let is_owed = queue.owed.as_ref().is_some_and(|owed| owed.number == number);
        if !self.fits(&waiting.account, Pool::Large, waiting.bytes) {
            match (is_owed, waiting.account.is_owed(waiting.bytes)) {
                (false, true) if queue.owed.is_none() => queue.owed = Some(Owed { number, others: 0 }),
                // It has something by now.
                (true, false) => queue.owed = None,
                _ => {}
            }
            return None;
        }
        waiting.account.add(Pool::Large, waiting.bytes);
        waiting.given = true;
        let (plane, waker) = (waiting.account.plane, waiting.waker.clone());
        if !is_owed {
            queue.overtake();
        }
        self.leave(queue, plane, number);
        Some(waker)
    }

    /// Takes somebody out of its line.
    fn leave(&self, queue: &mut Queue, plane: PlaneId, number: u64) {
        if let Some(line) = queue.lines.get_mut(&plane) {
            line.remove(&number);
        }
        queue.owed.take_if(|owed| owed.number == number);
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            queue.lines.clear();
            queue.order.clear();
        }
    }
}

impl Queue {
    /// Whether somebody else than who is owed room may have some. Each one who asks in vain counts.
    fn may_go_on(&mut self) -> bool {
        let Some(owed) = &mut self.owed else { return true };
        if owed.others < OVERTAKEN_MAX {
            return true;
        }
        owed.others += 1;
        if owed.others > OVERTAKEN_MAX + KEPT_WAITING_MAX {
            self.owed = None;
        }
        self.owed.is_none()
    }

    fn overtake(&mut self) {
        if let Some(owed) = &mut self.owed {
            owed.others += 1;
        }
    }
}

impl Account {
    fn own(&self, pool: Pool) -> usize {
        match pool {
            Pool::Large => self.used.bodies(),
            pool => self.used.get(pool),
        }
    }

    /// Whether so much is what anybody may expect to get.
    fn is_owed(&self, bytes: usize) -> bool {
        bytes <= ORDINARY_BYTES && self.used.bodies() <= LITTLE_BYTES
    }

    /// Whether the plane has as much as it may have.
    pub(crate) fn is_full(&self) -> bool {
        self.used.bodies() >= self.plane_bytes_max() || !self.budget.fits(self, Pool::Small, 1)
    }

    /// Whether the plane holds so much that it has only itself to wait for.
    pub(crate) fn owes_much(&self) -> bool {
        self.used.bodies() > self.plane_bytes_max() / 2
    }

    pub(crate) fn plane_bytes_max(&self) -> usize {
        self.budget.plane_bytes_max
    }

    /// Counts what is there already, or must be made whether there is room or not.
    pub(crate) fn count(self: &Arc<Self>, bytes: usize) -> Room {
        self.taken(if bytes <= SMALL_BYTES_MAX { Pool::Small } else { Pool::Large }, bytes)
    }

    /// The same for what may yet become large.
    pub(crate) fn count_large(self: &Arc<Self>, bytes: usize) -> Room {
        self.taken(Pool::Large, bytes)
    }

    /// Room for something small, if there is some.
    pub(crate) fn small_room(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        let fits = self.used.bodies() < self.plane_bytes_max() && self.budget.fits(self, Pool::Small, bytes);
        fits.then(|| self.taken(Pool::Small, bytes))
    }

    /// Room for what selectors are parsed into, if there is some.
    pub(crate) fn selectors_room(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        self.budget.fits(self, Pool::Selectors, bytes).then(|| self.taken(Pool::Selectors, bytes))
    }

    /// Waits for room for something large. There is always an end to it, but it may be far: give it a deadline.
    pub(crate) fn room(self: &Arc<Self>, bytes: usize) -> Result<Asking, TooMuch> {
        let bytes_max = self.budget.large_bytes_at_once_max();
        if bytes > bytes_max {
            return Err(TooMuch { bytes_max });
        }
        Ok(Asking { account: self.clone(), bytes, number: None })
    }

    fn taken(self: &Arc<Self>, pool: Pool, bytes: usize) -> Room {
        self.add(pool, bytes);
        Room { account: self.clone(), pool, bytes: AtomicUsize::new(bytes) }
    }

    fn add(&self, pool: Pool, bytes: usize) {
        self.used.of(pool).fetch_add(bytes, Ordering::SeqCst);
        self.budget.used.of(pool).fetch_add(bytes, Ordering::SeqCst);
    }

    fn give_back(&self, pool: Pool, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.used.of(pool).fetch_sub(bytes, Ordering::SeqCst);
        self.budget.used.of(pool).fetch_sub(bytes, Ordering::SeqCst);
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
            self.account.add(self.pool, bytes - before);
        } else {
            self.account.give_back(self.pool, before - bytes);
        }
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
        self.account.give_back(self.pool, *self.bytes.get_mut());
    }
}

/// Somebody who wants room for something large.
pub(crate) struct Asking {
    account: Arc<Account>,
    bytes: usize,
    number: Option<u64>,
}

impl Asking {
    /// What has been counted already.
    fn given(&self) -> Poll<Room> {
        let bytes = AtomicUsize::new(self.bytes);
        Poll::Ready(Room { account: self.account.clone(), pool: Pool::Large, bytes })
    }
}

impl Future for Asking {
    type Output = Room;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Room> {
        let account = self.account.clone();
        let (budget, plane) = (&account.budget, account.plane);
        let mut queue = budget.queue.lock();
        if let Some(number) = self.number {
            let Some(waiting) = queue.asking.get_mut(&number) else { return Poll::Pending };
            if waiting.given {
                queue.asking.remove(&number);
                self.number = None;
                return self.given();
            }
            waiting.waker.clone_from(context.waker());
            return Poll::Pending;
        }
        // Counted first, so that whoever gives room back between the look and the wait sees us.
        budget.waiting.fetch_add(1, Ordering::SeqCst);
        let is_first = queue.lines.get(&plane).is_none_or(BTreeSet::is_empty);
        if is_first && budget.fits(&account, Pool::Large, self.bytes) && queue.may_go_on() {
            budget.waiting.fetch_sub(1, Ordering::SeqCst);
            queue.overtake();
            account.add(Pool::Large, self.bytes);
            return self.given();
        }
        let number = queue.next;
        queue.next += 1;
        self.number = Some(number);
        let waker = context.waker().clone();
        queue
            .asking
            .insert(number, Waiting { account: account.clone(), bytes: self.bytes, waker, given: false });
        let queue = &mut *queue;
        let line = queue.lines.entry(plane).or_insert_with(|| {
            queue.order.push_back(plane);
            BTreeSet::new()
        });
        line.insert(number);
        Poll::Pending
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let budget = &self.account.budget;
        let mut queue = budget.queue.lock();
        let Some(waiting) = queue.asking.remove(&number) else { return };
        if waiting.given {
            drop(queue);
            self.account.give_back(Pool::Large, self.bytes);
            return;
        }
        budget.leave(&mut queue, self.account.plane, number);
        drop(queue);
        // Whoever stood behind may need less.
        budget.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn budget(mib: usize) -> Arc<Budget> {
        Arc::new(Budget::new(mib * MIB))
    }

    fn now(account: &Arc<Account>, bytes: usize) -> Option<Room> {
        account.room(bytes).unwrap().now_or_never()
    }

    /// As many rooms of a size as there are at once.
    fn fill(account: &Arc<Account>, bytes: usize) -> Vec<Room> {
        std::iter::from_fn(|| now(account, bytes)).take(10_000).collect()
    }

    fn fill_small(account: &Arc<Account>, bytes: usize) -> Vec<Room> {
        std::iter::from_fn(|| account.small_room(bytes)).take(100_000).collect()
    }

    fn is_idle(budget: &Budget) -> bool {
        let queue = budget.queue.lock();
        let empty = queue.order.is_empty() && queue.lines.is_empty() && queue.asking.is_empty();
        budget.used() == 0 && budget.waiting.load(Ordering::SeqCst) == 0 && empty && queue.owed.is_none()
    }

    #[test]
    fn one_plane_does_not_get_everything() {
        let budget = budget(2048);
        let greedy = budget.account(PlaneId(2));
        let mut held = fill(&greedy, 2 * MIB);
        assert_eq!(held.len(), 64, "a sixteenth of all");
        assert!(now(&budget.account(PlaneId(3)), 2 * MIB).is_some());
        held.pop();
        held.extend(fill(&greedy, MIB));
        assert_eq!(held.len(), 65);
        drop(held);
        assert!(is_idle(&budget));
    }

    #[test]
    fn one_answer_does_not_get_everything() {
        for (mib, at_once) in [(2048, 128), (512, 52), (48, 12), (8, 6)] {
            let budget = budget(mib);
            let account = budget.account(PlaneId(2));
            let refused = account.room((at_once + 1) * MIB).err();
            assert_eq!(refused.map(|much| much.bytes_max / MIB), Some(at_once), "of {mib}");
            let held = now(&account, at_once * MIB).unwrap();
            // Once there, it may turn out to be more than it should: others do not suffer.
            held.set(4096 * MIB);
            let other = budget.account(PlaneId(3));
            assert!(!other.is_full() && other.small_room(SMALL_BYTES_MAX).is_some());
            assert!(account.is_full() && account.small_room(1).is_none());
        }
        // Little is held, so little more may be had: not all that is free.
        let budget = budget(2048);
        let account = budget.account(PlaneId(2));
        let first = now(&account, MIB).unwrap();
        assert!(now(&account, 128 * MIB).is_none());
        assert!(now(&account, 12 * MIB).is_some());
        drop(first);
        let held: Vec<_> = (3..9).map(|plane| now(&budget.account(PlaneId(plane)), 128 * MIB)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(now(&account, 128 * MIB).is_none(), "an eighth of what is free");
    }

    #[test]
    fn many_greedy_planes_leave_room_for_another() {
        let budget = budget(1024);
        let held: Vec<_> =
            (0..20).map(|plane| fill(&budget.account(PlaneId(plane + 2)), 512 * 1024)).collect();
        assert!(held.iter().all(|rooms| !rooms.is_empty()));
        assert!(budget.used() < 800 * MIB, "{}", budget.used());
        assert!(now(&budget.account(PlaneId(1000)), 3 * MIB).is_some());
    }

    #[test]
    fn what_is_large_leaves_room_for_what_is_small() {
        let budget = budget(128);
        let large: Vec<_> =
            (0..20).map(|plane| fill(&budget.account(PlaneId(plane + 2)), 12 * MIB)).collect();
        assert_eq!(large.iter().flatten().count(), 8, "all there is");
        // Sixteen planes that want all the small ones, and one more.
        let small: Vec<_> =
            (0..16).map(|plane| fill_small(&budget.account(PlaneId(plane + 100)), SMALL_BYTES_MAX)).collect();
        assert!(small.iter().all(|rooms| rooms.len() >= 4));
        let other = budget.account(PlaneId(1000));
        assert!(!other.is_full());
        assert!(fill_small(&other, SMALL_BYTES_MAX).len() >= 4);
        drop((small, large));
        assert!(is_idle(&budget));
        // While nothing is large, what is small may have more, but no plane all of it.
        let planes = (0..16).map(|plane| fill_small(&budget.account(PlaneId(plane + 2)), SMALL_BYTES_MAX));
        let small: Vec<_> = planes.collect();
        assert!(small[0].len() > 200 && budget.used() < 120 * MIB);
        assert!(fill_small(&budget.account(PlaneId(1000)), 1024).len() > 100);
    }

    #[test]
    fn selectors_keep_nobody_waiting() {
        let budget = budget(48);
        let account = budget.account(PlaneId(2));
        let held = account.selectors_room(MIB).unwrap();
        assert!(account.selectors_room(1).is_none(), "nor have they all there is");
        assert!(budget.account(PlaneId(3)).selectors_room(MIB).is_some());
        let all: Vec<_> = fill(&account, 12 * MIB);
        assert_eq!(all.len(), 1, "as if the plane had nothing");
        drop((held, all));
        assert!(is_idle(&budget));
    }

    #[test]
    fn what_is_given_back_goes_to_the_planes_in_turn() {
        let budget = budget(16);
        let all = fill(&budget.account(PlaneId(2)), 12 * MIB);
        let (one, other) = (budget.account(PlaneId(3)), budget.account(PlaneId(4)));
        let mut asking: Vec<_> = [&one, &one, &one, &other].map(|plane| plane.room(6 * MIB).unwrap()).into();
        let mut poll = |index: usize| (&mut asking[index]).now_or_never();
        assert!((0..4).all(|index| poll(index).is_none()));
        drop(all);
        let given: Vec<Room> = (0..4).filter_map(&mut poll).collect();
        let planes: Vec<u64> = given.iter().map(|room| room.account.plane.0).collect();
        assert_eq!(planes, [3, 4]);
        drop(given);
        assert!(poll(1).is_some());
        drop(asking);
        assert!(is_idle(&budget));
    }

    #[test]
    fn whoever_goes_away_makes_way() {
        let budget = budget(16);
        let held = fill(&budget.account(PlaneId(2)), 10 * MIB);
        let (large, less) = (budget.account(PlaneId(3)), budget.account(PlaneId(4)));
        let (mut first, mut second) = (large.room(12 * MIB).unwrap(), less.room(MIB).unwrap());
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_some(), "there is room and nobody of this plane waits");
        let mut third = less.room(4 * MIB).unwrap();
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        drop(held);
        assert!(third.now_or_never().is_some());
        assert!(is_idle(&budget));
    }

    #[test]
    fn one_who_cannot_be_served_does_not_keep_others_waiting() {
        let budget = budget(16);
        let mut held = fill(&budget.account(PlaneId(2)), 8 * MIB);
        let mut large = budget.account(PlaneId(3)).room(12 * MIB).unwrap();
        assert!((&mut large).now_or_never().is_none());
        // Those who had to line up behind it, too.
        let more = now(&budget.account(PlaneId(4)), 5 * MIB).unwrap();
        let mut less = budget.account(PlaneId(5)).room(2 * MIB).unwrap();
        assert!((&mut less).now_or_never().is_none());
        drop(more);
        let less = less.now_or_never().unwrap();
        // But not for ever.
        let mut overtaken = 0;
        while now(&budget.account(PlaneId(6)), MIB).is_some() {
            overtaken += 1;
            assert!(overtaken < 100, "it starves");
        }
        drop(less);
        held.clear();
        assert!((&mut large).now_or_never().is_some());
        assert!(is_idle(&budget));
    }

    #[test]
    fn room_that_does_not_come_back_is_not_kept_for_ever() {
        let budget = budget(16);
        let _held = fill(&budget.account(PlaneId(2)), 8 * MIB);
        let mut large = budget.account(PlaneId(3)).room(12 * MIB).unwrap();
        assert!((&mut large).now_or_never().is_none());
        let others =
            |times: usize| (0..times).filter(|_| now(&budget.account(PlaneId(4)), MIB).is_some()).count();
        let served = others(1000);
        assert!(served > 100 && served < 1000, "{served}");
    }

    #[test]
    fn all_who_wait_are_served_in_the_end() {
        let budget = budget(64);
        let held = fill(&budget.account(PlaneId(2)), 12 * MIB);
        let rest = fill(&budget.account(PlaneId(3)), 12 * MIB);
        let accounts: Vec<_> = (0..200).map(|plane| budget.account(PlaneId(plane + 10))).collect();
        // Many more planes than are looked at in one go; the hungriest come first.
        let bytes = |index: usize| if index < 100 { 12 * MIB } else { MIB };
        let mut waiting = Vec::new();
        for (index, account) in accounts.iter().enumerate() {
            for _ in 0..2 {
                waiting.push(Some(account.room(bytes(index)).unwrap()));
            }
        }
        let mut given: Vec<Room> =
            waiting.iter_mut().filter_map(|one| one.as_mut()?.now_or_never()).collect();
        let mut rounds = 0;
        drop((held, rest));
        while waiting.iter().any(Option::is_some) {
            for one in &mut waiting {
                if let Some(room) =
                    one.as_mut().filter(|one| one.number.is_some()).and_then(|one| one.now_or_never())
                {
                    given.push(room);
                }
                one.take_if(|one| one.number.is_none());
            }
            given.pop();
            rounds += 1;
            assert!(rounds < 2_000, "{} still wait", waiting.iter().flatten().count());
        }
        drop(given);
        assert!(is_idle(&budget));
    }
}
