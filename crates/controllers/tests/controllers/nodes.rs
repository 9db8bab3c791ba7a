//! Nodes and what becomes of their pods.

use crate::world::{eventually, namespace, pod};
use polder_test_support::{TestServer, json};

#[test]
fn taints_follow_conditions_and_pods_follow_taints() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    namespace(&plane, "shop");
    let now = plane.get("/api/v1/namespaces/shop").json()["metadata"]["creationTimestamp"].clone();
    let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status, "lastHeartbeatTime": now}]}});
    let node = "/api/v1/nodes/node-1";
    plane.post("/api/v1/nodes", &json!({"metadata": {"name": "node-1"}})).expect(201);
    plane.patch(&format!("{node}/status"), "merge", &ready("True")).expect(200);
    let pods = "/api/v1/namespaces/shop/pods";
    let mut patient = pod("patient", "node-1");
    patient["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    plane.post(pods, &patient).expect(201);
    let mut plain = pod("plain", "node-1");
    let briefly = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0});
    plain["spec"]["tolerations"] = json!([briefly]);
    plane.post(pods, &plain).expect(201);

    plane.patch(&format!("{node}/status"), "merge", &ready("False")).expect(200);
    eventually("it is tainted", || {
        let taints = plane.get(node).json()["spec"]["taints"].clone();
        let has = |effect: &str| {
            let is = |taint: &polder_test_support::Value| {
                taint["key"] == "node.kubernetes.io/not-ready" && taint["effect"] == effect
            };
            taints.as_array().is_some_and(|taints| taints.iter().any(is))
        };
        has("NoExecute") && has("NoSchedule")
    });
    eventually("who does not tolerate that for long goes", || {
        let pod = plane.get(&format!("{pods}/plain")).json();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let told = conditions.iter().any(|condition| condition["reason"] == "DeletionByTaintManager");
        told && !pod["metadata"]["deletionTimestamp"].is_null()
    });
    assert!(plane.get(&format!("{pods}/patient")).json()["metadata"]["deletionTimestamp"].is_null());
    plane.patch(&format!("{node}/status"), "merge", &ready("True")).expect(200);
    eventually("taints go", || plane.get(node).json()["spec"]["taints"].is_null());
}

#[test]
fn a_node_that_is_silent_is_lost() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    plane.post("/api/v1/nodes", &json!({"metadata": {"name": "node-1"}})).expect(201);
    let lease = json!({"metadata": {"name": "node-1"}, "spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}});
    let old = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": "2020-01-01T00:00:00Z"}]);
    plane.patch("/api/v1/nodes/node-1/status", "merge", &json!({"status": {"conditions": old}})).expect(200);
    plane.post("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &lease).expect(201);
    eventually("nobody knows how it is", || {
        let node = plane.get("/api/v1/nodes/node-1").json();
        node["status"]["conditions"][0]["reason"] == "NodeStatusUnknown"
            && node["spec"]["taints"][0]["key"] == "node.kubernetes.io/unreachable"
    });
}
