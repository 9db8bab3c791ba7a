//! Who owns which fields, through every verb that writes.

use crate::world::{World, code};
use polder_machinery::apply::Force;
use polder_model::{Value, json};
use polder_registry::write::PatchKind;

const WEB: &str = "apps/v1/deployments/default/web";

fn deployment(spec: Value) -> Value {
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    }});
    for (name, value) in spec.as_object().unwrap().iter() {
        object.set_at(&["spec", name], value.clone());
    }
    object
}

/// `manager/subresource operation: fieldsV1`, a line each.
fn owners(object: &Value) -> Vec<String> {
    let entry = |entry: &Value| {
        let text = |name: &str| entry.str_at(&[name]).unwrap_or_default().to_string();
        assert_eq!(text("fieldsType"), "FieldsV1");
        let part = text("subresource");
        let part = if part.is_empty() { part } else { format!("/{part}") };
        format!("{}{part} {}: {}", text("manager"), text("operation"), entry.get("fieldsV1").unwrap())
    };
    object.array_at(&["metadata", "managedFields"]).iter().map(entry).collect()
}

fn version(object: &Value) -> String {
    object.str_at(&["metadata", "resourceVersion"]).unwrap().to_string()
}

#[tokio::test]
async fn every_write_notes_who_wrote() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let path = "v1/configmaps/default/c";
    let made = plane
        .create_with(
            "v1/configmaps/default",
            json!({"metadata": {"name": "c", "labels": {"a": "b"}}, "data": {"x": "1", "y": "1"}}),
            &[("fieldManager", "amy")],
        )
        .await
        .unwrap();
    let of_amy =
        r#"amy Update: {"f:data":{".":{},"f:x":{},"f:y":{}},"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#;
    assert_eq!(owners(&made), [of_amy]);
    assert_eq!(
        made.array_at(&["metadata", "managedFields"])[0].str_at(&["time"]),
        Some("2026-01-01T00:00:00Z")
    );

    // Nothing changes: nothing is written, whatever is said about owners.
    let same = plane.update(path, made.clone()).await.unwrap();
    let mut silent = made.clone();
    silent.remove_at(&["metadata", "managedFields"]);
    silent.remove_at(&["metadata", "resourceVersion"]);
    let silent = plane.update(path, silent).await.unwrap();
    assert_eq!((&same, &silent), (&made, &made));

    // Whoever writes without a name is unknown.
    let patched = plane.patch(path, PatchKind::Merge, json!({"data": {"y": "2", "x": null}})).await.unwrap();
    assert_eq!(
        owners(&patched),
        [
            r#"amy Update: {"f:data":{},"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#,
            r#"unknown Update: {"f:data":{"f:y":{}}}"#
        ]
    );
    let reset =
        plane.patch(path, PatchKind::Merge, json!({"metadata": {"managedFields": [{}]}})).await.unwrap();
    assert!(owners(&reset).is_empty());
}

#[tokio::test]
async fn apply_makes_merges_and_minds_others() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let made = plane.apply(WEB, "bob", deployment(json!({"replicas": 2})), Force::Refuse).await.unwrap();
    assert_eq!(made.i64_at(&["spec", "progressDeadlineSeconds"]), Some(600), "defaults are filled in");
    assert_eq!(
        owners(&made),
        [concat!(
            r#"bob Apply: {"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"#,
            r#""f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{}}}}}}}"#
        )]
    );
    let again = plane.apply(WEB, "bob", deployment(json!({"replicas": 2})), Force::Refuse).await.unwrap();
    assert_eq!(again, made, "the same again is no write");

    let refused =
        plane.apply(WEB, "amy", deployment(json!({"replicas": 3})), Force::Refuse).await.unwrap_err();
    assert_eq!(refused.code, 409);
    assert_eq!(refused.message, r#"Apply failed with 1 conflict: conflict with "bob": .spec.replicas"#);
    let causes = &refused.details.unwrap().causes;
    assert_eq!(causes.len(), 1);
    assert_eq!(causes[0].reason, "FieldManagerConflict");
    assert_eq!(causes[0].message, r#"conflict with "bob""#);
    assert_eq!(causes[0].field, ".spec.replicas");

    let taken = plane.apply(WEB, "amy", deployment(json!({"replicas": 3})), Force::Take).await.unwrap();
    assert_eq!(taken.i64_at(&["spec", "replicas"]), Some(3));
    assert_eq!(taken.i64_at(&["metadata", "generation"]), Some(2));
    // What an applier gives up and nobody else owns falls back to its default.
    let given_up = plane.apply(WEB, "amy", deployment(json!({})), Force::Refuse).await.unwrap();
    assert_eq!(given_up.i64_at(&["spec", "replicas"]), Some(1));
}

#[tokio::test]
async fn what_apply_refuses() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let refused = async |intent: Value| code(plane.apply(WEB, "bob", intent, Force::Refuse).await);
    let mut intent = deployment(json!({"nonsense": 1}));
    assert_eq!(
        refused(intent.clone()).await,
        (
            500,
            "failed to create typed patch object (/web; apps/v1, Kind=Deployment): .spec.nonsense: field not declared in schema".into()
        )
    );
    intent = deployment(json!({}));
    intent.set_at(&["metadata", "managedFields"], vec![]);
    assert_eq!(refused(intent).await, (400, "metadata.managedFields must be nil".into()));
    intent = deployment(json!({}));
    intent.set_at(&["apiVersion"], "apps/v1beta1");
    assert_eq!(refused(intent).await, (400, "invalid object type: apps/v1beta1, Kind=Deployment".into()));
    intent = deployment(json!({}));
    intent.set_at(&["metadata", "name"], "other");
    assert_eq!(
        refused(intent).await,
        (400, "the name of the object (other) does not match the name on the URL (web)".into())
    );
    intent = deployment(json!({}));
    intent.set_at(&["metadata", "uid"], "u");
    let (conflict, text) = refused(intent).await;
    assert_eq!(conflict, 409);
    assert!(
        text.ends_with("uid mismatch: the provided object specified uid u, and no existing object was found"),
        "{text}"
    );
    assert_eq!(code(plane.get(WEB).await).0, 404, "nothing was made");
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "status": {"replicas": 1}});
    let missing = plane.apply(&format!("{WEB}/status"), "bob", status, Force::Refuse).await;
    assert_eq!(code(missing).0, 404, "a part makes no object");
    plane.apply(WEB, "bob", deployment(json!({})), Force::Refuse).await.unwrap();
    intent = deployment(json!({}));
    intent.set_at(&["metadata", "resourceVersion"], "1");
    assert_eq!(refused(intent).await.0, 409);
}

#[tokio::test]
async fn parts_have_owners_of_their_own() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.apply(WEB, "bob", deployment(json!({"replicas": 2})), Force::Refuse).await.unwrap();
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 9}, "status": {"observedGeneration": 1, "replicas": 2}});
    let with_status = plane.apply(&format!("{WEB}/status"), "kube", status, Force::Refuse).await.unwrap();
    assert_eq!(with_status.i64_at(&["spec", "replicas"]), Some(2));
    assert_eq!(with_status.i64_at(&["status", "replicas"]), Some(2));
    let of_kube = r#"kube/status Apply: {"f:status":{"f:observedGeneration":{},"f:replicas":{}}}"#;
    assert!(owners(&with_status).contains(&of_kube.into()), "{:?}", owners(&with_status));
    // The object itself does not own its status, and does not lose it.
    let mut intent = deployment(json!({"replicas": 2}));
    intent.set_at(&["status", "replicas"], 7);
    let applied = plane.apply(WEB, "bob", intent, Force::Refuse).await.unwrap();
    assert_eq!(applied.i64_at(&["status", "replicas"]), Some(2));
    assert_eq!(version(&applied), version(&with_status));

    let scale = format!("{WEB}/scale");
    plane.patch(&scale, PatchKind::Merge, json!({"spec": {"replicas": 5}})).await.unwrap();
    let scaled = plane.get(WEB).await.unwrap();
    assert!(owners(&scaled).contains(&r#"unknown/scale Update: {"f:spec":{"f:replicas":{}}}"#.into()));
    let refused = plane.apply(WEB, "bob", deployment(json!({"replicas": 2})), Force::Refuse).await;
    assert_eq!(
        code(refused).1,
        r#"Apply failed with 1 conflict: conflict with "unknown" with subresource "scale" using apps/v1: .spec.replicas"#
    );
    let intent = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 6}});
    assert_eq!(code(plane.apply(&scale, "hpa", intent.clone(), Force::Refuse).await).0, 409);
    let answer = plane.apply(&scale, "hpa", intent, Force::Take).await.unwrap();
    assert_eq!(answer.i64_at(&["spec", "replicas"]), Some(6));
    let scaled = plane.get(WEB).await.unwrap();
    assert_eq!(scaled.i64_at(&["spec", "replicas"]), Some(6));
    assert!(
        owners(&scaled).contains(&r#"hpa/scale Apply: {"f:spec":{"f:replicas":{}}}"#.into()),
        "{:?}",
        owners(&scaled)
    );
}

#[tokio::test]
async fn custom_resources_have_owners_too() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "default": 1},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}}}},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": (schema.clone()), "subresources": {"status": {}}});
    let crd = json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"}, "versions": [(version("v1", true)), (version("v2", false))]}});
    plane.create("apiextensions.k8s.io/v1/customresourcedefinitions", crd).await.unwrap();
    let widget = |version: &str, spec: Value| json!({"apiVersion": (format!("example.com/{version}")), "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
    let (v1, v2) = ("example.com/v1/widgets/default/w", "example.com/v2/widgets/default/w");
    let parts = json!({"parts": [{"name": "a", "n": 1}]});
    let made = plane.apply(v1, "bob", widget("v1", parts), Force::Refuse).await.unwrap();
    let of_bob = r#"bob Apply: {"f:spec":{"f:parts":{"k:{\"name\":\"a\"}":{".":{},"f:n":{},"f:name":{}}}}}"#;
    assert_eq!(owners(&made), [of_bob]);
    assert_eq!(made.i64_at(&["spec", "size"]), Some(1));
    // Another version sees the same owners.
    let two = json!({"parts": [{"name": "a", "n": 2}]});
    let refused = plane.apply(v2, "amy", widget("v2", two), Force::Refuse).await;
    assert_eq!(
        code(refused).1,
        r#"Apply failed with 1 conflict: conflict with "bob": .spec.parts[name="a"].n"#
    );
    let more = json!({"parts": [{"name": "b"}]});
    let merged = plane.apply(v2, "amy", widget("v2", more), Force::Refuse).await.unwrap();
    assert_eq!(merged.array_at(&["spec", "parts"]).len(), 2);
    assert_eq!(owners(&merged).len(), 2);
    // The status is written by its own endpoint, and noted there.
    let ready = json!({"status": {"ready": true}});
    let ready = plane.patch(&format!("{v1}/status"), PatchKind::Merge, ready).await.unwrap();
    let of_status = r#"unknown/status Update: {"f:status":{".":{},"f:ready":{}}}"#;
    assert!(owners(&ready).contains(&of_status.into()), "{:?}", owners(&ready));
    let gone = plane.apply(v1, "amy", widget("v1", json!({})), Force::Refuse).await.unwrap();
    assert_eq!(
        gone.array_at(&["spec", "parts"]).len(),
        1,
        "amy's part went, in whatever version she named it"
    );
}
