//! What a document takes in memory once it is parsed, and how many that take much are worked on at one time.
//!
//! Text grows when it is parsed: two bytes (`1,`) become a value, of which there are several while a write is on its way
//! (what was, what is asked for, what will be). Nobody is given room for the worst that can be sent, so the few
//! documents that are worse than an ordinary request take turns instead.
//!
//! **Invariant.** Who works waits for no room and nobody else: it comes to an end by itself. Who has to wait for a webhook of
//! its plane makes place first.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::{PlaneId, Status};
use polder_registry::context::Pace;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::budget::ORDINARY_BYTES;

/// A text, and copies of its strings, weigh together so many times what the text weighs.
pub(crate) const TEXT_WEIGHT: usize = 4;
/// What a value takes, with its copies.
const VALUE_BYTES: usize = 96;
/// What one who is let in may take is about this part of what all bodies may take at least.
const BYTES_EACH: usize = 64 * 1024 * 1024;

/// What JSON or YAML takes while a write is made of it. An estimate: every value but the first follows one of these.
pub(crate) fn parsed_bytes(text: &[u8]) -> usize {
    let values = text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{' | b'\n')).count();
    text.len().saturating_mul(TEXT_WEIGHT).saturating_add(values.saturating_mul(VALUE_BYTES))
}

/// The same for a message, in which a value may take two bytes and nothing tells them apart.
pub(crate) fn message_bytes(message: &[u8]) -> usize {
    message.len().saturating_mul(TEXT_WEIGHT + VALUE_BYTES / 2)
}

/// Those that wait for somebody outside, a webhook, at one time.
const WAITING_MAX: usize = 16;

/// The turns of whatever is heavy: one of a plane at a time, so planes take turns.
pub(crate) struct Heavy {
    working: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    planes: Mutex<HashMap<PlaneId, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
pub(crate) struct Turn {
    _plane: OwnedSemaphorePermit,
    /// Among those who work; later perhaps among those who wait.
    place: Mutex<Place>,
    waiting: Arc<Semaphore>,
}

enum Place {
    Working(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
    Waiting(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
}

impl Heavy {
    pub(crate) fn new(cores: usize, in_flight_bytes_max: usize) -> Heavy {
        let most = (in_flight_bytes_max / BYTES_EACH).max(2);
        Heavy {
            working: Arc::new(Semaphore::new(cores.clamp(2, most))),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            planes: Mutex::default(),
        }
    }

    /// Waits for a turn, if so much needs one.
    pub(crate) async fn enter(&self, plane: PlaneId, bytes: usize) -> Option<Turn> {
        if bytes <= ORDINARY_BYTES {
            return None;
        }
        let own = {
            let mut planes = self.planes.lock();
            planes.retain(|_, own| Arc::strong_count(own) > 1);
            planes.entry(plane).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
        };
        // Nobody closes them.
        let _plane = own.acquire_owned().await.ok()?;
        let working = self.working.clone().acquire_owned().await.ok()?;
        let (place, waiting) = (Mutex::new(Place::Working(working)), self.waiting.clone());
        Some(Turn { _plane, place, waiting })
    }
}

impl Pace for Turn {
    fn waits(&self) -> Result<(), Status> {
        let mut place = self.place.lock();
        if matches!(*place, Place::Working(_)) {
            let full = "too many large requests wait for webhooks: try again later";
            let waiting = self.waiting.clone().try_acquire_owned();
            *place = Place::Waiting(waiting.map_err(|_| Status::too_many_requests(full, 1))?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn weights() {
        let many_values = format!("[{}1]", "1,".repeat(700_000));
        let many_lines = "- 1\n".repeat(400_000);
        let ordinary = format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(1_500_000));
        for (text, is_heavy) in [(&many_values, true), (&many_lines, true), (&ordinary, false)] {
            assert_eq!(parsed_bytes(text.as_bytes()) > ORDINARY_BYTES, is_heavy, "{:.20}", text);
        }
        assert!(parsed_bytes(br#"{"metadata":{"name":"a"}}"#) < 1024);
    }

    #[test]
    fn what_is_heavy_takes_turns() {
        let heavy = Heavy::new(16, 128 << 20);
        let enter = |plane: u64, bytes: usize| heavy.enter(PlaneId(plane), bytes).now_or_never();
        let first = enter(1, ORDINARY_BYTES + 1).flatten().unwrap();
        assert!(enter(1, usize::MAX).is_none(), "another of the same plane");
        let second = enter(2, usize::MAX).flatten().unwrap();
        assert!(enter(3, ORDINARY_BYTES + 1).is_none(), "a third plane");
        assert!(enter(3, ORDINARY_BYTES).is_some_and(|turn| turn.is_none()), "what is ordinary goes on");
        first.waits().unwrap();
        first.waits().unwrap();
        let third = enter(3, usize::MAX).flatten().unwrap();
        assert!(enter(1, usize::MAX).is_none(), "it waits, and its plane with it");
        drop((first, second, third));
        assert!(enter(1, usize::MAX).is_some());
    }
}
