//! The garbage collector and what extension servers keep: it goes, stays or is waited for with its owners, and its own
//! dependents with it. Over real HTTPS; `sample_apiserver` does some of it with upstream's server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use polder_test_support::extension::{Asked, ExtensionServer, Handler, answer, answer_json};
use polder_test_support::{Client, Value, eventually, json};

use crate::aggregation::{authority, networks};
use crate::extension_controllers::{discover, register};
use crate::process::Polder;

const GROUP: &str = "wardle.example.com";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server that keeps flunders, whole, by their names in the namespace `default`.
#[derive(Default)]
struct Flunders {
    objects: Mutex<BTreeMap<String, Value>>,
    /// It deletes nothing, and counts who wanted it to.
    stubborn: AtomicBool,
    refusals: AtomicUsize,
}

impl Flunders {
    fn start(polder: &Polder) -> (Arc<Flunders>, ExtensionServer) {
        let all = Arc::new(Flunders::default());
        let own = all.clone();
        let verbs = ["create", "delete", "get", "list", "patch", "watch"];
        let resources = json!([{"name": "flunders", "namespaced": true, "kind": "Flunder", "verbs": verbs}]);
        let handler: Handler = Arc::new(move |asked, out| match discover(asked, out, &resources) {
            Some(done) => done,
            None => {
                let (code, body) = own.reply(asked);
                match code {
                    405 => answer(out, 405, "text/plain", b""),
                    code => answer_json(out, code, &body),
                }
            }
        });
        let server = ExtensionServer::start("api.default.svc", &authority(polder), handler).unwrap();
        (all, server)
    }

    fn reply(&self, asked: &Asked) -> (u16, Value) {
        let account = "system:serviceaccount:kube-system:generic-garbage-collector";
        assert_eq!(asked.all("x-remote-user"), [account]);
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        let mut objects = self.objects.lock().unwrap();
        if path == format!("/apis/{GROUP}/v1alpha1/flunders") {
            // One on a page, and only what is asked for.
            assert!(asked.all("accept")[0].contains("as=PartialObjectMetadataList"), "{:?}", asked.headers);
            let after = query.split('&').find_map(|one| one.strip_prefix("continue=")).unwrap_or_default();
            let mut rest = objects.iter().filter(|(name, _)| name.as_str() > after);
            let items: Vec<Value> = rest.next().map(|(_, value)| value.clone()).into_iter().collect();
            let last = items.first().map(|one| one["metadata"]["name"].clone());
            let token = if rest.next().is_some() { last.unwrap() } else { json!("") };
            let list = json!({"kind": "FlunderList", "metadata": {"continue": token}, "items": items});
            return (200, list);
        }
        let name =
            path.strip_prefix(&format!("/apis/{GROUP}/v1alpha1/namespaces/default/flunders/")).unwrap();
        let Some(object) = objects.get_mut(name) else {
            return (404, json!({"kind": "Status", "reason": "NotFound", "message": "not found"}));
        };
        match asked.method.as_str() {
            "GET" => (200, object.clone()),
            "DELETE" if self.stubborn.load(Ordering::SeqCst) => {
                self.refusals.fetch_add(1, Ordering::SeqCst);
                (405, json!({}))
            }
            "DELETE" => {
                let options: Value = serde_json::from_slice(&asked.body).unwrap();
                assert_eq!(options["preconditions"]["uid"], object["metadata"]["uid"]);
                (200, objects.remove(name).unwrap())
            }
            "PATCH" => {
                let patch: Value = serde_json::from_slice(&asked.body).unwrap();
                assert_eq!(patch["metadata"]["uid"], object["metadata"]["uid"]);
                for (field, value) in patch["metadata"].as_object().unwrap() {
                    object["metadata"][field.as_str()] = value.clone();
                }
                let patched = object.clone();
                if !patched["metadata"]["deletionTimestamp"].is_null()
                    && patched["metadata"]["finalizers"].is_null()
                {
                    objects.remove(name);
                }
                (200, patched)
            }
            _ => (405, json!({})),
        }
    }

    fn put(&self, name: &str, metadata: Value) {
        let mut object = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Flunder",
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1",
            },
        });
        for (field, value) in metadata.as_object().unwrap() {
            object["metadata"][field.as_str()] = value.clone();
        }
        self.objects.lock().unwrap().insert(name.to_owned(), object);
    }

    fn get(&self, name: &str) -> Option<Value> {
        self.objects.lock().unwrap().get(name).cloned()
    }
}

/// A new config map, as an owner.
fn owner(plane: &Client, name: &str) -> Value {
    let map = plane.post(MAPS, &json!({"metadata": {"name": name}})).expect(201).json();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": map["metadata"]["uid"]})
}

fn waits(mut owner: Value) -> Value {
    owner["blockOwnerDeletion"] = json!(true);
    owner
}

/// What an extension server keeps goes after its owners, loses those that are gone, is left behind, or is waited for.
#[test]
fn dependents_in_extension_servers() {
    let polder = Polder::start_with(&networks());
    let (all, server) = Flunders::start(&polder);
    let acme = polder.plane("acme");
    let owners: Vec<Value> =
        ["first", "second", "third", "fourth"].iter().map(|name| owner(&acme, name)).collect();
    let [first, second, third, fourth] = &owners[..] else { panic!() };
    all.put("goes", json!({"ownerReferences": [first]}));
    all.put("has-another", json!({"ownerReferences": [first, second]}));
    all.put("left-behind", json!({"ownerReferences": [third]}));
    all.put("awaited", json!({"ownerReferences": [waits(fourth.clone())]}));
    all.put("free", json!({}));
    register(&acme, &server, &[(GROUP, "v1alpha1")]);

    let delete = |name: &str, policy: &str| {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
        acme.delete_with(&format!("{MAPS}/{name}"), &options).expect(200);
    };
    delete("first", "Background");
    eventually("it goes with its owner", || all.get("goes").is_none());
    let left = || all.get("has-another").unwrap()["metadata"]["ownerReferences"].clone();
    eventually("one owner is left", || left().as_array().is_some_and(|left| left.len() == 1));
    assert_eq!(left()[0]["name"], "second");

    delete("third", "Orphan");
    let references = |name: &str| all.get(name).unwrap()["metadata"]["ownerReferences"].clone();
    eventually("it is left behind", || references("left-behind").is_null());
    eventually("then its owner goes", || acme.get(&format!("{MAPS}/third")).code == 404);

    all.stubborn.store(true, Ordering::SeqCst);
    delete("fourth", "Foreground");
    eventually("it is to go first", || all.refusals.load(Ordering::SeqCst) > 0);
    let waiting = acme.get(&format!("{MAPS}/fourth")).expect(200).json();
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    all.stubborn.store(false, Ordering::SeqCst);
    eventually("its owner waits for it", || {
        acme.get(&format!("{MAPS}/fourth")).code == 404 && all.get("awaited").is_none()
    });
    assert!(all.get("left-behind").is_some() && all.get("free").is_some());
}

/// An object of an extension server that is deleted before or without its dependents here is seen to.
#[test]
fn owners_in_extension_servers_wait() {
    let polder = Polder::start_with(&networks());
    let (all, server) = Flunders::start(&polder);
    let acme = polder.plane("acme");
    for (name, finalizer) in [("waits", "foregroundDeletion"), ("leaves", "orphan")] {
        all.put(name, json!({"finalizers": [finalizer], "deletionTimestamp": "2026-01-01T00:00:00Z"}));
        let owner = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Flunder", "name": name, "uid": format!("uid-{name}"),
        });
        let metadata = json!({"name": name, "ownerReferences": [waits(owner)]});
        acme.post(MAPS, &json!({"metadata": metadata})).expect(201);
    }
    register(&acme, &server, &[(GROUP, "v1alpha1")]);
    eventually("both go", || all.objects.lock().unwrap().is_empty());
    acme.get(&format!("{MAPS}/waits")).expect(404);
    let left = acme.get(&format!("{MAPS}/leaves")).expect(200).json();
    assert!(left["metadata"]["ownerReferences"].is_null(), "{left}");
}
