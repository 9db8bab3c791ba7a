//! NodeRestriction: what nodes write is about themselves. The authorizer decides what they may ask for; here is looked at what they
//! send: their own node without labels and taints that would draw pods to it, mirror pods that refer to nothing, the status of
//! their own pods, tokens for those pods only.

use std::collections::BTreeSet;

use polder_model::pod::{self, Referent};
use polder_model::{GroupResource, Status, Value};

use crate::attributes::{Attributes, Operation, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::world::{Question, World};

pub(super) struct NodeRestriction;

const MIRROR: &str = "kubernetes.io/config.mirror";
const LEASES: &str = "kube-node-lease";
const RESTRICTED: &str = "node-restriction.kubernetes.io";
/// Labels of Kubernetes that a kubelet has to say something about.
const OWN_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
];
const OWN_LABEL_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// What a node may say about a claim: how far it has made its volume larger.
const CLAIM_STATUS: [&str; 4] = ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"];

impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        let is_own = match kind.group {
            "" => ["pods", "nodes", "persistentvolumeclaims", "serviceaccounts"].contains(&kind.resource),
            "coordination.k8s.io" => kind.resource == "leases",
            "storage.k8s.io" => kind.resource == "csinodes",
            "resource.k8s.io" => kind.resource == "resourceslices",
            _ => false,
        };
        // A request for a token is looked at as it was sent: later it says for whom it is also when its sender did not.
        match is_own && kind.resource == "serviceaccounts" {
            true => Interest::admit(Operations::CREATE),
            false => Interest::validate(Operations::WRITE.and(Operations::DELETE)).when(is_own),
        }
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: &'a mut Value,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(judge(request, Some(object), world))
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a Value>,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(judge(request, object, world))
    }
}

async fn judge(request: &Attributes<'_>, object: Option<&Value>, world: &dyn World) -> Result<(), Status> {
    let is_node = request.user.groups.iter().any(|group| group == "system:nodes");
    let Some(node) = request.user.name.strip_prefix("system:node:").filter(|_| is_node) else {
        return Ok(());
    };
    if node.is_empty() {
        let why = format!("could not determine node from user {:?}", request.user.name);
        return Err(request.forbidden(why));
    }
    let none = Value::Null;
    let (new, old) = (object.unwrap_or(&none), request.old.unwrap_or(&none));
    let sent = Sent { node, request, new, old, world };
    match request.resource.resource.as_str() {
        "pods" => sent.pod().await,
        "nodes" => sent.own_node(),
        "persistentvolumeclaims" => sent.claim(),
        "serviceaccounts" => sent.token().await,
        "leases" => sent.lease(),
        "csinodes" => sent.csi_node(),
        _ => sent.slice(),
    }
}

/// What a node sends.
struct Sent<'a> {
    node: &'a str,
    request: &'a Attributes<'a>,
    new: &'a Value,
    old: &'a Value,
    world: &'a dyn World,
}

fn node_of(object: &Value) -> &str {
    object.str_at(&["spec", "nodeName"]).unwrap_or_default()
}

/// Whether two objects say the same in a place; nothing and empty are the same.
fn same(one: &Value, other: &Value, path: &[&str]) -> bool {
    let read = |object: &Value| {
        let value = object.at(path).cloned().unwrap_or_default();
        let is_empty = value.as_array().is_some_and(<[Value]>::is_empty)
            || value.as_object().is_some_and(|members| members.is_empty());
        if is_empty { Value::Null } else { value }
    };
    read(one) == read(other)
}

impl Sent<'_> {
    fn refused(&self, why: impl AsRef<str>) -> Result<(), Status> {
        Err(self.request.forbidden(why))
    }

    fn unexpected(&self) -> Result<(), Status> {
        self.refused(format!("unexpected operation {:?}", self.request.operation.as_str()))
    }

    async fn existing_pod(&self, name: &str) -> Result<Value, Status> {
        let pods = GroupResource::new("", "pods");
        let found = self.world.get(&pods, self.request.namespace, name).await?;
        found.map(|found| found.value).ok_or_else(|| Status::not_found(&pods, name))
    }

    async fn pod(&self) -> Result<(), Status> {
        let (node, operation) = (self.node, self.request.operation);
        match (self.request.subresource, operation) {
            ("", Operation::Create) => self.mirror_pod().await,
            ("", Operation::Delete) if node_of(self.old) != node => {
                self.refused(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
            }
            ("", Operation::Delete) => Ok(()),
            ("", operation) => self.refused(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                operation.as_str()
            )),
            ("status", Operation::Update) => self.pod_status(),
            ("status", _) => self.unexpected(),
            ("eviction", Operation::Create) => {
                let own = self.request.own_name;
                let name = if own.is_empty() {
                    self.new.str_at(&["metadata", "name"]).unwrap_or_default()
                } else {
                    own
                };
                if name.is_empty() {
                    return self.refused("could not determine pod from request data");
                }
                match node_of(&self.existing_pod(name).await?) == node {
                    true => Ok(()),
                    false => self
                        .refused(format!("node {node} can only evict pods with spec.nodeName set to itself")),
                }
            }
            ("eviction", operation) => self.refused(format!("unexpected operation {}", operation.as_str())),
            (part, _) => self.refused(format!(
                "unexpected pod subresource {part:?}, only 'status' and 'eviction' are allowed"
            )),
        }
    }

    /// A pod that the node runs anyway, and that refers to nothing.
    async fn mirror_pod(&self) -> Result<(), Status> {
        let (node, pod) = (self.node, self.new);
        if !pod::is_mirror(pod) {
            return self.refused(format!(
                "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if node_of(pod) != node {
            return self
                .refused(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        let owner = match pod.array_at(&["metadata", "ownerReferences"]) {
            [owner] => owner,
            [] => {
                return self.refused(format!(
                    "node {node:?} can only create pods with an owner reference set to itself"
                ));
            }
            _ => {
                return self.refused(format!(
                    "node {node:?} can only create pods with a single owner reference set to itself"
                ));
            }
        };
        let text = |field: &str| owner.str_at(&[field]).unwrap_or_default();
        let flag = |field: &str| owner.get(field).and_then(Value::as_bool).unwrap_or_default();
        if (text("apiVersion"), text("kind"), text("name")) != ("v1", "Node", node) {
            return self.refused(format!(
                "node {node:?} can only create pods with an owner reference set to itself"
            ));
        }
        if !flag("controller") {
            return self.refused(format!(
                "node {node:?} can only create pods with a controller owner reference set to itself"
            ));
        }
        if flag("blockOwnerDeletion") {
            return self
                .refused(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let nodes = GroupResource::new("", "nodes");
        let found = self.world.get(&nodes, "", node).await?.ok_or_else(|| Status::not_found(&nodes, node))?;
        let uid = found.value.str_at(&["metadata", "uid"]).unwrap_or_default();
        if text("uid") != uid {
            return self.refused(format!("node {node} UID mismatch: expected {} got {uid}", text("uid")));
        }
        let references = pod::references(self.request.own_name, pod);
        let refers = |referent: Referent| references.iter().any(|(own, _)| *own == referent);
        let volumes = pod.array_at(&["spec", "volumes"]);
        let sources = volumes.iter().flat_map(|volume| volume.array_at(&["projected", "sources"]));
        let mut bundles = sources.filter(|source| source.get("clusterTrustBundle").is_some());
        let what = match () {
            () if refers(Referent::ServiceAccount) => "a service account",
            () if refers(Referent::Secret) => "secrets",
            () if refers(Referent::ConfigMap) => "configmaps",
            () if bundles.next().is_some() => "clustertrustbundles",
            () if refers(Referent::VolumeClaim) => "persistentvolumeclaims",
            () if !pod.array_at(&["spec", "resourceClaims"]).is_empty() => "resourceclaims",
            () => return Ok(()),
        };
        self.refused(format!("node {node:?} can not create pods that reference {what}"))
    }

    fn pod_status(&self) -> Result<(), Status> {
        let node = self.node;
        if node_of(self.old) != node {
            return self.refused(format!(
                "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
            ));
        }
        if !same(self.new, self.old, &["metadata", "labels"]) {
            return self.refused(format!("node {node:?} cannot update labels through pod status"));
        }
        if !same(self.new, self.old, &["status", "resourceClaimStatuses"]) {
            return self.refused(format!("node {node:?} cannot update resource claim statues"));
        }
        if !same(self.new, self.old, &["status", "extendedResourceClaimStatus"]) {
            return self.refused(format!("node {node:?} cannot update extended resource claim status"));
        }
        Ok(())
    }

    fn own_node(&self) -> Result<(), Status> {
        let (node, name) = (self.node, self.request.own_name);
        if name != node {
            return self.refused(format!("node {node:?} is not allowed to modify node {name:?}"));
        }
        let source = ["spec", "configSource"];
        let has_source = self.new.at(&source).is_some_and(|source| !source.is_null());
        let labels = forbidden_labels(self.new, self.old).join(", ");
        match self.request.operation {
            Operation::Create if has_source => self
                .refused(format!("node {node:?} is not allowed to create pods with a non-nil configSource")),
            Operation::Create if !labels.is_empty() => {
                self.refused(format!("node {node:?} is not allowed to set the following labels: {labels}"))
            }
            Operation::Update if has_source && !same(self.new, self.old, &source) => self.refused(format!(
                "node {node:?} is not allowed to update configSource to a new non-nil configSource"
            )),
            Operation::Update if !same(self.new, self.old, &["spec", "taints"]) => {
                self.refused(format!("node {node:?} is not allowed to modify taints"))
            }
            Operation::Update if !same(self.new, self.old, &["metadata", "ownerReferences"]) => {
                self.refused(format!("node {node:?} is not allowed to modify ownerReferences"))
            }
            Operation::Update if !labels.is_empty() => {
                self.refused(format!("is not allowed to modify labels: {labels}"))
            }
            _ => Ok(()),
        }
    }

    fn claim(&self) -> Result<(), Status> {
        if self.request.subresource != "status" {
            return self.refused("may only update PVC status");
        }
        if self.request.operation != Operation::Update {
            return self.unexpected();
        }
        let rest = |claim: &Value| {
            let mut claim = claim.clone();
            for path in ["resourceVersion", "managedFields"] {
                claim.remove_at(&["metadata", path]);
            }
            for field in CLAIM_STATUS {
                claim.remove_at(&["status", field]);
            }
            if claim.get("status").and_then(Value::as_object).is_some_and(|status| status.is_empty()) {
                claim.remove_at(&["status"]);
            }
            claim
        };
        match rest(self.new) == rest(self.old) {
            true => Ok(()),
            false => self.refused(format!(
                "node {:?} is not allowed to update fields other than status.capacity and status.conditions",
                self.node
            )),
        }
    }

    /// A token that dies with a pod of the node, and is for whom the pod says.
    async fn token(&self) -> Result<(), Status> {
        if (self.request.subresource, self.request.operation) != ("token", Operation::Create) {
            return Ok(());
        }
        let text = |field: &str| self.new.str_at(&["spec", "boundObjectRef", field]).unwrap_or_default();
        if (text("apiVersion"), text("kind")) != ("v1", "Pod") || text("name").is_empty() {
            return self.refused("node requested token not bound to a pod");
        }
        if text("uid").is_empty() {
            return self.refused("node requested token with a pod binding without a uid");
        }
        let pod = self.existing_pod(text("name")).await?;
        if pod.str_at(&["metadata", "uid"]) != Some(text("uid")) {
            return self.refused(format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
                text("uid")
            ));
        }
        if node_of(&pod) != self.node {
            return self.refused("node requested token bound to a pod scheduled on a different node");
        }
        let audience = match self.new.array_at(&["spec", "audiences"]) {
            [] => "",
            [one] => one.as_str().unwrap_or_default(),
            _ => return self.refused("node may only request 0 or 1 audiences"),
        };
        if self.pod_names_audience(&pod, audience).await? {
            return Ok(());
        }
        let question = Question {
            verb: "request-serviceaccounts-token-audience",
            resource: &GroupResource::new("", audience),
            subresource: "",
            namespace: self.request.namespace,
            name: self.request.own_name,
        };
        if self.world.allows(question).await? {
            return Ok(());
        }
        self.refused(format!(
            "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
            self.request.user.name
        ))
    }

    /// Whether a volume of a pod is for tokens of an audience, or its driver asks for them.
    async fn pod_names_audience(&self, pod: &Value, audience: &str) -> Result<bool, Status> {
        for volume in pod.array_at(&["spec", "volumes"]) {
            let sources = volume.array_at(&["projected", "sources"]).iter();
            let mut tokens = sources.filter_map(|source| source.get("serviceAccountToken"));
            if tokens.any(|token| token.str_at(&["audience"]).unwrap_or_default() == audience) {
                return Ok(true);
            }
            let driver = match volume.str_at(&["csi", "driver"]) {
                Some(driver) => driver.to_owned(),
                None => self.driver_of_claim(pod, volume).await?,
            };
            if driver.is_empty() {
                continue;
            }
            let drivers = GroupResource::new("storage.k8s.io", "csidrivers");
            let Some(found) = self.world.get(&drivers, "", &driver).await? else { continue };
            let mut wanted = found.value.array_at(&["spec", "tokenRequests"]).iter();
            if wanted.any(|one| one.str_at(&["audience"]).unwrap_or_default() == audience) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The driver of the volume that a pod's claim is bound to; empty if there is none.
    async fn driver_of_claim(&self, pod: &Value, volume: &Value) -> Result<String, Status> {
        let text = |name: &str| volume.str_at(&[name]).unwrap_or_default();
        let named = volume.str_at(&["persistentVolumeClaim", "claimName"]).map(str::to_owned);
        let made = volume
            .get("ephemeral")
            .filter(|own| !own.is_null())
            .map(|_| format!("{}-{}", pod.str_at(&["metadata", "name"]).unwrap_or_default(), text("name")));
        let Some(claim) = named.or(made) else { return Ok(String::new()) };
        let claims = GroupResource::new("", "persistentvolumeclaims");
        let Some(claim) = self.world.get(&claims, self.request.namespace, &claim).await? else {
            return Ok(String::new());
        };
        let volumes = GroupResource::new("", "persistentvolumes");
        let name = claim.value.str_at(&["spec", "volumeName"]).unwrap_or_default();
        if name.is_empty() {
            return Ok(String::new());
        }
        let found = self.world.get(&volumes, "", name).await?;
        let driver = found.as_ref().and_then(|found| found.value.str_at(&["spec", "csi", "driver"]));
        Ok(driver.unwrap_or_default().to_owned())
    }

    fn lease(&self) -> Result<(), Status> {
        if self.request.namespace != LEASES {
            return self.refused(format!("can only access leases in the {LEASES:?} system namespace"));
        }
        match self.request.own_name == self.node {
            true => Ok(()),
            false => self.refused("can only access node lease with the same name as the requesting node"),
        }
    }

    fn csi_node(&self) -> Result<(), Status> {
        match self.request.own_name == self.node {
            true => Ok(()),
            false => self.refused("can only access CSINode with the same name as the requesting node"),
        }
    }

    fn slice(&self) -> Result<(), Status> {
        let (own, what) = match self.request.operation {
            Operation::Create => (self.new, "create"),
            Operation::Delete => (self.old, "delete"),
            // Whose it is cannot change.
            _ => return Ok(()),
        };
        match node_of(own) == self.node {
            true => Ok(()),
            false => self.refused(format!(
                "can only {what} ResourceSlice with the same NodeName as the requesting node"
            )),
        }
    }
}

/// Labels that differ and are not for a node to say.
fn forbidden_labels<'a>(new: &'a Value, old: &'a Value) -> Vec<&'a str> {
    let label = |object: &'a Value, key: &str| object.str_at(&["metadata", "labels", key]);
    let of = |object: &'a Value| object.at(&["metadata", "labels"]).and_then(Value::as_object);
    let keys =
        [new, old].into_iter().filter_map(of).flat_map(|labels| labels.iter().map(|(key, _)| key.as_str()));
    let changed: BTreeSet<&str> = keys.filter(|key| label(new, key) != label(old, key)).collect();
    changed.into_iter().filter(|key| !is_for_nodes(key)).collect()
}

fn is_for_nodes(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let is_below =
        |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if is_below(RESTRICTED) {
        return false;
    }
    let is_of_kubernetes = is_below("kubernetes.io") || is_below("k8s.io");
    !is_of_kubernetes || OWN_LABELS.contains(&label) || OWN_LABEL_DOMAINS.iter().any(|own| is_below(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Request};

    fn world() -> Fake {
        let mut world = Fake::of(&[
            ("nodes", r#"{"metadata":{"name":"a","uid":"1"}}"#),
            (
                "pods",
                r#"{"metadata":{"name":"own","namespace":"ns","uid":"2"},"spec":{"nodeName":"a","volumes":[
                {"name":"t","projected":{"sources":[{"serviceAccountToken":{"audience":"vault"}},{"serviceAccountToken":{}}]}},
                {"name":"c","csi":{"driver":"d"}},{"name":"p","persistentVolumeClaim":{"claimName":"claim"}}]}}"#,
            ),
            ("pods", r#"{"metadata":{"name":"other","namespace":"ns","uid":"3"},"spec":{"nodeName":"b"}}"#),
            (
                "csidrivers.storage.k8s.io",
                r#"{"metadata":{"name":"d"},"spec":{"tokenRequests":[{"audience":"inline"}]}}"#,
            ),
            (
                "csidrivers.storage.k8s.io",
                r#"{"metadata":{"name":"e"},"spec":{"tokenRequests":[{"audience":"bound"}]}}"#,
            ),
            (
                "persistentvolumeclaims",
                r#"{"metadata":{"name":"claim","namespace":"ns"},"spec":{"volumeName":"v"}}"#,
            ),
            ("persistentvolumes", r#"{"metadata":{"name":"v"},"spec":{"csi":{"driver":"e"}}}"#),
        ]);
        world.allowed = false;
        world.user = ("system:node:a", vec!["system:nodes".into()]);
        world
    }

    /// What a node `a` is told; empty if it may.
    #[track_caller]
    fn check(operation: Operation, path: &str, new: &str, old: Option<&str>, expected: &str) {
        let world = world();
        let request = Request { plugin: &NodeRestriction, world: &world, path, operation };
        let said = request.validate(new, old).err().unwrap_or_default();
        let said = said.split_once("is forbidden: ").map_or(said.as_str(), |(_, why)| why);
        assert_eq!(said, expected, "{path} {new}");
    }

    #[test]
    fn mirror_pods() {
        let pod = |owner: &str, spec: &str| {
            format!(
                r#"{{"metadata":{{"name":"m","annotations":{{"kubernetes.io/config.mirror":"x"}},"ownerReferences":[{owner}]}},"spec":{spec}}}"#
            )
        };
        let owner = r#"{"apiVersion":"v1","kind":"Node","name":"a","uid":"1","controller":true}"#;
        let create = |pod: &str, expected: &str| check(Operation::Create, "pods", pod, None, expected);
        create(&pod(owner, r#"{"nodeName":"a"}"#), "");
        create(
            r#"{"metadata":{"name":"m"},"spec":{"nodeName":"a"}}"#,
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"a\" can only create mirror pods",
        );
        create(
            &pod(owner, r#"{"nodeName":"b"}"#),
            "node \"a\" can only create pods with spec.nodeName set to itself",
        );
        let own = r#"{"nodeName":"a"}"#;
        create(&pod("", own), "node \"a\" can only create pods with an owner reference set to itself");
        create(
            &pod(&format!("{owner},{owner}"), own),
            "node \"a\" can only create pods with a single owner reference set to itself",
        );
        create(
            &pod(&owner.replace("true", "false"), own),
            "node \"a\" can only create pods with a controller owner reference set to itself",
        );
        create(
            &pod(&owner.replace(r#""uid":"1""#, r#""uid":"9""#), own),
            "node a UID mismatch: expected 9 got 1",
        );
        for (spec, what) in [
            (r#""serviceAccountName":"x""#, "a service account"),
            (r#""imagePullSecrets":[{"name":"x"}]"#, "secrets"),
            (r#""containers":[{"envFrom":[{"configMapRef":{"name":"x"}}]}]"#, "configmaps"),
            (r#""volumes":[{"name":"v","ephemeral":{}}]"#, "persistentvolumeclaims"),
            (
                r#""volumes":[{"name":"v","projected":{"sources":[{"clusterTrustBundle":{}}]}}]"#,
                "clustertrustbundles",
            ),
            (r#""resourceClaims":[{"name":"x"}]"#, "resourceclaims"),
        ] {
            let pod = pod(owner, &format!(r#"{{"nodeName":"a",{spec}}}"#));
            create(&pod, &format!("node \"a\" can not create pods that reference {what}"));
        }
    }

    #[test]
    fn pods() {
        let (own, other) = (r#"{"spec":{"nodeName":"a"}}"#, r#"{"spec":{"nodeName":"b"}}"#);
        check(Operation::Delete, "pods", own, Some(own), "");
        check(
            Operation::Delete,
            "pods",
            other,
            Some(other),
            "node \"a\" can only delete pods with spec.nodeName set to itself",
        );
        check(
            Operation::Update,
            "pods",
            own,
            Some(own),
            "unexpected operation \"UPDATE\", node \"a\" can only create and delete mirror pods",
        );
        check(Operation::Update, "pods/status", own, Some(own), "");
        check(
            Operation::Update,
            "pods/status",
            other,
            Some(other),
            "node \"a\" can only update pod status for pods with spec.nodeName set to itself",
        );
        let labeled = r#"{"metadata":{"labels":{"x":"y"}},"spec":{"nodeName":"a"}}"#;
        check(
            Operation::Update,
            "pods/status",
            labeled,
            Some(own),
            "node \"a\" cannot update labels through pod status",
        );
        let claimed = r#"{"spec":{"nodeName":"a"},"status":{"resourceClaimStatuses":[{"name":"x"}]}}"#;
        check(
            Operation::Update,
            "pods/status",
            claimed,
            Some(own),
            "node \"a\" cannot update resource claim statues",
        );
        check(Operation::Create, "pods/eviction", r#"{"metadata":{"name":"own"}}"#, None, "");
        check(
            Operation::Create,
            "pods/eviction",
            r#"{"metadata":{"name":"other"}}"#,
            None,
            "node a can only evict pods with spec.nodeName set to itself",
        );
        check(
            Operation::Create,
            "pods/eviction",
            r#"{"metadata":{"name":"lost"}}"#,
            None,
            "pods \"lost\" not found",
        );
        check(
            Operation::Create,
            "pods/binding",
            "{}",
            None,
            "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed",
        );
    }

    #[test]
    fn nodes() {
        let node = |labels: &str, spec: &str| {
            format!(r#"{{"metadata":{{"name":"a","labels":{labels}}},"spec":{spec}}}"#)
        };
        let plain = node("{}", "{}");
        let (create, update) = (Operation::Create, Operation::Update);
        check(create, "nodes", &plain, None, "");
        check(
            create,
            "nodes",
            r#"{"metadata":{"name":"b"}}"#,
            None,
            "node \"a\" is not allowed to modify node \"b\"",
        );
        let labels = r#"{"kubernetes.io/os":"linux","a.node.kubernetes.io/x":"y","example.com/x":"y"}"#;
        check(create, "nodes", &node(labels, "{}"), None, "");
        let bad = r#"{"node-restriction.kubernetes.io/x":"y","x.k8s.io/z":"y","node-role.kubernetes.io/master":""}"#;
        let list = "node-restriction.kubernetes.io/x, node-role.kubernetes.io/master, x.k8s.io/z";
        let why = format!("node \"a\" is not allowed to set the following labels: {list}");
        check(create, "nodes", &node(bad, "{}"), None, &why);
        check(
            update,
            "nodes",
            &node(bad, "{}"),
            Some(&plain),
            &format!("is not allowed to modify labels: {list}"),
        );
        check(
            update,
            "nodes",
            &plain,
            Some(&node(bad, "{}")),
            &format!("is not allowed to modify labels: {list}"),
        );
        check(update, "nodes", &node(bad, "{}"), Some(&node(bad, "{}")), "");
        let tainted = node("{}", r#"{"taints":[{"key":"x"}]}"#);
        check(update, "nodes", &plain, Some(&tainted), "node \"a\" is not allowed to modify taints");
        check(create, "nodes", &tainted, None, "");
        let source = node("{}", r#"{"configSource":{}}"#);
        check(
            create,
            "nodes",
            &source,
            None,
            "node \"a\" is not allowed to create pods with a non-nil configSource",
        );
        let owned = r#"{"metadata":{"name":"a","ownerReferences":[{"name":"x"}]}}"#;
        check(update, "nodes", owned, Some(&plain), "node \"a\" is not allowed to modify ownerReferences");
    }

    #[test]
    fn tokens() {
        let token = |bound: &str, audiences: &str| {
            format!(
                r#"{{"metadata":{{"name":"sa"}},"spec":{{"audiences":{audiences},"boundObjectRef":{bound}}}}}"#
            )
        };
        let create = |bound: &str, audiences: &str, expected: &str| {
            let world = world();
            let (plugin, path, operation) = (&NodeRestriction, "serviceaccounts/token", Operation::Create);
            let request = Request { plugin, world: &world, path, operation };
            let said = request.admit(&token(bound, audiences), None).err().unwrap_or_default();
            assert_eq!(said.split_once("is forbidden: ").map_or(said.as_str(), |(_, why)| why), expected);
        };
        let own = r#"{"apiVersion":"v1","kind":"Pod","name":"own","uid":"2"}"#;
        for audiences in ["[]", r#"["vault"]"#, r#"["inline"]"#, r#"["bound"]"#] {
            create(own, audiences, "");
        }
        create(own, r#"["vault","inline"]"#, "node may only request 0 or 1 audiences");
        create(
            own,
            r#"["elsewhere"]"#,
            "audience \"elsewhere\" not found in pod spec volume, system:node:a is not authorized to request tokens for this audience",
        );
        create("{}", "[]", "node requested token not bound to a pod");
        create(&own.replace("Pod", "Secret"), "[]", "node requested token not bound to a pod");
        create(&own.replace("\"2\"", "\"\""), "[]", "node requested token with a pod binding without a uid");
        create(
            &own.replace("\"2\"", "\"9\""),
            "[]",
            "the UID in the bound object reference (9) does not match the UID in record. The object might have been deleted and then recreated",
        );
        let other = r#"{"apiVersion":"v1","kind":"Pod","name":"other","uid":"3"}"#;
        create(other, "[]", "node requested token bound to a pod scheduled on a different node");
    }

    #[test]
    fn what_else_is_a_nodes_own() {
        let named = |name: &str| format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        let leases = "can only access leases in the \"kube-node-lease\" system namespace";
        check(Operation::Create, "leases.coordination.k8s.io", &named("a"), None, leases);
        let csi = "csinodes.storage.k8s.io";
        check(Operation::Create, csi, &named("a"), None, "");
        let why = "can only access CSINode with the same name as the requesting node";
        check(Operation::Update, csi, &named("b"), Some(&named("b")), why);
        let slices = "resourceslices.resource.k8s.io";
        check(Operation::Create, slices, r#"{"spec":{"nodeName":"a"}}"#, None, "");
        let why = "can only create ResourceSlice with the same NodeName as the requesting node";
        check(Operation::Create, slices, r#"{"spec":{"nodeName":"b"}}"#, None, why);
        let claim = |status: &str, label: &str| {
            format!(r#"{{"metadata":{{"name":"c","labels":{{"x":"{label}"}}}},"status":{status}}}"#)
        };
        let (old, grown) =
            (claim("{}", "1"), claim(r#"{"capacity":{"storage":"2Gi"},"conditions":[]}"#, "1"));
        let claims = "persistentvolumeclaims/status";
        check(Operation::Update, claims, &grown, Some(&old), "");
        let why =
            "node \"a\" is not allowed to update fields other than status.capacity and status.conditions";
        check(Operation::Update, claims, &claim("{}", "2"), Some(&old), why);
        check(Operation::Update, claims, &claim(r#"{"phase":"Lost"}"#, "1"), Some(&old), why);
        check(Operation::Update, "persistentvolumeclaims", &grown, Some(&old), "may only update PVC status");
    }

    #[test]
    fn others_are_left_alone() {
        let mut world = world();
        world.user = ("system:node:a", vec!["others".into()]);
        let request =
            Request { plugin: &NodeRestriction, world: &world, path: "pods", operation: Operation::Create };
        request.validate("{}", None).unwrap();
        world.user = ("system:node:", vec!["system:nodes".into()]);
        let request =
            Request { plugin: &NodeRestriction, world: &world, path: "pods", operation: Operation::Create };
        let said = request.validate("{}", None).err().unwrap();
        assert!(said.contains("could not determine node from user \"system:node:\""), "{said}");
    }
}
