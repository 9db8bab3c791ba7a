use std::sync::Arc;

use polder_model::{Value, json};

use super::plan::{self, ClaimStep, VolumeStep};

fn merged(mut object: Value, more: Value) -> Value {
    for (path, value) in more.as_object().unwrap().iter() {
        let path: Vec<&str> = path.split('|').collect();
        object.set_at(&path, value.clone());
    }
    object
}

fn volume(name: &str, size: &str, more: Value) -> Arc<Value> {
    let volume = json!({
        "metadata": {"name": name},
        "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "c"},
        "status": {"phase": "Available"},
    });
    Arc::new(merged(volume, more))
}

fn claim(more: Value) -> Value {
    let claim = json!({
        "metadata": {"name": "data", "namespace": "n", "uid": "u"},
        "spec": {
            "resources": {"requests": {"storage": "5Gi"}}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "c",
        },
    });
    merged(claim, more)
}

/// A step in short: the volume that is bound, or the phase and why.
fn shown(step: ClaimStep) -> String {
    let why = |note: Option<plan::Note>| note.map_or("", |note| note.reason);
    match step {
        ClaimStep::Bind(volume) => volume.str_at(&["metadata", "name"]).unwrap_or_default().into(),
        ClaimStep::Pending(note) => format!("Pending {}", why(note)),
        ClaimStep::Lost(note) => format!("Lost {}", why(note)),
        ClaimStep::Provision { provisioner, .. } => format!("Provision {provisioner}"),
    }
}

#[track_caller]
fn check(more: Value, volumes: &[Arc<Value>], class: Option<Value>, expected: &str) {
    assert_eq!(shown(plan::claim_step(&claim(more), volumes, class.as_ref(), None)), expected);
}

#[test]
fn the_smallest_that_fits() {
    let volumes = [
        volume("small", "1Gi", json!({})),
        volume("large", "50Gi", json!({})),
        volume("right", "10Gi", json!({})),
        volume("other-class", "6Gi", json!({"spec|storageClassName": "d"})),
        volume("block", "6Gi", json!({"spec|volumeMode": "Block"})),
        volume("taken", "6Gi", json!({"spec|claimRef": {"name": "x", "namespace": "n", "uid": "y"}})),
        volume("released", "6Gi", json!({"status|phase": "Released"})),
        volume("going", "6Gi", json!({"metadata|deletionTimestamp": "2026-01-01T00:00:00Z"})),
    ];
    check(json!({}), &volumes, None, "right");
    check(json!({"spec|accessModes": ["ReadWriteMany"]}), &volumes, None, "Pending ProvisioningFailed");
    check(json!({"spec|volumeMode": "Block"}), &volumes, None, "block");
    check(json!({"spec|storageClassName": "d"}), &volumes, None, "other-class");
    check(json!({"spec|resources|requests|storage": "20Gi"}), &volumes, None, "large");
    let labeled = [volume("a", "9Gi", json!({"metadata|labels": {"k": "v"}})), volumes[2].clone()];
    check(json!({"spec|selector": {"matchLabels": {"k": "v"}}}), &labeled, None, "a");
    let kept = volume("kept", "90Gi", json!({"spec|claimRef": {"name": "data", "namespace": "n"}}));
    check(json!({}), &[volumes[2].clone(), kept], None, "kept");
}

#[test]
fn claims_without_a_volume() {
    let class =
        |provisioner: &str, mode: &str| Some(json!({"provisioner": provisioner, "volumeBindingMode": mode}));
    check(json!({"spec|storageClassName": ""}), &[], None, "Pending FailedBinding");
    check(json!({}), &[], None, "Pending ProvisioningFailed");
    check(json!({}), &[], class("example.com/disk", "Immediate"), "Provision example.com/disk");
    check(json!({}), &[], class("kubernetes.io/no-provisioner", "Immediate"), "Pending ProvisioningFailed");
    let fits = [volume("fits", "5Gi", json!({}))];
    let waits = class("example.com/disk", "WaitForFirstConsumer");
    check(json!({}), &fits, waits.clone(), "Pending WaitForFirstConsumer");
    let chosen = json!({"metadata|annotations": {"volume.kubernetes.io/selected-node": "node-1"}});
    check(chosen.clone(), &fits, waits.clone(), "fits");
    check(chosen, &[], waits, "Provision example.com/disk");
}

#[test]
fn claims_that_name_a_volume() {
    let named = json!({"spec|volumeName": "v"});
    check(named.clone(), &[], None, "Pending ");
    check(named.clone(), &[volume("v", "5Gi", json!({}))], None, "v");
    check(named.clone(), &[volume("v", "4Gi", json!({}))], None, "Pending VolumeMismatch");
    let of = |uid: &str| json!({"spec|claimRef": {"name": "data", "namespace": "n", "uid": uid}});
    check(named.clone(), &[volume("v", "5Gi", of("u"))], None, "v");
    check(named, &[volume("v", "5Gi", of("other"))], None, "Pending FailedBinding");
}

#[test]
fn bound_claims() {
    let bound = |name: &str| json!({"spec|volumeName": name, "metadata|annotations": {"pv.kubernetes.io/bind-completed": "yes"}});
    let of = |uid: &str| json!({"spec|claimRef": {"name": "data", "namespace": "n", "uid": uid}});
    check(bound("v"), &[volume("v", "1Gi", of("u"))], None, "v");
    check(bound("v"), &[volume("v", "1Gi", of("x"))], None, "Lost ClaimMisbound");
    check(bound("v"), &[], None, "Lost ClaimLost");
    check(bound(""), &[], None, "Lost ClaimLost");
}

#[test]
fn a_binding_is_told_by_both_and_once() {
    let (claim, volume) = (claim(json!({})), volume("v", "10Gi", json!({})));
    let bound = plan::bound_volume(&volume, &claim);
    assert_eq!(bound.str_at(&["spec", "claimRef", "uid"]), Some("u"));
    assert_eq!(bound.str_at(&["metadata", "annotations", plan::BOUND_BY_CONTROLLER]), Some("yes"));
    assert_eq!(plan::bound_volume(&bound, &claim), bound);
    let new = plan::bound_claim(&claim, &bound);
    assert_eq!(new.str_at(&["spec", "volumeName"]), Some("v"));
    assert!(plan::is_bound(&new));
    assert_eq!(plan::bound_claim(&new, &bound), new);
    let status = plan::bound_claim_status(&new, &bound);
    assert_eq!(status.str_at(&["status", "capacity", "storage"]), Some("10Gi"));
    assert_eq!(plan::bound_claim_status(&status, &bound), status);
    let free = plan::unbound_volume(&bound);
    assert!(free.at(&["spec", "claimRef"]).is_none());
}

#[track_caller]
fn check_volume(more: Value, claim: Option<Value>, expected: &str) {
    let step = match plan::volume_step(&volume("v", "1Gi", more), claim.as_ref()) {
        VolumeStep::Phase(phase) => phase.into(),
        VolumeStep::Release(note) => format!("Release {}", note.map_or("", |note| note.reason)),
        VolumeStep::Unbind => "Unbind".into(),
        VolumeStep::Nothing => "Nothing".to_owned(),
    };
    assert_eq!(step, expected);
}

#[test]
fn volumes() {
    let of = |uid: &str, policy: &str| {
        json!({
            "spec|claimRef": {"name": "data", "namespace": "n", "uid": uid},
            "spec|persistentVolumeReclaimPolicy": policy,
        })
    };
    check_volume(json!({}), None, "Available");
    check_volume(of("", "Retain"), None, "Available");
    check_volume(of("u", "Retain"), None, "Release ");
    check_volume(of("u", "Retain"), Some(claim(json!({"metadata|uid": "new"}))), "Release ");
    check_volume(of("u", "Recycle"), None, "Release VolumeFailedRecycle");
    check_volume(of("u", "Delete"), None, "Release VolumeFailedDelete");
    let mut made = of("u", "Delete");
    made.set_at(&["metadata|annotations"], json!({"pv.kubernetes.io/provisioned-by": "example.com/disk"}));
    check_volume(made, None, "Release ");
    check_volume(of("u", "Delete"), Some(claim(json!({"spec|volumeName": "v"}))), "Bound");
    check_volume(of("u", "Delete"), Some(claim(json!({"spec|volumeName": "w"}))), "Unbind");
    check_volume(of("u", "Delete"), Some(claim(json!({}))), "Nothing");
}
