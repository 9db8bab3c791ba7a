//! A watch: history after a revision, then live changes, each exactly once and in order.
//!
//! A watch holds no more than one chunk of events, bounded by weight. Its place in the feed is all that a slow watcher
//! costs: live events are only pointed to, and when one is not in memory any more the watch replays it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tokio::sync::broadcast;

use super::event::Event;
use super::replay::{self, Trail};
use super::{Live, WatchError, WatchScope};
use crate::committer::NO_PLANE;
use crate::key::Revision;
use crate::read::run_blocking;
use crate::shared::Shared;

/// A place between two events of a scope: before number `index` of a revision, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) revision: Revision,
    pub(super) index: usize,
}

impl Place {
    pub(super) fn start_of(revision: Revision) -> Place {
        Place { revision, index: 0 }
    }

    /// After one more event, of this revision.
    pub(super) fn after(self, revision: Revision) -> Place {
        if revision == self.revision {
            Place { revision, index: self.index + 1 }
        } else {
            Place { revision, index: 1 }
        }
    }
}

/// A bounded part of history.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Each with the place after it.
    pub(super) events: VecDeque<(Place, Arc<Event>)>,
    /// Where reading goes on.
    pub(super) next: Place,
}

impl Chunk {
    /// An empty one, after which nothing is left up to a revision.
    pub(super) fn up_to(until: Revision) -> Chunk {
        Chunk { events: VecDeque::new(), next: Place::start_of(until.next()) }
    }
}

/// A watch. Has no task and no queue: whoever wants the next event polls it.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    scope: WatchScope,
    /// `None` only while the watch is being dropped.
    live: Option<broadcast::Receiver<Live>>,
    /// What has been handed out.
    told: Place,
    backlog: VecDeque<(Place, Arc<Event>)>,
    /// History from `read` up to and including `replay_until` comes before live events.
    read: Place,
    replay_until: Revision,
    trail: Trail,
}

impl Watch {
    pub(crate) fn start(shared: Arc<Shared>, scope: WatchScope, after: Revision) -> Watch {
        // Subscribe first, then read the current revision: an event published in between is in both, and is
        // dropped from the live side; the other order would lose it.
        let live = shared.feed.subscribe(scope);
        // Asked for the future, a watch passes over what comes until then.
        let replay_until = shared.current().max(after);
        let told = Place::start_of(after.next());
        let (live, backlog, trail) = (Some(live), VecDeque::new(), Trail::Unknown);
        Watch { shared, scope, live, told, backlog, read: told, replay_until, trail }
    }

    /// The next event, if it is here already. Cheaper than [`Watch::next`], which gets ready to wait.
    pub fn ready(&mut self) -> Option<Arc<Event>> {
        loop {
            if let Some(event) = self.replayed() {
                return Some(event);
            }
            if self.is_behind() {
                return None;
            }
            match self.live.as_mut()?.try_recv() {
                Ok(live) => self.accept(&live),
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
            if self.is_behind() {
                self.replay().await?;
                continue;
            }
            let Some(live) = &mut self.live else { return Err(WatchError::Ended) };
            match live.recv().await {
                Ok(live) => self.accept(&live),
                Err(broadcast::error::RecvError::Lagged(_)) => self.fall_back(),
                Err(broadcast::error::RecvError::Closed) => return Err(WatchError::Ended),
            }
        }
    }

    /// The revision up to which everything that concerns this watch has been handed out; `None` while it is behind.
    pub fn progress(&mut self) -> Option<Revision> {
        // Read before looking at the channel: what had been delivered by then is in the channel or was taken out.
        let delivered = self.shared.delivered();
        while self.backlog.is_empty() && !self.is_behind() {
            match self.live.as_mut()?.try_recv() {
                Ok(live) => self.accept(&live),
                Err(broadcast::error::TryRecvError::Lagged(_)) => self.fall_back(),
                Err(broadcast::error::TryRecvError::Empty) => {
                    let told = if self.told.index > 0 { self.told.revision } else { Revision(0) };
                    return Some(delivered.max(self.replay_until).max(told));
                }
                Err(broadcast::error::TryRecvError::Closed) => return None,
            }
        }
        None
    }

    fn is_behind(&self) -> bool {
        self.read.revision <= self.replay_until
    }

    fn replayed(&mut self) -> Option<Arc<Event>> {
        let (place, event) = self.backlog.pop_front()?;
        self.told = place;
        Some(event)
    }

    /// Takes a live event in, unless a replay has covered it.
    fn accept(&mut self, live: &Live) {
        if live.revision <= self.replay_until {
            return;
        }
        match Weak::upgrade(&live.event) {
            Some(event) => self.backlog.push_back((self.told.after(live.revision), event)),
            None => self.fall_back(),
        }
    }

    /// Too slow for the live channel or for memory: replay what came after the last event that was handed out.
    fn fall_back(&mut self) {
        self.read = self.told.max(Place::start_of(self.replay_until.next()));
        self.replay_until = self.replay_until.max(self.shared.current());
        self.trail = Trail::Unknown;
    }

    async fn replay(&mut self) -> Result<(), WatchError> {
        let (place, until) = (self.read, self.replay_until);
        let chunk = match self.shared.feed.recent(self.scope, place, until) {
            Some(chunk) => chunk,
            None => {
                let (scope, trail) = (self.scope, std::mem::take(&mut self.trail));
                let plane = match scope {
                    WatchScope::Collection(plane, _) => plane,
                    WatchScope::Everything => NO_PLANE,
                };
                let read = run_blocking(&self.shared, plane, move |shared| {
                    replay::read(shared, scope, place, until, trail)
                });
                let (chunk, trail) = read.await.ok_or(WatchError::Ended)??;
                self.trail = trail;
                chunk
            }
        };
        self.backlog = chunk.events;
        self.read = chunk.next;
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.live = None;
        self.shared.feed.unsubscribed(self.scope);
    }
}
