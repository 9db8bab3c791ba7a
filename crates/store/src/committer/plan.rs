//! Planning one change: does every expectation hold, and what is written if so.

use std::sync::Arc;

use hashbrown::HashMap;
use polder_model::PlaneId;

use super::Committer;
use super::group::Group;
use crate::cache::Lookup;
use crate::change::{Change, CommitError, Committed, Expect, PlaneChange, Write};
use crate::engine::{LogEntry, ObjectWrite, PlaneRow, PlaneWrite};
use crate::feed::Event;
use crate::key::{Key, Revision};
use crate::object::StoredObject;
use crate::plane::{Limits, Plane};
use crate::read::find;

impl Committer {
    /// Checks a change and, if it may happen, adds it to the group. Leaves the group untouched otherwise.
    pub(super) fn plan(&self, group: &mut Group, change: &Change) -> Result<Committed, CommitError> {
        for (key, expect) in &change.guards {
            let found = self.latest(group, key)?;
            check(key, *expect, found.as_ref())?;
        }
        let mut planned = Vec::with_capacity(change.writes.len());
        let mut usage: HashMap<PlaneId, (u64, u64)> = HashMap::new();
        let mut keys = hashbrown::HashSet::with_capacity(change.writes.len());
        let mut first = Vec::new();
        for write in &change.writes {
            let Write { key, record, expect } = write;
            if key.plane == PlaneId::NEW {
                first.extend(self.below_new(change, key)?.map(|found| (write, found)));
                continue;
            }
            let plane = self.plane(group, key.plane).ok_or(CommitError::NoPlane)?;
            if matches!(&change.plane, Some(PlaneChange::Delete { plane }) if *plane == key.plane) {
                return Err(CommitError::NoPlane);
            }
            let found = self.latest(group, key)?;
            check(key, *expect, found.as_ref())?;
            if !keys.insert(key) {
                // One revision has one version of an object.
                return Err(CommitError::Conflict { key: key.clone(), found });
            }
            if found.is_none() && record.is_none() {
                continue;
            }
            let (objects, bytes) = usage.entry(key.plane).or_insert_with(|| group.usage_of(&plane));
            if let Some(found) = &found {
                *objects = objects.saturating_sub(1);
                *bytes = bytes.saturating_sub(found.record.len() as u64);
            }
            if let Some(record) = record {
                *objects += 1;
                *bytes += record.len() as u64;
            }
            planned.push((write, plane, found));
        }
        for (id, after) in &usage {
            if let Some(plane) = self.plane(group, *id) {
                check_limits(plane.limits, group.usage_of(&plane), *after)?;
            }
        }
        // Object writes cannot fail any more, and a plane change fails before it touches the group.
        let revision = self.next_revision(group);
        let plane = match &change.plane {
            Some(plane_change) => self.plan_plane(group, plane_change, revision)?,
            None => None,
        };
        group.usage.extend(usage);
        for (write, plane, found) in planned {
            self.plan_write(group, write, &plane, found, revision);
        }
        if let Some(plane) = &plane {
            self.plan_first(group, plane, first, revision);
        }
        group.batch.last = revision;
        Ok(Committed { revision, plane })
    }

    /// What a new plane has of an object before it is written to.
    fn below_new(&self, change: &Change, key: &Key) -> Result<Option<Arc<StoredObject>>, CommitError> {
        if !matches!(change.plane, Some(PlaneChange::Create { .. })) {
            return Err(CommitError::NoPlane);
        }
        let base = self.base.as_slice();
        let found = find(&*self.reader, base, key.resource, &key.name, Revision::NEWEST);
        found.map_err(|error| CommitError::Engine(Arc::new(error)))
    }

    /// Writes what a new plane has of its own from the start, in place of what the base has. Not counted against
    /// limits: nobody asked for it.
    fn plan_first(
        &self,
        group: &mut Group,
        plane: &Plane,
        writes: Vec<(&Write, Arc<StoredObject>)>,
        revision: Revision,
    ) {
        for (write, found) in writes {
            let (objects, bytes) = group.usage_of(plane);
            let mut objects = objects.saturating_sub(1);
            let mut bytes = bytes.saturating_sub(found.record.len() as u64);
            if let Some(record) = &write.record {
                (objects, bytes) = (objects + 1, bytes + record.len() as u64);
            }
            group.usage.insert(plane.id, (objects, bytes));
            let key = Key { plane: plane.id, ..write.key.clone() };
            self.plan_write(group, &Write { key, ..write.clone() }, plane, Some(found), revision);
        }
    }

    pub(super) fn plan_write(
        &self,
        group: &mut Group,
        write: &Write,
        plane: &Plane,
        found: Option<Arc<StoredObject>>,
        revision: Revision,
    ) {
        // The plane may have been forked earlier in this change: its overlay is a new one then.
        let before = group.note_change(plane, revision);
        let space = self.plane(group, plane.id).map_or(plane.overlay(), |plane| plane.overlay());
        let Key { plane, resource, name } = write.key.clone();
        let new = write
            .record
            .clone()
            .map(|record| Arc::new(StoredObject { name: name.clone(), revision, space, record }));
        let entry = LogEntry {
            revision,
            plane,
            space,
            resource,
            name,
            deleted: new.is_none(),
            previous: found.as_ref().map(|found| (found.space, found.revision)),
            before,
        };
        group.batch.objects.push(ObjectWrite { entry, record: write.record.clone() });
        let event = Event::new(revision, plane, resource, found, new.clone());
        group.events.push(event.shared(self.shared.feed.frames().clone()));
        group.objects.insert(write.key.clone(), new);
    }

    /// One row per touched plane, with its new counts.
    pub(super) fn write_usage(&self, group: &mut Group) {
        let touched: Vec<PlaneId> = group.usage.keys().chain(group.planes.keys()).copied().collect();
        let mut written = hashbrown::HashSet::new();
        for id in touched {
            if !written.insert(id) {
                continue;
            }
            let Some(plane) = self.plane(group, id) else { continue };
            let (objects, bytes) = group.usage_of(&plane);
            group.batch.planes.push(PlaneWrite::Put(PlaneRow {
                id,
                name: plane.name.as_str().into(),
                space: plane.overlay(),
                floor: plane.floor,
                version_offset: plane.version_offset,
                limits: plane.limits,
                objects,
                bytes,
                last_change: match group.last_changes.get(&id) {
                    Some((last, _)) => Some(*last),
                    None => plane.usage.last_change(),
                },
            }));
        }
    }

    /// The newest version of an object, this group's own decisions included.
    pub(super) fn latest(&self, group: &Group, key: &Key) -> Result<Option<Arc<StoredObject>>, CommitError> {
        // The plane first: when this group deletes it, its objects are still cached.
        let plane = self.plane(group, key.plane).ok_or(CommitError::NoPlane)?;
        if let Some(decided) = group.objects.get(key) {
            return Ok(decided.clone());
        }
        if let Lookup::Found(object, _) = self.shared.cache.get(key.plane, key.resource, &key.name) {
            return Ok(object);
        }
        let found = find(&*self.reader, &plane.stack, key.resource, &key.name, Revision::NEWEST);
        found.map_err(|error| CommitError::Engine(Arc::new(error)))
    }
}

fn check(key: &Key, expect: Expect, found: Option<&Arc<StoredObject>>) -> Result<(), CommitError> {
    let holds = match (expect, found) {
        (Expect::Anything, _) | (Expect::Absent, None) => true,
        (Expect::At(revision), Some(found)) => found.revision == revision,
        (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
    };
    if holds { Ok(()) } else { Err(CommitError::Conflict { key: key.clone(), found: found.cloned() }) }
}

/// Only growth is refused, over the whole change: a plane over its limit can always be cleaned up.
fn check_limits(limits: Limits, before: (u64, u64), after: (u64, u64)) -> Result<(), CommitError> {
    for (what, limit, before, after) in
        [("objects", limits.objects, before.0, after.0), ("stored bytes", limits.bytes, before.1, after.1)]
    {
        if limit > 0 && after > limit && after > before {
            return Err(CommitError::LimitReached { what, limit });
        }
    }
    Ok(())
}
