//! Whose turn it is, where only so much can be done at a time: reading from the engine, calling webhooks. Reads block a
//! thread each and the engine serves only a few at a time, so one plane with many slow reads would keep everybody else
//! from theirs. A plane gets a few turns at a time; the rest of it waits, first come, first served, without a thread.
//! When all turns are taken, the planes that wait get the next ones one after the other.
//!
//! Invariant: while a turn is free, every plane that waits has as many as it may.

use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::{Lanes, PlaneId};
use tokio::sync::oneshot;

/// Reads at a time.
const READS: usize = 64;
/// Reads of one plane at a time: half of what the embedded engine serves at once.
const PLANE_READS: usize = 4;

pub struct Turns {
    state: Mutex<State>,
}

struct State {
    free: usize,
    /// Who waits; out is who has a turn.
    lanes: Lanes<oneshot::Sender<Turn>>,
}

/// The right to do it once. Dropping it gives it to the next.
pub struct Turn {
    /// `None` when it was given back already.
    turns: Option<Arc<Turns>>,
    plane: PlaneId,
}

impl Turns {
    /// So many at a time, and so many of one plane.
    pub fn new(turns: usize, plane_turns: usize) -> Arc<Turns> {
        let state = State { free: turns, lanes: Lanes::limited(plane_turns) };
        Arc::new(Turns { state: Mutex::new(state) })
    }

    /// Those of reads from the engine.
    pub(crate) fn of_reads() -> Arc<Turns> {
        Turns::new(READS, PLANE_READS)
    }

    /// Waits for a turn. Safe to cancel: a turn that nobody takes goes to the next.
    pub async fn take(self: &Arc<Turns>, plane: PlaneId) -> Turn {
        let turn = {
            let mut state = self.state.lock();
            if state.free > 0 && state.lanes.enter(plane) {
                state.free -= 1;
                return self.turn(plane);
            }
            let (sender, turn) = oneshot::channel();
            state.lanes.push_sweeping(plane, sender, |waiting| !waiting.is_closed());
            turn
        };
        match turn.await {
            Ok(turn) => turn,
            // Whoever waits is in the queue until it gets a turn; if not, it goes without one.
            Err(_) => Turn { turns: None, plane },
        }
    }

    fn turn(self: &Arc<Turns>, plane: PlaneId) -> Turn {
        Turn { turns: Some(self.clone()), plane }
    }

    fn give_back(self: &Arc<Turns>, plane: PlaneId) {
        let mut state = self.state.lock();
        state.free += 1;
        state.lanes.leave(plane);
        while state.free > 0
            && let Some((plane, waiting)) = state.lanes.pop()
        {
            match waiting.send(self.turn(plane)) {
                Ok(()) => state.free -= 1,
                // Nobody waits there any longer.
                Err(mut turn) => {
                    turn.turns = None;
                    state.lanes.leave(plane);
                }
            }
        }
    }

    #[cfg(test)]
    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.free == READS && state.lanes.is_idle()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.give_back(self.plane);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    const A: PlaneId = PlaneId(1);
    const B: PlaneId = PlaneId(2);

    type Taking = std::pin::Pin<Box<dyn Future<Output = Turn>>>;

    fn taking(turns: &Arc<Turns>, plane: PlaneId) -> Taking {
        let turns = turns.clone();
        let mut taking: Taking = Box::pin(async move { turns.take(plane).await });
        assert!(poll(&mut taking).is_none());
        taking
    }

    fn poll(taking: &mut Taking) -> Option<Turn> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match taking.as_mut().poll(&mut context) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    fn take(turns: &Arc<Turns>, plane: PlaneId) -> Turn {
        let turns = turns.clone();
        let mut taking: Taking = Box::pin(async move { turns.take(plane).await });
        poll(&mut taking).expect("there is a turn")
    }

    #[test]
    fn a_plane_has_a_few_turns_and_others_have_theirs() {
        let turns = Turns::of_reads();
        let mut held: Vec<Turn> = (0..PLANE_READS).map(|_| take(&turns, A)).collect();
        let (mut first, mut given_up, mut second) = (taking(&turns, A), taking(&turns, A), taking(&turns, A));
        drop(take(&turns, B));
        assert!(poll(&mut given_up).is_none());
        drop(given_up);
        held.pop();
        let turn = poll(&mut first).expect("first come, first served");
        assert!(poll(&mut second).is_none());
        drop(turn);
        // It was given one and did not take it.
        drop(second);
        held.push(take(&turns, A));
        let mut third = taking(&turns, A);
        drop(held);
        drop(poll(&mut third).expect("whoever waits gets a turn"));
        assert!(turns.is_idle(), "nothing is left of them");
    }

    #[test]
    fn planes_take_turns_when_there_are_no_more() {
        let turns = Turns::of_reads();
        let others = (0..READS / PLANE_READS).map(|index| PlaneId(100 + index as u64));
        let held = others.flat_map(|plane| [plane; PLANE_READS]).map(|plane| take(&turns, plane));
        let mut held: Vec<Turn> = held.collect();
        let mut many: Vec<Taking> = (0..10).map(|_| taking(&turns, A)).collect();
        let mut one = taking(&turns, B);
        let mut kept = Vec::new();
        held.pop();
        kept.push(poll(&mut many[0]).expect("it came first"));
        held.pop();
        kept.push(poll(&mut one).expect("one read does not wait for ten"));
        for taking in &mut many[1..PLANE_READS] {
            held.pop();
            kept.push(poll(taking).expect("there is room"));
        }
        held.pop();
        assert!(poll(&mut many[PLANE_READS]).is_none(), "it has as many as it may");
        drop((many, one, kept, held));
        assert!(turns.is_idle(), "nothing is left of them");
    }
}
