//! Validating admission policies through the verbs: they count from the moment they are stored, in their plane and in no
//! other.

mod world;

use polder_model::{Value, json};
use polder_registry::write::PatchKind;
use world::{World, code};

const POLICIES: &str = "admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

fn policy(name: &str, resource: (&str, &str, &str), expression: &str) -> Value {
    let (group, version, plural) = resource;
    json!({
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": [plural],
            }]},
            "validations": [{"expression": expression}],
        },
    })
}

fn binding(name: &str, policy: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": ["Deny"]}})
}

fn map(name: &str, a: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": a}})
}

#[tokio::test]
async fn a_policy_counts_at_once_and_only_in_its_plane() {
    let world = World::new();
    let (acme, globex) = (world.plane("acme", json!({})).await, world.plane("globex", json!({})).await);
    let maps = "v1/configmaps/default";
    acme.create(maps, map("before", "no")).await.unwrap();
    let made = acme
        .create(POLICIES, policy("p", ("", "v1", "configmaps"), "object == null || object.data.a == 'yes'"))
        .await
        .unwrap();
    assert_eq!(
        made.at(&["status"]).map(Value::to_string).unwrap(),
        r#"{"observedGeneration":1,"typeChecking":{}}"#
    );
    acme.create(maps, map("unbound", "no")).await.unwrap();
    acme.create(BINDINGS, binding("b", "p")).await.unwrap();

    let refused = acme.create(maps, map("c", "no")).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (
            422,
            "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: object == null || object.data.a == 'yes'"
        )
    );
    globex.create(maps, map("c", "no")).await.unwrap();
    acme.create(maps, map("c", "yes")).await.unwrap();
    let patch = json!({"data": {"a": "no"}});
    let patched = acme.patch("v1/configmaps/default/c", PatchKind::Merge, patch.clone()).await;
    assert_eq!(code(patched).0, 422);
    acme.delete("v1/configmaps/default/before", json!({})).await.unwrap();

    acme.delete(&format!("{BINDINGS}/b"), json!({})).await.unwrap();
    acme.patch("v1/configmaps/default/c", PatchKind::Merge, patch).await.unwrap();
}

#[tokio::test]
async fn what_does_not_compile_is_not_stored() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let refused = plane.create(POLICIES, policy("p", ("", "v1", "pods"), "object.")).await.unwrap_err();
    assert_eq!(refused.code, 422);
    let start = "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.validations[0].expression: Invalid value: \"object.\": compilation failed: ERROR: <input>:1:8: Syntax error:";
    assert!(refused.message.starts_with(start), "{}", refused.message);

    let mut confused = policy("p", ("apps", "v1", "deployments"), "object.spec.replicas > '1'");
    let made = plane.create(POLICIES, confused.clone()).await.unwrap();
    let warnings = made.array_at(&["status", "typeChecking", "expressionWarnings"]);
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].str_at(&["fieldRef"]), Some("spec.validations[0].expression"));
    confused.set_at(&["metadata", "resourceVersion"], made.str_at(&["metadata", "resourceVersion"]).unwrap());
    confused.set_at(&["spec", "validations"], json!([{"expression": "object.spec.replicas > 1"}]));
    let made = plane.update(&format!("{POLICIES}/p"), confused).await.unwrap();
    assert_eq!(
        made.at(&["status"]).map(Value::to_string).unwrap(),
        r#"{"observedGeneration":2,"typeChecking":{}}"#
    );
}

#[tokio::test]
async fn other_versions_parts_and_ends_are_judged_too() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let autoscaler = |version: &str| {
        let mut object = json!({
            "metadata": {"name": "h"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "maxReplicas": 3},
        });
        object.set_at(&["apiVersion"], format!("autoscaling/{version}"));
        object
    };
    // A rule about one version sees objects of the other in its own.
    let rule = ("autoscaling", "v2", "horizontalpodautoscalers");
    let sees = "object.apiVersion != 'autoscaling/v2' || request.requestKind.version == request.kind.version";
    plane.create(POLICIES, policy("hpa", rule, sees)).await.unwrap();
    plane.create(BINDINGS, binding("hpa", "hpa")).await.unwrap();
    let old = plane.create("autoscaling/v1/horizontalpodautoscalers/default", autoscaler("v1")).await;
    assert_eq!(code(old).0, 422);
    plane.create("autoscaling/v2/horizontalpodautoscalers/default", autoscaler("v2")).await.unwrap();

    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    plane.create("apps/v1/deployments/default", deployment).await.unwrap();
    let few = "object.kind == 'Scale' && object.spec.replicas < 3 && request.subResource == 'scale'";
    plane.create(POLICIES, policy("scale", ("apps", "v1", "deployments/scale"), few)).await.unwrap();
    plane.create(BINDINGS, binding("scale", "scale")).await.unwrap();
    let scale = |replicas: i64| json!({"spec": {"replicas": replicas}});
    let path = "apps/v1/deployments/default/d/scale";
    assert_eq!(code(plane.patch(path, PatchKind::Merge, scale(5)).await).0, 422);
    plane.patch(path, PatchKind::Merge, scale(2)).await.unwrap();

    let kept = "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'";
    plane.create(POLICIES, policy("kept", ("", "v1", "configmaps"), kept)).await.unwrap();
    plane.create(BINDINGS, binding("kept", "kept")).await.unwrap();
    plane.create("v1/configmaps/default", map("kept", "")).await.unwrap();
    plane.create("v1/configmaps/default", map("other", "")).await.unwrap();
    assert_eq!(code(plane.delete("v1/configmaps/default/kept", json!({})).await).0, 422);
    plane.delete("v1/configmaps/default/other", json!({})).await.unwrap();
    // Rules are about no rules.
    let all = policy("all", ("*", "*", "*"), "false");
    plane.create(POLICIES, all).await.unwrap();
    plane.create(BINDINGS, binding("all", "all")).await.unwrap();
    assert_eq!(code(plane.create("v1/configmaps/default", map("x", "")).await).0, 422);
    plane.delete(&format!("{BINDINGS}/all"), json!({})).await.unwrap();
    plane.create("v1/configmaps/default", map("x", "")).await.unwrap();
}

#[tokio::test]
async fn connections_are_judged() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let quiet = "request.operation == 'CONNECT' && object.kind == 'PodExecOptions' && !has(object.tty)";
    plane.create(POLICIES, policy("exec", ("", "v1", "pods/exec"), quiet)).await.unwrap();
    plane.create(BINDINGS, binding("exec", "exec")).await.unwrap();
    let target = plane.target("v1/pods/default/p/exec").await;
    for (query, expected) in [(&[("command", "ls")][..], 0), (&[("tty", "true")][..], 422)] {
        let asked = world.registry.admit_connection(&plane.context(), &target, &world::pairs(query)).await;
        assert_eq!(asked.err().map_or(0, |status| status.code), expected, "{query:?}");
    }
}
