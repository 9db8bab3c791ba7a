//! What one group of changes has decided so far, on top of what is visible. Dropped whole when the engine fails.

use std::sync::Arc;

use hashbrown::HashMap;
use polder_model::{PlaneId, PlaneName, SmolStr};
use tokio::sync::oneshot;

use super::{Answer, Committer};
use crate::change::{Change, CommitError};
use crate::engine::{Batch, Bounds, SpaceRow};
use crate::feed::Event;
use crate::key::{Key, Revision, SpaceId};
use crate::object::StoredObject;
use crate::plane::Plane;

/// A space as the committer knows it.
#[derive(Clone, Debug)]
pub(super) struct Space {
    pub(super) row: SpaceRow,
    /// Spaces that stand on it.
    pub(super) children: u32,
    /// Nothing was written to it after this commit. Known since the start of the store; zero for merged layers.
    pub(super) sealed_at: Revision,
    /// How often what it holds has been merged since then.
    pub(super) level: u8,
}

impl Space {
    pub(super) fn new(row: SpaceRow) -> Space {
        Space { row, children: 0, sealed_at: Revision(0), level: 0 }
    }
}

/// What one group has decided so far. Dropped whole when the engine fails.
#[derive(Default)]
pub(super) struct Group {
    pub(super) batch: Batch,
    pub(super) objects: HashMap<Key, Option<Arc<StoredObject>>>,
    pub(super) events: Vec<Arc<Event>>,
    /// `None`: deleted in this group.
    pub(super) planes: HashMap<PlaneId, Option<Arc<Plane>>>,
    pub(super) plane_names: HashMap<SmolStr, Option<PlaneId>>,
    pub(super) usage: HashMap<PlaneId, (u64, u64)>,
    pub(super) spaces: HashMap<SpaceId, Space>,
    pub(super) layers: HashMap<SmolStr, Option<SpaceId>>,
    /// The newest change of a plane in this group, and the one before it.
    pub(super) last_changes: HashMap<PlaneId, (Revision, Option<Revision>)>,
    /// Planes whose resource versions are others now: whoever watches them must start again.
    pub(super) raised: Vec<PlaneId>,
    /// What the records of the batch take.
    pub(super) bytes: usize,
    pub(super) asked: Vec<Asked>,
}

/// A change that somebody asked for, and what they will be told.
pub(super) struct Asked {
    pub(super) change: Change,
    pub(super) reply: oneshot::Sender<Answer>,
    pub(super) answer: Answer,
}

impl Group {
    pub(super) fn usage_of(&self, plane: &Plane) -> (u64, u64) {
        self.usage.get(&plane.id).copied().unwrap_or_else(|| (plane.usage.objects(), plane.usage.bytes()))
    }

    /// Whether the engine takes more of it at a higher price only.
    pub(super) fn is_long(&self, bounds: &Bounds) -> bool {
        let rows = self.batch.objects.len() + self.batch.spaces.len() + self.usage.len() + self.planes.len();
        rows >= bounds.batch_len || self.bytes >= bounds.batch_bytes
    }

    /// Notes a change of a plane and tells the commit before it.
    pub(super) fn note_change(&mut self, plane: &Plane, revision: Revision) -> Option<Revision> {
        let known = self.last_changes.get(&plane.id).copied();
        let before = match known {
            Some((last, before)) if last == revision => before,
            Some((last, _)) => Some(last),
            None => plane.usage.last_change(),
        };
        self.last_changes.insert(plane.id, (revision, before));
        before
    }

    pub(super) fn put_space(&mut self, space: Space) {
        self.batch.spaces.retain(|row| row.id != space.row.id);
        self.batch.spaces.push(space.row.clone());
        self.spaces.insert(space.row.id, space);
    }

    pub(super) fn put_plane(&mut self, plane: Arc<Plane>) {
        self.planes.insert(plane.id, Some(plane));
    }
}

/// Looking things up: what the group has decided, else what is visible.
impl Committer {
    pub(super) fn plane(&self, group: &Group, id: PlaneId) -> Option<Arc<Plane>> {
        match group.planes.get(&id) {
            Some(decided) => decided.clone(),
            None => self.shared.planes.read().by_id.get(&id).cloned(),
        }
    }

    pub(super) fn check_name_free(&self, group: &Group, name: &PlaneName) -> Result<(), CommitError> {
        let taken = match group.plane_names.get(name.as_str()) {
            Some(decided) => decided.is_some(),
            None => self.shared.planes.read().by_name.contains_key(name.as_str()),
        };
        if taken { Err(CommitError::PlaneExists(name.clone())) } else { Ok(()) }
    }

    pub(super) fn layer(&self, group: &Group, name: &SmolStr) -> Option<SpaceId> {
        match group.layers.get(name) {
            Some(decided) => *decided,
            None => self.layers.get(name).copied(),
        }
    }

    pub(super) fn space(&self, group: &Group, id: SpaceId) -> Space {
        let known = group.spaces.get(&id).or_else(|| self.spaces.get(&id));
        known.cloned().expect("a stack names only spaces that exist: checked at open, kept by every change")
    }

    pub(super) fn new_group(&self) -> Group {
        let batch = Batch { first: self.current.next(), last: self.current, ..Batch::default() };
        Group { batch, ..Group::default() }
    }

    pub(super) fn next_revision(&self, group: &Group) -> Revision {
        group.batch.last.next()
    }
}
