//! Whose turn it is: while there is more to do than cores to do it on, planes take turns.
//!
//! A connection is a future; each poll of it is a turn. As long as few turns run, one begins at once.
//! Beyond that futures wait in a queue of their plane, and the plane is served next that has computed least in relation to
//! its weight ([`crate::line`]), so that a tenant with a thousand busy connections delays another's request by a turn or two,
//! not by a thousand. A turn must be short: see the bounds in [`crate::gather`] and [`crate::drive`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use polder_client::slice::thread_time;
use polder_model::PlaneId;
use slab::Slab;

use crate::limits::WEIGHT_DEFAULT;
use crate::line::Line;

/// Which plane a future works for, and how much that one weighs; a connection's changes with its requests.
#[derive(Debug)]
pub(crate) struct Lane {
    plane: AtomicU64,
    weight: AtomicU64,
    /// How often it went on on other threads.
    moves: AtomicU64,
}

impl Lane {
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    pub(crate) fn note_move(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    fn plane(&self) -> PlaneId {
        PlaneId(self.plane.load(Ordering::Relaxed))
    }

    /// A weight of nothing is the usual one.
    pub(crate) fn set(&self, plane: PlaneId, weight: u64) {
        self.plane.store(plane.0, Ordering::Relaxed);
        self.weight.store(if weight == 0 { WEIGHT_DEFAULT } else { weight }, Ordering::Relaxed);
    }
}

/// Newcomers, who have not said yet which plane they want, wait as if they were one plane. There is no such plane.
pub(crate) const NEWCOMERS: PlaneId = PlaneId(u64::MAX);

impl Default for Lane {
    fn default() -> Lane {
        let (plane, weight) = (AtomicU64::new(NEWCOMERS.0), AtomicU64::new(WEIGHT_DEFAULT));
        Lane { plane, weight, moves: AtomicU64::new(0) }
    }
}

/// The turns of a server.
#[derive(Debug)]
pub(crate) struct Turns(Mutex<Queues>);

#[derive(Debug)]
struct Queues {
    /// Turns that may still begin at once.
    free: usize,
    waiting: Slab<Waiting>,
    /// Who waits, by the place in `waiting`.
    line: Line<usize>,
}

#[derive(Debug)]
enum Waiting {
    For(Waker),
    /// May go; counts as running.
    Called,
    /// Gone before it was called.
    Left,
}

impl Turns {
    pub(crate) fn new(at_once: usize) -> Turns {
        Turns(Mutex::new(Queues { free: at_once.max(1), waiting: Slab::new(), line: Line::default() }))
    }

    /// A future each of whose polls is a turn.
    pub(crate) fn share<F: Future>(self: &Arc<Self>, lane: Arc<Lane>, future: F) -> Shared<F> {
        let place = Place { turns: self.clone(), lane, waiting: None };
        Shared { future: Box::pin(future), place, spent: Duration::ZERO }
    }

    /// Ends a turn that took so much: the next in line is called.
    fn end(&self, lane: &Lane, spent: Duration) {
        let mut queues = self.0.lock();
        queues.line.spend(lane.plane(), lane.weight.load(Ordering::Relaxed), spent);
        let waker = queues.pass_on();
        drop(queues);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Queues {
    fn pass_on(&mut self) -> Option<Waker> {
        while let Some((_, slot)) = self.line.pop() {
            match std::mem::replace(&mut self.waiting[slot], Waiting::Called) {
                Waiting::For(waker) => return Some(waker),
                Waiting::Left | Waiting::Called => drop(self.waiting.remove(slot)),
            }
        }
        self.free += 1;
        None
    }
}

/// A future's place among the others.
struct Place {
    turns: Arc<Turns>,
    lane: Arc<Lane>,
    waiting: Option<usize>,
}

impl Place {
    /// Whether it is this future's turn; if not, it is woken when it is.
    fn begin(&mut self, waker: &Waker) -> bool {
        let mut queues = self.turns.0.lock();
        let queues = &mut *queues;
        if let Some(slot) = self.waiting {
            return match &mut queues.waiting[slot] {
                Waiting::For(old) => {
                    old.clone_from(waker);
                    false
                }
                Waiting::Called | Waiting::Left => {
                    queues.waiting.remove(slot);
                    self.waiting = None;
                    true
                }
            };
        }
        if queues.free > 0 {
            queues.free -= 1;
            return true;
        }
        let slot = queues.waiting.insert(Waiting::For(waker.clone()));
        queues.line.push(self.lane.plane(), slot);
        self.waiting = Some(slot);
        false
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(slot) = self.waiting else { return };
        let mut queues = self.turns.0.lock();
        if let Waiting::For(_) = queues.waiting[slot] {
            queues.waiting[slot] = Waiting::Left;
            return;
        }
        // Called, but it will not come.
        queues.waiting.remove(slot);
        let waker = queues.pass_on();
        drop(queues);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A future that takes turns with others.
pub(crate) struct Shared<F> {
    future: Pin<Box<F>>,
    place: Place,
    /// What its last turn took of the thread's time.
    spent: Duration,
}

impl<F> Shared<F> {
    /// What was computed since it was last asked.
    pub(crate) fn take_spent(&mut self) -> Duration {
        std::mem::take(&mut self.spent)
    }

    pub(crate) fn plane(&self) -> PlaneId {
        self.place.lane.plane()
    }

    /// The same future among others.
    pub(crate) fn moved(self, turns: &Arc<Turns>) -> Shared<F> {
        let lane = self.place.lane.clone();
        lane.note_move();
        let place = Place { turns: turns.clone(), lane, waiting: None };
        Shared { future: self.future, place, spent: Duration::ZERO }
    }
}

impl<F: Future> Future for Shared<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let shared = &mut *self;
        if !shared.place.begin(context.waker()) {
            return Poll::Pending;
        }
        // Given back even if the poll panics.
        let _turn = Running { place: &shared.place, began: thread_time(), spent: &mut shared.spent };
        shared.future.as_mut().poll(context)
    }
}

struct Running<'a> {
    place: &'a Place,
    began: Duration,
    spent: &'a mut Duration,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let spent = thread_time().saturating_sub(self.began);
        *self.spent += spent;
        self.place.turns.end(&self.place.lane, spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::task::noop_waker;

    /// A future that notes its name at each turn and never ends.
    fn noting(
        turns: &Arc<Turns>,
        plane: u64,
        log: &Arc<Mutex<Vec<u64>>>,
    ) -> Pin<Box<Shared<impl Future<Output = ()> + use<>>>> {
        let log = log.clone();
        let future = std::future::poll_fn(move |_| {
            log.lock().push(plane);
            Poll::<()>::Pending
        });
        let lane = Arc::new(Lane::default());
        lane.set(PlaneId(plane), 0);
        Box::pin(turns.share(lane, future))
    }

    /// Polls all futures over and over, as a scheduler would with all of them always ready.
    fn rounds(futures: &mut [Pin<Box<Shared<impl Future<Output = ()>>>>], count: usize) {
        let waker = noop_waker();
        let mut context = Context::from_waker(&waker);
        for _ in 0..count {
            for future in futures.iter_mut() {
                assert!(future.as_mut().poll(&mut context).is_pending());
            }
        }
    }

    #[test]
    fn a_lone_future_runs_at_once() {
        let (turns, log) = (Arc::new(Turns::new(1)), Arc::default());
        rounds(&mut [noting(&turns, 1, &log)], 3);
        assert_eq!(*log.lock(), [1, 1, 1]);
    }

    #[test]
    fn planes_take_turns_however_many_futures_they_have() {
        let (turns, log) = (Arc::new(Turns::new(1)), Arc::<Mutex<Vec<u64>>>::default());
        // Somebody holds the only turn while everybody lines up: forty for one plane, one for another.
        let holder = noting(&turns, 9, &log);
        turns.0.lock().free = 0;
        let mut futures: Vec<_> = (0..40).map(|_| noting(&turns, 1, &log)).collect();
        futures.push(noting(&turns, 2, &log));
        rounds(&mut futures, 1);
        assert_eq!(*log.lock(), [0u64; 0]);
        turns.end(&Lane::default(), Duration::ZERO);
        rounds(&mut futures, 2);
        let log = log.lock();
        let quiet = log.iter().position(|plane| *plane == 2).unwrap();
        assert!(quiet <= 2, "the other plane had to wait for {quiet} turns: {log:?}");
        drop(holder);
    }

    #[test]
    fn who_leaves_gives_up_its_place() {
        let (turns, log) = (Arc::new(Turns::new(1)), Arc::<Mutex<Vec<u64>>>::default());
        turns.0.lock().free = 0;
        let mut futures: Vec<_> = (0..3).map(|plane| noting(&turns, plane, &log)).collect();
        rounds(&mut futures, 1);
        // The first is called and leaves without going; the second left before.
        drop(futures.remove(1));
        turns.end(&Lane::default(), Duration::ZERO);
        drop(futures.remove(0));
        rounds(&mut futures, 1);
        assert_eq!(*log.lock(), [2]);
        drop(futures);
        let queues = turns.0.lock();
        assert_eq!((queues.free, queues.waiting.len(), queues.line.is_empty()), (1, 0, true));
    }

    #[test]
    fn a_panic_gives_the_turn_back() {
        let turns = Arc::new(Turns::new(1));
        let panics =
            turns.share(Arc::default(), std::future::poll_fn(|_| -> Poll<()> { panic!("as it should") }));
        let mut panics = Box::pin(panics);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let waker = noop_waker();
            panics.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        }));
        assert!(outcome.is_err());
        assert_eq!(turns.0.lock().free, 1);
    }
}
