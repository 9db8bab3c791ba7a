//! An operator written with controller-runtime (`tests/controller-runtime`) does its work unchanged, in two planes at
//! once: caches, leader election, finalizers, owned objects, status and events.

use std::process::{Child, Command, Stdio};

use polder_test_support::{Client, eventually, json};

use crate::process::{MAPS, Polder};
use crate::tools;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GREETINGS: &str = "/apis/polder.test/v1/namespaces/default/greetings";

/// The operator. Dropping it kills it.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[track_caller]
fn define(plane: &Client) {
    let text = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": text, "status": status}});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
    });
    let names = json!({"plural": "greetings", "singular": "greeting", "kind": "Greeting", "listKind": "GreetingList"});
    let definition = json!({
        "metadata": {"name": "greetings.polder.test"},
        "spec": {"group": "polder.test", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    plane.post(DEFINITIONS, &definition).expect(201);
}

#[track_caller]
fn text_is(plane: &Client, name: &str, text: &str) {
    eventually(&format!("{name} says {text:?}"), || {
        let map = plane.get(&format!("{MAPS}/{name}"));
        map.code == 200 && map.json()["data"]["text"] == text
    });
}

/// An operator works unchanged.
#[test]
fn controller_runtime() {
    let Some(program) = tools::find("POLDER_TEST_OPERATOR", "operator written with controller-runtime")
    else {
        return;
    };
    let polder = Polder::start();
    let planes = ["acme", "globex"].map(|name| polder.plane(name));
    planes.iter().for_each(define);
    let greeting = |text| json!({"apiVersion": "polder.test/v1", "kind": "Greeting", "metadata": {"name": "hello"}, "spec": {"text": text}});
    planes[0].post(GREETINGS, &greeting("from acme")).expect(201);

    let kubeconfigs = ["acme", "globex"].map(|name| polder.plane_kubeconfig(name));
    let log = std::fs::File::create(polder.directory().join("operator.log")).unwrap();
    let operator = Command::new(program).args(&kubeconfigs).stdin(Stdio::null()).stderr(log).spawn().unwrap();
    let mut operator = Operator(operator);
    planes[1].post(GREETINGS, &greeting("from globex")).expect(201);
    for (plane, text) in planes.iter().zip(["from acme", "from globex"]) {
        text_is(plane, "hello", text);
        eventually("the greeting is ready", || {
            let status = plane.get(&format!("{GREETINGS}/hello")).expect(200).json()["status"].clone();
            status["greeted"] == text && status["conditions"][0]["type"] == "Ready"
        });
        plane.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/greetings").expect(200);
        eventually("an event tells of it", || {
            let events = plane.get("/api/v1/namespaces/default/events").expect(200).json();
            events["items"].as_array().unwrap().iter().any(|event| event["reason"] == "Greeted")
        });
    }

    // What the operator owns comes back, and follows.
    planes[0].delete(&format!("{MAPS}/hello")).expect(200);
    text_is(&planes[0], "hello", "from acme");
    planes[1].patch(&format!("{GREETINGS}/hello"), "merge", &json!({"spec": {"text": "again"}})).expect(200);
    text_is(&planes[1], "hello", "again");

    planes[0].delete(&format!("{GREETINGS}/hello")).expect(200);
    eventually("the greeting has left", || planes[0].get(&format!("{GREETINGS}/hello")).code == 404);
    planes[0].get(&format!("{MAPS}/farewell-hello")).expect(200);
    eventually("what it owned is collected", || planes[0].get(&format!("{MAPS}/hello")).code == 404);
    planes[1].get(&format!("{MAPS}/farewell-hello")).expect(404);
    text_is(&planes[1], "hello", "again");

    let pid = operator.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    eventually("the operator ends", || operator.0.try_wait().unwrap().is_some());
    assert!(operator.0.wait().unwrap().success());
    let lease = planes[1].get("/apis/coordination.k8s.io/v1/namespaces/default/leases/greetings").expect(200);
    assert_eq!(lease.json()["spec"]["holderIdentity"], "", "the lease was given back");
}
