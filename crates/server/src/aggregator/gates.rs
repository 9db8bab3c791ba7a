//! How much of extension servers planes have under way. Ordinary calls wait for a place, and planes take turns in getting one;
//! streams, which last, get one or are refused.
//!
//! Invariant: however much one plane has under way, another that has little finds a place while there is any, and the less there
//! is, the less one plane may have of it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::{PlaneId, Shares};
use polder_store::{Turn, Turns};

/// Ordinary calls under way, of one plane and of all; the next one waits, and its time runs.
const PLANE_CALLS_MAX: usize = 64;
const CALLS_MAX: usize = 8192;
/// Watches and other streams, of one plane and of all; the next one is refused.
const PLANE_STREAMS_MAX: usize = 128;
const STREAMS_MAX: usize = 16_384;
/// So many streams a plane may have while there are any; of more, only a small part of what is left.
const PLANE_STREAMS_FEW: usize = 8;
const STREAMS_SHARE: usize = 16;
/// Planes whose documents nobody fetches are forgotten when there are more than this.
const IDLE_LEN_MAX: usize = 256;

pub(super) struct Gates {
    calls: Arc<Turns>,
    streams: Arc<Mutex<Shares>>,
    fetching: Mutex<HashMap<PlaneId, Arc<tokio::sync::Mutex<()>>>>,
}

/// A place among the calls of a plane and of all.
pub(crate) enum Under {
    Call(#[expect(dead_code, reason = "it is held, not looked at")] Turn),
    Stream(#[expect(dead_code, reason = "it is held, not looked at")] StreamPlace),
}

pub(crate) struct StreamPlace {
    streams: Arc<Mutex<Shares>>,
    plane: PlaneId,
}

impl Default for Gates {
    fn default() -> Gates {
        Gates {
            calls: Turns::new(CALLS_MAX, PLANE_CALLS_MAX),
            streams: Arc::default(),
            fetching: Mutex::default(),
        }
    }
}

impl Gates {
    /// Waits for a place for an ordinary call.
    pub(super) async fn enter(&self, plane: PlaneId) -> Under {
        Under::Call(self.calls.take(plane).await)
    }

    /// A place for a stream, if there is one.
    pub(super) fn enter_stream(&self, plane: PlaneId) -> Option<Under> {
        let mut streams = self.streams.lock();
        let own_max =
            ((STREAMS_MAX - streams.all()) / STREAMS_SHARE).clamp(PLANE_STREAMS_FEW, PLANE_STREAMS_MAX);
        if !streams.take(plane, 1, own_max, STREAMS_MAX) {
            return None;
        }
        Some(Under::Stream(StreamPlace { streams: self.streams.clone(), plane }))
    }

    /// Whoever asks for documents of a plane while they are fetched waits for them.
    pub(super) fn fetching(&self, plane: PlaneId) -> Arc<tokio::sync::Mutex<()>> {
        let mut fetching = self.fetching.lock();
        if fetching.len() > IDLE_LEN_MAX {
            fetching.retain(|_, gate| Arc::strong_count(gate) > 1);
        }
        fetching.entry(plane).or_default().clone()
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.streams.lock().give_back(self.plane, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_shared_out() {
        let gates = Gates::default();
        let take = |plane: u64| {
            let mut held = Vec::new();
            while let Some(place) = gates.enter_stream(PlaneId(plane)) {
                held.push(place);
            }
            held
        };
        let first = take(1);
        assert_eq!(first.len(), PLANE_STREAMS_MAX);
        let many: Vec<_> = (2..150).map(take).collect();
        let late = take(150);
        assert!(late.len() >= PLANE_STREAMS_FEW, "there is something left for whoever comes late");
        drop((first, many, late));
        let streams = gates.streams.lock();
        assert_eq!(streams.all(), 0);
    }

    #[tokio::test]
    async fn planes_take_turns_in_calling() {
        use futures_util::FutureExt as _;
        let gates = Gates::default();
        let mut held = Vec::new();
        for plane in 0..(CALLS_MAX / PLANE_CALLS_MAX) as u64 {
            for _ in 0..PLANE_CALLS_MAX {
                held.push((plane, gates.enter(PlaneId(plane)).await));
            }
        }
        let mut greedy: Vec<_> = (0..10).map(|_| Box::pin(gates.enter(PlaneId(5000)))).collect();
        assert!(greedy.iter_mut().all(|one| one.now_or_never().is_none()));
        let mut modest = Box::pin(gates.enter(PlaneId(5001)));
        assert!((&mut modest).now_or_never().is_none());
        held.truncate(held.len() - 2);
        let entered = greedy.iter_mut().filter_map(|one| one.now_or_never()).collect::<Vec<_>>();
        assert_eq!(entered.len(), 1, "one of many, then the next plane");
        assert!(modest.now_or_never().is_some());
    }
}
