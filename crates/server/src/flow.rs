//! What a request belongs to by its plane's flow schemas: it is told in two headers of the answer, and takes its seat by it
//! ([`crate::fairness`]). A plane whose schemas cannot be read answers without both.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use polder_auth::UserInfo;
use polder_model::{SmolStr, Status};
use polder_registry::flows::{FlowRequest, FlowTarget, Flows};
use polder_registry::{Query, Registry};
use polder_store::Plane;
use tokio::time::Instant;

use crate::fairness::{Cost, Guest};
use crate::handler::named;
use crate::limits::Pass;
use crate::route::{Request, ResourcePath, Route};

static SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
static LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// The part of a request's time that it may wait for its turn; of a watch's, that of an ordinary request.
const WAIT_PART: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(60);

/// What a request belongs to.
pub(crate) struct Classified {
    flows: Arc<Flows>,
    schema: usize,
    namespace: SmolStr,
    cost: Option<Cost>,
}

/// A request as schemas see it.
pub(crate) struct Asked<'a> {
    pub(crate) plane: &'a Arc<Plane>,
    pub(crate) user: &'a UserInfo,
    pub(crate) method: &'a Method,
    /// Its label.
    pub(crate) verb: &'static str,
    pub(crate) route: &'a Route,
    pub(crate) query: &'a Query,
}

impl Classified {
    pub(crate) async fn new(registry: &Registry, asked: &Asked<'_>) -> Option<Classified> {
        let flows = match registry.known_flows(asked.plane.id) {
            Some(flows) => flows,
            None => registry.flows(asked.plane).await.ok()?,
        };
        let user = asked.user;
        let Request::Resource(path) = asked.route.request() else {
            // Paths have the verb of their method.
            let (verb, path) = (asked.method.as_str().to_ascii_lowercase(), asked.route.path());
            let schema =
                flows.classify(&FlowRequest { user, verb: &verb, target: FlowTarget::Path(&path) })?;
            return Some(Classified { flows, schema, namespace: SmolStr::default(), cost: None });
        };
        let is_namespace = path.group.is_empty() && path.resource == "namespaces";
        let namespace = if is_namespace { &path.name } else { &path.namespace };
        let target = FlowTarget::Resource {
            group: &path.group,
            resource: &path.resource,
            subresource: &path.subresource,
            namespace,
        };
        let verb = named(asked.verb);
        let schema = flows.classify(&FlowRequest { user, verb, target })?;
        Some(Classified { flows, schema, namespace: namespace.clone(), cost: cost(asked, &path) })
    }

    /// Takes a seat, when it is its turn. `seats` are the plane's; none is as many as one likes.
    pub(crate) async fn seated(
        &self,
        pass: &Pass,
        user: &str,
        seats: u64,
        (now, deadline): (Instant, Instant),
    ) -> Result<(), Status> {
        let Some((flow, level)) = self.flows.flow(self.schema).filter(|_| seats > 0) else { return Ok(()) };
        let until = now + deadline.saturating_duration_since(now).min(PATIENCE) / WAIT_PART;
        let (flows, namespace, cost) = (&self.flows, self.namespace.as_str(), self.cost);
        pass.sit(&Guest { flows, flow, level, user, namespace, cost, seats, until }).await
    }

    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        let Some((flow, level)) = self.flows.flow(self.schema) else { return };
        for (name, uid) in [(&SCHEMA, &flow.schema), (&LEVEL, &level.uid)] {
            if let Ok(value) = HeaderValue::from_maybe_shared(uid.clone()) {
                headers.insert(name, value);
            }
        }
    }
}

/// What a list may cost, or a watch that begins with one.
fn cost(asked: &Asked<'_>, path: &ResourcePath) -> Option<Cost> {
    let query = asked.query;
    let lists = match asked.verb {
        "LIST" | "DELETECOLLECTION" => true,
        "WATCH" => {
            matches!(query.get("resourceVersion"), None | Some("" | "0"))
                || query.get("sendInitialEvents") == Some("true")
        }
        _ => false,
    };
    if !lists {
        return None;
    }
    let limit = query.get("limit").and_then(|limit| limit.parse::<u64>().ok()).filter(|limit| *limit > 0);
    let mut hasher = DefaultHasher::new();
    (&path.group, &path.resource, &path.namespace, &path.name, limit).hash(&mut hasher);
    let usage = &asked.plane.usage;
    let part = limit.map_or(usage.bytes(), |limit| {
        let objects = usage.objects().max(1);
        u64::try_from(u128::from(usage.bytes()) * u128::from(limit.min(objects)) / u128::from(objects))
            .unwrap_or(u64::MAX)
    });
    Some(Cost { key: hasher.finish(), bytes_max: part })
}
