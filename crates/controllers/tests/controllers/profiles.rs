//! Planes that are no clusters: what they have works, and the rest is unknown in them.

use polder_test_support::{Client, TestServer, Value, json};

use crate::world::{eventually, namespace};

const PLANES: &str = "/apis/polder.dev/v1alpha1/planes";

fn generic(server: &TestServer, name: &str) -> Client {
    let plane = json!({
        "apiVersion": "polder.dev/v1alpha1", "kind": "Plane", "metadata": {"name": name},
        "spec": {"profile": "generic"},
    });
    server.admin.post(PLANES, &plane).expect(201);
    server.admin.in_plane(name)
}

fn crd(plural: &str, group: &str) -> Value {
    json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

#[test]
fn generic_planes_have_what_they_have() {
    let server = TestServer::start();
    let plane = generic(&server, "acme");
    assert_eq!(server.admin.get(&format!("{PLANES}/acme")).json()["status"]["profile"], "generic");
    namespace(&plane, "shop");
    eventually("there is an account", || {
        plane.get("/api/v1/namespaces/shop/serviceaccounts/default").code == 200
    });
    let maps = "/api/v1/namespaces/shop/configmaps";
    eventually("there is an authority", || plane.get(&format!("{maps}/kube-root-ca.crt")).code == 200);

    let quotas = "/api/v1/namespaces/shop/resourcequotas";
    let hard = json!({"configmaps": "10", "pods": "5"});
    plane.post(quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).expect(201);
    let used = || plane.get(&format!("{quotas}/q")).json()["status"]["used"].clone();
    eventually("it is counted", || used() == json!({"configmaps": "1", "pods": "0"}));

    // Owned by something that goes.
    let owner = plane.post(maps, &json!({"metadata": {"name": "owner"}})).expect(201).json();
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    plane.post(maps, &json!({"metadata": {"name": "owned", "ownerReferences": [reference]}})).expect(201);
    plane.delete(&format!("{maps}/owner")).expect(200);
    eventually("it goes with its owner", || plane.get(&format!("{maps}/owned")).code == 404);

    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    plane.post(crds, &crd("pods", "example.com")).expect(201);
    plane
        .post(
            "/apis/example.com/v1/namespaces/shop/pods",
            &json!({
                "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "p"},
            }),
        )
        .expect(201);
    // Built in for others.
    let mut taken = crd("storageclasses", "storage.k8s.io");
    taken["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    let refused = plane.post(crds, &taken).expect(403).text();
    assert!(refused.contains("this resource is built in"), "{refused}");
    plane.delete("/api/v1/namespaces/shop").expect(200);
    eventually("the namespace goes", || plane.get("/api/v1/namespaces/shop").code == 404);
}

#[test]
fn generic_planes_lack_the_rest() {
    let server = TestServer::start();
    let plane = generic(&server, "acme");
    let cluster = server.plane("globex");
    for path in [
        "/api/v1/nodes",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/services",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/batch/v1",
        "/apis/storage.k8s.io",
        "/openapi/v3/apis/apps/v1",
    ] {
        assert_eq!((plane.get(path).code, cluster.get(path).code), (404, 200), "{path}");
    }
    let groups = plane.get("/apis").json()["groups"].to_string();
    assert!(!groups.contains("\"apps\"") && groups.contains("rbac.authorization.k8s.io"), "{groups}");
    let core = plane.get("/api/v1").json()["resources"].to_string();
    assert!(!core.contains("\"pods\"") && core.contains("\"configmaps\""), "{core}");
    let paths = plane.get("/openapi/v3").json()["paths"].clone();
    assert!(paths["apis/apps/v1"].is_null() && paths["api/v1"].is_object());
    assert_ne!(
        paths["api/v1"]["serverRelativeURL"]
            .as_str()
            .and_then(|url| url.split_once("hash=").map(|(_, hash)| hash.to_string())),
        cluster.get("/openapi/v3").json()["paths"]["api/v1"]["serverRelativeURL"]
            .as_str()
            .and_then(|url| url.split_once("hash=").map(|(_, hash)| hash.to_string())),
        "another document has another hash"
    );
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    plane.post("/api/v1/namespaces/default/pods", &pod).expect(404);
}

#[test]
fn profiles_stay() {
    let server = TestServer::start();
    generic(&server, "acme");
    let path = format!("{PLANES}/acme");
    server.admin.patch(&path, "merge", &json!({"spec": {"profile": "cluster"}})).expect(422);
    server.admin.patch(&path, "merge", &json!({"spec": {"displayName": "Acme"}})).expect(200);
    let fork = |name: &str, spec: Value| {
        let plane = json!({
            "apiVersion": "polder.dev/v1alpha1", "kind": "Plane", "metadata": {"name": name}, "spec": spec,
        });
        server.admin.post(PLANES, &plane)
    };
    fork("preview", json!({"forkFrom": "acme"})).expect(201);
    assert_eq!(server.admin.get(&format!("{PLANES}/preview")).json()["status"]["profile"], "generic");
    server.admin.in_plane("preview").get("/api/v1/nodes").expect(404);
    let export = server.admin.get(&format!("{PLANES}/preview/export")).expect(200).text();
    let header: Value = serde_json::from_str(export.lines().next().unwrap()).unwrap();
    assert_eq!(header["spec"]["profile"], "generic", "an import of it makes the same");
    fork("other", json!({"forkFrom": "acme", "profile": "cluster"})).expect(422);
    fork("other", json!({"profile": "tiny"})).expect(422);
    fork("other", json!({})).expect(201);
    assert_eq!(server.admin.get(&format!("{PLANES}/other")).json()["status"]["profile"], "cluster");
}
