//! May you: authorizers asked in order, after the two questions that come before all of them.

pub mod rbac;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use polder_model::{GroupResource, PlaneId, SmolStr, Status, format_smolstr};

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

impl Target<'_> {
    /// Empty for what is in none.
    pub fn namespace(&self) -> &str {
        match self {
            Target::Resource { namespace, .. } => namespace,
            Target::Path(_) => "",
        }
    }
}

#[derive(Clone, Debug)]
pub enum Decision {
    Allow {
        reason: Reason,
    },
    Deny {
        reason: SmolStr,
    },
    /// Ask the next one; nobody left means no.
    NoOpinion {
        reason: SmolStr,
    },
}

/// Why somebody may, in words that are put together only for whoever reads them.
#[derive(Clone, Debug, Default)]
pub struct Reason(Option<rbac::Grant>);

impl From<rbac::Grant> for Reason {
    fn from(grant: rbac::Grant) -> Reason {
        Reason(Some(grant))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |grant| grant.fmt(f))
    }
}

impl Decision {
    pub const ALLOW: Decision = Decision::Allow { reason: Reason(None) };
    pub const NO_OPINION: Decision = Decision::NoOpinion { reason: SmolStr::new_static("") };

    pub fn is_allow(&self) -> bool {
        matches!(self, Decision::Allow { .. })
    }

    /// Why, or why not, if there is more to say.
    pub fn reason(&self) -> SmolStr {
        match self {
            Decision::Allow { reason } => format_smolstr!("{reason}"),
            Decision::Deny { reason } | Decision::NoOpinion { reason } => reason.clone(),
        }
    }
}

/// An error says that nobody could decide, which is neither yes nor no: the store cannot be read, say.
pub type DecisionFuture<'a> = Pin<Box<dyn Future<Output = Result<Decision, Status>> + Send + 'a>>;

/// One way to decide.
pub trait Authorizer: Send + Sync {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> DecisionFuture<'a>;
}

/// All authorizers, in order.
#[derive(Default)]
pub struct Chain {
    pub authorizers: Vec<Arc<dyn Authorizer>>,
}

impl Chain {
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Result<Decision, Status> {
        // An identity of one plane is nobody in every other, before any rule is looked at.
        if attributes.user.home.is_some_and(|home| home != attributes.plane) {
            let reason = SmolStr::new_static("the credential belongs to another plane");
            return Ok(Decision::Deny { reason });
        }
        if attributes.user.in_group(MASTERS) {
            return Ok(Decision::ALLOW);
        }
        let is_public = is_public(attributes);
        let mut reasons = SmolStr::default();
        for authorizer in &self.authorizers {
            match authorizer.authorize(attributes).await {
                Err(_) if is_public => {}
                Err(status) => return Err(status),
                Ok(decision) => match decision {
                    Decision::NoOpinion { reason } if reasons.is_empty() => reasons = reason,
                    Decision::NoOpinion { reason } if reason.is_empty() => {}
                    Decision::NoOpinion { reason } => reasons = format_smolstr!("{reasons}\n{reason}"),
                    decided => return Ok(decided),
                },
            }
        }
        Ok(if is_public { Decision::ALLOW } else { Decision::NoOpinion { reason: reasons } })
    }
}

/// What everybody may read, whatever the plane's roles say: whether the server is there.
fn is_public(attributes: &Attributes<'_>) -> bool {
    let Target::Path(path) = attributes.target else { return false };
    attributes.verb == "get" && is_public_path(path)
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
    let reason = decision.reason();
    if !reason.is_empty() {
        text.push_str(": ");
        text.push_str(&reason);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn decide(user: &UserInfo, plane: u64, target: Target<'_>) -> Decision {
        Chain::default()
            .authorize(&Attributes { user, plane: PlaneId(plane), verb: "get", target })
            .await
            .unwrap()
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
        assert!(decide(&master, 2, target()).await.is_allow());
        master.home = Some(PlaneId(2));
        assert!(decide(&master, 2, target()).await.is_allow());
        assert!(matches!(decide(&master, 3, target()).await, Decision::Deny { .. }));
        assert!(matches!(decide(&master, 3, Target::Path("/healthz")).await, Decision::Deny { .. }));

        let user = UserInfo::authenticated("ann", []);
        assert!(matches!(decide(&user, 2, target()).await, Decision::NoOpinion { .. }));
        let attributes = Attributes { user: &user, plane: PlaneId(2), verb: "get", target: target() };
        assert_eq!(
            refusal(&attributes, &Decision::NO_OPINION),
            r#"User "ann" cannot get resource "pods" in API group "" in the namespace "n""#
        );
    }

    #[tokio::test]
    async fn anybody_may_see_health_and_version() {
        let nobody = UserInfo::anonymous();
        for path in ["/healthz", "/livez", "/readyz", "/version", "/version/"] {
            assert!(decide(&nobody, 1, Target::Path(path)).await.is_allow(), "{path}");
        }
        for path in ["/metrics", "/api", "/healthz/x/../..", "/livezz"] {
            assert!(
                matches!(decide(&nobody, 1, Target::Path(path)).await, Decision::NoOpinion { .. }),
                "{path}"
            );
        }
    }
}
