//! What becomes of dependents when their owners go.

use polder_test_support::{Client, TestServer, eventually};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Makes a config map with owners, given as (object, whether it waits for this one).
fn make(plane: &Client, name: &str, owners: &[(&Value, bool)]) -> Value {
    let reference = |(owner, waits): &(&Value, bool)| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": waits,
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        })
    };
    let owners: Vec<Value> = owners.iter().map(reference).collect();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners},
    });
    plane.post(MAPS, &object).expect(201).json()
}

fn names(plane: &Client) -> Vec<String> {
    let list = plane.get(MAPS).expect(200).json();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let name = |item: &Value| item["metadata"]["name"].as_str().map(String::from);
    items.iter().filter_map(name).filter(|name| name != "kube-root-ca.crt").collect()
}

#[track_caller]
fn left(plane: &Client, expected: &[&str]) {
    eventually(&format!("{expected:?} are left"), || names(plane) == expected);
}

fn delete(plane: &Client, name: &str, policy: &str) {
    plane.delete_with(&format!("{MAPS}/{name}"), &json!({"propagationPolicy": policy})).expect(200);
}

#[test]
fn dependents_go_after_their_owners_and_others_stay() {
    let server = TestServer::start();
    let (a, b) = (server.plane("a"), server.plane("b"));
    for plane in [&a, &b] {
        let owner = make(plane, "owner", &[]);
        let other = make(plane, "other", &[]);
        let child = make(plane, "child", &[(&owner, false)]);
        make(plane, "grandchild", &[(&child, true)]);
        make(plane, "shared", &[(&owner, false), (&other, true)]);
    }
    a.delete(&format!("{MAPS}/owner")).expect(200);
    left(&a, &["other", "shared"]);
    let shared = || a.get(&format!("{MAPS}/shared")).expect(200).json();
    eventually("the reference to who is gone goes", || {
        shared()["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1)
    });
    left(&b, &["child", "grandchild", "other", "owner", "shared"]);
}

#[test]
fn who_names_an_owner_that_is_not_there_goes() {
    let server = TestServer::start();
    let plane = server.plane("a");
    let owner = make(&plane, "owner", &[]);
    let mut impostor = owner.clone();
    impostor["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    make(&plane, "of-impostor", &[(&impostor, false)]);
    make(&plane, "of-owner", &[(&owner, false)]);
    // An owner of a kind nobody knows here may be anywhere.
    let unknown = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-unknown", "ownerReferences": [
            {"apiVersion": "example.com/v1", "kind": "Thing", "name": "x", "uid": "1"},
        ]},
    });
    plane.post(MAPS, &unknown).expect(201);
    left(&plane, &["of-owner", "of-unknown", "owner"]);
}

#[test]
fn an_owner_in_another_namespace_is_told_of() {
    let server = TestServer::start();
    let plane = server.plane("a");
    let owner = make(&plane, "owner", &[]);
    plane.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).expect(201);
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let child = json!({"metadata": {"name": "child", "ownerReferences": [reference]}});
    plane.post("/api/v1/namespaces/other/configmaps", &child).expect(201);
    eventually("it is as if there were no owner", || {
        plane.get("/api/v1/namespaces/other/configmaps/child").code == 404
    });
    let told = events(&plane, |event| event["involvedObject"]["name"] == "child");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["reason"], "OwnerRefInvalidNamespace");
    let uid = owner["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        told[0]["message"],
        format!(
            "ownerRef [v1/ConfigMap, namespace: other, name: owner, uid: {uid}] does not exist in namespace \"other\""
        )
    );
}

/// Each owner that is looked for in other namespaces costs a list, and is told of when it is found there: so many of one object are.
#[test]
fn few_of_many_lost_owners_are_looked_for() {
    let server = TestServer::start();
    let plane = server.plane("a");
    plane.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).expect(201);
    let owners: Vec<Value> = (0..50).map(|number| make(&plane, &format!("owner{number}"), &[])).collect();
    let reference = |owner: &Value| {
        let metadata = &owner["metadata"];
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]})
    };
    let references: Vec<Value> = owners.iter().map(reference).collect();
    let child = json!({"metadata": {"name": "child", "ownerReferences": references}});
    plane.post("/api/v1/namespaces/other/configmaps", &child).expect(201);
    eventually("it is as if there were no owner", || {
        plane.get("/api/v1/namespaces/other/configmaps/child").code == 404
    });
    let told = events(&plane, |event| event["reason"] == "OwnerRefInvalidNamespace");
    assert!((1..=8).contains(&told.len()), "{told:?}");
}

/// Waits for events in the namespace `other`, which are written a moment after what they tell of.
fn events(plane: &Client, is_meant: impl Fn(&Value) -> bool) -> Vec<Value> {
    let all = || {
        let events = plane.get("/api/v1/namespaces/other/events").expect(200).json();
        events["items"].as_array().into_iter().flatten().filter(|event| is_meant(event)).cloned().collect()
    };
    eventually("it is told of", || !Vec::is_empty(&all()));
    all()
}

#[test]
fn in_the_foreground_owners_wait_for_those_who_block_them() {
    let server = TestServer::start();
    let plane = server.plane("a");
    let owner = make(&plane, "owner", &[]);
    let child = make(&plane, "child", &[(&owner, true)]);
    make(&plane, "grandchild", &[(&child, true)]);
    let patch = json!({"metadata": {"finalizers": ["example.com/held"]}});
    plane.patch(&format!("{MAPS}/grandchild"), "merge", &patch).expect(200);
    delete(&plane, "owner", "Foreground");
    let marked = |name: &str| {
        let object = plane.get(&format!("{MAPS}/{name}")).json();
        object["metadata"]["deletionTimestamp"].is_string()
    };
    eventually("all are asked to go", || ["owner", "child", "grandchild"].into_iter().all(marked));
    assert_eq!(names(&plane), ["child", "grandchild", "owner"], "nobody goes before who it waits for");
    let patch = json!({"metadata": {"finalizers": null}});
    plane.patch(&format!("{MAPS}/grandchild"), "merge", &patch).expect(200);
    left(&plane, &[]);
}

#[test]
fn a_circle_of_owners_can_be_deleted_in_the_foreground() {
    let server = TestServer::start();
    let plane = server.plane("a");
    let one = make(&plane, "one", &[]);
    let two = make(&plane, "two", &[(&one, true)]);
    let three = make(&plane, "three", &[(&two, true)]);
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": true,
        "name": "three", "uid": three["metadata"]["uid"],
    });
    let patch = json!({"metadata": {"ownerReferences": [reference]}});
    plane.patch(&format!("{MAPS}/one"), "merge", &patch).expect(200);
    delete(&plane, "one", "Foreground");
    left(&plane, &[]);
}

#[test]
fn orphans_lose_their_owner_and_stay() {
    let server = TestServer::start();
    let plane = server.plane("a");
    let owner = make(&plane, "owner", &[]);
    for number in 0..3 {
        make(&plane, &format!("child-{number}"), &[(&owner, true)]);
    }
    delete(&plane, "owner", "Orphan");
    left(&plane, &["child-0", "child-1", "child-2"]);
    for number in 0..3 {
        let child = plane.get(&format!("{MAPS}/child-{number}")).expect(200).json();
        assert_eq!(child["metadata"]["ownerReferences"], Value::Null);
    }
}

#[test]
fn a_fork_has_its_own_dependents() {
    let server = TestServer::start();
    let plane = server.plane("a");
    let owner = make(&plane, "owner", &[]);
    make(&plane, "child", &[(&owner, false)]);
    let fork = json!({
        "apiVersion": "polder.dev/v1alpha1", "kind": "Plane", "metadata": {"name": "copy"}, "spec": {"forkFrom": "a"},
    });
    server.admin.post("/apis/polder.dev/v1alpha1/planes", &fork).expect(201);
    let copy = server.admin.in_plane("copy");
    copy.delete(&format!("{MAPS}/owner")).expect(200);
    left(&copy, &[]);
    left(&plane, &["child", "owner"]);
}

#[test]
fn a_thousand_dependents_go() {
    let server = TestServer::start();
    let plane = server.plane("a");
    let owner = make(&plane, "owner", &[]);
    for number in 0..1_100 {
        make(&plane, &format!("child-{number}"), &[(&owner, false)]);
    }
    plane.delete(&format!("{MAPS}/owner")).expect(200);
    left(&plane, &[]);
}

/// Nobody answers for the webhook that converts these objects; who owns them is known without it.
#[test]
fn dependents_go_also_when_nobody_can_convert_them() {
    let server = TestServer::start();
    let plane = server.plane("a");
    let version = |name: &str, storage: bool| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {name: {"type": "string"}}}});
        json!({"name": name, "served": true, "storage": storage, "schema": schema})
    };
    let crd = |new: bool| {
        json!({
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [version("v1", !new), version("v2", new)],
                "conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://nobody.example.com/"}}},
            },
        })
    };
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    plane.post(crds, &crd(false)).expect(201);
    let things = "/apis/example.com/v1/namespaces/default/things";
    let owner_of = |owner: &Value, kind: &str, version: &str| {
        json!({"apiVersion": version, "kind": kind, "blockOwnerDeletion": true,
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]})
    };
    let thing = |name: &str, owners: Vec<Value>| {
        let object = json!({"kind": "Thing", "apiVersion": "example.com/v1", "v1": "x",
            "metadata": {"name": name, "ownerReferences": owners}});
        plane.post(things, &object).expect(201).json()
    };
    let (one, two) = (make(&plane, "one", &[]), make(&plane, "two", &[]));
    let [of_one, of_two] = [&one, &two].map(|owner| owner_of(owner, "ConfigMap", "v1"));
    let kept = thing("kept", vec![]);
    thing("child", vec![of_one.clone()]);
    thing("shared", vec![of_one, of_two.clone()]);
    thing("waits", vec![of_two]);
    thing("left-behind", vec![owner_of(&kept, "Thing", "example.com/v1")]);
    // Objects stay in the version they were stored in, which is not the one that is stored now.
    let change = json!({"spec": {"versions": crd(true)["spec"]["versions"]}});
    plane.patch(&format!("{crds}/things.example.com"), "merge", &change).expect(200);
    plane.get("/apis/example.com/v2/namespaces/default/things").expect(500);
    let things_are = |expected: &[&str]| {
        eventually(&format!("{expected:?} are left"), || {
            let list = plane.get(things).expect(200).json();
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let names: Vec<&str> =
                items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
            names == expected
        });
    };
    plane.delete(&format!("{MAPS}/one")).expect(200);
    things_are(&["kept", "left-behind", "shared", "waits"]);
    delete(&plane, "two", "Foreground");
    things_are(&["kept", "left-behind"]);
    left(&plane, &[]);
    plane
        .delete_with(&format!("{things}/left-behind"), &json!({"propagationPolicy": "Foreground"}))
        .expect(500);
}
