//! Sealing as its callers see it, over the memory engine, whose contents can be looked at from below. The conformance suite runs
//! over it too (`tests/memory.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use polder_model::{GroupResource, PlaneId, json};

use super::*;
use crate::change::{Change, Expect, ForkSource, PlaneChange};
use crate::engine::{Engine, EngineError, FilledVersion, Reader, SpaceKey};
use crate::key::{Key, ObjectName, ResourceId, Revision, SpaceId};
use crate::memory::MemoryEngine;
use crate::object::Record;
use crate::plane::{Limits, Profile};
use crate::store::{Store, StoreOptions};

const PLAIN: &str = "correct-horse-battery-staple";

/// A store in memory and its key file.
struct World {
    memory: MemoryEngine,
    directory: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        World { memory: MemoryEngine::default(), directory: tempfile::tempdir().unwrap() }
    }

    fn key_file(&self) -> PathBuf {
        self.directory.path().join("encryption.key")
    }

    fn keyring(&self, resources: &[&str]) -> Arc<Keyring> {
        let resources = resources.iter().map(|name| GroupResource::new("", *name)).collect();
        Keyring::new(Box::new(KeyFile::made_at(self.key_file())), resources)
    }

    fn open(&self, resources: &[&str]) -> (Arc<Store>, Arc<Keyring>) {
        let keyring = self.keyring(resources);
        let engine = SealedEngine::new(self.memory.clone(), keyring.clone());
        (Store::open(Box::new(engine), StoreOptions::default(), "", |_, _| Vec::new()).unwrap(), keyring)
    }

    fn refused(&self) -> String {
        let engine = SealedEngine::new(self.memory.clone(), self.keyring(&["secrets"]));
        let refused = Store::open(Box::new(engine), StoreOptions::default(), "", |_, _| Vec::new());
        let error = refused.unwrap_err();
        format!("{error}: {}", std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default())
    }

    /// All versions of a resource as the engine below has them.
    fn below(&self, resource: ResourceId) -> Vec<(SpaceId, FilledVersion)> {
        let spaces = self.memory.clone().recover().unwrap().spaces;
        let all = spaces.iter().flat_map(|row| {
            let found = self.memory.versions(row.id, resource, None, 1_000, usize::MAX).unwrap();
            found.into_iter().map(|filled| (row.id, filled))
        });
        all.collect()
    }

    fn sealed_below(&self, resource: ResourceId) -> Vec<bool> {
        let all = self.below(resource);
        all.iter().filter_map(|(_, filled)| filled.version.record.as_ref()).map(Record::is_sealed).collect()
    }

    fn keys(&self) -> Vec<SpaceKey> {
        self.memory.keys(None, 1_000).unwrap()
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.memory.clone().recover().unwrap().notes;
        notes.into_iter().map(|(name, _)| name.to_string()).collect()
    }
}

fn record(text: &str) -> Record {
    Record::encode(&json!({"metadata": {"name": "x", "labels": {"a": "b"}}, "data": {"text": text}}))
}

fn object(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

fn secrets(store: &Store) -> ResourceId {
    store.resource_id(&GroupResource::new("", "secrets"))
}

async fn put(store: &Store, plane: PlaneId, name: &str, text: &str) -> Revision {
    let key = Key { plane, resource: secrets(store), name: object(name) };
    store.commit(Change::put(key, record(text), Expect::Anything)).await.unwrap().revision
}

async fn text_of(store: &Store, plane: PlaneId, name: &str) -> Option<String> {
    let plane = store.plane_by_id(plane).unwrap();
    let found = store.get(&plane, secrets(store), &object(name)).await.unwrap()?;
    found.record.to_value(1).unwrap().str_at(&["data", "text"]).map(str::to_owned)
}

async fn change(store: &Store, plane: PlaneChange) -> Option<PlaneId> {
    let change = Change { plane: Some(plane), ..Change::default() };
    store.commit(change).await.unwrap().plane.map(|plane| plane.id)
}

async fn create(store: &Store, name: &str) -> PlaneId {
    let (limits, profile) = (Limits::default(), Profile::default());
    change(store, PlaneChange::Create { name: name.parse().unwrap(), limits, profile }).await.unwrap()
}

async fn until(what: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if what() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it does not happen");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_chosen_is_plain_below_and_everything_is_above() {
    let world = World::new();
    let (store, _) = world.open(&["secrets"]);
    let configs = store.resource_id(&GroupResource::new("", "configmaps"));
    let plane = create(&store, "one").await;
    put(&store, plane, "a", PLAIN).await;
    put(&store, plane, "a", "again").await;
    let key = Key { plane, resource: configs, name: object("c") };
    store.commit(Change::put(key, record(PLAIN), Expect::Anything)).await.unwrap();
    for (_, filled) in world.below(secrets(&store)) {
        let below = filled.version.record.unwrap();
        assert!(below.is_sealed() && below.label("a").is_none() && below.body().is_empty());
        assert!(!below.as_bytes().windows(PLAIN.len()).any(|window| window == PLAIN.as_bytes()));
        assert!([record(PLAIN).len(), record("again").len()].contains(&below.len()));
    }
    assert_eq!(world.sealed_below(configs), [false]);
    assert_eq!(world.keys().len(), 1, "one key for the space of the plane, none for others");
    assert_eq!(text_of(&store, plane, "a").await.as_deref(), Some("again"));

    store.close();
    let (store, _) = world.open(&["secrets"]);
    assert_eq!(text_of(&store, plane, "a").await.as_deref(), Some("again"));
    store.close();
    let without = Store::open(Box::new(world.memory.clone()), StoreOptions::default(), "", |_, _| Vec::new());
    assert!(without.is_err(), "a store with keys is not opened without them");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_opens_only_where_it_was_written_and_whole() {
    let world = World::new();
    let (store, keyring) = world.open(&["secrets"]);
    let one = create(&store, "one").await;
    let two = create(&store, "two").await;
    put(&store, one, "a", PLAIN).await;
    put(&store, one, "b", PLAIN).await;
    put(&store, two, "a", PLAIN).await;
    let resource = secrets(&store);
    store.close();
    let below = world.below(resource);
    let mut memory = world.memory.clone();
    let reader = SealedReader::new(memory.reader(), keyring);
    let read = |space: SpaceId, filled: &FilledVersion| {
        reader.version(space, resource, &filled.name, Revision::NEWEST)
    };
    let mut put_there = |space: SpaceId, filled: &FilledVersion, record: Record| {
        let mut moved = filled.clone();
        moved.version.record = Some(record);
        memory.rewrite(space, &[moved]).unwrap();
    };
    for (space, filled) in &below {
        let own = filled.version.record.clone().unwrap();
        for (_, other) in below.iter().filter(|(_, other)| other.version.revision != filled.version.revision)
        {
            put_there(*space, filled, other.version.record.clone().unwrap());
            let refused = read(*space, filled);
            assert!(
                matches!(&refused, Err(EngineError::Damaged(what)) if what.contains("does not open")),
                "{refused:?}"
            );
        }
        put_there(*space, filled, own);
        assert!(read(*space, filled).unwrap().is_some());
    }
    let (space, filled) = &below[0];
    let own = filled.version.record.clone().unwrap();
    let bytes = own.as_bytes();
    for bit in 32..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        put_there(*space, filled, Record::from_bytes(flipped.into()).unwrap());
        assert!(matches!(read(*space, filled), Err(EngineError::Damaged(_))), "{bit}");
    }
    for len in 0..bytes.len() {
        if let Ok(cut) = Record::from_bytes(bytes[..len].into()) {
            put_there(*space, filled, cut);
            assert!(matches!(read(*space, filled), Err(EngineError::Damaged(_))), "{len}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_goes_with_the_last_plane_that_stands_on_its_space() {
    let world = World::new();
    let (store, _) = world.open(&["secrets"]);
    let one = create(&store, "one").await;
    put(&store, one, "a", PLAIN).await;
    let source = ForkSource::Plane(one);
    let fork = PlaneChange::Fork { name: "two".parse().unwrap(), source, limits: Limits::default() };
    let two = change(&store, fork).await.unwrap();
    put(&store, one, "b", "own").await;
    assert_eq!(world.keys().len(), 2);
    change(&store, PlaneChange::Delete { plane: one }).await;
    assert_eq!(world.keys().len(), 1, "its own is gone with the commit, what it shared is not");
    assert_eq!(text_of(&store, two, "a").await.as_deref(), Some(PLAIN));
    change(&store, PlaneChange::Delete { plane: two }).await;
    assert_eq!(world.keys(), []);
    store.settle().await.unwrap();
    assert!(store.is_sound());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_wrapped_anew_while_the_store_is_used() {
    let world = World::new();
    let (store, keyring) = world.open(&["secrets"]);
    let mut planes = Vec::new();
    for index in 0..3 {
        let plane = create(&store, &format!("p{index}")).await;
        put(&store, plane, "a", PLAIN).await;
        planes.push(plane);
    }
    assert!(!keyring.refresh().unwrap(), "nothing is new");
    let before = world.keys();
    let below = world.below(secrets(&store));
    let second = add_key(&world.key_file()).unwrap();
    assert!(keyring.refresh().unwrap());
    until(|| matches!(&keyring.status().store_keys[..], [only] if only.key == second)).await;
    assert_eq!(world.notes(), ["sealed", "store-key/2"]);
    let after = world.keys();
    assert!(before.iter().zip(&after).all(|(old, new)| old.space == new.space && old.wrapped != new.wrapped));
    assert_eq!(
        format!("{below:?}"),
        format!("{:?}", world.below(secrets(&store))),
        "records stay as they are"
    );
    put(&store, planes[0], "b", "later").await;
    store.close();

    keep_only(&world.key_file(), &second);
    let (store, _) = world.open(&["secrets"]);
    for plane in planes {
        assert_eq!(text_of(&store, plane, "a").await.as_deref(), Some(PLAIN));
    }
    store.close();
    let third = add_key(&world.key_file()).unwrap();
    let (store, keyring) = world.open(&["secrets"]);
    until(|| keyring.status().store_keys.len() == 1).await;
    assert_eq!(keyring.status().store_keys[0].key, third, "a key that was added while nobody looked");
    store.close();
}

/// Whoever takes the newest key away while the store is used does not bring the one before it back: the next start would need it.
#[tokio::test(flavor = "multi_thread")]
async fn taking_the_newest_key_away_brings_no_other_back() {
    let world = World::new();
    let (store, keyring) = world.open(&["secrets"]);
    let plane = create(&store, "one").await;
    put(&store, plane, "a", PLAIN).await;
    let before = std::fs::read_to_string(world.key_file()).unwrap();
    let second = add_key(&world.key_file()).unwrap();
    let both = std::fs::read_to_string(world.key_file()).unwrap();
    assert!(keyring.refresh().unwrap());
    let is_second = || matches!(&keyring.status().store_keys[..], [only] if only.key == second);
    until(is_second).await;
    std::fs::write(world.key_file(), before).unwrap();
    let said = keyring.refresh().unwrap_err().to_string();
    assert!(said.contains(&second) && said.contains("put its line back"), "{said}");
    put(&store, plane, "b", "later").await;
    assert!(is_second() && world.refused().contains(&second));
    std::fs::write(world.key_file(), both).unwrap();
    assert!(!keyring.refresh().unwrap());
    store.close();
}

fn keep_only(path: &Path, key: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    std::fs::write(path, line).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_wrong_key_changes_nothing() {
    let world = World::new();
    let (store, _) = world.open(&["secrets"]);
    let plane = create(&store, "one").await;
    put(&store, plane, "a", PLAIN).await;
    store.close();
    let (notes, keys, text) =
        (world.notes(), world.keys(), std::fs::read_to_string(world.key_file()).unwrap());
    let name = text.lines().last().and_then(|line| line.split(' ').next()).unwrap().to_owned();

    std::fs::remove_file(world.key_file()).unwrap();
    assert!(world.refused().contains("cannot read the encryption keys in"), "{}", world.refused());
    assert!(!world.key_file().exists(), "no key is made for a store that has one");
    add_key(&world.key_file()).unwrap();
    assert!(world.refused().contains(&format!("needs key {name:?}")), "{}", world.refused());
    assert_eq!((world.notes(), world.keys()), (notes, keys));
    std::fs::write(world.key_file(), text).unwrap();
    let (store, _) = world.open(&["secrets"]);
    assert_eq!(text_of(&store, plane, "a").await.as_deref(), Some(PLAIN));
    store.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_plain_is_sealed_and_turned_off_it_is_still_read() {
    let world = World::new();
    let (store, _) = world.open(&[]);
    assert!(!world.key_file().exists(), "nothing to seal, no key");
    let plane = create(&store, "one").await;
    put(&store, plane, "a", "older").await;
    let old = put(&store, plane, "a", PLAIN).await;
    let resource = secrets(&store);
    assert_eq!(world.sealed_below(resource), [false, false]);
    store.close();

    let (store, keyring) = world.open(&["secrets"]);
    until(|| !keyring.status().sealing).await;
    assert_eq!(world.sealed_below(resource), [true, true], "history too");
    assert_eq!(text_of(&store, plane, "a").await.as_deref(), Some(PLAIN));
    let plane_now = store.plane_by_id(plane).unwrap();
    let found = store.get(&plane_now, resource, &object("a")).await.unwrap().unwrap();
    assert_eq!(found.revision, old, "nobody sees a change");
    store.close();

    let (store, _) = world.open(&[]);
    put(&store, plane, "b", "plain again").await;
    assert_eq!(text_of(&store, plane, "a").await.as_deref(), Some(PLAIN));
    assert_eq!(world.sealed_below(resource), [true, true, false]);
    store.close();
    let (store, keyring) = world.open(&["secrets"]);
    until(|| !keyring.status().sealing).await;
    assert_eq!(world.sealed_below(resource), [true, true, true]);
    assert_eq!(text_of(&store, plane, "b").await.as_deref(), Some("plain again"));
    store.close();
}
