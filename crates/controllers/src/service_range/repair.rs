//! Addresses as services have them: what somebody deleted is made again, what nobody has goes.
//!
//! Keys are `service/<namespace>/<name>` and `address/<name>`. A service that is made or deleted brings its addresses along
//! in one commit, so only changes of addresses are looked at.

use std::time::Duration;

use polder_client::resource::{IP_ADDRESSES, SERVICE_CIDRS, SERVICES};
use polder_client::{Answer, Change, Controller, Delete, InPlane, Interest, Next, Snapshot, Wake};
use polder_model::{Status, Value, format_smolstr};

use super::plan::{self, Verdict};
use crate::recorder::Recorder;
use crate::{meta, timestamp};

pub(crate) struct AddressRepair {
    recorder: Recorder,
}

impl AddressRepair {
    pub(crate) fn new() -> AddressRepair {
        AddressRepair { recorder: Recorder::new("ipallocator-repair-controller") }
    }
}

impl Controller for AddressRepair {
    fn name(&self) -> &'static str {
        "ipallocator-repair-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&IP_ADDRESSES])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        // One that is made is judged for itself; one that was there may be missed.
        if let Some(old) = &change.old
            && let Some((namespace, name)) = plan::service_of(old.value())
        {
            wake(format_smolstr!("service/{namespace}/{name}"));
        }
        let managed = |new: &Snapshot| new.may_contain(plan::MANAGED_BY) && plan::is_managed(new.value());
        if change.new.as_ref().is_some_and(managed) {
            wake(format_smolstr!("address/{}", change.name));
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            match key.split_once('/') {
                Some(("service", key)) => {
                    let (namespace, name) = meta::split(key);
                    if let Some(service) = plane.get(&SERVICES, namespace, name).await? {
                        self.restore(plane, &service).await?;
                    }
                    Ok(Next::Done)
                }
                Some(("address", name)) => match plane.get(&IP_ADDRESSES, "", name).await? {
                    Some(address) if plan::is_managed(&address) => self.judge(plane, &address).await,
                    _ => Ok(Next::Done),
                },
                _ => Ok(Next::Done),
            }
        })
    }
}

impl AddressRepair {
    /// Gives a service its addresses back.
    async fn restore(&self, plane: &InPlane, service: &Value) -> Result<(), Status> {
        for text in plan::addresses_of(service) {
            let family = plan::family(text);
            if !self.is_in_range(plane, text).await? {
                let message = format!(
                    "Cluster IP [{family}]: {text} is not within any configured Service CIDR; please recreate service"
                );
                self.recorder.warning(plane, service, "ClusterIPOutOfRange", &message).await;
                continue;
            }
            let found = plane.get(&IP_ADDRESSES, "", text).await?;
            match found {
                Some(address) if plan::is_right(&address, service) => continue,
                Some(address) => {
                    if self.is_of_another(plane, &address, service).await? {
                        let message = format!(
                            "Cluster IP [{family}]:{text} was assigned to multiple services; please recreate service"
                        );
                        self.recorder.warning(plane, service, "ClusterIPAlreadyAllocated", &message).await;
                        continue;
                    }
                    let (namespace, name) = (meta::namespace(service), meta::name(service));
                    let message = format!(
                        "the ClusterIP [{family}]: {text} for Service {namespace}/{name} has a wrong reference; repairing"
                    );
                    self.recorder.warning(plane, service, "ClusterIPNotAllocated", &message).await;
                    remove(plane, &address).await?;
                }
                None => {
                    let message = format!("Cluster IP [{family}]: {text} is not allocated; repairing");
                    self.recorder.warning(plane, service, "ClusterIPNotAllocated", &message).await;
                }
            }
            meta::created(plane.create(&IP_ADDRESSES, "", plan::address_for(text, service)).await)?;
        }
        Ok(())
    }

    async fn is_in_range(&self, plane: &InPlane, text: &str) -> Result<bool, Status> {
        let Ok(address) = text.parse() else { return Ok(false) };
        let ranges = plane.list(&SERVICE_CIDRS, "").await?;
        Ok(ranges.iter().any(|range| plan::blocks(range).iter().any(|block| block.contains(address))))
    }

    /// Whether an address object is rightly that of another service.
    async fn is_of_another(&self, plane: &InPlane, address: &Value, service: &Value) -> Result<bool, Status> {
        let Some((namespace, name)) = plan::service_of(address) else { return Ok(false) };
        if (namespace, name) == (meta::namespace(service), meta::name(service)) {
            return Ok(false);
        }
        let other = plane.get(&SERVICES, namespace, name).await?;
        Ok(other.is_some_and(|other| plan::addresses_of(&other).contains(&meta::name(address))))
    }

    async fn judge(&self, plane: &InPlane, address: &Value) -> Result<Next, Status> {
        let service = match plan::service_of(address) {
            Some((namespace, name)) => plane.get(&SERVICES, namespace, name).await?,
            None => None,
        };
        let created = address.str_at(&["metadata", "creationTimestamp"]).and_then(timestamp::seconds);
        let age = plane.client.now().saturating_sub(created.unwrap_or_default());
        match plan::judge(address, service.as_deref(), age) {
            Verdict::Stays => {}
            Verdict::Wait(seconds) => {
                return Ok(Next::After(Duration::from_secs(seconds.clamp(1, 60).unsigned_abs())));
            }
            Verdict::Goes(reason, message) => {
                self.recorder.warning(plane, address, reason, &message).await;
                remove(plane, address).await?;
            }
        }
        Ok(Next::Done)
    }
}

async fn remove(plane: &InPlane, address: &Value) -> Result<(), Status> {
    let delete = Delete { uid: Some(meta::uid(address).into()), ..Delete::default() };
    plane.delete(&IP_ADDRESSES, "", meta::name(address), delete).await
}
