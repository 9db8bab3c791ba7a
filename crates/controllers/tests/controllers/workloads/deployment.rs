//! Deployments: rollouts, scaling, rollbacks.

use super::*;

const DEPLOYMENTS: &str = "apps/v1 deployments";
const SETS: &str = "apps/v1 replicasets";
const REVISION: &str = "deployment.kubernetes.io/revision";

fn deployment(replicas: i64) -> Value {
    json!({
        "metadata": {"name": "web", "annotations": {"team": "blue"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": (template("web"))},
    })
}

fn image(version: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": version}]}}}})
}

fn is_complete(deployment: &Value) -> bool {
    let status = &deployment["status"];
    let wanted = &deployment["spec"]["replicas"];
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && &status["updatedReplicas"] == wanted
        && &status["replicas"] == wanted
        && &status["availableReplicas"] == wanted
        && condition(deployment, "Progressing")["reason"] == "NewReplicaSetAvailable"
}

#[test]
fn a_rollout_goes_to_its_end_and_back() {
    let world = World::start();
    let made = world.create(DEPLOYMENTS, &deployment(4));
    let done = world.run_until(DEPLOYMENTS, "web", is_complete);
    assert_eq!(done["metadata"]["annotations"][REVISION], "1");
    assert_eq!(condition(&done, "Available")["status"], "True");
    let first = world.list(SETS).remove(0);
    let hash = first["metadata"]["labels"]["pod-template-hash"].as_str().unwrap().to_string();
    assert_eq!(name(&first), format!("web-{hash}"));
    assert_eq!(first["spec"]["selector"]["matchLabels"]["pod-template-hash"], hash.as_str());
    assert_eq!(first["metadata"]["annotations"]["team"], "blue");
    assert_eq!(first["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    assert!(world.pods().iter().all(|pod| pod["metadata"]["labels"]["pod-template-hash"] == hash.as_str()));

    world.merge(DEPLOYMENTS, "web", &image("example.test/app:2"));
    let done = world.run_until(DEPLOYMENTS, "web", is_complete);
    assert_eq!(done["metadata"]["annotations"][REVISION], "2");
    assert_eq!(world.list(SETS).len(), 2);
    world.until(SETS, &name(&first), |set| set["spec"]["replicas"] == 0 && set["status"]["replicas"] == 0);
    let pods = world.until_pods(|pods| pods.len() == 4);
    assert!(pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "example.test/app:2"));

    world.merge(DEPLOYMENTS, "web", &image("example.test/app:1"));
    let done = world.run_until(DEPLOYMENTS, "web", is_complete);
    assert_eq!(done["metadata"]["annotations"][REVISION], "3");
    assert_eq!(world.list(SETS).len(), 2);

    world.merge(DEPLOYMENTS, "web", &json!({"spec": {"replicas": 1}}));
    world.until_pods(|pods| pods.len() == 1);
    world.run_until(DEPLOYMENTS, "web", is_complete);
}

/// No more than may be too many, no fewer than must be there.
#[test]
fn a_rollout_waits_for_its_pods() {
    let world = World::start();
    let mut slow = deployment(4);
    slow["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    world.create(DEPLOYMENTS, &slow);
    world.run_until(DEPLOYMENTS, "web", is_complete);
    world.merge(DEPLOYMENTS, "web", &image("example.test/app:2"));
    world.until(DEPLOYMENTS, "web", |one| one["status"]["updatedReplicas"] == 1);
    world.until(DEPLOYMENTS, "web", |one| {
        one["status"]["replicas"] == 5 && one["status"]["unavailableReplicas"] == 1
    });
    assert_eq!(world.pods().len(), 5);
    // In the middle of it the deployment grows: both sets do.
    world.merge(DEPLOYMENTS, "web", &json!({"spec": {"replicas": 8}}));
    world.until_pods(|pods| pods.len() == 9);
    world.run_until(DEPLOYMENTS, "web", is_complete);
}

#[test]
fn old_pods_are_gone_before_new_ones_come() {
    let world = World::start();
    let mut recreated = deployment(2);
    recreated["spec"]["strategy"] = json!({"type": "Recreate"});
    world.create(DEPLOYMENTS, &recreated);
    world.run_until(DEPLOYMENTS, "web", is_complete);
    // A finalizer stands for a pod that takes its time.
    let stays = name(&world.pods()[0]);
    let held = json!({"metadata": {"finalizers": ["example.test/stay"]}});
    world.merge("v1 pods", &stays, &held);
    world.merge(DEPLOYMENTS, "web", &image("example.test/app:2"));
    world.until("v1 pods", &stays, |pod| !pod["metadata"]["deletionTimestamp"].is_null());
    world.until_pods(|pods| pods.is_empty());
    world.until(SETS, &name(&world.list(SETS)[0]), |set| set["status"]["terminatingReplicas"] == 1);
    assert_eq!(world.list(SETS).len(), 1);
    world.merge("v1 pods", &stays, &json!({"metadata": {"finalizers": null}}));
    world.run_until(DEPLOYMENTS, "web", is_complete);
}

#[test]
fn old_templates_are_forgotten() {
    let world = World::start();
    let mut forgetful = deployment(1);
    forgetful["spec"]["revisionHistoryLimit"] = json!(0);
    world.create(DEPLOYMENTS, &forgetful);
    world.run_until(DEPLOYMENTS, "web", is_complete);
    world.merge(DEPLOYMENTS, "web", &image("example.test/app:2"));
    world.run_until(DEPLOYMENTS, "web", is_complete);
    assert!(within(|| world.list(SETS).len() == 1), "{:?}", world.list(SETS));
}

/// A set of that name that belongs to somebody else is not touched.
#[test]
fn a_name_that_is_taken_is_avoided() {
    let world = World::start();
    world.create(DEPLOYMENTS, &deployment(1));
    world.run_until(DEPLOYMENTS, "web", is_complete);
    let taken = name(&world.list(SETS).remove(0));
    // The same deployment in another plane would have a set of the same name.
    let world = World { plane: world.server.plane("beta"), server: world.server };
    let mut other = json!({"metadata": {"name": taken}, "spec": {"replicas": 0}});
    other["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    other["spec"]["template"] = template("other");
    world.create(SETS, &other);
    world.create(DEPLOYMENTS, &deployment(1));
    world.until(DEPLOYMENTS, "web", |one| one["status"]["collisionCount"] == 1);
    world.run_until(DEPLOYMENTS, "web", is_complete);
    assert_eq!(world.list(SETS).len(), 2);
    assert_eq!(world.get(SETS, &taken)["spec"]["selector"]["matchLabels"]["app"], "other");
}

#[test]
fn a_paused_deployment_waits() {
    let world = World::start();
    let mut paused = deployment(2);
    paused["spec"]["paused"] = json!(true);
    world.create(DEPLOYMENTS, &paused);
    world.until(DEPLOYMENTS, "web", |one| condition(one, "Progressing")["reason"] == "DeploymentPaused");
    assert!(world.list(SETS).is_empty());
    world.merge(DEPLOYMENTS, "web", &json!({"spec": {"paused": false}}));
    world.run_until(DEPLOYMENTS, "web", is_complete);
}
