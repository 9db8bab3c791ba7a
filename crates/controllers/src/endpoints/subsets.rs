//! The `Endpoints` of a service: addresses with the same ports together.

use std::collections::BTreeMap;

use polder_model::{Object, SmolStr, Value, json};

use super::pod::PodView;
use super::service::{self, Family};

/// More addresses than this are not told; consumers read slices.
const ADDRESSES_MAX: usize = 1000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
pub(super) const MANAGED_BY: (&str, &str) = ("endpoints.kubernetes.io/managed-by", "endpoint-controller");

/// What the object should be, made from what it is. The same as `old` when nothing has to change.
pub(super) fn endpoints(service: &Value, pods: &[PodView], old: Option<&Value>) -> Value {
    let text = |path: &[&str]| service.str_at(path).unwrap_or_default();
    let mut labels = service::labels(service);
    labels.insert(MANAGED_BY.0, MANAGED_BY.1);
    let mut new = old.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": (text(&["metadata", "name"])), "namespace": (text(&["metadata", "namespace"]))},
        })
    });
    new.set_at(&["metadata", "labels"], labels);
    let (subsets, truncated) = subsets(service, pods);
    if truncated {
        new.set_at(&["metadata", "annotations", OVER_CAPACITY], "truncated");
    } else {
        new.remove_at(&["metadata", "annotations", OVER_CAPACITY]);
    }
    if !subsets.is_empty() {
        new.set_at(&["subsets"], subsets);
    } else if !new.array_at(&["subsets"]).is_empty() {
        new.remove_at(&["subsets"]);
    }
    new
}

fn subsets(service: &Value, pods: &[PodView]) -> (Vec<Value>, bool) {
    let publishes = service::publishes_unready(service);
    let family = service::families(service).first().copied().unwrap_or(Family::V4);
    let namespace = service.str_at(&["metadata", "namespace"]).unwrap_or_default();
    let name = service.str_at(&["metadata", "name"]).unwrap_or_default();
    // By ports, each as it is written, so that the order is always the same.
    let mut groups: BTreeMap<Vec<u8>, (Value, [Vec<Value>; 2])> = BTreeMap::new();
    let mut count = 0;
    for pod in pods.iter().filter(|pod| !pod.over && (publishes || !pod.terminating)) {
        let Some(ip) = pod.ips.iter().find(|ip| Family::of(ip) == family) else { continue };
        let Some(ports) = ports(service, pod) else { continue };
        count += 1;
        if count > ADDRESSES_MAX {
            continue;
        }
        let mut address = json!({"ip": ip, "targetRef": (pod.reference(namespace))});
        if !pod.node.is_empty() {
            address.set_at(&["nodeName"], &pod.node);
        }
        if let Some(hostname) = pod.hostname_in(name) {
            address.set_at(&["hostname"], hostname);
        }
        let group = groups.entry(ports.to_vec()).or_insert((ports, [Vec::new(), Vec::new()]));
        group.1[usize::from(!(publishes || pod.ready))].push(address);
    }
    let subsets = groups.into_values().map(|(ports, [ready, waiting])| {
        let mut subset = Object::new();
        for (field, mut addresses) in [("addresses", ready), ("notReadyAddresses", waiting)] {
            addresses.sort_by(|left, right| left.str_at(&["ip"]).cmp(&right.str_at(&["ip"])));
            if !addresses.is_empty() {
                subset.insert(field, addresses);
            }
        }
        if !ports.array_at(&[]).is_empty() {
            subset.insert("ports", ports);
        }
        Value::Object(subset)
    });
    (subsets.collect(), count > ADDRESSES_MAX)
}

/// The ports a pod serves a service on; nothing when it serves none of those the service has.
fn ports(service: &Value, pod: &PodView) -> Option<Value> {
    let wanted = service.array_at(&["spec", "ports"]);
    let mut ports: Vec<Value> = wanted.iter().filter_map(|port| endpoint_port(port, pod, false)).collect();
    if ports.is_empty() && !(wanted.is_empty() && service::is_headless(service)) {
        return None;
    }
    ports.sort_by_cached_key(Value::to_vec);
    Some(Value::Array(ports))
}

/// A service's port as a pod has it. Slices tell the name of a port that has none, too.
pub(super) fn endpoint_port(service_port: &Value, pod: &PodView, always_named: bool) -> Option<Value> {
    let mut port = Object::new();
    port.insert("port", pod.port(service_port)?);
    port.insert("protocol", service_port.str_at(&["protocol"]).unwrap_or("TCP"));
    let name = service_port.str_at(&["name"]).unwrap_or_default();
    if always_named || !name.is_empty() {
        port.insert("name", SmolStr::new(name));
    }
    if let Some(protocol) = service_port.str_at(&["appProtocol"]) {
        port.insert("appProtocol", protocol);
    }
    Some(Value::Object(port))
}
