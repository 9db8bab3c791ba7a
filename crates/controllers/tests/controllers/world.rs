//! What tests of controllers do again and again.

pub(crate) use polder_test_support::eventually;
use polder_test_support::{Client, Value, json};

#[track_caller]
pub(crate) fn namespace(plane: &Client, name: &str) {
    plane.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).expect(201);
}

/// A pod on a node, or on none.
pub(crate) fn pod(name: &str, node: &str) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

/// Tells that a pod is ready, as its node would.
#[track_caller]
pub(crate) fn make_ready(plane: &Client, path: &str) {
    let status = json!({"status": {
        "phase": "Running", "podIP": "10.1.0.5", "podIPs": [{"ip": "10.1.0.5"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    plane.patch(&format!("{path}/status"), "strategic-merge", &status).expect(200);
}
