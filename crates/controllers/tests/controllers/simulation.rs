//! Planes with simulated nodes: pods find a place, run, make room and stop.

use polder_test_support::{Client, TestServer, eventually};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PLANES: &str = "/apis/polder.dev/v1alpha1/planes";

fn plane(server: &TestServer, name: &str, nodes: u32) -> Client {
    let plane = json!({
        "apiVersion": "polder.dev/v1alpha1", "kind": "Plane",
        "metadata": {"name": name}, "spec": {"simulatedNodes": nodes},
    });
    server.admin.post(PLANES, &plane).expect(201);
    let plane = server.admin.in_plane(name);
    eventually("the nodes are there", || items(&plane, "/api/v1/nodes").len() == nodes as usize);
    plane
}

fn items(plane: &Client, path: &str) -> Vec<Value> {
    plane.get(path).expect(200).json()["items"].as_array().cloned().unwrap_or_default()
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn phase(plane: &Client, name: &str) -> String {
    plane.get(&format!("{PODS}/{name}")).json()["status"]["phase"].as_str().unwrap_or_default().into()
}

fn condition(plane: &Client, name: &str, kind: &str) -> Value {
    let pod = plane.get(&format!("{PODS}/{name}")).json();
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|own| own["type"] == kind).unwrap_or_default()
}

#[test]
fn deployments_come_up_and_go() {
    let server = TestServer::start();
    let (a, b) = (plane(&server, "a", 2), server.plane("b"));
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        }},
    });
    for plane in [&a, &b] {
        plane.post(DEPLOYMENTS, &deployment).expect(201);
    }
    let available = |plane: &Client| {
        plane.get(&format!("{DEPLOYMENTS}/web")).json()["status"]["availableReplicas"].clone()
    };
    eventually("all are available", || available(&a) == 5);
    let nodes: std::collections::BTreeSet<String> =
        items(&a, PODS).iter().filter_map(|pod| pod["spec"]["nodeName"].as_str().map(String::from)).collect();
    assert_eq!(nodes.len(), 2, "they are spread");
    assert!(items(&b, PODS).iter().all(|pod| pod["spec"]["nodeName"].is_null()), "b has no nodes");

    let patch =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:404"}]}}}});
    a.patch(&format!("{DEPLOYMENTS}/web"), "strategic-merge", &patch).expect(200);
    eventually("the new image cannot be had", || {
        let waits = |pod: &Value| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"
        };
        items(&a, PODS).iter().any(waits)
    });
    assert!(available(&a).as_i64() >= Some(4), "and so the old pods stay");

    a.delete(&format!("{DEPLOYMENTS}/web")).expect(200);
    eventually("the pods are gone", || items(&a, PODS).is_empty());
}

#[test]
fn a_running_pod_that_is_changed_is_seen() {
    let server = TestServer::start();
    let a = plane(&server, "a", 1);
    a.post(PODS, &pod("p", json!({}))).expect(201);
    eventually("it runs", || phase(&a, "p") == "Running");
    let change = json!({"spec": {"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.9"}]}});
    let changed = a.patch(&format!("{PODS}/p"), "strategic-merge", &change).expect(200).json();
    assert_eq!(changed["metadata"]["generation"], 2);
    eventually("its kubelet has seen it", || {
        a.get(&format!("{PODS}/p")).json()["status"]["observedGeneration"] == 2
    });
    assert_eq!(phase(&a, "p"), "Running");
}

/// Pods wait for their volumes and devices, are told so, and go on when those are there.
#[test]
fn pods_wait_for_what_they_claim() {
    const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
    const DEVICES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let server = TestServer::start();
    let a = plane(&server, "a", 2);
    let with =
        |claim: &str| json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]});
    let volume = |class: &str| {
        json!({"metadata": {"name": class}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "hostPath": {"path": "/x"},
        }})
    };
    let claim = |name: &str, class: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
        }})
    };
    let waits = |name: &str, why: &str| {
        let why = format!("0/2 nodes are available: {why}.");
        eventually(&format!("{name}: {why}"), || {
            let told = condition(&a, name, "PodScheduled");
            told["status"] == "False" && told["reason"] == "Unschedulable" && told["message"] == why.as_str()
        });
        assert_eq!(phase(&a, name), "Pending");
    };
    let runs = |name: &str| eventually(name, || phase(&a, name) == "Running");

    a.post(PODS, &pod("soon", with("soon"))).expect(201);
    waits("soon", "persistentvolumeclaim \"soon\" not found");
    a.post(CLAIMS, &claim("soon", "now")).expect(201);
    waits("soon", "pod has unbound immediate PersistentVolumeClaims");
    a.post("/api/v1/persistentvolumes", &volume("now")).expect(201);
    runs("soon");

    let class = json!({
        "metadata": {"name": "later"}, "provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer",
    });
    a.post("/apis/storage.k8s.io/v1/storageclasses", &class).expect(201);
    a.post(CLAIMS, &claim("later", "later")).expect(201);
    a.post(PODS, &pod("later", with("later"))).expect(201);
    let selected = || {
        let claim = a.get(&format!("{CLAIMS}/later")).json();
        claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].as_str().map(String::from)
    };
    eventually("a node is chosen", || selected().is_some());
    // One that must be elsewhere does not move it.
    let (nodes, first) = (a.get("/api/v1/nodes").expect(200).json(), selected());
    let mut names =
        nodes["items"].as_array().unwrap().iter().map(|node| node["metadata"]["name"].as_str().unwrap());
    let other = names.find(|name| Some(*name) != first.as_deref()).unwrap();
    let mut elsewhere = with("later");
    elsewhere["nodeSelector"] = json!({"kubernetes.io/hostname": other});
    a.post(PODS, &pod("elsewhere", elsewhere)).expect(201);
    waits("elsewhere", "2 node(s) didn't find available persistent volumes to bind");
    assert_eq!(selected(), first);
    a.delete(&format!("{PODS}/elsewhere")).expect(200);
    assert!(a.get(&format!("{PODS}/later")).json()["spec"]["nodeName"].is_null(), "its volume is not there");
    a.post("/api/v1/persistentvolumes", &volume("later")).expect(201);
    runs("later");
    assert_eq!(a.get(&format!("{PODS}/later")).json()["spec"]["nodeName"].as_str(), selected().as_deref());

    let wants = json!({"resourceClaims": [{"name": "d", "resourceClaimName": "device"}]});
    a.post(PODS, &pod("device", wants)).expect(201);
    waits("device", "resourceclaim.resource.k8s.io \"device\" not found");
    let wanted = json!({"metadata": {"name": "device"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "c"}},
    ]}}});
    a.post(DEVICES, &wanted).expect(201);
    waits("device", "cannot allocate all claims");
    let result = json!({"request": "r", "driver": "d.example", "pool": "p", "device": "one"});
    let allocation = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    a.patch(&format!("{DEVICES}/device/status"), "merge", &allocation).expect(200);
    runs("device");
}

#[test]
fn pods_wait_for_a_place_and_are_told_why() {
    let server = TestServer::start();
    let a = plane(&server, "a", 1);
    let requests = |cpu: &str| json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]});
    a.post(PODS, &pod("first", requests("10"))).expect(201);
    eventually("the first one runs", || phase(&a, "first") == "Running");
    a.post(PODS, &pod("second", requests("10"))).expect(201);
    a.post(PODS, &pod("elsewhere", json!({"nodeSelector": {"zone": "x"}}))).expect(201);
    eventually("the second one is told", || {
        condition(&a, "second", "PodScheduled")["message"]
            == "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found \
                for incoming pod."
    });
    eventually("and so is the third", || {
        condition(&a, "elsewhere", "PodScheduled")["reason"] == "Unschedulable"
    });
    eventually("people are told", || {
        let events = a.get("/api/v1/namespaces/default/events").expect(200).json();
        events["items"].as_array().unwrap().iter().any(|event| {
            event["reason"] == "FailedScheduling" && event["involvedObject"]["name"] == "elsewhere"
        })
    });
    a.delete(&format!("{PODS}/first")).expect(200);
    eventually("the second one runs", || phase(&a, "second") == "Running");

    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000,
    });
    a.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).expect(201);
    let mut important = requests("12");
    important["priorityClassName"] = json!("high");
    a.post(PODS, &pod("important", important)).expect(201);
    eventually("the important one runs", || phase(&a, "important") == "Running");
    assert_eq!(a.get(&format!("{PODS}/second")).code, 404, "the other made room");
    let said = |reason: &str, name: &str| {
        let events = items(&a, "/api/v1/namespaces/default/events");
        events.iter().any(|event| event["reason"] == reason && event["involvedObject"]["name"] == name)
    };
    eventually("what happened is told", || said("Scheduled", "important") && said("Preempted", "second"));
}

#[test]
fn nodes_come_back_and_pods_end_at_their_deadline() {
    let server = TestServer::start();
    let a = plane(&server, "a", 2);
    a.delete("/api/v1/nodes/simulated-1").expect(200);
    eventually("the node is back", || a.get("/api/v1/nodes/simulated-1").code == 200);
    assert_eq!(items(&a, "/api/v1/nodes").len(), 2);
    a.post(PODS, &pod("short", json!({"activeDeadlineSeconds": 1, "restartPolicy": "Never"}))).expect(201);
    eventually("it ends", || phase(&a, "short") == "Failed");
    assert_eq!(a.get(&format!("{PODS}/short")).json()["status"]["reason"], "DeadlineExceeded");
}

#[test]
fn pods_keep_away_from_each_other() {
    let server = TestServer::start();
    let a = plane(&server, "a", 2);
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"group": "x"}}},
    ]}}});
    for number in 0..3 {
        let mut pod = pod(&format!("p{number}"), apart.clone());
        pod["metadata"]["labels"] = json!({"group": "x"});
        a.post(PODS, &pod).expect(201);
    }
    let running = || items(&a, PODS).iter().filter(|pod| pod["status"]["phase"] == "Running").count();
    eventually("two of them run", || running() == 2);
    eventually("the third one is told", || {
        let told = |pod: &Value| pod["status"]["conditions"][0]["reason"] == "Unschedulable";
        items(&a, PODS).iter().any(told)
    });
    server.admin.patch(&format!("{PLANES}/a"), "merge", &json!({"spec": {"simulatedNodes": 3}})).expect(200);
    eventually("the third one runs", || running() == 3);
    server.admin.patch(&format!("{PLANES}/a"), "merge", &json!({"spec": {"simulatedNodes": 0}})).expect(200);
    eventually("the nodes are gone", || items(&a, "/api/v1/nodes").is_empty());
}

#[test]
fn pods_that_fit_nowhere_keep_nobody_waiting() {
    let server = TestServer::start();
    let a = plane(&server, "a", 1);
    // More than one turn looks at, and all of them before the one that fits.
    let replicas = json!({
        "metadata": {"name": "nowhere"},
        "spec": {"replicas": 620, "selector": {"app": "nowhere"}, "template": {
            "metadata": {"labels": {"app": "nowhere"}},
            "spec": {"nodeSelector": {"zone": "x"}, "containers": [{"name": "c", "image": "i"}]},
        }},
    });
    a.post("/api/v1/namespaces/default/replicationcontrollers", &replicas).expect(201);
    let told = || {
        let told = |pod: &&Value| pod["status"]["conditions"][0]["reason"] == "Unschedulable";
        items(&a, PODS).iter().filter(told).count()
    };
    eventually("all of them are told", || told() == 620);
    a.post(PODS, &pod("ordinary", json!({}))).expect(201);
    eventually("the ordinary one runs", || phase(&a, "ordinary") == "Running");
}
