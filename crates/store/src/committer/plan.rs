//! Planning one change: does every expectation hold, and what is written if so.

use std::sync::Arc;

use hashbrown::HashMap;
use polder_model::PlaneId;

use super::Committer;
use super::group::Group;
use crate::cache::Lookup;
use crate::change::{Change, CommitError, Committed, Expect, ForkSource, PlaneChange, Renewal, Write};
use crate::engine::{EngineError, LogEntry, ObjectWrite, PlaneRow, PlaneWrite};
use crate::feed::Event;
use crate::key::{Key, ObjectName, ResourceId, Revision, SpaceId};
use crate::object::{Record, StoredObject};
use crate::plane::{Limits, Plane};
use crate::read::find;

impl Committer {
    /// Checks a change and, if it may happen, adds it to the group. Leaves the group untouched otherwise.
    pub(super) fn plan(&self, group: &mut Group, change: &Change) -> Result<Committed, CommitError> {
        if change.needs_lead && !self.engine.leads() {
            return Err(CommitError::NotLeading);
        }
        let unstorable = change.writes.iter().map(|write| &write.key.name).find(|name| !name.is_storable());
        if let Some(name) = unstorable {
            return Err(CommitError::NoName(name.clone()));
        }
        self.check_len(change)?;
        if self.is_baseless && matches!(change.plane, Some(PlaneChange::Create { .. })) {
            let error = EngineError::Unavailable("what planes begin with is being made again".into());
            return Err(CommitError::Engine(Arc::new(error)));
        }
        for (key, expect) in &change.guards {
            if !key.name.is_storable() {
                check(key, *expect, None)?;
                continue;
            }
            let found = self.latest(group, key)?;
            check(key, *expect, found.as_ref())?;
        }
        let mut planned = Vec::with_capacity(change.writes.len());
        let mut usage: HashMap<PlaneId, (u64, u64)> = HashMap::new();
        let mut keys = hashbrown::HashSet::with_capacity(change.writes.len());
        for write in &change.writes {
            let Write { key, record, expect } = write;
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
        let renewed = self.renewed(group, change)?;
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
            self.plan_renewed(group, plane, renewed, revision);
        }
        group.batch.last = revision;
        Ok(Committed { revision, plane })
    }

    /// What no engine takes is refused before others are in one group with it.
    fn check_len(&self, change: &Change) -> Result<(), CommitError> {
        let lens = || change.writes.iter().filter_map(|write| write.record.as_ref()).map(Record::len);
        let (longest, all) = (lens().max().unwrap_or(0), lens().sum::<usize>());
        for (len, len_max) in [(longest, self.bounds.record_bytes_max), (all, self.bounds.change_bytes_max)] {
            if len > len_max {
                return Err(CommitError::TooLong { len, len_max });
            }
        }
        Ok(())
    }

    /// What a new plane has of its own, each with what it is made of.
    fn renewed(
        &self,
        group: &Group,
        change: &Change,
    ) -> Result<Vec<(ResourceId, Arc<StoredObject>, Record)>, CommitError> {
        if change.renewals.is_empty() {
            return Ok(Vec::new());
        }
        let stack = self.stack_below_new(group, change)?;
        let mut renewed = Vec::with_capacity(change.renewals.len());
        for Renewal { resource, name, make } in &change.renewals {
            if let Some(found) = self.found_in(group, &stack, *resource, name)? {
                let record = make(&found.record);
                renewed.push((*resource, found, record));
            }
        }
        Ok(renewed)
    }

    /// The spaces that the plane of this change will stand on.
    fn stack_below_new(&self, group: &Group, change: &Change) -> Result<Vec<SpaceId>, CommitError> {
        let mut next = match &change.plane {
            Some(PlaneChange::Create { profile, .. }) => self.bases.get(profile).copied(),
            Some(PlaneChange::Fork { source: ForkSource::Plane(source), .. }) => {
                let source = self.plane(group, *source).ok_or(CommitError::NoPlane)?;
                return Ok(source.stack.to_vec());
            }
            Some(PlaneChange::Fork { source: ForkSource::Layer(layer), .. }) => {
                Some(self.layer(group, layer).ok_or_else(|| CommitError::NoLayer(layer.clone()))?)
            }
            _ => return Err(CommitError::NoPlane),
        };
        let mut stack = Vec::new();
        while let Some(space) = next {
            stack.push(space);
            next = self.space(group, space).row.parent;
        }
        Ok(stack)
    }

    /// The newest version of an object in a stack, this group's own decisions included.
    fn found_in(
        &self,
        group: &Group,
        stack: &[SpaceId],
        resource: ResourceId,
        name: &ObjectName,
    ) -> Result<Option<Arc<StoredObject>>, CommitError> {
        // What lies above a space that this group wrote to is of this group too, and the engine knows nothing of it.
        for space in stack {
            let own = group.batch.objects.iter().rev().find(|write| {
                let LogEntry { space: written, resource: of, name: called, .. } = &write.entry;
                (written, of, called) == (space, &resource, name)
            });
            if let Some(ObjectWrite { entry, record }) = own {
                let (name, revision, space) = (name.clone(), entry.revision, *space);
                return Ok(record
                    .clone()
                    .map(|record| Arc::new(StoredObject { name, revision, space, record })));
            }
        }
        let found = find(&*self.reader, stack, resource, name, Revision::NEWEST);
        found.map_err(|error| CommitError::Engine(Arc::new(error)))
    }

    /// Writes what a new plane has of its own in place of what is below it. Not counted against limits: nobody asked for it.
    fn plan_renewed(
        &self,
        group: &mut Group,
        plane: &Plane,
        renewed: Vec<(ResourceId, Arc<StoredObject>, Record)>,
        revision: Revision,
    ) {
        for (resource, found, record) in renewed {
            let (objects, bytes) = group.usage_of(plane);
            let bytes = bytes.saturating_sub(found.record.len() as u64) + record.len() as u64;
            group.usage.insert(plane.id, (objects, bytes));
            let key = Key { plane: plane.id, resource, name: found.name.clone() };
            let write = Write { key, record: Some(record), expect: Expect::Anything };
            self.plan_write(group, &write, plane, Some(found), revision);
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
        group.bytes += write.record.as_ref().map_or(0, Record::len);
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
