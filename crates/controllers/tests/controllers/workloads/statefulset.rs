//! Stateful sets: order, updates, volumes.

use super::*;

const SETS: &str = "apps/v1 statefulsets";
const CLAIMS: &str = "v1 persistentvolumeclaims";

fn names(pods: &[Value]) -> Vec<String> {
    pods.iter().map(name).collect()
}

#[test]
fn numbered_pods_come_one_after_the_other() {
    let world = World::start();
    let set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3,
            "serviceName": "peers",
            "selector": {"matchLabels": {"app": "db"}},
            "template": (template("db")),
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"},
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }],
        },
    });
    world.create(SETS, &set);
    let pods = world.until_pods(|pods| names(pods) == ["db-0"]);
    assert_eq!(pods[0]["spec"]["hostname"], "db-0");
    assert_eq!(pods[0]["spec"]["subdomain"], "peers");
    assert_eq!(pods[0]["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "0");
    assert_eq!(pods[0]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-0");
    assert_eq!(world.get(CLAIMS, "data-db-0")["metadata"]["labels"]["app"], "db");
    // The second waits for the first.
    world.run(&pods[0]);
    world.until_pods(|pods| names(pods) == ["db-0", "db-1"]);
    let done = world.run_until(SETS, "db", |set| set["status"]["availableReplicas"] == 3);
    assert_eq!(done["status"]["currentRevision"], done["status"]["updateRevision"]);

    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example.test/app:2"}]}}}});
    world.merge(SETS, "db", &json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}));
    world.merge(SETS, "db", &image);
    let canary = world.run_until(SETS, "db", |set| {
        set["status"]["updatedReplicas"] == 1
            && set["status"]["readyReplicas"] == 3
            && set["status"]["observedGeneration"] == 3
    });
    assert_ne!(canary["status"]["currentRevision"], canary["status"]["updateRevision"]);
    let image_of = |name: &str| world.get("v1 pods", name)["spec"]["containers"][0]["image"].clone();
    assert_eq!(
        (image_of("db-1"), image_of("db-2")),
        (json!("example.test/app:1"), json!("example.test/app:2"))
    );
    world.merge(SETS, "db", &json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}));
    world.run_until(SETS, "db", |set| {
        set["status"]["updatedReplicas"] == 3
            && set["status"]["readyReplicas"] == 3
            && set["status"]["currentRevision"] == set["status"]["updateRevision"]
    });
    assert_eq!(image_of("db-0"), "example.test/app:2");

    // Down to one: the last goes first, and its claim belongs to it.
    let last = world.get("v1 pods", "db-2");
    world.merge("v1 pods", "db-2", &json!({"metadata": {"finalizers": ["example.test/stay"]}}));
    world.merge(SETS, "db", &json!({"spec": {"replicas": 1}}));
    world.until("v1 pods", "db-2", |pod| !pod["metadata"]["deletionTimestamp"].is_null());
    world.until(CLAIMS, "data-db-2", |claim| {
        claim["metadata"]["ownerReferences"][0]["uid"] == last["metadata"]["uid"]
    });
    assert_eq!(names(&world.pods()), ["db-0", "db-1"]);
    world.merge("v1 pods", "db-2", &json!({"metadata": {"finalizers": null}}));
    world.until_pods(|pods| names(pods) == ["db-0"]);
    world.until(SETS, "db", |set| set["status"]["replicas"] == 1);
    assert_eq!(world.get(CLAIMS, "data-db-0")["metadata"]["ownerReferences"], Value::Null);
}

#[test]
fn pods_may_come_all_at_once() {
    let world = World::start();
    let set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3,
            "podManagementPolicy": "Parallel",
            "ordinals": {"start": 5},
            "selector": {"matchLabels": {"app": "db"}},
            "template": (template("db")),
        },
    });
    world.create(SETS, &set);
    world.until_pods(|pods| names(pods) == ["db-5", "db-6", "db-7"]);
    world.merge(SETS, "db", &json!({"spec": {"replicas": 0}}));
    world.until_pods(|pods| pods.is_empty());
}

#[test]
fn a_claim_that_is_missing_is_made_again() {
    let world = World::start();
    let set = json!({
        "metadata": {"name": "my-db"},
        "spec": {
            "selector": {"matchLabels": {"app": "db"}},
            "template": (template("db")),
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }],
        },
    });
    world.create(SETS, &set);
    world.until_pods(|pods| names(pods) == ["my-db-0"]);
    let first = world.get(CLAIMS, "data-my-db-0");
    world.plane.delete(&path(CLAIMS, "data-my-db-0")).expect(200);
    let lets_go = json!({"metadata": {"finalizers": null}});
    world.plane.patch(&path(CLAIMS, "data-my-db-0"), "merge", &lets_go);
    world.until(CLAIMS, "data-my-db-0", |claim| {
        claim["metadata"]["uid"].is_string() && claim["metadata"]["uid"] != first["metadata"]["uid"]
    });
}
