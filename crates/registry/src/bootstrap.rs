//! The objects every plane starts with: system namespaces with their accounts, default roles, priority classes, request
//! priorities, the service of the API itself, and which groups it has.
//!
//! They are one layer that all planes share, so they are a function of the creation time and the server's site (its
//! authorities, its address) and nothing else: the same objects, in the same order, with the same UIDs (but for that of
//! kube-system). A server that moves, or gets another authority, makes another layer.

mod apiservices;
mod flow;
mod rbac;

use std::net::SocketAddr;

use polder_auth::authz::rbac::Role;
use polder_model::{GroupResource, GroupVersionResource, Object, SmolStr, Value, json};
use polder_store::{ObjectName, Profile, Record, ResourceId};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::profile;
use crate::resources::priorityclass;

pub use apiservices::{AUTHENTICATION, AUTHENTICATION_NAMESPACE, group_priority, version_priority};
pub use flow::{Importance, flow_schema_spec, priority_level_spec};

/// The default service range; the first address of it is the API's.
pub const SERVICE_CIDR: &str = "10.96.0.0/16";
pub const API_ADDRESS: &str = "10.96.0.1";

/// Where every namespace finds the authority it can trust this server by. Controllers keep it as it is here.
pub const ROOT_CA: &str = "kube-root-ca.crt";

/// What the layer tells about the server.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The certificate authority in PEM; without one, namespaces are told of none.
    pub ca: SmolStr,
    /// Where the API is served; without one, its service has no endpoints.
    pub address: Option<SocketAddr>,
    /// The authority of the certificates by which extension servers know this one, in PEM; without one, nothing is told.
    pub front_proxy_ca: SmolStr,
}

/// Whether an object tells of the server a plane is on: one that comes from another server stays as it is here.
pub(crate) fn is_of_site(resource: &GroupResource, name: &ObjectName) -> bool {
    match (resource.group.as_str(), resource.resource.as_str()) {
        ("", "configmaps") => {
            let namespace = name.namespace.as_str();
            (name.name == ROOT_CA && NAMESPACES.contains(&namespace))
                || (namespace, name.name.as_str()) == (AUTHENTICATION_NAMESPACE, AUTHENTICATION)
        }
        ("", "componentstatuses") => true,
        ("", "endpoints") | ("discovery.k8s.io", "endpointslices") => {
            (name.namespace.as_str(), name.name.as_str()) == ("default", "kubernetes")
        }
        _ => false,
    }
}

/// An object and where it goes.
#[derive(Clone, Debug, PartialEq)]
pub struct BootstrapObject {
    pub group: &'static str,
    pub version: &'static str,
    /// The plural name.
    pub resource: &'static str,
    pub kind: &'static str,
    pub namespace: Option<SmolStr>,
    pub name: SmolStr,
    /// The whole object, metadata included; only the resource version is missing.
    pub value: Value,
}

/// The default roles and bindings.
pub(crate) fn default_roles() -> Vec<BootstrapObject> {
    rbac::objects()
}

/// What all nodes may do alike.
pub(crate) fn node_role() -> Role {
    let objects = rbac::objects();
    let own = objects.iter().find(|object| object.kind == "ClusterRole" && object.name == "system:node");
    Role::read(&own.expect("the table has it").value)
}

/// The objects as the store keeps them: what `Store::open` takes as the base layer of a profile.
pub fn records(
    profile: Profile,
    now: &str,
    site: &Site,
    resource_id: &dyn Fn(&GroupResource) -> ResourceId,
) -> Vec<(ResourceId, ObjectName, Record)> {
    let has = |object: &BootstrapObject| is_in(profile, object);
    let stored = objects(now, site).into_iter().filter(has).map(|mut object| {
        let resource = resource_id(&GroupResource::new(object.group, object.resource));
        if (object.resource, &*object.name) == ("namespaces", OWN_NAMESPACE) {
            // For the core plane, which has no other: it differs between servers.
            object.value.set_at(&["metadata", "uid"], Uuid::new_v4().to_string());
        }
        let name = ObjectName::new(object.namespace.unwrap_or_default(), object.name);
        (resource, name, Record::encode(&object.value))
    });
    stored.collect()
}

/// Whether planes of a profile begin with an object: they have its kind, and what it tells of.
/// Whether planes of a profile have an object.
pub(crate) fn is_in(profile: Profile, object: &BootstrapObject) -> bool {
    let group = object.value.str_at(&["spec", "group"]).unwrap_or_default();
    profile::has(profile, &GroupResource::new(object.group, object.resource))
        && (object.resource != "apiservices" || profile::has_group(profile, group))
}

/// The one object that a plane has of its own from the start: programs take the uid of this namespace for the name of
/// the cluster.
const OWN_NAMESPACE: &str = "kube-system";

pub(crate) fn own_namespace() -> ObjectName {
    ObjectName::cluster(OWN_NAMESPACE)
}

/// The same object with another uid, and with another time of creation if one is given.
pub(crate) fn renewed(record: &Record, uid: Uuid, created: Option<&str>) -> Record {
    // What is stored is JSON; were it not, the plane would rather be known as another than not be made.
    let Ok(mut value) = Value::parse_own(record.body()) else { return record.clone() };
    value.set_at(&["metadata", "uid"], uid.to_string());
    if let Some(created) = created {
        value.set_at(&["metadata", "creationTimestamp"], created);
    }
    Record::encode_as(&value, record.form())
}

/// A kind that bootstrap objects have.
#[derive(Clone, Copy, Debug)]
struct Kind {
    group: &'static str,
    resource: &'static str,
    kind: &'static str,
    generation: bool,
}

impl Kind {
    const fn new(group: &'static str, resource: &'static str, kind: &'static str) -> Kind {
        Kind { group, resource, kind, generation: false }
    }

    /// A kind whose changes are counted.
    const fn counted(mut self) -> Kind {
        self.generation = true;
        self
    }

    /// An object of this kind: `members` are all but `apiVersion`, `kind` and the common metadata.
    fn object(self, namespace: Option<&str>, name: &str, mut members: Value) -> BootstrapObject {
        let api_version = match self.group {
            "" => "v1".into(),
            group => format!("{group}/v1"),
        };
        members.set_at(&["apiVersion"], api_version);
        members.set_at(&["kind"], self.kind);
        members.set_at(&["metadata", "name"], name);
        if let Some(namespace) = namespace {
            members.set_at(&["metadata", "namespace"], namespace);
        }
        members.set_at(&["metadata", "uid"], uid(self.kind, namespace.unwrap_or_default(), name));
        if self.generation {
            members.set_at(&["metadata", "generation"], 1);
        }
        BootstrapObject {
            group: self.group,
            version: "v1",
            resource: self.resource,
            kind: self.kind,
            namespace: namespace.map(SmolStr::new),
            name: SmolStr::new(name),
            value: members,
        }
    }
}

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// What old clients ask about: all of it is this server, and whoever gets an answer finds it healthy.
const COMPONENTS: [&str; 3] = ["controller-manager", "scheduler", "etcd-0"];

const COMPONENT_STATUS: Kind = Kind::new("", "componentstatuses", "ComponentStatus");
const NAMESPACE: Kind = Kind::new("", "namespaces", "Namespace");
const SERVICE_ACCOUNT: Kind = Kind::new("", "serviceaccounts", "ServiceAccount");
const SERVICE: Kind = Kind::new("", "services", "Service");
const CONFIG_MAP: Kind = Kind::new("", "configmaps", "ConfigMap");
const ENDPOINTS: Kind = Kind::new("", "endpoints", "Endpoints");
const ENDPOINT_SLICE: Kind = Kind::new("discovery.k8s.io", "endpointslices", "EndpointSlice").counted();
const SERVICE_CIDRS: Kind = Kind::new("networking.k8s.io", "servicecidrs", "ServiceCIDR");
const IP_ADDRESS: Kind = Kind::new("networking.k8s.io", "ipaddresses", "IPAddress");
const PRIORITY_CLASS: Kind = Kind::new("scheduling.k8s.io", "priorityclasses", "PriorityClass").counted();

/// All of them, created at `now` (RFC 3339, seconds). Namespaces come first, so that they can be written in order.
pub fn objects(now: &str, site: &Site) -> Vec<BootstrapObject> {
    let mut objects = Vec::with_capacity(256);
    objects.extend(NAMESPACES.map(namespace));
    objects.extend(NAMESPACES.map(|name| SERVICE_ACCOUNT.object(Some(name), "default", json!({}))));
    if !site.ca.is_empty() {
        objects.extend(NAMESPACES.map(|namespace| root_ca(namespace, &site.ca)));
    }
    if !site.front_proxy_ca.is_empty() {
        objects.push(apiservices::authentication(&site.front_proxy_ca));
    }
    objects.extend(COMPONENTS.map(component));
    objects.push(service_cidr(now));
    objects.push(service());
    objects.extend(site.address.into_iter().flat_map(endpoints));
    objects.push(ip_address());
    objects.extend(priorityclass::SYSTEM.map(|(name, value)| priority_class(name, value)));
    objects.extend(apiservices::objects(now));
    objects.extend(flow::objects(now));
    objects.extend(rbac::objects());
    for object in &mut objects {
        object.value.set_at(&["metadata", "creationTimestamp"], now);
    }
    objects
}

/// What planes get again when somebody deletes it, as a client makes it. The rest may be deleted, cannot be, or has a controller of its own.
pub fn kept(site: &Site) -> Vec<(GroupVersionResource, Value)> {
    const KEPT: [&str; 8] = [
        "namespaces",
        "services",
        "endpoints",
        "endpointslices",
        "servicecidrs",
        "flowschemas",
        "prioritylevelconfigurations",
        "apiservices",
    ];
    let kept = objects("", site).into_iter().filter(|object| KEPT.contains(&object.resource));
    let made = kept.map(|mut object| {
        for path in [
            ["metadata", "uid"].as_slice(),
            &["metadata", "creationTimestamp"],
            &["metadata", "generation"],
            &["status"],
        ] {
            object.value.remove_at(path);
        }
        (GroupResource::new(object.group, object.resource).with_version(object.version), object.value)
    });
    made.collect()
}

/// The content address of all of it, whenever created: changes when what planes start with changes.
pub fn digest(site: &Site) -> String {
    let mut hash = Sha256::new();
    for object in objects("1970-01-01T00:00:00Z", site) {
        hash.update(object.resource);
        hash.update(b"\0");
        hash.update([u8::from(is_in(Profile::Generic, &object))]);
        hash.update(object.value.to_vec());
        hash.update(b"\0");
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A UUID that depends on nothing but what it names (version 8: made in a way of our own).
fn uid(kind: &str, namespace: &str, name: &str) -> String {
    let digest = Sha256::digest(format!("polder.dev/bootstrap/{kind}/{namespace}/{name}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

fn namespace(name: &str) -> BootstrapObject {
    let members = json!({
        "metadata": {"labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    });
    NAMESPACE.object(None, name, members)
}

fn component(name: &str) -> BootstrapObject {
    let members = json!({"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]});
    COMPONENT_STATUS.object(None, name, members)
}

fn service_cidr(now: &str) -> BootstrapObject {
    let members = json!({
        "metadata": {"finalizers": ["networking.k8s.io/service-cidr-finalizer"]},
        "spec": {"cidrs": [SERVICE_CIDR]},
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready",
            "lastTransitionTime": now,
        }]},
    });
    SERVICE_CIDRS.object(None, "kubernetes", members)
}

fn service() -> BootstrapObject {
    let members = json!({
        "metadata": {"labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": API_ADDRESS,
            "clusterIPs": [API_ADDRESS],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
        "status": {"loadBalancer": {}},
    });
    SERVICE.object(Some("default"), "kubernetes", members)
}

/// Where the service of the API leads to: the server itself.
fn endpoints(address: SocketAddr) -> [BootstrapObject; 2] {
    let ip = address.ip().to_string();
    let port = json!({"name": "https", "port": (address.port()), "protocol": "TCP"});
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let old_form = json!({
        "metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": (ip.as_str())}], "ports": [(port.clone())]}],
    });
    let slice = json!({
        "metadata": {"labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family,
        "endpoints": [{"addresses": [(ip.as_str())], "conditions": {"ready": true}}],
        "ports": [port],
    });
    let place = Some("default");
    [ENDPOINTS.object(place, "kubernetes", old_form), ENDPOINT_SLICE.object(place, "kubernetes", slice)]
}

fn root_ca(namespace: &str, ca: &str) -> BootstrapObject {
    CONFIG_MAP.object(Some(namespace), ROOT_CA, one("data", one("ca.crt", ca)))
}

fn ip_address() -> BootstrapObject {
    let members = json!({
        "metadata": {"labels": {
            "ipaddress.kubernetes.io/ip-family": "IPv4",
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        }},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}},
    });
    IP_ADDRESS.object(None, API_ADDRESS, members)
}

fn priority_class(name: &str, value: i64) -> BootstrapObject {
    let description = match name {
        "system-node-critical" => "For system pods that must stay on their node.",
        _ => "For system pods that the cluster needs, on whichever node.",
    };
    let members = json!({
        "value": value,
        "description": description,
        "preemptionPolicy": "PreemptLowerPriority",
    });
    PRIORITY_CLASS.object(None, name, members)
}

/// Texts as a JSON list.
fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> Value {
    Value::Array(texts.into_iter().map(Value::from).collect())
}

/// An object of one member, whose name is not known when this is compiled.
fn one(key: &str, value: impl Into<Value>) -> Value {
    let mut object = Object::new();
    object.insert(key, value);
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::resources;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn site() -> Site {
        let address = Some(([192, 0, 2, 1], 6443).into());
        Site { ca: "a certificate".into(), address, front_proxy_ca: "another".into() }
    }

    #[test]
    fn counts() {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for object in objects(NOW, &site()) {
            *counts.entry(object.resource).or_default() += 1;
        }
        let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
        counts.sort_unstable();
        assert_eq!(
            counts,
            [
                ("apiservices", 22),
                ("clusterrolebindings", 49),
                ("clusterroles", 68),
                ("componentstatuses", 3),
                ("configmaps", 5),
                ("endpoints", 1),
                ("endpointslices", 1),
                ("flowschemas", 11),
                ("ipaddresses", 1),
                ("namespaces", 4),
                ("priorityclasses", 2),
                ("prioritylevelconfigurations", 8),
                ("rolebindings", 7),
                ("roles", 7),
                ("serviceaccounts", 4),
                ("servicecidrs", 1),
                ("services", 1),
            ]
        );
    }

    #[test]
    fn everything_is_named_once_and_complete() {
        let mut uids = HashSet::new();
        let mut names = HashSet::new();
        for object in objects(NOW, &site()) {
            let metadata = object.value.get("metadata").unwrap();
            let uid = metadata.str_at(&["uid"]).unwrap();
            assert_eq!(uid.parse::<Uuid>().unwrap().to_string(), uid);
            assert!(uids.insert(uid.to_owned()), "{object:?}");
            assert!(names.insert((object.resource, object.namespace.clone(), object.name.clone())));
            assert_eq!(metadata.str_at(&["name"]), Some(object.name.as_str()));
            assert_eq!(metadata.str_at(&["namespace"]), object.namespace.as_deref());
            assert_eq!(metadata.str_at(&["creationTimestamp"]), Some(NOW));
            assert_eq!(object.value.str_at(&["kind"]), Some(object.kind));
        }
    }

    #[test]
    fn the_kinds_agree() {
        for object in objects(NOW, &site()) {
            let kinds = resources::ALL.iter();
            let behavior =
                kinds.into_iter().find(|kind| (kind.group, kind.resource) == (object.group, object.resource));
            // The core group is in another file of kinds.
            let Some(behavior) = behavior else {
                assert_eq!(object.group, "", "{object:?}");
                continue;
            };
            let mut errors = Vec::new();
            (behavior.validate)(&object.value, None, &mut errors);
            assert_eq!(errors, [], "{}", object.name);
            let mut defaulted = object.value.clone();
            (behavior.default)(&mut defaulted);
            assert_eq!(defaulted, object.value, "{} lacks a default", object.name);
            let counted = object.value.i64_at(&["metadata", "generation"]) == Some(1);
            let mut made = json!({});
            (behavior.prepare_create)(&mut made);
            let starts = behavior.generation || made.at(&["metadata", "generation"]).is_some();
            assert_eq!(counted, starts, "{}", object.resource);
        }
    }

    #[test]
    fn the_address_does_not_depend_on_the_time() {
        assert_eq!(digest(&site()).len(), 64);
        assert_eq!(digest(&site()), digest(&site()));
        assert_ne!(digest(&site()), digest(&Site::default()), "another site is another layer");
        let one = objects(NOW, &site());
        assert_eq!(one, objects(NOW, &site()));
        assert_ne!(one, objects("2027-01-01T00:00:00Z", &site()));
        assert_eq!(uid("Namespace", "", "default"), one[0].value.str_at(&["metadata", "uid"]).unwrap());
    }
}
