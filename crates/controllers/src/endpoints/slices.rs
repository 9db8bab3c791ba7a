//! The slices of a service, planned: what is there and what should be go in, writes come out.
//!
//! Slices hold up to a hundred endpoints of one family with the same ports. An endpoint stays in the slice it is in, so
//! that a change of a few pods is a write of a few slices. A family without endpoints has one slice that is empty.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use polder_model::{SmolStr, Value, json};

use super::pod::PodView;
use super::service::{self, Family};
use super::subsets::endpoint_port;

/// Endpoints of one slice.
const SLICE_LEN_MAX: usize = 100;

/// A family of endpoints with the ports they have, and what makes an endpoint the same one as before.
pub(super) type Wanted = BTreeMap<(Family, Vec<u8>), Group>;

pub(super) struct Group {
    pub(super) ports: Value,
    pub(super) endpoints: Vec<(SmolStr, Value)>,
}

/// What all slices of an owner have in common.
pub(super) struct Frame {
    pub(super) namespace: SmolStr,
    /// New ones are named after it.
    pub(super) owner_name: SmolStr,
    pub(super) labels: Value,
    pub(super) annotations: Option<Value>,
    pub(super) owner: Value,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) create: Vec<Value>,
    pub(super) update: Vec<Value>,
    pub(super) delete: Vec<Arc<Value>>,
}

/// The endpoints of a service's pods. `zones` are those of nodes.
pub(super) fn wanted(service: &Value, pods: &[PodView], zones: &HashMap<SmolStr, SmolStr>) -> Wanted {
    let namespace = service.str_at(&["metadata", "namespace"]).unwrap_or_default();
    let name = service.str_at(&["metadata", "name"]).unwrap_or_default();
    let publishes = service::publishes_unready(service);
    let nearby = service.str_at(&["spec", "trafficDistribution"]).unwrap_or_default();
    let mut wanted = Wanted::new();
    for family in service::families(service) {
        for pod in pods.iter().filter(|pod| !pod.over) {
            let ips = pod.ips.iter().filter(|ip| Family::of(ip) == family);
            let addresses: Vec<Value> = ips.map(Value::from).collect();
            if addresses.is_empty() {
                continue;
            }
            let ports = service.array_at(&["spec", "ports"]).iter();
            let mut ports: Vec<Value> = ports.filter_map(|port| endpoint_port(port, pod, true)).collect();
            ports.sort_by_cached_key(Value::to_vec);
            let ready = publishes || (pod.ready && !pod.terminating);
            let mut endpoint = json!({
                "addresses": addresses,
                "conditions": {"ready": ready, "serving": (pod.ready), "terminating": (pod.terminating)},
                "targetRef": (pod.reference(namespace)),
            });
            if !pod.node.is_empty() {
                endpoint.set_at(&["nodeName"], &pod.node);
            }
            let zone = zones.get(&pod.node);
            if let Some(zone) = zone {
                endpoint.set_at(&["zone"], zone);
            }
            if let Some(hostname) = pod.hostname_in(name) {
                endpoint.set_at(&["hostname"], hostname);
            }
            if ready {
                if let ("PreferClose" | "PreferSameZone" | "PreferSameNode", Some(zone)) = (nearby, zone) {
                    endpoint.set_at(&["hints", "forZones"], json!([{"name": zone}]));
                }
                if nearby == "PreferSameNode" && !pod.node.is_empty() {
                    endpoint.set_at(&["hints", "forNodes"], json!([{"name": (&pod.node)}]));
                }
            }
            let ports = Value::Array(ports);
            let group = wanted.entry((family, ports.to_vec()));
            let group = group.or_insert(Group { ports, endpoints: Vec::new() });
            group.endpoints.push((pod.uid.clone(), endpoint));
        }
    }
    wanted
}

/// What has to be written. Families that `keep_empty` names have a slice even when they have no endpoints.
pub(super) fn plan(frame: &Frame, keep_empty: &[Family], mut wanted: Wanted, there: &[Arc<Value>]) -> Plan {
    for family in keep_empty {
        if !wanted.keys().any(|(own, _)| own == family) {
            let ports = Value::Array(Vec::new());
            wanted.insert((*family, ports.to_vec()), Group { ports, endpoints: Vec::new() });
        }
    }
    let mut plan = Plan::default();
    let mut there: Vec<Arc<Value>> = there.to_vec();
    there.sort_by(|left, right| left.str_at(&["metadata", "name"]).cmp(&right.str_at(&["metadata", "name"])));
    // Slices of other families or ports; they may become others of their family.
    let mut spare: Vec<Arc<Value>> = Vec::new();
    let mut by_group: BTreeMap<(Family, Vec<u8>), Vec<Arc<Value>>> = BTreeMap::new();
    for slice in there {
        let key = key_of(&slice).filter(|key| wanted.contains_key(key));
        match key.filter(|_| !crate::meta::is_deleting(&slice)) {
            Some(key) => by_group.entry(key).or_default().push(slice),
            None => spare.push(slice),
        }
    }
    let mut fresh: Vec<(Family, Value, Vec<Value>)> = Vec::new();
    for (key, group) in wanted {
        let mut slices = by_group.remove(&key).unwrap_or_default();
        let is_empty = group.endpoints.is_empty();
        let (filled, left) = fill(&slices, group.endpoints);
        let mut keep = Vec::new();
        for (slice, endpoints) in slices.drain(..).zip(filled) {
            if endpoints.is_empty() && !(is_empty && keep.is_empty()) {
                spare.push(slice);
            } else {
                keep.push((slice, endpoints));
            }
        }
        if keep.is_empty() && left.is_empty() {
            fresh.push((key.0, group.ports.clone(), Vec::new()));
        }
        for (slice, endpoints) in keep {
            let new = dressed(frame, &slice, group.ports.clone(), endpoints);
            if new != *slice {
                plan.update.push(new);
            }
        }
        for chunk in left.chunks(SLICE_LEN_MAX) {
            fresh.push((key.0, group.ports.clone(), chunk.to_vec()));
        }
    }
    for (family, ports, endpoints) in fresh {
        let reusable = |slice: &Arc<Value>| {
            slice.str_at(&["addressType"]) == Some(family.name()) && !crate::meta::is_deleting(slice)
        };
        match spare.iter().position(reusable) {
            Some(index) => plan.update.push(dressed(frame, &spare.remove(index), ports, endpoints)),
            None => plan.create.push(made(frame, family, ports, endpoints)),
        }
    }
    spare.retain(|slice| !crate::meta::is_deleting(slice));
    plan.delete = spare;
    plan
}

/// Puts endpoints where they are already, or where there is room; the rest is left.
fn fill(slices: &[Arc<Value>], endpoints: Vec<(SmolStr, Value)>) -> (Vec<Vec<Value>>, Vec<Value>) {
    let mut left: HashMap<SmolStr, Value> = HashMap::new();
    let mut order = Vec::with_capacity(endpoints.len());
    for (identity, endpoint) in endpoints {
        if left.insert(identity.clone(), endpoint).is_none() {
            order.push(identity);
        }
    }
    let mut filled: Vec<Vec<Value>> = Vec::with_capacity(slices.len());
    for slice in slices {
        let there = slice.array_at(&["endpoints"]).iter().take(SLICE_LEN_MAX);
        filled.push(there.filter_map(|endpoint| left.remove(&identity(endpoint))).collect());
    }
    let mut rest = order.into_iter().filter_map(|identity| left.remove(&identity)).peekable();
    // Those that change anyway come first, then the fullest.
    let changed = |index: usize| filled[index].len() != slices[index].array_at(&["endpoints"]).len();
    let mut places: Vec<usize> = (0..slices.len()).collect();
    places.sort_by_key(|index| (!changed(*index), std::cmp::Reverse(filled[*index].len())));
    for place in places {
        while filled[place].len() < SLICE_LEN_MAX && rest.peek().is_some() {
            filled[place].extend(rest.next());
        }
    }
    (filled, rest.collect())
}

/// What makes an endpoint the same one as before: its pod, or else its addresses.
pub(super) fn identity(endpoint: &Value) -> SmolStr {
    match endpoint.str_at(&["targetRef", "uid"]) {
        Some(uid) if !uid.is_empty() => uid.into(),
        _ => {
            let addresses = endpoint.array_at(&["addresses"]).iter().filter_map(Value::as_str);
            addresses.collect::<Vec<_>>().join(",").into()
        }
    }
}

fn key_of(slice: &Value) -> Option<(Family, Vec<u8>)> {
    let family = match slice.str_at(&["addressType"])? {
        "IPv4" => Family::V4,
        "IPv6" => Family::V6,
        _ => return None,
    };
    let mut ports = slice.array_at(&["ports"]).to_vec();
    ports.sort_by_cached_key(Value::to_vec);
    Some((family, Value::Array(ports).to_vec()))
}

/// A slice that is there, as it should be.
fn dressed(frame: &Frame, slice: &Value, ports: Value, endpoints: Vec<Value>) -> Value {
    let mut new = slice.clone();
    if !(ports.array_at(&[]).is_empty() && new.array_at(&["ports"]).is_empty()) {
        new.set_at(&["ports"], ports);
    }
    if new.array_at(&["endpoints"]) != endpoints {
        new.set_at(&["endpoints"], endpoints);
    }
    new.set_at(&["metadata", "labels"], frame.labels.clone());
    if let Some(annotations) = &frame.annotations {
        if annotations.as_object().is_none_or(|annotations| annotations.is_empty()) {
            new.remove_at(&["metadata", "annotations"]);
        } else {
            new.set_at(&["metadata", "annotations"], annotations.clone());
        }
    }
    new.set_at(&["metadata", "ownerReferences"], json!([(frame.owner.clone())]));
    new
}

fn made(frame: &Frame, family: Family, ports: Value, endpoints: Vec<Value>) -> Value {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": (polder_model::format_smolstr!("{}-", frame.owner_name)),
            "namespace": (&frame.namespace),
        },
        "addressType": (family.name()),
        "ports": (Value::Array(Vec::new())),
        "endpoints": (Value::Array(Vec::new())),
    });
    dressed(frame, &slice, ports, endpoints)
}
