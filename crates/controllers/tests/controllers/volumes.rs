//! Claims and volumes: they find each other, and stay while they are used.

use crate::world::{eventually, namespace, pod};
use polder_test_support::{Client, TestServer, Value, json};

const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";

fn volume(name: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
        "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/x"},
    }})
}

fn claim(name: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "manual",
    }})
}

fn phase(plane: &Client, path: &str) -> String {
    plane.get(path).json()["status"]["phase"].as_str().unwrap_or_default().into()
}

#[test]
fn a_claim_gets_a_volume_and_keeps_it_while_it_is_used() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    namespace(&plane, "shop");
    plane.post(VOLUMES, &volume("large", "100Gi")).expect(201);
    plane.post(VOLUMES, &volume("right", "10Gi")).expect(201);
    eventually("they can be had", || {
        ["large", "right"].iter().all(|name| phase(&plane, &format!("{VOLUMES}/{name}")) == "Available")
    });
    plane.post(CLAIMS, &claim("data", "5Gi")).expect(201);
    let data = format!("{CLAIMS}/data");
    eventually("it is bound", || phase(&plane, &data) == "Bound");
    let bound = plane.get(&data).json();
    assert_eq!(bound["spec"]["volumeName"], "right", "{bound}");
    assert_eq!(bound["status"]["capacity"]["storage"], "10Gi", "{bound}");
    assert_eq!(bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"], "yes", "{bound}");
    eventually("it is held", || {
        plane.get(&data).json()["metadata"]["finalizers"][0] == "kubernetes.io/pvc-protection"
    });

    let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    let mut user = pod("user", "node-1");
    user["spec"]["volumes"] = volumes;
    plane.post("/api/v1/namespaces/shop/pods", &user).expect(201);
    plane.delete(&data).expect(200);
    let other = claim("other", "1Gi");
    plane.post(CLAIMS, &other).expect(201);
    eventually("the other is bound", || phase(&plane, &format!("{CLAIMS}/other")) == "Bound");
    plane.get(&data).expect(200);
    let now = json!({"gracePeriodSeconds": 0});
    plane.delete_with("/api/v1/namespaces/shop/pods/user", &now).expect(200);
    eventually("nobody uses it", || plane.get(&data).code == 404);
    let right = format!("{VOLUMES}/right");
    eventually("the volume is released", || phase(&plane, &right) == "Released");
    plane.delete(&right).expect(200);
    eventually("it goes", || plane.get(&right).code == 404);
}

#[test]
fn claims_wait_for_what_comes_later() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    namespace(&plane, "shop");
    plane.post(CLAIMS, &claim("data", "5Gi")).expect(201);
    let data = format!("{CLAIMS}/data");
    eventually("it waits, and says why", || {
        let events = plane.get("/api/v1/namespaces/shop/events").json();
        let events = events["items"].as_array().unwrap().clone();
        phase(&plane, &data) == "Pending"
            && events.iter().any(|event| {
                event["reason"] == "ProvisioningFailed"
                    && event["message"] == "storageclass.storage.k8s.io \"manual\" not found"
                    && event["involvedObject"]["name"] == "data"
                    && event["source"]["component"] == "persistentvolume-controller"
            })
    });
    plane.post(VOLUMES, &volume("late", "5Gi")).expect(201);
    eventually("it is bound", || phase(&plane, &data) == "Bound");
    eventually("it is held", || {
        plane.get(&format!("{VOLUMES}/late")).json()["metadata"]["finalizers"][0]
            == "kubernetes.io/pv-protection"
    });
    plane.delete(&format!("{VOLUMES}/late")).expect(200);
    eventually("a bound volume stays", || {
        !plane.get(&format!("{VOLUMES}/late")).json()["metadata"]["deletionTimestamp"].is_null()
    });
    plane.delete(&data).expect(200);
    eventually("both go", || {
        plane.get(&data).code == 404 && plane.get(&format!("{VOLUMES}/late")).code == 404
    });

    let class = json!({
        "metadata": {"name": "disk", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/disk",
    });
    let mut plain = claim("plain", "1Gi");
    plain["spec"].as_object_mut().unwrap().remove("storageClassName");
    plane.post(CLAIMS, &plain).expect(201);
    plane.post("/apis/storage.k8s.io/v1/storageclasses", &class).expect(201);
    eventually("it is given the default class and waits for its provisioner", || {
        let claim = plane.get(&format!("{CLAIMS}/plain")).json();
        claim["spec"]["storageClassName"] == "disk"
            && claim["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"]
                == "example.com/disk"
    });
}

#[test]
fn a_pod_gets_claims_of_its_own() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    namespace(&plane, "shop");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": claim("", "1Gi")["spec"]});
    let mut user = pod("user", "");
    user["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
    let made = plane.post("/api/v1/namespaces/shop/pods", &user).expect(201).json();
    let scratch = format!("{CLAIMS}/user-scratch");
    eventually("it is there", || plane.get(&scratch).code == 200);
    let claim = plane.get(&scratch).json();
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"], "{claim}");
    assert_eq!(claim["metadata"]["labels"]["a"], "b", "{claim}");
    plane.delete(&scratch).expect(200);
    eventually("it is made again", || {
        plane.get(&scratch).json()["metadata"]["uid"]
            .as_str()
            .is_some_and(|uid| claim["metadata"]["uid"] != uid)
    });
}
