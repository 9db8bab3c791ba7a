//! Tells clients which flow schema and priority level their request belongs to, in two headers of the answer.
//!
//! Nothing else comes of it: planes share the server by their limits and turns, whatever their objects say. A plane
//! whose schemas cannot be read answers without the headers.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use polder_auth::UserInfo;
use polder_registry::Registry;
use polder_registry::flows::{Flow, FlowRequest, FlowTarget};
use polder_store::Plane;

use crate::handler::named;
use crate::route::{Request, Route};

static SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
static LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// What a request belongs to: the verb is its label.
pub(crate) async fn classified(
    registry: &Registry,
    plane: &Arc<Plane>,
    user: &UserInfo,
    (method, verb, route): (&Method, &'static str, &Route),
) -> Option<Flow> {
    let flows = match registry.known_flows(plane.id) {
        Some(flows) => flows,
        None => registry.flows(plane).await.ok()?,
    };
    let flow = match route.request() {
        Request::Resource(path) => {
            let is_namespace = path.group.is_empty() && path.resource == "namespaces";
            let namespace = if is_namespace { &path.name } else { &path.namespace };
            let target = FlowTarget::Resource {
                group: &path.group,
                resource: &path.resource,
                subresource: &path.subresource,
                namespace,
            };
            flows.classify(&FlowRequest { user, verb: named(verb), target })
        }
        _ => {
            // Paths have the verb of their method.
            let verb = method.as_str().to_ascii_lowercase();
            let path = route.path();
            flows.classify(&FlowRequest { user, verb: &verb, target: FlowTarget::Path(&path) })
        }
    };
    flow.cloned()
}

pub(crate) fn tell(flow: Flow, headers: &mut HeaderMap) {
    for (name, uid) in [(&SCHEMA, flow.schema), (&LEVEL, flow.level)] {
        if let Ok(value) = HeaderValue::from_maybe_shared(uid) {
            headers.insert(name, value);
        }
    }
}
