//! Forks have objects that no change tells of, and controllers tend those too.

use polder_test_support::{Client, TestServer, Value, json};

use crate::world::eventually;

const PLANES: &str = "/apis/polder.dev/v1alpha1/planes";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

/// A plane in which a replica set waits: its pod would be larger than objects may be.
fn waiting(server: &TestServer) -> Client {
    make(server, "waiting", &json!({"limits": {"objectBytes": 2_000}}));
    let plane = server.admin.in_plane("waiting");
    let labels = json!({"app": "web"});
    let containers = json!([{"name": "c", "image": "i", "args": ["x".repeat(600)]}]);
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    });
    plane.post(SETS, &set).expect(201);
    eventually("the set cannot have its pod", || {
        let set = plane.get(&format!("{SETS}/web")).expect(200).json();
        set["status"]["conditions"][0]["type"] == "ReplicaFailure"
    });
    plane
}

fn make(server: &TestServer, name: &str, spec: &Value) {
    server.admin.post(PLANES, &json!({"metadata": {"name": name}, "spec": spec})).expect(201);
}

fn has_pod(plane: &Client) -> bool {
    plane.get(PODS).expect(200).json()["items"].as_array().is_some_and(|items| !items.is_empty())
}

#[test]
fn a_fork_goes_on_with_what_its_source_had_left() {
    let server = TestServer::start();
    let plane = waiting(&server);
    make(&server, "copy", &json!({"forkFrom": "waiting", "limits": {"objectBytes": 1_000_000}}));
    let copy = server.admin.in_plane("copy");
    eventually("the set of the copy has its pod", || has_pod(&copy));
    assert!(!has_pod(&plane));
}

#[test]
fn a_fork_of_a_layer_goes_on_when_something_changes_in_it() {
    let server = TestServer::start();
    waiting(&server);
    let layer = json!({"metadata": {"name": "sealed"}, "spec": {"plane": "waiting"}});
    server.admin.post("/apis/polder.dev/v1alpha1/layers", &layer).expect(201);
    make(&server, "copy", &json!({"forkFrom": "layer/sealed"}));
    let copy = server.admin.in_plane("copy");
    copy.post(MAPS, &json!({"metadata": {"name": "first"}})).expect(201);
    eventually("the set of the copy has its pod", || has_pod(&copy));
}
