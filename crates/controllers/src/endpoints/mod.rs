//! Where the requests of a service go: its `Endpoints` and its slices, made from the pods it selects.
//!
//! Both are made in one turn, since both are the same look at the same pods. Keys are namespaces; what changed in one is
//! noted in [`Marks`]. Services that select nothing are left to whoever keeps their endpoints; see [`mirror`].

pub(crate) mod mirror;
mod pod;
mod service;
mod slices;
mod subsets;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polder_client::resource::{ENDPOINT_SLICES, ENDPOINTS, NODES, PODS, SERVICES};
use polder_client::{Answer, Change, Controller, Delete, InPlane, Interest, Next, Wake};
use polder_model::selector::LabelSelector;
use polder_model::{PlaneId, SmolStr, Status, Value, json};

use self::pod::PodView;
use self::slices::{Frame, Plan};
use crate::marks::{Marks, labels_of};
use crate::recorder::Recorder;
use crate::{batch, meta};

const MANAGER: &str = "endpointslice-controller.k8s.io";
/// So many services are looked at one by one, each with its own list of pods.
const SERVICES_FEW: usize = 4;

pub(crate) struct Endpoints {
    marks: Marks,
    recorder: Recorder,
}

impl Endpoints {
    pub(crate) fn new() -> Endpoints {
        Endpoints { marks: Marks::default(), recorder: Recorder::new("endpoint-controller") }
    }
}

impl Controller for Endpoints {
    fn name(&self) -> &'static str {
        "endpoints-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&SERVICES, &PODS, &ENDPOINTS, &ENDPOINT_SLICES])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        let (plane, namespace) = (change.plane, &change.namespace);
        if change.is(&PODS) {
            let views = [&change.old, &change.new].map(|version| version.as_ref().map(|pod| pod.value()));
            let look = |pod: &Arc<Value>| (PodView::of(pod), labels_of(pod).cloned());
            let [old, new] = views.map(|pod| pod.map(look));
            if old == new {
                return;
            }
            let labels = [old, new].into_iter().flatten().filter_map(|(_, labels)| labels);
            let mut noted = false;
            for labels in labels {
                self.marks.labels(plane, namespace, &labels);
                noted = true;
            }
            if !noted {
                return;
            }
        } else if change.is(&SERVICES) {
            self.marks.name(plane, namespace, &change.name);
        } else {
            // What is made, we made. Endpoints of others are theirs, with or without a service.
            let Some(old) = &change.old else { return };
            let service = if change.is(&ENDPOINT_SLICES) {
                owner_service(old.value())
            } else {
                let ours = change.new.is_none() && old.may_contain(subsets::MANAGED_BY.0);
                ours.then(|| change.name.clone())
            };
            let Some(service) = service else { return };
            self.marks.name(plane, namespace, &service);
        }
        wake(namespace.clone());
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let taken = self.marks.take(plane.plane, key);
            let services = plane.list(&SERVICES, key).await?;
            let there: HashSet<&str> =
                services.iter().filter_map(|service| service.str_at(&["metadata", "name"])).collect();
            let mut gone: Vec<SmolStr> = taken.names().cloned().collect();
            if taken.everything() {
                gone.extend(managed(plane, key).await?);
            }
            gone.retain(|name| !there.contains(name.as_str()));
            for name in gone {
                remove(plane, key, &name).await?;
            }
            let mut concerned: Vec<(Arc<Value>, LabelSelector)> = Vec::new();
            for service in &services {
                let Some(selector) = service::selector(service) else { continue };
                if !meta::is_deleting(service) && taken.concerns(meta::name(service), Some(&selector)) {
                    concerned.push((service.clone(), selector));
                }
            }
            // Many services look at the same pods: then those are read once.
            let pods = match concerned.len() > SERVICES_FEW {
                true => Some(plane.list(&PODS, key).await?),
                false => None,
            };
            let pods = pods.as_deref();
            batch::all(
                concerned
                    .into_iter()
                    .map(|(service, selector)| self.serve(plane, key, service, selector, pods)),
            )
            .await?;
            taken.done();
            Ok(Next::Done)
        })
    }

    fn forget(&self, is_gone: &dyn Fn(PlaneId) -> bool) {
        self.marks.forget(is_gone);
    }
}

impl Endpoints {
    async fn serve(
        &self,
        plane: &InPlane,
        namespace: &str,
        service: Arc<Value>,
        selector: LabelSelector,
        pods: Option<&[Arc<Value>]>,
    ) -> Result<(), Status> {
        let service = &*service;
        let name = meta::name(service);
        let pods: Vec<PodView> = match pods {
            Some(pods) => {
                let selected = pods
                    .iter()
                    .filter(|pod| selector.matches(|key| pod.str_at(&["metadata", "labels", key])));
                selected.map(|pod| PodView::of(pod)).collect()
            }
            None => {
                let pods = plane.list_selected(&PODS, namespace, selector).await?;
                pods.iter().map(|pod| PodView::of(pod)).collect()
            }
        };
        let old = plane.get(&ENDPOINTS, namespace, name).await?;
        let new = subsets::endpoints(service, &pods, old.as_deref());
        let written = match &old {
            Some(old) if **old == new => Ok(()),
            Some(_) => plane.update(&ENDPOINTS, new).await.map(drop),
            None => plane.create(&ENDPOINTS, namespace, new).await.map(drop),
        };
        match written {
            Err(status) if status.code == 409 => return Err(status),
            Err(status) if status.code != 404 && !meta::is_terminating(&status) => {
                let (reason, verb) = match old {
                    Some(_) => ("FailedToUpdateEndpoint", "update"),
                    None => ("FailedToCreateEndpoint", "create"),
                };
                let message = format!("Failed to {verb} endpoint {namespace}/{name}: {status}");
                self.recorder.warning(plane, service, reason, &message).await;
            }
            _ => {}
        }
        let zones = zones(plane, &pods).await?;
        let there = slices_of(plane, namespace, name, MANAGER).await?;
        let wanted = slices::wanted(service, &pods, &zones);
        let plan = slices::plan(&frame(service), &service::families(service), wanted, &there);
        write(plane, namespace, plan).await
    }
}

/// The zones of the nodes that pods are on.
async fn zones(plane: &InPlane, pods: &[PodView]) -> Result<HashMap<SmolStr, SmolStr>, Status> {
    let mut zones = HashMap::new();
    let nodes: HashSet<&SmolStr> = pods.iter().map(|pod| &pod.node).filter(|node| !node.is_empty()).collect();
    for node in nodes {
        let found = plane.get(&NODES, "", node).await?;
        let zone = found.as_ref().and_then(|found| {
            found.str_at(&["metadata", "labels", "topology.kubernetes.io/zone"]).map(SmolStr::new)
        });
        zones.extend(zone.map(|zone| (node.clone(), zone)));
    }
    Ok(zones)
}

async fn slices_of(
    plane: &InPlane,
    namespace: &str,
    service: &str,
    manager: &str,
) -> Result<Vec<Arc<Value>>, Status> {
    let text = format!("{}={service},{}={manager}", service::SERVICE_NAME, service::MANAGED_BY);
    match LabelSelector::parse(&text) {
        Ok(selector) => plane.list_selected(&ENDPOINT_SLICES, namespace, selector).await,
        Err(_) => Ok(Vec::new()),
    }
}

fn frame(service: &Value) -> Frame {
    let text = |path: &[&str]| SmolStr::new(service.str_at(path).unwrap_or_default());
    let name = text(&["metadata", "name"]);
    let mut labels = service::labels(service);
    labels.insert(service::SERVICE_NAME, &name);
    labels.insert(service::MANAGED_BY, MANAGER);
    Frame {
        namespace: text(&["metadata", "namespace"]),
        labels: labels.into(),
        annotations: None,
        owner: json!({
            "apiVersion": "v1", "kind": "Service", "name": (&name), "uid": (text(&["metadata", "uid"])),
            "controller": true, "blockOwnerDeletion": true,
        }),
        owner_name: name,
    }
}

async fn write(plane: &InPlane, namespace: &str, plan: Plan) -> Result<(), Status> {
    let creates = plan.create.into_iter().map(|slice| async move {
        match plane.create(&ENDPOINT_SLICES, namespace, slice).await {
            Err(status) if meta::is_terminating(&status) => Ok(()),
            outcome => outcome.map(drop),
        }
    });
    batch::all(creates).await?;
    let updates = plan.update.into_iter();
    batch::all(updates.map(|slice| async move { plane.update(&ENDPOINT_SLICES, slice).await.map(drop) }))
        .await?;
    let deletes = plan.delete.into_iter();
    batch::all(deletes.map(|slice| async move {
        let name = slice.str_at(&["metadata", "name"]).unwrap_or_default();
        plane.delete(&ENDPOINT_SLICES, namespace, name, Delete::default()).await
    }))
    .await
}

/// The names of all endpoints we made in a namespace.
async fn managed(plane: &InPlane, namespace: &str) -> Result<Vec<SmolStr>, Status> {
    let ours = format!("{}={}", subsets::MANAGED_BY.0, subsets::MANAGED_BY.1);
    let ours = LabelSelector::parse(&ours).unwrap_or_else(|_| LabelSelector::nothing());
    let found = plane.list_selected(&ENDPOINTS, namespace, ours).await?;
    Ok(found.iter().map(|endpoints| meta::name(endpoints).into()).collect())
}

/// The service is gone, and what it had with it.
async fn remove(plane: &InPlane, namespace: &str, name: &str) -> Result<(), Status> {
    plane.delete(&ENDPOINTS, namespace, name, Delete::default()).await?;
    let delete = slices_of(plane, namespace, name, MANAGER).await?;
    write(plane, namespace, Plan { delete, ..Plan::default() }).await
}

/// The service of a slice that is ours.
fn owner_service(slice: &Value) -> Option<SmolStr> {
    let label = |key| slice.str_at(&["metadata", "labels", key]);
    let service = label(service::SERVICE_NAME).filter(|_| label(service::MANAGED_BY) == Some(MANAGER));
    service.map(SmolStr::new)
}
