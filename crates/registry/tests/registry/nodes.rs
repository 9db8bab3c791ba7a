//! What nodes see of a plane, by the pods that are bound to them.

use crate::world::{Plane, World, code};
use polder_model::{Value, json};
use polder_registry::write::PatchKind;

fn node<'a>(plane: &Plane<'a>, name: &str) -> Plane<'a> {
    plane.as_user(&format!("system:node:{name}"), &["system:nodes"])
}

fn pod(name: &str, node: &str, volumes: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": volumes, "automountServiceAccountToken": false}})
}

async fn sees(node: &Plane<'_>, path: &str) -> bool {
    match node.get(path).await {
        Ok(_) => true,
        Err(status) => {
            assert_eq!(status.code, 403, "{path}: {}", status.message);
            let why = "no relationship found between node";
            assert!(status.message.contains(why), "{path}: {}", status.message);
            false
        }
    }
}

async fn with_objects(plane: &Plane<'_>) {
    for name in ["s", "t", "staged"] {
        plane.create("v1/secrets/default", json!({"metadata": {"name": name}})).await.unwrap();
    }
    plane.create("v1/configmaps/default", json!({"metadata": {"name": "m"}})).await.unwrap();
}

const NOW: &str = r#"{"gracePeriodSeconds":0}"#;

/// A node sees what its pods refer to from the next request on, as long as they are there; other nodes and planes do not.
#[tokio::test]
async fn nodes_see_what_their_pods_need() {
    let world = World::new();
    let (acme, other) = (world.plane("acme", json!({})).await, world.plane("other", json!({})).await);
    with_objects(&acme).await;
    with_objects(&other).await;
    let (a, b, elsewhere) = (node(&acme, "a"), node(&acme, "b"), node(&other, "a"));
    let (secret, map, pod_path) = ("v1/secrets/default/s", "v1/configmaps/default/m", "v1/pods/default/p");
    assert!(!sees(&a, secret).await && !sees(&a, map).await);
    let volumes =
        json!([{"name": "s", "secret": {"secretName": "s"}}, {"name": "m", "configMap": {"name": "m"}}]);
    acme.create("v1/pods/default", pod("p", "a", volumes.clone())).await.unwrap();
    assert!(sees(&a, secret).await && sees(&a, map).await && sees(&a, pod_path).await);
    assert!(!sees(&a, "v1/secrets/default/t").await);
    assert!(!sees(&b, secret).await && !sees(&b, pod_path).await);
    assert!(!sees(&elsewhere, secret).await && !sees(&elsewhere, pod_path).await);
    let said = code(a.list("v1/secrets/default", &[]).await);
    assert!(said.0 == 403 && said.1.ends_with(": No Object name found"), "{}", said.1);
    a.list("v1/secrets/default", &[("fieldSelector", "metadata.name=s")]).await.unwrap();

    // Pods are listed by node.
    let said = code(a.list("v1/pods", &[]).await);
    assert!(said.1.ends_with("can only list/watch pods with spec.nodeName field selector"), "{}", said.1);
    let (names, _) = a.list("v1/pods", &[("fieldSelector", "spec.nodeName=a")]).await.unwrap();
    assert_eq!(names, ["default/p"]);
    code(a.list("v1/pods", &[("fieldSelector", "spec.nodeName=b")]).await);

    // A pod that comes, one that goes.
    acme.create("v1/pods/default", pod("q", "b", volumes)).await.unwrap();
    assert!(sees(&b, secret).await);
    acme.delete(pod_path, Value::parse(NOW.as_bytes()).unwrap()).await.unwrap();
    assert!(!sees(&a, secret).await && sees(&b, secret).await);

    // A fork has the pods of its source, and goes on by itself.
    let fork = world.plane("fork", json!({"forkFrom": "acme"})).await;
    let there = node(&fork, "b");
    assert!(sees(&there, secret).await);
    acme.delete("v1/pods/default/q", Value::parse(NOW.as_bytes()).unwrap()).await.unwrap();
    assert!(sees(&there, secret).await && !sees(&b, secret).await);
}

/// Volumes lead from a claim to the secrets they are mounted with.
#[tokio::test]
async fn nodes_see_what_volumes_need() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    with_objects(&acme).await;
    let (a, b) = (node(&acme, "a"), node(&acme, "b"));
    let size = json!({"requests": {"storage": "1Gi"}});
    acme.create(
        "v1/persistentvolumeclaims/default",
        json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": size, "volumeName": "v", "storageClassName": ""}}),
    )
    .await
    .unwrap();
    let claim = |name: &str| json!({"namespace": "default", "name": name, "kind": "PersistentVolumeClaim", "apiVersion": "v1"});
    let volume = json!({"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": (claim("c")),
        "csi": {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": {"namespace": "default", "name": "staged"}}}});
    acme.create("v1/persistentvolumes", volume).await.unwrap();
    let (claims, volumes) = ("v1/persistentvolumeclaims/default/c", "v1/persistentvolumes/v");
    let secret = "v1/secrets/default/staged";
    assert!(!sees(&a, claims).await && !sees(&a, volumes).await && !sees(&a, secret).await);
    let mounted = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    acme.create("v1/pods/default", pod("p", "a", mounted)).await.unwrap();
    assert!(sees(&a, claims).await && sees(&a, volumes).await && sees(&a, secret).await);
    assert!(!sees(&b, claims).await && !sees(&b, volumes).await && !sees(&b, secret).await);
    // One that says it is bound, by a volume that is bound to another.
    acme.patch(volumes, PatchKind::Merge, json!({"spec": {"claimRef": null}})).await.unwrap();
    acme.patch(volumes, PatchKind::Merge, json!({"spec": {"claimRef": (claim("other"))}})).await.unwrap();
    assert!(sees(&a, claims).await && !sees(&a, volumes).await && !sees(&a, secret).await);
}

/// However many pods change between two questions, the next answer is right.
#[tokio::test]
async fn many_changed_pods_are_read_again() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    with_objects(&acme).await;
    let a = node(&acme, "a");
    assert!(!sees(&a, "v1/secrets/default/s").await);
    for number in 0..1_100 {
        acme.create("v1/pods/default", pod(&format!("p{number}"), "b", json!([]))).await.unwrap();
    }
    let volumes = json!([{"name": "s", "secret": {"secretName": "s"}}]);
    acme.create("v1/pods/default", pod("last", "a", volumes)).await.unwrap();
    assert!(sees(&a, "v1/secrets/default/s").await);
}

/// What nodes are and what they write is their own.
#[tokio::test]
async fn nodes_write_what_is_theirs() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    let a = node(&acme, "a");
    a.create("v1/nodes", json!({"metadata": {"name": "a", "labels": {"kubernetes.io/os": "linux"}}}))
        .await
        .unwrap();
    let said = code(a.create("v1/nodes", json!({"metadata": {"name": "b"}})).await).1;
    assert_eq!(said, r#"nodes "b" is forbidden: node "a" is not allowed to modify node "b""#);
    let taints = json!({"spec": {"taints": []}});
    let said = code(a.patch("v1/nodes/a", PatchKind::Merge, taints).await).1;
    assert!(said.ends_with(r#"node "a" is not allowed to modify taints"#), "{said}");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    a.patch("v1/nodes/a/status", PatchKind::Merge, ready).await.unwrap();
    let lease = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "a"}});
    a.create("coordination.k8s.io/v1/leases/kube-node-lease", lease.clone()).await.unwrap();
    code(a.create("coordination.k8s.io/v1/leases/default", lease).await);
    a.get("v1/services/default/kubernetes").await.unwrap();
    code(a.get("v1/namespaces/default").await);
    let said = code(a.create("v1/pods/default", pod("p", "a", json!([]))).await).1;
    assert!(said.contains("node \"a\" can only create mirror pods"), "{said}");
    // Whoever is only called so is nobody.
    code(acme.as_user("system:node:a", &[]).get("v1/nodes/a").await);
    let rules = json!({"spec": {"namespace": "default"}});
    let said = a.create("authorization.k8s.io/v1/selfsubjectrulesreviews", rules).await.unwrap();
    let problem = "node authorizer does not support user rule resolution";
    assert_eq!(said.str_at(&["status", "evaluationError"]), Some(problem));
}
