//! Owning objects: an orphan that a selector matches is adopted, one that no longer matches is released.
//!
//! Invariant: every change names the version it is about, so two who want the same orphan do not both get it.

use std::sync::Arc;

use polder_client::{InPlane, Patch};
use polder_model::selector::LabelSelector;
use polder_model::{GroupVersionResource, Status, Value, json};

use super::{Kind, Meta as _};

/// Whoever claims: an object, its kind, and what it puts on whatever it adopts.
pub(crate) struct Claimant<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) object: &'a Value,
    pub(crate) selector: &'a LabelSelector,
    pub(crate) finalizer: Option<&'static str>,
}

/// What is to be done with an object that may be somebody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Own,
    Adopt,
    Release,
    /// It is somebody else's, or nobody may take it.
    Leave,
}

impl Claimant<'_> {
    pub(crate) fn judge(&self, child: &Value) -> Claim {
        let matches = child.is_selected(self.selector);
        match child.controller_uid() {
            Some(uid) if uid != self.object.uid() => Claim::Leave,
            Some(_) if matches => Claim::Own,
            Some(_) if self.object.is_terminating() => Claim::Leave,
            Some(_) => Claim::Release,
            None if matches && !self.object.is_terminating() && !child.is_terminating() => Claim::Adopt,
            None => Claim::Leave,
        }
    }

    /// Those of some objects that are the claimant's, after adoption and release.
    pub(crate) async fn claim(
        &self,
        plane: &InPlane,
        resource: &GroupVersionResource,
        children: Vec<Arc<Value>>,
    ) -> Result<Vec<Arc<Value>>, Status> {
        let mut own = Vec::with_capacity(children.len());
        for child in children {
            match self.judge(&child) {
                Claim::Own => own.push(child),
                Claim::Adopt => own.extend(self.adopt(plane, resource, &child).await?.map(Arc::new)),
                Claim::Release => self.release(plane, resource, &child).await?,
                Claim::Leave => {}
            }
        }
        Ok(own)
    }

    /// Takes an orphan. Nothing when it is gone.
    pub(crate) async fn adopt(
        &self,
        plane: &InPlane,
        resource: &GroupVersionResource,
        child: &Value,
    ) -> Result<Option<Value>, Status> {
        let mut owners = child.array_at(&["metadata", "ownerReferences"]).to_vec();
        owners.retain(|one| one.str_at(&["uid"]) != Some(self.object.uid()));
        owners.push(self.kind.controller_reference(self.object));
        let mut patch = json!({"metadata": {"ownerReferences": owners}});
        if let Some(finalizer) = self.finalizer.filter(|finalizer| !child.has_finalizer(finalizer)) {
            let mut finalizers = child.array_at(&["metadata", "finalizers"]).to_vec();
            finalizers.push(Value::from(finalizer));
            patch.set_at(&["metadata", "finalizers"], finalizers);
        }
        change(plane, resource, child, patch).await
    }

    pub(crate) async fn release(
        &self,
        plane: &InPlane,
        resource: &GroupVersionResource,
        child: &Value,
    ) -> Result<(), Status> {
        let mut owners = child.array_at(&["metadata", "ownerReferences"]).to_vec();
        owners.retain(|one| one.str_at(&["uid"]) != Some(self.object.uid()));
        let owners = if owners.is_empty() { Value::Null } else { Value::from(owners) };
        let mut patch = json!({"metadata": {"ownerReferences": owners}});
        if let Some(finalizer) = self.finalizer {
            patch.set_at(&["metadata", "finalizers"], without(child, finalizer));
        }
        change(plane, resource, child, patch).await.map(drop)
    }
}

/// The finalizers of an object but one, as a merge patch wants them.
pub(crate) fn without(object: &Value, finalizer: &str) -> Value {
    let mut finalizers = object.array_at(&["metadata", "finalizers"]).to_vec();
    finalizers.retain(|one| one.as_str() != Some(finalizer));
    if finalizers.is_empty() { Value::Null } else { Value::from(finalizers) }
}

/// Patches this very version of an object. Nothing when it is gone.
pub(crate) async fn change(
    plane: &InPlane,
    resource: &GroupVersionResource,
    object: &Value,
    mut patch: Value,
) -> Result<Option<Value>, Status> {
    patch.set_at(&["metadata", "resourceVersion"], object.text("resourceVersion"));
    patch.set_at(&["metadata", "uid"], object.uid());
    let at = plane.at(resource, object.namespace(), object.name());
    match plane.client.patch(&at, Patch::Merge(patch)).await {
        Ok(changed) => Ok(Some(changed)),
        Err(status) if status.code == 404 => Ok(None),
        Err(status) => Err(status),
    }
}
