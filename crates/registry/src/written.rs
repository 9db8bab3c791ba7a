//! What is made of objects of a plane and kept, and must be looked at again when one of them is written: by this replica, or by
//! another one of the same server.
//!
//! Invariant: whatever is kept here that depends on objects is told of every write to them, whoever made it. What was written by
//! others is told when it is visible, on the thread that commits: so this only notes and forgets.

use std::sync::{Arc, Weak};

use polder_model::{GroupResource, PlaneId};
use polder_store::{Event, ObjectName};

use crate::registry::Registry;
use crate::{audit, authentication, custom, extensions, finalize, flows, planes, roles, rulebooks};

/// An object that was written or, if it is not there any more, removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written<'a> {
    pub(crate) plane: PlaneId,
    pub(crate) resource: &'a GroupResource,
    pub(crate) name: &'a ObjectName,
    pub(crate) is_there: bool,
}

impl Written<'_> {
    /// The plane that it is the `Plane` of.
    pub(crate) fn plane_of(&self, registry: &Registry) -> Option<PlaneId> {
        let is_own = self.plane == PlaneId::CORE
            && self.resource.group == planes::GROUP
            && self.resource.resource == "planes";
        registry.store.plane(&self.name.name).filter(|_| is_own).map(|plane| plane.id)
    }

    fn is(&self, group: &str, resource: &str) -> bool {
        self.resource.group == group && self.resource.resource == resource
    }
}

/// Tells everybody who keeps something, but for the catalogs of planes.
pub(crate) fn committed(registry: &Registry, written: &Written<'_>) {
    let Written { plane, resource, name, .. } = *written;
    rulebooks::committed(registry, written);
    if resource.group == roles::GROUP {
        registry.roles.changed(plane, &resource.resource, name.clone());
    }
    if written.is("", "pods") {
        registry.nodes.changed(plane, name.clone());
    }
    if resource.group == flows::GROUP {
        registry.flows.forget(plane);
    }
    authentication::committed(registry, written);
    audit::committed(registry, written);
    extensions::committed(registry, written);
}

impl Registry {
    /// From now on knows what other replicas write. Before anything is served.
    pub fn follow_others(self: &Arc<Self>) {
        let own: Weak<Registry> = Arc::downgrade(self);
        self.store.follow_others(move |events| {
            let Some(registry) = own.upgrade() else { return };
            events.iter().for_each(|event| registry.written_elsewhere(event));
        });
    }

    fn written_elsewhere(&self, event: &Event) {
        let (Some(resource), Some(name)) = (self.store.resource_name(event.resource), event.name()) else {
            return;
        };
        let is_there = event.new.is_some();
        let written = Written { plane: event.plane, resource: &resource, name, is_there };
        committed(self, &written);
        if event.resource == self.crds {
            custom::written_elsewhere(self, event.plane, name);
        }
        if !is_there {
            self.nudge_holder(event.plane, &resource, name);
        }
        if is_there && event.plane == PlaneId::CORE && finalize::is_mark(&resource) {
            self.marked_elsewhere(name);
        }
    }
}
