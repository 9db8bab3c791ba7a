//! Work for many planes, done fairly: planes take turns, and within a plane its items do. In a queue with a
//! `Stage` only planes on stage do, and who is on it changes.
//!
//! An item is in the queue once, however often it is added. One plane is worked on by a few workers at a time, so
//! whoever has much to do delays only itself, and one item by one worker. Nothing is lost: what is added while it is being worked on is done again, work
//! that breaks off is tried later, and a plane with too many items gets one that stands for all of them.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use polder_model::{Lanes, PlaneId};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::slice;
use crate::stage::{Place, Places, Stage};

const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(30);
/// What others keep from being done is not tried all the time.
const DELAY_SELDOM_MAX: Duration = Duration::from_secs(600);
/// Nothing waits longer.
const DELAY_LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Items of a plane that wait for their time, for each that may be busy.
const WAITING_PER_BUSY: usize = 10;
/// How long an item waits that need not be done at once.
const DELAY_LATER: Duration = Duration::from_secs(1);
/// A feed that is followed from further behind is not waited for.
const LAG_MAX: u64 = 4_096;
/// What is due within this time is waited for on stage.
const SOON: Duration = Duration::from_millis(20);
/// What a turn is thought to have used that broke off.
const SPENT_UNKNOWN: Duration = Duration::from_millis(10);

/// What came of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// There is more to do, when the others have had their turn.
    Again,
    /// Nothing can be done now; each time in a row the wait is longer.
    Later,
    /// The same where it is up to somebody else whether there ever will be: in the end the wait is long.
    Seldom,
    /// It is due after this time.
    After(Duration),
    /// What is left takes more than its plane has room for now: it is due when there is more.
    Aside,
}

/// What a turn took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// How long it computed.
    pub time: Duration,
    /// Whatever it wrote is in the feed up to here.
    pub revision: u64,
}

pub struct FairQueue<T> {
    state: Mutex<State<T>>,
    added: Notify,
    /// Stands for everything of a plane that has too much.
    everything: T,
    plane_len_max: usize,
    /// How far the feed has been seen, and the first revision that a plane on stage waits for.
    seen: AtomicU64,
    awaited: AtomicU64,
}

struct State<T> {
    /// Everything of each plane that has something to do, whatever its state.
    planes: HashMap<PlaneId, Known<T>>,
    /// What is ready; out is what is being worked on.
    ready: Lanes<T>,
    /// Whose lanes are served; all are if there is none.
    stage: Option<Stage>,
    /// The beginning of time for the stage.
    began: Instant,
    /// What waits, by when it is due; the number keeps equal times apart.
    waiting: BTreeMap<(Instant, u64), (PlaneId, T)>,
    count: u64,
}

/// The items of one plane.
struct Known<T> {
    items: HashMap<T, Entry>,
    /// How many of them wait for their time.
    waiting: usize,
    /// Those that wait for their plane to have room for them.
    aside: Vec<T>,
}

#[derive(Clone, Copy)]
struct Entry {
    state: ItemState,
    /// How often in a row nothing could be done.
    tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemState {
    Ready,
    Aside,
    Waiting((Instant, u64)),
    Working,
    /// Being worked on, and added again meanwhile.
    WorkingAgain,
}

/// An item in work. Dropped without an outcome, it is tried later.
#[must_use]
pub struct Turn<'q, T: Clone + Eq + Hash> {
    queue: &'q FairQueue<T>,
    pub plane: PlaneId,
    pub item: T,
    /// How many objects it may make.
    room: usize,
    /// Its plane is in a long place.
    is_long: bool,
    over: bool,
}

impl<T: Clone + Eq + Hash> FairQueue<T> {
    /// A queue with so many items of one plane in work at a time.
    pub fn new(plane_len_max: usize, everything: T, parallel: usize) -> FairQueue<T> {
        FairQueue::with(plane_len_max, everything, Lanes::limited(parallel), None)
    }

    /// The same, with so many planes worked on at a time.
    pub fn on_stage(plane_len_max: usize, everything: T, parallel: usize, places: Places) -> FairQueue<T> {
        FairQueue::with(plane_len_max, everything, Lanes::held(parallel), Some(Stage::new(places)))
    }

    fn with(plane_len_max: usize, everything: T, ready: Lanes<T>, stage: Option<Stage>) -> FairQueue<T> {
        let (planes, waiting, began) = (HashMap::new(), BTreeMap::new(), Instant::now());
        let state = State { planes, ready, stage, began, waiting, count: 0 };
        FairQueue {
            state: Mutex::new(state),
            added: Notify::new(),
            everything,
            plane_len_max,
            seen: AtomicU64::new(0),
            awaited: AtomicU64::new(u64::MAX),
        }
    }

    pub fn add(&self, plane: PlaneId, item: T) {
        let mut state = self.state.lock();
        let item = state.fit(plane, item, &self.everything, self.plane_len_max);
        state.make_ready(plane, item);
        drop(state);
        self.added.notify_one();
    }

    /// Adds an item that waits first, unless it is there already.
    pub fn add_later(&self, plane: PlaneId, item: T) {
        self.add_after(plane, item, DELAY_LATER);
    }

    /// The same, with so long a wait.
    pub fn add_after(&self, plane: PlaneId, item: T, delay: Duration) {
        let mut state = self.state.lock();
        let item = state.fit(plane, item, &self.everything, self.plane_len_max);
        state.make_wait(plane, item, delay);
        drop(state);
        self.added.notify_one();
    }

    /// Something has changed for an item: if it waits, it need not any longer.
    pub fn nudge(&self, plane: PlaneId, item: &T) {
        let is_known = |known: &Known<T>| known.items.contains_key(item);
        if self.state.lock().planes.get(&plane).is_some_and(is_known) {
            self.add(plane, item.clone());
        }
    }

    /// The planes that have something to do, or wait until they have.
    pub fn busy(&self) -> Vec<PlaneId> {
        self.state.lock().planes.keys().copied().collect()
    }

    /// Whether a plane has nothing to do.
    pub fn is_idle(&self, plane: PlaneId) -> bool {
        !self.state.lock().planes.contains_key(&plane)
    }

    /// Waits for the next turn.
    pub async fn take(&self) -> Turn<'_, T> {
        loop {
            let due = {
                let mut state = self.state.lock();
                state.wake(Instant::now());
                if let Some((plane, item, room, is_long)) = state.pop() {
                    if state.ready.has_next() {
                        self.added.notify_one();
                    }
                    return Turn { queue: self, plane, item, room, is_long, over: false };
                }
                state.due()
            };
            let added = self.added.notified();
            match due {
                None => added.await,
                Some(due) => drop(tokio::time::timeout_at(due, added).await),
            }
        }
    }

    /// Says what came of a turn that was taken apart.
    pub fn finish(&self, plane: PlaneId, item: &T, outcome: Outcome, spent: Spent) {
        let mut state = self.state.lock();
        state.finish(plane, item, outcome, &self.everything);
        state.spend(plane, outcome, spent, self.seen.load(Ordering::SeqCst));
        self.retire(&mut state);
        drop(state);
        self.added.notify_one();
    }

    /// The feed has been followed up to here, and what it tells has been added.
    pub fn has_seen(&self, revision: u64) {
        self.seen.store(revision, Ordering::SeqCst);
        if self.awaited.load(Ordering::SeqCst) <= revision {
            self.retire(&mut self.state.lock());
            self.added.notify_one();
        }
    }

    /// Lets those leave the stage who waited for what has been seen.
    fn retire(&self, state: &mut State<T>) {
        // In this order: who sees something afterwards sees that it is awaited.
        self.awaited.store(state.awaited(), Ordering::SeqCst);
        let seen = self.seen.load(Ordering::SeqCst);
        if state.awaited() <= seen {
            state.retire(seen);
            self.awaited.store(state.awaited(), Ordering::SeqCst);
        }
    }
}

impl<T: Clone + Eq + Hash> State<T> {
    /// Makes room for an item of a plane: for itself, or for the one that stands for everything.
    fn fit(&mut self, plane: PlaneId, item: T, everything: &T, len_max: usize) -> T {
        let known = self.planes.entry(plane).or_default();
        // Of what waits for its time there is hardly more than there are objects it is about.
        let busy = known.items.len() - known.waiting;
        let full = busy >= len_max || known.waiting >= len_max.saturating_mul(WAITING_PER_BUSY);
        if full && !known.items.contains_key(&item) { everything.clone() } else { item }
    }

    fn make_wait(&mut self, plane: PlaneId, item: T, delay: Duration) {
        match self.planes.entry(plane).or_default().items.get_mut(&item) {
            None => self.wait(plane, item, delay, 0),
            Some(entry) if entry.state == ItemState::Working => entry.state = ItemState::WorkingAgain,
            Some(_) => {}
        }
    }

    /// Lets an item wait, whatever it did before.
    fn wait(&mut self, plane: PlaneId, item: T, delay: Duration, tries: u32) {
        let known = self.planes.entry(plane).or_default();
        self.count += 1;
        let due = (Instant::now() + delay.min(DELAY_LONGEST), self.count);
        known.waiting += 1;
        known.items.insert(item.clone(), Entry { state: ItemState::Waiting(due), tries });
        self.waiting.insert(due, (plane, item));
    }

    fn make_ready(&mut self, plane: PlaneId, item: T) {
        let known = self.planes.entry(plane).or_default();
        let entry = known.items.get_mut(&item);
        match entry.map(|entry| (entry.state, entry)) {
            Some((ItemState::Ready | ItemState::Aside | ItemState::WorkingAgain, _)) => return,
            Some((ItemState::Working, entry)) => {
                entry.state = ItemState::WorkingAgain;
                return;
            }
            Some((ItemState::Waiting(due), entry)) => {
                entry.state = ItemState::Ready;
                known.waiting -= 1;
                self.waiting.remove(&due);
            }
            None => {
                known.items.insert(item.clone(), Entry { state: ItemState::Ready, tries: 0 });
            }
        }
        self.line_up(plane, item);
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn line_up(&mut self, plane: PlaneId, item: T) {
        self.ready.push(plane, item);
        let now = self.now();
        let Some(stage) = &mut self.stage else { return };
        stage.want(plane, false, now);
        if stage.is_on(plane) {
            self.ready.release(plane);
        }
        self.admit(now);
    }

    /// Lets planes on stage while there are places.
    fn admit(&mut self, now: Duration) {
        let Some(stage) = &mut self.stage else { return };
        while let Some((plane, place)) = stage.next(now) {
            if place == Place::Long
                && let Some(known) = self.planes.get_mut(&plane)
            {
                for item in std::mem::take(&mut known.aside) {
                    if let Some(entry) = known.items.get_mut(&item) {
                        entry.state = ItemState::Ready;
                    }
                    self.ready.push(plane, item);
                }
            }
            self.ready.release(plane);
        }
    }

    /// Accounts for a turn that has ended.
    fn spend(&mut self, plane: PlaneId, outcome: Outcome, spent: Spent, seen: u64) {
        let now = self.now();
        let Some(stage) = &mut self.stage else { return };
        if stage.end(plane, spent.time, now) {
            self.leave_stage(plane, now);
        } else if !stage.is_on(plane) {
            if self.planes.get(&plane).is_some_and(|known| !known.aside.is_empty()) {
                stage.want(plane, true, now);
                self.admit(now);
            }
        } else if !self.ready.has_lane(plane) {
            let lags = spent.revision.saturating_sub(seen) > LAG_MAX;
            let until = match outcome {
                // It will be back before anybody loses patience.
                Outcome::After(delay) if delay < SOON => u64::MAX,
                _ if lags => 0,
                // Its next step may be on its way.
                _ => spent.revision,
            };
            stage.pause(plane, until);
        }
    }

    /// A plane is not worked on for now. If it has something left to do it lines up.
    fn leave_stage(&mut self, plane: PlaneId, now: Duration) {
        let Some(stage) = &mut self.stage else { return };
        stage.leave(plane);
        self.ready.hold(plane);
        let large = self.planes.get(&plane).is_some_and(|known| !known.aside.is_empty());
        if large || self.ready.has_waiting(plane) {
            stage.want(plane, large, now);
        }
        self.admit(now);
    }

    fn retire(&mut self, seen: u64) {
        let now = self.now();
        for plane in self.stage.iter().flat_map(|stage| stage.done(seen)).collect::<Vec<_>>() {
            self.leave_stage(plane, now);
        }
    }

    /// What those on stage wait for; nothing if it is never seen.
    fn awaited(&self) -> u64 {
        self.stage.as_ref().and_then(Stage::awaited).unwrap_or(u64::MAX)
    }

    /// When something is due that nobody tells of.
    fn due(&self) -> Option<Instant> {
        let stage = self.stage.as_ref().and_then(Stage::due).map(|due| self.began + due);
        self.waiting.keys().next().map(|(due, _)| *due).into_iter().chain(stage).min()
    }

    /// What waited long enough becomes ready.
    fn wake(&mut self, now: Instant) {
        while let Some((_, (plane, item))) = self.waiting.first_key_value().filter(|(due, _)| due.0 <= now) {
            let (plane, item) = (*plane, item.clone());
            self.make_ready(plane, item);
        }
        let now = self.now();
        for plane in self.stage.iter_mut().flat_map(|stage| stage.stalled(now)).collect::<Vec<_>>() {
            self.leave_stage(plane, now);
        }
    }

    fn pop(&mut self) -> Option<(PlaneId, T, usize, bool)> {
        let (plane, item) = self.ready.pop()?;
        let now = self.now();
        let (mut room, mut is_long) = (usize::MAX, false);
        if let Some(stage) = &mut self.stage {
            stage.begin(plane, now);
            (room, is_long) = (stage.room(plane), stage.is_long(plane));
        }
        if let Some(entry) = self.planes.get_mut(&plane).and_then(|known| known.items.get_mut(&item)) {
            entry.state = ItemState::Working;
        }
        Some((plane, item, room, is_long))
    }

    fn finish(&mut self, plane: PlaneId, item: &T, outcome: Outcome, everything: &T) {
        self.ready.leave(plane);
        let Some(known) = self.planes.get_mut(&plane) else { return };
        let Some(entry) = known.items.get(item).copied() else { return };
        let added = entry.state == ItemState::WorkingAgain;
        let longest = if outcome == Outcome::Seldom { DELAY_SELDOM_MAX } else { DELAY_MAX };
        let longer = DELAY_MIN.saturating_mul(1 << entry.tries.min(16)).min(longest);
        match outcome {
            // What failed fails again for a while, whoever asks for it.
            Outcome::Later | Outcome::Seldom => {
                self.wait(plane, item.clone(), longer, entry.tries.saturating_add(1));
            }
            // While everything was done something found no place: that can go on for ever, so it gets slower.
            Outcome::Done if added && item == everything => {
                self.wait(plane, item.clone(), longer, entry.tries.saturating_add(1));
            }
            Outcome::Done if !added => {
                known.items.remove(item);
                if known.items.is_empty() {
                    self.planes.remove(&plane);
                }
            }
            Outcome::Aside if self.stage.is_some() => {
                known.items.insert(item.clone(), Entry { state: ItemState::Aside, tries: 0 });
                known.aside.push(item.clone());
            }
            Outcome::After(delay) if !added => self.wait(plane, item.clone(), delay, 0),
            _ => {
                known.items.insert(item.clone(), Entry { state: ItemState::Ready, tries: 0 });
                self.line_up(plane, item.clone());
            }
        }
    }
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known { items: HashMap::new(), waiting: 0, aside: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Turn<'_, T> {
    /// Takes the turn apart. Whoever does must call [`FairQueue::finish`].
    pub fn detach(mut self) -> (PlaneId, T) {
        self.over = true;
        (self.plane, self.item.clone())
    }

    pub fn finish(mut self, outcome: Outcome) {
        self.over = true;
        self.queue.finish(self.plane, &self.item, outcome, Spent::default());
    }
}

impl<T: Clone + Eq + Hash> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        if !self.over {
            self.queue.finish(self.plane, &self.item, Outcome::Later, Spent::default());
        }
    }
}

/// How a queue is worked on.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Items worked on at a time, those that take long apart.
    pub at_once: usize,
    /// What takes longer than this (a webhook of its plane may be slow, or dead) is not waited for: it is worked on
    /// beside the others, and holds up none but its plane.
    pub long: Duration,
}

/// Works on a queue for ever, each item in a task of its own: whatever goes wrong with one, the others go on. Turns of planes
/// in long places run on threads of their own, so that the others need not wait for what these compute. `revision` tells how
/// far the feed has come.
pub async fn work_on<T, O, F>(
    owner: Arc<O>,
    pace: Pace,
    (tasks, long): (TaskTracker, Handle),
    queue: fn(&O) -> &FairQueue<T>,
    revision: fn(&O) -> u64,
    work: F,
) where
    T: Clone + Eq + Hash + Send + Sync + 'static,
    O: Send + Sync + 'static,
    F: Fn(Arc<O>, PlaneId, T) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
{
    let places = Arc::new(Semaphore::new(pace.at_once));
    loop {
        // Nobody closes it.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let turn = queue(&owner).take().await;
        let (room, is_long) = (turn.room, turn.is_long);
        let (plane, item) = turn.detach();
        let work = slice::within(room, work(owner.clone(), plane, item.clone()));
        let mut task = if is_long { tasks.spawn_on(work, &long) } else { tasks.spawn(work) };
        let owner = owner.clone();
        tasks.spawn(async move {
            let done = match timeout(pace.long, &mut task).await {
                Ok(done) => done,
                Err(_) => {
                    drop(place);
                    task.await
                }
            };
            let (outcome, time) = done.unwrap_or_else(|error| {
                tracing::error!(%plane, %error, "work for a plane broke off");
                (Outcome::Later, SPENT_UNKNOWN)
            });
            let spent = Spent { time, revision: revision(&owner) };
            queue(&owner).finish(plane, &item, outcome, spent);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PlaneId = PlaneId(1);
    const B: PlaneId = PlaneId(2);

    fn queue() -> FairQueue<u32> {
        FairQueue::new(5, 0, 1)
    }

    #[tokio::test]
    async fn planes_take_turns() {
        let queue = queue();
        for item in 1..5 {
            queue.add(A, item);
        }
        queue.add(B, 1);
        queue.add(B, 1);
        let mut order = Vec::new();
        for _ in 0..5 {
            let turn = queue.take().await;
            order.push((turn.plane.0, turn.item));
            turn.finish(Outcome::Done);
        }
        assert_eq!(order, [(1, 1), (2, 1), (1, 2), (1, 3), (1, 4)]);
        assert!(queue.is_idle(A) && queue.is_idle(B));
        let state = queue.state.lock();
        assert!(state.planes.is_empty() && state.ready.is_idle(), "an idle plane costs nothing");
    }

    #[tokio::test]
    async fn a_plane_is_worked_on_by_one_at_a_time() {
        let queue = queue();
        queue.add(A, 1);
        queue.add(A, 2);
        queue.add(B, 1);
        let (first, second) = (queue.take().await, queue.take().await);
        assert_eq!((first.plane, second.plane), (A, B));
        let third = tokio::time::timeout(Duration::from_millis(5), queue.take()).await;
        assert!(third.is_err(), "the other item of A waits");
        first.finish(Outcome::Again);
        let third = queue.take().await;
        assert_eq!((third.plane, third.item), (A, 2));
        third.finish(Outcome::Done);
        assert_eq!(queue.take().await.item, 1, "what asked for another turn gets it after the others");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_gets_longer_and_ends_early_when_something_happens() {
        let queue = queue();
        queue.add(A, 1);
        let start = Instant::now();
        let mut at = Vec::new();
        for _ in 0..4 {
            let turn = queue.take().await;
            at.push(start.elapsed().as_millis());
            turn.finish(Outcome::Later);
        }
        assert_eq!(at, [0, 100, 300, 700]);
        queue.nudge(A, &1);
        queue.nudge(A, &2);
        let turn = queue.take().await;
        assert_eq!((turn.item, start.elapsed().as_millis()), (1, 700));
        drop(turn);
        assert_eq!(queue.take().await.item, 1, "what broke off is tried again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_up_to_others_is_tried_seldom() {
        for (outcome, longest) in [(Outcome::Later, DELAY_MAX), (Outcome::Seldom, DELAY_SELDOM_MAX)] {
            let queue = queue();
            queue.add(A, 1);
            let mut waits = Vec::new();
            for _ in 0..20 {
                let start = Instant::now();
                let turn = queue.take().await;
                waits.push(start.elapsed());
                turn.finish(outcome);
            }
            assert_eq!(waits[1..4], [100, 200, 400].map(Duration::from_millis), "{outcome:?}");
            assert_eq!(waits.last(), Some(&longest), "{outcome:?}");
            // What changes for it is looked at.
            queue.add(A, 1);
            let start = Instant::now();
            queue.take().await.finish(Outcome::Done);
            assert_eq!(start.elapsed(), Duration::ZERO, "{outcome:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_need_not_be_done_at_once_waits_unless_somebody_wants_it() {
        let queue = queue();
        queue.add_later(A, 1);
        let start = Instant::now();
        let turn = queue.take().await;
        assert_eq!((turn.item, start.elapsed()), (1, DELAY_LATER));
        turn.finish(Outcome::Done);
        assert!(queue.is_idle(A));
        queue.add_later(A, 2);
        queue.add_later(A, 2);
        queue.add(A, 2);
        queue.add_later(A, 2);
        let turn = queue.take().await;
        assert_eq!((turn.item, start.elapsed()), (2, DELAY_LATER));
        turn.finish(Outcome::Done);
        assert!(queue.is_idle(A));
    }

    #[tokio::test]
    async fn nothing_is_lost() {
        let queue = queue();
        queue.add(A, 1);
        let turn = queue.take().await;
        queue.add(A, 1);
        turn.finish(Outcome::Done);
        let turn = queue.take().await;
        assert_eq!(turn.item, 1, "added while it was worked on");
        turn.finish(Outcome::Done);
        for item in 1..100 {
            queue.add(A, item);
        }
        let mut items = Vec::new();
        while !queue.is_idle(A) {
            let turn = queue.take().await;
            items.push(turn.item);
            turn.finish(Outcome::Done);
        }
        assert_eq!(items, [1, 2, 3, 4, 5, 0], "one item stands for those that found no place");
    }

    fn on_stage() -> FairQueue<u32> {
        FairQueue::on_stage(100, 0, 2, Places { light: 2, long: 1 })
    }

    /// Takes turns until a plane has its own, each of so many milliseconds and with more to do after it: how many others
    /// had one before.
    async fn turns_before(queue: &FairQueue<u32>, plane: PlaneId, time: u64) -> usize {
        for count in 0.. {
            let turn = queue.take().await;
            let (own, room) = (turn.plane, turn.room);
            let (_, item) = turn.detach();
            let time = Duration::from_millis(if own == plane { 1 } else { time });
            tokio::time::advance(time).await;
            let outcome = match () {
                () if own == plane => Outcome::Done,
                () if room < 100 => Outcome::Aside,
                () => Outcome::Again,
            };
            queue.finish(own, &item, outcome, Spent { time, revision: 0 });
            if own == plane {
                return count;
            }
        }
        unreachable!("there is no end of turns")
    }

    #[tokio::test(start_paused = true)]
    async fn who_needs_little_does_not_wait_for_those_who_need_much() {
        let (queue, little) = (on_stage(), PlaneId(1_000));
        for plane in 1..=100 {
            (1..=10).for_each(|item| queue.add(PlaneId(plane), item));
        }
        // All others begin as if they needed little.
        queue.add(little, 1);
        assert!(turns_before(&queue, little, 5).await <= 100 * 10);
        // After that it is known who does.
        for round in 0..200 {
            tokio::time::advance(Duration::from_millis(30)).await;
            queue.add(little, 1);
            let before = turns_before(&queue, little, 5).await;
            assert!(before <= 3, "{before} others in round {round}");
        }
        // And whoever needs much gets its slice, however many need little.
        let mut served = std::collections::HashSet::new();
        for round in 0..20_000 {
            queue.add(PlaneId(2_000 + round % 500), 1);
            let turn = queue.take().await;
            let (plane, item) = turn.detach();
            served.insert(plane);
            tokio::time::advance(Duration::from_millis(1)).await;
            let (outcome, time) = if plane.0 <= 100 { (Outcome::Again, 10) } else { (Outcome::Done, 1) };
            let spent = Spent { time: Duration::from_millis(time), revision: 0 };
            queue.finish(plane, &item, outcome, spent);
        }
        assert_eq!(served.iter().filter(|plane| plane.0 <= 100).count(), 100, "nobody waits for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn a_chain_of_steps_is_not_interrupted() {
        let queue = on_stage();
        for plane in 1..=10 {
            queue.add(PlaneId(plane), 1);
        }
        // Each has three steps, the first of them large. Each leads to the next one by way of the feed, which lags a little.
        let (mut order, mut revision) = (Vec::new(), 0);
        while !queue.busy().is_empty() {
            let turn = queue.take().await;
            let room = turn.room;
            let (plane, step) = turn.detach();
            revision += 1;
            let spent = Spent { time: Duration::from_millis(1), revision };
            if step == 1 && room <= 4 {
                queue.finish(plane, &step, Outcome::Aside, spent);
            } else {
                order.push((plane.0, step));
                queue.finish(plane, &step, Outcome::Done, spent);
                if step < 3 {
                    queue.add(plane, step + 1);
                }
            }
            queue.has_seen(revision);
        }
        let expected: Vec<(u64, u32)> =
            (1..=10).flat_map(|plane| [(plane, 1), (plane, 2), (plane, 3)]).collect();
        assert_eq!(order, expected);
        assert!(queue.state.lock().ready.is_idle());
    }
}
