//! What every plane starts with and cannot do without: the service of the API and where it leads to, system namespaces, request
//! priorities, which groups there are. Whoever deletes such an object finds it made again, as it was at the start.
//!
//! Only the end of an object wakes this, so a plane in which nobody deletes any of them pays nothing. What they say is not kept: that is up
//! to whoever owns the plane. Roles, accounts and the certificates in every namespace are others' business.

use std::collections::BTreeMap;

use polder_client::resource::API_SERVICES;
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, ResourceFacts, Wake};
use polder_model::{GroupVersionResource, PlaneId, SmolStr, Status, Value, format_smolstr};

use crate::meta;

/// The key of a look at all of them.
const ALL: &str = "";

/// An object that is kept: its resource, and all that is said when it is made.
pub type KeptObject = (GroupVersionResource, Value);

pub(crate) struct KeptObjects {
    /// By key.
    objects: BTreeMap<SmolStr, KeptObject>,
}

impl KeptObjects {
    pub(crate) fn new(objects: &[KeptObject]) -> KeptObjects {
        let keyed = objects.iter().map(|(resource, object)| {
            let (namespace, name) = (meta::namespace(object), meta::name(object));
            (key(&resource.group, &resource.resource, namespace, name), (resource.clone(), object.clone()))
        });
        KeptObjects { objects: keyed.collect() }
    }

    /// Makes one again, if it is not there.
    async fn keep(&self, plane: &InPlane, (resource, object): &KeptObject) -> Result<(), Status> {
        let namespace = meta::namespace(object);
        if plane.get(resource, namespace, meta::name(object)).await?.is_some() {
            return Ok(());
        }
        if !is_served(&plane.client.resources(plane.plane).await?, resource, object) {
            return Ok(());
        }
        meta::created(plane.create(resource, namespace, object.clone()).await)
    }
}

/// A plane that is full, whose rules or webhooks refuse this or whose address was taken does without, as long as its users want that.
fn is_refused(status: &Status) -> bool {
    matches!(status.code, 400 | 403 | 422 | 429 | 507)
}

fn key(group: &str, resource: &str, namespace: &str, name: &str) -> SmolStr {
    format_smolstr!("{resource}.{group}/{namespace}/{name}")
}

/// Whether a plane has the kind of an object, and the group version that it tells of.
fn is_served(facts: &[ResourceFacts], resource: &GroupVersionResource, object: &Value) -> bool {
    let is = |one: &ResourceFacts| one.name.group == resource.group && one.name.resource == resource.resource;
    if *resource != API_SERVICES {
        return facts.iter().any(is);
    }
    let [group, version] =
        ["group", "version"].map(|field| object.str_at(&["spec", field]).unwrap_or_default());
    facts.iter().any(is)
        && facts.iter().any(|one| one.name.group == group && one.versions.iter().any(|own| own == version))
}

impl Controller for KeptObjects {
    fn name(&self) -> &'static str {
        "bootstrap-object-keeper"
    }

    fn interest(&self) -> Interest {
        let mut resources: Vec<&GroupVersionResource> =
            self.objects.values().map(|(resource, _)| resource).collect();
        resources.dedup();
        Interest::of(&resources)
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.new.is_none() {
            let key = key(&change.resource.group, &change.resource.resource, &change.namespace, &change.name);
            if self.objects.contains_key(&key) {
                wake(key);
            }
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let wanted = self.objects.iter().filter(|(own, _)| key == ALL || own.as_str() == key);
            let mut next = Next::Done;
            for (_, object) in wanted {
                match self.keep(plane, object).await {
                    Ok(()) => {}
                    Err(status) if is_refused(&status) => next = Next::Seldom,
                    Err(status) => return Err(status),
                }
            }
            Ok(next)
        })
    }

    /// What was deleted while nobody watched leaves nothing to observe.
    fn look(&self, _: PlaneId, wake: Wake<'_>) {
        if !self.objects.is_empty() {
            wake(ALL.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_client::resource::{FLOW_SCHEMAS, NAMESPACES, SERVICES};
    use polder_model::json;

    fn kept() -> KeptObjects {
        KeptObjects::new(&[
            (SERVICES, json!({"metadata": {"name": "kubernetes", "namespace": "default"}})),
            (NAMESPACES, json!({"metadata": {"name": "kube-node-lease"}})),
            (
                API_SERVICES,
                json!({"metadata": {"name": "v1.apps"}, "spec": {"group": "apps", "version": "v1"}}),
            ),
        ])
    }

    #[test]
    fn the_end_of_a_kept_object_wakes() {
        let object = || Some(std::sync::Arc::new(json!({})).into());
        let woken = |resource: &GroupVersionResource, namespace: &str, name: &str, gone: bool| {
            let change = Change {
                revision: 1,
                resource_version: 1,
                plane: PlaneId(2),
                is_copy: false,
                resource: resource.group_resource(),
                namespace: namespace.into(),
                name: name.into(),
                old: object(),
                new: if gone { None } else { object() },
            };
            let mut keys = Vec::new();
            kept().observe(&change, &mut |key| keys.push(key));
            keys.len()
        };
        let rows = [
            (&SERVICES, "default", "kubernetes", true, 1),
            (&SERVICES, "default", "kubernetes", false, 0),
            (&SERVICES, "other", "kubernetes", true, 0),
            (&SERVICES, "default", "web", true, 0),
            (&NAMESPACES, "", "kube-node-lease", true, 1),
            (&FLOW_SCHEMAS, "", "kube-node-lease", true, 0),
        ];
        for (resource, namespace, name, gone, expected) in rows {
            assert_eq!(woken(resource, namespace, name, gone), expected, "{resource:?} {namespace}/{name}");
        }
    }

    #[test]
    fn what_a_plane_does_not_want_is_tried_seldom() {
        let services = SERVICES.group_resource();
        let rows = [
            (Status::bad_request("a webhook denied the request"), true),
            (Status::forbidden(&services, "kubernetes", "a policy denied the request"), true),
            (Status::too_many_requests("too many objects", 1), true),
            (Status::modified(&services, "kubernetes"), false),
            (Status::unavailable("the server is shutting down"), false),
        ];
        for (status, expected) in rows {
            assert_eq!(is_refused(&status), expected, "{status}");
        }
    }

    #[test]
    fn a_plane_has_what_it_serves() {
        let facts = |name: &GroupVersionResource| ResourceFacts {
            name: name.clone(),
            versions: vec![name.version.clone()],
            kind: "K".into(),
            namespaced: false,
            deletable: true,
        };
        let apps = json!({"spec": {"group": "apps", "version": "v1"}});
        let deployments = polder_client::resource::DEPLOYMENTS;
        let both = [facts(&API_SERVICES), facts(&deployments)];
        assert!(is_served(&both, &API_SERVICES, &apps));
        assert!(!is_served(&both[..1], &API_SERVICES, &apps), "nothing of the group");
        assert!(!is_served(&both[1..], &API_SERVICES, &apps), "no such kind");
        assert!(is_served(&both[1..], &deployments, &json!({})));
    }
}
