//! Whether an extension service can be there at all, by what the plane says about it. Pure; the words are upstream's.

use polder_model::{Value, json};

/// What is found out before anybody is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Unavailable {
        reason: &'static str,
        message: String,
    },
    /// Its server must be asked.
    Ask,
}

/// Looks at the service an `APIService` names, and at the slices of it.
pub(super) fn finding(reference: &Value, service: Option<&Value>, slices: &[impl AsRef<Value>]) -> Finding {
    let text = |key: &str| reference.str_at(&[key]).unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let port = reference.i64_at(&["port"]).unwrap_or(443);
    let unavailable = |reason, message| Finding::Unavailable { reason, message };
    let Some(service) = service else {
        let message = format!("service/{name} in {namespace:?} is not present");
        return unavailable("ServiceNotFound", message);
    };
    if service.str_at(&["spec", "type"]).unwrap_or("ClusterIP") != "ClusterIP" {
        return Finding::Ask;
    }
    let mut ports = service.array_at(&["spec", "ports"]).iter();
    let Some(found) = ports.find(|own| own.i64_at(&["port"]) == Some(port)) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return unavailable("ServicePortError", message);
    };
    let port_name = found.str_at(&["name"]).unwrap_or_default();
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return unavailable("EndpointsNotFound", message);
    }
    let ready =
        |endpoint: &Value| endpoint.at(&["conditions", "ready"]).and_then(Value::as_bool).unwrap_or(true);
    let active = slices.iter().map(AsRef::as_ref).any(|slice| {
        let mut ports = slice.array_at(&["ports"]).iter();
        slice.array_at(&["endpoints"]).iter().any(ready)
            && ports.any(|port| {
                port.str_at(&["name"]).unwrap_or_default() == port_name && port.i64_at(&["port"]).is_some()
            })
    });
    if active {
        return Finding::Ask;
    }
    let message = format!(
        "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
    );
    unavailable("MissingEndpoints", message)
}

/// The condition of an extension service whose server was asked.
pub(super) fn asked(outcome: Result<(), String>) -> Value {
    match outcome {
        Ok(()) => condition("True", "Passed", "all checks passed"),
        Err(why) => condition("False", "FailedDiscoveryCheck", &why),
    }
}

/// The condition of what is served here.
pub(super) fn local() -> Value {
    condition("True", "Local", "Local APIServices are always available")
}

pub(super) fn condition(status: &str, reason: &str, message: &str) -> Value {
    json!({"type": "Available", "status": status, "reason": reason, "message": message})
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[track_caller]
    fn check(service: Option<Value>, slices: &[Value], expected: Result<(), (&str, &str)>) {
        let reference = json!({"namespace": "n", "name": "api", "port": 443});
        let slices: Vec<Arc<Value>> = slices.iter().cloned().map(Arc::new).collect();
        let found = match finding(&reference, service.as_ref(), &slices) {
            Finding::Ask => Ok(()),
            Finding::Unavailable { reason, message } => Err((reason, message)),
        };
        let expected = expected.map_err(|(reason, message)| (reason, message.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn services_and_endpoints() {
        let service = |port: i64| Some(json!({"spec": {"ports": [{"name": "https", "port": port}]}}));
        let slice = |ready: bool, name: &str| json!({"endpoints": [{"conditions": {"ready": ready}}], "ports": [{"name": name, "port": 8443}]});
        check(None, &[], Err(("ServiceNotFound", "service/api in \"n\" is not present")));
        check(
            service(80),
            &[],
            Err(("ServicePortError", "service/api in \"n\" is not listening on port 443")),
        );
        check(
            service(443),
            &[],
            Err(("EndpointsNotFound", "cannot find endpointslices for service/api in \"n\"")),
        );
        let missing = "endpointslices for service/api in \"n\" have no addresses with port name \"https\"";
        check(service(443), &[slice(false, "https")], Err(("MissingEndpoints", missing)));
        check(service(443), &[slice(true, "http")], Err(("MissingEndpoints", missing)));
        check(service(443), &[slice(false, "https"), slice(true, "https")], Ok(()));
        check(Some(json!({"spec": {"type": "ExternalName"}})), &[], Ok(()));
    }
}
