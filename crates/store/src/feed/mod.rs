//! The one ordered feed of changes, and watches on it.
//!
//! The committer publishes every change here after it is durable. A watch first replays history (from a bounded ring
//! in memory, else from the engine's log) and then follows live; when it falls behind it replays again, so a slow
//! watcher costs nobody memory and misses nothing that is still kept. A collection nobody watches costs nothing.
//!
//! Only the ring owns events ([`recent`]); live channels point to them. So the memory of all watches together is
//! the ring's, which is bounded in bytes, and one bounded chunk for each watch that is reading history.

mod event;
mod recent;
mod replay;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use polder_model::PlaneId;
use tokio::sync::broadcast;

pub use self::event::Event;
pub(crate) use self::event::FrameBudget;
use self::recent::Recent;
pub use self::watch::Watch;
use self::watch::{Chunk, Place};
use crate::committer::NO_PLANE;
use crate::engine::EngineError;
use crate::key::{ResourceId, Revision};

/// Live events a watcher may be behind before it replays.
const LIVE_LEN_MAX: usize = 64;
/// Events, or log entries, taken from history at once.
const CHUNK_LEN_MAX: usize = 256;
/// When the events of a chunk weigh so much it is full, whatever their number.
const CHUNK_BYTES_MAX: usize = 128 << 10;

/// What a watch sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchScope {
    /// One resource of one plane.
    Collection(PlaneId, ResourceId),
    /// Every change in the store: for controllers and replicas.
    Everything,
}

impl WatchScope {
    fn covers(self, plane: PlaneId, resource: ResourceId) -> bool {
        match self {
            WatchScope::Collection(own_plane, own_resource) => (own_plane, own_resource) == (plane, resource),
            // The making of a base layer is in the log, but is no plane's change.
            WatchScope::Everything => plane != NO_PLANE,
        }
    }
}

/// Why a watch cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("history up to {compacted} is gone")]
    Compacted { compacted: Revision },
    /// The plane was deleted, or the server stops.
    #[error("the watch has ended")]
    Ended,
    #[error("cannot read history")]
    Engine(#[from] EngineError),
}

/// The publishing side.
#[derive(Debug)]
pub(crate) struct Feed {
    recent: RwLock<Recent>,
    frames: Arc<FrameBudget>,
    channels: Mutex<Channels>,
}

#[derive(Debug, Default)]
struct Channels {
    collections: BTreeMap<(PlaneId, ResourceId), broadcast::Sender<Live>>,
    everything: Option<broadcast::Sender<Live>>,
    /// The server stops: whoever comes now is told so at once.
    ended: bool,
}

/// An event that has just happened. Weak, so that a channel somebody does not read keeps nothing in memory.
#[derive(Clone, Debug)]
struct Live {
    revision: Revision,
    event: Weak<Event>,
}

impl Feed {
    pub(crate) fn new(current: Revision, recent_bytes_max: usize) -> Feed {
        Feed {
            recent: RwLock::new(Recent::new(current, recent_bytes_max)),
            frames: Arc::new(FrameBudget::new(recent_bytes_max / 2)),
            channels: Mutex::default(),
        }
    }

    /// What encodings of events count against.
    pub(crate) fn frames(&self) -> &Arc<FrameBudget> {
        &self.frames
    }

    /// Remembers events for replay. Called before their revision becomes visible as current.
    pub(crate) fn remember(&self, events: &[Arc<Event>]) {
        let mut recent = self.recent.write();
        for event in events {
            recent.push(event);
        }
        recent.evict(self.frames.used());
    }

    /// Hands events to live watchers. Called after their revision has become current.
    pub(crate) fn deliver(&self, events: &[Arc<Event>]) {
        let channels = self.channels.lock();
        for event in events {
            let live = || Live { revision: event.revision, event: Arc::downgrade(event) };
            if let Some(channel) = channels.collections.get(&(event.plane, event.resource)) {
                // An error only says that nobody listens any more.
                channel.send(live()).ok();
            }
            if let Some(channel) = &channels.everything {
                channel.send(live()).ok();
            }
        }
    }

    /// Ends every watch on a plane.
    pub(crate) fn end_plane(&self, plane: PlaneId) {
        let mut channels = self.channels.lock();
        let range = (plane, ResourceId(0))..=(plane, ResourceId(u32::MAX));
        let keys: Vec<_> = channels.collections.range(range).map(|(key, _)| *key).collect();
        for key in keys {
            channels.collections.remove(&key);
        }
    }

    /// Ends every watch on one collection: its definition changed or is gone.
    pub(crate) fn end_collection(&self, plane: PlaneId, resource: ResourceId) {
        self.channels.lock().collections.remove(&(plane, resource));
    }

    pub(crate) fn end_collections(&self) {
        self.channels.lock().collections.clear();
    }

    pub(crate) fn end_all(&self) {
        let mut channels = self.channels.lock();
        channels.collections.clear();
        channels.everything = None;
        channels.ended = true;
    }

    fn subscribe(&self, scope: WatchScope) -> broadcast::Receiver<Live> {
        let mut channels = self.channels.lock();
        if channels.ended {
            return broadcast::Sender::new(1).subscribe();
        }
        let channel = match scope {
            WatchScope::Collection(plane, resource) => channels
                .collections
                .entry((plane, resource))
                .or_insert_with(|| broadcast::Sender::new(LIVE_LEN_MAX)),
            WatchScope::Everything => {
                channels.everything.get_or_insert_with(|| broadcast::Sender::new(LIVE_LEN_MAX))
            }
        };
        channel.subscribe()
    }

    /// Forgets the channel of a collection that nobody watches any more.
    fn unsubscribed(&self, scope: WatchScope) {
        let mut channels = self.channels.lock();
        if let WatchScope::Collection(plane, resource) = scope {
            let key = (plane, resource);
            if channels.collections.get(&key).is_some_and(|channel| channel.receiver_count() == 0) {
                channels.collections.remove(&key);
            }
        }
    }

    /// The next events of a scope from memory, if memory reaches back that far.
    fn recent(&self, scope: WatchScope, place: Place, until: Revision) -> Option<Chunk> {
        self.recent.read().read(scope, place, until)
    }
}
