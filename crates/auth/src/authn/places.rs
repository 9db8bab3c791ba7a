//! A bounded number of places in which something is done for planes that others wait for. Planes take turns: one whose tokens or issuers
//! fill what it may have keeps others waiting for a place or two, not for all that it waits for.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::{Lanes, PlaneId};
use tokio::sync::oneshot;

pub(super) struct Places {
    state: Mutex<State>,
    /// Of one plane, those who wait; the next ones are refused at once.
    waiting_max: usize,
}

struct State {
    lanes: Lanes<oneshot::Sender<Place>>,
    free: usize,
    waiting: HashMap<PlaneId, usize>,
}

/// A place, given back when it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    plane: PlaneId,
}

/// Whoever waits; counted until it waits no more, however that ends.
struct Waiting<'a> {
    places: &'a Places,
    plane: PlaneId,
}

impl Places {
    /// So many in all, so many of them for one plane, and so many of a plane who wait.
    pub(super) fn new(len: usize, plane_len: usize, waiting_max: usize) -> Arc<Places> {
        let state = State { lanes: Lanes::limited(plane_len), free: len, waiting: HashMap::new() };
        Arc::new(Places { state: Mutex::new(state), waiting_max })
    }

    /// A place, when it is this plane's turn; `None` if too many of it wait.
    pub(super) async fn enter(self: &Arc<Places>, plane: PlaneId) -> Option<Place> {
        let (sender, place) = oneshot::channel();
        let waiting = {
            let mut state = self.state.lock();
            let count = state.waiting.entry(plane).or_default();
            if *count >= self.waiting_max {
                return None;
            }
            *count += 1;
            state.lanes.push_sweeping(plane, sender, |waiting| !waiting.is_closed());
            Waiting { places: self, plane }
        };
        self.fill();
        let place = place.await.ok();
        drop(waiting);
        place
    }

    /// Gives free places to those whose turn it is.
    fn fill(self: &Arc<Places>) {
        loop {
            let next = {
                let mut state = self.state.lock();
                if state.free == 0 {
                    return;
                }
                let Some((plane, next)) = state.lanes.pop() else { return };
                state.free -= 1;
                (next, Place { places: self.clone(), plane })
            };
            // Outside of the lock: somebody who has gone gives the place back here.
            drop(next.0.send(next.1));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut state = self.places.state.lock();
            state.free += 1;
            state.lanes.leave(self.plane);
        }
        self.places.fill();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.places.state.lock();
        if let Some(count) = state.waiting.get_mut(&self.plane) {
            *count -= 1;
            if *count == 0 {
                state.waiting.remove(&self.plane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn planes_take_turns() {
        let places = Places::new(2, 1, 8);
        let (mut one, mut two, mut three) =
            (pin!(places.enter(PlaneId(1))), pin!(places.enter(PlaneId(1))), pin!(places.enter(PlaneId(1))));
        let Poll::Ready(Some(first)) = poll(one.as_mut()) else { panic!("there is a place") };
        assert!(poll(two.as_mut()).is_pending() && poll(three.as_mut()).is_pending(), "its plane has one");
        let mut other = pin!(places.enter(PlaneId(2)));
        assert!(poll(other.as_mut()).is_ready(), "another plane does not wait for them");
        drop(first);
        let Poll::Ready(Some(second)) = poll(two.as_mut()) else { panic!("its turn") };
        assert!(poll(three.as_mut()).is_pending());
        drop(second);
        assert!(matches!(poll(three.as_mut()), Poll::Ready(Some(_))));
    }

    #[test]
    fn places_come_back_and_those_who_wait_are_bounded() {
        let places = Places::new(1, 1, 2);
        let mut first = Box::pin(places.enter(PlaneId(1)));
        let Poll::Ready(Some(place)) = poll(first.as_mut()) else { panic!("there is a place") };
        {
            let (mut a, mut b) = (Box::pin(places.enter(PlaneId(1))), Box::pin(places.enter(PlaneId(1))));
            assert!(poll(a.as_mut()).is_pending() && poll(b.as_mut()).is_pending());
            assert!(matches!(poll(pin!(places.enter(PlaneId(1)))), Poll::Ready(None)), "too many");
            let mut other = pin!(places.enter(PlaneId(2)));
            assert!(poll(other.as_mut()).is_pending(), "another plane may wait");
            drop(place);
            drop((a, b));
            assert!(matches!(poll(other.as_mut()), Poll::Ready(Some(_))), "those who hung up leave no trace");
        }
        let state = places.state.lock();
        assert!(state.free == 1 && state.lanes.is_idle() && state.waiting.is_empty());
    }
}
