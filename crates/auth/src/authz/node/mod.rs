//! What nodes may do: `system:node:<name>` of the group `system:nodes`. They see what pods bound to them need, and write what is
//! their own; what a write may say is for the NodeRestriction plugin.
//!
//! Here is what can be said without looking at a plane. Where it depends on its objects the ruling says on which one, and whoever
//! knows planes finds out, with a [`Graph`].

mod graph;

use polder_model::pod::Referent;
use polder_model::selector::FieldOperator;
use polder_model::{SmolStr, format_smolstr};

pub use graph::{Graph, PlacedPod};

use super::{Attributes, Target};
use crate::UserInfo;

const USER_PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
const LEASES: &str = "kube-node-lease";

/// What a node may have to do with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Thing {
    /// What one of its pods may refer to.
    Needed(Referent),
    Volume,
    Attachment,
    Slice,
    Pod,
}

/// What the rules say about a request of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling<'a> {
    Allow,
    /// No opinion, and why.
    Refuse(SmolStr),
    /// It is not about anything of one node: the rules of the role `system:node` decide.
    ByRole,
    /// If the node has to do with this.
    IfRelated {
        thing: Thing,
        namespace: &'a str,
        name: &'a str,
    },
}

/// The node somebody is; empty if it cannot be told which, `None` for everybody else.
pub fn node_name(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX).filter(|_| user.in_group(GROUP))
}

/// Why a node may not see something, in upstream's words.
pub fn unrelated(node: &str) -> SmolStr {
    format_smolstr!("no relationship found between node '{node}' and this object")
}

/// What a node may do.
pub fn rule<'a>(node: &str, attributes: &Attributes<'a>) -> Ruling<'a> {
    if node.is_empty() {
        return Ruling::Refuse(format_smolstr!("unknown node for user {:?}", attributes.user.name));
    }
    let Target::Resource { resource, subresource, namespace, name, .. } = attributes.target else {
        return Ruling::ByRole;
    };
    let request = Request { node, verb: attributes.verb, part: subresource, namespace, name, attributes };
    match (resource.group.as_str(), resource.resource.as_str()) {
        ("", "secrets") => request.read(Thing::Needed(Referent::Secret)),
        ("", "configmaps") => request.read(Thing::Needed(Referent::ConfigMap)),
        ("", "persistentvolumeclaims") if subresource == "status" => {
            request.status(Thing::Needed(Referent::VolumeClaim))
        }
        ("", "persistentvolumeclaims") => request.get(Thing::Needed(Referent::VolumeClaim)),
        ("", "persistentvolumes") => request.get(Thing::Volume),
        ("resource.k8s.io", "resourceclaims") => request.get(Thing::Needed(Referent::ResourceClaim)),
        ("storage.k8s.io", "volumeattachments") => request.get(Thing::Attachment),
        ("", "serviceaccounts") if attributes.verb == "get" => {
            request.get(Thing::Needed(Referent::ServiceAccount))
        }
        ("", "serviceaccounts") => request.token(),
        ("coordination.k8s.io", "leases") => request.lease(),
        ("storage.k8s.io", "csinodes") => request.csi_node(),
        ("resource.k8s.io", "resourceslices") => request.slice(),
        ("", "nodes") => request.own_node(),
        ("", "pods") => request.pod(),
        _ => Ruling::ByRole,
    }
}

struct Request<'r, 'a> {
    node: &'r str,
    verb: &'a str,
    part: &'a str,
    namespace: &'a str,
    name: &'a str,
    attributes: &'r Attributes<'a>,
}

fn refuse<'a>(why: &'static str) -> Ruling<'a> {
    Ruling::Refuse(SmolStr::new_static(why))
}

const SILENT: Ruling<'static> = Ruling::Refuse(SmolStr::new_static(""));

impl<'a> Request<'_, 'a> {
    fn related(&self, thing: Thing) -> Ruling<'a> {
        if self.name.is_empty() {
            return refuse("No Object name found");
        }
        Ruling::IfRelated { thing, namespace: self.namespace, name: self.name }
    }

    fn get(&self, thing: Thing) -> Ruling<'a> {
        match self.verb {
            "get" if self.part.is_empty() => self.related(thing),
            "get" => refuse("cannot get subresource"),
            _ => refuse("can only get individual resources of this type"),
        }
    }

    fn read(&self, thing: Thing) -> Ruling<'a> {
        match self.verb {
            "get" | "list" | "watch" if !self.part.is_empty() => refuse("cannot read subresource"),
            "get" | "list" | "watch" if self.namespace.is_empty() => {
                refuse("can only read namespaced object of this type")
            }
            "get" | "list" | "watch" => self.related(thing),
            _ => refuse("can only read resources of this type"),
        }
    }

    fn status(&self, thing: Thing) -> Ruling<'a> {
        match self.verb {
            "update" | "patch" => self.related(thing),
            _ => refuse("can only get/update/patch this type"),
        }
    }

    fn token(&self) -> Ruling<'a> {
        if self.verb != "create" || self.name.is_empty() {
            return refuse("can only create tokens for individual service accounts");
        }
        match self.part {
            "token" => self.related(Thing::Needed(Referent::ServiceAccount)),
            _ => refuse("can only create token subresource of serviceaccount"),
        }
    }

    fn lease(&self) -> Ruling<'a> {
        match self.verb {
            "get" | "create" | "update" | "patch" | "delete" => {}
            _ => return refuse("can only get, create, update, patch, or delete a node lease"),
        }
        if self.namespace != LEASES {
            let why = format_smolstr!("can only access leases in the {LEASES:?} system namespace");
            return Ruling::Refuse(why);
        }
        // What a new one is called is for the plugin to look at, here and below.
        match self.verb == "create" || self.name == self.node {
            true => Ruling::Allow,
            false => refuse("can only access node lease with the same name as the requesting node"),
        }
    }

    fn csi_node(&self) -> Ruling<'a> {
        match self.verb {
            "get" | "create" | "update" | "patch" | "delete" => {}
            _ => return refuse("can only get, create, update, patch, or delete a CSINode"),
        }
        if !self.part.is_empty() {
            return refuse("cannot authorize CSINode subresources");
        }
        match self.verb == "create" || self.name == self.node {
            true => Ruling::Allow,
            false => refuse("can only access CSINode with the same name as the requesting node"),
        }
    }

    fn slice(&self) -> Ruling<'a> {
        if !self.part.is_empty() {
            return refuse("cannot authorize ResourceSlice subresources");
        }
        match self.verb {
            "create" => Ruling::Allow,
            "get" | "update" | "patch" | "delete" => self.related(Thing::Slice),
            "watch" | "list" | "deletecollection" if self.selects("spec.nodeName") => Ruling::Allow,
            "watch" | "list" | "deletecollection" => {
                refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => refuse(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn own_node(&self) -> Ruling<'a> {
        match (self.part, self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ruling::Allow,
            // A node may look for itself before it is there.
            ("", "get" | "list" | "watch") if self.name == self.node => Ruling::Allow,
            ("", "get" | "list" | "watch") => {
                let (node, name) = (self.node, self.name);
                Ruling::Refuse(match name {
                    "" => format_smolstr!("node '{node}' cannot read all nodes, only its own Node object"),
                    name => format_smolstr!("node '{node}' cannot read '{name}', only its own Node object"),
                })
            }
            _ => SILENT,
        }
    }

    fn pod(&self) -> Ruling<'a> {
        match (self.part, self.verb) {
            ("", "get") => self.related(Thing::Pod),
            ("", "list" | "watch") if self.selects("spec.nodeName") => Ruling::Allow,
            ("", "list" | "watch") if !self.name.is_empty() => self.related(Thing::Pod),
            ("", "list" | "watch") => refuse("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Ruling::Allow
            }
            _ => SILENT,
        }
    }

    /// Whether a request is only about what has this node in a field.
    fn selects(&self, field: &str) -> bool {
        self.attributes
            .selectors
            .fields
            .iter()
            .any(|one| one.path == field && one.operator == FieldOperator::Equals && one.value == self.node)
    }
}

#[cfg(test)]
mod tests {
    use polder_model::selector::FieldSelector;
    use polder_model::{GroupResource, PlaneId};

    use super::*;
    use crate::authz::Selectors;

    /// `verb group/resource/part namespace/name selector`, of the node `a`.
    #[track_caller]
    fn check(asked: &str, expected: &str) {
        let words: Vec<&str> = asked.split(' ').collect();
        let [verb, what, place, selector] = words[..] else { panic!("{asked}") };
        let mut what = what.split('/');
        let (group, plural) = (what.next().unwrap(), what.next().unwrap());
        let resource = GroupResource::new(group, plural);
        let (namespace, name) = place.split_once('/').unwrap();
        let fields = FieldSelector::parse(selector.trim_matches('-')).unwrap();
        let user = UserInfo::authenticated("system:node:a", [SmolStr::new_static(GROUP)]);
        let subresource = what.next().unwrap_or_default();
        let attributes = Attributes {
            user: &user,
            plane: PlaneId(2),
            verb,
            target: Target::Resource { resource: &resource, version: "v1", subresource, namespace, name },
            selectors: Selectors { fields: fields.requirements(), labels: &[] },
        };
        let found = match rule(node_name(&user).unwrap(), &attributes) {
            Ruling::Allow => "yes".to_owned(),
            Ruling::ByRole => "by role".to_owned(),
            Ruling::Refuse(why) => format!("no: {why}"),
            Ruling::IfRelated { thing, namespace, name } => format!("{thing:?} {namespace}/{name}"),
        };
        assert_eq!(found, expected, "{asked}");
    }

    #[test]
    fn what_nodes_may_do() {
        check("get /secrets n/x -", "Needed(Secret) n/x");
        check("watch /configmaps n/x -", "Needed(ConfigMap) n/x");
        check("list /secrets n/ -", "no: No Object name found");
        check("list /secrets / -", "no: can only read namespaced object of this type");
        check("delete /secrets n/x -", "no: can only read resources of this type");
        check("get /secrets/x n/x -", "no: cannot read subresource");
        check("get /persistentvolumeclaims n/x -", "Needed(VolumeClaim) n/x");
        check("list /persistentvolumeclaims n/x -", "no: can only get individual resources of this type");
        check("get /persistentvolumeclaims/x n/x -", "no: cannot get subresource");
        check("patch /persistentvolumeclaims/status n/x -", "Needed(VolumeClaim) n/x");
        check("get /persistentvolumeclaims/status n/x -", "no: can only get/update/patch this type");
        check("get /persistentvolumes /x -", "Volume /x");
        check("get resource.k8s.io/resourceclaims n/x -", "Needed(ResourceClaim) n/x");
        check("get storage.k8s.io/volumeattachments /x -", "Attachment /x");
        check("create /serviceaccounts/token n/x -", "Needed(ServiceAccount) n/x");
        check("get /serviceaccounts n/x -", "Needed(ServiceAccount) n/x");
        check("create /serviceaccounts n/ -", "no: can only create tokens for individual service accounts");
        check("create /serviceaccounts/x n/x -", "no: can only create token subresource of serviceaccount");
        check("create coordination.k8s.io/leases kube-node-lease/ -", "yes");
        check("update coordination.k8s.io/leases kube-node-lease/a -", "yes");
        check(
            "update coordination.k8s.io/leases kube-node-lease/b -",
            "no: can only access node lease with the same name as the requesting node",
        );
        check(
            "get coordination.k8s.io/leases kube-system/a -",
            "no: can only access leases in the \"kube-node-lease\" system namespace",
        );
        check(
            "list coordination.k8s.io/leases kube-node-lease/ -",
            "no: can only get, create, update, patch, or delete a node lease",
        );
        check("patch storage.k8s.io/csinodes /a -", "yes");
        check(
            "patch storage.k8s.io/csinodes /b -",
            "no: can only access CSINode with the same name as the requesting node",
        );
        check("create resource.k8s.io/resourceslices / -", "yes");
        check("update resource.k8s.io/resourceslices /x -", "Slice /x");
        check("list resource.k8s.io/resourceslices / spec.nodeName=a", "yes");
        check(
            "list resource.k8s.io/resourceslices / spec.nodeName=b",
            "no: can only list/watch/deletecollection resourceslices with nodeName field selector",
        );
        check("get /nodes /a -", "yes");
        check("get /nodes /b -", "no: node 'a' cannot read 'b', only its own Node object");
        check("list /nodes / -", "no: node 'a' cannot read all nodes, only its own Node object");
        check("update /nodes/status /b -", "yes");
        check("delete /nodes /a -", "no: ");
        check("get /pods n/x -", "Pod n/x");
        check("list /pods / spec.nodeName=a", "yes");
        check(
            "watch /pods / spec.nodeName!=a",
            "no: can only list/watch pods with spec.nodeName field selector",
        );
        check("list /pods n/ -", "no: can only list/watch pods with spec.nodeName field selector");
        check("watch /pods n/x -", "Pod n/x");
        check("create /pods n/ -", "yes");
        check("update /pods n/x -", "no: ");
        check("create /pods/eviction n/x -", "yes");
        check("patch /pods/status n/x -", "yes");
        check("get /services n/x -", "by role");
    }

    #[test]
    fn who_is_a_node() {
        let user = |name: &str, groups: &[&'static str]| {
            UserInfo::authenticated(name, groups.iter().map(|group| SmolStr::new_static(group)))
        };
        assert_eq!(node_name(&user("system:node:a", &[GROUP])), Some("a"));
        assert_eq!(node_name(&user("system:node:", &[GROUP])), Some(""));
        assert_eq!(node_name(&user("system:node:a", &[])), None);
        assert_eq!(node_name(&user("a", &[GROUP])), None);
        let nobody = user("system:node:", &[GROUP]);
        let attributes = Attributes {
            user: &nobody,
            plane: PlaneId(2),
            verb: "get",
            target: Target::Path("/api"),
            selectors: Selectors::default(),
        };
        assert_eq!(rule("", &attributes), Ruling::Refuse("unknown node for user \"system:node:\"".into()));
    }
}
