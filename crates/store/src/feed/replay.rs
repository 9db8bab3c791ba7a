//! History from the engine's log, a chunk at a time.
//!
//! A watch of one plane follows that plane's own commits ([`LogEntry::before`] leads from each to the one before it),
//! so that it reads nothing of others, and nothing at all when its plane has not changed. The log itself is read where
//! that is shorter, where the plane has so many commits that its trail would be long, and where there is no trail:
//! in logs that an older version wrote.

use std::sync::Arc;

use polder_model::PlaneId;

use super::event::Event;
use super::watch::{Chunk, Place};
use super::{CHUNK_BYTES_MAX, CHUNK_LEN_MAX, WatchError, WatchScope};
use crate::engine::{EngineError, LogEntry};
use crate::key::{Revision, SpaceId};
use crate::object::StoredObject;
use crate::plane::Plane;
use crate::read::ReadError;
use crate::shared::Shared;

/// So many commits of one plane are looked for one by one. A plane with more of them since some revision has a good
/// part of the log to itself.
const TRAIL_LEN_MAX: usize = 16_384;

/// The commits that a replay has still to read.
#[derive(Debug, Default)]
pub(super) enum Trail {
    #[default]
    Unknown,
    /// One plane's, the newest first.
    Commits(Vec<Revision>),
    /// Everybody's: there is no better way.
    Log,
}

/// The next events of a scope up to a revision.
pub(super) fn read(
    shared: &Shared,
    scope: WatchScope,
    place: Place,
    until: Revision,
    trail: Trail,
) -> Result<(Chunk, Trail), WatchError> {
    let trail = match (trail, scope) {
        (Trail::Unknown, WatchScope::Collection(plane, _)) => follow(shared, plane, place, until)?,
        (Trail::Unknown, WatchScope::Everything) => Trail::Log,
        (known, _) => known,
    };
    let (chunk, trail) = match trail {
        Trail::Commits(commits) => read_commits(shared, scope, place, until, commits)?,
        trail => (read_log(shared, scope, place, until)?, trail),
    };
    // Checked last: what was read is only trusted if it was not being compacted away meanwhile.
    let compacted = shared.compacted();
    if place.revision <= compacted {
        return Err(WatchError::Compacted { compacted });
    }
    Ok((chunk, trail))
}

/// Finds a plane's commits from a place up to a revision.
fn follow(shared: &Shared, plane: PlaneId, place: Place, until: Revision) -> Result<Trail, WatchError> {
    if until.0.saturating_sub(place.revision.0) < CHUNK_LEN_MAX as u64 {
        return Ok(Trail::Log);
    }
    let known = shared.planes.read().by_id.get(&plane).cloned();
    let mut next = known.ok_or(WatchError::Ended)?.usage.last_change();
    let mut commits = Vec::new();
    for _ in 0..TRAIL_LEN_MAX {
        match next {
            Some(revision) if revision < place.revision => return Ok(Trail::Commits(commits)),
            Some(revision) => {
                if revision <= until {
                    commits.push(revision);
                }
                let entries = shared.reader.commit(revision)?;
                next = entries.iter().find(|entry| entry.plane == plane).and_then(|entry| entry.before);
            }
            None => return Ok(Trail::Log),
        }
    }
    Ok(Trail::Log)
}

fn read_commits(
    shared: &Shared,
    scope: WatchScope,
    place: Place,
    until: Revision,
    mut commits: Vec<Revision>,
) -> Result<(Chunk, Trail), WatchError> {
    let mut building = Building::new(scope, place, until);
    while let Some(&revision) = commits.last() {
        for entry in shared.reader.commit(revision)? {
            if !building.add(shared, &entry)? {
                return Ok((building.chunk, Trail::Commits(commits)));
            }
        }
        commits.pop();
    }
    Ok((building.chunk, Trail::Commits(commits)))
}

fn read_log(shared: &Shared, scope: WatchScope, place: Place, until: Revision) -> Result<Chunk, WatchError> {
    let entries = shared.reader.log(Revision(place.revision.0.saturating_sub(1)), CHUNK_LEN_MAX)?;
    let mut building = Building::new(scope, place, until);
    for entry in entries.iter().take_while(|entry| entry.revision <= until) {
        if !building.add(shared, entry)? {
            return Ok(building.chunk);
        }
    }
    if let Some(last) = entries.last().filter(|last| last.revision < until) {
        building.chunk.next = Place::start_of(last.revision.next());
    }
    Ok(building.chunk)
}

/// A chunk while entries become events.
struct Building {
    scope: WatchScope,
    place: Place,
    now: Place,
    bytes: usize,
    chunk: Chunk,
}

impl Building {
    fn new(scope: WatchScope, place: Place, until: Revision) -> Building {
        let now = Place::start_of(place.revision);
        Building { scope, place, now, bytes: 0, chunk: Chunk::up_to(until) }
    }

    /// False when the chunk is full: it ends before this entry.
    fn add(&mut self, shared: &Shared, entry: &LogEntry) -> Result<bool, EngineError> {
        if !self.scope.covers(entry.plane, entry.resource) {
            return Ok(true);
        }
        let before = self.now;
        self.now = before.after(entry.revision);
        if self.now <= self.place {
            return Ok(true);
        }
        if self.bytes > CHUNK_BYTES_MAX || self.chunk.events.len() == CHUNK_LEN_MAX {
            self.chunk.next = before;
            return Ok(false);
        }
        let old = entry.previous.map_or(Ok(None), |(space, at)| replaced(shared, entry, space, at))?;
        let new = if entry.deleted { None } else { object(shared, entry, entry.space, entry.revision)? };
        // The plane has been deleted and its space returned: there is nothing left to tell about.
        if new.is_none() && (!entry.deleted || old.is_none()) {
            return Ok(true);
        }
        let event = Event::new(entry.revision, entry.plane, entry.resource, old, new);
        self.bytes += event.weight();
        self.chunk.events.push_back((self.now, Arc::new(event)));
        Ok(true)
    }
}

/// The version an entry replaced: where it was then, or where merging has put it since.
fn replaced(
    shared: &Shared,
    entry: &LogEntry,
    space: SpaceId,
    at: Revision,
) -> Result<Option<Arc<StoredObject>>, EngineError> {
    if let Some(object) = object(shared, entry, space, at)? {
        return Ok(Some(object));
    }
    let find = |plane: &Plane| shared.find(&plane.stack, entry.resource, &entry.name, at);
    let found = match shared.through_stack(entry.plane, find) {
        Ok((found, _)) => found,
        Err(ReadError::Engine(error)) => return Err(error),
        Err(_) => None,
    };
    Ok(found.filter(|object| object.revision == at))
}

/// One version of the object of an entry.
fn object(
    shared: &Shared,
    entry: &LogEntry,
    space: SpaceId,
    at: Revision,
) -> Result<Option<Arc<StoredObject>>, EngineError> {
    let version = shared.reader.version(space, entry.resource, &entry.name, at)?;
    Ok(version.filter(|version| version.revision == at).and_then(|version| {
        let (name, revision) = (entry.name.clone(), version.revision);
        version.record.map(|record| Arc::new(StoredObject { name, revision, space, record }))
    }))
}
