//! What of the audit trail is the registry's business: the rules that say what is noted, those of each plane among them. Who notes,
//! writes and keeps is the server's; how planes read what is kept is [`crate::ledger`].

pub mod policy;

use std::sync::Arc;

use polder_model::{FieldPath, GroupResource, PlaneId, Status};
use polder_store::{ObjectName, Plane};

use self::policy::Policy;
use crate::memo::Memo;
use crate::planes;
use crate::registry::Registry;
use crate::status::read_failed;
use crate::written::Written;

/// Planes whose policy is kept at hand; most have none of their own.
const PLANES_LEN_MAX: usize = 16 * 1024;

/// What planes want noted of themselves: read when somebody asks, kept until their `Plane` is written.
pub(crate) struct PoliciesOfPlanes {
    planes: Memo<Arc<Policy>>,
    usual: Arc<Policy>,
}

impl Default for PoliciesOfPlanes {
    fn default() -> PoliciesOfPlanes {
        PoliciesOfPlanes { planes: Memo::default(), usual: Arc::new(Policy::of_planes()) }
    }
}

/// A `Plane` was written: it may want something else noted.
pub(crate) fn committed(registry: &Registry, written: &Written<'_>) {
    if let Some(plane) = written.plane_of(registry) {
        registry.audit_policies.planes.forget(plane);
    }
}

impl Registry {
    /// What a plane wants noted: what `Plane.spec.auditPolicy` says, or what all note that say nothing.
    pub async fn audit_policy(&self, plane: &Plane) -> Arc<Policy> {
        let policies = &self.audit_policies;
        if let Some(known) = policies.planes.get(plane.id) {
            return known;
        }
        let epoch = policies.planes.epoch(plane.id);
        let own = match self.own_audit_policy(plane).await {
            Ok(own) => own,
            Err(error) => {
                tracing::error!(plane = %plane.name, %error, "the plane's audit policy cannot be read: the default holds");
                return policies.usual.clone();
            }
        };
        let policy = own.map_or_else(|| policies.usual.clone(), Arc::new);
        if policies.planes.len() >= PLANES_LEN_MAX {
            policies.planes.let_go(|_| true);
        }
        policies.planes.keep(plane.id, policy.clone(), epoch);
        policy
    }

    async fn own_audit_policy(&self, plane: &Plane) -> Result<Option<Policy>, Status> {
        let Some(core) = self.store.plane_by_id(PlaneId::CORE) else { return Ok(None) };
        let resource = self.store.resource_id(&GroupResource::new(planes::GROUP, "planes"));
        let found = self.store.get(&core, resource, &ObjectName::cluster(plane.name.as_str())).await;
        let Some(found) = found.map_err(|error| read_failed(&core, error))? else { return Ok(None) };
        let object =
            found.record.to_unmanaged_value(0).map_err(|error| Status::internal(error.to_string()))?;
        let Some(policy) = object.at(&["spec", "auditPolicy"]) else { return Ok(None) };
        let read = Policy::read(policy, &FieldPath::root("auditPolicy"));
        read.map(Some).map_err(|mistakes| Status::internal(polder_model::field::join(&mistakes)))
    }
}
