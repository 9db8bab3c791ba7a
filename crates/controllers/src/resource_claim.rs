//! Claims of devices: made for pods from templates, kept for pods that use them, given back when those are done.
//!
//! Which devices a claim gets is the scheduler's to decide. Keys are `pod/<namespace>/<name>` and
//! `claim/<namespace>/<name>`.

use std::sync::Arc;

use polder_client::resource::{PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS};
use polder_client::{Answer, Change, Controller, Delete, InPlane, Interest, Next, Wake};
use polder_model::{Object, SmolStr, Status, Value, format_smolstr, json};

use crate::meta;
use crate::recorder::Recorder;

const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
const FIELD: &str = "\"resourceClaims\":";

pub(crate) struct ResourceClaim {
    recorder: Recorder,
}

impl ResourceClaim {
    pub(crate) fn new() -> ResourceClaim {
        ResourceClaim { recorder: Recorder::new("resource_claim") }
    }
}

impl Controller for ResourceClaim {
    fn name(&self) -> &'static str {
        "resourceclaim-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&PODS, &RESOURCE_CLAIMS, &RESOURCE_CLAIM_TEMPLATES])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&PODS) {
            let Some(pod) = change.last().filter(|pod| pod.may_contain(FIELD)) else { return };
            if change.new.is_some() && !is_done(pod.value()) {
                wake(format_smolstr!("pod/{}/{}", change.namespace, change.name));
            } else {
                for claim in claims_of(pod.value()) {
                    wake(format_smolstr!("claim/{}/{claim}", change.namespace));
                }
            }
        } else if change.is(&RESOURCE_CLAIMS) {
            if change.new.is_some() {
                wake(format_smolstr!("claim/{}/{}", change.namespace, change.name));
            }
            // A new claim may be what a pod waits for, one that is gone has to be made again.
            if change.new.is_none() || change.old.is_none() {
                for pod in change.controllers("", "Pod") {
                    wake(format_smolstr!("pod/{pod}"));
                }
            }
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (kind, key) = meta::split(key);
            let (namespace, name) = meta::split(key);
            if kind == "pod" {
                match plane.get(&PODS, namespace, name).await? {
                    Some(pod) if !is_done(&pod) && !meta::is_deleting(&pod) => self.pod(plane, &pod).await,
                    _ => Ok(Next::Done),
                }
            } else {
                match plane.get(&RESOURCE_CLAIMS, namespace, name).await? {
                    Some(claim) => claim_kept(plane, Value::clone(&claim)).await,
                    None => Ok(Next::Done),
                }
            }
        })
    }
}

impl ResourceClaim {
    /// Makes the claims a pod asks for, and tells the pod their names.
    async fn pod(&self, plane: &InPlane, pod: &Arc<Value>) -> Result<Next, Status> {
        let namespace = meta::namespace(pod);
        let mut statuses: Vec<Value> = Vec::new();
        for wanted in pod.array_at(&["spec", "resourceClaims"]) {
            let name = wanted.str_at(&["name"]).unwrap_or_default();
            let claim = match wanted.str_at(&["resourceClaimTemplateName"]) {
                Some(template) => match self.made(plane, pod, name, template).await? {
                    Some(claim) => {
                        statuses.push(json!({"name": name, "resourceClaimName": (meta::name(&claim))}));
                        Some(claim)
                    }
                    None => return Ok(Next::Later),
                },
                None => {
                    let claim = wanted.str_at(&["resourceClaimName"]).unwrap_or_default();
                    plane.get(&RESOURCE_CLAIMS, namespace, claim).await?.map(|claim| Value::clone(&claim))
                }
            };
            // A pod that is on a node already, whoever put it there, has what is allocated.
            let scheduled = pod.str_at(&["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
            if let Some(new) = claim.filter(|_| scheduled).and_then(|claim| reserved(&claim, pod)) {
                plane.update_status(&RESOURCE_CLAIMS, new).await?;
            }
        }
        if statuses != pod.array_at(&["status", "resourceClaimStatuses"]) {
            let patch = json!({"status": {"resourceClaimStatuses": statuses}});
            plane.merge_status(&PODS, namespace, meta::name(pod), patch).await?;
        }
        Ok(Next::Done)
    }

    /// The claim a pod has for one of its wishes; made if it is missing. Nothing if that cannot be.
    async fn made(
        &self,
        plane: &InPlane,
        pod: &Value,
        wish: &str,
        template: &str,
    ) -> Result<Option<Value>, Status> {
        let namespace = meta::namespace(pod);
        let known = pod.array_at(&["status", "resourceClaimStatuses"]).iter();
        let known = known.into_iter().find(|status| status.str_at(&["name"]) == Some(wish));
        if let Some(name) = known.and_then(|status| status.str_at(&["resourceClaimName"]))
            && let Some(claim) = plane.get(&RESOURCE_CLAIMS, namespace, name).await?
        {
            return Ok(Some(Value::clone(&claim)));
        }
        // Made before, and the pod not told.
        let claims = plane.list(&RESOURCE_CLAIMS, namespace).await?;
        let is_it = |claim: &&Arc<Value>| {
            meta::controller(claim).and_then(|owner| owner.str_at(&["uid"])) == Some(meta::uid(pod))
                && claim.str_at(&["metadata", "annotations", POD_CLAIM]) == Some(wish)
                && !meta::is_deleting(claim)
        };
        if let Some(claim) = claims.iter().find(is_it) {
            return Ok(Some(Value::clone(claim)));
        }
        let problem = match plane.get(&RESOURCE_CLAIM_TEMPLATES, namespace, template).await? {
            None => format!("resourceclaimtemplate.resource.k8s.io {template:?} not found"),
            Some(found) => match plane.create(&RESOURCE_CLAIMS, namespace, claim(pod, wish, &found)).await {
                Ok(claim) => return Ok(Some(claim)),
                Err(status) if status.code == 409 || meta::is_terminating(&status) => return Err(status),
                Err(status) => status.message,
            },
        };
        let message = format!("PodResourceClaim {wish}: resource claim template {template:?}: {problem}");
        self.recorder.warning(plane, pod, "FailedResourceClaimCreation", &message).await;
        Ok(None)
    }
}

/// Takes from a claim the pods that do not need it any more, and what it had for them; deletes one that was made for a
/// pod which is done.
async fn claim_kept(plane: &InPlane, mut claim: Value) -> Result<Next, Status> {
    let namespace = SmolStr::new(meta::namespace(&claim));
    let users = claim.array_at(&["status", "reservedFor"]).to_vec();
    let mut kept: Vec<Value> = Vec::new();
    for user in &users {
        let name = user.str_at(&["name"]).unwrap_or_default();
        let is_pod = user.str_at(&["apiGroup"]).unwrap_or_default().is_empty()
            && user.str_at(&["resource"]) == Some("pods");
        let stays = !is_pod
            || plane
                .get(&PODS, &namespace, name)
                .await?
                .is_some_and(|pod| user.str_at(&["uid"]) == Some(meta::uid(&pod)) && !is_done(&pod));
        if stays {
            kept.push(user.clone());
        }
    }
    let unused = kept.is_empty();
    let dropped = kept.len() < users.len();
    if dropped || (unused && meta::is_deleting(&claim)) {
        let mut new = claim.clone();
        if unused {
            new.remove_at(&["status", "reservedFor"]);
            if meta::has_finalizer(&claim, FINALIZER) {
                new.remove_at(&["status", "allocation"]);
            }
        } else {
            new.set_at(&["status", "reservedFor"], kept);
        }
        if new != claim {
            claim = plane.update_status(&RESOURCE_CLAIMS, new).await?;
        }
        if claim.at(&["status", "allocation"]).is_none() && meta::has_finalizer(&claim, FINALIZER) {
            let new = meta::with_finalizer(&claim, FINALIZER, false);
            claim = plane.update(&RESOURCE_CLAIMS, new).await?;
        }
    }
    let owner = meta::controller(&claim).filter(|owner| owner.str_at(&["kind"]) == Some("Pod"));
    if unused
        && !meta::is_deleting(&claim)
        && let Some(owner) = owner
        && let Some(pod) = plane.get(&PODS, &namespace, owner.str_at(&["name"]).unwrap_or_default()).await?
        && (owner.str_at(&["uid"]) != Some(meta::uid(&pod)) || is_done(&pod))
    {
        let delete = Delete { uid: Some(meta::uid(&claim).into()), ..Delete::default() };
        plane.delete(&RESOURCE_CLAIMS, &namespace, meta::name(&claim), delete).await?;
    }
    Ok(Next::Done)
}

/// Whether a pod runs no more, or never will.
fn is_done(pod: &Value) -> bool {
    let over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    let nowhere = pod.str_at(&["spec", "nodeName"]).unwrap_or_default().is_empty();
    over || (meta::is_deleting(pod) && nowhere)
}

/// The names of all claims of a pod.
fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    let named = pod.array_at(&["spec", "resourceClaims"]).iter();
    let made = pod.array_at(&["status", "resourceClaimStatuses"]).iter();
    named.chain(made).filter_map(|claim| claim.str_at(&["resourceClaimName"]))
}

/// The claim of one of a pod's wishes.
fn claim(pod: &Value, wish: &str, template: &Value) -> Value {
    let mut metadata = Object::new();
    for field in ["labels", "annotations"] {
        if let Some(value) = template.at(&["spec", "metadata", field]) {
            metadata.insert(field, value.clone());
        }
    }
    metadata.insert("generateName", format_smolstr!("{}-{wish}-", meta::name(pod)));
    metadata.insert("namespace", meta::namespace(pod));
    metadata.insert("ownerReferences", json!([(meta::owned_by("v1", "Pod", pod))]));
    let mut claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": (template.at(&["spec", "spec"]).cloned().unwrap_or_default()),
    });
    claim.set_at(&["metadata", "annotations", POD_CLAIM], wish);
    claim
}

/// A claim that is allocated, kept for a pod; nothing if it is already, or is not allocated.
fn reserved(claim: &Value, pod: &Value) -> Option<Value> {
    claim.at(&["status", "allocation"]).filter(|allocation| !allocation.is_null())?;
    let mut users = claim.array_at(&["status", "reservedFor"]).to_vec();
    if users.iter().any(|user| user.str_at(&["uid"]) == Some(meta::uid(pod))) {
        return None;
    }
    users.push(json!({"resource": "pods", "name": (meta::name(pod)), "uid": (meta::uid(pod))}));
    let mut new = claim.clone();
    new.set_at(&["status", "reservedFor"], users);
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_made_of_templates() {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}});
        let template = json!({"spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {}}}});
        let claim = claim(&pod, "gpu", &template);
        assert_eq!(claim.str_at(&["metadata", "generateName"]), Some("p-gpu-"));
        assert_eq!(claim.str_at(&["metadata", "annotations", POD_CLAIM]), Some("gpu"));
        assert_eq!(claim.at(&["spec"]), Some(&json!({"devices": {}})));
        assert_eq!(reserved(&claim, &pod), None, "nothing is allocated");
        let mut allocated = claim;
        allocated.set_at(&["status", "allocation"], json!({}));
        let kept = reserved(&allocated, &pod).unwrap();
        assert_eq!(kept.array_at(&["status", "reservedFor"])[0].str_at(&["uid"]), Some("u"));
        assert_eq!(reserved(&kept, &pod), None, "once");
    }

    #[track_caller]
    fn check(phase: &str, node: &str, deleting: bool, expected: bool) {
        let mut pod = json!({"spec": {"nodeName": node}, "status": {"phase": phase}});
        if deleting {
            pod.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        }
        assert_eq!(is_done(&pod), expected);
    }

    #[test]
    fn pods_that_are_done() {
        check("Running", "n", false, false);
        check("Running", "n", true, false);
        check("Pending", "", true, true);
        check("Succeeded", "n", false, true);
    }
}
