//! Recent events in memory, for watches that resume and for those that are slow: one ring for all planes, bounded by
//! what its events weigh, with an index by collection, so that a watch looks at nobody else's events.
//!
//! The committer waits for whoever reads here. So a read takes a bounded chunk, found without looking at others.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use polder_model::PlaneId;

use super::event::Event;
use super::watch::{Chunk, Place};
use super::{CHUNK_BYTES_MAX, CHUNK_LEN_MAX, WatchScope};
use crate::key::{ResourceId, Revision};

#[derive(Debug)]
pub(super) struct Recent {
    events: VecDeque<Arc<Event>>,
    /// The same events, by collection. Those of a collection leave in the order they came, too.
    collections: HashMap<(PlaneId, ResourceId), VecDeque<Arc<Event>>>,
    /// Every event after this revision is in `events`.
    complete_after: Revision,
    bytes: usize,
    bytes_max: usize,
}

impl Recent {
    pub(super) fn new(current: Revision, bytes_max: usize) -> Recent {
        Recent {
            events: VecDeque::new(),
            collections: HashMap::new(),
            complete_after: current,
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) fn push(&mut self, event: &Arc<Event>) {
        self.bytes += event.weight();
        self.collections.entry((event.plane, event.resource)).or_default().push_back(event.clone());
        self.events.push_back(event.clone());
    }

    /// Lets the oldest go until the rest, with `beside` bytes of encodings, fits.
    pub(super) fn evict(&mut self, beside: usize) {
        while self.bytes + beside > self.bytes_max {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.weight();
            self.complete_after = oldest.revision;
            let key = (oldest.plane, oldest.resource);
            if let Some(own) = self.collections.get_mut(&key) {
                own.pop_front();
                if own.is_empty() {
                    self.collections.remove(&key);
                }
            }
        }
    }

    /// The next events of a scope up to a revision, if memory reaches back that far.
    pub(super) fn read(&self, scope: WatchScope, place: Place, until: Revision) -> Option<Chunk> {
        if place.revision <= self.complete_after {
            return None;
        }
        let mut chunk = Chunk::up_to(until);
        let events = match scope {
            WatchScope::Everything => Some(&self.events),
            WatchScope::Collection(plane, resource) => self.collections.get(&(plane, resource)),
        };
        let Some(events) = events else { return Some(chunk) };
        let first = events.partition_point(|event| event.revision < place.revision);
        let mut now = Place { revision: place.revision, index: 0 };
        let mut bytes = 0;
        for event in events.range(first..).take_while(|event| event.revision <= until) {
            now = now.after(event.revision);
            if now <= place {
                continue;
            }
            if chunk.events.len() == CHUNK_LEN_MAX || bytes > CHUNK_BYTES_MAX {
                chunk.next = chunk.events.back().map_or(place, |(place, _)| *place);
                break;
            }
            bytes += event.weight();
            chunk.events.push_back((now, event.clone()));
        }
        Some(chunk)
    }
}
