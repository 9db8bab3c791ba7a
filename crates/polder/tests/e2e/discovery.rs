//! Reference section 2 and 3: what a plane says it serves.

use polder_test_support::{Value, json};

use crate::process::Polder;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The plain documents name every group, version and resource.
#[test]
fn plain_documents() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    assert_eq!(acme.get("/api").expect(200).json()["versions"], json!(["v1"]));
    let groups = acme.get("/apis").expect(200).json();
    assert_eq!(groups["kind"], "APIGroupList");
    for group in groups["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        assert_eq!(acme.get(&format!("/apis/{name}")).expect(200).json()["name"], name);
        let preferred = &group["preferredVersion"];
        assert!(group["versions"].as_array().unwrap().contains(preferred), "{group}");
        for version in group["versions"].as_array().unwrap() {
            let version = version["groupVersion"].as_str().unwrap();
            let resources = acme.get(&format!("/apis/{version}")).expect(200).json();
            assert_eq!(resources["groupVersion"], version);
            assert!(!resources["resources"].as_array().unwrap().is_empty(), "{version}");
        }
    }
    let core = acme.get("/api/v1").expect(200).json();
    let find = |name: &str| {
        let resources = core["resources"].as_array().unwrap().iter();
        resources.clone().find(|one| one["name"] == name).cloned().unwrap_or_else(|| panic!("no {name}"))
    };
    let pods = find("pods");
    assert_eq!(pods["shortNames"], json!(["po"]));
    assert_eq!(pods["categories"], json!(["all"]));
    assert_eq!((&pods["namespaced"], &pods["singularName"]), (&json!(true), &json!("pod")));
    assert_eq!(find("replicationcontrollers/scale")["kind"], "Scale");
    assert_eq!(find("pods/eviction")["group"], "policy");
    acme.get("/apis/nothing.example").expect(404);
    acme.get("/apis/apps/v9").expect(404);
}

/// The aggregated document has an ETag, the same question with it is answered by 304, and it changes with a CRD.
#[test]
fn aggregated_document() {
    let polder = Polder::start();
    let acme = polder.plane("acme").with_header("Accept", AGGREGATED);
    let answer = acme.get("/apis").expect(200);
    let media = answer.header("content-type").unwrap();
    assert!(media.contains("as=APIGroupDiscoveryList") && media.contains("v=v2"), "{media}");
    assert_eq!(answer.header("vary"), Some("Accept"));
    let tag = answer.header("etag").unwrap().to_string();
    assert!(tag.starts_with('"') && tag.len() == 130, "{tag}");
    let list = answer.json();
    assert_eq!(list["kind"], "APIGroupDiscoveryList");
    let apps =
        list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "apps").unwrap();
    assert_eq!(apps["versions"][0]["freshness"], "Current");

    let again = acme.must("GET", "/apis", &[("If-None-Match", &tag)], b"").expect(304);
    assert!(again.body.is_empty());
    polder.admin.in_plane("acme").post(crate::custom::CRDS, &crate::custom::widget()).expect(201);
    let changed = acme.must("GET", "/apis", &[("If-None-Match", &tag)], b"").expect(200);
    let names: Vec<Value> = changed.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].clone())
        .collect();
    assert!(names.contains(&json!("shop.example")), "{names:?}");
}

/// A client of the removed form gets the plain one if it accepts it.
#[test]
fn the_removed_beta_form() {
    let polder = Polder::start();
    let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    let answer = polder.admin.must("GET", "/apis", &[("Accept", beta)], b"").expect(200).json();
    assert_eq!(answer["kind"], "APIGroupList");
}

/// OpenAPI v3 is found through its index, at addresses below the client's own prefix.
#[test]
fn openapi() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let index = acme.get("/openapi/v3").expect(200).json();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_string();
    assert!(url.starts_with("/clusters/acme/openapi/v3/apis/apps/v1?hash="), "{url}");
    let document = acme.at_root().get(&url).expect(200);
    assert!(document.header("cache-control").unwrap().contains("immutable"));
    let document = document.json();
    assert!(document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"].is_object());
    let v2 = acme.get("/openapi/v2").expect(200).json();
    assert_eq!(v2["swagger"], "2.0");
    assert!(v2["definitions"]["io.k8s.api.core.v1.Pod"].is_object());
}

/// kubectl looks in any PATCH of a kind whether the server validates fields: all of them say so.
#[test]
fn every_patch_of_a_custom_kind_has_its_parameters() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let crd = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"kind":"Widget","plural":"widgets"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
            "replicas":{"type":"integer"}}},"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}},
        "subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}}]}}"#;
    let crd: Value = crd.parse().unwrap();
    acme.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).expect(201);
    let document = acme.get("/openapi/v3/apis/example.com/v1").expect(200).json();
    for path in ["", "/status", "/scale"] {
        let path = format!("/apis/example.com/v1/namespaces/{{namespace}}/widgets/{{name}}{path}");
        let parameters =
            document["paths"][&path]["patch"]["parameters"].as_array().cloned().unwrap_or_default();
        assert!(parameters.iter().any(|one| one["name"] == "fieldValidation"), "{path}: {parameters:?}");
    }
}
