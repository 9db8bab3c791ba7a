//! What services need to know of a pod. Two versions of a pod that look the same here are the same to every service.

use polder_model::{SmolStr, Value};

use crate::meta;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodView {
    pub(super) name: SmolStr,
    pub(super) uid: SmolStr,
    pub(super) node: SmolStr,
    pub(super) hostname: SmolStr,
    pub(super) subdomain: SmolStr,
    pub(super) ips: Vec<SmolStr>,
    pub(super) ready: bool,
    pub(super) terminating: bool,
    /// It has ended and takes no requests again.
    pub(super) over: bool,
    /// Name, protocol and number of ports that containers give names to.
    ports: Vec<(SmolStr, SmolStr, i64)>,
}

impl PodView {
    pub(super) fn of(pod: &Value) -> PodView {
        let text = |path: &[&str]| SmolStr::new(pod.str_at(path).unwrap_or_default());
        let mut ips: Vec<SmolStr> = pod
            .array_at(&["status", "podIPs"])
            .iter()
            .filter_map(|one| one.str_at(&["ip"]).filter(|ip| !ip.is_empty()))
            .map(SmolStr::new)
            .collect();
        if let Some(ip) = pod.str_at(&["status", "podIP"]).filter(|ip| !ip.is_empty() && ips.is_empty()) {
            ips.push(ip.into());
        }
        PodView {
            name: text(&["metadata", "name"]),
            uid: text(&["metadata", "uid"]),
            node: text(&["spec", "nodeName"]),
            hostname: text(&["spec", "hostname"]),
            subdomain: text(&["spec", "subdomain"]),
            ips,
            ready: meta::condition(pod, "Ready") == Some("True"),
            terminating: meta::is_deleting(pod),
            over: matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed")),
            ports: named_ports(pod),
        }
    }

    /// The number a service's port has here.
    pub(super) fn port(&self, service_port: &Value) -> Option<i64> {
        match service_port.get("targetPort") {
            Some(Value::Int(0)) | None => service_port.i64_at(&["port"]),
            Some(Value::Int(number)) => Some(*number),
            Some(Value::String(name)) => {
                let protocol = service_port.str_at(&["protocol"]).unwrap_or("TCP");
                let is_it = |port: &&(SmolStr, SmolStr, i64)| port.0 == *name && port.1 == protocol;
                self.ports.iter().find(is_it).map(|port| port.2)
            }
            Some(_) => None,
        }
    }

    pub(super) fn reference(&self, namespace: &str) -> Value {
        polder_model::json!({
            "kind": "Pod", "namespace": namespace, "name": (&self.name), "uid": (&self.uid),
        })
    }

    /// The name the pod has in the service's domain, if it asks for one there.
    pub(super) fn hostname_in(&self, service: &str) -> Option<&SmolStr> {
        (!self.hostname.is_empty() && self.subdomain == service).then_some(&self.hostname)
    }
}

fn named_ports(pod: &Value) -> Vec<(SmolStr, SmolStr, i64)> {
    let sidecars = pod.array_at(&["spec", "initContainers"]).iter();
    let sidecars = sidecars.filter(|container| container.str_at(&["restartPolicy"]) == Some("Always"));
    let containers = pod.array_at(&["spec", "containers"]).iter().chain(sidecars);
    let ports = containers.flat_map(|container| container.array_at(&["ports"]));
    let named = ports.filter_map(|port| {
        let name = port.str_at(&["name"]).filter(|name| !name.is_empty())?;
        let protocol = port.str_at(&["protocol"]).unwrap_or("TCP");
        Some((name.into(), protocol.into(), port.i64_at(&["containerPort"])?))
    });
    named.collect()
}
