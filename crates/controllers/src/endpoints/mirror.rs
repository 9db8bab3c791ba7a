//! Slices of endpoints that somebody else keeps: for services that select nothing, `Endpoints` are copied into slices,
//! where those who route requests look. Keys are `namespace/name` of both.

use std::collections::HashSet;

use polder_client::resource::{ENDPOINT_SLICES, ENDPOINTS, SERVICES};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake, key};
use polder_model::{Object, SmolStr, Value, json};

use super::service::{self, Family};
use super::slices::{self, Frame, Group, Wanted};
use super::{slices_of, write};
use crate::meta;

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// What only concerns the copied object itself.
const OWN_ANNOTATIONS: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "endpoints.kubernetes.io/last-change-trigger-time"];
/// Addresses of one subset that are copied.
const SUBSET_LEN_MAX: usize = 1000;

pub(crate) struct Mirror;

impl Controller for Mirror {
    fn name(&self) -> &'static str {
        "endpointslice-mirroring-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&SERVICES, &ENDPOINTS, &ENDPOINT_SLICES])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if !change.is(&ENDPOINT_SLICES) {
            wake(change.key());
        } else if let Some(old) = change.old.as_ref().filter(|old| old.may_contain(MANAGER)) {
            // What is made, we made.
            let service = old.value().str_at(&["metadata", "labels", service::SERVICE_NAME]);
            wake(key(&change.namespace, service.unwrap_or_default()));
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = meta::split(key);
            let there = slices_of(plane, namespace, name, MANAGER).await?;
            let endpoints = plane.get(&ENDPOINTS, namespace, name).await?;
            let endpoints = endpoints.filter(|endpoints| is_copied(endpoints));
            let service = match endpoints {
                Some(_) => plane.get(&SERVICES, namespace, name).await?,
                None => None,
            };
            let service = service.filter(|service| {
                service.at(&["spec", "selector"]).and_then(Value::as_object).is_none_or(Object::is_empty)
            });
            let plan = match (endpoints, service) {
                (Some(endpoints), Some(_)) => {
                    slices::plan(&frame(&endpoints), &[], wanted(&endpoints), &there)
                }
                _ => slices::Plan { delete: there, ..slices::Plan::default() },
            };
            write(plane, namespace, plan).await?;
            Ok(Next::Done)
        })
    }
}

fn is_copied(endpoints: &Value) -> bool {
    let skipped = endpoints.str_at(&["metadata", "labels", SKIP]) == Some("true");
    let elects = endpoints.at(&["metadata", "annotations", LEADER]).is_some();
    !skipped && !elects && !meta::is_deleting(endpoints)
}

pub(super) fn wanted(endpoints: &Value) -> Wanted {
    let mut wanted = Wanted::new();
    let mut seen = HashSet::new();
    for subset in endpoints.array_at(&["subsets"]) {
        let mut ports = subset.array_at(&["ports"]).to_vec();
        for port in &mut ports {
            if port.get("name").is_none() {
                port.set_at(&["name"], "");
            }
        }
        ports.sort_by_cached_key(Value::to_vec);
        let ports = Value::Array(ports);
        let addresses = [("addresses", true), ("notReadyAddresses", false)].into_iter();
        let addresses = addresses
            .flat_map(|(field, ready)| subset.array_at(&[field]).iter().map(move |address| (address, ready)));
        for (address, ready) in addresses.take(SUBSET_LEN_MAX) {
            let ip = address.str_at(&["ip"]).unwrap_or_default();
            let mut endpoint = json!({"addresses": [ip], "conditions": {"ready": ready}});
            for field in ["hostname", "nodeName", "targetRef"] {
                if let Some(value) = address.get(field) {
                    endpoint.set_at(&[field], value.clone());
                }
            }
            let key = (Family::of(ip), ports.to_vec());
            let identity = slices::identity(&endpoint);
            if seen.insert((key.clone(), identity.clone())) {
                let group = wanted.entry(key);
                let group = group.or_insert_with(|| Group { ports: ports.clone(), endpoints: Vec::new() });
                group.endpoints.push((identity, endpoint));
            }
        }
    }
    wanted
}

pub(super) fn frame(endpoints: &Value) -> Frame {
    let members = |field| {
        let members = endpoints.at(&["metadata", field]).and_then(Value::as_object);
        members.cloned().unwrap_or_default()
    };
    let name = SmolStr::new(meta::name(endpoints));
    let (mut labels, mut annotations) = (members("labels"), members("annotations"));
    labels.insert(service::SERVICE_NAME, &name);
    labels.insert(service::MANAGED_BY, MANAGER);
    annotations.retain(|key, _| !OWN_ANNOTATIONS.contains(&key.as_str()));
    Frame {
        namespace: meta::namespace(endpoints).into(),
        labels: labels.into(),
        annotations: Some(annotations.into()),
        owner: json!({
            "apiVersion": "v1", "kind": "Endpoints", "name": (&name), "uid": (meta::uid(endpoints)),
            "controller": true, "blockOwnerDeletion": true,
        }),
        owner_name: name,
    }
}
