//! Claims get volumes: those that somebody made, by class, size, modes and labels, or the one a claim or a volume names.
//! Making volumes is left to provisioners, which are told by an annotation.
//!
//! One key stands for a plane, so that two claims never choose at the same time; what changed is noted in [`Marks`] as
//! `claim/<namespace>/<name>` or `volume/<name>`. A volume that becomes available wakes the claims that wait.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use polder_client::resource::{PODS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Query, Wake};
use polder_model::{GroupVersionResource, PlaneId, SmolStr, Status, Value, format_smolstr};

use self::plan::{ClaimStep, Note, VolumeStep};
pub(crate) use self::plan::{SELECTED_NODE, is_bound};
use crate::marks::Marks;
use crate::meta;
use crate::recorder::Recorder;

const KEY: &str = "volumes";
const WAITING: SmolStr = SmolStr::new_static("waiting");
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

pub(crate) struct VolumeBinder {
    marks: Marks,
    recorder: Recorder,
}

impl VolumeBinder {
    pub(crate) fn new() -> VolumeBinder {
        VolumeBinder { marks: Marks::default(), recorder: Recorder::new("persistentvolume-controller") }
    }
}

impl Controller for VolumeBinder {
    fn name(&self) -> &'static str {
        "persistentvolume-binder-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&VOLUME_CLAIMS, &VOLUMES, &STORAGE_CLASSES])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        let all = SmolStr::default();
        let mark = |name: SmolStr| self.marks.name(change.plane, &all, &name);
        let versions = || [&change.old, &change.new].into_iter().flatten().map(|version| version.value());
        if change.is(&VOLUME_CLAIMS) {
            mark(format_smolstr!("claim/{}/{}", change.namespace, change.name));
            for claim in versions() {
                if let Some(volume) = claim.str_at(&["spec", "volumeName"]).filter(|name| !name.is_empty()) {
                    mark(format_smolstr!("volume/{volume}"));
                }
            }
        } else if change.is(&VOLUMES) {
            mark(format_smolstr!("volume/{}", change.name));
            for volume in versions() {
                let text = |field| volume.str_at(&["spec", "claimRef", field]).unwrap_or_default();
                if !text("name").is_empty() {
                    mark(format_smolstr!("claim/{}/{}", text("namespace"), text("name")));
                }
            }
            let phase = |version: &Option<polder_client::Snapshot>| {
                version
                    .as_ref()
                    .and_then(|volume| volume.value().str_at(&["status", "phase"]).map(SmolStr::new))
            };
            let now = phase(&change.new);
            if now.as_deref() == Some("Available") && phase(&change.old) != now {
                mark(WAITING);
            }
        } else if change.new.is_some() {
            mark(WAITING);
        } else {
            return;
        }
        wake(KEY.into());
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, _key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let taken = self.marks.take(plane.plane, "");
            let mut volumes = plane.list(&VOLUMES, "").await?;
            let mut claims: BTreeSet<(SmolStr, SmolStr)> = BTreeSet::new();
            let mut touched: BTreeSet<SmolStr> = BTreeSet::new();
            for name in taken.names() {
                match name.split_once('/') {
                    Some(("claim", key)) => {
                        let (namespace, name) = meta::split(key);
                        claims.insert((namespace.into(), name.into()));
                    }
                    Some((_, volume)) => {
                        touched.insert(volume.into());
                    }
                    None => {}
                }
            }
            if taken.everything() || taken.concerns(&WAITING, None) {
                for claim in plane.list(&VOLUME_CLAIMS, "").await? {
                    if taken.everything() || !plan::is_bound(&claim) {
                        claims.insert((meta::namespace(&claim).into(), meta::name(&claim).into()));
                    }
                }
            }
            let mut outcome = Ok(());
            // First volumes, so that those which have just been made can be had.
            for volume in &mut volumes {
                if !taken.everything() && !touched.contains(meta::name(volume)) {
                    continue;
                }
                match self.volume(plane, volume).await {
                    Ok(Some(new)) => *volume = Arc::new(new),
                    Ok(None) => {}
                    Err(status) => outcome = Err(status),
                }
            }
            for (namespace, name) in claims {
                if let Err(status) = self.claim(plane, &namespace, &name, &mut volumes).await
                    && status.code != 404
                {
                    outcome = Err(status);
                }
            }
            outcome?;
            taken.done();
            Ok(Next::Done)
        })
    }

    fn forget(&self, is_gone: &dyn Fn(PlaneId) -> bool) {
        self.marks.forget(is_gone);
    }
}

impl VolumeBinder {
    async fn note(&self, plane: &InPlane, about: &Value, note: Option<Note>) {
        match note {
            Some(Note { warning: true, reason, message }) => {
                self.recorder.warning(plane, about, reason, &message).await;
            }
            Some(Note { reason, message, .. }) => {
                self.recorder.normal(plane, about, reason, &message).await;
            }
            None => {}
        }
    }

    /// Gives a claim what it should have. Volumes that were written are replaced in the list.
    async fn claim(
        &self,
        plane: &InPlane,
        namespace: &str,
        name: &str,
        volumes: &mut [Arc<Value>],
    ) -> Result<(), Status> {
        let Some(claim) = plane.get(&VOLUME_CLAIMS, namespace, name).await? else { return Ok(()) };
        let mut claim = Value::clone(&claim);
        if claim.at(&["spec", "storageClassName"]).is_none()
            && plan::class_of(&claim).is_empty()
            && !plan::is_bound(&claim)
            && claim.str_at(&["spec", "volumeName"]).unwrap_or_default().is_empty()
            && let Some(class) = default_class(plane).await?
        {
            claim.set_at(&["spec", "storageClassName"], class);
            claim = plane.update(&VOLUME_CLAIMS, claim).await?;
        }
        let class = match plan::class_of(&claim) {
            "" => None,
            class => plane.get(&STORAGE_CLASSES, "", class).await?,
        };
        let pod = match class.as_ref().and_then(|class| class.str_at(&["volumeBindingMode"])) {
            Some("WaitForFirstConsumer") if !plan::is_bound(&claim) => consumer(plane, &claim).await?,
            _ => None,
        };
        match plan::claim_step(&claim, volumes, class.as_deref(), pod.as_deref()) {
            ClaimStep::Bind(volume) => {
                let new = self.bind(plane, &volume, claim).await?;
                let same = volumes.iter_mut().find(|other| meta::name(other) == meta::name(&new));
                if let Some(same) = same {
                    *same = Arc::new(new);
                }
            }
            ClaimStep::Pending(note) => {
                write_status(plane, &VOLUME_CLAIMS, &claim, plan::pending_claim_status(&claim, "Pending"))
                    .await?;
                self.note(plane, &claim, note).await;
            }
            ClaimStep::Lost(note) => {
                let lost = plan::pending_claim_status(&claim, "Lost");
                if write_status(plane, &VOLUME_CLAIMS, &claim, lost).await?.is_some() {
                    self.note(plane, &claim, note).await;
                }
            }
            ClaimStep::Provision { provisioner, note } => {
                let new = plan::provisioned(&claim, &provisioner);
                if new != claim {
                    claim = plane.update(&VOLUME_CLAIMS, new).await?;
                    self.note(plane, &claim, note).await;
                }
                write_status(plane, &VOLUME_CLAIMS, &claim, plan::pending_claim_status(&claim, "Pending"))
                    .await?;
            }
        }
        Ok(())
    }

    /// Writes both sides of a binding, the volume first. Returns the volume.
    async fn bind(&self, plane: &InPlane, volume: &Value, claim: Value) -> Result<Value, Status> {
        let mut volume = write(plane, &VOLUMES, volume, plan::bound_volume(volume, &claim)).await?;
        if volume.str_at(&["status", "phase"]) != Some("Bound") {
            volume.set_at(&["status", "phase"], "Bound");
            volume = plane.update_status(&VOLUMES, volume).await?;
        }
        let claim = write(plane, &VOLUME_CLAIMS, &claim, plan::bound_claim(&claim, &volume)).await?;
        let bound = plan::bound_claim_status(&claim, &volume);
        write_status(plane, &VOLUME_CLAIMS, &claim, bound).await?;
        Ok(volume)
    }

    /// Makes a volume what it should be. Returns it if it was written.
    async fn volume(&self, plane: &InPlane, volume: &Value) -> Result<Option<Value>, Status> {
        let text = |field| volume.str_at(&["spec", "claimRef", field]).unwrap_or_default();
        let claim = match text("uid") {
            "" => None,
            _ => plane.get(&VOLUME_CLAIMS, text("namespace"), text("name")).await?,
        };
        let phase = |value: &Value, phase: &str| {
            let mut new = value.clone();
            if new.str_at(&["status", "phase"]) != Some(phase) {
                new.set_at(&["status", "phase"], phase);
                new.remove_at(&["status", "message"]);
            }
            new
        };
        match plan::volume_step(volume, claim.as_deref()) {
            VolumeStep::Nothing => Ok(None),
            VolumeStep::Phase(name) => write_status(plane, &VOLUMES, volume, phase(volume, name)).await,
            VolumeStep::Release(problem) => {
                let mut new = phase(volume, if problem.is_some() { "Failed" } else { "Released" });
                if let Some(problem) = &problem {
                    new.set_at(&["status", "message"], problem.message.as_str());
                }
                let written = write_status(plane, &VOLUMES, volume, new).await?;
                if written.is_some() {
                    self.note(plane, volume, problem).await;
                }
                Ok(written)
            }
            VolumeStep::Unbind => {
                let new = plane.update(&VOLUMES, plan::unbound_volume(volume)).await?;
                let written = write_status(plane, &VOLUMES, &new, phase(&new, "Available")).await?;
                Ok(Some(written.unwrap_or(new)))
            }
        }
    }
}

/// Writes an object if it changes.
async fn write(
    plane: &InPlane,
    resource: &GroupVersionResource,
    old: &Value,
    new: Value,
) -> Result<Value, Status> {
    if new == *old { Ok(new) } else { plane.update(resource, new).await }
}

/// Writes a status if it changes; returns what was written.
async fn write_status(
    plane: &InPlane,
    resource: &GroupVersionResource,
    old: &Value,
    new: Value,
) -> Result<Option<Value>, Status> {
    if new == *old { Ok(None) } else { plane.update_status(resource, new).await.map(Some) }
}

/// The class of claims that ask for none: the newest of those marked so.
async fn default_class(plane: &InPlane) -> Result<Option<SmolStr>, Status> {
    let classes = plane.list(&STORAGE_CLASSES, "").await?;
    let is_default = |class: &&Arc<Value>| {
        let is = |key| class.str_at(&["metadata", "annotations", key]) == Some("true");
        DEFAULT_CLASS.into_iter().any(is)
    };
    let created = |class: &&Arc<Value>| {
        let time = class.str_at(&["metadata", "creationTimestamp"]).unwrap_or_default().to_owned();
        (time, std::cmp::Reverse(meta::name(class).to_owned()))
    };
    Ok(classes.iter().filter(is_default).max_by_key(created).map(|class| meta::name(class).into()))
}

/// A pod that waits for a claim.
async fn consumer(plane: &InPlane, claim: &Value) -> Result<Option<Arc<Value>>, Status> {
    let containing = &["persistentVolumeClaim"];
    let query = Query { namespace: meta::namespace(claim).into(), containing, ..Query::default() };
    let pods = plane.client.list(plane.plane, &PODS, query).await?;
    let uses = |pod: &Arc<Value>| {
        let over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
        let mut volumes = pod.array_at(&["spec", "volumes"]).iter();
        let named = |volume: &Value| {
            volume.str_at(&["persistentVolumeClaim", "claimName"]) == Some(meta::name(claim))
        };
        !over && volumes.any(named)
    };
    Ok(pods.into_iter().find(uses))
}
