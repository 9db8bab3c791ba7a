//! CRDs and what becomes of their objects: names, guards, deletion, restarts. On a memory store, without HTTP.

use polder_model::{Status, Value, json};
use polder_registry::context::WriteOptions;
use polder_registry::write::PatchKind;
use polder_store::memory::MemoryEngine;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::world::shaky::ShakyEngine;
use crate::world::{Plane, World, code, document};

const CRDS: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";

fn crd(plural: &str, kind: &str, short: &[&str]) -> Value {
    let short: Vec<Value> = short.iter().map(|name| Value::from(*name)).collect();
    json!({
        "metadata": {"name": (format!("{plural}.example.com"))},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": (kind.to_lowercase()), "shortNames": short},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

fn condition(crd: &Value, kind: &str) -> String {
    let conditions = crd.array_at(&["status", "conditions"]);
    let found = conditions.iter().find(|one| one.str_at(&["type"]) == Some(kind)).unwrap();
    let text = |key| found.str_at(&[key]).unwrap_or_default();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}

async fn serves(plane: &Plane<'_>, plural: &str) -> bool {
    let context = plane.context();
    plane.world.registry.resolve(&context.plane, "example.com", "v1", plural).await.unwrap().is_some()
}

/// What somebody does who found the resource before it changed.
async fn create_late(plane: &Plane<'_>, target: &polder_registry::Target, name: &str) -> Result<(), Status> {
    let document = document(target, json!({"metadata": {"name": name}}));
    let options = WriteOptions::default();
    plane.world.registry.create(&plane.context(), target, document, &options).await.map(drop)
}

#[tokio::test]
async fn no_object_outlives_its_crd_or_namespace() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("widgets", "Widget", &[])).await.unwrap();
    plane.create("v1/namespaces", json!({"metadata": {"name": "t"}})).await.unwrap();
    // Both are found while they are there, and used when they are gone.
    let custom = plane.target("example.com/v1/widgets/default").await;
    let inside = plane.target("v1/configmaps/t").await;
    create_late(&plane, &custom, "first").await.unwrap();
    create_late(&plane, &inside, "first").await.unwrap();
    // While the CRD changes, objects are still made.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    plane.patch(&format!("{CRDS}/widgets.example.com"), PatchKind::Merge, label).await.unwrap();
    create_late(&plane, &custom, "second").await.unwrap();

    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    plane.patch("example.com/v1/widgets/default/first", PatchKind::Merge, held).await.unwrap();
    plane.delete(&format!("{CRDS}/widgets.example.com"), json!({})).await.unwrap();
    let (refused, text) = code(create_late(&plane, &custom, "late").await);
    assert_eq!(
        (refused, text.as_str()),
        (
            403,
            "widgets.example.com \"late\" is forbidden: create not allowed while custom resource definition is terminating"
        )
    );
    let marked = plane.get(&format!("{CRDS}/widgets.example.com")).await.unwrap();
    assert_eq!(
        condition(&marked, "Terminating"),
        "True InstanceDeletionInProgress: CustomResource deletion is in progress"
    );
    plane.gone("example.com/v1/widgets/default/second").await;
    let free = json!({"metadata": {"finalizers": null}});
    plane.patch("example.com/v1/widgets/default/first", PatchKind::Merge, free).await.unwrap();
    plane.gone(&format!("{CRDS}/widgets.example.com")).await;
    let (refused, text) = code(create_late(&plane, &custom, "later").await);
    assert_eq!((refused, text.as_str()), (404, "the server could not find the requested resource"));

    plane.delete("v1/namespaces/t", json!({})).await.unwrap();
    plane.gone("v1/namespaces/t").await;
    assert_eq!(code(create_late(&plane, &inside, "later").await).0, 404);
    plane.create(CRDS, crd("widgets", "Widget", &[])).await.unwrap();
    plane.create("v1/namespaces", json!({"metadata": {"name": "t"}})).await.unwrap();
    for path in ["example.com/v1/widgets", "v1/configmaps/t"] {
        assert_eq!(plane.list(path, &[]).await.unwrap().0, Vec::<String>::new(), "{path}");
    }
}

/// Creates and deletes at the same time: whatever the order, nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn creates_race_the_deletion_of_their_crd() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    for round in 0..20 {
        plane.create(CRDS, crd("widgets", "Widget", &[])).await.unwrap();
        assert_eq!(plane.list("example.com/v1/widgets", &[]).await.unwrap().0.len(), 0, "round {round}");
        let target = plane.target("example.com/v1/widgets/default").await;
        let mut creates = tokio::task::JoinSet::new();
        for index in 0..8 {
            let (registry, context, target) = (world.registry.clone(), plane.context(), target.clone());
            creates.spawn(async move {
                for attempt in 0..20 {
                    let value = json!({"metadata": {"name": (format!("w-{index}-{attempt}"))}});
                    let document = document(&target, value);
                    registry.create(&context, &target, document, &WriteOptions::default()).await.ok();
                }
            });
        }
        tokio::task::yield_now().await;
        plane.delete(&format!("{CRDS}/widgets.example.com"), json!({})).await.unwrap();
        while creates.join_next().await.is_some() {}
        plane.gone(&format!("{CRDS}/widgets.example.com")).await;
    }
}

#[tokio::test]
async fn names_belong_to_the_first_and_then_to_the_next() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("widgets", "Widget", &["wd"])).await.unwrap();
    let second = plane.create(CRDS, crd("gadgets", "Widget", &["wd"])).await.unwrap();
    assert_eq!(
        condition(&second, "NamesAccepted"),
        r#"False ListKindConflict: "WidgetList" is already in use"#
    );
    assert_eq!(condition(&second, "Established"), "False NotAccepted: not all names are accepted");
    assert_eq!(
        second.at(&["status", "acceptedNames"]).unwrap().to_string(),
        r#"{"kind":"","plural":"gadgets"}"#
    );
    assert!(!serves(&plane, "gadgets").await);

    // Established is for good: the old names stay while a new one is refused.
    let made = plane.create(CRDS, crd("things", "Thing", &["th"])).await.unwrap();
    assert_eq!(
        condition(&made, "Established"),
        "True InitialNamesAccepted: the initial names have been accepted"
    );
    let greedy = json!({"spec": {"names": {"shortNames": ["th", "wd"]}}});
    let path = format!("{CRDS}/things.example.com");
    let greedy = plane.patch(&path, PatchKind::Merge, greedy).await.unwrap();
    assert_eq!(condition(&greedy, "NamesAccepted"), r#"False ShortNamesConflict: "wd" is already in use"#);
    assert!(condition(&greedy, "Established").starts_with("True"));
    let target = plane.target("example.com/v1/things/default").await;
    assert_eq!(target.definition.short_names, ["th"]);

    plane.delete(&format!("{CRDS}/widgets.example.com"), json!({})).await.unwrap();
    plane.gone(&format!("{CRDS}/widgets.example.com")).await;
    for _ in 0..1000 {
        if serves(&plane, "gadgets").await {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let second = plane.get(&format!("{CRDS}/gadgets.example.com")).await.unwrap();
    assert_eq!(condition(&second, "NamesAccepted"), "True NoConflicts: no conflicts found");
    assert_eq!(second.at(&["status", "acceptedNames"]), second.at(&["spec", "names"]));
    plane.create("example.com/v1/gadgets/default", json!({"metadata": {"name": "g"}})).await.unwrap();
}

/// Of many that want the same name at the same time one gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_name_is_given_once() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let target = plane.target(CRDS).await;
    let mut creates = tokio::task::JoinSet::new();
    for index in 0..16 {
        let (registry, context, target) = (world.registry.clone(), plane.context(), target.clone());
        creates.spawn(async move {
            let value = crd(&format!("w{index}s"), "Widget", &[]);
            let document = document(&target, value);
            registry.create(&context, &target, document, &WriteOptions::default()).await.unwrap();
        });
    }
    while let Some(created) = creates.join_next().await {
        created.unwrap();
    }
    let mut served = 0;
    for index in 0..16 {
        served += usize::from(serves(&plane, &format!("w{index}s")).await);
    }
    assert_eq!(served, 1);
}

#[tokio::test]
async fn versions_come_and_go() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("widgets", "Widget", &[])).await.unwrap();
    plane.create("example.com/v1/widgets/default", json!({"metadata": {"name": "w"}})).await.unwrap();
    let path = format!("{CRDS}/widgets.example.com");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": (schema.clone())});
    let two = json!({"spec": {"versions": [(version("v1", false)), (version("v2", true))]}});
    let changed = plane.patch(&path, PatchKind::Merge, two).await.unwrap();
    assert_eq!(changed.at(&["status", "storedVersions"]).unwrap().to_string(), r#"["v1","v2"]"#);
    let read = plane.get("example.com/v2/widgets/default/w").await.unwrap();
    assert_eq!(read.str_at(&["apiVersion"]), Some("example.com/v2"));

    let one = json!({"spec": {"versions": [(version("v2", true))]}});
    let (refused, text) = code(plane.patch(&path, PatchKind::Merge, one.clone()).await);
    assert_eq!(refused, 422);
    assert!(
        text.contains("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions"),
        "{text}"
    );
    let status = format!("{path}/status");
    // As upstream has it: who writes the status says what is stored; the next write of the spec adds what is true anyway.
    for stored in [json!([]), json!(["v1"]), json!(["v1", "v7"])] {
        let status_of = json!({"status": {"storedVersions": stored}});
        plane.patch(&status, PatchKind::Merge, status_of).await.unwrap();
    }
    let migrated = json!({"status": {"storedVersions": ["v2"]}});
    plane.patch(&status, PatchKind::Merge, migrated).await.unwrap();
    plane.patch(&path, PatchKind::Merge, one).await.unwrap();
    assert!(!serves(&plane, "widgets").await, "v1 is gone");
    assert_eq!(
        plane.get("example.com/v2/widgets/default/w").await.unwrap().str_at(&["metadata", "name"]),
        Some("w")
    );
}

/// What nobody can reach goes with its namespace all the same.
#[tokio::test]
async fn a_namespace_takes_along_what_is_not_served() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("widgets", "Widget", &[])).await.unwrap();
    plane.create("v1/namespaces", json!({"metadata": {"name": "t"}})).await.unwrap();
    for namespace in ["t", "default"] {
        let path = format!("example.com/v1/widgets/{namespace}");
        plane.create(&path, json!({"metadata": {"name": "w"}})).await.unwrap();
    }
    let path = format!("{CRDS}/widgets.example.com");
    let serve = |served: bool| json!([{"op": "replace", "path": "/spec/versions/0/served", "value": served}]);
    plane.patch(&path, PatchKind::Json, serve(false)).await.unwrap();
    plane.delete("v1/namespaces/t", json!({})).await.unwrap();
    plane.gone("v1/namespaces/t").await;
    plane.patch(&path, PatchKind::Json, serve(true)).await.unwrap();
    assert_eq!(plane.list("example.com/v1/widgets", &[]).await.unwrap().0, ["default/w"]);
}

/// What clients may not set has its default all the same.
#[tokio::test]
async fn a_status_has_its_default() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let mut own = crd("widgets", "Widget", &[]);
    let schema = json!({"type": "object", "properties": {"status": {
        "type": "object", "default": {"phase": "Pending"}, "properties": {"phase": {"type": "string"}}}}});
    let versions = own.at_mut(&["spec", "versions"]).unwrap().as_array_mut().unwrap();
    versions[0].set_at(&["schema", "openAPIV3Schema"], schema);
    versions[0].set_at(&["subresources", "status"], json!({}));
    plane.create(CRDS, own).await.unwrap();
    let widget = json!({"metadata": {"name": "w"}, "status": {"phase": "Done"}});
    let made = plane.create("example.com/v1/widgets/default", widget).await.unwrap();
    assert_eq!(made.str_at(&["status", "phase"]), Some("Pending"));
}

/// What was being deleted when the server was killed goes on at the next start, though nobody uses the plane.
#[tokio::test]
async fn deletions_go_on_after_a_crash() {
    let engine = MemoryEngine::default();
    let world = World::idle(Box::new(engine.clone()));
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("widgets", "Widget", &[])).await.unwrap();
    plane.create("example.com/v1/widgets/default", json!({"metadata": {"name": "w"}})).await.unwrap();
    plane.create("v1/namespaces", json!({"metadata": {"name": "t"}})).await.unwrap();
    plane.create("v1/configmaps/t", json!({"metadata": {"name": "c"}})).await.unwrap();
    plane.delete("v1/namespaces/t", json!({})).await.unwrap();
    plane.delete(&format!("{CRDS}/widgets.example.com"), json!({})).await.unwrap();
    world.plane("globex", json!({})).await;
    drop(world);

    let world = World::idle(Box::new(engine));
    let plane = Plane::new(&world, "acme");
    assert!(plane.get("v1/namespaces/t").await.is_ok());
    let before = world.marks();
    world.registry.tasks.spawn(world.registry.clone().run_chores());
    plane.gone("v1/namespaces/t").await;
    plane.gone(&format!("{CRDS}/widgets.example.com")).await;
    world.until("the note that the plane has something to do is gone", || world.marks() < before).await;
}

/// What was being deleted goes on though it cannot be found out at first, after a restart and in a fork.
#[tokio::test]
async fn deletions_go_on_after_reads_that_fail() {
    let inner = MemoryEngine::default();
    let world = World::idle(Box::new(inner.clone()));
    let plane = world.plane("acme", json!({})).await;
    plane.create("v1/namespaces", json!({"metadata": {"name": "t"}})).await.unwrap();
    plane.delete("v1/namespaces/t", json!({})).await.unwrap();
    world.plane("copy", json!({"forkFrom": "acme"})).await;
    drop(world);

    let failing = Arc::new(AtomicUsize::new(0));
    let world = World::idle(Box::new(ShakyEngine {
        inner,
        failing: failing.clone(),
        unreadable: Arc::default(),
        asked: Arc::default(),
    }));
    failing.store(2, Ordering::Relaxed);
    world.registry.tasks.spawn(world.registry.clone().run_chores());
    Plane::new(&world, "acme").gone("v1/namespaces/t").await;
    assert_eq!(failing.load(Ordering::Relaxed), 0);

    let copy = Plane::new(&world, "copy");
    assert!(copy.get("v1/namespaces/t").await.is_ok());
    failing.store(usize::MAX, Ordering::Relaxed);
    world.registry.resume_chores(copy.context().plane.id).await;
    failing.store(0, Ordering::Relaxed);
    copy.gone("v1/namespaces/t").await;
}

/// Names that became free just before a crash, or a fork, still go to whoever waits for them.
#[tokio::test]
async fn free_names_are_given_away_after_a_crash_and_in_a_fork() {
    let engine = MemoryEngine::default();
    let world = World::idle(Box::new(engine.clone()));
    let plane = world.plane("acme", json!({})).await;
    plane.create(CRDS, crd("widgets", "Widget", &["wd"])).await.unwrap();
    let second = plane.create(CRDS, crd("gadgets", "Gadget", &["wd"])).await.unwrap();
    assert!(condition(&second, "NamesAccepted").starts_with("False"));
    let before = world.marks();
    let less = json!({"spec": {"names": {"shortNames": null}}});
    plane.patch(&format!("{CRDS}/widgets.example.com"), PatchKind::Merge, less).await.unwrap();
    assert_eq!(world.marks(), before + 1);
    world.plane("copy", json!({"forkFrom": "acme"})).await;
    drop(world);

    let world = World::idle(Box::new(engine));
    let before = world.marks();
    world.registry.tasks.spawn(world.registry.clone().run_chores());
    for name in ["acme", "copy"] {
        let plane = Plane::new(&world, name);
        if name == "copy" {
            world.registry.resume_chores(plane.context().plane.id).await;
        }
        for _ in 0..1000 {
            if serves(&plane, "gadgets").await {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let second = plane.get(&format!("{CRDS}/gadgets.example.com")).await.unwrap();
        assert_eq!(condition(&second, "NamesAccepted"), "True NoConflicts: no conflicts found", "{name}");
    }
    world.until("nothing is left to do", || world.marks() == before - 1).await;
}

/// What others hold back is theirs to let go: once our part is done, nobody is busy with it, also after a restart.
#[tokio::test]
async fn a_foreign_finalizer_keeps_nobody_busy() {
    let engine = MemoryEngine::default();
    let world = World::idle(Box::new(engine.clone()));
    let plane = world.plane("acme", json!({})).await;
    let before = world.marks();
    plane.create(CRDS, crd("widgets", "Widget", &[])).await.unwrap();
    plane.create("v1/namespaces", json!({"metadata": {"name": "t"}})).await.unwrap();
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    let paths = [format!("{CRDS}/widgets.example.com"), "v1/namespaces/t".to_owned()];
    for path in &paths {
        plane.patch(path, PatchKind::Merge, held.clone()).await.unwrap();
        plane.delete(path, json!({})).await.unwrap();
    }
    assert_eq!(world.marks(), before + 1);
    world.registry.tasks.spawn(world.registry.clone().run_chores());
    world.until("nobody is busy", || world.marks() == before).await;
    for path in &paths {
        let left = plane.get(path).await.unwrap();
        let finalizers = left.at(&["metadata", "finalizers"]).unwrap().to_string();
        assert_eq!(finalizers, r#"["example.com/hold"]"#, "{path}");
        assert!(left.array_at(&["spec", "finalizers"]).is_empty(), "{path}");
    }
    drop(world);

    let world = World::idle(Box::new(engine));
    let plane = Plane::new(&world, "acme");
    world.registry.tasks.spawn(world.registry.clone().run_chores());
    for path in &paths {
        let free = json!({"metadata": {"finalizers": null}});
        plane.patch(path, PatchKind::Merge, free).await.unwrap();
        plane.gone(path).await;
    }
}

/// A tenant with very much to delete does not keep another one waiting.
#[tokio::test]
async fn a_large_deletion_delays_only_itself() {
    let world = World::new();
    let (large, small) = (world.plane("large", json!({})).await, world.plane("small", json!({})).await);
    for plane in [&large, &small] {
        plane.create("v1/namespaces", json!({"metadata": {"name": "t"}})).await.unwrap();
    }
    for index in 0..3_000 {
        let name = format!("c{index}");
        large.create("v1/configmaps/t", json!({"metadata": {"name": name}})).await.unwrap();
    }
    small.create("v1/configmaps/t", json!({"metadata": {"name": "c"}})).await.unwrap();
    large.delete("v1/namespaces/t", json!({})).await.unwrap();
    small.delete("v1/namespaces/t", json!({})).await.unwrap();
    small.gone("v1/namespaces/t").await;
    assert!(large.get("v1/namespaces/t").await.is_ok(), "the large one is still at it");
    large.gone("v1/namespaces/t").await;
    assert_eq!(large.list("v1/configmaps/t", &[]).await.unwrap().0.len(), 0);
}

/// A PUT that creates: of many at the same time one creates, the others update.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn puts_of_a_new_name_do_not_fight() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    for round in 0..20 {
        let target = plane.target(&format!("v1/endpoints/default/e{round}")).await;
        assert!(target.definition.behavior.create_on_update);
        let mut puts = tokio::task::JoinSet::new();
        for index in 0..8 {
            let (registry, context, target) = (world.registry.clone(), plane.context(), target.clone());
            puts.spawn(async move {
                let label = format!("v{index}");
                let value = json!({"metadata": {"name": (target.name.clone()), "labels": {"l": label}}});
                let document = document(&target, value);
                registry.update(&context, &target, document, &WriteOptions::default()).await
            });
        }
        let mut created = 0;
        while let Some(put) = puts.join_next().await {
            created += usize::from(put.unwrap().unwrap().created);
        }
        assert_eq!(created, 1);
    }
}
