//! Subresources that are not a part of their object: actions, streams and our own documents.

use http::{Method, StatusCode};
use polder_model::{SmolStr, Status, Value, json};
use polder_registry::Target;
use polder_registry::actions::success;
use polder_registry::context::WriteOptions;

use crate::answer::{self, Answer};
use crate::handler::Call;

/// How the names of simulated nodes begin.
const SIMULATED_NODES: &str = "simulated-";

/// Whether a subresource is answered here and not by the registry's ordinary verbs.
pub(crate) fn is_special(target: &Target) -> bool {
    matches!(
        target.subresource.as_str(),
        "log"
            | "exec"
            | "attach"
            | "portforward"
            | "proxy"
            | "binding"
            | "eviction"
            | "token"
            | "kubeconfig"
            | "export"
            | "import"
    )
}

pub(crate) async fn answer(mut call: Call, target: Target) -> Result<Answer, Status> {
    let registry = call.state.registry.clone();
    let verb = match call.method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return Err(Status::method_not_allowed()),
    };
    registry.authorize(&call.context, verb, &target).await?;
    let own = target.served().subresource(&target.subresource).ok_or_else(Status::path_not_found)?;
    if !own.allows(verb) {
        return Err(Status::method_not_allowed());
    }
    let (style, _) = call.negotiated(&target)?;
    match target.subresource.as_str() {
        "kubeconfig" => {
            if target.name == "core" {
                return Err(Status::bad_request("the core plane is the server's: use its admin.kubeconfig"));
            }
            let plane = registry.store.plane(&target.name);
            let plane = plane.ok_or_else(|| polder_registry::status::plane_not_found(&target.name))?;
            let now = (registry.options.clock)();
            let text = call.state.pki.plane_kubeconfig(&plane, &registry.options.base_url, now);
            let text = text.map_err(|error| Status::internal(error.to_string()))?;
            let answer = json!({
                "kind": "Kubeconfig", "apiVersion": "polder.dev/v1alpha1",
                "metadata": {"name": (target.name.clone())}, "kubeconfig": text,
            });
            Ok(answer::value(StatusCode::CREATED, &answer, style))
        }
        "export" => crate::transfer::export(call, &target).await,
        "import" => crate::transfer::import(call, &target, style).await,
        "binding" => {
            let binding = call.document(&target).await?.value;
            let options = WriteOptions::from_query(&call.query, "CreateOptions")?;
            registry.bind(&call.context, &target, binding, &options).await?;
            Ok(answer::value(StatusCode::CREATED, &success(), style))
        }
        "eviction" => {
            let eviction = call.document(&target).await?.value;
            registry.evict(&call.context, &target, eviction, &call.query).await?;
            Ok(answer::value(StatusCode::CREATED, &success(), style))
        }
        "token" => {
            let request = call.document(&target).await?.value;
            let options = WriteOptions::from_query(&call.query, "CreateOptions")?;
            let made = registry.make_token(&call.context, &target, request, &options).await?;
            Ok(answer::value(StatusCode::CREATED, &made, style))
        }
        _ => {
            let target = if target.subresource == "proxy" { proxied(target)? } else { target };
            let found = registry.connected_to(&call.context, &target).await?;
            if target.subresource != "log" {
                registry.admit_connection(&call.context, &target, &call.query).await?;
            }
            Err(Status::bad_request(runs_nowhere(&target, &found)))
        }
    }
}

/// The object behind a name that may tell scheme and port too: `web`, `web:80` or `https:web:443`.
fn proxied(mut target: Target) -> Result<Target, Status> {
    let parts: Vec<&str> = target.name.split(':').collect();
    let name = match parts[..] {
        [name] | [name, _] | ["" | "http" | "https", name, _] => SmolStr::new(name),
        _ => {
            let kind = target.definition.kind.to_lowercase();
            return Err(Status::bad_request(format!("invalid {kind} request {:?}", target.name)));
        }
    };
    target.name = name;
    Ok(target)
}

/// Why there is nothing to connect to.
fn runs_nowhere(target: &Target, found: &Value) -> String {
    let (kind, name) = (target.definition.kind.to_lowercase(), &target.name);
    let node = match kind.as_str() {
        "node" => name.as_str(),
        _ => found.str_at(&["spec", "nodeName"]).unwrap_or_default(),
    };
    match node.starts_with(SIMULATED_NODES) {
        true => format!(
            "{kind} {name} is simulated: nothing is executed, so there is nothing to read or connect to"
        ),
        false => format!("{kind} {name} has no node behind it: this plane runs no workloads"),
    }
}
