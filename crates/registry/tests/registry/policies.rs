//! Validating admission policies through the verbs: they count from the moment they are stored, in their plane and in no
//! other.

use crate::world::{World, code};
use polder_model::{Value, json};
use polder_registry::write::PatchKind;

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
        let asked =
            world.registry.admit_connection(&plane.context(), &target, &crate::world::pairs(query)).await;
        assert_eq!(asked.err().map_or(0, |status| status.code), expected, "{query:?}");
    }
}

const MUTATING: &str = "admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies";
const MUTATING_BINDINGS: &str = "admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicybindings";

fn changing(name: &str, resource: (&str, &str, &str), mutation: Value) -> Value {
    let mut policy = policy(name, resource, "true");
    policy.remove_at(&["spec", "validations"]);
    policy.set_at(&["spec", "reinvocationPolicy"], "Never");
    policy.set_at(&["spec", "mutations"], json!([mutation]));
    policy
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

async fn bind(plane: &crate::world::Plane<'_>, name: &str) {
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    let made = plane.create(MUTATING_BINDINGS, binding).await;
    assert!(made.is_ok(), "{made:?}");
}

#[tokio::test]
async fn a_policy_changes_objects_at_once_and_only_in_its_plane() {
    let world = World::new();
    let (acme, globex) = (world.plane("acme", json!({})).await, world.plane("globex", json!({})).await);
    let maps = "v1/configmaps/default";
    let count = apply("Object{data: {'n': string(size(object.data)), 'by': request.operation}}");
    acme.create(MUTATING, changing("count", ("", "v1", "configmaps"), count)).await.unwrap();
    assert!(acme.create(maps, map("unbound", "")).await.unwrap().at(&["data", "n"]).is_none());
    bind(&acme, "count").await;
    let made = acme.create(maps, map("m", "x")).await.unwrap();
    assert_eq!(made.at(&["data"]).unwrap().to_string(), r#"{"a":"x","by":"CREATE","n":"1"}"#);
    let owned = made.at(&["metadata", "managedFields"]).unwrap().to_string();
    assert!(owned.contains("f:a") && !owned.contains("f:by"), "nobody owns what a policy set: {owned}");
    let patch = json!({"data": {"b": "y"}});
    let patched = acme.patch("v1/configmaps/default/m", PatchKind::Merge, patch).await.unwrap();
    assert_eq!(patched.at(&["data"]).unwrap().to_string(), r#"{"a":"x","b":"y","by":"UPDATE","n":"4"}"#);
    assert!(globex.create(maps, map("m", "x")).await.unwrap().at(&["data", "n"]).is_none());
    // There is nothing to change when something goes.
    acme.delete("v1/configmaps/default/m", json!({})).await.unwrap();
    acme.delete(&format!("{MUTATING_BINDINGS}/count"), json!({})).await.unwrap();
    assert!(acme.create(maps, map("m", "x")).await.unwrap().at(&["data", "n"]).is_none());
}

#[tokio::test]
async fn what_a_policy_makes_is_checked_like_what_a_client_sends() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let maps = "v1/configmaps/default";
    let check = async |mutation: Value, expected: (u16, &str)| {
        plane.create(MUTATING, changing("p", ("", "v1", "configmaps"), mutation)).await.unwrap();
        bind(&plane, "p").await;
        assert_eq!(code(plane.create(maps, map("m", "x")).await), (expected.0, expected.1.to_owned()));
        for rules in [MUTATING, MUTATING_BINDINGS] {
            plane.delete(&format!("{rules}/p"), json!({})).await.unwrap();
        }
    };
    let patch = |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    check(
        apply("Object{none: 1}"),
        (
            403,
            "policy 'p' with binding 'p' denied request: error applying patch: failed to convert patch object to typed object: .none: field not declared in schema",
        ),
    )
    .await;
    check(
        patch("[JSONPatch{op: 'add', path: '/none', value: 1}]"),
        (500, "Internal error occurred: strict decoding error: unknown field \"none\""),
    )
    .await;
    check(
        apply("Object{data: {'not a key': 'x'}}"),
        (
            422,
            "ConfigMap \"m\" is invalid: data[not a key]: Invalid value: \"not a key\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        ),
    )
    .await;
    let refused = plane.create(MUTATING, changing("p", ("", "v1", "pods"), apply("Object.spec{}"))).await;
    let (status, message) = code(refused);
    assert_eq!(status, 422);
    assert!(message.ends_with("must evaluate to Object but got Object.spec"), "{message}");
}

#[tokio::test]
async fn a_policy_cannot_make_what_is_about_to_go() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let rows = [
        "Object{metadata: Object.metadata{deletionTimestamp: '2026-01-01T00:00:00Z'}}",
        "Object{metadata: Object.metadata{deletionGracePeriodSeconds: 30}}",
    ];
    for (index, expression) in rows.into_iter().enumerate() {
        let name = format!("p{index}");
        let policy = changing(&name, ("", "v1", "configmaps"), apply(expression));
        plane.create(MUTATING, policy).await.unwrap();
        bind(&plane, &name).await;
        let made = plane.create("v1/configmaps/default", map(&name, "x")).await.unwrap();
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            assert_eq!(made.at(&["metadata", field]), None, "{expression}");
        }
        plane.delete(&format!("{MUTATING_BINDINGS}/{name}"), json!({})).await.unwrap();
    }
}

#[tokio::test]
async fn custom_objects_and_parts_are_changed_too() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"}, "parts": {"type": "array", "items": {"type": "string"}},
    }}}});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    plane.create("apiextensions.k8s.io/v1/customresourcedefinitions", definition).await.unwrap();
    let widgets = ("example.com", "v1", "widgets");
    plane
        .create(
            MUTATING,
            changing("w", widgets, apply("Object{spec: Object.spec{size: object.spec.size * 2}}")),
        )
        .await
        .unwrap();
    bind(&plane, "w").await;
    let widget = json!({"metadata": {"name": "w"}, "spec": {"size": 4}});
    let made = plane.create("example.com/v1/widgets/default", widget).await.unwrap();
    assert_eq!(made.i64_at(&["spec", "size"]), Some(8));

    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    plane.create("apps/v1/deployments/default", deployment).await.unwrap();
    let few =
        apply("Object{spec: Object.spec{replicas: object.spec.replicas > 3 ? 3 : object.spec.replicas}}");
    plane.create(MUTATING, changing("few", ("apps", "v1", "deployments/scale"), few)).await.unwrap();
    bind(&plane, "few").await;
    let scale = json!({"spec": {"replicas": 9}});
    let scaled = plane.patch("apps/v1/deployments/default/d/scale", PatchKind::Merge, scale).await.unwrap();
    assert_eq!(scaled.i64_at(&["spec", "replicas"]), Some(3));
}

#[tokio::test]
async fn services_are_judged_with_what_they_get() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let complete = "object == null || (has(object.spec.clusterIP) && object.spec.clusterIPs.size() == 1 && object.spec.ports.all(p, p.nodePort > 0))";
    plane.create(POLICIES, policy("p", ("", "v1", "services"), complete)).await.unwrap();
    plane.create(BINDINGS, binding("b", "p")).await.unwrap();
    let service =
        |kind: &str| json!({"metadata": {"name": "s"}, "spec": {"type": kind, "ports": [{"port": 80}]}});
    plane.create("v1/services/default", service("NodePort")).await.unwrap();
    plane.delete("v1/services/default/s", json!({})).await.unwrap();
    assert_eq!(code(plane.create("v1/services/default", service("ClusterIP")).await).0, 422);
    // What was chosen for a service that was refused is still free.
    let patch = json!({"spec": {"type": "NodePort"}});
    plane.delete(&format!("{BINDINGS}/b"), json!({})).await.unwrap();
    plane.create("v1/services/default", service("ClusterIP")).await.unwrap();
    plane.create(BINDINGS, binding("b", "p")).await.unwrap();
    plane.patch("v1/services/default/s", PatchKind::Merge, patch).await.unwrap();
}

#[tokio::test]
async fn node_ports_are_not_given_twice_while_judges_take_their_time() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create(POLICIES, policy("p", ("", "v1", "services"), "true")).await.unwrap();
    plane.create(BINDINGS, binding("b", "p")).await.unwrap();
    let service = |at: usize| json!({"metadata": {"name": (format!("s{at}"))}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let made =
        futures_util::future::join_all((0..16).map(|at| plane.create("v1/services/default", service(at))))
            .await;
    let mut ports: Vec<i64> = made
        .iter()
        .map(|made| made.as_ref().unwrap().array_at(&["spec", "ports"])[0].i64_at(&["nodePort"]).unwrap())
        .collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 16);
}
