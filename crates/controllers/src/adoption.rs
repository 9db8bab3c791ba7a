//! Orphans and strays: a pod or replica set without a controller that somebody's selector matches is adopted; one
//! whose labels have changed so that its controller's selector no longer matches is released.
//!
//! Controllers adopt what is there when they look at their own objects. This one is for what comes later, so that no
//! controller has to look at all objects of a namespace each time. It only ever changes owner references; whoever
//! gets or loses something is woken by that.

use polder_client::resource::{PODS, REPLICA_SETS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Query, Wake};
use polder_model::{GroupVersionResource, SmolStr, Status, Value, format_smolstr};

use crate::job;
use crate::workload::claim::{Claim, Claimant};
use crate::workload::kind::{DAEMON_SET, DEPLOYMENT, JOB, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET};
use crate::workload::{Kind, Meta as _, pod, soon_after_conflict};

/// Objects of a namespace that are looked at in a turn.
const PAGE_LEN: usize = 500;

/// Keys are `resource/namespace/name`, or without a name when a whole namespace is looked at.
pub(crate) struct Adoption;

impl Controller for Adoption {
    fn name(&self) -> &'static str {
        "adoption"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&PODS, &REPLICA_SETS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        let Some(new) = change.new.as_ref() else { return };
        if change.revision == 0 {
            wake(format_smolstr!("{}/{}/", change.resource.resource, change.namespace));
            return;
        }
        let new = new.value();
        let differs = match change.old.as_ref().map(|old| old.value()) {
            None => new.controller().is_none(),
            Some(old) => {
                old.at(&["metadata", "labels"]) != new.at(&["metadata", "labels"])
                    || (old.controller().is_some() && new.controller().is_none())
            }
        };
        if differs {
            wake(format_smolstr!("{}/{}/{}", change.resource.resource, change.namespace, change.name));
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async { soon_after_conflict(look(plane, key).await) })
    }
}

async fn look(plane: &InPlane, key: &str) -> Result<Next, Status> {
    let mut parts = key.splitn(3, '/');
    let resource = if parts.next() == Some("pods") { &PODS } else { &REPLICA_SETS };
    let (namespace, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if !name.is_empty() {
        if let Some(child) = plane.get(resource, namespace, name).await? {
            settle(plane, resource, &child).await?;
        }
        return Ok(Next::Done);
    }
    let mut after = None;
    loop {
        let namespace = SmolStr::new(namespace);
        let query = Query { namespace, after, limit: PAGE_LEN, ..Query::default() };
        let page = plane.client.list(plane.plane, resource, query).await?;
        for child in &page {
            settle(plane, resource, child).await?;
        }
        match page.last() {
            Some(last) => after = Some((SmolStr::new(last.namespace()), SmolStr::new(last.name()))),
            None => return Ok(Next::Done),
        }
    }
}

/// Gives one object to whom it belongs.
async fn settle(plane: &InPlane, resource: &GroupVersionResource, child: &Value) -> Result<(), Status> {
    let is_pod = *resource == PODS;
    let kinds: &[&Kind] = if is_pod {
        &[&REPLICA_SET, &REPLICATION_CONTROLLER, &STATEFUL_SET, &DAEMON_SET, &JOB]
    } else {
        &[&DEPLOYMENT]
    };
    if let Some(reference) = child.controller() {
        let text = |field: &str| reference.str_at(&[field]).unwrap_or_default();
        let is_owner = |kind: &&&Kind| kind.kind == text("kind") && kind.api_version == text("apiVersion");
        let Some(kind) = kinds.iter().find(is_owner) else { return Ok(()) };
        let owner = plane.get(&kind.resource, child.namespace(), text("name")).await?;
        let Some(owner) = owner.filter(|owner| owner.uid() == text("uid")) else { return Ok(()) };
        let selector = crate::replicaset::selector(kind, &owner);
        let claimant = Claimant { kind, object: &owner, selector: &selector, finalizer: finalizer(kind) };
        if claimant.judge(child) == Claim::Release {
            claimant.release(plane, resource, child).await?;
        }
        return Ok(());
    }
    // Jobs take what has ended too: it counts.
    let is_over = is_pod && pod::is_finished(child);
    for kind in kinds.iter().filter(|kind| !is_over || kind.kind == JOB.kind) {
        for owner in plane.list(&kind.resource, child.namespace()).await? {
            let selector = crate::replicaset::selector(kind, &owner);
            let claimant = Claimant { kind, object: &owner, selector: &selector, finalizer: finalizer(kind) };
            if claimant.judge(child) == Claim::Adopt && may_adopt(kind, &owner, child) {
                claimant.adopt(plane, resource, child).await?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A stateful set takes only pods with its names; a job that is over, or somebody else's, takes none.
fn may_adopt(kind: &Kind, owner: &Value, child: &Value) -> bool {
    match kind.kind {
        "StatefulSet" => {
            let ordinal = child.name().strip_prefix(owner.name()).and_then(|rest| rest.strip_prefix('-'));
            ordinal.is_some_and(|ordinal| ordinal.parse::<u32>().is_ok())
        }
        "Job" => job::is_ours(owner) && !job::is_finished(owner),
        _ => true,
    }
}

fn finalizer(kind: &Kind) -> Option<&'static str> {
    (kind.kind == JOB.kind).then_some(job::FINALIZER)
}
