//! Making visible here what another replica has committed.
//!
//! Replicas share one history: a batch is the next in it for all of them or for none, so whoever plans on less than all of it
//! is told so by the engine ([`EngineError::Overtaken`]) before anything is written. What others did comes as the batch they
//! wrote. It has been made durable here by then, and a [`Group`] made from it becomes visible as one of our own would.
//!
//! Invariant: after [`Committer::catch_up`] everything in memory is what it would be had this replica planned all of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashSet;

use super::group::{Group, Space};
use super::planes::replaced;
use super::{Committer, NO_PLANE, chain};
use crate::cache::Lookup;
use crate::engine::{Batch, EngineError, LogEntry, ObjectWrite, PlaneRow, PlaneWrite, SpaceRow, SpaceState};
use crate::feed::Event;
use crate::key::{Key, SpaceId};
use crate::object::StoredObject;
use crate::plane::Plane;

impl Committer {
    /// Takes everything that others have done so far.
    pub(super) fn catch_up(&mut self) -> Result<(), EngineError> {
        loop {
            while let Some(batch) = self.engine.follow(&*self.shared)? {
                // It is kept below: whoever does not show it has less than all, and must not plan on that.
                self.absorb(batch).map_err(|error| EngineError::Unknown(Box::new(error)))?;
            }
            match self.remake_bases() {
                Err(EngineError::Overtaken) => {}
                outcome => return outcome,
            }
        }
    }

    /// The same before something is planned: if it fails, what is planned fails too, and says why.
    pub(super) fn catch_up_or_log(&mut self) {
        if self.stopped {
            return;
        }
        if let Err(error) = self.catch_up() {
            tracing::error!(error = %chain(&error), "cannot follow the other replicas");
            // Perhaps it is kept below, and was not made visible: the next start tells.
            // And where entries have been forgotten that are not here, the next start begins with what there is.
            if matches!(error, EngineError::Unknown(_) | EngineError::Damaged(_) | EngineError::Compacted) {
                self.stop();
            }
        }
    }

    fn absorb(&mut self, batch: Batch) -> Result<(), EngineError> {
        let mut group = self.new_group();
        if batch.first != group.batch.first {
            return Err(EngineError::Damaged(format!(
                "another replica's commits begin at {}, and ours end at {}",
                batch.first, self.current
            )));
        }
        if batch.floor > self.history.floor {
            self.history.floor = batch.floor;
            self.shared.set_compacted(batch.floor);
        }
        self.absorb_spaces(&mut group, &batch.spaces)?;
        for write in &batch.planes {
            match write {
                PlaneWrite::Put(row) => self.absorb_plane(&mut group, row)?,
                PlaneWrite::Remove(id) => {
                    if let Some(plane) = self.plane(&group, *id) {
                        group.plane_names.insert(plane.name.as_str().into(), None);
                        group.planes.insert(*id, None);
                    }
                }
            }
        }
        for write in &batch.objects {
            self.absorb_object(&mut group, write)?;
        }
        group.batch = batch;
        let shared = self.shared.clone();
        let telling = shared.telling.write();
        self.publish(&mut group);
        // After that: whoever looks again because of it must not find what was there before.
        if let Some(follower) = shared.follower.get() {
            follower(&group.events);
        }
        drop(telling);
        Ok(())
    }

    /// Rows say what stands on what; how much stands on each is counted here.
    fn absorb_spaces(&mut self, group: &mut Group, rows: &[SpaceRow]) -> Result<(), EngineError> {
        let mut moved: Vec<(Option<SpaceId>, Option<SpaceId>)> = Vec::new();
        for row in rows {
            let known = self.spaces.get(&row.id).cloned();
            let stands_on = |row: &SpaceRow| row.parent.filter(|_| is_standing(row.state));
            moved.push((known.as_ref().and_then(|known| stands_on(&known.row)), stands_on(row)));
            let was_sealed = known.as_ref().is_some_and(|known| known.row.state == SpaceState::Sealed);
            let mut space = known.unwrap_or_else(|| Space::new(row.clone()));
            space.row = row.clone();
            if row.state == SpaceState::Sealed && !was_sealed {
                space.sealed_at = self.current;
            }
            self.absorb_layer(group, row);
            if row.state == SpaceState::Dropped {
                self.merging.give_up(row.id);
                let bases = self.bases.len();
                self.bases.retain(|_, base| *base != row.id);
                self.is_baseless |= self.bases.len() < bases;
            }
            group.spaces.insert(row.id, space);
        }
        for (from, to) in moved.into_iter().filter(|(from, to)| from != to) {
            self.change_children(group, from, |children| children.saturating_sub(1));
            self.change_children(group, to, |children| children + 1);
        }
        self.restack_above(group, rows)
    }

    /// Planes above a layer that stands on a merged one now read through that. So do those that were to at their time, when a
    /// layer that was held here for them is dropped by another replica, which knows nothing of that.
    fn restack_above(&self, group: &mut Group, rows: &[SpaceRow]) -> Result<(), EngineError> {
        let is_moved = |row: &&SpaceRow| match row.state {
            SpaceState::Dropped => self.merging.reads_through(row.id),
            _ => {
                let known = self.spaces.get(&row.id).filter(|_| is_standing(row.state));
                known.is_some_and(|known| known.row.parent != row.parent)
            }
        };
        let moved: HashSet<SpaceId> = rows.iter().filter(is_moved).map(|row| row.id).collect();
        if moved.is_empty() {
            return Ok(());
        }
        let planes = self.shared.planes.read();
        for plane in self.merging.deep.iter().filter_map(|id| planes.by_id.get(id)) {
            if plane.stack.iter().any(|id| moved.contains(id)) {
                let stack = self.stack_from(group, plane.overlay());
                let stack = stack.ok_or_else(|| {
                    EngineError::Damaged(format!("plane {}: a layer is missing", plane.name))
                })?;
                group.put_plane(replaced(plane, stack.into(), plane.limits));
            }
        }
        Ok(())
    }

    fn change_children(&self, group: &mut Group, id: Option<SpaceId>, change: impl Fn(u32) -> u32) {
        let Some(id) = id else { return };
        let known = group.spaces.get(&id).or_else(|| self.spaces.get(&id));
        if let Some(mut space) = known.cloned() {
            space.children = change(space.children);
            group.spaces.insert(id, space);
        }
    }

    /// A layer that has a name now, or another, or none any more.
    fn absorb_layer(&mut self, group: &mut Group, row: &SpaceRow) {
        let known = self.spaces.get(&row.id).map(|known| known.row.layer.clone()).unwrap_or_default();
        let now = if is_standing(row.state) { row.layer.clone() } else { Default::default() };
        if known != now {
            if !known.is_empty() {
                group.layers.entry(known).or_insert(None);
            }
            if !now.is_empty() {
                group.layers.insert(now, Some(row.id));
            }
        }
        if !row.digest.is_empty() && is_standing(row.state) {
            self.shared.planes.write().bases.insert(row.id);
        }
    }

    fn absorb_plane(&mut self, group: &mut Group, row: &PlaneRow) -> Result<(), EngineError> {
        group.usage.insert(row.id, (row.objects, row.bytes));
        if let Some(last) = row.last_change {
            group.last_changes.insert(row.id, (last, None));
        }
        let known = self.plane(group, row.id);
        if known.as_ref().is_some_and(|known| is_as_told(known, row)) {
            return Ok(());
        }
        let told = self.plane_from_row(group, row.clone())?;
        if known.as_ref().is_some_and(|known| known.version_offset != told.version_offset) {
            group.raised.push(row.id);
        }
        let usage = known.map_or_else(|| told.usage.clone(), |known| known.usage.clone());
        usage.objects.store(row.objects, Ordering::Relaxed);
        usage.bytes.store(row.bytes, Ordering::Relaxed);
        group.plane_names.insert(told.name.as_str().into(), Some(row.id));
        group.put_plane(Arc::new(Plane { usage, ..told }));
        Ok(())
    }

    fn absorb_object(&mut self, group: &mut Group, write: &ObjectWrite) -> Result<(), EngineError> {
        let LogEntry { revision, plane, space, resource, name, previous, .. } = write.entry.clone();
        if plane == NO_PLANE {
            return Ok(());
        }
        let key = Key { plane, resource, name: name.clone() };
        let old = match (group.objects.get(&key), previous) {
            (_, None) => None,
            (Some(decided), _) => decided.clone(),
            (None, Some((space, revision))) => self.version_at(&key, space, revision)?,
        };
        let new = write.record.clone().map(|record| Arc::new(StoredObject { name, revision, space, record }));
        let event = Event::new(revision, plane, resource, old, new.clone());
        group.events.push(event.shared(self.shared.feed.frames().clone()));
        group.objects.insert(key, new);
        Ok(())
    }

    /// One version of an object: from the cache if it is the newest there.
    fn version_at(
        &self,
        key: &Key,
        space: SpaceId,
        revision: crate::key::Revision,
    ) -> Result<Option<Arc<StoredObject>>, EngineError> {
        if let Lookup::Found(Some(object), _) = self.shared.cache.get(key.plane, key.resource, &key.name)
            && (object.space, object.revision) == (space, revision)
        {
            return Ok(Some(object));
        }
        let found = self.reader.version(space, key.resource, &key.name, revision)?;
        let record = found.filter(|found| found.revision == revision).and_then(|found| found.record);
        let name = key.name.clone();
        Ok(record.map(|record| Arc::new(StoredObject { name, revision, space, record })))
    }
}

fn is_standing(state: SpaceState) -> bool {
    matches!(state, SpaceState::Open | SpaceState::Sealed)
}

/// Whether nothing but counters differs.
fn is_as_told(plane: &Plane, row: &PlaneRow) -> bool {
    let Plane { name, floor, version_offset, limits, .. } = plane;
    (name.as_str(), plane.overlay(), floor, version_offset, limits)
        == (row.name.as_str(), row.space, &row.floor, &row.version_offset, &row.limits)
}
