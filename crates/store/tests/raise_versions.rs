//! A plane whose contents come from another store goes on with larger resource versions.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use polder_model::{GroupResource, json};
use polder_store::memory::MemoryEngine;
use polder_store::{
    Change, Expect, Key, Limits, ListQuery, ObjectName, Plane, PlaneChange, Profile, ReadError, Record,
    Store, StoreOptions, WatchError, WatchScope,
};

fn open(engine: &MemoryEngine) -> Arc<Store> {
    let base = |_: Profile, id: &dyn Fn(&GroupResource) -> polder_store::ResourceId| {
        let record = Record::encode(&json!({"metadata": {"name": "default"}}));
        vec![(id(&GroupResource::new("", "namespaces")), ObjectName::cluster("default"), record)]
    };
    Store::open(Box::new(engine.clone()), StoreOptions::default(), "base", base).unwrap()
}

async fn plane_create(store: &Store) -> Arc<Plane> {
    let (name, limits) = ("moved".parse().unwrap(), Limits::default());
    let change = Change {
        plane: Some(PlaneChange::Create { name, limits, profile: Profile::default() }),
        ..Change::default()
    };
    store.commit(change).await.unwrap().plane.unwrap()
}

async fn raise(store: &Store, plane: &Plane, above: u64) {
    let raise = PlaneChange::RaiseVersions { plane: plane.id, above };
    store.commit(Change { plane: Some(raise), ..Change::default() }).await.unwrap();
}

async fn put(store: &Store, plane: &Plane, name: &str) -> u64 {
    let resource = store.resource_id(&GroupResource::new("", "configmaps"));
    let key = Key { plane: plane.id, resource, name: ObjectName::new("default", name) };
    let record = Record::encode(&json!({"metadata": {"name": name}}));
    let committed = store.commit(Change::put(key, record, Expect::Absent)).await.unwrap();
    store.plane_by_id(plane.id).unwrap().resource_version(committed.revision)
}

#[tokio::test]
async fn versions_grow_across_stores_and_restarts() {
    let engine = MemoryEngine::default();
    let store = open(&engine);
    let before = plane_create(&store).await;
    let other = store.plane("core").unwrap();
    raise(&store, &before, 1_000_000).await;
    let raised = store.plane("moved").unwrap();
    assert_eq!(raised.resource_version(store.current()), 1_000_001, "not larger than it must be");
    assert!(put(&store, &raised, "a").await > 1_000_001);
    assert_eq!(store.plane("core").unwrap().version_offset, other.version_offset, "nobody else is raised");

    // There and back: a version a client holds leads to the commit it came from.
    let current = store.current();
    assert_eq!(raised.revision(raised.resource_version(current)), current);

    // Never down again.
    raise(&store, &raised, 5).await;
    assert!(put(&store, &raised, "b").await > 1_000_002);

    store.close();
    drop(store);
    let store = open(&engine);
    let reopened = store.plane("moved").unwrap();
    assert!(put(&store, &reopened, "c").await > 1_000_004);
}

#[tokio::test]
async fn versions_from_before_are_refused() {
    let store = open(&MemoryEngine::default());
    let before = plane_create(&store).await;
    let old = before.resource_version(store.current());
    let resource = store.resource_id(&GroupResource::new("", "configmaps"));
    let scope = || WatchScope::Collection(before.id, resource);
    let mut watch = store.watch(scope(), store.current()).unwrap();
    raise(&store, &before, 1_000).await;
    let raised = store.plane("moved").unwrap();
    let at = Some(raised.revision(old));
    let query = ListQuery { at, ..ListQuery::all(resource) };
    let refused = store.list(&raised, query).await;
    assert!(matches!(refused, Err(ReadError::Compacted { .. })), "{refused:?}");
    let refused = store.watch(scope(), raised.revision(old));
    assert!(matches!(refused, Err(WatchError::Compacted { .. })));
    assert!(watch.next().await.is_err(), "a watch from before ends");
    assert!(store.watch(scope(), store.current()).is_ok());
}

#[tokio::test]
async fn untouched_means_nothing_was_ever_written() {
    let store = open(&MemoryEngine::default());
    let plane = plane_create(&store).await;
    assert!(store.is_untouched(&plane).await.unwrap());
    raise(&store, &plane, 1_000).await;
    assert!(store.is_untouched(&plane).await.unwrap(), "numbers are not contents");

    let (name, source) = ("copy".parse().unwrap(), polder_store::ForkSource::Plane(plane.id));
    let fork = PlaneChange::Fork { name, source, limits: Limits::default() };
    let copy = store.commit(Change { plane: Some(fork), ..Change::default() }).await.unwrap().plane.unwrap();
    assert!(store.is_untouched(&copy).await.unwrap(), "a fork of nothing is nothing");

    put(&store, &plane, "a").await;
    assert!(!store.is_untouched(&plane).await.unwrap());
    let (name, source) = ("full".parse().unwrap(), polder_store::ForkSource::Plane(plane.id));
    let fork = PlaneChange::Fork { name, source, limits: Limits::default() };
    let full = store.commit(Change { plane: Some(fork), ..Change::default() }).await.unwrap().plane.unwrap();
    assert!(!store.is_untouched(&full).await.unwrap());
}
