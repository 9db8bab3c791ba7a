//! Replica sets and replication controllers.

use super::*;

const SETS: &str = "apps/v1 replicasets";
const CONTROLLERS: &str = "v1 replicationcontrollers";

fn set(name: &str, replicas: i64) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": (template(name))},
    })
}

#[test]
fn a_set_has_as_many_pods_as_it_wants() {
    let world = World::start();
    let made = world.create(SETS, &set("web", 3));
    let pods = world.until_pods(|pods| pods.len() == 3);
    let owner = &pods[0]["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], made["metadata"]["uid"]);
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("ReplicaSet"), &json!(true)));
    assert!(name(&pods[0]).starts_with("web-"), "{}", name(&pods[0]));
    let seen = world.until(SETS, "web", |set| set["status"]["replicas"] == 3);
    assert_eq!(seen["status"]["observedGeneration"], 1);
    assert_eq!(seen["status"]["fullyLabeledReplicas"], 3);
    assert!(seen["status"]["readyReplicas"].is_null());

    // The first runs; the others are those that go.
    world.run(&pods[0]);
    world.until(SETS, "web", |set| set["status"]["availableReplicas"] == 1);
    world.merge(SETS, "web", &json!({"spec": {"replicas": 1}}));
    let left = world.until_pods(|pods| pods.len() == 1);
    assert_eq!(name(&left[0]), name(&pods[0]));
    world
        .until(SETS, "web", |set| set["status"]["replicas"] == 1 && set["status"]["observedGeneration"] == 2);

    // One that fails is replaced.
    world.report(&left[0], &json!({"phase": "Failed"}));
    let pods = world.until_pods(|pods| pods.len() == 2);
    assert!(pods.iter().any(|pod| name(pod) != name(&left[0])));
}

#[test]
fn pods_are_adopted_and_released_by_their_labels() {
    let world = World::start();
    for (resource, app, selector) in [
        (SETS, "by-set", json!({"matchLabels": {"app": "by-set"}})),
        (CONTROLLERS, "by-controller", json!({"app": "by-controller"})),
    ] {
        let orphan = |name: &str| {
            let mut pod = template(app);
            pod["metadata"]["name"] = json!(name);
            pod
        };
        world.create("v1 pods", &orphan(&format!("{app}-first")));
        let set = json!({
            "metadata": {"name": app},
            "spec": {"replicas": 1, "selector": selector, "template": (template(app))},
        });
        let set = world.create(resource, &set);
        let owned = |pod: &Value| pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"];
        world.until("v1 pods", &format!("{app}-first"), owned);
        // One that comes later is one too many, whichever goes.
        world.create("v1 pods", &orphan(&format!("{app}-second")));
        world.until_pods(|pods| pods.iter().filter(|pod| owned(pod)).count() == 1);
        let pods = world.until_pods(|pods| {
            pods.iter().filter(|pod| pod["metadata"]["labels"]["app"] == app).count() == 1
        });
        let kept = pods.iter().find(|pod| owned(pod)).map(name).unwrap_or_default();
        // With another label it is let go, and another takes its place.
        world.merge("v1 pods", &kept, &json!({"metadata": {"labels": {"app": "stray"}}}));
        world.until("v1 pods", &kept, |pod| pod["metadata"]["ownerReferences"].is_null());
        world.until_pods(|pods| pods.iter().filter(|pod| owned(pod)).count() == 1);
    }
}

#[test]
fn refused_pods_are_told_of() {
    let world = World::start();
    // Nobody checks this in a template; in a pod it is no name of a finalizer.
    let mut refused = set("web", 2);
    refused["spec"]["template"]["metadata"]["finalizers"] = json!(["not a name"]);
    world.create(SETS, &refused);
    let failed = world.until(SETS, "web", |set| !condition(set, "ReplicaFailure").is_null());
    let failure = condition(&failed, "ReplicaFailure");
    assert_eq!((&failure["status"], &failure["reason"]), (&json!("True"), &json!("FailedCreate")));
    world.merge(SETS, "web", &json!({"spec": {"replicas": 0}}));
    world.until(SETS, "web", |set| condition(set, "ReplicaFailure").is_null());
}

#[test]
fn pods_are_available_after_some_time() {
    let world = World::start();
    let mut slow = set("web", 1);
    slow["spec"]["minReadySeconds"] = json!(2);
    world.create(SETS, &slow);
    let pods = world.until_pods(|pods| pods.len() == 1);
    let now = world.plane.get(&path("v1 pods", &name(&pods[0]))).json();
    let ready = json!({"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": (now["metadata"]["creationTimestamp"])}
    ]});
    world.report(&pods[0], &ready);
    world.until(SETS, "web", |set| set["status"]["readyReplicas"] == 1);
    world.until(SETS, "web", |set| set["status"]["availableReplicas"] == 1);
}

#[test]
fn a_controller_that_selects_others_lets_its_pods_go() {
    let world = World::start();
    let controller =
        json!({"metadata": {"name": "old"}, "spec": {"replicas": 2, "template": (template("one"))}});
    world.create(CONTROLLERS, &controller);
    let first = world.until_pods(|pods| pods.len() == 2);
    let patch = json!({"spec": {
        "selector": {"app": "two"},
        "template": {"metadata": {"labels": {"app": "two"}}},
    }});
    world.merge(CONTROLLERS, "old", &patch);
    world.until_pods(|pods| pods.len() == 4);
    world.until("v1 pods", &name(&first[0]), |pod| pod["metadata"]["ownerReferences"].is_null());
}
