//! What a client reads and writes back unchanged changes nothing, in any form.

use polder_machinery::protobuf;
use polder_machinery::schema::table::builtin;
use polder_model::{Value, json};

use crate::world::{Plane, World};

/// Reads an object as a client of Go does, which keeps no zeros, and writes it back.
async fn check(plane: &Plane<'_>, path: &str) {
    let before = plane.get(path).await.unwrap();
    let target = plane.target(path).await;
    let type_name = target.served().type_name.clone();
    let message = builtin().message(&type_name).expect("a built-in kind has a message");
    let mut bytes = Vec::new();
    protobuf::encode(&before, message, &mut bytes);
    let mut again = protobuf::decode(&bytes, message).unwrap();
    for key in ["kind", "apiVersion"] {
        again.set_at(&[key], before.get(key).cloned().unwrap());
    }
    let after = plane.update(path, again).await.unwrap();
    assert_eq!(after.to_string(), before.to_string(), "{path}");
}

#[tokio::test]
async fn what_every_plane_begins_with() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    for resource in [
        "v1/namespaces",
        "v1/services/default",
        "v1/endpoints/default",
        "v1/configmaps/kube-system",
        "v1/serviceaccounts/default",
        "discovery.k8s.io/v1/endpointslices/default",
        "networking.k8s.io/v1/ipaddresses",
        "networking.k8s.io/v1/servicecidrs",
        "apiregistration.k8s.io/v1/apiservices",
        "rbac.authorization.k8s.io/v1/clusterroles",
        "rbac.authorization.k8s.io/v1/clusterrolebindings",
        "rbac.authorization.k8s.io/v1/roles/kube-system",
        "rbac.authorization.k8s.io/v1/rolebindings/kube-system",
        "scheduling.k8s.io/v1/priorityclasses",
        "flowcontrol.apiserver.k8s.io/v1/flowschemas",
        "flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    ] {
        let (names, _) = plane.list(resource, &[]).await.unwrap();
        for name in names {
            let name = name.rsplit('/').next().unwrap_or_default().to_string();
            check(&plane, &format!("{resource}/{name}")).await;
        }
    }
}

#[tokio::test]
async fn zeros_are_nothing() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let container = json!({
        "name": "c", "image": "i", "tty": false, "stdin": false, "workingDir": "", "env": [{"name": "E", "value": ""}],
        "ports": [{"containerPort": 80, "hostPort": 0, "name": ""}], "terminationMessagePath": "",
    });
    let template = |restart: &str| {
        json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "hostNetwork": false, "nodeName": "", "priorityClassName": "", "restartPolicy": restart,
                "containers": [(container.clone())],
            },
        })
    };
    let selector = json!({"matchLabels": {"a": "b"}});
    let objects = [
        (
            "apps/v1/deployments/default",
            json!({
                "selector": (selector.clone()), "paused": false, "minReadySeconds": 0, "template": (template("")),
            }),
        ),
        (
            "apps/v1/daemonsets/default",
            json!({"selector": (selector.clone()), "template": (template("Always"))}),
        ),
        (
            "apps/v1/statefulsets/default",
            json!({
                "selector": (selector.clone()), "serviceName": "", "template": (template("Always")),
            }),
        ),
        ("batch/v1/jobs/default", json!({"suspend": false, "template": (template("Never"))})),
        (
            "v1/services/default",
            json!({"ports": [{"port": 80, "nodePort": 0, "name": ""}], "externalName": ""}),
        ),
        (
            "v1/persistentvolumes",
            json!({
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                "hostPath": {"path": "/x", "type": ""},
            }),
        ),
        (
            "v1/persistentvolumeclaims/default",
            json!({
                "accessModes": ["ReadWriteOnce"], "volumeName": "", "resources": {"requests": {"storage": "1Gi"}},
            }),
        ),
        ("storage.k8s.io/v1/csinodes", json!({"drivers": []})),
        (
            "policy/v1/poddisruptionbudgets/default",
            json!({"minAvailable": 0, "selector": (selector.clone())}),
        ),
        (
            "apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "things", "singular": "", "kind": "Thing", "listKind": ""},
                "versions": [{"name": "v1", "served": true, "storage": true, "deprecated": false, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": {"type": "object", "nullable": false, "properties": {
                        "n": {"type": "integer", "minimum": 0, "default": 0},
                        "f": {"type": "number", "maximum": (Value::Float(1.5)), "exclusiveMaximum": false},
                    }}},
                }}}],
            }),
        ),
    ];
    for (path, spec) in objects {
        let name = if path.ends_with("customresourcedefinitions") { "things.example.com" } else { "one" };
        let made = plane.create(path, json!({"metadata": {"name": name}, "spec": spec})).await;
        let made = made.unwrap_or_else(|status| panic!("{path}: {}", status.message));
        for text in [
            r#""hostNetwork""#,
            r#""tty""#,
            r#""nodePort":0"#,
            r#""value":"""#,
            r#""paused""#,
            r#""workingDir""#,
        ] {
            assert!(!made.to_string().contains(text), "{path} has {text}: {made}");
        }
        check(&plane, &format!("{path}/{name}")).await;
    }
    let slice = json!({"metadata": {"name": "one"}, "addressType": "IPv4", "endpoints": [], "ports": []});
    plane.create("discovery.k8s.io/v1/endpointslices/default", slice).await.unwrap();
    check(&plane, "discovery.k8s.io/v1/endpointslices/default/one").await;
    let event = json!({
        "metadata": {"name": "one"}, "reason": "r", "message": "m", "type": "Normal", "count": 1,
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "source": {"component": "c"},
        "reportingComponent": "", "reportingInstance": "", "eventTime": (Value::Null),
    });
    plane.create("v1/events/default", event).await.unwrap();
    check(&plane, "v1/events/default/one").await;
}
