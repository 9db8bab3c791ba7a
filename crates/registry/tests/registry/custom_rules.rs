//! What clients of custom resources are told and refused, with the texts of a real kube-apiserver 1.35. On a memory
//! store, without HTTP.

use polder_model::{Status, Value, json};
use polder_registry::context::WriteOptions;
use polder_registry::decode::{Document, Duplicates};
use polder_registry::write::PatchKind;

use crate::world::{Plane, World, code, document, pairs};

const CRDS: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "example.com/v1/widgets/default";

fn crd(plural: &str, versions: Vec<Value>) -> Value {
    json!({
        "metadata": {"name": (format!("{plural}.example.com"))},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": "Widget"},
            "versions": versions},
    })
}

fn version(name: &str, storage: bool, properties: Value) -> Value {
    let schema = json!({"type": "object", "properties": properties});
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

fn scaled() -> Value {
    let spec = json!({"type": "object", "properties": {
        "replicas": {"x-kubernetes-preserve-unknown-fields": true}, "text": {"type": "string"}}});
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut version = version("v1", true, json!({"spec": spec, "status": status}));
    let paths = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector"});
    version.set_at(&["subresources"], json!({"scale": paths}));
    version
}

async fn sent(plane: &Plane<'_>, value: Value) -> Result<(), Status> {
    let target = plane.target(WIDGETS).await;
    let sent = Document { value, duplicates: Duplicates::default() };
    plane.world.registry.create(&plane.context(), &target, sent, &WriteOptions::default()).await.map(drop)
}

#[tokio::test]
async fn custom_objects_say_what_they_are() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("widgets", vec![scaled()])).await.unwrap();
    let rows = [
        (
            json!({}),
            (
                400,
                "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{}' ({})",
            ),
        ),
        (
            json!({"kind": "Widget"}),
            (400, "the API version in the data () does not match the expected API version (example.com/v1)"),
        ),
        (
            json!({"kind": "Gadget", "apiVersion": "example.com/v1", "metadata": {"name": "x"}}),
            (422, r#"Gadget.example.com "x" is invalid: kind: Invalid value: "Gadget": must be Widget"#),
        ),
        (
            json!({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": 1}}),
            (
                400,
                r#"Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"#,
            ),
        ),
    ];
    for (value, (expected, text)) in rows {
        assert_eq!(code(sent(&plane, value).await), (expected, text.to_owned()));
    }
    plane.create(WIDGETS, json!({"metadata": {"name": "w"}})).await.unwrap();
    let path = format!("{WIDGETS}/w");
    let rows = [
        (
            json!({"kind": "X"}),
            (422, r#"X.example.com "w" is invalid: kind: Invalid value: "X": must be Widget"#),
        ),
        (
            json!({"apiVersion": "x/v1"}),
            (422, r#"Widget.x "w" is invalid: apiVersion: Invalid value: "x/v1": must be example.com/v1"#),
        ),
        (
            json!({"metadata": null}),
            (400, "the name of the object (w based on URL) was undeterminable: name must be provided"),
        ),
    ];
    for (patch, (expected, text)) in rows {
        let refused = plane.patch(&path, PatchKind::Merge, patch).await;
        assert_eq!(code(refused), (expected, text.to_owned()));
    }
    let target = plane.target(&path).await;
    let patch = Document { value: json!({"spec": {"none": 1}}), duplicates: Duplicates::default() };
    let strict = WriteOptions::from_query(&pairs(&[("fieldValidation", "Strict")]), "PatchOptions").unwrap();
    let context = plane.context();
    let refused = world.registry.patch(&context, &target, PatchKind::Merge, &patch, &strict).await;
    let (refused, text) = code(refused.map(drop));
    assert_eq!(refused, 422);
    assert!(text.starts_with(r#" "" is invalid: patch: Invalid value: "{\"apiVersion\":"#), "{text}");
    assert!(text.ends_with(r#": strict decoding error: unknown field "spec.none""#), "{text}");
    // Of a strategic patch the patch is shown.
    let target = plane.target("v1/configmaps/default").await;
    plane.create("v1/configmaps/default", json!({"metadata": {"name": "c"}})).await.unwrap();
    let target = target.with_name("default", "c");
    let patch = Document { value: json!({"none": 1}), duplicates: Duplicates::default() };
    let refused = world.registry.patch(&context, &target, PatchKind::Strategic, &patch, &strict).await;
    let text =
        r#" "" is invalid: patch: Invalid value: "map[none:1]": strict decoding error: unknown field "none""#;
    assert_eq!(code(refused.map(drop)), (422, text.to_owned()));
    // An update must say what it has seen.
    let refused = plane.update(&path, json!({"metadata": {"name": "w"}})).await;
    let text = r#"widgets.example.com "w" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"#;
    assert_eq!(code(refused), (422, text.to_owned()));
}

#[tokio::test]
async fn scales_of_custom_objects() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("widgets", vec![scaled()])).await.unwrap();
    let rows = [
        (json!(-1), r#".spec.replicas: Invalid value: -1: should be a non-negative integer"#),
        (
            json!(2_147_483_648_i64),
            ".spec.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647",
        ),
        (
            json!("x"),
            ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64",
        ),
    ];
    for (replicas, problem) in rows {
        let object = json!({"metadata": {"name": "bad"}, "spec": {"replicas": replicas}});
        let refused = code(plane.create(WIDGETS, object).await);
        assert_eq!(refused, (422, format!(r#"Widget.example.com "bad" is invalid: {problem}"#)));
    }
    plane.create(WIDGETS, json!({"metadata": {"name": "w"}})).await.unwrap();
    let path = format!("{WIDGETS}/w/scale");
    assert_eq!(
        code(plane.get(&path).await),
        (
            500,
            r#"Internal error occurred: the spec replicas field ".spec.replicas" does not exist"#.to_owned()
        )
    );
    let refused = plane.patch(&path, PatchKind::Merge, json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(
        code(refused),
        (400, r#"the spec replicas field ".spec.replicas" cannot be empty"#.to_owned())
    );
    plane.patch(&path, PatchKind::Merge, json!({"spec": {"replicas": 0}})).await.unwrap();
    let scale = plane.patch(&path, PatchKind::Merge, json!({"spec": {"replicas": 2}})).await.unwrap();
    assert_eq!(scale.i64_at(&["spec", "replicas"]), Some(2));
    let refused = plane.patch(&path, PatchKind::Merge, json!({"spec": {"replicas": (-2)}})).await;
    let problem = ".spec.replicas: Invalid value: -2: should be a non-negative integer";
    assert_eq!(code(refused), (422, format!(r#"Widget.example.com "w" is invalid: {problem}"#)));
    let refused = plane.patch(&path, PatchKind::Merge, json!({"spec": {"replicas": "x"}})).await;
    let (refused, text) = code(refused);
    assert_eq!(refused, 422);
    let end = "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32";
    assert!(text.starts_with(r#" "" is invalid: patch: "#) && text.ends_with(end), "{text}");
    // A scale is of the object its path names.
    let scale = |name: &str| json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": name}, "spec": {"replicas": 1}});
    assert_eq!(
        code(plane.update(&path, scale("other")).await),
        (400, "the name of the object (other) does not match the name on the URL (w)".to_owned())
    );
    assert_eq!(
        code(plane.update(&path, scale("")).await),
        (400, "the name of the object (w based on URL) was undeterminable: name must be provided".to_owned())
    );
    plane.update(&path, scale("w")).await.unwrap();
}

#[tokio::test]
async fn what_is_accepted_with_a_word() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let create = async |path: &str, value: Value| {
        let (target, context) = (plane.target(path).await, plane.context());
        let sent = document(&target, value);
        world.registry.create(&context, &target, sent, &WriteOptions::default()).await.unwrap();
        context.take_warnings()
    };
    let strange = json!({"type": "string", "format": "strange"});
    let known = json!({"type": "string", "format": "date-time"});
    let number = json!({"type": "number", "format": "odd"});
    let properties =
        json!({"a": (strange.clone()), "b": known, "c": {"type": "array", "items": strange}, "d": number});
    let mut old = version("v1beta1", false, json!({}));
    old.set_at(&["deprecated"], true);
    let definition = crd("widgets", vec![version("v1", true, properties), old]);
    assert_eq!(create(CRDS, definition).await, [r#"unrecognized format "strange""#]);
    // Told once: what was there before is not new.
    let (target, context) = (plane.target(&format!("{CRDS}/widgets.example.com")).await, plane.context());
    let patch = Document {
        value: json!({"spec": {"names": {"categories": ["all"]}}}),
        duplicates: Duplicates::default(),
    };
    let options = WriteOptions::default();
    world.registry.patch(&context, &target, PatchKind::Merge, &patch, &options).await.unwrap();
    assert_eq!(context.take_warnings(), Vec::<String>::new());

    let finalizers = json!(["plain", "example.com", "example.com/fine", "kubernetes"]);
    let held = json!({"metadata": {"name": "w", "finalizers": finalizers}});
    let domain = "prefer a domain-qualified finalizer name";
    let reason = "to avoid accidental conflicts with other finalizer writers";
    assert_eq!(
        create(WIDGETS, held).await,
        [
            format!(r#"metadata.finalizers: "example.com": {domain} including a path (/) {reason}"#),
            format!(r#"metadata.finalizers: "plain": {domain} {reason}"#),
        ]
    );
    let deprecated = plane.target("example.com/v1beta1/widgets/default").await;
    let text = "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget";
    assert_eq!(deprecated.served().deprecation.as_deref(), Some(text));
}

/// A dry run answers what a real one would: other versions and defaults included.
#[tokio::test]
async fn a_dry_run_tells_the_truth() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let text = json!({"type": "string"});
    let one = json!({"a": (text.clone()), "one": (text.clone())});
    let two = json!({"a": {"type": "string", "default": "x"}});
    plane
        .create(CRDS, crd("widgets", vec![version("v1", false, one), version("v2", true, two)]))
        .await
        .unwrap();
    let object = json!({"metadata": {"name": "w"}, "one": "1"});
    let mut dry = plane.create_with(WIDGETS, object.clone(), &[("dryRun", "All")]).await.unwrap();
    let mut real = plane.create(WIDGETS, object).await.unwrap();
    for value in [&mut dry, &mut real] {
        value.remove_at(&["metadata"]);
    }
    assert_eq!(dry, real);
    assert_eq!(real.to_string(), r#"{"a":"x","apiVersion":"example.com/v1","kind":"Widget"}"#);
}

#[tokio::test]
async fn a_crd_that_is_deleted_is_only_marked() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("widgets", vec![scaled()])).await.unwrap();
    let held = json!({"metadata": {"name": "w", "finalizers": ["example.com/hold"]}});
    plane.create(WIDGETS, held).await.unwrap();
    let path = format!("{CRDS}/widgets.example.com");
    let marked = plane.delete(&path, json!({})).await.unwrap();
    assert_eq!(marked.i64_at(&["metadata", "generation"]), Some(1));
    assert!(marked.at(&["metadata", "deletionTimestamp"]).is_some());
    assert!(marked.at(&["metadata", "deletionGracePeriodSeconds"]).is_none());
    assert_eq!(
        code(plane.create(WIDGETS, json!({"metadata": {"name": "late"}})).await),
        (
            403,
            r#"widgets.example.com "late" is forbidden: create not allowed while custom resource definition is terminating"#.to_owned()
        )
    );
    let free = json!({"metadata": {"finalizers": null}});
    plane.patch(&format!("{WIDGETS}/w"), PatchKind::Merge, free).await.unwrap();
    plane.gone(&path).await;
}

/// Whoever may write a CRD's status does not thereby give it names.
#[tokio::test]
async fn names_are_not_taken_by_a_status() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("widgets", vec![scaled()])).await.unwrap();
    let second = plane.create(CRDS, crd("others", vec![scaled()])).await.unwrap();
    assert_eq!(second.str_at(&["status", "acceptedNames", "kind"]).unwrap_or_default(), "");
    for (name, kind) in [("widgets", "Gadget"), ("others", "Widget")] {
        let status = json!({"status": {"acceptedNames": {"kind": kind, "plural": name}}});
        let path = format!("{CRDS}/{name}.example.com/status");
        plane.patch(&path, PatchKind::Merge, status).await.unwrap();
    }
    let first = plane.get(&format!("{CRDS}/widgets.example.com")).await.unwrap();
    assert_eq!(first.str_at(&["status", "acceptedNames", "kind"]), Some("Widget"));
    let second = plane.get(&format!("{CRDS}/others.example.com")).await.unwrap();
    assert_eq!(second.str_at(&["status", "acceptedNames", "kind"]).unwrap_or_default(), "");
}
