//! May you: authorizers asked in order, after the two questions that come before all of them.

use std::future::Future;
use std::pin::Pin;

use polder_model::{GroupResource, PlaneId, SmolStr};

use crate::{MASTERS, UserInfo};

/// What somebody wants to do, in Kubernetes' terms.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    pub user: &'a UserInfo,
    pub plane: PlaneId,
    pub verb: &'a str,
    pub target: Target<'a>,
}

#[derive(Clone, Debug)]
pub enum Target<'a> {
    Resource {
        resource: &'a GroupResource,
        version: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    Path(&'a str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Deny {
        reason: SmolStr,
    },
    /// Ask the next one; nobody left means no.
    NoOpinion,
}

pub type DecisionFuture<'a> = Pin<Box<dyn Future<Output = Decision> + Send + 'a>>;

/// One way to decide.
pub trait Authorizer: Send + Sync {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> DecisionFuture<'a>;
}

/// All authorizers, in order.
#[derive(Default)]
pub struct Chain {
    pub authorizers: Vec<Box<dyn Authorizer>>,
}

impl Chain {
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        // An identity of one plane is nobody in every other, before any rule is looked at.
        if attributes.user.home.is_some_and(|home| home != attributes.plane) {
            return Decision::Deny { reason: SmolStr::new_static("the credential belongs to another plane") };
        }
        if attributes.user.in_group(MASTERS) || is_public(attributes) || is_about_self(attributes) {
            return Decision::Allow;
        }
        for authorizer in &self.authorizers {
            match authorizer.authorize(attributes).await {
                Decision::NoOpinion => {}
                decided => return decided,
            }
        }
        Decision::NoOpinion
    }
}

/// What everybody may read: is the server alive, and which version is it.
fn is_public(attributes: &Attributes<'_>) -> bool {
    let Target::Path(path) = attributes.target else { return false };
    attributes.verb == "get" && is_public_path(path)
}

/// Whoever has a name may ask who it is and what it may do, as upstream's `system:basic-user` has it.
fn is_about_self(attributes: &Attributes<'_>) -> bool {
    let Target::Resource { resource, .. } = &attributes.target else { return false };
    let about_self = match resource.group.as_str() {
        "authentication.k8s.io" => resource.resource == "selfsubjectreviews",
        "authorization.k8s.io" => {
            matches!(resource.resource.as_str(), "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
        }
        _ => false,
    };
    about_self && attributes.verb == "create" && attributes.user.in_group("system:authenticated")
}

/// Paths that tell nothing but that the server is there.
pub fn is_public_path(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz", "/version"].contains(&path.trim_end_matches('/'))
}

/// Why not, in upstream's words.
pub fn refusal(attributes: &Attributes<'_>, decision: &Decision) -> String {
    let user = &attributes.user.name;
    let verb = attributes.verb;
    let mut text = match &attributes.target {
        Target::Path(path) => format!("User {user:?} cannot {verb} path {path:?}"),
        Target::Resource { resource, subresource, namespace, .. } => {
            let name = match *subresource {
                "" => resource.resource.to_string(),
                subresource => format!("{}/{subresource}", resource.resource),
            };
            let group = &resource.group;
            let place = match *namespace {
                "" => "at the cluster scope".to_string(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            format!("User {user:?} cannot {verb} resource {name:?} in API group {group:?} {place}")
        }
    };
    if let Decision::Deny { reason } = decision
        && !reason.is_empty()
    {
        text.push_str(": ");
        text.push_str(reason);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn decide(user: &UserInfo, plane: u64, target: Target<'_>) -> Decision {
        Chain::default().authorize(&Attributes { user, plane: PlaneId(plane), verb: "get", target }).await
    }

    #[tokio::test]
    async fn masters_may_everything_in_the_planes_they_can_reach() {
        let pods = GroupResource::new("", "pods");
        let target = || Target::Resource {
            resource: &pods,
            version: "v1",
            subresource: "",
            namespace: "n",
            name: "x",
        };
        let mut master = UserInfo::authenticated("root", [SmolStr::new(MASTERS)]);
        assert_eq!(decide(&master, 2, target()).await, Decision::Allow);
        master.home = Some(PlaneId(2));
        assert_eq!(decide(&master, 2, target()).await, Decision::Allow);
        assert!(matches!(decide(&master, 3, target()).await, Decision::Deny { .. }));
        assert!(matches!(decide(&master, 3, Target::Path("/healthz")).await, Decision::Deny { .. }));

        let user = UserInfo::authenticated("ann", []);
        assert_eq!(decide(&user, 2, target()).await, Decision::NoOpinion);
        let attributes = Attributes { user: &user, plane: PlaneId(2), verb: "get", target: target() };
        assert_eq!(
            refusal(&attributes, &Decision::NoOpinion),
            r#"User "ann" cannot get resource "pods" in API group "" in the namespace "n""#
        );
    }

    #[tokio::test]
    async fn whoever_has_a_name_may_ask_about_itself() {
        let ask = async |user: &UserInfo, verb, group, resource| {
            let resource = GroupResource::new(group, resource);
            let target = Target::Resource {
                resource: &resource,
                version: "v1",
                subresource: "",
                namespace: "",
                name: "",
            };
            Chain::default().authorize(&Attributes { user, plane: PlaneId(2), verb, target }).await
        };
        let (ann, nobody) = (UserInfo::authenticated("ann", []), UserInfo::anonymous());
        for (group, resource) in [
            ("authentication.k8s.io", "selfsubjectreviews"),
            ("authorization.k8s.io", "selfsubjectaccessreviews"),
            ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ] {
            assert_eq!(ask(&ann, "create", group, resource).await, Decision::Allow, "{resource}");
            assert_eq!(ask(&ann, "list", group, resource).await, Decision::NoOpinion, "{resource}");
            assert_eq!(ask(&nobody, "create", group, resource).await, Decision::NoOpinion, "{resource}");
        }
        let others = ask(&ann, "create", "authorization.k8s.io", "subjectaccessreviews").await;
        assert_eq!(others, Decision::NoOpinion);
    }

    #[tokio::test]
    async fn anybody_may_see_health_and_version() {
        let nobody = UserInfo::anonymous();
        for path in ["/healthz", "/livez", "/readyz", "/version", "/version/"] {
            assert_eq!(decide(&nobody, 1, Target::Path(path)).await, Decision::Allow, "{path}");
        }
        for path in ["/metrics", "/api", "/healthz/x/../..", "/livezz"] {
            assert_eq!(decide(&nobody, 1, Target::Path(path)).await, Decision::NoOpinion, "{path}");
        }
    }
}
