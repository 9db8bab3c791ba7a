//! Custom resources whose versions a webhook turns into one another: every verb, with a client that answers from memory.

mod webhook;

use std::sync::Arc;
use std::time::Duration;

use polder_machinery::apply::Force;
use polder_model::{Value, json};
use polder_registry::list::ListOptions;
use polder_registry::watch::{ClientWatch, WatchItem, WatchOptions};
use polder_registry::write::PatchKind;

use self::webhook::{Hook, Mode};
use crate::world::{Plane, World, code, pairs};

const CRDS: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";
const CRD: &str = "apiextensions.k8s.io/v1/customresourcedefinitions/hosts.example.com";
const V1: &str = "example.com/v1/hosts/default";
const V2: &str = "example.com/v2/hosts/default";

/// `v1` has `spec.address`, `v2` has `spec.host` and `spec.port`.
fn crd(storage: &str) -> Value {
    let text = || json!({"type": "string"});
    let version = |name: &str, spec: Value, selectable: Value| {
        json!({
            "name": name, "served": true, "storage": (name == storage),
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "properties": {"phase": (text()), "replicas": {"type": "integer"}}},
            }}},
            "selectableFields": selectable,
            "subresources": {"status": {}, "scale":
                {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        })
    };
    let number = || json!({"type": "integer"});
    let old =
        json!({"address": (text()), "replicas": (number()), "note": {"type": "string", "default": "d"}});
    let new = json!({"host": (text()), "port": (text()), "replicas": (number()), "note": (text()),
        "color": {"type": "string", "default": "red"}});
    let host = json!([{"jsonPath": ".spec.host"}]);
    json!({
        "metadata": {"name": "hosts.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "hosts", "kind": "Host"},
            "versions": [(version("v1", old, json!([]))), (version("v2", new, host))],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://hook.test/convert"}}},
        },
    })
}

fn old(name: &str, address: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"address": address}})
}

fn new(name: &str, host: &str, port: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"host": host, "port": port}})
}

fn spec(value: &Value) -> String {
    value.get("spec").map(Value::to_string).unwrap_or_default()
}

fn world() -> (World, Arc<Hook>) {
    let (world, hook) = (World::new(), Arc::new(Hook::default()));
    world.registry.set_webhook_client(hook.clone());
    (world, hook)
}

async fn store_in(plane: &Plane<'_>, version: &str) {
    let versions = crd(version).at(&["spec", "versions"]).cloned().unwrap();
    plane.patch(CRD, PatchKind::Merge, json!({"spec": {"versions": versions}})).await.unwrap();
}

/// What a list shows, `name spec`.
async fn listed(plane: &Plane<'_>, path: &str, query: &[(&str, &str)]) -> Vec<String> {
    let target = plane.target(path).await;
    let options = ListOptions::from_query(&pairs(query), &target).unwrap();
    let context = plane.context();
    let mut listing = plane.world.registry.listing(&context, &target, &options).await.unwrap();
    let mut lines = Vec::new();
    loop {
        let page = listing.objects.page().await.unwrap();
        if page.is_empty() {
            return lines;
        }
        for stored in page {
            let value = plane.world.registry.to_client(&context, &target, &stored).unwrap();
            lines.push(format!("{} {}", stored.name.name, spec(&value)));
        }
    }
}

const A: [&str; 2] = [r#"a {"address":"h:1","note":"d"}"#, r#"a {"host":"h","note":"d","port":"1"}"#];
const B: [&str; 2] = [r#"b {"address":"k:2","note":"d"}"#, r#"b {"host":"k","note":"d","port":"2"}"#];

#[tokio::test]
async fn objects_are_served_in_every_version() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    plane.create(V1, old("a", "h:1")).await.unwrap();
    assert_eq!(hook.calls(), 0, "it is stored as it comes");
    let made = plane.create(V2, new("b", "k", "2")).await.unwrap();
    // A default of the other version has gone on the way, one of the stored version has come.
    assert_eq!(spec(&made), r#"{"host":"k","note":"d","port":"2"}"#);
    assert_eq!(hook.calls(), 2, "there and back");
    assert_eq!(listed(&plane, V1, &[]).await, [A[0], B[0]]);
    assert_eq!(hook.calls(), 2);
    assert_eq!(listed(&plane, V2, &[]).await, [A[1], B[1]]);
    assert_eq!(hook.calls(), 3, "a page is one question");
    let mut read = plane.get(&format!("{V2}/a")).await.unwrap();
    assert_eq!(read.str_at(&["apiVersion"]), Some("example.com/v2"));
    assert_eq!(read.remove_at(&["metadata", "labels"]), Some(json!({"version": "v2"})));
    let stored = plane.get(&format!("{V1}/a")).await.unwrap();
    assert_eq!(read.get("metadata"), stored.get("metadata"));

    let path = format!("{V2}/a");
    let patched = plane.patch(&path, PatchKind::Merge, json!({"spec": {"port": "9"}})).await.unwrap();
    assert_eq!(spec(&patched), r#"{"host":"h","note":"d","port":"9"}"#);
    assert_eq!(patched.i64_at(&["metadata", "generation"]), Some(2));
    assert_eq!(spec(&plane.get(&format!("{V1}/a")).await.unwrap()), r#"{"address":"h:9","note":"d"}"#);
    let mut whole = plane.get(&path).await.unwrap();
    whole.set_at(&["spec", "host"], "z");
    plane.update(&path, whole).await.unwrap();
    assert_eq!(spec(&plane.get(&format!("{V1}/a")).await.unwrap()), r#"{"address":"z:9","note":"d"}"#);
    let status = json!({"status": {"phase": "Up"}});
    let read = plane.patch(&format!("{path}/status"), PatchKind::Merge, status).await.unwrap();
    assert_eq!(read.str_at(&["status", "phase"]), Some("Up"));
    let scale = json!({"spec": {"replicas": 3}});
    plane.patch(&format!("{path}/scale"), PatchKind::Merge, scale).await.unwrap();
    assert_eq!(plane.get(&format!("{V1}/a")).await.unwrap().i64_at(&["spec", "replicas"]), Some(3));
    let dry = plane.create_with(V2, new("c", "k", "2"), &[("dryRun", "All")]).await.unwrap();
    assert_eq!(spec(&dry), r#"{"host":"k","note":"d","port":"2"}"#);

    let held = json!({"metadata": {"finalizers": ["example.com/f"]}});
    plane.patch(&path, PatchKind::Merge, held).await.unwrap();
    let marked = plane.delete(&path, json!({})).await.unwrap();
    assert_eq!(marked.str_at(&["spec", "host"]), Some("z"));
    assert!(marked.at(&["metadata", "deletionTimestamp"]).is_some());
    plane.patch(&path, PatchKind::Merge, json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert_eq!(code(plane.get(&path).await).0, 404);
    plane.delete(&format!("{V2}/b"), json!({})).await.unwrap();
}

#[tokio::test]
async fn objects_stay_in_the_version_they_were_written_in() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    plane.create(V1, old("a", "h:1")).await.unwrap();
    store_in(&plane, "v2").await;
    plane.create(V1, old("b", "k:2")).await.unwrap();
    hook.reset();
    let red = r#"b {"color":"red","host":"k","note":"d","port":"2"}"#;
    assert_eq!(listed(&plane, V1, &[]).await, [A[0], B[0]]);
    assert_eq!(hook.objects(), 1);
    assert_eq!(listed(&plane, V2, &[]).await, [A[1], red]);
    assert_eq!(hook.objects(), 2);
    // A write that says nothing new brings it into the version that is stored now.
    let whole = plane.get(&format!("{V1}/a")).await.unwrap();
    plane.update(&format!("{V1}/a"), whole).await.unwrap();
    hook.reset();
    listed(&plane, V2, &[]).await;
    assert_eq!(hook.calls(), 0);
    let crd = plane.get(CRD).await.unwrap();
    assert_eq!(crd.at(&["status", "storedVersions"]).unwrap().to_string(), r#"["v1","v2"]"#);
}

/// Defaults that do not fit do not make an object forget its version: another one may be stored tomorrow.
#[tokio::test]
async fn an_object_without_room_for_defaults_keeps_its_version() {
    let (world, _hook) = world();
    let plane = world.plane("acme", json!({})).await;
    let pad = json!({"pad": {"type": "string", "default": ("x".repeat(1000))}});
    let with_items = |storage: &str| {
        let mut crd = crd(storage);
        let versions = crd.at_mut(&["spec", "versions"]).unwrap().as_array_mut().unwrap();
        for (version, members) in versions.iter_mut().zip([json!({}), pad.clone()]) {
            let items = json!({"type": "array", "items": {"type": "object", "properties": members}});
            version
                .set_at(&["schema", "openAPIV3Schema", "properties", "spec", "properties", "items"], items);
        }
        crd
    };
    plane.create(CRDS, with_items("v2")).await.unwrap();
    let mut object = old("a", "h:1");
    object.set_at(&["spec", "items"], vec![json!({}); 4500]);
    plane.create(V1, object).await.unwrap();
    for storage in ["v2", "v1", "v2"] {
        let versions = with_items(storage).at(&["spec", "versions"]).cloned().unwrap();
        plane.patch(CRD, PatchKind::Merge, json!({"spec": {"versions": versions}})).await.unwrap();
        let spec_in = async |path: &str| plane.get(&format!("{path}/a")).await.unwrap();
        assert_eq!(spec_in(V1).await.str_at(&["spec", "address"]), Some("h:1"), "stored in {storage}");
        assert_eq!(spec_in(V2).await.str_at(&["spec", "host"]), Some("h"), "stored in {storage}");
        // A write brings it into the version that is stored now, and loses nothing.
        let label = json!({"metadata": {"annotations": {"stored-in": storage}}});
        plane.patch(&format!("{V1}/a"), PatchKind::Merge, label).await.unwrap();
        let read = spec_in(V2).await;
        assert_eq!(read.str_at(&["spec", "host"]), Some("h"), "written in {storage}");
        assert_eq!(read.array_at(&["spec", "items"]).len(), 4500);
    }
}

#[tokio::test]
async fn selectors_are_about_the_version_that_is_read() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    for (name, address) in [("a", "h:1"), ("b", "k:2"), ("c", "h:3")] {
        plane.create(V1, old(name, address)).await.unwrap();
    }
    for (query, expected) in [
        (vec![("fieldSelector", "spec.host=h")], "a c"),
        (vec![("fieldSelector", "spec.host=h"), ("limit", "1")], "a"),
        (vec![("fieldSelector", "spec.host!=h")], "b"),
        // The webhook says what labels an object has in a version.
        (vec![("labelSelector", "version=v2")], "a b c"),
        (vec![("labelSelector", "version=v1")], ""),
    ] {
        let names: Vec<String> = listed(&plane, V2, &query).await;
        let names: Vec<&str> = names.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names.join(" "), expected, "{query:?}");
    }
    hook.reset();
    assert_eq!(listed(&plane, V2, &[("fieldSelector", "metadata.name=b")]).await, [B[1]]);
    assert_eq!(hook.objects(), 1, "others are not asked about");
    let (names, token) = plane.list(V2, &[("fieldSelector", "spec.host=h"), ("limit", "1")]).await.unwrap();
    assert_eq!(names, ["default/a"]);
    let token = token.unwrap();
    let rest = [("fieldSelector", "spec.host=h"), ("limit", "1"), ("continue", token.as_str())];
    assert_eq!(plane.list(V2, &rest).await.unwrap(), (vec!["default/c".to_string()], None));
}

#[tokio::test]
async fn owners_are_known_in_their_versions() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    let named = |mut value: Value, version: &str| {
        value.set_at(&["kind"], "Host");
        value.set_at(&["apiVersion"], format!("example.com/{version}"));
        value
    };
    let path = |version: &str| format!("example.com/{version}/hosts/default/a");
    plane.apply(&path("v1"), "one", named(old("a", "h:1"), "v1"), Force::Refuse).await.unwrap();
    // The other manager's field is part of what this one changes, as the other version sees it.
    let other = named(new("a", "h", "2"), "v2");
    let (status, text) = code(plane.apply(&path("v2"), "two", other.clone(), Force::Refuse).await);
    assert_eq!(
        (status, text.as_str()),
        (409, "Apply failed with 1 conflict: conflict with \"one\": .spec.address")
    );
    let forced = plane.apply(&path("v2"), "two", other, Force::Take).await.unwrap();
    assert_eq!(spec(&forced), r#"{"host":"h","note":"d","port":"2"}"#);
    let owners: Vec<String> = forced
        .array_at(&["metadata", "managedFields"])
        .iter()
        .map(|entry| {
            let text = |field: &str| entry.str_at(&[field]).unwrap_or_default();
            let fields = entry.get("fieldsV1").map(Value::to_string).unwrap_or_default();
            format!("{} {} {fields}", text("manager"), text("apiVersion"))
        })
        .collect();
    assert_eq!(owners, [r#"two example.com/v2 {"f:spec":{"f:host":{},"f:port":{}}}"#]);
    // One who says it in another version than before.
    let moved = named(old("a", "q:5"), "v1");
    plane.apply(&path("v1"), "two", moved, Force::Refuse).await.unwrap();
    assert_eq!(spec(&plane.get(&path("v2")).await.unwrap()), r#"{"host":"q","note":"d","port":"5"}"#);
    // As upstream has it: without the webhook a write works, and nobody owns anything; an apply does not.
    plane
        .apply(
            &path("v2"),
            "three",
            named(json!({"metadata": {"name": "a"}, "spec": {"note": "n"}}), "v2"),
            Force::Take,
        )
        .await
        .unwrap();
    hook.set(Mode::Dead);
    let applied = plane.apply(&path("v1"), "two", named(old("a", "r:5"), "v1"), Force::Refuse).await;
    assert_eq!(code(applied).0, 500);
    let patched =
        plane.patch(&path("v1"), PatchKind::Merge, json!({"spec": {"address": "x:1"}})).await.unwrap();
    assert!(patched.at(&["metadata", "managedFields"]).is_none());
}

async fn watch(plane: &Plane<'_>, path: &str, query: &[(&str, &str)]) -> ClientWatch {
    let target = plane.target(path).await;
    let options = WatchOptions::from_query(&pairs(query), &target).unwrap();
    plane.world.registry.watch(Arc::new(plane.context()), &target, &options).await.unwrap()
}

/// The next change, as it is told.
async fn told(plane: &Plane<'_>, watch: &mut ClientWatch) -> String {
    loop {
        let item = match watch.ready() {
            Some(item) => item,
            None => watch.next().await.unwrap(),
        };
        match item {
            WatchItem::Object { change, object, .. } => {
                let value = plane.world.registry.to_client(&plane.context(), &watch.target, &object).unwrap();
                return format!("{change:?} {} {}", object.name.name, spec(&value));
            }
            WatchItem::Bookmark { .. } => {}
            WatchItem::Error(status) => panic!("{status:?}"),
        }
    }
}

#[tokio::test]
async fn watches_tell_their_version() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    plane.create(V1, old("a", "h:1")).await.unwrap();
    let mut all = watch(&plane, V2, &[]).await;
    let mut some = watch(&plane, V2, &[("fieldSelector", "spec.host=k")]).await;
    assert_eq!(told(&plane, &mut all).await, format!("Added {}", A[1]));
    let address = |address: &str| json!({"spec": {"address": address}});
    plane.patch(&format!("{V1}/a"), PatchKind::Merge, address("k:1")).await.unwrap();
    plane.patch(&format!("{V1}/a"), PatchKind::Merge, address("k:2")).await.unwrap();
    plane.patch(&format!("{V1}/a"), PatchKind::Merge, address("h:2")).await.unwrap();
    plane.delete(&format!("{V1}/a"), json!({})).await.unwrap();
    for line in ["Modified", "Modified", "Modified", "Deleted"] {
        assert!(told(&plane, &mut all).await.starts_with(line), "{line}");
    }
    for line in [
        r#"Added a {"host":"k","note":"d","port":"1"}"#,
        r#"Modified a {"host":"k","note":"d","port":"2"}"#,
        r#"Deleted a {"host":"k","note":"d","port":"2"}"#,
    ] {
        assert_eq!(told(&plane, &mut some).await, line);
    }
    // Many who watch the same change ask once.
    let mut many = Vec::new();
    for _ in 0..50 {
        many.push(watch(&plane, V2, &[("resourceVersion", "0")]).await);
    }
    hook.reset();
    plane.create(V1, old("b", "k:2")).await.unwrap();
    for each in &mut many {
        assert_eq!(told(&plane, each).await, format!("Added {}", B[1]));
    }
    assert_eq!(hook.calls(), 1);
    // Whoever is cancelled while it waits misses nothing.
    hook.set(Mode::Hangs);
    plane.create(V1, old("c", "k:2")).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(20), many[0].next()).await;
    assert!(waiting.is_err());
    hook.set(Mode::Converts);
    assert!(told(&plane, &mut many[0]).await.starts_with("Added c"));
    // A change that cannot be told ends the watch.
    hook.set(Mode::Dead);
    plane.create(V1, old("d", "k:2")).await.unwrap();
    loop {
        match many[0].next().await.unwrap() {
            WatchItem::Error(status) => {
                assert_eq!(status.code, 500);
                assert!(
                    status
                        .message
                        .starts_with("conversion webhook for example.com/v1, Kind=Host failed: Post")
                );
                break;
            }
            WatchItem::Object { .. } => panic!("it cannot be converted"),
            WatchItem::Bookmark { .. } => {}
        }
    }
    assert!(many[0].next().await.is_none());
}

/// What cannot be converted fails, in the words of upstream, and nothing else does.
/// What has happened meanwhile is one question.
#[tokio::test]
async fn a_watch_that_is_behind_asks_about_many_changes_at_once() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    let mut all = watch(&plane, V2, &[("resourceVersion", "0")]).await;
    let mut some = watch(&plane, V2, &[("fieldSelector", "spec.host=k"), ("resourceVersion", "0")]).await;
    for index in 0..20 {
        plane.create(V1, old(&format!("h{index}"), "h:1")).await.unwrap();
        plane.create(V1, old(&format!("k{index}"), "k:1")).await.unwrap();
    }
    hook.reset();
    for index in 0..20 {
        assert!(told(&plane, &mut all).await.starts_with(&format!("Added h{index} ")));
        assert!(told(&plane, &mut all).await.starts_with(&format!("Added k{index} ")));
    }
    assert!(hook.calls() <= 3 && hook.objects() == 40, "{} about {}", hook.calls(), hook.objects());
    for index in 0..20 {
        assert!(told(&plane, &mut some).await.starts_with(&format!("Added k{index} ")));
    }
    assert_eq!(hook.objects(), 40, "what one has asked for is there for others");
    // What fails is told at its turn.
    for name in ["x", "y"] {
        plane.create(V1, old(name, "h:1")).await.unwrap();
    }
    assert!(told(&plane, &mut all).await.starts_with("Added x "));
    hook.set(Mode::Dead);
    plane.create(V1, old("z", "h:1")).await.unwrap();
    assert!(told(&plane, &mut all).await.starts_with("Added y "));
    assert!(matches!(all.next().await, Some(WatchItem::Error(_))));
    assert!(all.next().await.is_none());
}

#[tokio::test]
async fn answers_that_are_none() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    plane.create(V1, old("a", "h:1")).await.unwrap();
    plane.create(V1, old("b", "h:1")).await.unwrap();
    let kind = "conversion webhook for example.com/v1, Kind=Host";
    for (mode, expected) in [
        (Mode::Dead, "failed: Post \"https://hook.test/convert?timeout=30s\": nobody is there"),
        (Mode::Answer("not JSON"), "failed: couldn't get version/kind; json parse error"),
        (Mode::OtherUid, "failed: expected response.uid="),
        (Mode::Says("Failed", "it cannot"), "failed: it cannot"),
        (Mode::Says("Failed", ""), "failed: response.result.status was 'Failed', not 'Success'"),
        (Mode::Drops, "returned 0 objects, expected 1"),
        (
            Mode::Sets("/apiVersion", "example.com/v3"),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
        ),
        (
            Mode::Sets("/kind", "Ghost"),
            "returned invalid object at index 0: invalid kind (expected Host, received Ghost)",
        ),
        (Mode::Sets("/metadata/name", "z"), "returned invalid object: must have the same name: "),
        (
            Mode::Sets("/metadata/namespace", "z"),
            "returned invalid object: must have the same namespace: default != z",
        ),
        (Mode::Sets("/metadata/uid", "z"), "returned invalid object: must have the same UID: "),
        (
            Mode::Sets("/metadata/labels", "z"),
            "returned invalid metadata: invalid metadata.labels of type string in converted object",
        ),
    ] {
        hook.set(mode);
        for outcome in [
            plane.get(&format!("{V2}/a")).await.map(drop),
            plane.list(V2, &[]).await.map(drop),
            plane.patch(&format!("{V2}/a"), PatchKind::Merge, json!({"spec": {"port": "7"}})).await.map(drop),
            plane.delete(&format!("{V2}/a"), json!({})).await.map(drop),
        ] {
            let (status, text) = code(outcome);
            assert!(status == 500 && text.starts_with(&format!("{kind} {expected}")), "{mode:?}: {text}");
        }
        assert_eq!(code(plane.create(V2, new("n", "h", "1")).await).0, 500, "{mode:?}");
        assert_eq!(plane.list(V1, &[]).await.unwrap().0, ["default/a", "default/b"], "{mode:?}");
    }
    // What is not a webhook's to change is put back.
    hook.set(Mode::Sets("/metadata/generation", "z"));
    assert_eq!(plane.get(&format!("{V2}/a")).await.unwrap().i64_at(&["metadata", "generation"]), Some(1));
    // One that answers only for the first of several is asked about each.
    hook.set(Mode::First);
    assert_eq!(plane.list(V2, &[]).await.unwrap().0, ["default/a", "default/b"]);
}

/// Whatever a webhook makes of objects: none of them is much heavier than one may be stored.
#[tokio::test]
async fn objects_do_not_become_too_heavy() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    for name in ["a", "b"] {
        plane.create(V1, old(name, "h:1")).await.unwrap();
    }
    let path = format!("{V2}/a");
    for (mode, refused) in [
        (Mode::Swells(90_000), false),
        (Mode::Swells(150_000), false),
        (Mode::Swells(200_000), true),
        (Mode::SwellsAlone(150_000), false),
        (Mode::SwellsAlone(200_000), true),
    ] {
        hook.set(mode);
        let port = json!({"spec": {"port": "7"}});
        for (what, outcome) in [
            ("get", plane.get(&path).await.map(drop)),
            ("list", plane.list(V2, &[]).await.map(drop)),
            ("create", plane.create_with(V2, new("c", "h", "1"), &[("dryRun", "All")]).await.map(drop)),
            ("patch", plane.patch(&path, PatchKind::Merge, port).await.map(drop)),
        ] {
            let text = match outcome {
                Ok(()) => String::new(),
                Err(status) => code::<()>(Err(status)).1,
            };
            // What is stored has a limit of its own.
            let writes = ["create", "patch"].contains(&what) && text.contains("has a limit of 100000 bytes");
            assert_eq!(
                text.contains("Host.example.com returned an object that is too large"),
                refused,
                "{mode:?}: {what}: {text}"
            );
            assert!(refused || writes || text.is_empty(), "{mode:?}: {what}: {text}");
        }
    }
}

/// Answers wait to be read: those that are much longer than what was asked do not.
#[tokio::test]
async fn answers_are_as_long_as_questions() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    plane.create(V1, old("small", "h:1")).await.unwrap();
    plane.create(V1, old("large", &format!("{}:1", "h".repeat(90_000)))).await.unwrap();
    for (name, spaces, refused) in [
        ("small", 1_000, false),
        ("small", 250_000, false),
        ("small", 300_000, true),
        ("small", 8_000_000, true),
        ("large", 600_000, false),
        ("large", 1_100_000, true),
    ] {
        hook.set(Mode::Pads(spaces));
        let outcome = plane.get(&format!("{V2}/{name}")).await;
        let text = outcome.map_or_else(|status| code::<()>(Err(status)).1, |_| String::new());
        assert_eq!(text.contains("failed: the answer is longer than "), refused, "{name} {spaces}: {text}");
        assert!(refused || text.is_empty(), "{name} {spaces}: {text}");
    }
}

/// However heavy objects become, a page of them does not, and none is lost.
#[tokio::test]
async fn pages_do_not_become_too_heavy() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    let names: Vec<String> = (0..150).map(|number| format!("n{number:03}")).collect();
    for name in &names {
        plane.create(V1, old(name, "h:1")).await.unwrap();
    }
    let target = plane.target(V2).await;
    for (mode, query, len, remaining) in [
        (Mode::Converts, &[][..], 150, None),
        (Mode::Swells(5_000), &[][..], 150, None),
        (Mode::Swells(90_000), &[][..], 150, None),
        (Mode::SwellsAlone(90_000), &[][..], 150, None),
        (Mode::Swells(5_000), &[("limit", "120")][..], 120, Some(30)),
        (Mode::SwellsAlone(90_000), &[("limit", "145")][..], 145, Some(5)),
        (Mode::SwellsAlone(90_000), &[("limit", "150")][..], 150, None),
        (Mode::SwellsAlone(90_000), &[("limit", "100"), ("labelSelector", "version=v2")][..], 100, None),
    ] {
        hook.set(mode);
        let options = ListOptions::from_query(&pairs(query), &target).unwrap();
        let mut listing = world.registry.listing(&plane.context(), &target, &options).await.unwrap();
        let (mut seen, mut heaviest) = (Vec::new(), 0);
        loop {
            let page = listing.objects.page().await.unwrap();
            if page.is_empty() {
                break;
            }
            heaviest = heaviest.max(page.iter().map(|object| object.record.len()).sum::<usize>());
            seen.extend(page.iter().map(|object| object.name.name.to_string()));
        }
        assert_eq!(seen, names[..len], "{mode:?} {query:?}");
        assert_eq!(listing.continue_token.is_some(), len < names.len(), "{mode:?} {query:?}");
        assert_eq!(listing.remaining, remaining, "{mode:?} {query:?}");
        assert!(heaviest < 512 * 1024 + 200_000, "{mode:?} {query:?}: a page of {heaviest} bytes");
    }
}

/// A write whose answer cannot be made does not happen.
#[tokio::test]
async fn what_cannot_be_shown_is_not_done() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    hook.set(Mode::OneWay);
    assert_eq!(code(plane.create(V2, new("n", "h", "1")).await).0, 500);
    assert_eq!(code(plane.get(&format!("{V1}/n")).await).0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_hangs_costs_its_time_and_only_its_own() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    plane.create(V1, old("a", "h:1")).await.unwrap();
    hook.set(Mode::Hangs);
    let path = format!("{V2}/a");
    let gets = (0..100).map(|_| plane.get(&path));
    let gets = futures_util::future::join_all(gets);
    let others = async {
        plane.get(&format!("{V1}/a")).await.unwrap();
        plane.create("v1/configmaps/default", json!({"metadata": {"name": "m"}})).await.unwrap();
    };
    let (gets, ()) = tokio::join!(gets, others);
    for outcome in gets {
        let said = "conversion webhook for example.com/v1, Kind=Host failed: Post \"https://hook.test/convert?timeout=30s\": context deadline exceeded";
        assert_eq!(code(outcome), (500, said.to_owned()));
    }
}

/// Whoever takes the last finalizer away is not asked how the object would have been stored.
#[tokio::test]
async fn the_last_finalizer_needs_no_webhook() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    let mut held = old("a", "h:1");
    held.set_at(&["metadata", "finalizers"], json!(["example.com/f"]));
    plane.create(V1, held).await.unwrap();
    let path = format!("{V1}/a");
    plane.delete(&path, json!({})).await.unwrap();
    store_in(&plane, "v2").await;
    hook.set(Mode::Dead);
    plane.patch(&path, PatchKind::Merge, json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert_eq!(code(plane.get(&path).await).0, 404);
}

/// Namespaces and definitions go, whatever their webhook does.
#[tokio::test]
async fn nothing_stays_because_a_webhook_is_gone() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    plane.create("v1/namespaces", json!({"metadata": {"name": "n"}})).await.unwrap();
    plane.create("example.com/v1/hosts/n", old("a", "h:1")).await.unwrap();
    plane.create(V1, old("b", "h:1")).await.unwrap();
    let mut held = old("c", "h:1");
    held.set_at(&["metadata", "finalizers"], json!(["example.com/f"]));
    plane.create(V1, held).await.unwrap();
    store_in(&plane, "v2").await;
    // The version objects are stored in may not even be served.
    let mut versions = crd("v2").at(&["spec", "versions"]).cloned().unwrap();
    if let Some(versions) = versions.as_array_mut() {
        versions[0].set_at(&["served"], false);
    }
    plane.patch(CRD, PatchKind::Merge, json!({"spec": {"versions": versions}})).await.unwrap();
    hook.set(Mode::Dead);
    plane.delete("v1/namespaces/n", json!({})).await.unwrap();
    plane.gone("v1/namespaces/n").await;
    plane.delete(CRD, json!({})).await.unwrap();
    // It waits for its object with a finalizer, which is marked and still what it was.
    hook.set(Mode::Converts);
    let path = format!("{V2}/c");
    let mut kept = plane.get(&path).await.unwrap();
    for _ in 0..1000 {
        if kept.at(&["metadata", "deletionTimestamp"]).is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        kept = plane.get(&path).await.unwrap();
    }
    assert_eq!(spec(&kept), r#"{"host":"h","note":"d","port":"1"}"#);
    plane.patch(&path, PatchKind::Merge, json!({"metadata": {"finalizers": null}})).await.unwrap();
    plane.gone(CRD).await;
}

/// Rules look at the version they name.
#[tokio::test]
async fn rules_see_the_version_they_name() {
    let (world, hook) = world();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("v1")).await.unwrap();
    let policies = "admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["example.com"], "apiVersions": ["v2"],
            "operations": ["CREATE", "DELETE"], "resources": ["hosts"]}]},
        "validations": [{"expression": "request.operation == 'DELETE' ? oldObject.spec.port != '6' : object.spec.port != '7'"}],
    }});
    plane.create(policies, policy).await.unwrap();
    let binding =
        json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    plane
        .create(&format!("{policies}bindings").replace("policiesbindings", "policybindings"), binding)
        .await
        .unwrap();
    plane.create(V1, old("a", "h:6")).await.unwrap();
    assert_eq!(code(plane.create(V1, old("b", "h:7")).await).0, 422);
    assert_eq!(code(plane.delete(&format!("{V1}/a"), json!({})).await).0, 422);
    hook.set(Mode::Dead);
    let (status, text) = code(plane.create(V1, old("b", "h:8")).await);
    assert_eq!(status, 500);
    assert!(
        text.starts_with("Internal error occurred: conversion webhook for example.com/v1, Kind=Host failed:"),
        "{text}"
    );
}
