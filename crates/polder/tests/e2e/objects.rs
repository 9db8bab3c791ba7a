//! Reference sections 7, 8 and 13: what happens to an object between its client and the store.

use polder_test_support::{Client, Value, json};

use crate::process::{MAPS, OWN, Polder};

fn named(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// The server names, dates and numbers objects; what a client says about that is not believed.
#[test]
fn metadata_of_new_objects() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let mut wild = named("a");
    wild["metadata"]["uid"] = json!("mine");
    wild["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    wild["metadata"]["selfLink"] = json!("/x");
    wild["metadata"]["generation"] = json!(7);
    let made = acme.post(MAPS, &wild).expect(201).json();
    let metadata = &made["metadata"];
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert!(metadata["creationTimestamp"].as_str().unwrap().starts_with("202"));
    assert_eq!((&metadata["selfLink"], &metadata["generation"]), (&Value::Null, &Value::Null));
    assert_eq!(metadata["namespace"], "default");
    let mut versioned = named("b");
    versioned["metadata"]["resourceVersion"] = json!("5");
    let refused = acme.post(MAPS, &versioned).expect(500).json();
    assert_eq!(refused["message"], "resourceVersion should not be set on objects to be created");
    let elsewhere = json!({"metadata": {"name": "c", "namespace": "kube-system"}});
    acme.post(MAPS, &elsewhere).expect(400);
}

/// Generated names: the prefix and five characters without vowels.
#[test]
fn generated_names() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let made = acme.post(MAPS, &json!({"metadata": {"generateName": "job-"}})).expect(201).json();
        let name = made["metadata"]["name"].as_str().unwrap().to_string();
        let end = name.strip_prefix("job-").unwrap();
        assert!(
            end.len() == 5 && end.chars().all(|char| "bcdfghjklmnpqrstvwxz2456789".contains(char)),
            "{name}"
        );
        names.insert(name);
    }
    assert_eq!(names.len(), 20);
    let long = acme.post(MAPS, &json!({"metadata": {"generateName": ("x".repeat(100))}})).expect(201).json();
    assert_eq!(long["metadata"]["name"].as_str().unwrap().len(), 63);
    acme.post(MAPS, &json!({"metadata": {}})).expect(422);
}

/// A write that changes nothing changes no version; one that does makes it grow.
#[test]
fn versions_grow_with_changes_only() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let path = format!("{MAPS}/a");
    let made = acme.post(MAPS, &named("a")).expect(201).json();
    let same = acme.put(&path, &made).expect(200).json();
    assert_eq!(version(&same), version(&made));
    let same = acme.patch(&path, "merge", &json!({"data": {"a": "b"}})).expect(200).json();
    assert_eq!(version(&same), version(&made));
    let changed = acme.patch(&path, "merge", &json!({"data": {"a": "c"}})).expect(200).json();
    assert!(version(&changed) > version(&made));
    // An update of the old version is refused; one without a version is taken.
    let mut stale = made.clone();
    stale["data"] = json!({"a": "d"});
    acme.put(&path, &stale).expect(409);
    acme.put(&path, &named("a")).expect(200);
    let mut other = named("a");
    other["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    acme.put(&path, &other).expect(409);
    acme.put(&path, &named("b")).expect(400);
    acme.put(&format!("{MAPS}/missing"), &named("missing")).expect(404);
}

/// The generation counts changes of the specification.
#[test]
fn generation() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let path = format!("{deployments}/web");
    let made = acme.post(deployments, &deployment()).expect(201).json();
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["spec"]["strategy"]["type"], "RollingUpdate");
    let labelled =
        acme.patch(&path, "merge", &json!({"metadata": {"labels": {"x": "y"}}})).expect(200).json();
    assert_eq!(labelled["metadata"]["generation"], 1);
    let scaled = acme.patch(&format!("{path}/scale"), "merge", &json!({"spec": {"replicas": 3}})).expect(200);
    assert_eq!(scaled.json()["kind"], "Scale");
    let scaled = acme.get(&path).json();
    assert_eq!((&scaled["metadata"]["generation"], &scaled["spec"]["replicas"]), (&json!(2), &json!(3)));
    let status = json!({"spec": {"replicas": 9}, "status": {"replicas": 3}});
    let status = acme.patch(&format!("{path}/status"), "merge", &status).expect(200).json();
    assert_eq!((&status["status"]["replicas"], &status["spec"]["replicas"]), (&json!(3), &json!(3)));
    assert_eq!(status["metadata"]["generation"], 2);
    let ignored = acme.patch(&path, "merge", &json!({"status": {"replicas": 8}})).expect(200).json();
    // What the status says by now is the controller's business.
    assert_ne!(ignored["status"]["replicas"], 8);
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx", "env": [{"name": "A", "value": "1"}]}]}},
    }})
}

/// The three kinds of patch.
#[test]
fn patches() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let path = format!("{deployments}/web");
    acme.post(deployments, &deployment()).expect(201);
    let containers = |value: Value| json!({"spec": {"template": {"spec": {"containers": value}}}});
    let patch = containers(json!([{"name": "web", "env": [{"name": "B", "value": "2"}]}]));
    let merged = acme.patch(&path, "strategic-merge", &patch).expect(200).json();
    let container = &merged["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "nginx");
    assert_eq!(container["env"].as_array().unwrap().len(), 2);
    let image = json!([{"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "nginx:2"}]);
    let replaced = acme.patch(&path, "json", &image).expect(200).json();
    assert_eq!(replaced["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:2");
    acme.patch(&path, "json", &json!([{"op": "test", "path": "/spec/replicas", "value": 2}])).expect(422);
    acme.patch(&path, "merge", &json!({"metadata": {"resourceVersion": "1"}})).expect(409);
    acme.patch(&path, "merge", &json!({"metadata": {"name": "other"}})).expect(400);
    acme.patch(&path, "nothing", &json!({})).expect(415);
    acme.patch(&format!("{deployments}/missing"), "merge", &json!({})).expect(404);
}

/// A dry run answers as if, and stores nothing.
#[test]
fn dry_run() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let dry = format!("{MAPS}?dryRun=All");
    let made = acme.post(&dry, &named("a")).expect(201).json();
    assert!(made["metadata"]["uid"].is_string());
    acme.get(&format!("{MAPS}/a")).expect(404);
    acme.post(&format!("{MAPS}?dryRun=Some"), &named("a")).expect(422);
    acme.post(MAPS, &named("a")).expect(201);
    acme.post(&dry, &named("a")).expect(409);
    let path = format!("{MAPS}/a?dryRun=All");
    let patched = acme.patch(&path, "merge", &json!({"data": {"a": "z"}})).expect(200).json();
    assert_eq!(patched["data"]["a"], "z");
    acme.delete(&path).expect(200);
    assert_eq!(acme.get(&format!("{MAPS}/a")).expect(200).json()["data"]["a"], "b");
    acme.delete(&format!("{MAPS}?dryRun=All")).expect(200);
    acme.get(&format!("{MAPS}/a")).expect(200);
}

/// Unknown and duplicate fields: dropped, warned about, or refused, as the client wishes.
#[test]
fn field_validation() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let body = br#"{"metadata":{"name":"a","foo":1},"data":{"a":"b","a":"c"}}"#;
    let send = |mode: &str| {
        let path = format!("{MAPS}?dryRun=All&fieldValidation={mode}");
        acme.must("POST", &path, &[("Content-Type", "application/json")], body)
    };
    let strict = send("Strict").expect(400).json();
    assert_eq!(
        strict["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
         unknown field \"metadata.foo\", duplicate field \"data.a\""
    );
    let warned = send("Warn").expect(201);
    let warnings: Vec<&str> =
        warned.headers.iter().filter(|(name, _)| name == "warning").map(|(_, text)| text.as_str()).collect();
    assert!(warnings.contains(&"299 - \"unknown field \\\"metadata.foo\\\"\""), "{warnings:?}");
    assert!(warnings.contains(&"299 - \"duplicate field \\\"data.a\\\"\""), "{warnings:?}");
    assert_eq!(warned.json()["metadata"]["foo"], Value::Null);
    assert_eq!(send("Ignore").expect(201).header("warning"), None);
    send("Other").expect(422);
    let wrong = json!({"metadata": {"name": "a"}, "data": {"a": 1}});
    acme.post(MAPS, &wrong).expect(400);
}

/// A delete may insist on one object and one version of it; the answer says what was deleted.
#[test]
fn delete_preconditions() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let path = format!("{MAPS}/a");
    let made = acme.post(MAPS, &named("a")).expect(201).json();
    let uid = made["metadata"]["uid"].clone();
    let only_if = |preconditions: Value| acme.delete_with(&path, &json!({"preconditions": preconditions}));
    assert_eq!(only_if(json!({"uid": "other"})).expect(409).json()["reason"], "Conflict");
    only_if(json!({"resourceVersion": "1"})).expect(409);
    let gone =
        only_if(json!({"uid": uid, "resourceVersion": (made["metadata"]["resourceVersion"])})).expect(200);
    let gone = gone.json();
    assert_eq!((&gone["kind"], &gone["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(gone["details"], json!({"name": "a", "kind": "configmaps", "uid": uid}));
    acme.delete(&path).expect(404);
}

/// Finalizers hold an object until the last is gone; none can be added meanwhile.
#[test]
fn finalizers() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let path = format!("{MAPS}/a");
    let mut object = named("a");
    object["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    acme.post(MAPS, &object).expect(201);
    let mut watch = acme.watch(&format!("{MAPS}?watch=true&{OWN}"));
    assert_eq!(watch.next_name(), "ADDED a");
    let dying = acme.delete(&path).expect(200).json();
    assert!(dying["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(dying["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(watch.next_name(), "MODIFIED a");
    acme.delete(&path).expect(200);
    let set =
        |finalizers: Value| acme.patch(&path, "merge", &json!({"metadata": {"finalizers": finalizers}}));
    set(json!(["example.com/one", "example.com/three"])).expect(422);
    let end = |field: &str, value: Value| acme.patch(&path, "merge", &json!({"metadata": {field: value}}));
    let kept = end("deletionTimestamp", json!("2020-01-01T00:00:00Z")).expect(200).json();
    assert_eq!(kept["metadata"]["deletionTimestamp"], dying["metadata"]["deletionTimestamp"]);
    // The end stays as it was, but whoever set it owns it now: as upstream has it, that is a change.
    assert_eq!(watch.next_name(), "MODIFIED a");
    end("deletionGracePeriodSeconds", json!(3)).expect(422);
    set(json!(["example.com/two"])).expect(200);
    acme.get(&path).expect(200);
    set(Value::Null).expect(200);
    acme.get(&path).expect(404);
    assert_eq!(watch.next_name(), "MODIFIED a");
    assert_eq!(watch.next_name(), "DELETED a");
}

/// A collection is deleted by selector, and the answer lists what went.
#[test]
fn delete_collection() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    for (name, tier) in [("a", "x"), ("b", "x"), ("c", "y")] {
        acme.post(MAPS, &json!({"metadata": {"name": name, "labels": {"tier": tier}}})).expect(201);
    }
    let gone = acme.delete(&format!("{MAPS}?labelSelector=tier%3Dx")).expect(200).json();
    assert_eq!(gone["kind"], "ConfigMapList");
    assert_eq!(names(&acme), ["c"]);
}

fn names(client: &Client) -> Vec<String> {
    let list = client.get(MAPS).expect(200).json();
    let items = list["items"].as_array().unwrap().iter();
    let names = items.map(|item| item["metadata"]["name"].as_str().unwrap().to_string());
    names.filter(|name| name != "kube-root-ca.crt").collect()
}

/// Fields that may not change, do not.
#[test]
fn immutable_fields() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"a": "b"}, "immutable": true})).expect(201);
    let refused = acme.patch(&format!("{MAPS}/a"), "merge", &json!({"data": {"a": "c"}})).expect(422);
    assert!(refused.text().contains("field is immutable when `immutable` is set"), "{}", refused.text());
}

/// A deleted namespace takes its contents along and accepts nothing new meanwhile.
#[test]
fn namespaces() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).expect(201);
    let n = acme.get("/api/v1/namespaces/n").json();
    assert_eq!(n["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");
    assert_eq!((&n["status"]["phase"], &n["spec"]["finalizers"]), (&json!("Active"), &json!(["kubernetes"])));
    let maps = "/api/v1/namespaces/n/configmaps";
    acme.post(maps, &json!({"metadata": {"name": "a", "finalizers": ["example.com/x"]}})).expect(201);
    acme.post(maps, &json!({"metadata": {"name": "b"}})).expect(201);
    let dying = acme.delete("/api/v1/namespaces/n").expect(200).json();
    assert_eq!(dying["status"]["phase"], "Terminating");
    let refused = acme.post(maps, &json!({"metadata": {"name": "c"}})).expect(403).json();
    assert_eq!(refused["details"]["causes"][0]["reason"], "NamespaceTerminating");
    eventually("b is gone", || acme.get(&format!("{maps}/b")).code == 404);
    acme.get("/api/v1/namespaces/n").expect(200);
    acme.patch(&format!("{maps}/a"), "merge", &json!({"metadata": {"finalizers": null}})).expect(200);
    eventually("the namespace is gone", || acme.get("/api/v1/namespaces/n").code == 404);
    acme.delete("/api/v1/namespaces/default").expect(403);
}

/// Something the server does by itself, soon.
#[track_caller]
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let started = std::time::Instant::now();
    while !condition() {
        assert!(started.elapsed().as_secs() < 20, "not in time: {what}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Bindings and evictions: dry runs leave the pod alone, budgets have a say, names must agree.
#[test]
fn pods_are_bound_and_evicted() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "metadata": {"name": "p", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    acme.post(pods, &pod).expect(201);
    let path = format!("{pods}/p");
    let bind = |suffix: &str, body: &Value| acme.post(&format!("{path}/binding{suffix}"), body);
    let node = json!({"kind": "Node", "name": "n1"});
    let binding = json!({"metadata": {"name": "p", "labels": {"zone": "z"}}, "target": node});
    bind("?dryRun=All", &binding).expect(201);
    assert!(acme.get(&path).json()["spec"].get("nodeName").is_none());
    bind("", &json!({"metadata": {"name": "q"}, "target": node})).expect(400);
    bind("", &json!({"metadata": {"name": "p"}, "target": {"kind": "Pod", "name": "n1"}})).expect(500);
    for (labels, code) in
        [(json!({"n": 5}), 400), (json!({"x": {"y": 1}}), 400), (json!({"bad key!": "v"}), 422)]
    {
        bind("", &json!({"metadata": {"name": "p", "labels": labels}, "target": node})).expect(code);
    }
    let collection = "/api/v1/namespaces/default/bindings";
    acme.post(&format!("{collection}?dryRun=All"), &binding).expect(201);
    acme.post(collection, &json!({"metadata": {"name": "missing"}, "target": node})).expect(404);
    assert_eq!(acme.post(collection, &binding).expect(201).json()["status"], "Success");
    let bound = acme.get(&path).json();
    assert_eq!(
        (&bound["spec"]["nodeName"], &bound["metadata"]["labels"]["zone"]),
        (&json!("n1"), &json!("z"))
    );
    bind("", &binding).expect(409);

    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    acme.patch(&format!("{path}/status"), "merge", &status).expect(200);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    acme.post(budgets, &budget).expect(201);
    let evict = |suffix: &str, body: &Value| acme.post(&format!("{path}/eviction{suffix}"), body);
    let eviction = json!({"metadata": {"name": "p"}});
    // Until the budget has been counted.
    let counted = |healthy: u64| {
        let started = std::time::Instant::now();
        while acme.get(&format!("{budgets}/b")).json()["status"]["currentHealthy"] != healthy {
            assert!(started.elapsed().as_secs() < 30, "the budget is not counted");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    counted(1);
    let refused = evict("", &eviction).expect(429).json();
    assert_eq!(refused["reason"], "TooManyRequests");
    assert_eq!(
        refused["details"]["causes"][0],
        json!({
            "reason": "DisruptionBudget",
            "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
        })
    );
    let mut second = pod.clone();
    second["metadata"]["name"] = json!("second");
    second["spec"]["nodeName"] = json!("n1");
    acme.post(pods, &second).expect(201);
    acme.patch(&format!("{pods}/second/status"), "merge", &status).expect(200);
    counted(2);
    evict("", &json!({"metadata": {"name": "q"}})).expect(400);
    evict("", &json!({"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "x"}}}))
        .expect(409);
    // Budgets that nobody could honestly need are not looked through.
    let values: Vec<String> = (0..100_000).map(|value| format!("v{value}")).collect();
    let long = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": values}]});
    for name in ["l1", "l2", "l3", "l4", "l5"] {
        let budget = json!({"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": long}});
        acme.post(budgets, &budget).expect(201);
    }
    evict("", &eviction).expect(403);
    for name in ["l1", "l2", "l3", "l4", "l5"] {
        acme.delete(&format!("{budgets}/{name}")).expect(200);
    }
    let twin = json!({"metadata": {"name": "twin"}, "spec": {"minAvailable": 1, "selector": {}}});
    acme.post(budgets, &twin).expect(201);
    evict("", &eviction).expect(500);
    acme.delete(&format!("{budgets}/twin")).expect(200);
    evict("?dryRun=All", &eviction).expect(201);
    assert!(acme.get(&path).json()["metadata"].get("deletionTimestamp").is_none());
    assert_eq!(acme.get(&format!("{budgets}/b")).json()["status"]["disruptionsAllowed"], 1);
    evict("", &eviction).expect(201);
    let evicted = acme.get(&path).json();
    assert!(evicted["metadata"].get("deletionTimestamp").is_some());
    assert_eq!(evicted["status"]["conditions"][1]["reason"], "EvictionByEvictionAPI");
    let spent = acme.get(&format!("{budgets}/b")).json();
    assert_eq!(spent["status"]["disruptionsAllowed"], 0);
    evict("", &eviction).expect(201);
}

/// A pod that is stopping keeps its time: another delete takes it away only if it says so.
#[test]
fn pods_stop_in_their_time() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let pods = "/api/v1/namespaces/default/pods";
    let spec = json!({"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]});
    acme.post(pods, &json!({"metadata": {"name": "p"}, "spec": spec})).expect(201);
    let path = format!("{pods}/p");
    let grace = |reply: Value| reply["metadata"]["deletionGracePeriodSeconds"].clone();
    assert_eq!(grace(acme.delete(&path).expect(200).json()), 30);
    assert_eq!(grace(acme.delete(&format!("{path}?gracePeriodSeconds=7")).expect(200).json()), 7);
    acme.patch(&format!("{path}/status"), "merge", &json!({"status": {"phase": "Failed"}})).expect(200);
    assert_eq!(grace(acme.delete(&path).expect(200).json()), 7);
    acme.get(&path).expect(200);
    acme.delete(&format!("{path}?gracePeriodSeconds=0")).expect(200);
    acme.get(&path).expect(404);
}

/// Warnings are about what a request changes.
#[test]
fn warnings() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let mut object = deployment();
    object["spec"]["template"]["spec"]["topologySpreadConstraints"] =
        json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    let warned = |reply: &polder_test_support::Reply| reply.header("warning").is_some();
    assert!(warned(&acme.post(deployments, &object).expect(201)));
    let patch = |change: Value| acme.patch(&format!("{deployments}/web"), "merge", &change).expect(200);
    assert!(!warned(&patch(json!({"metadata": {"labels": {"a": "b"}}}))));
    assert!(warned(&patch(json!({"spec": {"replicas": 4}}))));
}
