use std::time::Duration;

use polder_model::{GroupResource, PlaneName, json};
use polder_store::copy::Copy;
use polder_store::{
    Change, Expect, ForkSource, Key, Limits, ListQuery, Plane, PlaneChange, Profile, Record, Store,
    StoreOptions,
};

use super::*;
use crate::engine::{Options, SqliteEngine};

/// Layers are merged, and commits forgotten, soon: but not those of the last few rounds.
const HISTORY_LEN: u64 = 24;

fn open(directory: &Path) -> Arc<Store> {
    let engine = SqliteEngine::open(directory, &Options::default()).unwrap();
    let options =
        StoreOptions { history: Duration::ZERO, history_len_min: HISTORY_LEN, ..StoreOptions::default() };
    Store::open(Box::new(engine), options, "base", |_, resource| {
        let pods = resource(&GroupResource::new("", "pods"));
        (0..5).map(|number| (pods, ObjectName::cluster(format!("base-{number}")), record(number))).collect()
    })
    .unwrap()
}

fn record(number: u64) -> Record {
    Record::encode(&json!({"metadata": {"name": "x"}, "number": (number as i64)}))
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// Something that somebody does to a store; what cannot be done is not.
async fn act(store: &Store, random: &mut Random, step: usize) {
    let planes: Vec<Arc<Plane>> = (1..1_000).filter_map(|id| store.plane_by_id(PlaneId(id))).collect();
    let plane = planes[random.below(planes.len())].clone();
    let name: PlaneName = format!("p{step}").parse().unwrap();
    let limits = Limits::default();
    let change = match random.below(14) {
        0 => PlaneChange::Create { name, limits, profile: Profile::default() },
        1 | 2 => PlaneChange::Fork { name, source: ForkSource::Plane(plane.id), limits },
        3 if planes.len() > 3 && plane.id != PlaneId::CORE => PlaneChange::Delete { plane: plane.id },
        4 => PlaneChange::Seal { layer: format!("layer-{}", step % 3).into(), plane: plane.id },
        5 => PlaneChange::Unseal { layer: format!("layer-{}", step % 3).into() },
        choice => {
            let resource = store.resource_id(&GroupResource::new("", "pods"));
            let object = if choice < 9 { "base" } else { "own" };
            let name = ObjectName::cluster(format!("{object}-{}", random.below(8)));
            let key = Key { plane: plane.id, resource, name };
            let change = match choice % 3 {
                0 => Change::delete(key, Expect::Anything),
                _ => Change::put(key, record(step as u64), Expect::Anything),
            };
            store.commit(change).await.unwrap();
            return;
        }
    };
    store.commit(Change { plane: Some(change), ..Change::default() }).await.ok();
}

async fn contents(store: &Store) -> Vec<(String, u64, Vec<(String, Revision, Record)>)> {
    let pods = store.resource_id(&GroupResource::new("", "pods"));
    let mut found = Vec::new();
    for plane in (1..1_000).filter_map(|id| store.plane_by_id(PlaneId(id))) {
        let page = store.list(&plane, ListQuery::all(pods)).await.unwrap();
        let objects = page.objects.iter();
        let objects = objects.map(|object| (object.name.to_string(), object.revision, object.record.clone()));
        found.push((plane.name.to_string(), plane.usage.objects(), objects.collect()));
    }
    found
}

/// Whatever happens to a store while it is copied, in the end the copy is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_follows_whatever_happens() {
    for seed in 1..=4 {
        println!("seed {seed}");
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (seed << 32 | seed));
        let (origin, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = open(origin.path());
        let mut steps = 0..;
        for _ in 0..60 {
            act(&store, &mut random, steps.next().unwrap()).await;
        }
        let mut engine = SqliteEngine::open(target.path(), &Options::default()).unwrap();
        let mut copy = Copy::begin(&mut engine).unwrap();
        let mut snapshot = Snapshot::of(origin.path()).unwrap();
        // What comes now is not in the first copy.
        for _ in 0..8 {
            act(&store, &mut random, steps.next().unwrap()).await;
        }
        snapshot.all(&mut |part| copy.take(part)).unwrap();
        copy.reach(snapshot.rows().current).unwrap();
        for round in 0..20 {
            for _ in 0..random.below(9) {
                act(&store, &mut random, steps.next().unwrap()).await;
            }
            if round % 3 == 0 {
                store.settle().await.unwrap();
            }
            let before = snapshot.rows().clone();
            drop(snapshot);
            snapshot = Snapshot::of(origin.path()).unwrap();
            snapshot.since(&before, &mut |entry| copy.follow(&entry)).unwrap();
            let found = Snapshot::unfinished(target.path()).unwrap().digest().unwrap();
            assert_eq!(found, snapshot.digest().unwrap(), "seed {seed}, round {round}");
        }
        drop(snapshot);
        copy.finish().unwrap();
        drop(engine);
        let expected = contents(&store).await;
        store.close();
        let copied = open(target.path());
        assert_eq!(contents(&copied).await, expected, "seed {seed}");
        // It is a store as any other.
        for step in 0..30 {
            act(&copied, &mut random, 10_000 + step).await;
        }
        copied.close();
        drop(copied);
        assert_eq!(crate::verify(target.path()).unwrap().problems, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_copy_is_no_store() {
    let (origin, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(origin.path());
    let mut engine = SqliteEngine::open(target.path(), &Options::default()).unwrap();
    let mut copy = Copy::begin(&mut engine).unwrap();
    Snapshot::of(origin.path()).unwrap().all(&mut |part| copy.take(part)).unwrap();
    drop(engine);
    let engine = SqliteEngine::open(target.path(), &Options::default()).unwrap();
    let opened = Store::open(Box::new(engine), StoreOptions::default(), "", |_, _| Vec::new());
    let refused = opened.map(drop).unwrap_err();
    assert!(
        std::error::Error::source(&refused).unwrap().to_string().contains("being copied into"),
        "{refused:?}"
    );
    assert!(Snapshot::of(target.path()).is_err(), "nor is it backed up");
    // Nor is something copied into it, or into any other.
    store.close();
    drop(store);
    for directory in [target.path(), origin.path()] {
        let mut engine = SqliteEngine::open(directory, &Options::default()).unwrap();
        assert!(Copy::begin(&mut engine).is_err());
    }
}

/// Deletions that hide only deletions are not copied, and not missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_of_what_was_deleted_below() {
    let (origin, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(origin.path());
    let resource = store.resource_id(&GroupResource::new("", "pods"));
    let change = |name: &str, record: Option<Record>| {
        let key = Key { plane: PlaneId::CORE, resource, name: ObjectName::cluster(name) };
        match record {
            Some(record) => Change::put(key, record, Expect::Anything),
            None => Change::delete(key, Expect::Anything),
        }
    };
    for round in 0..3 {
        for name in ["x", "base-1"] {
            store.commit(change(name, Some(record(round)))).await.unwrap();
            store.commit(change(name, None)).await.unwrap();
        }
        let name = format!("fork-{round}").parse().unwrap();
        let (source, limits) = (ForkSource::Plane(PlaneId::CORE), Limits::default());
        let fork = PlaneChange::Fork { name, source, limits };
        store.commit(Change { plane: Some(fork), ..Change::default() }).await.unwrap();
    }
    let mut engine = SqliteEngine::open(target.path(), &Options::default()).unwrap();
    let mut copy = Copy::begin(&mut engine).unwrap();
    let mut snapshot = Snapshot::of(origin.path()).unwrap();
    snapshot.all(&mut |part| copy.take(part)).unwrap();
    // Others have been made since, and are never heard of: that takes no longer than hearing of one.
    copy.reach(Revision(snapshot.rows().current.0 + 1_000_000_000)).unwrap();
    let found = Snapshot::unfinished(target.path()).unwrap().digest().unwrap();
    assert_eq!(found, snapshot.digest().unwrap());
    copy.finish().unwrap();
    drop((engine, snapshot));
    let expected = contents(&store).await;
    store.close();
    let copied = open(target.path());
    assert_eq!(contents(&copied).await, expected);
    let before = copied.current();
    assert!(before > Revision(1_000_000_000));
    copied.commit(change("x", Some(record(9)))).await.unwrap();
    assert_eq!(copied.current(), before.next());
    copied.close();
    drop(copied);
    assert_eq!(crate::verify(target.path()).unwrap().problems, Vec::<String>::new());
    open(target.path()).close();
}

/// A log that does not go back to the earlier snapshot is not taken for one in which nothing happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_forgotten_is_not_passed_over() {
    let origin = tempfile::tempdir().unwrap();
    let store = open(origin.path());
    let before = Snapshot::of(origin.path()).unwrap().rows().clone();
    let mut random = Random(77);
    for step in 0..3 * usize::try_from(HISTORY_LEN).unwrap() {
        act(&store, &mut random, step).await;
    }
    store.compact(store.current()).await.unwrap();
    let taken = Snapshot::of(origin.path()).unwrap().since(&before, &mut |_| Ok(()));
    assert!(matches!(taken, Err(EngineError::Compacted)), "{taken:?}");
}
