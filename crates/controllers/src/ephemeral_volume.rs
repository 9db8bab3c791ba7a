//! Claims for volumes that belong to a pod: made from the template in the pod, owned by it, gone with it.
//!
//! Keys are pods.

use polder_client::resource::{PODS, VOLUME_CLAIMS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};
use polder_model::{Object, Value, json};

use crate::meta;
use crate::protection::ephemeral_claim;
use crate::recorder::Recorder;

/// As it stands in stored pods that have such a volume.
const FIELD: &str = "\"ephemeral\":";

pub(crate) struct EphemeralVolume {
    recorder: Recorder,
}

impl EphemeralVolume {
    pub(crate) fn new() -> EphemeralVolume {
        EphemeralVolume { recorder: Recorder::new("ephemeral_volume") }
    }
}

impl Controller for EphemeralVolume {
    fn name(&self) -> &'static str {
        "ephemeral-volume-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&PODS, &VOLUME_CLAIMS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&PODS) {
            // What a pod has of volumes never changes.
            if change.old.is_none() && change.new.as_ref().is_some_and(|pod| pod.may_contain(FIELD)) {
                wake(change.key());
            }
        } else if change.new.is_none()
            && change.old.as_ref().is_some_and(|claim| claim.may_contain("\"Pod\""))
        {
            change.controllers("", "Pod").into_iter().for_each(wake);
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = meta::split(key);
            let Some(pod) = plane.get(&PODS, namespace, name).await? else { return Ok(Next::Done) };
            if meta::is_deleting(&pod) {
                return Ok(Next::Done);
            }
            let volumes = pod.array_at(&["spec", "volumes"]).iter();
            for volume in volumes.filter(|volume| volume.get("ephemeral").is_some_and(|own| !own.is_null())) {
                let claim = claim(&pod, volume);
                let there = plane.get(&VOLUME_CLAIMS, namespace, meta::name(&claim)).await?;
                let problem = match there {
                    Some(there) if belongs(&there, &pod) => continue,
                    Some(_) => {
                        let name = meta::name(&claim);
                        format!(
                            "PVC {namespace}/{name} was not created for pod {namespace}/{} (pod is not owner)",
                            meta::name(&pod)
                        )
                    }
                    None => match plane.create(&VOLUME_CLAIMS, namespace, claim).await {
                        Ok(_) => continue,
                        Err(status) if meta::is_terminating(&status) => continue,
                        Err(status) if status.code == 409 => return Err(status),
                        Err(status) => format!("create PVC: {status}"),
                    },
                };
                let volume = volume.str_at(&["name"]).unwrap_or_default();
                let message = format!("ephemeral volume {volume}: {problem}");
                self.recorder.warning(plane, &pod, "FailedBinding", &message).await;
                return Ok(Next::Later);
            }
            Ok(Next::Done)
        })
    }
}

fn belongs(claim: &Value, pod: &Value) -> bool {
    meta::controller(claim).and_then(|owner| owner.str_at(&["uid"])) == Some(meta::uid(pod))
}

/// The claim of a volume.
fn claim(pod: &Value, volume: &Value) -> Value {
    let template = volume.at(&["ephemeral", "volumeClaimTemplate"]).unwrap_or(&Value::Null);
    let mut metadata = Object::new();
    for field in ["labels", "annotations"] {
        if let Some(value) = template.at(&["metadata", field]) {
            metadata.insert(field, value.clone());
        }
    }
    metadata.insert("name", ephemeral_claim(pod, volume));
    metadata.insert("namespace", meta::namespace(pod));
    metadata.insert("ownerReferences", json!([(meta::owned_by("v1", "Pod", pod))]));
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": (template.get("spec").cloned().unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_made_of_templates() {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}});
        let volume = json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}});
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}});
        let claim = claim(&pod, &volume);
        assert_eq!(meta::name(&claim), "p-scratch");
        assert!(belongs(&claim, &pod));
        assert!(!belongs(&claim, &json!({"metadata": {"uid": "x"}})));
        assert_eq!(claim.at(&["metadata", "labels"]), Some(&json!({"a": "b"})));
        assert_eq!(claim.array_at(&["spec", "accessModes"]).len(), 1);
    }
}
