//! `APIService` objects of what a plane serves itself, and of what it does not.

use polder_test_support::{TestServer, json};

use crate::world::eventually;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn crd(versions: &[(&str, bool)]) -> polder_test_support::Value {
    let versions: Vec<_> = versions
        .iter()
        .map(|(name, served)| {
            json!({"name": name, "served": served, "storage": *name == "v1",
                "schema": {"openAPIV3Schema": {"type": "object"}}})
        })
        .collect();
    let names = json!({"plural": "gadgets", "singular": "gadget", "kind": "Gadget"});
    json!({
        "metadata": {"name": "gadgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions},
    })
}

/// Built-in group versions have one from the start, and it costs a plane nothing.
#[test]
fn built_in_groups_are_local() {
    let server = TestServer::start();
    let acme = server.plane("acme");
    let list = acme.get(SERVICES).expect(200).json();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 22);
    for item in items {
        assert_eq!(item["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "onstart");
        assert_eq!(item["status"]["conditions"][0]["reason"], "Local", "{item}");
    }
    // A plane without workloads has only those of what it serves.
    let generic = json!({"metadata": {"name": "bare"}, "spec": {"profile": "generic"}});
    server.admin.post("/apis/polder.dev/v1alpha1/planes", &generic).expect(201);
    let bare = server.admin.in_plane("bare");
    assert_eq!(bare.get(SERVICES).expect(200).json()["items"].as_array().unwrap().len(), 11);
    bare.get(&format!("{SERVICES}/v1.apps")).expect(404);
    let apps = acme.get(&format!("{SERVICES}/v1.apps")).expect(200).json();
    let spec =
        json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15});
    assert_eq!(apps["spec"], spec);
    // One that people make is available at once too.
    let own = json!({"metadata": {"name": "v9.a.example"},
        "spec": {"group": "a.example", "version": "v9", "groupPriorityMinimum": 1, "versionPriority": 1}});
    let made = acme.post(SERVICES, &own).expect(201).json();
    assert_eq!(made["status"]["conditions"][0]["message"], "Local APIServices are always available");
}

/// Every served version of a CRD has one, as long as it is served.
#[test]
fn custom_groups_are_registered() {
    let server = TestServer::start();
    let acme = server.plane("acme");
    acme.post(CRDS, &crd(&[("v1", true), ("v2", true), ("v3", false)])).expect(201);
    let code = |version: &str| acme.get(&format!("{SERVICES}/{version}.example.com")).code;
    eventually("both are there", || code("v1") == 200 && code("v2") == 200);
    assert_eq!(code("v3"), 404);
    let found = acme.get(&format!("{SERVICES}/v1.example.com")).expect(200).json();
    assert_eq!(found["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
    assert_eq!(
        (&found["spec"]["groupPriorityMinimum"], &found["spec"]["versionPriority"]),
        (&json!(1000), &json!(100))
    );
    assert_eq!(found["status"]["conditions"][0]["reason"], "Local");
    // It is kept as it should be.
    acme.delete(&format!("{SERVICES}/v1.example.com")).expect(200);
    eventually("it is back", || code("v1") == 200);
    let changed = crd(&[("v1", true), ("v2", false), ("v3", true)]);
    acme.patch(&format!("{CRDS}/gadgets.example.com"), "merge", &json!({"spec": changed["spec"]}))
        .expect(200);
    eventually("as it is served now", || code("v2") == 404 && code("v3") == 200);
    acme.delete(&format!("{CRDS}/gadgets.example.com")).expect(200);
    eventually("none is left", || code("v1") == 404 && code("v3") == 404);
}
