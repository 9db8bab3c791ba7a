//! Webhooks through the verbs, with a client that answers from memory.

use std::sync::Arc;
use std::time::Duration;

use crate::world::{World, code};
use base64::Engine as _;
use parking_lot::Mutex;
use polder_model::{Value, json};
use polder_registry::webhooks::{Posting, WebhookCall, WebhookClient};
use polder_registry::write::PatchKind;

const MUTATING: &str = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MAPS: &str = "v1/configmaps/default";

/// Answers by address, and keeps what it was asked.
#[derive(Default)]
struct Answers {
    asked: Mutex<Vec<(String, Value)>>,
}

impl WebhookClient for Answers {
    fn post<'a>(&'a self, call: WebhookCall<'a>) -> Posting<'a> {
        let review = Value::parse(&call.body).unwrap();
        self.asked.lock().push((call.url.clone(), review.clone()));
        let patch = |operations: Value| {
            let patch = base64::engine::general_purpose::STANDARD.encode(operations.to_vec());
            json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"})
        };
        let answer = |mut response: Value| {
            response.set_at(&["uid"], review.at(&["request", "uid"]).cloned().unwrap());
            Ok(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
                .to_vec())
        };
        let outcome = match call.url.as_str() {
            "https://label.test/?timeout=10s" => answer(patch(json!([
                {"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}},
                {"op": "add", "path": "/metadata/uid", "value": "forged"},
                {"op": "add", "path": "/metadata/managedFields", "value": []},
                {"op": "add", "path": "/unknown", "value": 1},
            ]))),
            "https://no.test/?timeout=10s" => answer(json!({"allowed": false, "status": {"message": "no"}})),
            "https://elsewhere.test/?timeout=10s" => {
                answer(patch(json!([{"op": "add", "path": "/metadata/namespace", "value": "kube-system"}])))
            }
            url if url.starts_with("https://hangs.test/") => {
                return Box::pin(async {
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                    Err("woke up".into())
                });
            }
            url => Err(format!("Post {url:?}: nobody is there")),
        };
        Box::pin(std::future::ready(outcome))
    }
}

fn configuration(name: &str, url: &str, more: Value) -> Value {
    let mut webhook = json!({
        "name": (format!("{name}.example.com")), "clientConfig": {"url": url}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    });
    for (key, value) in more.as_object().unwrap().iter() {
        webhook.set_at(&[key], value.clone());
    }
    json!({"metadata": {"name": name}, "webhooks": [webhook]})
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

fn world() -> (World, Arc<Answers>) {
    let (world, answers) = (World::new(), Arc::new(Answers::default()));
    world.registry.set_webhook_client(answers.clone());
    (world, answers)
}

#[tokio::test]
async fn a_webhook_changes_what_it_may() {
    let (world, answers) = world();
    let (plane, other) = (world.plane("acme", json!({})).await, world.plane("globex", json!({})).await);
    plane.create(MUTATING, configuration("a", "https://label.test/", json!({}))).await.unwrap();
    let made = plane.create(MAPS, map("m")).await.unwrap();
    assert_eq!(made.str_at(&["metadata", "labels", "seen"]), Some("yes"));
    assert_ne!(made.str_at(&["metadata", "uid"]), Some("forged"));
    assert!(made.get("unknown").is_none() && !made.array_at(&["metadata", "managedFields"]).is_empty());
    let asked = answers.asked.lock().remove(0).1;
    let request = asked.get("request").unwrap();
    assert!(request.at(&["object", "metadata", "uid"]).is_none(), "what the server sets comes later");
    assert_eq!(request.str_at(&["object", "kind"]), Some("ConfigMap"));
    assert_eq!(request.str_at(&["namespace"]), Some("default"));
    other.create(MAPS, map("m")).await.unwrap();
    assert!(answers.asked.lock().is_empty(), "another plane has its own");
    plane.delete("v1/configmaps/default/m", json!({})).await.unwrap_err();
    plane.delete(&format!("{MUTATING}/a"), json!({})).await.unwrap();
    plane.create(MUTATING, configuration("b", "https://elsewhere.test/", json!({}))).await.unwrap();
    assert_eq!(code(plane.create(MAPS, map("n")).await).0, 400);
}

#[tokio::test]
async fn a_webhook_refuses() {
    let (world, _) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(MAPS, map("m")).await.unwrap();
    plane.create(VALIDATING, configuration("v", "https://no.test/", json!({}))).await.unwrap();
    let said = "admission webhook \"v.example.com\" denied the request: no";
    assert_eq!(code(plane.create(MAPS, map("n")).await), (400, said.to_owned()));
    let patch = json!({"data": {"a": "b"}});
    assert_eq!(
        code(plane.patch("v1/configmaps/default/m", PatchKind::Merge, patch).await),
        (400, said.to_owned())
    );
    assert_eq!(code(plane.delete("v1/configmaps/default/m", json!({})).await), (400, said.to_owned()));
    // Nobody is asked about webhooks.
    plane.delete(&format!("{VALIDATING}/v"), json!({})).await.unwrap();
    plane.create(MAPS, map("n")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dead_webhook_costs_its_time() {
    let (world, _) = world();
    let plane = world.plane("acme", json!({})).await;
    let slow = json!({"timeoutSeconds": 1});
    plane.create(VALIDATING, configuration("v", "https://hangs.test/", slow)).await.unwrap();
    let why = "Internal error occurred: failed calling webhook \"v.example.com\": failed to call webhook: Post \"https://hangs.test/?timeout=1s\": context deadline exceeded";
    assert_eq!(code(plane.create(MAPS, map("n")).await), (500, why.to_owned()));
    plane.delete(&format!("{VALIDATING}/v"), json!({})).await.unwrap();
    let open = json!({"timeoutSeconds": 1, "failurePolicy": "Ignore"});
    plane.create(VALIDATING, configuration("v", "https://hangs.test/", open)).await.unwrap();
    plane.create(MAPS, map("n")).await.unwrap();
}

/// Planes whose webhooks hang do not keep others from getting their default roles back.
#[tokio::test]
async fn default_roles_come_back_though_others_wait() {
    const ROLE: &str = "rbac.authorization.k8s.io/v1/clusterroles/system:basic-user";
    let (world, answers) = world();
    let names = ["a", "b", "c", "quick"];
    for name in names {
        let plane = world.plane(name, json!({})).await;
        plane.delete(ROLE, json!({})).await.unwrap();
        if name != "quick" {
            let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["clusterroles"]}]);
            let slow = json!({"timeoutSeconds": 30, "rules": rules});
            plane.create(VALIDATING, configuration("v", "https://hangs.test/", slow)).await.unwrap();
        }
    }
    let restarted = World { registry: world.again() };
    restarted.registry.set_webhook_client(answers.clone());
    let ids = names.map(|name| restarted.registry.store.plane(name).unwrap().id);
    let hanging = [0, 1, 2].map(|at| {
        let (registry, id) = (restarted.registry.clone(), ids[at]);
        restarted.registry.tasks.spawn(async move { registry.resume_chores(id).await })
    });
    restarted.until("all webhooks are asked", || answers.asked.lock().len() == hanging.len()).await;
    restarted.registry.resume_chores(ids[3]).await;
    crate::world::Plane::new(&restarted, "quick").get(ROLE).await.unwrap();
    for task in hanging {
        assert!(!task.is_finished());
        task.abort();
    }
}

#[tokio::test]
async fn a_service_without_anybody_behind_it_is_told_as_upstream_tells_it() {
    let (world, _) = world();
    let plane = world.plane("acme", json!({})).await;
    let mut hook = configuration("v", "https://no.test/", json!({}));
    let Some(Value::Array(webhooks)) = hook.at_mut(&["webhooks"]) else { panic!() };
    webhooks[0]
        .set_at(&["clientConfig"], json!({"service": {"name": "s", "namespace": "default", "path": "/v"}}));
    plane.create(VALIDATING, hook).await.unwrap();
    let failed = |why: &str| {
        format!(
            "Internal error occurred: failed calling webhook \"v.example.com\": failed to call webhook: Post \"https://s.default.svc:443/v?timeout=10s\": {why}"
        )
    };
    assert_eq!(code(plane.create(MAPS, map("n")).await).1, failed("service \"s\" not found"));
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 443}], "selector": {"a": "b"}}});
    plane.create("v1/services/default", service).await.unwrap();
    assert_eq!(
        code(plane.create(MAPS, map("n")).await).1,
        failed("no endpoints available for service \"s\"")
    );
    // However much others have in the namespace.
    let slice = |name: &str, service: &str, note: String| {
        json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}, "annotations": {"note": note}},
            "addressType": "IPv4", "ports": [{"name": "", "port": 443}], "endpoints": [{"addresses": ["203.0.113.5"]}],
        })
    };
    let slices = "discovery.k8s.io/v1/endpointslices/default";
    for index in 0..14 {
        plane.create(slices, slice(&format!("a{index}"), "other", "x".repeat(90_000))).await.unwrap();
    }
    plane.create(slices, slice("z", "s", String::new())).await.unwrap();
    let answered = plane.create(MAPS, map("n")).await;
    assert!(answered.is_ok() || !code(answered).1.contains("no endpoints available"));
}

#[tokio::test]
async fn conditions_that_do_not_compile_are_not_stored() {
    let (world, _) = world();
    let plane = world.plane("acme", json!({})).await;
    let condition = json!({"matchConditions": [{"name": "c", "expression": "object."}]});
    let (status, text) =
        code(plane.create(VALIDATING, configuration("v", "https://no.test/", condition)).await);
    assert_eq!(status, 422);
    let start = "ValidatingWebhookConfiguration.admissionregistration.k8s.io \"v\" is invalid: webhooks[0].matchConditions[0].expression: Invalid value: \"object.\": compilation failed";
    assert!(text.starts_with(start), "{text}");
}
