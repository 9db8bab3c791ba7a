//! What one object uses of each thing that quotas can limit.

use polder_model::quantity::Quantity;
use polder_model::{GroupResource, SmolStr, Value, format_smolstr};

use crate::amounts::{self, Amounts, Side};

/// A resource whose objects are counted.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    pub group: &'a str,
    pub resource: &'a str,
}

/// Resources of which more than the number is counted.
pub const MEASURED: [(&str, &str); 4] =
    [("", "pods"), ("", "services"), ("", "persistentvolumeclaims"), ("resource.k8s.io", "resourceclaims")];

/// Nobody's quota: events come and go by the thousand, the others are not stored.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

/// Counted without the `count/` in front, since before there was one.
const OLD_NAMES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];

const POD_NAMES: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
const SERVICE_NAMES: [&str; 3] = ["services", "services.nodeports", "services.loadbalancers"];
const CLAIM_NAMES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
const OF_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

impl Counted<'_> {
    pub fn is_ignored(self) -> bool {
        IGNORED.contains(&(self.group, self.resource))
    }

    pub fn is_measured(self) -> bool {
        MEASURED.contains(&(self.group, self.resource))
    }

    fn is(self, resource: &str) -> bool {
        self.group.is_empty() && self.resource == resource
    }

    /// `count/deployments.apps`
    fn count_name(self) -> SmolStr {
        match self.group {
            "" => format_smolstr!("count/{}", self.resource),
            group => format_smolstr!("count/{}.{group}", self.resource),
        }
    }

    /// Whether a line of a quota is about objects of this resource.
    pub fn counts(self, line: &str) -> bool {
        if let Some(counted) = line.strip_prefix("count/") {
            let rest = counted.strip_prefix(self.resource);
            return match self.group {
                "" => rest == Some(""),
                group => rest.and_then(|rest| rest.strip_prefix('.')) == Some(group),
            };
        }
        match (self.group, self.resource) {
            ("", "pods") => {
                POD_NAMES.contains(&line)
                    || line.starts_with("hugepages-")
                    || line.starts_with("requests.hugepages-")
                    || line.strip_prefix("requests.").is_some_and(is_extended)
            }
            ("", "services") => SERVICE_NAMES.contains(&line),
            ("", "persistentvolumeclaims") => {
                let name = line.rsplit_once(OF_CLASS).map_or(line, |(_, name)| name);
                CLAIM_NAMES.contains(&name)
            }
            ("resource.k8s.io", "resourceclaims") => line.ends_with(OF_DEVICE_CLASS),
            ("", resource) => OLD_NAMES.contains(&resource) && line == resource,
            _ => false,
        }
    }
}

/// The resource that a line counts, if its number is all that is counted.
pub fn plainly_counted(line: &str) -> Option<GroupResource> {
    let (resource, group) = match line.strip_prefix("count/") {
        Some(counted) => counted.split_once('.').unwrap_or((counted, "")),
        None => (*OLD_NAMES.iter().find(|name| **name == line)?, ""),
    };
    (!Counted { group, resource }.is_measured()).then(|| GroupResource::new(group, resource))
}

/// Resources that nodes have beside those Kubernetes knows: `example.com/gpu`.
fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    name.starts_with(DEVICE_CLASS) || (!native && !name.starts_with("requests."))
}

/// What an object uses.
pub fn usage(counted: Counted<'_>, object: &Value) -> Amounts {
    let mut used = Amounts::from([(counted.count_name(), Quantity::from_i64(1))]);
    if counted.is("pods") {
        pod(object, &mut used);
    } else if counted.is("services") {
        service(object, &mut used);
    } else if counted.is("persistentvolumeclaims") {
        claim(object, &mut used);
    } else if (counted.group, counted.resource) == ("resource.k8s.io", "resourceclaims") {
        devices(object, &mut used);
    } else if counted.group.is_empty() && OLD_NAMES.contains(&counted.resource) {
        used.insert(counted.resource.into(), Quantity::from_i64(1));
    }
    used
}

/// A pod that has come to its end is an object still, and uses nothing.
fn pod(pod: &Value, used: &mut Amounts) {
    if matches!(pod.str_at(&["status", "phase"]), Some("Failed" | "Succeeded")) {
        return;
    }
    used.extend(compute(&amounts::of_pod(pod, Side::Requests), &amounts::of_pod(pod, Side::Limits)));
}

/// Requests and limits under the names that quotas have for them.
pub fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([("pods".into(), Quantity::from_i64(1))]);
    for (name, amount) in requests {
        let known = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if known || name.starts_with("hugepages-") {
            used.insert(name.clone(), amount.clone());
        } else if !is_extended(name) {
            continue;
        }
        used.insert(format_smolstr!("requests.{name}"), amount.clone());
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format_smolstr!("limits.{name}"), amount.clone());
        }
    }
    used
}

fn service(service: &Value, used: &mut Amounts) {
    let ports = service.array_at(&["spec", "ports"]);
    let kind = service.str_at(&["spec", "type"]).unwrap_or_default();
    let all = service.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool) != Some(false);
    let chosen = || ports.iter().filter(|port| port.i64_at(&["nodePort"]).unwrap_or(0) != 0).count();
    let node_ports = match kind {
        "NodePort" => ports.len(),
        "LoadBalancer" if all => ports.len(),
        "LoadBalancer" => chosen(),
        _ => 0,
    };
    let number = |count: usize| Quantity::from_i64(i64::try_from(count).unwrap_or(i64::MAX));
    used.insert("services".into(), number(1));
    used.insert("services.nodeports".into(), number(node_ports));
    used.insert("services.loadbalancers".into(), number(usize::from(kind == "LoadBalancer")));
}

/// The class of a claim, by its field or the annotation that was there before it.
pub(crate) fn storage_class(claim: &Value) -> &str {
    let annotation = claim.str_at(&["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    annotation.or_else(|| claim.str_at(&["spec", "storageClassName"])).unwrap_or_default()
}

fn claim(claim: &Value, used: &mut Amounts) {
    let amount = |path: &[&str]| claim.at(path).and_then(|value| Quantity::from_value(value).ok());
    let whole = |amount: Quantity| match amount.as_milli() % 1000 {
        0 => amount,
        _ => Quantity::from_i64(amount.as_i64()),
    };
    let wanted = amount(&["spec", "resources", "requests", "storage"]).map(|wanted| {
        // A volume that is being made larger, or was to be, is charged for what it may have got.
        let given = amount(&["status", "allocatedResources", "storage"]).filter(|given| *given > wanted);
        whole(given.unwrap_or(wanted))
    });
    let mut lines = vec![(CLAIM_NAMES[0], Quantity::from_i64(1))];
    lines.extend(wanted.map(|wanted| (CLAIM_NAMES[1], wanted)));
    let class = storage_class(claim);
    for (name, amount) in lines {
        if !class.is_empty() {
            used.insert(format_smolstr!("{class}{OF_CLASS}{name}"), amount.clone());
        }
        used.insert(name.into(), amount);
    }
}

/// Devices by class. One that may come from several classes is charged to each of them.
fn devices(claim: &Value, used: &mut Amounts) {
    const ALL_MAX: i64 = 32;
    for request in claim.array_at(&["spec", "devices", "requests"]) {
        let one_of = request.array_at(&["firstAvailable"]);
        let exactly = request.get("exactly").unwrap_or(request);
        let mut most = Amounts::new();
        for part in one_of.iter().chain(one_of.is_empty().then_some(exactly)) {
            let Some(class) = part.str_at(&["deviceClassName"]) else { continue };
            let count = match part.str_at(&["allocationMode"]) {
                Some("All") => ALL_MAX,
                _ => part.i64_at(&["count"]).unwrap_or(1),
            };
            let (name, count) = (format_smolstr!("{class}{OF_DEVICE_CLASS}"), Quantity::from_i64(count));
            if most.get(&name).is_none_or(|own| *own < count) {
                most.insert(name, count);
            }
        }
        amounts::add(used, &most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::parse;

    #[test]
    fn rows() {
        #[track_caller]
        fn check(resource: &str, object: &str, expected: &str) {
            let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
            let counted = Counted { group, resource };
            let used = usage(counted, &parse(object));
            assert_eq!(amounts::write(&used).to_string(), expected);
            for name in used.keys() {
                let plain = matches!(name.as_str(), "hugepages-2Mi");
                assert!(counted.counts(name) || plain, "{name}");
            }
        }
        check("configmaps", "{}", r#"{"configmaps":"1","count/configmaps":"1"}"#);
        check("deployments.apps", "{}", r#"{"count/deployments.apps":"1"}"#);
        check("widgets.example.com", "{}", r#"{"count/widgets.example.com":"1"}"#);
        check(
            "pods",
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1","example.com/gpu":"2"},"limits":{"memory":"1Gi"}}}]}}"#,
            r#"{"count/pods":"1","cpu":"1","limits.memory":"1Gi","pods":"1","requests.cpu":"1","requests.example.com/gpu":"2"}"#,
        );
        check("pods", r#"{"status":{"phase":"Succeeded"}}"#, r#"{"count/pods":"1"}"#);
        check(
            "services",
            r#"{"spec":{"type":"LoadBalancer","ports":[{},{"nodePort":30000}]}}"#,
            r#"{"count/services":"1","services":"1","services.loadbalancers":"1","services.nodeports":"2"}"#,
        );
        check(
            "services",
            r#"{"spec":{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{},{"nodePort":30000}]}}"#,
            r#"{"count/services":"1","services":"1","services.loadbalancers":"1","services.nodeports":"1"}"#,
        );
        check(
            "persistentvolumeclaims",
            r#"{"spec":{"storageClassName":"gold","resources":{"requests":{"storage":"1Gi"}}}}"#,
            r#"{"count/persistentvolumeclaims":"1","gold.storageclass.storage.k8s.io/persistentvolumeclaims":"1","gold.storageclass.storage.k8s.io/requests.storage":"1Gi","persistentvolumeclaims":"1","requests.storage":"1Gi"}"#,
        );
        check(
            "resourceclaims.resource.k8s.io",
            r#"{"spec":{"devices":{"requests":[{"exactly":{"deviceClassName":"gpu","count":2}},{"firstAvailable":[{"deviceClassName":"gpu","count":1},{"deviceClassName":"tpu","count":3}]}]}}}"#,
            r#"{"count/resourceclaims.resource.k8s.io":"1","gpu.deviceclass.resource.k8s.io/devices":"3","tpu.deviceclass.resource.k8s.io/devices":"3"}"#,
        );
    }

    #[test]
    fn names() {
        let pods = Counted { group: "", resource: "pods" };
        assert!(pods.counts("requests.example.com/gpu"));
        for other in ["requests.storage", "configmaps", "services", "count/pods.example.com", "requests.what"]
        {
            assert!(!pods.counts(other), "{other}");
        }
        let shown = |line: &str| plainly_counted(line).map(|name| name.to_string());
        assert_eq!(shown("count/deployments.apps").as_deref(), Some("deployments.apps"));
        assert_eq!(shown("secrets").as_deref(), Some("secrets"));
        assert_eq!(shown("count/pods"), None);
        assert_eq!(shown("requests.cpu"), None);
    }
}
