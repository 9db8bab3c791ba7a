//! Daemon sets on nodes that exist only on paper.

use super::*;

const SETS: &str = "apps/v1 daemonsets";

fn node(world: &World, name: &str, labels: &Value) {
    let node = json!({"metadata": {"name": name, "labels": labels}});
    world.plane.post("/api/v1/nodes", &node).expect(201);
}

/// What a pod waits for, since no scheduler is there to bind it.
fn target(pod: &Value) -> String {
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str().unwrap_or_default().to_string()
}

fn targets(pods: &[Value]) -> Vec<String> {
    let mut targets: Vec<String> = pods.iter().map(target).collect();
    targets.sort();
    targets
}

#[test]
fn every_node_gets_a_pod() {
    let world = World::start();
    node(&world, "a", &json!({"disk": "ssd"}));
    node(&world, "b", &json!({}));
    let set = json!({
        "metadata": {"name": "logs"},
        "spec": {"selector": {"matchLabels": {"app": "logs"}}, "template": (template("logs"))},
    });
    world.create(SETS, &set);
    let pods = world.until_pods(|pods| targets(pods) == ["a", "b"]);
    let revisions = world.list("apps/v1 controllerrevisions");
    assert_eq!(revisions.len(), 1);
    let hash = &pods[0]["metadata"]["labels"]["controller-revision-hash"];
    assert_eq!(hash, &revisions[0]["metadata"]["labels"]["controller-revision-hash"]);
    node(&world, "c", &json!({"disk": "ssd"}));
    world.until_pods(|pods| targets(pods) == ["a", "b", "c"]);
    world.run_until(SETS, "logs", |set| {
        set["status"]["numberAvailable"] == 3 && set["status"]["desiredNumberScheduled"] == 3
    });

    // A new template, one node after the other.
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example.test/app:2"}]}}}});
    world.merge(SETS, "logs", &image);
    world.run_until(SETS, "logs", |set| {
        set["status"]["updatedNumberScheduled"] == 3
            && set["status"]["numberAvailable"] == 3
            && set["status"]["observedGeneration"] == 2
    });
    assert_eq!(world.list("apps/v1 controllerrevisions").len(), 2);

    // Some nodes no longer fit; the label of another changes.
    world.merge(SETS, "logs", &json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}}));
    world.until_pods(|pods| targets(pods) == ["a", "c"]);
    world
        .plane
        .patch("/api/v1/nodes/b", "merge", &json!({"metadata": {"labels": {"disk": "ssd"}}}))
        .expect(200);
    let pods = world.until_pods(|pods| targets(pods) == ["a", "b", "c"]);

    // One that failed is replaced.
    world.report(&pods[0], &json!({"phase": "Failed"}));
    let failed = name(&pods[0]);
    world.until_pods(|pods| pods.len() == 3 && pods.iter().all(|pod| name(pod) != failed));
}
