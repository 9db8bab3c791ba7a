//! What needs a look inside: limits that are too large to reach from outside.

use polder_auth::UserInfo;
use polder_auth::authz::Chain;
use polder_model::json;
use polder_store::memory::MemoryEngine;
use polder_store::{Limits, StoreOptions};

use super::*;
use crate::RegistryOptions;
use crate::decode::{Document, Duplicates};

fn registry() -> Registry {
    let store =
        Store::open(Box::new(MemoryEngine::default()), StoreOptions::default(), "none", |_, _| Vec::new());
    let options = RegistryOptions {
        base_url: "https://x".into(),
        default_limits: Limits::default(),
        clock: || 1_800_000_000,
        authenticators: std::sync::Arc::default(),
        plugins: Default::default(),
    };
    Registry::new(store.unwrap(), Chain::default(), options)
}

fn context(registry: &Registry) -> RequestContext {
    RequestContext::new(registry.store.plane("core").unwrap(), UserInfo::system())
}

fn target(registry: &Registry, name: &str) -> Target {
    let (definition, version) = registry.builtin.find(GROUP, "v1", PLURAL).unwrap();
    let (namespace, subresource) = Default::default();
    Target { definition, version, namespace, name: SmolStr::new(name), subresource }
}

fn crd(plural: &str, group: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "metadata": {"name": (format!("{plural}.{group}")),
            "annotations": {"api-approved.kubernetes.io": "https://example.com/approval"}},
        "spec": {"group": group, "scope": "Cluster", "names": {"plural": plural, "kind": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
    })
}

async fn create(registry: &Registry, plural: &str, group: &str) -> Result<Value, Status> {
    create_crd(registry, crd(plural, group)).await
}

async fn create_crd(registry: &Registry, value: Value) -> Result<Value, Status> {
    let (context, target) = (context(registry), target(registry, ""));
    let document = Document { value, duplicates: Duplicates::default() };
    let made = registry.create(&context, &target, document, &WriteOptions::default()).await?;
    match made.body {
        crate::Answered::Made(value) => Ok(value),
        crate::Answered::Stored(stored) => registry.to_client(&context, &target, &stored),
    }
}

async fn replace_crd(registry: &Registry, value: Value) -> Result<(), Status> {
    let target = target(registry, value.str_at(&["metadata", "name"]).unwrap());
    let document = Document { value, duplicates: Duplicates::default() };
    registry.update(&context(registry), &target, document, &WriteOptions::default()).await.map(drop)
}

/// A CRD with a schema that has so many fields.
fn large(mut crd: Value, fields: usize) -> Value {
    let mut properties = json!({});
    for index in 0..fields {
        properties.set_at(&[&format!("field{index}")], json!({"type": "string"}));
    }
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
    let versions = crd.at_mut(&["spec", "versions"]).unwrap().as_array_mut().unwrap();
    versions[0].set_at(&["schema"], schema);
    crd
}

/// What a plane's schemas take is bounded, however they come: new, in place of smaller ones, or with names to come.
#[tokio::test]
async fn schemas_of_a_plane_do_not_grow_beyond_a_bound() {
    let mut registry = registry();
    let one = registry.customs.schema_bytes(&large(crd("things", "example.com"), 100));
    Arc::get_mut(&mut registry.customs).unwrap().plane_bytes_max = one * 5 / 2;
    let refused = |outcome: Result<(), Status>| match outcome {
        Ok(()) => String::new(),
        Err(status) => format!("{} {}", status.code, status.message),
    };
    let full = |name: &str| {
        format!(
            "403 customresourcedefinitions.apiextensions.k8s.io {name:?} is forbidden: the schemas of this \
             plane's CustomResourceDefinitions are too large together"
        )
    };
    let small = create(&registry, "things", "example.com").await.unwrap();
    replace_crd(&registry, large(small.clone(), 300)).await.expect_err("too large by itself");
    create_crd(&registry, large(crd("others", "example.com"), 100)).await.unwrap();
    // One that waits for its names may get them any time.
    let mut waiting = large(crd("waits", "example.com"), 101);
    waiting.set_at(&["spec", "names", "kind"], "others");
    let waiting = create_crd(&registry, waiting).await.unwrap();
    assert!(!is_established(&waiting));
    let third = create_crd(&registry, large(crd("thirds", "example.com"), 102)).await.map(drop);
    assert_eq!(refused(third), full("thirds.example.com"));
    assert_eq!(refused(replace_crd(&registry, large(small.clone(), 103)).await), full("things.example.com"));
    // What gets smaller is welcome, also beyond the bound.
    Arc::get_mut(&mut registry.customs).unwrap().plane_bytes_max = one;
    assert_eq!(refused(replace_crd(&registry, large(waiting, 99)).await), "");
}

/// Made-up names cannot be brought without end; known ones can.
#[tokio::test]
async fn new_resource_names_run_out() {
    let registry = registry();
    create(&registry, "known", "example.com").await.unwrap();
    let known = GroupResource::new("other.example.com", "known");
    registry.store.resource_id(&known);
    while registry.customs.fresh.take(PlaneId::CORE, 1_800_000_000) {}
    let refused = create(&registry, "fresh", "example.com").await.unwrap_err();
    assert_eq!(refused.code, 429);
    assert_eq!(registry.store.known_resource(&GroupResource::new("example.com", "fresh")), None);
    create(&registry, "known", "other.example.com").await.unwrap();
}

/// Equal schemas are compiled once and equal definitions made once, whoever has them.
#[tokio::test]
async fn equal_definitions_are_one() {
    let registry = registry();
    let crd = create(&registry, "things", "example.com").await.unwrap();
    let first = served_definition(&registry, &crd).unwrap();
    let mut again = crd.clone();
    again.set_at(&["metadata", "uid"], "another");
    assert!(Arc::ptr_eq(&first, &served_definition(&registry, &again).unwrap()));
    let other = create(&registry, "others", "example.com").await.unwrap();
    let other = served_definition(&registry, &other).unwrap();
    assert!(Arc::ptr_eq(&first.versions[0].schema.arena, &other.versions[0].schema.arena));
}

#[tokio::test]
async fn community_groups_say_whether_they_are_approved() {
    let crd = create(&registry(), "things", "x-k8s.io").await.unwrap();
    assert_eq!(crd.array_at(&["status", "conditions"]).len(), 2);
    let crd = create(&registry(), "things", "sigs.k8s.io").await.unwrap();
    let conditions = crd.array_at(&["status", "conditions"]);
    let types: Vec<&str> = conditions.iter().filter_map(|one| one.str_at(&["type"])).collect();
    assert_eq!(types, ["NamesAccepted", "Established", "KubernetesAPIApprovalPolicyConformant"]);
    assert_eq!(conditions[2].str_at(&["message"]), Some("approved in https://example.com/approval"));
}

/// The names of a CRD become free after it was decided that another one waits for them, and before that is stored.
#[tokio::test]
async fn names_that_become_free_in_between_are_noticed() {
    let registry = Arc::new(registry());
    registry.tasks.spawn(registry.clone().run_chores());
    let context = context(&registry);
    create(&registry, "firsts", "example.com").await.unwrap();
    let (first, second) = (target(&registry, "firsts.example.com"), target(&registry, "seconds.example.com"));
    let mut waiting = crd("seconds", "example.com");
    waiting.set_at(&["spec", "names", "kind"], "firsts");
    prepare(&registry, &context, &second, &mut waiting, None).await.unwrap();
    assert!(!is_established(&waiting));

    registry.delete(&context, &first, &crate::delete::DeleteOptions::default()).await.unwrap();
    while registry.get(&context, &first, "").await.is_ok() {
        tokio::task::yield_now().await;
    }
    let name = ObjectName::cluster(second.name.clone());
    let key = Key { plane: PlaneId::CORE, resource: registry.crds, name };
    let record = Some(polder_store::Record::encode(&waiting));
    let writes = vec![polder_store::Write { key, record, expect: Expect::Absent }];
    let change = polder_store::Change { writes, ..Default::default() };
    let revision = registry.store.commit(change).await.unwrap().revision;
    committed(&registry, &context, &second, revision, Some(&waiting));
    for _ in 0..1000 {
        if registry.resolve(&context.plane, "example.com", "v1", "seconds").await.unwrap().is_some() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it still waits for its names");
}

/// A CRD is gone from the store a moment before that is noted, and may be back before that, too.
#[tokio::test]
async fn a_crd_that_is_gone_is_not_called_terminating() {
    let registry = registry();
    let context = context(&registry);
    create(&registry, "things", "example.com").await.unwrap();
    let crd = target(&registry, "things.example.com");
    let found = registry.resolve(&context.plane, "example.com", "v1", "things").await.unwrap();
    let (definition, version) = found.unwrap();
    let (namespace, name, subresource) = Default::default();
    let things = Target { definition, version, namespace, name, subresource };
    let thing = async |name: &str| {
        let value = json!({"apiVersion": "example.com/v1", "kind": "things", "metadata": {"name": name}});
        let document = Document { value, duplicates: Duplicates::default() };
        let made = registry.create(&context, &things, document, &WriteOptions::default()).await;
        made.map_or_else(|status| status.code, |_| 201)
    };
    assert_eq!(thing("a").await, 201);
    let before = registry.must_find(&context, &crd).await.unwrap();
    // Nobody does chores here: the CRD stays on its way out.
    registry.delete(&context, &crd, &crate::delete::DeleteOptions::default()).await.unwrap();
    assert_eq!(thing("b").await, 403);
    let key = registry.key(&context, &crd);
    registry.store.commit(polder_store::Change::delete(key.clone(), Expect::Anything)).await.unwrap();
    assert_eq!(thing("c").await, 404);
    let again = polder_store::Change::put(key, before.record.clone(), Expect::Absent);
    registry.store.commit(again).await.unwrap();
    assert_eq!(thing("d").await, 201);
}
