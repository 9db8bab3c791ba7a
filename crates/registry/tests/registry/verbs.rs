//! Every verb through the registry on a memory store: what clients see, without HTTP.

use std::sync::Arc;

use polder_auth::UserInfo;
use polder_client::resource::CONFIG_MAPS;
use polder_client::{Client, InPlane};
use polder_model::{Status, Value, json};
use polder_registry::RequestContext;
use polder_registry::client::LocalClient;
use polder_registry::watch::{ObjectChange, WatchItem, WatchOptions};
use polder_registry::write::PatchKind;

use crate::world::{Plane, World, code, pairs};

fn config(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "1"}})
}

#[tokio::test]
async fn an_object_lives() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let made = plane.create("v1/configmaps/default", config("a")).await.unwrap();
    assert_eq!(made.str_at(&["kind"]), Some("ConfigMap"));
    assert_eq!(made.str_at(&["metadata", "namespace"]), Some("default"));
    assert!(made.str_at(&["metadata", "uid"]).is_some_and(|uid| uid.len() == 36));
    assert_eq!(plane.get("v1/configmaps/default/a").await.unwrap(), made);

    let (refused, text) = code(plane.create("v1/configmaps/default", config("a")).await);
    assert_eq!((refused, text.as_str()), (409, r#"configmaps "a" already exists"#));

    let mut changed = made.clone();
    changed.set_at(&["data", "b"], "2");
    let updated = plane.update("v1/configmaps/default/a", changed.clone()).await.unwrap();
    assert_ne!(updated.at(&["metadata", "resourceVersion"]), made.at(&["metadata", "resourceVersion"]));
    changed.set_at(&["data", "c"], "3");
    assert_eq!(code(plane.update("v1/configmaps/default/a", changed).await).0, 409, "the version is old");
    let same = plane.update("v1/configmaps/default/a", updated.clone()).await.unwrap();
    assert_eq!(same, updated, "writing what is there changes nothing");

    let gone = plane.delete("v1/configmaps/default/a", json!({})).await.unwrap();
    assert_eq!(gone.str_at(&["status"]), Some("Success"));
    assert_eq!(gone.str_at(&["details", "kind"]), Some("configmaps"));
    assert_eq!(code(plane.get("v1/configmaps/default/a").await).1, r#"configmaps "a" not found"#);
}

#[tokio::test]
async fn refusals_read_like_upstream() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let rows = [
        ("v1/configmaps/nowhere", config("a"), 404, r#"namespaces "nowhere" not found"#),
        (
            "v1/configmaps/default",
            json!({"metadata": {}}),
            422,
            r#"ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required"#,
        ),
        (
            "v1/configmaps/default",
            json!({"metadata": {"name": "a", "namespace": "other"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "v1/configmaps/default",
            json!({"metadata": {"name": "a", "resourceVersion": "5"}}),
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            "v1/configmaps/default",
            json!({"apiVersion": "apps/v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            400,
            "the API version in the data (apps/v1) does not match the expected API version (v1)",
        ),
        (
            "v1/configmaps/default",
            json!({"metadata": {"name": "a"}, "data": {"k": 1}}),
            400,
            r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"#,
        ),
    ];
    for (path, object, expected_code, expected) in rows {
        let (found_code, text) = code(plane.create(path, object).await);
        assert_eq!((found_code, text.as_str()), (expected_code, expected));
    }
    let unknown = json!({"metadata": {"name": "a", "foo": 1}, "bar": 2});
    let strict =
        plane.create_with("v1/configmaps/default", unknown.clone(), &[("fieldValidation", "Strict")]).await;
    assert_eq!(
        code(strict).1,
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "bar", unknown field "metadata.foo""#
    );
    let lenient = plane.create("v1/configmaps/default", unknown).await.unwrap();
    assert!(lenient.get("bar").is_none() && lenient.at(&["metadata", "foo"]).is_none(), "{lenient}");
}

#[tokio::test]
async fn dry_runs_and_generated_names() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create_with("v1/configmaps/default", config("dry"), &[("dryRun", "All")]).await.unwrap();
    assert_eq!(code(plane.get("v1/configmaps/default/dry").await).0, 404);
    assert_eq!(
        code(plane.create_with("v1/configmaps/default", config("x"), &[("dryRun", "Some")]).await).0,
        422
    );

    let mut names = std::collections::HashSet::new();
    for _ in 0..20 {
        let object = json!({"metadata": {"generateName": "job-"}});
        let made = plane.create("v1/configmaps/default", object).await.unwrap();
        let name = made.str_at(&["metadata", "name"]).unwrap().to_string();
        assert!(name.starts_with("job-") && name.len() == 9);
        names.insert(name);
    }
    assert_eq!(names.len(), 20);
}

#[tokio::test]
async fn spec_and_status_have_their_own_endpoints() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let deployment = json!({
        "metadata": {"name": "web"}, "status": {"replicas": 9},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let made = plane.create("apps/v1/deployments/default", deployment).await.unwrap();
    assert_eq!(made.i64_at(&["spec", "replicas"]), Some(1));
    assert_eq!(made.i64_at(&["metadata", "generation"]), Some(1));
    assert_eq!(made.at(&["status", "replicas"]), None, "status is not the creator's to set");

    let status = json!({"spec": {"replicas": 7}, "status": {"replicas": 3}});
    let after =
        plane.patch("apps/v1/deployments/default/web/status", PatchKind::Merge, status).await.unwrap();
    assert_eq!(
        (after.i64_at(&["spec", "replicas"]), after.i64_at(&["status", "replicas"])),
        (Some(1), Some(3))
    );
    assert_eq!(after.i64_at(&["metadata", "generation"]), Some(1));

    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "j"}]}}}, "status": {"replicas": 8}});
    let after = plane.patch("apps/v1/deployments/default/web", PatchKind::Strategic, patch).await.unwrap();
    assert_eq!(after.array_at(&["spec", "template", "spec", "containers"]).len(), 2, "lists merge by name");
    assert_eq!(after.i64_at(&["status", "replicas"]), Some(3));
    assert_eq!(after.i64_at(&["metadata", "generation"]), Some(2));

    let scaled = plane.patch(
        "apps/v1/deployments/default/web/scale",
        PatchKind::Merge,
        json!({"spec": {"replicas": 5}}),
    );
    let scaled = scaled.await.unwrap();
    assert_eq!((scaled.str_at(&["kind"]), scaled.i64_at(&["spec", "replicas"])), (Some("Scale"), Some(5)));
    assert_eq!(scaled.str_at(&["status", "selector"]), Some("a=b"));
    assert_eq!(
        plane.get("apps/v1/deployments/default/web").await.unwrap().i64_at(&["spec", "replicas"]),
        Some(5)
    );

    let selector = json!({"spec": {"selector": {"matchLabels": {"a": "c"}}}});
    let (refused, text) =
        code(plane.patch("apps/v1/deployments/default/web", PatchKind::Merge, selector).await);
    assert!(refused == 422 && text.contains("field is immutable"), "{text}");
}

#[tokio::test]
async fn deletion_waits_for_finalizers_and_checks_preconditions() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let mut held = config("held");
    held.set_at(&["metadata", "finalizers"], json!(["example.com/hold"]));
    let made = plane.create("v1/configmaps/default", held).await.unwrap();

    let wrong = json!({"preconditions": {"uid": "nope"}});
    assert_eq!(code(plane.delete("v1/configmaps/default/held", wrong).await).0, 409);
    let marked = plane.delete("v1/configmaps/default/held", json!({})).await.unwrap();
    assert!(marked.at(&["metadata", "deletionTimestamp"]).is_some());
    assert_eq!(marked.at(&["metadata", "uid"]), made.at(&["metadata", "uid"]));
    let again = plane.delete("v1/configmaps/default/held", json!({})).await.unwrap();
    assert_eq!(again, marked, "a second delete changes nothing");

    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/other"]}});
    assert_eq!(code(plane.patch("v1/configmaps/default/held", PatchKind::Merge, more).await).0, 422);
    let release = json!({"metadata": {"finalizers": null}});
    plane.patch("v1/configmaps/default/held", PatchKind::Merge, release).await.unwrap();
    assert_eq!(code(plane.get("v1/configmaps/default/held").await).0, 404);
}

#[tokio::test]
async fn lists_page_and_select() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    for index in 0..7 {
        let mut object = config(&format!("c{index}"));
        object.set_at(&["metadata", "labels", "parity"], if index % 2 == 0 { "even" } else { "odd" });
        plane.create("v1/configmaps/default", object).await.unwrap();
    }
    let (names, token) = plane.list("v1/configmaps/default", &[("limit", "3")]).await.unwrap();
    assert_eq!(names, ["default/c0", "default/c1", "default/c2"]);
    plane.create("v1/configmaps/default", config("c2a")).await.unwrap();
    let token = token.unwrap();
    let (names, token) =
        plane.list("v1/configmaps/default", &[("limit", "3"), ("continue", &token)]).await.unwrap();
    assert_eq!(names, ["default/c3", "default/c4", "default/c5"], "pages are of one state");
    let (names, token) =
        plane.list("v1/configmaps/default", &[("limit", "3"), ("continue", &token.unwrap())]).await.unwrap();
    assert_eq!((names, token), (vec!["default/c6".to_string()], None));

    let (names, _) =
        plane.list("v1/configmaps/default", &[("labelSelector", "parity in (odd)")]).await.unwrap();
    assert_eq!(names, ["default/c1", "default/c3", "default/c5"]);
    let (names, _) = plane.list("v1/configmaps", &[("fieldSelector", "metadata.name=c4")]).await.unwrap();
    assert_eq!(names, ["default/c4"]);
    assert_eq!(code(plane.list("v1/configmaps", &[("fieldSelector", "data.a=1")]).await).0, 400);
    assert_eq!(code(plane.list("v1/configmaps", &[("resourceVersionMatch", "Exact")]).await).0, 422);
}

#[tokio::test]
async fn an_expired_page_comes_with_a_new_token() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    for index in 0..4 {
        plane.create("v1/configmaps/default", config(&format!("c{index}"))).await.unwrap();
    }
    let (_, token) = plane.list("v1/configmaps/default", &[("limit", "2")]).await.unwrap();
    plane.create("v1/configmaps/default", config("c9")).await.unwrap();
    world.registry.store.compact(world.registry.store.current()).await.unwrap();
    let query = [("limit", "2"), ("continue", token.as_deref().unwrap())];
    let expired = plane.list("v1/configmaps/default", &query).await.unwrap_err();
    assert_eq!((expired.code, expired.reason.map(|reason| reason.as_str())), (410, Some("Expired")));
    let fresh = expired.continue_token.unwrap();
    let (names, _) = plane.list("v1/configmaps/default", &[("continue", &fresh)]).await.unwrap();
    assert_eq!(names, ["default/c2", "default/c3", "default/c9"]);
}

#[tokio::test]
async fn watches_tell_what_a_selector_sees() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create("v1/configmaps/default", config("before")).await.unwrap();
    let target = plane.target("v1/configmaps/default").await;
    let query = pairs(&[("labelSelector", "app=web"), ("allowWatchBookmarks", "1")]);
    let options = WatchOptions::from_query(&query, &target).unwrap();
    let mut watch = world.registry.watch(Arc::new(plane.context()), &target, &options).await.unwrap();
    assert!(matches!(watch.next().await, Some(WatchItem::Bookmark { initial_end: true, .. })));

    let label = |value: Value| json!({"metadata": {"labels": {"app": value}}});
    plane.patch("v1/configmaps/default/before", PatchKind::Merge, label("web".into())).await.unwrap();
    plane.patch("v1/configmaps/default/before", PatchKind::Merge, json!({"data": {"b": "2"}})).await.unwrap();
    plane.patch("v1/configmaps/default/before", PatchKind::Merge, label(Value::Null)).await.unwrap();
    plane.create("v1/configmaps/default", config("other")).await.unwrap();
    for expected in [ObjectChange::Added, ObjectChange::Modified, ObjectChange::Deleted] {
        match watch.next().await {
            Some(WatchItem::Object { change, object, .. }) => {
                assert_eq!((change, object.name.name.as_str()), (expected, "before"));
                assert_eq!(
                    object.record.label("app"),
                    Some("web"),
                    "a deletion shows the last state that matched"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    world.core().delete("polder.dev/v1alpha1/planes/acme", json!({})).await.unwrap();
    assert!(watch.next().await.is_none(), "a watch ends with its plane");
}

#[tokio::test]
async fn a_crd_is_served_in_its_own_answer_and_leaves_nothing() {
    let world = World::new();
    let (plane, other) = (world.plane("acme", json!({})).await, world.plane("globex", json!({})).await);
    let crd = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                    "type": "object", "required": ["size"],
                    "properties": {"size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "default": "red"}},
                }}}}}],
        },
    });
    let crds = "apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = plane.create(crds, crd.clone()).await.unwrap();
    assert_eq!(made.str_at(&["status", "acceptedNames", "listKind"]), Some("WidgetList"));
    assert_eq!(made.array_at(&["status", "storedVersions"]), ["v1".into()]);

    let widget = json!({"metadata": {"name": "w"}, "spec": {"size": 2, "junk": true}});
    let stored = plane.create("example.com/v1/widgets/default", widget).await.unwrap();
    assert_eq!(stored.at(&["spec"]).unwrap().to_string(), r#"{"color":"red","size":2}"#);
    let (refused, text) = code(
        plane
            .create("example.com/v1/widgets/default", json!({"metadata": {"name": "x"}, "spec": {"size": 0}}))
            .await,
    );
    assert_eq!(
        (refused, text.as_str()),
        (
            422,
            r#"Widget.example.com "x" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"#
        )
    );
    let blind = json!({"metadata": {"name": "w"}, "spec": {"size": 3}});
    assert_eq!(
        code(plane.update("example.com/v1/widgets/default/w", blind).await).0,
        422,
        "custom resources need a version"
    );
    let context = other.context();
    let found = world.registry.resolve(&context.plane, "example.com", "v1", "widgets").await.unwrap();
    assert!(found.is_none(), "another plane does not serve it");

    plane.delete(&format!("{crds}/widgets.example.com"), json!({})).await.unwrap();
    for _ in 0..200 {
        if plane.get(&format!("{crds}/widgets.example.com")).await.is_err() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(code(plane.get(&format!("{crds}/widgets.example.com")).await).0, 404);
    plane.create(crds, crd).await.unwrap();
    assert_eq!(plane.list("example.com/v1/widgets", &[]).await.unwrap().0, Vec::<String>::new());
}

#[tokio::test]
async fn a_namespace_takes_its_contents_along() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create("v1/namespaces", json!({"metadata": {"name": "t"}})).await.unwrap();
    plane.create("v1/configmaps/t", config("a")).await.unwrap();
    let marked = plane.delete("v1/namespaces/t", json!({})).await.unwrap();
    assert_eq!(marked.str_at(&["status", "phase"]), Some("Terminating"));
    let refused = plane.create("v1/configmaps/t", config("late")).await;
    assert!(matches!(refused, Err(Status { code: 403 | 404, .. })), "{refused:?}");
    for _ in 0..200 {
        if plane.get("v1/namespaces/t").await.is_err() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(code(plane.get("v1/namespaces/t").await).0, 404);
    assert_eq!(plane.list("v1/configmaps", &[]).await.unwrap().0, Vec::<String>::new());
    assert_eq!(code(plane.delete("v1/namespaces/default", json!({})).await).0, 403);
}

/// People who wait for a namespace to go can see what it waits for.
#[tokio::test]
async fn a_namespace_tells_what_it_waits_for() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let before = world.marks();
    let held = |name: &str| json!({"metadata": {"name": name, "finalizers": ["example.com/hold"]}});
    plane.create("v1/namespaces", held("t")).await.unwrap();
    plane.create("v1/configmaps/t", held("a")).await.unwrap();
    plane.create("v1/configmaps/t", held("b")).await.unwrap();
    plane.create("v1/configmaps/t", config("c")).await.unwrap();
    plane.delete("v1/namespaces/t", json!({})).await.unwrap();
    let told = async |ending: &str| {
        for _ in 0..1000 {
            let namespace = plane.get("v1/namespaces/t").await.unwrap();
            let conditions = namespace.array_at(&["status", "conditions"]).iter();
            let text = |one: &Value| {
                let [kind, status, message] =
                    ["type", "status", "message"].map(|key| one.str_at(&[key]).unwrap());
                format!("{kind} {status}: {message}")
            };
            let told: Vec<String> = conditions.map(text).collect();
            if told.last().is_some_and(|last| last.ends_with(ending)) {
                assert_eq!(told.len(), 5);
                return told[3].clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("nothing is told");
    };
    assert_eq!(
        told("remaining: example.com/hold in 2 resource instances").await,
        "NamespaceContentRemaining True: Some resources are remaining: configmaps. has 2 resource instances"
    );
    let free = json!({"metadata": {"finalizers": null}});
    for name in ["a", "b"] {
        plane.patch(&format!("v1/configmaps/t/{name}"), PatchKind::Merge, free.clone()).await.unwrap();
    }
    let removed = "NamespaceContentRemaining False: All content successfully removed";
    assert_eq!(told("finalizers finished").await, removed);
    // Whoever puts our finalizer back has it taken away again.
    world.until("our part is done", || world.marks() == before).await;
    let mut again = plane.get("v1/namespaces/t").await.unwrap();
    assert!(again.array_at(&["spec", "finalizers"]).is_empty());
    again.set_at(&["spec", "finalizers"], json!(["kubernetes"]));
    plane.update("v1/namespaces/t/finalize", again).await.unwrap();
    plane.patch("v1/namespaces/t", PatchKind::Merge, free).await.unwrap();
    plane.gone("v1/namespaces/t").await;
}

#[tokio::test]
async fn planes_are_isolated_forked_and_limited() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    acme.create("v1/configmaps/default", config("a")).await.unwrap();
    let fork = world.plane("preview", json!({"forkFrom": "acme"})).await;
    assert_eq!(fork.list("v1/configmaps", &[]).await.unwrap().0, ["default/a"]);
    // Programs know a cluster by the uid of this namespace.
    let mut uids = std::collections::HashSet::new();
    let (globex, elsewhere) = (world.plane("globex", json!({})).await, World::new());
    let marks = json!({"metadata": {"labels": {"team": "blue"}, "annotations": {"example.org/a": "b"}}});
    acme.patch("v1/namespaces/kube-system", PatchKind::Merge, marks).await.unwrap();
    let layer = json!({"metadata": {"name": "marked"}, "spec": {"plane": "acme"}});
    world.core().create("polder.dev/v1alpha1/layers", layer).await.unwrap();
    let forks = [("of-a-plane", "acme"), ("of-a-fork", "of-a-plane"), ("of-a-layer", "layer/marked")];
    let original = acme.get("v1/namespaces/kube-system").await.unwrap();
    for (name, source) in forks {
        let fork = world.plane(name, json!({"forkFrom": source})).await;
        let mut system = fork.get("v1/namespaces/kube-system").await.unwrap();
        assert!(uids.insert(system.str_at(&["metadata", "uid"]).unwrap().to_string()), "{name}");
        // Nothing else is different.
        for field in ["uid", "resourceVersion"] {
            system.set_at(&["metadata", field], original.str_at(&["metadata", field]).unwrap());
        }
        assert_eq!(system, original, "{name}");
        let (names, _) = fork.list("v1/namespaces", &[("labelSelector", "team=blue")]).await.unwrap();
        assert_eq!(names, ["kube-system"], "{name}");
    }
    for plane in [&acme, &fork, &globex, &world.core(), &elsewhere.core()] {
        let system = plane.get("v1/namespaces/kube-system").await.unwrap();
        assert!(uids.insert(system.str_at(&["metadata", "uid"]).unwrap().to_string()));
    }
    fork.delete("v1/configmaps/default/a", json!({})).await.unwrap();
    assert_eq!(acme.list("v1/configmaps", &[]).await.unwrap().0, ["default/a"]);
    acme.create("v1/configmaps/default", config("later")).await.unwrap();
    assert_eq!(fork.list("v1/configmaps", &[]).await.unwrap().0, Vec::<String>::new());

    let core = world.core();
    core.create(
        "polder.dev/v1alpha1/layers",
        json!({"metadata": {"name": "base"}, "spec": {"plane": "acme"}}),
    )
    .await
    .unwrap();
    core.delete("polder.dev/v1alpha1/planes/acme", json!({})).await.unwrap();
    let from_layer = world.plane("third", json!({"forkFrom": "layer/base"})).await;
    assert_eq!(from_layer.list("v1/configmaps", &[]).await.unwrap().0, ["default/a", "default/later"]);
    assert_eq!(
        code(
            core.create(
                "polder.dev/v1alpha1/planes",
                json!({"metadata": {"name": "x"}, "spec": {"forkFrom": "acme"}})
            )
            .await
        )
        .0,
        404
    );
    assert_eq!(
        code(core.create("polder.dev/v1alpha1/planes", json!({"metadata": {"name": "third"}})).await).0,
        409
    );

    let objects = world.registry.store.plane("third").unwrap().usage.objects();
    let limited =
        world.plane("small", json!({"limits": {"objects": (i64::try_from(objects).unwrap())}})).await;
    let room = objects - world.registry.store.plane("small").unwrap().usage.objects();
    for index in 0..room {
        limited.create("v1/configmaps/default", config(&format!("c{index}"))).await.unwrap();
    }
    let (refused, text) = code(limited.create("v1/configmaps/default", config("more")).await);
    assert!(refused == 403 && text.contains(&format!("limit of {objects} objects")), "{text}");
    let big = json!({"metadata": {"name": "big"}, "data": {"a": ("x".repeat(200_000))}});
    let (refused, text) = code(fork.create("v1/configmaps/default", big).await);
    assert!(refused == 413 && text.contains("limit of 100000 bytes"), "{text}");
}

#[tokio::test]
async fn nobody_may_anything_without_a_binding() {
    let world = World::new();
    world.plane("acme", json!({})).await;
    let plane = world.registry.store.plane("acme").unwrap();
    let acme = Plane::new(&world, "acme");
    let target = acme.target("v1/configmaps/default/a").await;
    let ann = RequestContext::new(plane.clone(), UserInfo::authenticated("ann", []));
    let (refused, text) = code(world.registry.get(&ann, &target, "").await);
    assert_eq!(
        (refused, text.as_str()),
        (
            403,
            r#"configmaps "a" is forbidden: User "ann" cannot get resource "configmaps" in API group "" in the namespace "default""#
        )
    );
    let mut stranger = UserInfo::system();
    stranger.home = Some(polder_model::PlaneId::CORE);
    let stranger = RequestContext::new(plane, stranger);
    assert_eq!(code(world.registry.get(&stranger, &target, "").await).0, 403);
}

#[tokio::test]
async fn a_tenants_own_plane_kind_says_nothing_about_others() {
    let world = World::new();
    let (spy, _) = (world.plane("spy", json!({})).await, world.plane("victim", json!({})).await);
    for (plural, kind) in [("planes", "Plane"), ("layers", "Layer")] {
        let crd = json!({
            "metadata": {"name": (format!("{plural}.polder.dev"))},
            "spec": {
                "group": "polder.dev", "scope": "Cluster", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        });
        let refused = spy.create("apiextensions.k8s.io/v1/customresourcedefinitions", crd).await;
        assert_eq!(code(refused).0, 422, "the group is the provider's");
    }
    // Nor does a copy of the core plane, which nobody gets.
    for (path, spec) in [
        ("polder.dev/v1alpha1/planes", json!({"forkFrom": "core"})),
        ("polder.dev/v1alpha1/layers", json!({"plane": "core"})),
    ] {
        let copy = world.core().create(path, json!({"metadata": {"name": "copy"}, "spec": spec})).await;
        let (code, message) = code(copy);
        assert!(code == 422 && message.contains("cannot be copied"), "{code} {message}");
    }
    assert!(world.registry.store.plane("victim").is_some());
    let shown = world.core().get("polder.dev/v1alpha1/planes/victim").await.unwrap();
    assert!(shown.i64_at(&["status", "objectCount"]).is_some_and(|count| count > 0), "{shown}");
}

#[tokio::test]
async fn a_dry_run_deletes_nothing_and_a_built_in_name_is_taken() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create("v1/namespaces", json!({"metadata": {"name": "prod"}})).await.unwrap();
    plane.create("v1/configmaps/prod", config("precious")).await.unwrap();
    plane.delete("v1/namespaces/prod", json!({"dryRun": ["All"]})).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(plane.list("v1/configmaps/prod", &[]).await.unwrap().0, ["prod/precious"]);
    assert_eq!(plane.get("v1/namespaces/prod").await.unwrap().str_at(&["status", "phase"]), Some("Active"));

    let crd = json!({
        "metadata": {"name": "leases.coordination.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved"}},
        "spec": {
            "group": "coordination.k8s.io", "scope": "Namespaced", "names": {"plural": "leases", "kind": "Lease"},
            "versions": [{"name": "v9", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let refused = plane.create("apiextensions.k8s.io/v1/customresourcedefinitions", crd).await;
    assert_eq!(code(refused).0, 403);
}

#[tokio::test]
async fn a_crd_that_serves_nothing_can_be_deleted() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let crd = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let crds = "apiextensions.k8s.io/v1/customresourcedefinitions";
    plane.create(crds, crd).await.unwrap();
    plane.create("example.com/v1/widgets/default", json!({"metadata": {"name": "w"}})).await.unwrap();
    let before = world.registry.store.plane("acme").unwrap().usage.objects();
    let unserve = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": false}]);
    plane.patch(&format!("{crds}/widgets.example.com"), PatchKind::Json, unserve).await.unwrap();
    plane.delete(&format!("{crds}/widgets.example.com"), json!({})).await.unwrap();
    for _ in 0..200 {
        if plane.get(&format!("{crds}/widgets.example.com")).await.is_err() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(code(plane.get(&format!("{crds}/widgets.example.com")).await).0, 404);
    assert_eq!(
        world.registry.store.plane("acme").unwrap().usage.objects(),
        before - 2,
        "nothing is left behind"
    );
}

#[tokio::test]
async fn hostile_owner_references_get_a_short_answer() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let owner = |uid: usize| {
        let uid = format!("u{uid}");
        json!({"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": uid, "controller": true})
    };
    let mut object = config("a");
    object.set_at(&["metadata", "ownerReferences"], (0..20_000).map(owner).collect::<Vec<_>>());
    let status = plane.create("v1/configmaps/default", object).await.unwrap_err();
    assert!(status.code == 422 && status.message.len() < 100_000, "{} bytes", status.message.len());
}

#[tokio::test]
async fn owners_are_named_once() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": uid});
    let mut object = config("a");
    object.set_at(&["metadata", "ownerReferences"], vec![owner("u"), owner("v"), owner("u")]);
    let made = plane.create("v1/configmaps/default", object).await.unwrap();
    assert_eq!(made.array_at(&["metadata", "ownerReferences"]), [owner("u"), owner("v")]);
}

#[tokio::test]
async fn what_a_controller_wrote_is_read_once() {
    let world = World::new();
    world.plane("acme", json!({})).await;
    let client: Arc<dyn Client> = Arc::new(LocalClient::new(world.registry.clone()));
    let acme = InPlane { plane: client.plane("acme").unwrap(), client: client.clone() };
    let mut changes = client.changes(client.revision()).unwrap();
    let made = acme.create(&CONFIG_MAPS, "default", config("a")).await.unwrap();
    let found = acme.get(&CONFIG_MAPS, "default", "a").await.unwrap().unwrap();
    assert_eq!(made, *found, "an answer is what is found later, without managed fields");
    assert_eq!(found.at(&["metadata", "managedFields"]), None);
    let change = loop {
        let change = changes.next().await.ok().unwrap();
        if change.is(&CONFIG_MAPS) && change.name == "a" {
            break change;
        }
    };
    assert!(Arc::ptr_eq(change.new.as_ref().unwrap().value(), &found), "those who watch find it too");
}

/// Whoever is evicted is noted in the budget that allowed it, until its controller has seen the pod go.
#[tokio::test]
async fn budgets_note_who_was_evicted() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let pod = json!({
        "metadata": {"name": "p", "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}]},
    });
    plane.create("v1/pods/default", pod).await.unwrap();
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    plane.patch("v1/pods/default/p/status", PatchKind::Merge, ready).await.unwrap();
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 0, "selector": {}}});
    plane.create("policy/v1/poddisruptionbudgets/default", budget).await.unwrap();
    let counted = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1,
    }});
    plane.patch("policy/v1/poddisruptionbudgets/default/b/status", PatchKind::Merge, counted).await.unwrap();

    let target = plane.target("v1/pods/default/p/eviction").await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    world.registry.evict(&plane.context(), &target, eviction, &crate::world::pairs(&[])).await.unwrap();
    let spent = plane.get("policy/v1/poddisruptionbudgets/default/b").await.unwrap();
    assert_eq!(spent.i64_at(&["status", "disruptionsAllowed"]), Some(0));
    assert!(spent.str_at(&["status", "disruptedPods", "p"]).is_some(), "{spent}");
}
