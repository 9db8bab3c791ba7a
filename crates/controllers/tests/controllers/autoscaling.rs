//! Autoscalers, on pods that say what they use.

use polder_test_support::{TestServer, Value, json};

use crate::world::eventually;

const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn condition(autoscaler: &Value, kind: &str) -> Value {
    let conditions = autoscaler["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
}

#[test]
fn autoscalers_follow_their_metrics() {
    let server = TestServer::start();
    let plane = json!({
        "apiVersion": "polder.dev/v1alpha1", "kind": "Plane", "metadata": {"name": "acme"},
        "spec": {"simulatedNodes": 1},
    });
    server.admin.post("/apis/polder.dev/v1alpha1/planes", &plane).expect(201);
    let plane = server.admin.in_plane("acme");
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}});
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {
                    "labels": {"app": "web"}, "annotations": {"polder.dev/simulated-cpu": "150m"},
                },
                "spec": {"containers": [container]},
            },
        },
    });
    plane.post(DEPLOYMENTS, &deployment).expect(201);
    let status = || plane.get(&format!("{DEPLOYMENTS}/web")).json()["status"]["readyReplicas"].clone();
    eventually("it runs", || status() == 1);
    let autoscaler = json!({
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
            }}],
        },
    });
    plane.post(AUTOSCALERS, &autoscaler).expect(201);
    let read = || plane.get(&format!("{AUTOSCALERS}/web")).json();
    eventually("it scales", || plane.get(&format!("{DEPLOYMENTS}/web")).json()["spec"]["replicas"] == 3);
    eventually("it says so", || condition(&read(), "ScalingActive")["reason"] == "ValidMetricFound");
    let found = read();
    assert_eq!(condition(&found, "AbleToScale")["reason"], "SucceededRescale");
    let current = &found["status"]["currentMetrics"][0]["resource"]["current"];
    assert_eq!(*current, json!({"averageUtilization": 150, "averageValue": "150m"}));
    assert_eq!(found["status"]["desiredReplicas"], 3);
    assert!(found["status"]["lastScaleTime"].is_string());
}

#[test]
fn autoscalers_tell_what_they_lack() {
    let server = TestServer::start();
    let plane = server.plane("acme");
    let autoscaler = |name: &str, target: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}, "maxReplicas": 3,
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
                }}],
            },
        })
    };
    plane.post(AUTOSCALERS, &autoscaler("lost", "nobody")).expect(201);
    let read = |name: &str| plane.get(&format!("{AUTOSCALERS}/{name}")).json();
    eventually("there is no target", || condition(&read("lost"), "AbleToScale")["status"] == "False");
    let message = condition(&read("lost"), "AbleToScale")["message"].to_string();
    assert!(message.contains("deployments.apps \\\"nobody\\\" not found"), "{message}");

    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    plane.post(DEPLOYMENTS, &deployment).expect(201);
    plane.post(AUTOSCALERS, &autoscaler("web", "web")).expect(201);
    let reason = || condition(&read("web"), "ScalingActive")["reason"].clone();
    eventually("there are no metrics", || reason() == "FailedGetResourceMetric");
    let message = condition(&read("web"), "ScalingActive")["message"].to_string();
    let expected = "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get \
                    metrics for resource cpu: unable to fetch metrics from resource metrics API: the server could \
                    not find the requested resource (get pods.metrics.k8s.io)";
    assert!(message.contains(expected), "{message}");
    assert_eq!(plane.get(&format!("{DEPLOYMENTS}/web")).json()["spec"]["replicas"], 1);
}
