//! Which volume a claim gets, and what becomes of a volume: pure.
//!
//! A binding is told twice, by the volume and by the claim. The volume is written first: it is what two claims could
//! both want, and the second one's write fails.

use std::sync::Arc;

use polder_model::quantity::Quantity;
use polder_model::selector::LabelSelector;
use polder_model::{Value, json};

use crate::meta;

pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const PROVISIONERS: [&str; 2] =
    ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];

/// Something to tell about an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Note {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Note {
    fn normal(reason: &'static str, message: impl Into<String>) -> Option<Note> {
        Some(Note { warning: false, reason, message: message.into() })
    }

    fn warning(reason: &'static str, message: impl Into<String>) -> Option<Note> {
        Some(Note { warning: true, reason, message: message.into() })
    }
}

/// What to do about a claim.
#[derive(Debug, PartialEq)]
pub(super) enum ClaimStep {
    Bind(Arc<Value>),
    Pending(Option<Note>),
    Lost(Option<Note>),
    /// It waits for a provisioner, whose name it is given.
    Provision {
        provisioner: String,
        note: Option<Note>,
    },
}

/// What to do about a volume.
#[derive(Debug, PartialEq)]
pub(super) enum VolumeStep {
    Phase(&'static str),
    /// Nobody has it any more; what it was used for may still be on it.
    Release(Option<Note>),
    /// Its claim has another volume.
    Unbind,
    Nothing,
}

/// The class of a claim or a volume; empty when it has none.
pub(super) fn class_of(object: &Value) -> &str {
    let old = object.str_at(&["metadata", "annotations", OLD_CLASS]);
    old.or_else(|| object.str_at(&["spec", "storageClassName"])).unwrap_or_default()
}

pub(crate) fn is_bound(claim: &Value) -> bool {
    claim.at(&["metadata", "annotations", BIND_COMPLETED]).is_some()
}

/// `class` is the claim's, if there is one of its name. `pod` is one that uses the claim.
pub(super) fn claim_step(
    claim: &Value,
    volumes: &[Arc<Value>],
    class: Option<&Value>,
    pod: Option<&Value>,
) -> ClaimStep {
    let wanted = claim.str_at(&["spec", "volumeName"]).unwrap_or_default();
    let named = volumes.iter().find(|volume| meta::name(volume) == wanted);
    if is_bound(claim) {
        return bound_step(claim, wanted, named);
    }
    if wanted.is_empty() {
        let waits =
            class.and_then(|class| class.str_at(&["volumeBindingMode"])) == Some("WaitForFirstConsumer");
        let delayed = waits && claim.at(&["metadata", "annotations", SELECTED_NODE]).is_none();
        return match best_match(claim, volumes, delayed) {
            Some(volume) => ClaimStep::Bind(volume.clone()),
            None if delayed => ClaimStep::Pending(waiting(pod)),
            None => unmatched(claim, class),
        };
    }
    let Some(volume) = named else { return ClaimStep::Pending(None) };
    match volume.at(&["spec", "claimRef"]).filter(|claim| !claim.is_null()) {
        None => match mismatch(volume, claim) {
            None => ClaimStep::Bind(volume.clone()),
            Some(why) => {
                let message = format!("Cannot bind to requested volume {wanted:?}: {why}");
                ClaimStep::Pending(Note::warning("VolumeMismatch", message))
            }
        },
        Some(_) if is_for(volume, claim) => ClaimStep::Bind(volume.clone()),
        Some(_) => {
            let message = format!("volume {wanted:?} already bound to a different claim.");
            ClaimStep::Pending(Note::warning("FailedBinding", message))
        }
    }
}

fn bound_step(claim: &Value, wanted: &str, volume: Option<&Arc<Value>>) -> ClaimStep {
    if wanted.is_empty() {
        let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return ClaimStep::Lost(Note::warning("ClaimLost", message));
    }
    let Some(volume) = volume else {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return ClaimStep::Lost(Note::warning("ClaimLost", message));
    };
    match volume.at(&["spec", "claimRef"]).filter(|claim| !claim.is_null()) {
        None => ClaimStep::Bind(volume.clone()),
        Some(reference) if reference.str_at(&["uid"]) == Some(meta::uid(claim)) => {
            ClaimStep::Bind(volume.clone())
        }
        Some(_) => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            ClaimStep::Lost(Note::warning("ClaimMisbound", message))
        }
    }
}

fn waiting(pod: Option<&Value>) -> Option<Note> {
    match pod {
        Some(pod) => Note::normal(
            "WaitForPodScheduled",
            format!("waiting for pod {} to be scheduled", meta::name(pod)),
        ),
        None => {
            let message = "waiting for first consumer to be created before binding";
            Note::normal("WaitForFirstConsumer", message)
        }
    }
}

/// There is no volume for a claim: perhaps somebody makes one.
fn unmatched(claim: &Value, class: Option<&Value>) -> ClaimStep {
    let name = class_of(claim);
    if name.is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        return ClaimStep::Pending(Note::normal("FailedBinding", message));
    }
    let Some(class) = class else {
        let message = format!("storageclass.storage.k8s.io {name:?} not found");
        return ClaimStep::Pending(Note::warning("ProvisioningFailed", message));
    };
    let provisioner = class.str_at(&["provisioner"]).unwrap_or_default();
    if provisioner.starts_with("kubernetes.io/") {
        let message = format!("no volume plugin matched name: {provisioner}");
        return ClaimStep::Pending(Note::warning("ProvisioningFailed", message));
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
         system administrator. If volume creation is delayed, please verify that the provisioner is running and \
         correctly registered."
    );
    ClaimStep::Provision {
        provisioner: provisioner.into(),
        note: Note::normal("ExternalProvisioning", message),
    }
}

/// The claim with the name of the provisioner it waits for.
pub(super) fn provisioned(claim: &Value, provisioner: &str) -> Value {
    let mut new = claim.clone();
    for annotation in PROVISIONERS {
        new.set_at(&["metadata", "annotations", annotation], provisioner);
    }
    new
}

/// The smallest volume that is large enough. One that is kept for this claim comes before all others.
fn best_match<'v>(claim: &Value, volumes: &'v [Arc<Value>], delayed: bool) -> Option<&'v Arc<Value>> {
    let fits = |volume: &&Arc<Value>| mode(volume) == mode(claim) && !meta::is_deleting(volume);
    let mut kept = volumes.iter().filter(fits).filter(|volume| is_for(volume, claim));
    if let Some(volume) = kept.find(|volume| mismatch(volume, claim) != Some(TOO_SMALL)) {
        return Some(volume);
    }
    if delayed {
        return None;
    }
    let selector = claim.at(&["spec", "selector"]).filter(|selector| !selector.is_null());
    let selector = match selector.map(LabelSelector::from_value) {
        Some(Ok(selector)) => selector,
        Some(Err(_)) => return None,
        None => LabelSelector::everything(),
    };
    let free = volumes.iter().filter(fits).filter(|volume| {
        volume.at(&["spec", "claimRef"]).is_none_or(Value::is_null)
            && volume.str_at(&["status", "phase"]) == Some("Available")
            && selector.matches(|key| volume.str_at(&["metadata", "labels", key]))
            && mismatch(volume, claim).is_none()
    });
    free.min_by(|left, right| {
        capacity(left).cmp(&capacity(right)).then_with(|| meta::name(left).cmp(meta::name(right)))
    })
}

const TOO_SMALL: &str = "requested PV is too small";

/// Why a volume is not what a claim asks for.
fn mismatch(volume: &Value, claim: &Value) -> Option<&'static str> {
    let request = claim.at(&["spec", "resources", "requests", "storage"]);
    let request = request.and_then(|request| Quantity::from_value(request).ok());
    if request.is_some_and(|request| capacity(volume) < Some(request)) {
        return Some(TOO_SMALL);
    }
    if class_of(volume) != class_of(claim) {
        return Some("storageClassName does not match");
    }
    let attributes =
        |object: &Value| object.str_at(&["spec", "volumeAttributesClassName"]).map(str::to_owned);
    if attributes(volume).unwrap_or_default() != attributes(claim).unwrap_or_default() {
        return Some("volumeAttributesClassName does not match");
    }
    if mode(volume) != mode(claim) {
        return Some("incompatible volumeMode");
    }
    let modes = volume.array_at(&["spec", "accessModes"]);
    let offered = |mode: &Value| modes.contains(mode);
    if !claim.array_at(&["spec", "accessModes"]).iter().all(offered) {
        return Some("incompatible accessMode");
    }
    None
}

fn capacity(volume: &Value) -> Option<Quantity> {
    Quantity::from_value(volume.at(&["spec", "capacity", "storage"])?).ok()
}

fn mode(object: &Value) -> &str {
    object.str_at(&["spec", "volumeMode"]).unwrap_or("Filesystem")
}

/// Whether a volume is kept for a claim, or has been bound to it.
pub(super) fn is_for(volume: &Value, claim: &Value) -> bool {
    let Some(reference) = volume.at(&["spec", "claimRef"]) else { return false };
    let uid = reference.str_at(&["uid"]).unwrap_or_default();
    reference.str_at(&["name"]) == Some(meta::name(claim))
        && reference.str_at(&["namespace"]) == Some(meta::namespace(claim))
        && (uid.is_empty() || uid == meta::uid(claim))
}

/// A volume and a claim that are bound: volume, its status, claim, its status. Each is the next one's state before.
pub(super) fn bound_volume(volume: &Value, claim: &Value) -> Value {
    let mut new = volume.clone();
    if !is_for(volume, claim) {
        new.set_at(&["metadata", "annotations", BOUND_BY_CONTROLLER], "yes");
    }
    let uid = volume.str_at(&["spec", "claimRef", "uid"]).unwrap_or_default();
    if uid != meta::uid(claim) {
        let reference = json!({
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": (meta::namespace(claim)),
            "name": (meta::name(claim)),
            "uid": (meta::uid(claim)),
            "resourceVersion": (claim.str_at(&["metadata", "resourceVersion"]).unwrap_or_default()),
        });
        new.set_at(&["spec", "claimRef"], reference);
    }
    new
}

pub(super) fn bound_claim(claim: &Value, volume: &Value) -> Value {
    let mut new = claim.clone();
    if claim.str_at(&["spec", "volumeName"]).is_none_or(|name| name != meta::name(volume)) {
        new.set_at(&["spec", "volumeName"], meta::name(volume));
        new.set_at(&["metadata", "annotations", BOUND_BY_CONTROLLER], "yes");
    }
    if !is_bound(claim) {
        new.set_at(&["metadata", "annotations", BIND_COMPLETED], "yes");
    }
    new
}

pub(super) fn bound_claim_status(claim: &Value, volume: &Value) -> Value {
    let mut new = claim.clone();
    new.set_at(&["status", "phase"], "Bound");
    new.set_at(&["status", "accessModes"], volume.array_at(&["spec", "accessModes"]).to_vec());
    // Once bound, whoever resizes the volume tells its capacity.
    let first = claim.str_at(&["status", "phase"]) != Some("Bound");
    if let Some(capacity) = volume.at(&["spec", "capacity"]).filter(|_| first) {
        new.set_at(&["status", "capacity"], capacity.clone());
    }
    if let Some(class) = volume.str_at(&["spec", "volumeAttributesClassName"]).filter(|_| first) {
        new.set_at(&["status", "currentVolumeAttributesClassName"], class);
    }
    new
}

pub(super) fn pending_claim_status(claim: &Value, phase: &str) -> Value {
    let mut new = claim.clone();
    new.set_at(&["status", "phase"], phase);
    new.remove_at(&["status", "accessModes"]);
    new.remove_at(&["status", "capacity"]);
    new
}

/// `claim` is the one the volume names, if it is there.
pub(super) fn volume_step(volume: &Value, claim: Option<&Value>) -> VolumeStep {
    let reference = volume.at(&["spec", "claimRef"]).filter(|claim| !claim.is_null());
    let uid = reference.and_then(|reference| reference.str_at(&["uid"])).unwrap_or_default();
    if uid.is_empty() {
        // Nobody's, or kept for somebody.
        return VolumeStep::Phase("Available");
    }
    let Some(claim) = claim.filter(|claim| meta::uid(claim) == uid) else {
        return VolumeStep::Release(reclaim(volume));
    };
    match claim.str_at(&["spec", "volumeName"]).unwrap_or_default() {
        "" => VolumeStep::Nothing,
        name if name == meta::name(volume) => VolumeStep::Phase("Bound"),
        _ => VolumeStep::Unbind,
    }
}

/// Why a released volume cannot be cleaned or removed here; nothing when that is not asked, or others do it.
fn reclaim(volume: &Value) -> Option<Note> {
    match volume.str_at(&["spec", "persistentVolumeReclaimPolicy"]).unwrap_or("Retain") {
        "Retain" => None,
        "Recycle" => Note::warning("VolumeFailedRecycle", "No recycler plugin found for the volume!"),
        "Delete" => {
            let provisioner = volume.str_at(&["metadata", "annotations", PROVISIONED_BY]).unwrap_or_default();
            if !provisioner.is_empty() {
                return None;
            }
            let message = format!(
                "error getting deleter volume plugin for volume {:?}: no deletable volume plugin matched",
                meta::name(volume)
            );
            Note::warning("VolumeFailedDelete", message)
        }
        _ => Note::warning(
            "VolumeUnknownReclaimPolicy",
            "Volume has unrecognized PersistentVolumeReclaimPolicy",
        ),
    }
}

/// The volume without its claim. One that somebody kept for a claim stays kept for it.
pub(super) fn unbound_volume(volume: &Value) -> Value {
    let mut new = volume.clone();
    if new.remove_at(&["metadata", "annotations", BOUND_BY_CONTROLLER]).is_some() {
        new.remove_at(&["spec", "claimRef"]);
    } else {
        new.remove_at(&["spec", "claimRef", "uid"]);
        new.remove_at(&["spec", "claimRef", "resourceVersion"]);
    }
    new
}
