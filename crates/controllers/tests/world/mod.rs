//! What tests of controllers do again and again.

#![allow(dead_code, unreachable_pub, reason = "each test uses what it needs")]

use std::time::{Duration, Instant};

use polder_test_support::{Client, Value, json};

/// Waits until something is so. Generous: a machine may be slow, and a controller that works is quick.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
pub fn namespace(plane: &Client, name: &str) {
    plane.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).expect(201);
}

/// A pod on a node, or on none.
pub fn pod(name: &str, node: &str) -> Value {
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
pub fn make_ready(plane: &Client, path: &str) {
    let status = json!({"status": {
        "phase": "Running", "podIP": "10.1.0.5", "podIPs": [{"ip": "10.1.0.5"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    plane.patch(&format!("{path}/status"), "strategic-merge", &status).expect(200);
}
