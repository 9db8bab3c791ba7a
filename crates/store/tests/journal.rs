//! Replicas beside each other on a journal in memory: what gets lost, what is too long, what belongs elsewhere, versions side by
//! side, and keys that come later.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polder_model::{GroupResource, json};
use polder_store::engine::{Bounds, Engine, EngineError};
use polder_store::memory::MemoryEngine;
use polder_store::replica::{Act, Journal as _, MemoryJournal, Position, Replica};
use polder_store::sealed::{KeyFile, Keyring, SealedEngine, add_key};
use polder_store::{
    Change, CommitError, Expect, Key, Limits, ListQuery, ObjectName, Plane, PlaneChange, Profile, ReadError,
    Record, Revision, Store, StoreOptions,
};

const PATIENCE: Duration = Duration::from_secs(30);

fn open_with(engine: impl Engine + 'static, digest: &str) -> Result<Arc<Store>, EngineError> {
    Store::open(Box::new(engine), StoreOptions::default(), digest, |profile, id| {
        let name = ObjectName::cluster(format!("{digest}-{}", profile.name()));
        vec![(id(&GroupResource::new("", "namespaces")), name, record("base"))]
    })
}

fn open(journal: &MemoryJournal, number: usize) -> Arc<Store> {
    open_with(Replica::new(MemoryEngine::default(), journal.replica(number)), "one").unwrap()
}

fn record(text: &str) -> Record {
    Record::encode(&json!({"metadata": {"name": "x"}, "data": {"text": text}}))
}

fn key(store: &Store, resource: &str, name: &str) -> Key {
    let resource = store.resource_id(&GroupResource::new("", resource));
    Key { plane: polder_model::PlaneId::CORE, resource, name: ObjectName::new("n", name) }
}

async fn put(store: &Store, name: &str, text: &str) -> Result<Revision, CommitError> {
    let change = Change::put(key(store, "pods", name), record(text), Expect::Anything);
    Ok(store.commit(change).await?.revision)
}

async fn names(store: &Store, plane: &Arc<Plane>, resource: &str) -> Vec<String> {
    let resource = store.resource_id(&GroupResource::new("", resource));
    let page = store.list(plane, ListQuery::all(resource)).await.unwrap();
    page.objects.iter().map(|object| object.name.name.to_string()).collect()
}

/// Who was not told what became of its write is told just that; the replica goes on, and all have the same.
#[tokio::test]
async fn lost_answers_stop_nobody() {
    let journal = MemoryJournal::default();
    let stores = [open(&journal, 0), open(&journal, 1)];
    for (round, is_added) in [true, false, true, false].into_iter().enumerate() {
        let (lost, next) = (format!("lost-{round}"), format!("next-{round}"));
        journal.lose_answer(0, is_added);
        let outcome = put(&stores[0], &lost, "x").await;
        assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
        assert!(stores[0].is_running());
        let last = put(&stores[0], &next, "x").await.unwrap();
        for store in &stores {
            assert!(store.wait_for(last, PATIENCE).await);
            let core = store.plane("core").unwrap();
            let names = names(store, &core, "pods").await;
            assert_eq!(names.contains(&lost), is_added, "{names:?}");
            assert!(names.contains(&next), "{names:?}");
            assert_eq!(core.usage.objects(), names.len() as u64 + 1);
        }
    }
}

/// What a journal does not take fails alone, and groups are not longer than it likes.
#[tokio::test]
async fn what_is_too_long_fails_alone() {
    const LEN: usize = 4;
    let journal = MemoryJournal::default();
    let bounds =
        Bounds { batch_len: LEN, record_bytes_max: 2_000, change_bytes_max: 5_000, ..Bounds::default() };
    journal.set_bounds(bounds);
    let store = open(&journal, 0);
    let begun = journal.replica(0).end().unwrap();
    let (long, half) = ("x".repeat(3_000), "x".repeat(1_500));
    let mut writing = tokio::task::JoinSet::new();
    for index in 0..100 {
        let (store, long) = (store.clone(), long.clone());
        writing.spawn(async move {
            let is_long = index % 10 == 0;
            let outcome = put(&store, &format!("{index}"), if is_long { &long } else { "x" }).await;
            assert_eq!(
                matches!(outcome, Err(CommitError::TooLong { len_max: 2_000, .. })),
                is_long,
                "{outcome:?}"
            );
            assert!(is_long || outcome.is_ok(), "{outcome:?}");
        });
    }
    while let Some(written) = writing.join_next().await {
        written.unwrap();
    }
    let change = ["a", "b", "c", "d"]
        .map(|name| Change::put(key(&store, "pods", name), record(&half), Expect::Anything));
    let writes = change.into_iter().flat_map(|change| change.writes).collect();
    let outcome = store.commit(Change { writes, ..Change::default() }).await;
    assert!(matches!(outcome, Err(CommitError::TooLong { len_max: 5_000, .. })), "{outcome:?}");
    let (mut journal, mut at, mut objects) = (journal.replica(0), begun, 0);
    while let Some((position, entry)) = journal.next(at).unwrap() {
        let Act::Apply(batch) = &entry.act else { panic!("{entry:?}") };
        assert!(batch.objects.len() <= LEN, "{} objects in an entry", batch.objects.len());
        (at, objects) = (position, objects + batch.objects.len());
    }
    assert_eq!(objects, 90);
}

fn refusal(outcome: Result<Arc<Store>, EngineError>) -> String {
    let error = outcome.unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string);
    format!("{error}: {}", source.unwrap_or_default())
}

/// A store knows which journal it belongs to, if any.
#[tokio::test]
async fn a_store_belongs_to_one_journal() {
    let (journal, other) = (MemoryJournal::default(), MemoryJournal::default());
    let own = MemoryEngine::default();
    let replica = |engine: &MemoryEngine, journal: &MemoryJournal| {
        open_with(Replica::new(engine.clone(), journal.replica(0)), "one")
    };
    let store = replica(&own, &journal).unwrap();
    put(&store, "a", "x").await.unwrap();
    store.close();
    replica(&own, &journal).unwrap().close();
    replica(&MemoryEngine::default(), &other).unwrap().close();
    let refused = refusal(replica(&own, &other));
    assert!(refused.contains("another journal") && refused.contains("empty directory"), "{refused}");
    let refused = refusal(replica(&own, &MemoryJournal::default()));
    assert!(refused.contains("has less than this replica has read"), "{refused}");
    let refused = refusal(open_with(own.clone(), "one"));
    assert!(refused.contains("without the journal"), "{refused}");
    let alone = MemoryEngine::default();
    open_with(alone.clone(), "one").unwrap().close();
    let refused = refusal(replica(&alone, &journal));
    assert!(refused.contains("a history of its own"), "{refused}");
    assert!(journal.replica(0).end().unwrap() > Position(1), "nothing was lost by trying");
}

/// Two versions run side by side: each makes planes that begin as it says, also when the other let go of what they stand on.
#[tokio::test]
async fn versions_keep_their_bases() {
    let journal = MemoryJournal::default();
    let one = open(&journal, 0);
    let two = open_with(Replica::new(MemoryEngine::default(), journal.replica(1)), "two").unwrap();
    for round in 0..3 {
        for (store, digest) in [(&one, "one"), (&two, "two")] {
            for profile in Profile::ALL {
                let name = format!("{digest}-{}-{round}", profile.name()).parse().unwrap();
                let create = PlaneChange::Create { name, limits: Limits::default(), profile };
                let made = store.commit(Change { plane: Some(create), ..Change::default() }).await.unwrap();
                let plane = made.plane.unwrap();
                assert_eq!(
                    names(store, &plane, "namespaces").await,
                    [format!("{digest}-{}", profile.name())]
                );
                // The other one deletes it, and lets go of a base that is not its own.
                let other = if digest == "one" { &two } else { &one };
                assert!(other.wait_for(made.revision, PATIENCE).await);
                let delete = PlaneChange::Delete { plane: plane.id };
                other.commit(Change { plane: Some(delete), ..Change::default() }).await.unwrap();
            }
        }
    }
}

fn sealed(journal: &MemoryJournal, number: usize, directory: &Path) -> (Arc<Store>, Arc<Keyring>) {
    let file = KeyFile::made_at(directory.join("encryption.key"));
    let keyring = Keyring::new(Box::new(file), vec![GroupResource::new("", "pods")]);
    let replica = Replica::new(MemoryEngine::default(), journal.replica(number));
    (open_with(SealedEngine::new(replica, keyring.clone()), "one").unwrap(), keyring)
}

/// A replica that does not have a new key yet shows what it knows, says that it is behind, and goes on when it has it.
#[tokio::test(flavor = "multi_thread")]
async fn keys_may_come_later() {
    let journal = MemoryJournal::default();
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let file = |number: usize| directories[number].path().join("encryption.key");
    let (first, keyring) = sealed(&journal, 0, directories[0].path());
    std::fs::copy(file(0), file(1)).unwrap();
    let (second, _) = sealed(&journal, 1, directories[1].path());
    let before = put(&first, "before", "x").await.unwrap();
    assert!(second.wait_for(before, PATIENCE).await);
    add_key(&file(0)).unwrap();
    assert!(keyring.refresh().unwrap());
    let patience = std::time::Instant::now() + PATIENCE;
    while keyring.status().store_keys.len() > 1 || keyring.status().store_keys[0].number < 2 {
        assert!(std::time::Instant::now() < patience, "{:?}", keyring.status());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let after = put(&first, "after", "x").await.unwrap();
    // It cannot see that, and says so; what it has can be read.
    let outcome = put(&second, "late", "x").await;
    assert!(
        matches!(&outcome, Err(CommitError::Engine(error)) if matches!(**error, EngineError::Unavailable(_))),
        "{outcome:?}"
    );
    let core = second.plane("core").unwrap();
    assert_eq!(names(&second, &core, "pods").await, ["before"]);
    assert!(matches!(second.fresh().await, Err(ReadError::Behind)));
    assert!(second.is_running());
    std::fs::copy(file(0), file(1)).unwrap();
    assert!(second.wait_for(after, PATIENCE).await);
    second.fresh().await.unwrap();
    put(&second, "late", "x").await.unwrap();
    assert_eq!(names(&second, &core, "pods").await, ["after", "before", "late"]);
}
