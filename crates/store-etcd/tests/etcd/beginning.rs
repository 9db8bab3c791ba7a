//! Replicas that begin with what there is, because etcd has forgotten how it came about.

use std::sync::Arc;
use std::time::Duration;

use polder_model::{GroupResource, json};
use polder_store::engine::{Engine, EngineError};
use polder_store::memory::MemoryEngine;
use polder_store::replica::Replica;
use polder_store::{
    Change, CommitError, Expect, ForkSource, Key, Limits, ListQuery, ObjectName, PlaneChange, Profile,
    Record, Revision, Store, StoreOptions,
};
use polder_store_embedded::{Options, SqliteEngine};
use polder_store_etcd::client::Client;
use polder_store_etcd::wire::Range;
use polder_store_etcd::{EtcdJournal, JournalOptions};

use crate::cluster::{self, Way};

const PATIENCE: Duration = Duration::from_secs(30);

fn record(name: &str, text: &str) -> Record {
    Record::encode(&json!({"metadata": {"name": name}, "data": {"text": text}}))
}

fn open(engine: impl Engine + 'static, options: &JournalOptions) -> Result<Arc<Store>, EngineError> {
    let replica = Replica::new(engine, EtcdJournal::open(options.clone()).unwrap());
    Store::open(Box::new(replica), StoreOptions::default(), "base", |_, id| {
        let resource = id(&GroupResource::new("", "namespaces"));
        vec![(resource, ObjectName::cluster("default"), record("default", ""))]
    })
}

async fn plane(store: &Store, change: PlaneChange) {
    store.commit(Change { plane: Some(change), ..Change::default() }).await.unwrap();
}

async fn put(store: &Store, plane: &str, resource: &str, name: &str, text: Option<&str>) -> Revision {
    let resource = store.resource_id(&GroupResource::new("", resource));
    let name = ObjectName::new("default", name);
    let key = Key { plane: store.plane(plane).unwrap().id, resource, name: name.clone() };
    let change = match text {
        Some(text) => Change::put(key, record(&name.name, text), Expect::Anything),
        None => Change::delete(key, Expect::Anything),
    };
    store.commit(change).await.unwrap().revision
}

/// What is in the planes, as somebody sees it.
async fn contents(store: &Store) -> Vec<String> {
    let mut told = Vec::new();
    for name in ["core", "one", "fork", "gone"] {
        let Some(plane) = store.plane(name) else { continue };
        told.push(format!("{name} {:?} {} {}", plane.id, plane.usage.objects(), plane.usage.bytes()));
        for resource in ["namespaces", "pods", "widgets"] {
            let resource = store.resource_id(&GroupResource::new("", resource));
            let page = store.list(&plane, ListQuery::all(resource)).await.unwrap();
            told.extend(page.objects.iter().map(|object| {
                format!(
                    "{} {} {}",
                    object.name,
                    object.revision,
                    String::from_utf8_lossy(object.record.body())
                )
            }));
        }
    }
    told
}

/// A replica that was away for too long, or was killed while it was being filled, is filled by itself.
#[test]
fn who_was_away_begins_anew() {
    let Some((mut etcd, url)) = cluster::start(&[]) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let options = cluster::history(&url);
        let disk = Options::default();
        let mut renewed = 0;
        let mut returned = || {
            let engine = SqliteEngine::open(directory.path(), &disk).unwrap();
            let replica = Replica::open(engine, EtcdJournal::open(options.clone()).unwrap(), |old| {
                renewed += 1;
                Ok(old.renew(directory.path(), &disk).unwrap())
            });
            let store =
                Store::open(Box::new(replica.unwrap()), StoreOptions::default(), "base", |_, _| Vec::new());
            (store.unwrap(), renewed)
        };
        let first = open(MemoryEngine::default(), &options).unwrap();
        put(&first, "core", "pods", "a", Some("x")).await;
        let (second, renewed) = returned();
        assert_eq!(renewed, 0);
        put(&second, "core", "pods", "b", Some("x")).await;
        second.close();
        drop(second);
        let client = Client::new(options.client.clone()).unwrap();
        let deadline = || tokio::time::Instant::now() + PATIENCE;
        for round in 1..3 {
            put(&first, "core", "pods", "b", None).await;
            put(&first, "core", "pods", &format!("late-{round}"), Some("x")).await;
            let last = put(&first, "core", "pods", "a", Some("y")).await;
            let range = Range { key: b"/", ..Range::default() };
            let now = client.range(&range, deadline()).await.unwrap().revision;
            client.compact(now, deadline()).await.unwrap();
            if round == 2 {
                // As if it had been killed in the middle.
                let mut engine = SqliteEngine::open(directory.path(), &disk).unwrap();
                let at = engine.recover().unwrap().current;
                let notes = vec![("journal-restoring".into(), Some(b""[..].into()))];
                let batch =
                    polder_store::engine::Batch { first: at.next(), last: at, notes, ..Default::default() };
                engine.apply(&batch).unwrap();
            }
            let (second, renewed) = returned();
            assert_eq!(renewed, round);
            assert!(second.wait_for(last, PATIENCE).await);
            assert_eq!(contents(&second).await, contents(&first).await);
            put(&second, "core", "pods", "b", Some("again")).await;
            second.close();
        }
        let (second, renewed) = returned();
        assert_eq!(renewed, 2, "it had everything");
        assert!(first.wait_for(second.current(), PATIENCE).await);
        assert_eq!(contents(&second).await, contents(&first).await);
        second.close();
        first.close();
    });
    etcd.stdin.take();
    etcd.wait().unwrap();
}

#[test]
fn newcomers_begin_with_what_there_is() {
    let Some((mut etcd, url)) = cluster::start(&[]) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let options = cluster::history(&url);
        let first = open(MemoryEngine::default(), &options).unwrap();
        let create = |name: &str| PlaneChange::Create {
            name: name.parse().unwrap(),
            limits: Limits::default(),
            profile: Profile::default(),
        };
        plane(&first, create("one")).await;
        plane(&first, create("gone")).await;
        for index in 0..60 {
            let name = format!("{}%/", index % 40);
            put(&first, "one", "pods", &name, Some(&format!("text {index}"))).await;
            put(&first, "gone", "pods", &name, Some("x")).await;
        }
        let source = ForkSource::Plane(first.plane("one").unwrap().id);
        let fork = PlaneChange::Fork { name: "fork".parse().unwrap(), source, limits: Limits::default() };
        plane(&first, fork).await;
        // What a fork deletes is hidden, and not only missing.
        put(&first, "fork", "pods", "7%/", None).await;
        put(&first, "fork", "widgets", "own", Some("new")).await;
        // What is deleted and hides nothing leaves nothing.
        put(&first, "fork", "widgets", "passing", Some("x")).await;
        put(&first, "fork", "widgets", "passing", None).await;
        plane(&first, PlaneChange::Delete { plane: first.plane("gone").unwrap().id }).await;

        let expected = contents(&first).await;
        assert!(
            expected.len() > 80 && !expected.iter().any(|line| line.starts_with("gone")),
            "{expected:#?}"
        );
        let client = Client::new(options.client.clone()).unwrap();
        let deadline = || tokio::time::Instant::now() + PATIENCE;
        let start = format!("{}/o/", options.prefix);
        let range = Range { key: start.as_bytes(), end: b"~", keys_only: true, ..Range::default() };
        let answer = client.range(&range, deadline()).await.unwrap();
        let keys: Vec<_> = answer.found.iter().map(|found| String::from_utf8_lossy(&found.key)).collect();
        let count = |end: &str| keys.iter().filter(|key| key.ends_with(end)).count();
        // Deletions that hide something are there, others and planes that are gone are not.
        let counts = ["/7%25%2f", "/8%25%2f", "/own", "/passing"].map(count);
        assert_eq!(counts, [2, 1, 1, 0], "{keys:#?}");
        let now = answer.revision;
        client.compact(now, deadline()).await.unwrap();

        let memory = open(MemoryEngine::default(), &options).unwrap();
        let embedded = || SqliteEngine::open(directory.path(), &Options::default()).unwrap();
        let second = open(embedded(), &options).unwrap();
        for store in [&memory, &second] {
            assert_eq!(store.current(), first.current());
            assert_eq!(contents(store).await, expected);
        }
        // They go on together, and one of them after a pause.
        second.close();
        drop(second);
        put(&first, "fork", "pods", "7%/", Some("back")).await;
        let second = open(embedded(), &options).unwrap();
        let last = put(&second, "one", "pods", "late", Some("x")).await;
        for store in [&first, &memory, &second] {
            assert!(store.wait_for(last, PATIENCE).await);
            assert_eq!(contents(store).await, contents(&first).await);
        }
        for store in [first, memory, second] {
            store.close();
        }
    });
    etcd.stdin.take();
    etcd.wait().unwrap();
}

/// A change whose answer stays away is told as such, and the store goes on: what became of it is what the journal says, here and
/// elsewhere.
#[test]
fn what_nobody_knows_is_found_out() {
    let Some(url) = cluster::shared() else { return };
    let other_options = cluster::history(url);
    let way = Way::to(url);
    let mut options = JournalOptions { timeout: Duration::from_secs(2), ..other_options.clone() };
    options.client.endpoints = vec![way.url()];
    options.client.call_timeout = Duration::from_millis(500);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let other = open(MemoryEngine::default(), &other_options).unwrap();
        let store = open(MemoryEngine::default(), &options).unwrap();
        let (name, limits, profile) = ("one".parse().unwrap(), Limits::default(), Profile::default());
        plane(&other, PlaneChange::Create { name, limits, profile }).await;
        store.fresh().await.unwrap();
        put(&store, "one", "pods", "before", Some("1")).await;
        way.mute(true);
        let key = {
            let plane = store.plane("one").unwrap();
            let resource = store.resource_id(&GroupResource::new("", "pods"));
            Key { plane: plane.id, resource, name: ObjectName::new("default", "doubtful") }
        };
        let change = Change::put(key.clone(), record("doubtful", "2"), Expect::Absent);
        let outcome = store.commit(change).await;
        assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
        assert!(store.is_running());
        way.mute(false);
        // What is on its way to it must arrive first.
        let mut tries = 0;
        while store.fresh().await.is_err() {
            tries += 1;
            assert!(tries < 100, "it does not come back");
        }
        put(&store, "one", "pods", "after", Some("3")).await;
        other.fresh().await.unwrap();
        assert_eq!(contents(&store).await, contents(&other).await);
        let plane = store.plane("one").unwrap();
        // The way was mute in one direction only.
        assert!(store.get(&plane, key.resource, &key.name).await.unwrap().is_some());
    });
}
