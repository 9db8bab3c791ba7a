//! Out of one store and into another.

use std::sync::Arc;

use polder_auth::UserInfo;
use polder_auth::authz::Chain;
use polder_model::{GroupResource, PlaneId, SmolStr, Status, Value, json};
use polder_store::memory::MemoryEngine;
use polder_store::{Limits, ObjectName, Profile, Record, Store, StoreOptions};
use sha2::{Digest as _, Sha256};

use crate::context::{RequestContext, WriteOptions};
use crate::custom;
use crate::decode::{Document, Duplicates};
use crate::definition::Target;
use crate::delete::DeleteOptions;
use crate::{Registry, RegistryOptions};

/// `offset` makes the bootstrap objects of two servers differ, as they do in life.
fn registry(offset: i64) -> Arc<Registry> {
    let engine = Box::new(MemoryEngine::default());
    let base = |_: Profile, id: &dyn Fn(&GroupResource) -> polder_store::ResourceId| {
        let namespace = |name: &str| {
            let value = json!({
                "metadata": {"name": name, "uid": (format!("{name}-{offset}")),
                    "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            });
            let resource = id(&GroupResource::new("", "namespaces"));
            (resource, ObjectName::cluster(SmolStr::new(name)), Record::encode(&value))
        };
        vec![namespace("default"), namespace("kube-node-lease")]
    };
    let store = Store::open(engine, StoreOptions::default(), "base", base).unwrap();
    let options = RegistryOptions {
        base_url: "https://x".into(),
        default_limits: Limits { objects: 2_000, object_bytes: 1 << 20, ..Limits::default() },
        clock: || 1_800_000_000,
        authenticators: std::sync::Arc::default(),
        plugins: Default::default(),
    };
    Arc::new(Registry::new(store, Chain::default(), options))
}

fn context(registry: &Registry, plane: &str) -> Arc<RequestContext> {
    Arc::new(RequestContext::new(registry.store.plane(plane).unwrap(), UserInfo::system()))
}

async fn target(registry: &Registry, plane: &str, path: &str) -> Target {
    let parts: Vec<&str> = path.split('|').collect();
    let [group, version, plural, namespace, name, subresource] = parts[..] else { panic!("{path}") };
    let plane = registry.store.plane(plane).unwrap();
    let found = registry.resolve(&plane, group, version, plural).await.unwrap();
    let (definition, version) = found.unwrap_or_else(|| panic!("{path}"));
    let (namespace, name, subresource) = (namespace.into(), name.into(), subresource.into());
    Target { definition, version, namespace, name, subresource }
}

async fn create(registry: &Registry, plane: &str, path: &str, mut value: Value) -> Result<(), Status> {
    let target = target(registry, plane, path).await;
    value.set_at(&["kind"], target.definition.kind.clone());
    value.set_at(&["apiVersion"], target.api_version());
    let document = Document { value, duplicates: Duplicates::default() };
    let context = context(registry, plane);
    registry.create(&context, &target, document, &WriteOptions::default()).await.map(drop)
}

async fn plane_create(registry: &Registry, name: &str, spec: Value) {
    let plane = json!({"metadata": {"name": name}, "spec": spec});
    create(registry, "core", "polder.dev|v1alpha1|planes|||", plane).await.unwrap();
}

async fn configmap(registry: &Registry, plane: &str, name: &str) -> Result<(), Status> {
    let value = json!({
        "metadata": {"name": name, "labels": {"app": "x"}, "finalizers": ["example.com/hold"]},
        "data": {"a": "1"},
    });
    create(registry, plane, "|v1|configmaps|default||", value).await
}

async fn delete(registry: &Registry, plane: &str, path: &str) {
    let target = target(registry, plane, path).await;
    registry.delete(&context(registry, plane), &target, &DeleteOptions::default()).await.unwrap();
}

async fn export(registry: &Arc<Registry>, plane: &str) -> Vec<String> {
    let path = format!("polder.dev|v1alpha1|planes||{plane}|export");
    let target = target(registry, "core", &path).await;
    let mut export = registry.export(&context(registry, "core"), &target).await.unwrap();
    let mut text = Vec::new();
    while let Some(piece) = export.next().await.unwrap() {
        text.extend_from_slice(&piece);
    }
    String::from_utf8(text).unwrap().lines().map(String::from).collect()
}

async fn import(registry: &Arc<Registry>, plane: &str, lines: &[String]) -> Result<Value, Status> {
    let path = format!("polder.dev|v1alpha1|planes||{plane}|import");
    let target = target(registry, "core", &path).await;
    let mut import = registry.import(context(registry, "core"), &target).await?;
    for line in lines {
        import.line(line.as_bytes()).await?;
    }
    import.finish().await
}

async fn phase(registry: &Registry, plane: &str) -> String {
    let target = target(registry, "core", &format!("polder.dev|v1alpha1|planes||{plane}|")).await;
    let context = context(registry, "core");
    let stored = registry.must_find(&context, &target).await.unwrap();
    let value = registry.to_client(&context, &target, &stored).unwrap();
    value.str_at(&["status", "phase"]).unwrap_or_default().to_string()
}

/// Objects without the one thing that must differ.
fn objects(lines: &[String]) -> Vec<Value> {
    let objects = lines[1..lines.len() - 1].iter().map(|line| {
        let mut value = Value::parse(line.as_bytes()).unwrap();
        value.remove_at(&["metadata", "resourceVersion"]);
        value
    });
    objects.collect()
}

async fn filled() -> (Arc<Registry>, Vec<String>) {
    let source = registry(1);
    plane_create(&source, "a", json!({"displayName": "A", "limits": {"objects": 1500}})).await;
    // Another plane makes this store's numbers larger than the other's.
    plane_create(&source, "other", json!({})).await;
    for number in 0..700 {
        configmap(&source, "other", &format!("x{number}")).await.unwrap();
    }
    let crd = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    create(&source, "a", "apiextensions.k8s.io|v1|customresourcedefinitions|||", crd).await.unwrap();
    for number in 0..600 {
        configmap(&source, "a", &format!("c{number}")).await.unwrap();
    }
    let widget = json!({"metadata": {"name": "w", "namespace": "default"}, "spec": {"size": 3}});
    create(&source, "a", "example.com|v1|widgets|default||", widget).await.unwrap();
    delete(&source, "a", "|v1|configmaps|default|c7|").await;
    let lines = export(&source, "a").await;
    (source, lines)
}

/// Custom objects from before their schema changed come out as they are read today, and whatever comes in is stored so.
#[tokio::test]
async fn old_custom_objects_move_as_they_are_read() {
    let source = registry(1);
    plane_create(&source, "a", json!({})).await;
    let schema = |spec: Value| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}});
    let versions = |spec: Value| {
        let schema = json!({"openAPIV3Schema": (schema(spec))});
        json!([{"name": "v1", "served": true, "storage": true, "schema": schema}])
    };
    let crd = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": (versions(json!({"old": {"type": "string"}})))},
    });
    create(&source, "a", "apiextensions.k8s.io|v1|customresourcedefinitions|||", crd).await.unwrap();
    let widget = json!({"metadata": {"name": "w", "namespace": "default"}, "spec": {"old": "x"}});
    create(&source, "a", "example.com|v1|widgets|default||", widget).await.unwrap();
    let path = "apiextensions.k8s.io|v1|customresourcedefinitions||widgets.example.com|";
    let spec = json!({"spec": {"versions": (versions(json!({"new": {"type": "string", "default": "y"}})))}});
    let patch = Document { value: spec, duplicates: Duplicates::default() };
    let (inside, crd) = (context(&source, "a"), target(&source, "a", path).await);
    let options = WriteOptions::default();
    source.patch(&inside, &crd, crate::write::PatchKind::Merge, &patch, &options).await.unwrap();

    let mut lines = export(&source, "a").await;
    let at = lines.iter().position(|line| line.contains("\"Widget\",\"metadata\"")).unwrap();
    assert!(lines[at].ends_with(r#""spec":{"new":"y"}}"#), "{}", lines[at]);
    for (given, name) in [(r#""spec":{"new":"y"}}"#, "b"), (r#""spec":{"old":"x"}}"#, "c")] {
        lines[at] = lines[at].replace(r#""spec":{"new":"y"}}"#, given);
        let end = lines.len() - 1;
        let text: String = lines[..end].iter().map(|line| format!("{line}\n")).collect();
        let digest = custom::hex(&Sha256::digest(text.as_bytes()));
        lines[end] =
            json!({"kind": "PlaneExportEnd", "objects": (i64::try_from(end - 1).unwrap()), "sha256": digest})
                .to_string();
        let copy = registry(2);
        plane_create(&copy, name, json!({})).await;
        import(&copy, name, &lines).await.unwrap();
        let widget = target(&copy, name, "example.com|v1|widgets|default|w|").await;
        let stored = copy.must_find(&context(&copy, name), &widget).await.unwrap();
        let body = Value::parse(stored.record.body()).unwrap();
        assert_eq!(body.get("spec").unwrap().to_string(), r#"{"new":"y"}"#);
        assert!(widget.definition.rereading("v1", &stored.record).is_none(), "{name}");
    }
}

/// Where a webhook converts, nobody asks it for an export or import: objects move in the version they are stored in.
#[tokio::test]
async fn objects_move_in_the_version_they_are_stored_in() {
    let source = registry(1);
    plane_create(&source, "a", json!({})).await;
    let version = |name: &str, storage: bool| {
        let mut spec = json!({"type": "object"});
        spec.set_at(&["properties", name, "type"], "string");
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        json!({"name": name, "served": (storage), "storage": storage, "schema": schema})
    };
    let versions = |new: bool| json!([(version("v1", !new)), (version("v2", new))]);
    let crd = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": (versions(false)), "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://nobody.test/"}}}},
    });
    create(&source, "a", "apiextensions.k8s.io|v1|customresourcedefinitions|||", crd).await.unwrap();
    let widget =
        |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
    let old = widget("old", json!({"v1": "x"}));
    create(&source, "a", "example.com|v1|widgets|default||", old).await.unwrap();
    let path = "apiextensions.k8s.io|v1|customresourcedefinitions||widgets.example.com|";
    let patch = json!({"spec": {"versions": (versions(true))}});
    let patch = Document { value: patch, duplicates: Duplicates::default() };
    let (inside, crd) = (context(&source, "a"), target(&source, "a", path).await);
    let options = WriteOptions::default();
    source.patch(&inside, &crd, crate::write::PatchKind::Merge, &patch, &options).await.unwrap();
    let new = widget("new", json!({"v2": "y"}));
    create(&source, "a", "example.com|v2|widgets|default||", new).await.unwrap();

    let lines = export(&source, "a").await;
    let copy = registry(2);
    plane_create(&copy, "b", json!({})).await;
    import(&copy, "b", &lines).await.unwrap();
    for (name, version, spec) in [("old", "v1", r#"{"v1":"x"}"#), ("new", "v2", r#"{"v2":"y"}"#)] {
        let path = format!("example.com|v2|widgets|default|{name}|");
        let widget = target(&copy, "b", &path).await;
        let stored = copy.must_find(&context(&copy, "b"), &widget).await.unwrap();
        assert_eq!(widget.definition.stored_version(&stored.record), version);
        let body = Value::parse(stored.record.body()).unwrap();
        assert_eq!(body.get("spec").unwrap().to_string(), spec);
    }
    assert_eq!(objects(&export(&copy, "b").await), objects(&lines));
}

#[tokio::test]
async fn what_comes_out_goes_in() {
    let (source, lines) = filled().await;
    let header = Value::parse(lines[0].as_bytes()).unwrap();
    assert_eq!(header.str_at(&["kind"]), Some("PlaneExport"));
    assert_eq!(header.i64_at(&["spec", "limits", "objects"]), Some(1500));
    let kinds: Vec<String> =
        objects(&lines).iter().map(|one| one.str_at(&["kind"]).unwrap().into()).collect();
    assert_eq!(kinds[..3], ["CustomResourceDefinition", "Namespace", "Namespace"]);
    assert_eq!(kinds.len(), 1 + 2 + 600 + 1);

    let copy = registry(2);
    plane_create(&copy, "b", json!({})).await;
    let summary = import(&copy, "b", &lines).await.unwrap();
    assert_eq!(summary.i64_at(&["objects"]), Some(604));
    assert_eq!(phase(&copy, "b").await, "Ready");
    let again = export(&copy, "b").await;
    assert_eq!(objects(&again), objects(&lines));

    // Numbers go on growing for whoever knew the plane before.
    let version = |line: &str| -> u64 {
        let value = Value::parse(line.as_bytes()).unwrap();
        let text = value.str_at(&["metadata", "resourceVersion"]).unwrap().to_string();
        text.parse().unwrap()
    };
    let newest: u64 = header.str_at(&["resourceVersion"]).unwrap().parse().unwrap();
    assert!(newest > copy.store.current().0, "the other store must be ahead for this to mean something");
    assert!(again[1..again.len() - 1].iter().all(|line| version(line) > newest));

    // It works as a plane: the definition serves, what was being deleted still is.
    let plane = context(&copy, "b");
    assert!(copy.catalog(&plane.plane).await.unwrap().has_group("example.com", Some("v1")));
    assert_eq!(
        copy.store.plane("b").unwrap().usage.objects(),
        source.store.plane("a").unwrap().usage.objects()
    );
    let held = again.iter().find(|line| line.contains("\"c7\"")).unwrap();
    assert!(held.contains("deletionTimestamp"));
}

#[tokio::test]
async fn bootstrap_objects_the_source_lacks_go() {
    let source = registry(1);
    plane_create(&source, "a", json!({})).await;
    let lines = export(&source, "a").await;
    assert_eq!(objects(&lines).len(), 2);
    // An export of a plane without one of them, as another version of the server would write it.
    let kept: Vec<String> = lines.iter().filter(|line| !line.contains("kube-node-lease")).cloned().collect();
    let kept = sealed(&kept[..kept.len() - 1]);
    let copy = registry(2);
    plane_create(&copy, "b", json!({})).await;
    import(&copy, "b", &kept).await.unwrap();
    assert_eq!(objects(&export(&copy, "b").await), objects(&kept));
}

/// Lines with the right last line.
fn sealed(lines: &[String]) -> Vec<String> {
    use sha2::Digest as _;
    let mut hash = sha2::Sha256::new();
    for line in lines {
        hash.update(line.as_bytes());
        hash.update(b"\n");
    }
    let digest = crate::custom::hex(&hash.finalize());
    let end =
        format!("{{\"kind\":\"PlaneExportEnd\",\"objects\":{},\"sha256\":\"{digest}\"}}", lines.len() - 1);
    lines.iter().cloned().chain([end]).collect()
}

#[tokio::test]
async fn damaged_files_are_refused() {
    let (_, lines) = filled().await;
    let last = lines.len() - 1;
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = lines.clone();
        change(&mut lines);
        lines
    };
    let configmap = |name: &str, more: Value| {
        let mut value = json!({
            "kind": "ConfigMap", "apiVersion": "v1", "metadata": {
                "name": name, "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        });
        for (key, member) in more.as_object().unwrap().iter() {
            value.set_at(&["metadata", key], member.clone());
        }
        vec![lines[0].clone(), String::from_utf8(value.to_vec()).unwrap()]
    };
    let text = |value: &str| vec![lines[0].clone(), value.to_string()];
    let rows: Vec<(&str, Vec<String>)> = vec![
        ("its last line is missing", with(&|lines| drop(lines.pop()))),
        ("its last line is missing", with(&|lines| lines.truncate(400))),
        ("but 603 came", with(&|lines| drop(lines.remove(10)))),
        ("the checksum is wrong", with(&|lines| lines[last - 5] = lines[last - 5].replace("\"1\"", "\"2\""))),
        (
            "the checksum is wrong",
            with(&|lines| lines[last] = lines[last].replace("sha256\":\"", "sha256\":\"0")),
        ),
        ("something follows the end", with(&|lines| lines.push(lines[5].clone()))),
        (
            "is in the file twice",
            with(&|lines| {
                lines[last] = lines[8].clone();
                *lines = sealed(lines);
            }),
        ),
        ("is in the file twice", with(&|lines| lines.insert(9, lines[8].clone()))),
        ("not JSON", with(&|lines| lines[300].truncate(20))),
        ("not the header", with(&|lines| drop(lines.remove(0)))),
        ("another format", with(&|lines| lines[0] = lines[0].replace("Version\":1", "Version\":2"))),
        (
            "no usable resourceVersion",
            with(&|lines| lines[0] = lines[0].replace("ceVersion\":\"", "ceVersion\":\"9999999999999999")),
        ),
        ("nothing here serves Widget", with(&|lines| drop(lines.remove(1)))),
        ("without kind", text(r#"{"metadata":{"name":"x"}}"#)),
        ("the export failed when it was made", text(r#"{"kind":"Status","apiVersion":"v1","message":"m"}"#)),
        ("a lowercase RFC 1123 subdomain", configmap("../x", json!({}))),
        ("needs a namespace", configmap("x", json!({"namespace": ""}))),
        ("no metadata.uid", configmap("x", json!({"uid": ""}))),
        ("is no name", configmap("x", json!({"namespace": "a/b"}))),
        ("is too large", configmap("x", json!({"managedFields": [("x".repeat(2 << 20))]}))),
        ("the body is empty", Vec::new()),
    ];
    for (index, (expected, lines)) in rows.into_iter().enumerate() {
        let copy = registry(2);
        plane_create(&copy, "b", json!({})).await;
        let error = import(&copy, "b", &lines).await.unwrap_err();
        assert!(error.message.contains(expected), "{index}: {expected}: {error}");
        let started = copy.store.plane("b").unwrap().version_offset > 0;
        let wanted = if started { "ImportFailed" } else { "Ready" };
        assert_eq!(phase(&copy, "b").await, wanted, "{error}");
        assert_eq!(error.message.contains("polder plane delete b"), started, "{error}");
        assert!(!copy.is_importing(copy.store.plane("b").unwrap().id));
    }
}

#[tokio::test]
async fn only_fresh_planes_are_filled() {
    let (source, lines) = filled().await;
    let conflict = |status: Status| (status.code, status.message);
    let (code, message) = conflict(import(&source, "other", &lines).await.unwrap_err());
    assert_eq!(code, 409);
    assert!(message.contains("already holds objects"), "{message}");

    // Limits hold.
    plane_create(&source, "small", json!({"limits": {"objects": 300}})).await;
    let error = import(&source, "small", &lines).await.unwrap_err();
    assert_eq!(error.code, 403);
    assert!(error.message.contains("limit of 300 objects"), "{error}");

    // Two at a time do not mix.
    plane_create(&source, "c", json!({})).await;
    let target = target(&source, "core", "polder.dev|v1alpha1|planes||c|import").await;
    let first = source.import(context(&source, "core"), &target).await.unwrap();
    assert!(source.is_importing(source.store.plane("c").unwrap().id));
    assert_eq!(source.import(context(&source, "core"), &target).await.err().unwrap().code, 409);
    drop(first);
    assert!(source.import(context(&source, "core"), &target).await.is_ok());

    // The core plane is no plane to move.
    assert!(source.store.plane("core").is_some_and(|core| core.id == PlaneId::CORE));
    let core = Target { name: "core".into(), ..target };
    assert!(source.import(context(&source, "core"), &core).await.is_err());
}
