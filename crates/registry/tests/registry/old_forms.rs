//! Custom objects that were stored before their CRD changed, read after it: defaults have come, members have gone. And what earlier
//! versions have stored otherwise. On a memory store, without HTTP.

use std::sync::Arc;

use polder_model::{Value, json};
use polder_registry::list::ListOptions;
use polder_registry::watch::{ClientWatch, ObjectChange, WatchItem, WatchOptions};
use polder_registry::write::PatchKind;
use polder_registry::{Answered, Target};
use polder_store::memory::MemoryEngine;
use polder_store::{Change, Expect, Key, ObjectName, Record, StoredObject};

use crate::world::{Plane, World, pairs};

const CRDS: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";
const CRD: &str = "apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
const WIDGETS: &str = "example.com/v1/widgets/default";

/// A schema whose spec has these properties.
fn schema(spec: Value) -> Value {
    json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "default": {}, "properties": spec},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }}})
}

fn version(name: &str, storage: bool, spec: Value) -> Value {
    let selectable = if spec.get("size").is_some() { json!([{"jsonPath": ".spec.size"}]) } else { json!([]) };
    json!({
        "name": name, "served": true, "storage": storage, "schema": (schema(spec)),
        "selectableFields": selectable, "subresources": {"status": {}},
    })
}

fn crd(versions: Vec<Value>) -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": versions,
        },
    })
}

fn text() -> Value {
    json!({"type": "string"})
}

fn before() -> Value {
    json!({"size": (text()), "old": (text())})
}

/// `old` has gone and `size` has a default.
fn after() -> Value {
    json!({"size": {"type": "string", "default": "medium"}})
}

async fn set_versions(plane: &Plane<'_>, versions: Vec<Value>) {
    plane.patch(CRD, PatchKind::Merge, json!({"spec": {"versions": versions}})).await.unwrap();
}

async fn widget(plane: &Plane<'_>, name: &str, spec: Value) {
    plane.create(WIDGETS, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
}

/// Two from before the CRD changed, one from after.
async fn changed(plane: &Plane<'_>) {
    plane.create(CRDS, crd(vec![version("v1", true, before())])).await.unwrap();
    widget(plane, "bare", json!({"old": "x"})).await;
    widget(plane, "large", json!({"old": "x", "size": "large"})).await;
    set_versions(plane, vec![version("v1", true, after())]).await;
    widget(plane, "young", json!({"size": "small"})).await;
}

fn spec(value: &Value) -> String {
    value.get("spec").map(Value::to_string).unwrap_or_default()
}

/// A stored object as an answer has it, and whether its bytes were copied.
fn shown(plane: &Plane<'_>, target: &Target, stored: &Arc<StoredObject>) -> (String, bool) {
    match plane.world.registry.answer(&plane.context(), target, stored.clone()).unwrap() {
        Answered::Made(value) => (spec(&value), false),
        Answered::Stored(stored) => (spec(&Value::parse(stored.record.body()).unwrap()), true),
    }
}

/// What a list shows: `name spec`, with a `=` where bytes were copied.
async fn listed(plane: &Plane<'_>, path: &str, query: &[(&str, &str)]) -> Vec<String> {
    let target = plane.target(path).await;
    let mut lines = Vec::new();
    let mut token = String::new();
    loop {
        let mut query = query.to_vec();
        query.push(("continue", &token));
        let options = ListOptions::from_query(&pairs(&query), &target).unwrap();
        let mut listing = plane.world.registry.listing(&plane.context(), &target, &options).await.unwrap();
        loop {
            let page = listing.objects.page().await.unwrap();
            if page.is_empty() {
                break;
            }
            for stored in page {
                let (spec, copied) = shown(plane, &target, &stored);
                lines.push(format!("{}{spec}{}", stored.name.name, if copied { "=" } else { "" }));
            }
        }
        match listing.continue_token {
            Some(next) => token = next,
            None => return lines,
        }
    }
}

async fn watch(plane: &Plane<'_>, path: &str, query: &[(&str, &str)]) -> ClientWatch {
    let target = plane.target(path).await;
    let options = WatchOptions::from_query(&pairs(query), &target).unwrap();
    plane.world.registry.watch(Arc::new(plane.context()), &target, &options).await.unwrap()
}

async fn told(plane: &Plane<'_>, watch: &mut ClientWatch) -> String {
    loop {
        match watch.next().await.unwrap() {
            WatchItem::Object { change, object, .. } => {
                let change = match change {
                    ObjectChange::Added => "+",
                    ObjectChange::Modified => "~",
                    ObjectChange::Deleted => "-",
                };
                return format!("{change}{}{}", object.name.name, shown(plane, &watch.target, &object).0);
            }
            WatchItem::Bookmark { .. } => {}
            WatchItem::Error(status) => panic!("{status:?}"),
        }
    }
}

const SEEN: [&str; 3] = [r#"bare{"size":"medium"}"#, r#"large{"size":"large"}"#, r#"young{"size":"small"}="#];

#[tokio::test]
async fn old_objects_are_read_as_the_schema_has_them_today() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    changed(&plane).await;
    assert_eq!(spec(&plane.get(&format!("{WIDGETS}/bare")).await.unwrap()), r#"{"size":"medium"}"#);
    assert_eq!(listed(&plane, WIDGETS, &[]).await, SEEN);
    assert_eq!(listed(&plane, WIDGETS, &[("limit", "1")]).await, SEEN);
    // Selected by what a default brings.
    for (selector, names) in [
        ("spec.size=medium", &SEEN[..1]),
        ("spec.size=large", &SEEN[1..2]),
        ("spec.size!=medium", &SEEN[1..]),
        ("spec.size=", &[]),
    ] {
        assert_eq!(listed(&plane, WIDGETS, &[("fieldSelector", selector)]).await, names, "{selector}");
        let paged = [("fieldSelector", selector), ("limit", "1")];
        assert_eq!(listed(&plane, WIDGETS, &paged).await, names, "{selector}");
    }
    // The next write stores it; after that its bytes are copied.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let touched = plane.patch(&format!("{WIDGETS}/bare"), PatchKind::Merge, label).await.unwrap();
    assert_eq!((spec(&touched), touched.i64_at(&["metadata", "generation"])), (spec_of("medium"), Some(1)));
    let lines = listed(&plane, WIDGETS, &[]).await;
    assert_eq!(lines[0], r#"bare{"size":"medium"}="#);
}

fn spec_of(size: &str) -> String {
    format!(r#"{{"size":"{size}"}}"#)
}

#[tokio::test]
async fn watches_tell_what_reads_show() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    changed(&plane).await;
    let mut all = watch(&plane, WIDGETS, &[]).await;
    for line in [r#"+bare{"size":"medium"}"#, r#"+large{"size":"large"}"#, r#"+young{"size":"small"}"#] {
        assert_eq!(told(&plane, &mut all).await, line);
    }
    let mut medium = watch(&plane, WIDGETS, &[("fieldSelector", "spec.size=medium")]).await;
    assert_eq!(told(&plane, &mut medium).await, r#"+bare{"size":"medium"}"#);
    // Later events: one that selects by the default what was there, one of what goes.
    let small = json!({"spec": {"size": "small"}});
    plane.patch(&format!("{WIDGETS}/bare"), PatchKind::Merge, small).await.unwrap();
    assert_eq!(told(&plane, &mut all).await, r#"~bare{"size":"small"}"#);
    assert_eq!(told(&plane, &mut medium).await, r#"-bare{"size":"medium"}"#);
    plane.delete(&format!("{WIDGETS}/large"), json!({})).await.unwrap();
    assert_eq!(told(&plane, &mut all).await, r#"-large{"size":"large"}"#);
    // What happened before the CRD changed is told as it is read now.
    let first = plane.get(CRD).await.unwrap();
    let since = first.str_at(&["metadata", "resourceVersion"]).unwrap();
    let since = (since.parse::<u64>().unwrap() - 3).to_string();
    let mut history = watch(&plane, WIDGETS, &[("resourceVersion", &since)]).await;
    assert_eq!(told(&plane, &mut history).await, r#"+bare{"size":"medium"}"#);
}

#[tokio::test]
async fn forks_and_restarts_read_the_same() {
    let engine = MemoryEngine::default();
    let world = World::idle(Box::new(engine.clone()));
    let plane = world.plane("acme", json!({})).await;
    changed(&plane).await;
    let copy = world.plane("copy", json!({"forkFrom": "acme"})).await;
    assert_eq!(listed(&copy, WIDGETS, &[]).await, SEEN);
    // A fork has a schema of its own.
    set_versions(&copy, vec![version("v1", true, json!({"other": {"type": "integer", "default": 3}}))]).await;
    assert_eq!(
        listed(&copy, WIDGETS, &[]).await,
        [r#"bare{"other":3}"#, r#"large{"other":3}"#, r#"young{"other":3}"#]
    );
    assert_eq!(listed(&plane, WIDGETS, &[]).await, SEEN);
    // Back to what the object was written under: its bytes are right again.
    set_versions(&copy, vec![version("v1", true, after())]).await;
    assert_eq!(listed(&copy, WIDGETS, &[]).await, SEEN);
    drop(world);
    let world = World::idle(Box::new(engine));
    for name in ["acme", "copy"] {
        assert_eq!(listed(&Plane::new(&world, name), WIDGETS, &[]).await, SEEN, "{name}");
    }
}

/// What does not change a read costs nothing, and a write of what is read changes what is stored only if it differs.
#[tokio::test]
async fn schemas_that_read_alike_keep_the_bytes() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd(vec![version("v1", true, before())])).await.unwrap();
    widget(&plane, "bare", json!({"old": "x"})).await;
    let mut more = before();
    more.set_at(&["old"], json!({"type": "string", "description": "d", "maxLength": 9}));
    set_versions(&plane, vec![version("v1", true, more)]).await;
    assert_eq!(listed(&plane, WIDGETS, &[]).await, [r#"bare{"old":"x"}="#]);
    let path = format!("{WIDGETS}/bare");
    let version_of = |value: &Value| value.str_at(&["metadata", "resourceVersion"]).unwrap().to_owned();
    let mut wider = before();
    wider.set_at(&["new"], text());
    set_versions(&plane, vec![version("v1", true, wider)]).await;
    let read = plane.get(&path).await.unwrap();
    assert_eq!(version_of(&plane.update(&path, read.clone()).await.unwrap()), version_of(&read));
    set_versions(&plane, vec![version("v1", true, after())]).await;
    let read = plane.get(&path).await.unwrap();
    assert_eq!(spec(&read), spec_of("medium"));
    let written = plane.update(&path, read.clone()).await.unwrap();
    assert_ne!(version_of(&written), version_of(&read));
    assert_eq!(written.i64_at(&["metadata", "generation"]), Some(1));
}

/// An object is completed by the version it is stored in; another version only hides what it does not know.
#[tokio::test]
async fn versions_show_their_own_members() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let one = json!({"a": (text()), "one": {"type": "string", "default": "1"}});
    let two = json!({"a": (text()), "two": {"type": "string", "default": "2"}});
    plane
        .create(CRDS, crd(vec![version("v1", true, one.clone()), version("v2", false, two.clone())]))
        .await
        .unwrap();
    let second = "example.com/v2/widgets/default";
    let both = async |name: &str| {
        let mut specs = Vec::new();
        for path in [WIDGETS, second] {
            specs.push(spec(&plane.get(&format!("{path}/{name}")).await.unwrap()));
        }
        specs.join(" ")
    };
    widget(&plane, "first", json!({"a": "x"})).await;
    assert_eq!(both("first").await, r#"{"a":"x","one":"1"} {"a":"x"}"#);
    // What the storage version does not know is not kept, whoever writes it.
    let object = json!({"metadata": {"name": "second"}, "spec": {"a": "y", "two": "b"}});
    assert_eq!(spec(&plane.create(second, object).await.unwrap()), r#"{"a":"y"}"#);
    assert_eq!(both("second").await, r#"{"a":"y","one":"1"} {"a":"y"}"#);

    // The storage version changes: what is there stays of the version it was stored in until it is written again,
    // even if that changes nothing a client can see.
    set_versions(&plane, vec![version("v1", false, one), version("v2", true, two)]).await;
    assert_eq!(both("first").await, r#"{"a":"x","one":"1"} {"a":"x"}"#);
    let read = plane.get(&format!("{second}/first")).await.unwrap();
    let written = plane.update(&format!("{second}/first"), read).await.unwrap();
    assert_eq!(spec(&written), r#"{"a":"x","two":"2"}"#);
    assert_eq!(both("first").await, r#"{"a":"x"} {"a":"x","two":"2"}"#);
}

/// A scale that makes a part of an object leaves nothing out that belongs there.
#[tokio::test]
async fn what_a_scale_makes_is_complete() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let properties = json!({"replicas": {"type": "integer"}, "mode": {"type": "string", "default": "m"}});
    let mut scaled = version("v1", true, json!({}));
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    scaled.set_at(&["schema", "openAPIV3Schema"], schema);
    scaled.remove_at(&["selectableFields"]);
    let paths = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    scaled.set_at(&["subresources"], json!({"scale": paths}));
    plane.create(CRDS, crd(vec![scaled])).await.unwrap();
    plane.create(WIDGETS, json!({"metadata": {"name": "w"}})).await.unwrap();
    let patch = json!({"spec": {"replicas": 2}});
    plane.patch(&format!("{WIDGETS}/w/scale"), PatchKind::Merge, patch).await.unwrap();
    assert_eq!(listed(&plane, WIDGETS, &[]).await, [r#"w{"mode":"m","replicas":2}="#]);
}

/// Defaults that came later do not keep an object from being deleted, however large they would make it.
#[tokio::test]
async fn what_became_too_large_can_be_deleted() {
    let world = World::new();
    let acme = world.plane("acme", json!({"limits": {"objectBytes": 4_000}})).await;
    acme.create(CRDS, crd(vec![version("v1", true, before())])).await.unwrap();
    for name in ["whole", "parts"] {
        let metadata = json!({"name": name, "finalizers": ["example.com/a", "example.com/b"]});
        acme.create(
            WIDGETS,
            json!({"metadata": metadata, "spec": {"size": (Value::from("x".repeat(2_500)))}}),
        )
        .await
        .unwrap();
    }
    let more =
        json!({"size": (text()), "new": {"type": "string", "default": (Value::from("y".repeat(2_000)))}});
    set_versions(&acme, vec![version("v1", true, more)]).await;
    for (name, steps) in
        [("whole", vec![json!(null)]), ("parts", vec![json!(["example.com/b"]), json!(null)])]
    {
        let path = format!("{WIDGETS}/{name}");
        let grown =
            acme.patch(&path, PatchKind::Merge, json!({"spec": {"size": (Value::from("z".repeat(2_500)))}}));
        assert_eq!(grown.await.unwrap_err().code, 413, "with all its defaults it is too large");
        acme.delete(&path, json!({})).await.unwrap();
        for finalizers in steps {
            let patch = json!({"metadata": {"finalizers": finalizers}});
            acme.patch(&path, PatchKind::Merge, patch).await.unwrap();
        }
        assert_eq!(acme.get(&path).await.unwrap_err().code, 404);
    }
}

/// Somebody looks up how widgets are defined, then waits for something while the CRD changes. What is written from then on
/// is not read with the old definition.
#[tokio::test]
async fn what_has_changed_meanwhile_is_noticed() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd(vec![version("v1", true, after())])).await.unwrap();
    let (registry, context) = (&world.registry, Arc::new(plane.context()));
    let old = plane.target(WIDGETS).await;
    set_versions(&plane, vec![version("v1", true, before())]).await;
    widget(&plane, "new", json!({"old": "x"})).await;
    let new = plane.target(WIDGETS).await;
    for query in [&[][..], &[("resourceVersion", "0")], &[("resourceVersion", "1")]] {
        let options = WatchOptions::from_query(&pairs(query), &old).unwrap();
        let mut watch = registry.watch(context.clone(), &old, &options).await.unwrap();
        assert!(watch.next().await.is_none(), "{query:?}");
    }
    let options = ListOptions::from_query(&pairs(&[]), &old).unwrap();
    let refused = registry.listing(&context, &old, &options).await.unwrap_err();
    assert_eq!(refused.code, 503, "{refused:?}");
    // Whoever asks again is told.
    let options = WatchOptions::from_query(&pairs(&[]), &new).unwrap();
    let mut watch = registry.watch(context, &new, &options).await.unwrap();
    assert_eq!(told(&plane, &mut watch).await, r#"+new{"old":"x"}"#);
    assert_eq!(listed(&plane, WIDGETS, &[]).await.len(), 1);
}

/// Earlier versions stored zeros that are not written today. That they go when an object is written is no change of what may not change.
#[tokio::test(flavor = "multi_thread")]
async fn zeros_from_before_are_no_change() {
    const PODS: &str = "v1/pods/default";
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let pod = json!({
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]},
    });
    plane.create(PODS, pod).await.unwrap();
    let (store, own) = (&world.registry.store, world.registry.store.plane("acme").unwrap());
    let resource = plane.target(PODS).await.definition.resource_id;
    let name = ObjectName::new("default", "web");
    let stored = store.get(&own, resource, &name).await.unwrap().unwrap();
    let mut old = stored.record.to_value(0).unwrap();
    old.remove_at(&["metadata", "resourceVersion"]);
    let port = json!([{"containerPort": 80, "hostPort": 0, "protocol": "TCP"}]);
    if let Some(Value::Array(containers)) = old.at_mut(&["spec", "containers"]) {
        containers[0].set_at(&["ports"], port);
    }
    old.set_at(&["spec", "hostNetwork"], false);
    let key = Key { plane: own.id, resource, name };
    store.commit(Change::put(key, Record::encode(&old), Expect::Anything)).await.unwrap();
    assert!(
        store
            .get(&own, resource, &ObjectName::new("default", "web"))
            .await
            .unwrap()
            .unwrap()
            .record
            .body()
            .windows(8)
            .any(|part| part == b"hostPort")
    );
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    plane.patch("v1/pods/default/web", PatchKind::Merge, label).await.unwrap();
    let change = json!({"spec": {"hostNetwork": true}});
    let refused = plane.patch("v1/pods/default/web", PatchKind::Merge, change).await.unwrap_err();
    assert_eq!(refused.code, 422, "what is another value is a change");
}
