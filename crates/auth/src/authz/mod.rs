//! May you: authorizers asked in order, after the questions that come before all of them: is somebody of this plane at all, may
//! they do everything, may everybody see it. Which authorizers there are can change while the server runs.

mod conditions;
pub mod configuration;
pub mod node;
pub mod rbac;
pub mod webhook;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use polder_model::selector::{FieldRequirement, LabelRequirement};
use polder_model::{GroupResource, PlaneId, SmolStr, Status, format_smolstr};

use crate::{MASTERS, UserInfo};

/// What somebody wants to do, in Kubernetes' terms.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    pub user: &'a UserInfo,
    pub plane: PlaneId,
    pub verb: &'a str,
    pub target: Target<'a>,
    pub selectors: Selectors<'a>,
}

/// What a request narrows itself down to, if it is about many objects. Who ignores this asks about all of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selectors<'a> {
    pub fields: &'a [FieldRequirement],
    pub labels: &'a [LabelRequirement],
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
pub enum Reason {
    #[default]
    None,
    Granted(rbac::Grant),
    Told(SmolStr),
}

impl From<rbac::Grant> for Reason {
    fn from(grant: rbac::Grant) -> Reason {
        Reason::Granted(grant)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::None => Ok(()),
            Reason::Granted(grant) => grant.fmt(f),
            Reason::Told(text) => f.write_str(text),
        }
    }
}

impl Decision {
    pub const ALLOW: Decision = Decision::Allow { reason: Reason::None };
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

/// Why an authorizer could not decide, which is neither yes nor no: the store cannot be read, a webhook does not answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Those behind it may still say yes. If none does, this is told.
    Pass(Status),
    /// Nobody else is asked.
    Stop(Status),
}

impl From<Status> for Fault {
    fn from(status: Status) -> Fault {
        Fault::Pass(status)
    }
}

pub type DecisionFuture<'a> = Pin<Box<dyn Future<Output = Result<Decision, Fault>> + Send + 'a>>;

/// One way to decide.
pub trait Authorizer: Send + Sync {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> DecisionFuture<'a>;
}

/// An authorizer as the provider configured it.
#[derive(Clone)]
pub struct Step {
    /// What it is: `Node`, `RBAC`, `Webhook`.
    pub kind: &'static str,
    pub name: SmolStr,
    pub authorizer: Arc<dyn Authorizer>,
    pub counts: Arc<Decisions>,
}

/// How often an authorizer decided: yes, and no.
#[derive(Debug, Default)]
pub struct Decisions {
    pub allowed: AtomicU64,
    pub denied: AtomicU64,
}

impl Step {
    pub fn new(kind: &'static str, name: impl Into<SmolStr>, authorizer: Arc<dyn Authorizer>) -> Step {
        Step { kind, name: name.into(), authorizer, counts: Arc::default() }
    }
}

/// All authorizers, in order.
#[derive(Default)]
pub struct Chain {
    steps: ArcSwap<Vec<Step>>,
}

impl Chain {
    /// Others decide from the next question on.
    pub fn replace(&self, steps: Vec<Step>) {
        self.steps.store(Arc::new(steps));
    }

    /// Who decides by now.
    pub fn steps(&self) -> Arc<Vec<Step>> {
        self.steps.load_full()
    }

    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Result<Decision, Status> {
        // An identity of one plane is nobody in every other, before any rule is looked at.
        if attributes.user.home.is_some_and(|home| home != attributes.plane) {
            let reason = SmolStr::new_static("the credential belongs to another plane");
            return Ok(Decision::Deny { reason });
        }
        // Whether the server is there is told also when an authorizer is not.
        if attributes.user.in_group(MASTERS) || is_public(attributes) {
            return Ok(Decision::ALLOW);
        }
        let steps = self.steps.load_full();
        let (mut reasons, mut fault) = (SmolStr::default(), None);
        for Step { authorizer, counts, .. } in steps.iter() {
            match authorizer.authorize(attributes).await {
                Err(Fault::Pass(status)) => fault = fault.or(Some(status)),
                Err(Fault::Stop(status)) => return Err(status),
                Ok(Decision::NoOpinion { reason }) if reasons.is_empty() => reasons = reason,
                Ok(Decision::NoOpinion { reason }) if reason.is_empty() => {}
                Ok(Decision::NoOpinion { reason }) => reasons = format_smolstr!("{reasons}\n{reason}"),
                Ok(decided) => {
                    let count = if decided.is_allow() { &counts.allowed } else { &counts.denied };
                    count.fetch_add(1, Ordering::Relaxed);
                    return Ok(decided);
                }
            }
        }
        fault.map_or(Ok(Decision::NoOpinion { reason: reasons }), Err)
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

    fn question<'a>(user: &'a UserInfo, plane: u64, target: Target<'a>) -> Attributes<'a> {
        Attributes { user, plane: PlaneId(plane), verb: "get", target, selectors: Selectors::default() }
    }

    async fn decide(user: &UserInfo, plane: u64, target: Target<'_>) -> Decision {
        Chain::default().authorize(&question(user, plane, target)).await.unwrap()
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
        let attributes = question(&user, 2, target());
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

    /// One that says the same to everybody.
    struct Fixed(fn() -> Result<Decision, Fault>);

    impl Authorizer for Fixed {
        fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> DecisionFuture<'a> {
            let decision = (self.0)();
            Box::pin(async move { decision })
        }
    }

    /// The first who says yes or no is heard; a fault is told if nobody says yes, or at once if it must not be passed over.
    #[tokio::test]
    async fn authorizers_are_asked_in_order() {
        let yes = || Ok(Decision::ALLOW);
        let no = || Ok(Decision::Deny { reason: "no".into() });
        let unsure = || Ok(Decision::NoOpinion { reason: "unsure".into() });
        let silent = || Ok(Decision::NO_OPINION);
        let pass = || Err(Fault::Pass(Status::internal("pass")));
        let stop = || Err(Fault::Stop(Status::internal("stop")));
        type Say = fn() -> Result<Decision, Fault>;
        let rows: [(&[Say], &str); 10] = [
            (&[], "none "),
            (&[yes, no], "allow"),
            (&[no, yes], "deny no"),
            (&[unsure, silent, unsure], "none unsure\nunsure"),
            (&[silent, yes], "allow"),
            (&[pass, yes], "allow"),
            (&[pass, unsure], "fault"),
            (&[pass, no], "deny no"),
            (&[stop, yes], "fault"),
            (&[yes, stop], "allow"),
        ];
        let (ann, pods) = (UserInfo::authenticated("ann", []), GroupResource::new("", "pods"));
        for (number, (all, expected)) in rows.into_iter().enumerate() {
            let chain = Chain::default();
            let steps: Vec<Step> =
                all.iter().map(|say| Step::new("Fixed", "f", Arc::new(Fixed(*say)))).collect();
            chain.replace(steps.clone());
            let target =
                Target::Resource { resource: &pods, version: "v1", subresource: "", namespace: "", name: "" };
            let found = match chain.authorize(&question(&ann, 2, target)).await {
                Ok(Decision::Allow { .. }) => "allow".to_owned(),
                Ok(Decision::Deny { reason }) => format!("deny {reason}"),
                Ok(Decision::NoOpinion { reason }) => format!("none {reason}"),
                Err(_) => "fault".to_owned(),
            };
            assert_eq!(found, expected, "row {number}");
            let counted: u64 = steps.iter().map(|step| step.counts.allowed.load(Ordering::Relaxed)).sum();
            assert_eq!(counted, u64::from(expected == "allow"), "row {number}");
            // Nobody is asked about these.
            assert!(chain.authorize(&question(&ann, 2, Target::Path("/livez"))).await.unwrap().is_allow());
        }
    }
}
