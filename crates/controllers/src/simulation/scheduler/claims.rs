//! What a pod waits for beside a node: its volumes and its devices. Whoever binds and allocates them is somebody else.

use std::collections::HashMap;
use std::sync::Arc;

use polder_client::InPlane;
use polder_client::resource::{RESOURCE_CLAIMS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES};
use polder_model::{GroupVersionResource, SmolStr, Status, Value};

use crate::meta;
use crate::protection::ephemeral_claim;
use crate::volume_binder::{SELECTED_NODE, is_bound};

/// The claims of a plane, as far as pods that wait have any.
#[derive(Default)]
pub(super) struct Claims {
    volumes: HashMap<(SmolStr, SmolStr), Arc<Value>>,
    /// What they are bound to.
    persistent: HashMap<(SmolStr, SmolStr), Arc<Value>>,
    classes: HashMap<(SmolStr, SmolStr), Arc<Value>>,
    devices: HashMap<(SmolStr, SmolStr), Arc<Value>>,
}

/// How far the claims of a pod are.
#[derive(Debug, PartialEq)]
pub(super) enum Readiness {
    /// All is there, but for these volumes: they come when a node is chosen.
    Ready(Vec<Arc<Value>>),
    /// Not before something happens.
    Waits(String),
}

impl Claims {
    pub(super) async fn of(plane: &InPlane, pods: impl Iterator<Item = &Value>) -> Result<Claims, Status> {
        let (mut of_volumes, mut of_devices) = (false, false);
        for pod in pods {
            of_volumes |= volume_claims(pod).next().is_some();
            of_devices |= !pod.array_at(&["spec", "resourceClaims"]).is_empty();
        }
        let mut claims = Claims::default();
        if of_volumes {
            claims.volumes = listed(plane, &VOLUME_CLAIMS).await?;
            claims.persistent = listed(plane, &VOLUMES).await?;
            claims.classes = listed(plane, &STORAGE_CLASSES).await?;
        }
        if of_devices {
            claims.devices = listed(plane, &RESOURCE_CLAIMS).await?;
        }
        Ok(claims)
    }

    /// What a pod waits for, as upstream says it.
    pub(super) fn readiness(&self, pod: &Value) -> Readiness {
        let namespace = SmolStr::new(meta::namespace(pod));
        let mut delayed = Vec::new();
        for (name, is_own) in volume_claims(pod) {
            let Some(claim) = self.volumes.get(&(namespace.clone(), name.clone())) else {
                return Readiness::Waits(match is_own {
                    true => format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                    ),
                    false => format!("persistentvolumeclaim {name:?} not found"),
                });
            };
            let volume = claim.str_at(&["spec", "volumeName"]).unwrap_or_default();
            if claim.str_at(&["status", "phase"]) == Some("Lost") {
                let why = format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                );
                return Readiness::Waits(why);
            }
            if meta::is_deleting(claim) {
                return Readiness::Waits(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            if volume.is_empty() && self.waits_for_a_pod(claim) {
                delayed.push(claim.clone());
            } else if volume.is_empty() || !is_bound(claim) {
                return Readiness::Waits("pod has unbound immediate PersistentVolumeClaims".into());
            }
        }
        match self.device_problem(pod, &namespace) {
            Some(why) => Readiness::Waits(why),
            None => Readiness::Ready(delayed),
        }
    }

    /// The volumes of a pod that are bound.
    pub(super) fn bound(&self, pod: &Value) -> Vec<Arc<Value>> {
        let namespace = SmolStr::new(meta::namespace(pod));
        let claims = volume_claims(pod).filter_map(|(name, _)| self.volumes.get(&(namespace.clone(), name)));
        let names = claims.filter_map(|claim| claim.str_at(&["spec", "volumeName"]));
        names.filter_map(|name| self.persistent.get(&(SmolStr::default(), name.into())).cloned()).collect()
    }

    /// Whether a claim gets its volume only when a pod with it has a node.
    fn waits_for_a_pod(&self, claim: &Value) -> bool {
        let class = claim.str_at(&["spec", "storageClassName"]).unwrap_or_default();
        let class = self.classes.get(&(SmolStr::default(), class.into()));
        class.and_then(|class| class.str_at(&["volumeBindingMode"])) == Some("WaitForFirstConsumer")
    }

    fn device_problem(&self, pod: &Value, namespace: &SmolStr) -> Option<String> {
        let made = pod.array_at(&["status", "resourceClaimStatuses"]);
        for wanted in pod.array_at(&["spec", "resourceClaims"]) {
            let name = match wanted.str_at(&["resourceClaimName"]) {
                Some(name) => name,
                None => {
                    let mut made = made.iter();
                    let Some(told) = made.find(|told| told.str_at(&["name"]) == wanted.str_at(&["name"]))
                    else {
                        return Some(format!(
                            "pod \"{namespace}/{}\": ResourceClaim not created yet",
                            meta::name(pod)
                        ));
                    };
                    // None was needed.
                    let Some(name) = told.str_at(&["resourceClaimName"]) else { continue };
                    name
                }
            };
            let Some(claim) = self.devices.get(&(namespace.clone(), name.into())) else {
                return Some(format!("resourceclaim.resource.k8s.io {name:?} not found"));
            };
            if meta::is_deleting(claim) {
                return Some(format!("resourceclaim {name:?} is being deleted"));
            }
            if claim.at(&["status", "allocation"]).is_none_or(Value::is_null) {
                return Some("cannot allocate all claims".into());
            }
        }
        None
    }
}

/// The node that was chosen for a claim.
pub(super) fn selected_node(claim: &Value) -> Option<&str> {
    claim.str_at(&["metadata", "annotations", SELECTED_NODE])
}

/// The claims among the volumes of a pod, and whether they are made for it.
fn volume_claims(pod: &Value) -> impl Iterator<Item = (SmolStr, bool)> {
    pod.array_at(&["spec", "volumes"]).iter().filter_map(|volume| {
        if volume.get("ephemeral").is_some_and(|own| !own.is_null()) {
            return Some((ephemeral_claim(pod, volume), true));
        }
        Some((volume.str_at(&["persistentVolumeClaim", "claimName"])?.into(), false))
    })
}

async fn listed(
    plane: &InPlane,
    resource: &GroupVersionResource,
) -> Result<HashMap<(SmolStr, SmolStr), Arc<Value>>, Status> {
    let all = plane.list(resource, "").await?;
    let key = |object: &Value| (meta::namespace(object).into(), meta::name(object).into());
    Ok(all.into_iter().map(|object| (key(&object), object)).collect())
}
