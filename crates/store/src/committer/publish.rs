//! Making a durable group visible: planes, cache, current revision, watchers, in this order.

use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use polder_model::PlaneId;

use super::Committer;
use super::group::Group;
use super::merge::sources_of;
use crate::cache::CacheChange;
use crate::engine::SpaceState;
use crate::key::ResourceId;

impl Committer {
    pub(super) fn publish(&mut self, group: &mut Group) {
        let last = group.batch.last;
        self.current = last;
        self.shared.resources.write().stored += group.batch.resources.len();
        for (id, space) in group.spaces.drain() {
            self.filling.remove(&id);
            match space.row.state {
                SpaceState::Dropped => {
                    self.spaces.remove(&id);
                    self.dropping.push_back(id);
                }
                SpaceState::Filling => drop(self.filling.insert(id, sources_of(&space.row))),
                SpaceState::Open | SpaceState::Sealed => drop(self.spaces.insert(id, space)),
            }
        }
        for (name, layer) in group.layers.drain() {
            match layer {
                Some(space) => drop(self.layers.insert(name, space)),
                None => drop(self.layers.remove(&name)),
            }
        }
        for (plane, (objects, bytes)) in group.usage.drain() {
            let planes = self.shared.planes.read();
            let pending = group.planes.get(&plane).cloned().flatten();
            if let Some(plane) = pending.or_else(|| planes.by_id.get(&plane).cloned()) {
                plane.usage.objects.store(objects, Ordering::Relaxed);
                plane.usage.bytes.store(bytes, Ordering::Relaxed);
                if let Some((last, _)) = group.last_changes.get(&plane.id) {
                    plane.usage.set_last_change(Some(*last));
                }
            }
        }
        let mut gone = Vec::new();
        if !group.planes.is_empty() {
            let mut planes = self.shared.planes.write();
            for (id, plane) in group.planes.drain() {
                match plane {
                    Some(plane) => {
                        self.merging.note(&plane);
                        planes.insert(plane);
                    }
                    None => {
                        self.merging.forget(id);
                        planes.remove(id);
                        gone.push(id);
                    }
                }
            }
        }
        // Between the planes and the cache: see `Shared::applied`.
        self.shared.set_applied(last);
        let mut changes: HashMap<(PlaneId, ResourceId), Vec<CacheChange>> = HashMap::new();
        for event in &group.events {
            if let Some(name) = event.name() {
                let change =
                    CacheChange { revision: event.revision, name: name.clone(), object: event.new.clone() };
                changes.entry((event.plane, event.resource)).or_default().push(change);
            }
        }
        for ((plane, resource), changes) in changes {
            self.shared.cache.change(plane, resource, changes);
        }
        self.shared.cache.evict();
        self.shared.feed.remember(&group.events);
        self.shared.set_current(last);
        self.shared.feed.deliver(&group.events);
        self.shared.set_delivered(last);
        for plane in group.raised.drain(..) {
            self.shared.feed.end_plane(plane);
        }
        for plane in gone {
            self.shared.feed.end_plane(plane);
            self.shared.cache.forget_plane(plane);
        }
    }
}
