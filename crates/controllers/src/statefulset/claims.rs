//! The volume claims of a set's pods: made before the pod, mounted in it, and kept or deleted as the set wants.

use polder_client::resource::VOLUME_CLAIMS;
use polder_client::{InPlane, Patch};
use polder_model::{SmolStr, Status, Value, json};

use super::plan::range;
use crate::recorder::Recorder;
use crate::workload::Meta as _;
use crate::workload::kind::STATEFUL_SET;

/// The name of the claim that a template makes for a pod.
fn claim_name(set: &Value, template: &Value, number: i64) -> String {
    format!("{}-{}-{number}", template.name(), set.name())
}

/// Makes a pod use its claims.
pub(super) fn mount(set: &Value, pod: &mut Value, number: i64) {
    let templates = set.array_at(&["spec", "volumeClaimTemplates"]);
    if templates.is_empty() {
        return;
    }
    let mut volumes: Vec<Value> = templates
        .iter()
        .map(|template| {
            let name = claim_name(set, template, number);
            json!({"name": (template.name()), "persistentVolumeClaim": {"claimName": name}})
        })
        .collect();
    let is_claimed =
        |volume: &&Value| templates.iter().any(|template| Some(template.name()) == volume.str_at(&["name"]));
    let others = pod.array_at(&["spec", "volumes"]).iter().filter(|volume| !is_claimed(volume));
    volumes.extend(others.cloned());
    pod.set_at(&["spec", "volumes"], volumes);
}

/// Whether a pod uses its claims.
pub(super) fn are_mounted(set: &Value, pod: &Value, number: i64) -> bool {
    set.array_at(&["spec", "volumeClaimTemplates"]).iter().all(|template| {
        let name = claim_name(set, template, number);
        pod.array_at(&["spec", "volumes"]).iter().any(|volume| {
            volume.str_at(&["name"]) == Some(template.name())
                && volume.str_at(&["persistentVolumeClaim", "claimName"]) == Some(&name)
        })
    })
}

/// Makes the claims of a pod that are not there. Not when one of them is on its way out, or belongs to a pod that
/// had the name before: then it is waited for.
pub(super) async fn ensure(
    plane: &InPlane,
    recorder: &Recorder,
    set: &Value,
    number: i64,
) -> Result<(), Status> {
    let pod = format!("{}-{number}", set.name());
    for template in set.array_at(&["spec", "volumeClaimTemplates"]) {
        let name = claim_name(set, template, number);
        if let Some(found) = plane.get(&VOLUME_CLAIMS, set.namespace(), &name).await? {
            if found.is_terminating() {
                return Err(Status::untyped(500, format!("pvc {name} is being deleted")));
            }
            continue;
        }
        let mut claim = template.clone();
        claim.set_at(&["apiVersion"], "v1");
        claim.set_at(&["kind"], "PersistentVolumeClaim");
        claim.remove_at(&["status"]);
        claim.set_at(&["metadata", "name"], name.as_str());
        claim.set_at(&["metadata", "namespace"], set.namespace());
        if let Some(labels) = set.at(&["spec", "selector", "matchLabels"]).and_then(Value::as_object) {
            for (key, value) in labels.iter() {
                claim.set_at(&["metadata", "labels", key], value.clone());
            }
        }
        match plane.create(&VOLUME_CLAIMS, set.namespace(), claim).await {
            Ok(_) => {
                let message = format!("Create Claim {name} Pod {pod} in StatefulSet {} success", set.name());
                recorder.normal(plane, set, "SuccessfulCreate", &message).await;
            }
            Err(status) if status.code == 409 => {}
            Err(status) => {
                let why = &status.message;
                let message = format!(
                    "Create Claim {name} for Pod {pod} in StatefulSet {} failed error: {why}",
                    set.name()
                );
                recorder.warning(plane, set, "FailedCreate", &message).await;
                return Err(status);
            }
        }
    }
    Ok(())
}

/// Whether claims go with their set, and with their pod when the set shrinks.
fn policy(set: &Value) -> (bool, bool) {
    let deletes =
        |field| set.str_at(&["spec", "persistentVolumeClaimRetentionPolicy", field]) == Some("Delete");
    (deletes("whenDeleted"), deletes("whenScaled"))
}

/// Whether a claim a new pod would use is still owned by the pod that had its name before.
pub(super) async fn are_stale(plane: &InPlane, set: &Value, number: i64) -> Result<bool, Status> {
    if !policy(set).1 {
        return Ok(false);
    }
    let pod = format!("{}-{number}", set.name());
    for template in set.array_at(&["spec", "volumeClaimTemplates"]) {
        let name = claim_name(set, template, number);
        let claim = plane.get(&VOLUME_CLAIMS, set.namespace(), &name).await?;
        let is_pod =
            |one: &Value| one.str_at(&["kind"]) == Some("Pod") && one.str_at(&["name"]) == Some(&pod);
        if claim.is_some_and(|claim| claim.array_at(&["metadata", "ownerReferences"]).iter().any(is_pod)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The owners a claim should have: whoever's end is its own.
pub(super) fn owners(set: &Value, pod: &Value, number: i64, present: &[Value]) -> Vec<Value> {
    let is = |one: &Value, api_version: &str, kind: &str, name: &str| {
        one.str_at(&["apiVersion"]) == Some(api_version)
            && one.str_at(&["kind"]) == Some(kind)
            && one.str_at(&["name"]) == Some(name)
    };
    let is_set = |one: &Value| is(one, "apps/v1", "StatefulSet", set.name());
    let is_pod = |one: &Value| is(one, "v1", "Pod", pod.name());
    let stale = |one: &Value| {
        let uid = one.str_at(&["uid"]);
        (is_set(one) && uid != Some(set.uid())) || (is_pod(one) && uid != Some(pod.uid()))
    };
    if present.iter().any(stale) {
        return present.to_vec();
    }
    let mut owners: Vec<Value> = present.iter().filter(|one| !is_set(one) && !is_pod(one)).cloned().collect();
    let (when_deleted, when_scaled) = policy(set);
    let controlled = owners.iter().any(|one| one.get("controller").and_then(Value::as_bool) == Some(true));
    if controlled && (when_deleted || when_scaled) {
        return owners;
    }
    let is_extra = !range(set).contains(&number);
    if when_scaled && is_extra {
        owners.push(json!({
            "apiVersion": "v1", "kind": "Pod", "name": (pod.name()), "uid": (pod.uid()),
            "controller": true, "blockOwnerDeletion": true,
        }));
    } else if when_deleted && !(when_scaled && is_extra) {
        owners.push(STATEFUL_SET.controller_reference(set));
    }
    owners
}

/// Gives the claims of a pod the owners they should have.
pub(super) async fn retain(plane: &InPlane, set: &Value, pod: &Value, number: i64) -> Result<(), Status> {
    for template in set.array_at(&["spec", "volumeClaimTemplates"]) {
        let name = claim_name(set, template, number);
        let Some(claim) = plane.get(&VOLUME_CLAIMS, set.namespace(), &name).await? else { continue };
        let present = claim.array_at(&["metadata", "ownerReferences"]);
        let owners = owners(set, pod, number, present);
        if owners != present {
            let owners = if owners.is_empty() { Value::Null } else { Value::from(owners) };
            let mut patch = json!({"metadata": {"ownerReferences": owners}});
            patch.set_at(&["metadata", "resourceVersion"], SmolStr::new(claim.text("resourceVersion")));
            let at = plane.at(&VOLUME_CLAIMS, set.namespace(), &name);
            plane.client.patch(&at, Patch::Merge(patch)).await?;
        }
    }
    Ok(())
}
