//! One change of one object, and its encodings, which all watchers of it share.
//!
//! Encodings are kept within a [`FrameBudget`]: when it is used up they are made anew for whoever asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use polder_model::PlaneId;

use crate::key::{ObjectName, ResourceId, Revision};
use crate::object::StoredObject;

/// Encodings of one event that are kept: a client can ask for many more than anybody uses.
const FRAMES_LEN_MAX: usize = 8;
/// What an event costs beside the objects: itself, and its places in the ring.
const EVENT_OVERHEAD: usize = 256;

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    pub revision: Revision,
    pub plane: PlaneId,
    pub resource: ResourceId,
    /// The object before; `None` when it was created.
    pub old: Option<Arc<StoredObject>>,
    /// The object after; `None` when it was deleted.
    pub new: Option<Arc<StoredObject>>,
    frames: Option<Frames>,
}

/// Bytes of encodings that all events together may keep.
#[derive(Debug)]
pub(crate) struct FrameBudget {
    used: AtomicUsize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Frames {
    made: Mutex<Vec<(u64, Bytes)>>,
    budget: Arc<FrameBudget>,
}

impl Event {
    /// An event that one watcher replays: nobody shares its encodings.
    pub fn new(
        revision: Revision,
        plane: PlaneId,
        resource: ResourceId,
        old: Option<Arc<StoredObject>>,
        new: Option<Arc<StoredObject>>,
    ) -> Event {
        Event { revision, plane, resource, old, new, frames: None }
    }

    /// An event for everybody.
    pub(crate) fn shared(self, budget: Arc<FrameBudget>) -> Arc<Event> {
        Arc::new(Event { frames: Some(Frames { made: Mutex::default(), budget }), ..self })
    }

    pub fn name(&self) -> Option<&ObjectName> {
        self.new.as_ref().or(self.old.as_ref()).map(|object| &object.name)
    }

    /// The event in one representation, encoded by the first watcher that needs it and shared by the rest.
    pub fn frame(&self, representation: u64, encode: impl FnOnce() -> Bytes) -> Bytes {
        let Some(Frames { made, budget }) = &self.frames else { return encode() };
        let mut made = made.lock();
        if let Some((_, frame)) = made.iter().find(|(own, _)| *own == representation) {
            return frame.clone();
        }
        let frame = encode();
        if made.len() < FRAMES_LEN_MAX && budget.take(frame.len()) {
            made.push((representation, frame.clone()));
        }
        frame
    }

    pub(super) fn weight(&self) -> usize {
        let size =
            |object: &Option<Arc<StoredObject>>| object.as_ref().map_or(0, |object| object.record.len());
        EVENT_OVERHEAD + size(&self.old) + size(&self.new)
    }
}

impl FrameBudget {
    pub(super) fn new(bytes_max: usize) -> FrameBudget {
        FrameBudget { used: AtomicUsize::new(0), bytes_max }
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, len: usize) -> bool {
        let fits = |used: usize| used.checked_add(len).filter(|sum| *sum <= self.bytes_max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let len: usize = self.made.get_mut().iter().map(|(_, frame)| frame.len()).sum();
        self.budget.used.fetch_sub(len, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_shared_within_the_budget() {
        let budget = Arc::new(FrameBudget::new(1_000));
        let event = || Event::new(Revision(1), PlaneId(1), ResourceId(1), None, None).shared(budget.clone());
        let encode = |len: usize| move || Bytes::from(vec![b'x'; len]);
        let never = || -> Bytes { panic!("it is encoded already") };
        let (one, two) = (event(), event());
        assert_eq!(one.frame(7, encode(600)), one.frame(7, never), "one encoding for all");
        assert_eq!(two.frame(7, encode(600)).len(), 600, "no room: it is still answered");
        assert_eq!((two.frame(7, encode(300)).len(), two.frame(7, never).len()), (300, 300));
        assert_eq!(budget.used(), 900);
        for representation in 0..100 {
            two.frame(representation, encode(1));
        }
        assert_eq!(budget.used(), 900 + FRAMES_LEN_MAX - 1, "however many forms a client asks for");
        drop((one, two));
        assert_eq!(budget.used(), 0);
    }
}
