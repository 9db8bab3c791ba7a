//! Volumes, claims and classes of volume attributes stay while they are used: a finalizer holds them, and goes when they
//! are to be deleted and nobody uses them any more.
//!
//! Admission sets the finalizers when objects are made; one that lacks it gets it here.

use polder_client::resource::{PODS, VOLUME_CLAIMS, VOLUMES};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Query, Snapshot, Wake, key};
use polder_model::{GroupVersionResource, SmolStr, Status, Value};

use crate::meta;

const CLASSES: GroupVersionResource = GroupVersionResource {
    group: SmolStr::new_static("storage.k8s.io"),
    version: SmolStr::new_static("v1"),
    resource: SmolStr::new_static("volumeattributesclasses"),
};

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    Claims,
    Volumes,
    Classes,
}

impl Protection {
    fn finalizer(self) -> &'static str {
        match self {
            Protection::Claims => "kubernetes.io/pvc-protection",
            Protection::Volumes => "kubernetes.io/pv-protection",
            Protection::Classes => "kubernetes.io/vac-protection",
        }
    }

    fn resource(self) -> GroupVersionResource {
        match self {
            Protection::Claims => VOLUME_CLAIMS,
            Protection::Volumes => VOLUMES,
            Protection::Classes => CLASSES,
        }
    }

    async fn is_used(self, plane: &InPlane, object: &Value) -> Result<bool, Status> {
        match self {
            Protection::Claims => {
                let containing = &["persistentVolumeClaim", "ephemeral"];
                let query =
                    Query { namespace: meta::namespace(object).into(), containing, ..Query::default() };
                let pods = plane.client.list(plane.plane, &PODS, query).await?;
                Ok(pods.iter().any(|pod| uses(pod, object)))
            }
            Protection::Volumes => Ok(object.str_at(&["status", "phase"]) == Some("Bound")),
            Protection::Classes => {
                let containing = &["olumeAttributesClassName"];
                for resource in [&VOLUME_CLAIMS, &VOLUMES] {
                    let query = Query { containing, ..Query::default() };
                    let users = plane.client.list(plane.plane, resource, query).await?;
                    if users.iter().any(|user| classes(user).any(|class| class == meta::name(object))) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

impl Controller for Protection {
    fn name(&self) -> &'static str {
        match self {
            Protection::Claims => "persistentvolumeclaim-protection-controller",
            Protection::Volumes => "persistentvolume-protection-controller",
            Protection::Classes => "volumeattributesclass-protection-controller",
        }
    }

    fn interest(&self) -> Interest {
        match self {
            Protection::Claims => Interest::of(&[&VOLUME_CLAIMS, &PODS]),
            Protection::Volumes => Interest::of(&[&VOLUMES]),
            Protection::Classes => Interest::of(&[&CLASSES, &VOLUME_CLAIMS, &VOLUMES]),
        }
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&self.resource()) {
            let waits =
                |new: &Snapshot| new.may_contain("deletionTimestamp") || !new.may_contain(self.finalizer());
            if change.new.as_ref().is_some_and(waits) {
                wake(change.key());
            }
            return;
        }
        // A user that goes, or uses another one from now on.
        let Some(old) = &change.old else { return };
        if change.is(&PODS) {
            let has_claims = old.may_contain("persistentVolumeClaim") || old.may_contain("ephemeral");
            if change.new.is_none() && has_claims {
                for claim in claims(old.value()) {
                    wake(key(&change.namespace, &claim));
                }
            }
        } else if old.may_contain("olumeAttributesClassName") {
            let now: Vec<&str> = change.new.iter().flat_map(|new| classes(new.value())).collect();
            for class in classes(old.value()).filter(|class| !now.contains(class)) {
                wake(key("", class));
            }
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = meta::split(key);
            let Some(object) = plane.get(&self.resource(), namespace, name).await? else {
                return Ok(Next::Done);
            };
            let (deleting, held) =
                (meta::is_deleting(&object), meta::has_finalizer(&object, self.finalizer()));
            if deleting == held && !(deleting && self.is_used(plane, &object).await?) {
                let new = meta::with_finalizer(&object, self.finalizer(), !deleting);
                plane.update(&self.resource(), new).await?;
            }
            Ok(Next::Done)
        })
    }
}

/// The classes a claim or a volume has, or is to have.
fn classes(user: &Value) -> impl Iterator<Item = &str> {
    let paths = [
        &["spec", "volumeAttributesClassName"][..],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    paths.into_iter().filter_map(|path| user.str_at(path)).filter(|class| !class.is_empty())
}

/// The names of the claims in a pod's volumes.
fn claims(pod: &Value) -> impl Iterator<Item = SmolStr> + '_ {
    pod.array_at(&["spec", "volumes"]).iter().filter_map(|volume| {
        if volume.get("ephemeral").is_some() {
            return Some(ephemeral_claim(pod, volume));
        }
        volume.str_at(&["persistentVolumeClaim", "claimName"]).map(SmolStr::new)
    })
}

/// The claim that is made for a pod's own volume.
pub(crate) fn ephemeral_claim(pod: &Value, volume: &Value) -> SmolStr {
    let volume = volume.str_at(&["name"]).unwrap_or_default();
    polder_model::format_smolstr!("{}-{volume}", meta::name(pod))
}

/// Whether a pod uses a claim: it is on a node, and it has the claim in its volumes.
fn uses(pod: &Value, claim: &Value) -> bool {
    let scheduled = pod.str_at(&["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
    scheduled
        && pod.array_at(&["spec", "volumes"]).iter().any(|volume| {
            let own = volume.get("ephemeral").is_some()
                && ephemeral_claim(pod, volume) == meta::name(claim)
                && meta::controller(claim).and_then(|owner| owner.str_at(&["uid"])) == Some(meta::uid(pod));
            own || volume.str_at(&["persistentVolumeClaim", "claimName"]) == Some(meta::name(claim))
        })
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[track_caller]
    fn check(node: &str, volume: Value, expected: bool) {
        let pod = json!({
            "metadata": {"name": "p", "uid": "pu"},
            "spec": {"nodeName": node, "volumes": [volume]},
        });
        let owner = json!([{"kind": "Pod", "uid": "pu", "controller": true}]);
        let claim = json!({"metadata": {"name": "p-data", "ownerReferences": owner}});
        assert_eq!(uses(&pod, &claim), expected);
    }

    #[test]
    fn pods_on_nodes_use_claims() {
        let claim = |name: &str| json!({"name": "x", "persistentVolumeClaim": {"claimName": name}});
        check("n", claim("p-data"), true);
        check("", claim("p-data"), false);
        check("n", claim("other"), false);
        check("n", json!({"name": "data", "ephemeral": {}}), true);
        check("n", json!({"name": "more", "ephemeral": {}}), false);
    }
}
