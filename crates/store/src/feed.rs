//! The one ordered feed of changes, and watches on it.
//!
//! The committer publishes every change here after it is durable. A watch first replays history (from a bounded ring
//! in memory, else from the engine's log) and then follows live; when it falls behind it replays again, so a slow
//! watcher costs nobody memory and misses nothing that is still kept. A collection nobody watches costs nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use polder_model::PlaneId;
use tokio::sync::broadcast;

use crate::committer::NO_PLANE;
use crate::engine::EngineError;
use crate::key::{ObjectName, ResourceId, Revision};
use crate::object::StoredObject;
use crate::shared::Shared;

/// Live events a watcher may be behind before it replays.
const LIVE_LEN_MAX: usize = 64;
/// Log entries read at once while replaying.
const REPLAY_CHUNK_LEN: usize = 512;

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
    /// Encodings made so far, shared by all watchers; see [`Event::frame`].
    frames: Mutex<Vec<(u64, Bytes)>>,
}

impl Event {
    pub(crate) fn new(
        revision: Revision,
        plane: PlaneId,
        resource: ResourceId,
        old: Option<Arc<StoredObject>>,
        new: Option<Arc<StoredObject>>,
    ) -> Event {
        Event { revision, plane, resource, old, new, frames: Mutex::default() }
    }

    pub fn name(&self) -> Option<&ObjectName> {
        self.new.as_ref().or(self.old.as_ref()).map(|object| &object.name)
    }

    /// The event in one representation, encoded by the first watcher that needs it and shared by the rest.
    pub fn frame(&self, representation: u64, encode: impl FnOnce() -> Bytes) -> Bytes {
        let mut frames = self.frames.lock();
        if let Some((_, frame)) = frames.iter().find(|(own, _)| *own == representation) {
            return frame.clone();
        }
        let frame = encode();
        frames.push((representation, frame.clone()));
        frame
    }

    fn weight(&self) -> usize {
        let size =
            |object: &Option<Arc<StoredObject>>| object.as_ref().map_or(0, |object| object.record.len());
        128 + size(&self.old) + size(&self.new)
    }
}

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
    recent: Mutex<Recent>,
    channels: Mutex<Channels>,
}

#[derive(Debug, Default)]
struct Channels {
    collections: BTreeMap<(PlaneId, ResourceId), broadcast::Sender<Arc<Event>>>,
    everything: Option<broadcast::Sender<Arc<Event>>>,
    /// The server stops: whoever comes now is told so at once.
    ended: bool,
}

#[derive(Debug)]
struct Recent {
    events: VecDeque<Arc<Event>>,
    /// Every event after this revision is in `events`.
    complete_after: Revision,
    bytes: usize,
    bytes_max: usize,
}

impl Feed {
    pub(crate) fn new(current: Revision, recent_bytes_max: usize) -> Feed {
        Feed {
            recent: Mutex::new(Recent {
                events: VecDeque::new(),
                complete_after: current,
                bytes: 0,
                bytes_max: recent_bytes_max,
            }),
            channels: Mutex::default(),
        }
    }

    /// Remembers events for replay. Called before their revision becomes visible as current.
    pub(crate) fn remember(&self, events: &[Arc<Event>]) {
        let mut recent = self.recent.lock();
        for event in events {
            recent.bytes += event.weight();
            recent.events.push_back(event.clone());
        }
        while recent.bytes > recent.bytes_max {
            let Some(oldest) = recent.events.pop_front() else { break };
            recent.bytes -= oldest.weight();
            recent.complete_after = oldest.revision;
        }
    }

    /// Hands events to live watchers. Called after their revision has become current.
    pub(crate) fn deliver(&self, events: &[Arc<Event>]) {
        let channels = self.channels.lock();
        for event in events {
            if let Some(channel) = channels.collections.get(&(event.plane, event.resource)) {
                // An error only says that nobody listens any more.
                channel.send(event.clone()).ok();
            }
            if let Some(channel) = &channels.everything {
                channel.send(event.clone()).ok();
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

    pub(crate) fn end_all(&self) {
        let mut channels = self.channels.lock();
        channels.collections.clear();
        channels.everything = None;
        channels.ended = true;
    }

    fn subscribe(&self, scope: WatchScope) -> broadcast::Receiver<Arc<Event>> {
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

    /// The events of a scope in `(after, until]` from memory, if memory reaches back that far.
    fn recent(&self, scope: WatchScope, after: Revision, until: Revision) -> Option<VecDeque<Arc<Event>>> {
        let recent = self.recent.lock();
        if after < recent.complete_after {
            return None;
        }
        let from = recent.events.partition_point(|event| event.revision <= after);
        let events = recent.events.range(from..).take_while(|event| event.revision <= until);
        Some(events.filter(|event| scope.covers(event.plane, event.resource)).cloned().collect())
    }
}

/// A watch: history after a revision, then live changes, each exactly once and in order.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    scope: WatchScope,
    /// `None` only while the watch is being dropped.
    live: Option<broadcast::Receiver<Arc<Event>>>,
    /// Replay history in `(replay_after, replay_until]` before looking at live events.
    replay_after: Revision,
    replay_until: Revision,
    backlog: VecDeque<Arc<Event>>,
    /// The last event handed out: its revision, and how many of that revision came before and with it.
    position: (Revision, usize),
    /// Events of `position.0` to pass over after a replay that had to start at that revision again.
    skip: usize,
}

impl Watch {
    pub(crate) fn start(shared: Arc<Shared>, scope: WatchScope, after: Revision) -> Watch {
        // Subscribe first, then read the current revision: an event published in between is in both, and is
        // dropped from the live side; the other order would lose it.
        let live = shared.feed.subscribe(scope);
        // Asked for the future, a watch passes over what comes until then.
        let until = shared.current().max(after);
        Watch {
            shared,
            scope,
            live: Some(live),
            replay_after: after,
            replay_until: until,
            backlog: VecDeque::new(),
            position: (after, 0),
            skip: 0,
        }
    }

    /// The next event, if it is here already. Cheaper than [`Watch::next`], which gets ready to wait.
    pub fn ready(&mut self) -> Option<Arc<Event>> {
        loop {
            if let Some(event) = self.replayed() {
                return Some(event);
            }
            if self.replay_after < self.replay_until {
                return None;
            }
            match self.live.as_mut()?.try_recv() {
                Ok(event) if event.revision <= self.replay_until => {}
                Ok(event) => return Some(self.deliver(event)),
                Err(broadcast::error::TryRecvError::Lagged(_)) => self.fall_back(),
                // That it is closed is told to whoever waits for more.
                Err(_) => return None,
            }
        }
    }

    /// The next event. Safe to cancel: a dropped call loses nothing.
    pub async fn next(&mut self) -> Result<Arc<Event>, WatchError> {
        loop {
            if let Some(event) = self.replayed() {
                return Ok(event);
            }
            if self.replay_after < self.replay_until {
                self.replay().await?;
                continue;
            }
            let Some(live) = &mut self.live else { return Err(WatchError::Ended) };
            match live.recv().await {
                Ok(event) if event.revision <= self.replay_until => {}
                Ok(event) => return Ok(self.deliver(event)),
                Err(broadcast::error::RecvError::Lagged(_)) => self.fall_back(),
                Err(broadcast::error::RecvError::Closed) => return Err(WatchError::Ended),
            }
        }
    }

    /// The revision up to which everything that concerns this watch has been handed out; `None` while it is behind.
    pub fn progress(&mut self) -> Option<Revision> {
        // Read before looking at the channel: what had been delivered by then is in the channel or was taken out.
        let delivered = self.shared.delivered();
        while self.backlog.is_empty() && self.replay_after >= self.replay_until {
            match self.live.as_mut()?.try_recv() {
                // A replay has covered it.
                Ok(event) if event.revision <= self.replay_until => {}
                Ok(event) => self.backlog.push_back(event),
                Err(broadcast::error::TryRecvError::Lagged(_)) => self.fall_back(),
                Err(broadcast::error::TryRecvError::Empty) => {
                    return Some(delivered.max(self.replay_until).max(self.position.0));
                }
                Err(broadcast::error::TryRecvError::Closed) => return None,
            }
        }
        None
    }

    /// The next event of a replay.
    fn replayed(&mut self) -> Option<Arc<Event>> {
        while let Some(event) = self.backlog.pop_front() {
            if self.skip > 0 && event.revision == self.position.0 {
                self.skip -= 1;
                continue;
            }
            self.skip = 0;
            return Some(self.deliver(event));
        }
        None
    }

    fn deliver(&mut self, event: Arc<Event>) -> Arc<Event> {
        if event.revision == self.position.0 {
            self.position.1 += 1;
        } else {
            self.position = (event.revision, 1);
        }
        event
    }

    /// Too slow for the live channel: replay what came after the last event that was handed out.
    fn fall_back(&mut self) {
        let (revision, count) = self.position;
        if revision > self.replay_until && count > 0 {
            // Part of that revision may still be due, so it is read again and its first events are passed over.
            self.replay_after = Revision(revision.0 - 1);
            self.skip = count;
        } else {
            self.replay_after = self.replay_until;
        }
        self.replay_until = self.replay_until.max(self.shared.current());
    }

    async fn replay(&mut self) -> Result<(), WatchError> {
        if let Some(events) = self.shared.feed.recent(self.scope, self.replay_after, self.replay_until) {
            self.backlog = events;
            self.replay_after = self.replay_until;
            return Ok(());
        }
        let (shared, scope) = (self.shared.clone(), self.scope);
        let (after, until) = (self.replay_after, self.replay_until);
        let chunk = tokio::task::spawn_blocking(move || read_log(&shared, scope, after, until)).await;
        let (events, read_up_to) = chunk.map_err(|_| WatchError::Ended)??;
        self.backlog = events;
        self.replay_after = read_up_to;
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.live = None;
        self.shared.feed.unsubscribed(self.scope);
    }
}

/// One chunk of history from the engine, and the revision it reaches.
fn read_log(
    shared: &Shared,
    scope: WatchScope,
    after: Revision,
    until: Revision,
) -> Result<(VecDeque<Arc<Event>>, Revision), WatchError> {
    let entries = shared.reader.log(after, REPLAY_CHUNK_LEN)?;
    let read_up_to = match entries.last() {
        Some(last) if last.revision < until => last.revision,
        _ => until,
    };
    let mut events = VecDeque::new();
    for entry in entries.iter().filter(|entry| entry.revision <= until) {
        if !scope.covers(entry.plane, entry.resource) {
            continue;
        }
        let find = |space, at| -> Result<Option<Arc<StoredObject>>, EngineError> {
            let version = shared.reader.version(space, entry.resource, &entry.name, at)?;
            Ok(version.and_then(|version| {
                let (name, revision) = (entry.name.clone(), version.revision);
                version.record.map(|record| Arc::new(StoredObject { name, revision, space, record }))
            }))
        };
        let old = entry.previous.map_or(Ok(None), |(space, at)| find(space, at))?;
        let new = if entry.deleted { None } else { find(entry.space, entry.revision)? };
        // The plane has been deleted and its space returned: there is nothing left to tell about.
        if new.is_none() && (!entry.deleted || old.is_none()) {
            continue;
        }
        events.push_back(Arc::new(Event::new(entry.revision, entry.plane, entry.resource, old, new)));
    }
    // Checked last: what was read is only trusted if it was not being compacted away meanwhile.
    let compacted = shared.compacted();
    if after < compacted {
        return Err(WatchError::Compacted { compacted });
    }
    Ok((events, read_up_to))
}
