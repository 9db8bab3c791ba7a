//! What a turn leaves for later because nobody waits for it, events for people above all: the chain of steps that a turn
//! belongs to goes on meanwhile, and what is left is done when its plane has had time for the rest.
//!
//! Kept in memory only, so it may be lost; bounded for each plane and in all. What finds no room is done in its turn.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use polder_model::PlaneId;

/// What one plane may leave, and all.
const PLANE_LEN_MAX: usize = 1_000;
const LEN_MAX: usize = 20_000;
/// So much is done at a time: what is in flight together shares a commit.
const AT_ONCE: usize = 24;

tokio::task_local! {
    static TURN: (PlaneId, Arc<Afterwards>);
}

/// What turns have left.
#[derive(Default)]
pub(crate) struct Afterwards(Mutex<Left>);

#[derive(Default)]
struct Left {
    planes: HashMap<PlaneId, VecDeque<BoxFuture<'static, ()>>>,
    len: usize,
}

/// Leaves some work for later. Outside of a turn, or where there is no room for it, it is done now.
pub async fn afterwards(work: impl Future<Output = ()> + Send + 'static) {
    let mut work: Option<BoxFuture<'static, ()>> = Some(Box::pin(work));
    TURN.try_with(|(plane, left)| left.keep(*plane, &mut work)).ok();
    if let Some(work) = work {
        work.await;
    }
}

impl Afterwards {
    /// Runs a turn of a plane that may leave something.
    pub(crate) async fn within_turn<T>(self: &Arc<Self>, plane: PlaneId, work: impl Future<Output = T>) -> T {
        TURN.scope((plane, self.clone()), work).await
    }

    fn keep(&self, plane: PlaneId, work: &mut Option<BoxFuture<'static, ()>>) {
        let mut left = self.0.lock();
        let is_full = left.len >= LEN_MAX;
        let own = left.planes.entry(plane).or_default();
        if is_full || own.len() >= PLANE_LEN_MAX {
            return;
        }
        own.extend(work.take());
        left.len += 1;
    }

    pub(crate) fn has(&self, plane: PlaneId) -> bool {
        self.0.lock().planes.contains_key(&plane)
    }

    /// Does some of what a plane has left; whether there is more.
    pub(crate) async fn work(&self, plane: PlaneId) -> bool {
        let some: Vec<_> = {
            let mut left = self.0.lock();
            let Some(own) = left.planes.get_mut(&plane) else { return false };
            let some: Vec<_> = own.drain(..own.len().min(AT_ONCE)).collect();
            if own.is_empty() {
                left.planes.remove(&plane);
            }
            left.len -= some.len();
            some
        };
        join_all(some).await;
        self.has(plane)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const PLANE: PlaneId = PlaneId(7);

    #[tokio::test]
    async fn what_is_left_is_done_later_and_what_has_no_room_at_once() {
        let (left, done) = (Arc::new(Afterwards::default()), Arc::new(AtomicUsize::new(0)));
        let one = || {
            let done = done.clone();
            async move {
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        let count = || done.load(Ordering::Relaxed);
        afterwards(one()).await;
        assert_eq!(count(), 1, "outside of a turn");
        let turn = async {
            for _ in 0..PLANE_LEN_MAX + 2 {
                afterwards(one()).await;
            }
        };
        left.within_turn(PLANE, turn).await;
        assert_eq!(count(), 3, "two found no room");
        assert!(left.has(PLANE) && !left.has(PlaneId(8)));
        while left.work(PLANE).await {}
        assert_eq!(count(), PLANE_LEN_MAX + 3);
        let state = left.0.lock();
        assert!(state.planes.is_empty() && state.len == 0, "nothing is kept");
    }
}
