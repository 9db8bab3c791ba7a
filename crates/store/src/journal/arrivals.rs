//! Entries on their way from a server to the committer: what has arrived waits here until it is asked for. When much waits,
//! whoever brings it waits too.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::engine::Bell;

/// An entry as it arrived.
#[derive(Clone, Debug)]
pub struct Arrived<T> {
    pub position: u64,
    pub entry: T,
    len: usize,
}

/// Why the next entry is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It has been forgotten.
    Compacted,
    /// It does not arrive.
    Late,
    /// What is there is not what this replica knows.
    Damaged(String),
}

struct State<T> {
    queue: VecDeque<Arrived<T>>,
    queued_bytes: usize,
    bell: Option<Bell>,
    /// Nothing will arrive any more.
    end: Option<Missing>,
    /// The newest entry that is known to be there.
    known: u64,
}

pub struct Arrivals<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
    room: Notify,
    queued_bytes_max: usize,
}

impl<T: Clone> Arrivals<T> {
    pub fn new(queued_bytes_max: usize) -> Arrivals<T> {
        let queue = VecDeque::new();
        let state = Mutex::new(State { queue, queued_bytes: 0, bell: None, end: None, known: 0 });
        Arrivals { state, arrived: Condvar::new(), room: Notify::new(), queued_bytes_max }
    }

    pub fn set_bell(&self, bell: Bell) {
        self.state.lock().bell = Some(bell);
    }

    /// For whoever begins anew: nothing has arrived, but the bell is the same.
    #[must_use]
    pub fn anew(&self) -> Arrivals<T> {
        let anew = Arrivals::new(self.queued_bytes_max);
        anew.state.lock().bell.clone_from(&self.state.lock().bell);
        anew
    }

    /// There is an entry at this position: whoever asks for what is before it waits until that arrives. Says whether that is
    /// news.
    pub fn expect(&self, position: u64) -> bool {
        let mut state = self.state.lock();
        let is_news = position > state.known;
        state.known = state.known.max(position);
        is_news
    }

    /// The first entry behind a position. Waits for one that is known to be there.
    pub fn first(&self, after: u64, patience: Duration) -> Result<Option<Arrived<T>>, Missing> {
        let deadline = std::time::Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            while state.queue.front().is_some_and(|arrived| arrived.position <= after) {
                let gone = state.queue.pop_front();
                state.queued_bytes -= gone.map_or(0, |gone| gone.len);
                self.room.notify_one();
            }
            if let Some(arrived) = state.queue.front() {
                return Ok(Some(arrived.clone()));
            }
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            if state.known <= after {
                return Ok(None);
            }
            if self.arrived.wait_until(&mut state, deadline).timed_out() {
                return Err(Missing::Late);
            }
        }
    }

    /// Where the first entry is that has arrived and is behind a position.
    pub fn first_position(&self, after: u64) -> Option<u64> {
        let state = self.state.lock();
        state.queue.iter().map(|arrived| arrived.position).find(|position| *position > after)
    }

    /// An entry of so many bytes has arrived. The bell is not rung for whoever wrote it. Waits for room.
    pub async fn push(&self, position: u64, entry: T, len: usize, is_own: bool) {
        let bell = {
            let mut state = self.state.lock();
            state.known = state.known.max(position);
            state.queued_bytes += len;
            state.queue.push_back(Arrived { position, entry, len });
            state.bell.clone().filter(|_| !is_own)
        };
        self.arrived.notify_all();
        if let Some(bell) = bell {
            bell();
        }
        while self.state.lock().queued_bytes > self.queued_bytes_max {
            self.room.notified().await;
        }
    }

    /// Nothing will arrive any more, and why.
    pub fn finish(&self, why: Missing) {
        let bell = {
            let mut state = self.state.lock();
            state.end = Some(why);
            state.bell.clone()
        };
        self.arrived.notify_all();
        if let Some(bell) = bell {
            bell();
        }
    }
}
