//! Replicas that begin with what there is, because how it came about has been forgotten.

use std::sync::Arc;
use std::time::{Duration, Instant};

use polder_model::{GroupResource, json};
use polder_store::engine::{Engine, EngineError};
use polder_store::memory::MemoryEngine;
use polder_store::replica::{Journal as _, Kept, Replica};
use polder_store::{
    Change, Expect, ForkSource, Key, Limits, ListQuery, ObjectName, PlaneChange, Profile, Record, Revision,
    Store, StoreOptions,
};
use polder_store_embedded::{Options, SqliteEngine};
use polder_store_postgres::{JournalOptions, PostgresJournal};

use crate::appending::{PATIENCE, add, entry, next};
use crate::cluster;

fn record(name: &str, text: &str) -> Record {
    Record::encode(&json!({"metadata": {"name": name}, "data": {"text": text}}))
}

fn open(engine: impl Engine + 'static, options: &JournalOptions) -> Result<Arc<Store>, EngineError> {
    let replica = Replica::new(engine, PostgresJournal::open(options.clone()).unwrap());
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
            let text = |record: &Record| String::from_utf8_lossy(record.body()).into_owned();
            told.extend(
                page.objects.iter().map(|one| format!("{} {} {}", one.name, one.revision, text(&one.record))),
            );
        }
    }
    told
}

#[test]
fn newcomers_begin_with_what_there_is() {
    let Some(port) = cluster::shared() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    // The first one leads, and forgets soon.
    let (history, lease) = (Some(Duration::from_millis(500)), Duration::from_secs(1));
    let leader = JournalOptions { history, lease, ..cluster::history(port) };
    let options = JournalOptions { is_candidate: false, ..leader.clone() };
    let ask = |what: &str| cluster::ask(port, &format!("SELECT {what}").replace('@', &options.schema));
    runtime.block_on(async {
        let first = open(MemoryEngine::default(), &leader).unwrap();
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
        let is_gone = !expected.iter().any(|line| line.starts_with("gone"));
        assert!(expected.len() > 80 && is_gone, "{expected:#?}");
        let patience = Instant::now() + PATIENCE;
        while tokio::task::block_in_place(|| ask("count(*) FROM @.log")) != ["1"] {
            assert!(Instant::now() < patience, "nothing is forgotten");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let keys = tokio::task::block_in_place(|| ask("key FROM @.object"));
        let count = |end: &str| keys.iter().filter(|key| key.ends_with(end)).count();
        // Deletions that hide something are there, others and planes that are gone are not.
        let counts = ["/7%25%2f", "/8%25%2f", "/own", "/passing"].map(count);
        assert_eq!(counts, [2, 1, 1, 0], "{keys:#?}");

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
        let second = open(embedded(), &options).unwrap();
        put(&first, "fork", "pods", "7%/", Some("back")).await;
        let last = put(&second, "one", "pods", "late", Some("x")).await;
        for store in [&first, &memory, &second] {
            assert!(store.wait_for(last, PATIENCE).await);
            assert_eq!(contents(store).await, contents(&first).await);
        }
        for store in [first, memory, second] {
            store.close();
        }
    });
}

/// Nothing of the log goes while somebody begins, however long that takes; afterwards it does.
#[test]
fn who_begins_is_waited_for() {
    let Some(port) = cluster::shared() else { return };
    let (history, lease) = (Some(Duration::from_millis(300)), Duration::from_millis(800));
    let options = JournalOptions { history, lease, ..cluster::history(port) };
    let mut leader = PostgresJournal::open(options.clone()).unwrap();
    let ask = |what: &str| cluster::ask(port, &format!("SELECT {what}").replace('@', &options.schema));
    let wait = |position: u64| {
        let patience = Instant::now() + PATIENCE;
        while ask("position FROM @.state") != [position.to_string()] {
            assert!(Instant::now() < patience, "nothing is forgotten");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut at = leader
        .append(polder_store::replica::Position(0), &entry(1, &[("b", Some("first"))]))
        .unwrap()
        .unwrap();
    for _ in 0..5 {
        at = add(&mut leader, at);
    }
    wait(at.0);
    let mut newcomer = crate::appending::open(&options);
    let mut kept = Vec::new();
    let snapshot = newcomer.snapshot(&mut |part| {
        kept.extend(part);
        // Others go on meanwhile, for longer than anything is kept.
        while at.0 < 12 {
            at = add(&mut leader, at);
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    });
    let snapshot = snapshot.unwrap();
    assert_eq!((snapshot.position.0, snapshot.current), (6, Revision(6)));
    let mut objects: Vec<_> = kept
        .iter()
        .filter_map(|kept| match kept {
            Kept::Object { name, version, .. } => Some((name.to_string(), version.revision.0)),
            _ => None,
        })
        .collect();
    objects.sort();
    assert_eq!(objects, [("n/a".to_owned(), 6), ("n/b".to_owned(), 1)]);
    assert!(kept.iter().any(|kept| matches!(kept, Kept::Note((name, _)) if name == "note")), "{kept:?}");
    assert_eq!(ask("min(position) FROM @.log"), ["6"], "it is waited for");
    let mut after = snapshot.position;
    while after < at {
        after = next(&mut newcomer, after).0;
    }
    wait(12);
}
