//! What needs a look inside: limits that are too large to reach from outside.

use polder_auth::UserInfo;
use polder_auth::authz::Chain;
use polder_model::json;
use polder_store::memory::MemoryEngine;
use polder_store::{Limits, StoreOptions};

use super::*;
use crate::RegistryOptions;
use crate::decode::Document;

fn registry() -> Registry {
    let store =
        Store::open(Box::new(MemoryEngine::default()), StoreOptions::default(), "none", |_| Vec::new());
    let options = RegistryOptions {
        base_url: "https://x".into(),
        default_limits: Limits::default(),
        clock: || 1_800_000_000,
    };
    Registry::new(store.unwrap(), Chain::default(), options)
}

async fn create(registry: &Registry, plural: &str, group: &str) -> Result<Value, Status> {
    let context = RequestContext::new(registry.store.plane("core").unwrap(), UserInfo::system());
    let (definition, version) = registry.builtin.find(GROUP, "v1", PLURAL).unwrap();
    let (namespace, name, subresource) = Default::default();
    let target = Target { definition, version, namespace, name, subresource };
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let value = json!({
        "metadata": {"name": (format!("{plural}.{group}")),
            "annotations": {"api-approved.kubernetes.io": "https://example.com/approval"}},
        "spec": {"group": group, "scope": "Cluster", "names": {"plural": plural, "kind": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
    });
    let document = Document { value, duplicates: Vec::new() };
    let made = registry.create(&context, &target, document, &WriteOptions::default()).await?;
    match made.body {
        crate::Answered::Made(value) => Ok(value),
        crate::Answered::Stored(stored) => registry.to_client(&context, &target, &stored),
    }
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
