//! Several stores on one history: whoever passes this suite may run as replicas.
//!
//! A crate with a [`Journal`](crate::replica::Journal) writes one [`Replicas`] and one line,
//! `polder_store::replica_tests!(make)`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polder_model::{GroupResource, PlaneId};
use tokio::task::JoinSet;

use super::simulation::{Random, seed};
use super::world::{SeenEvent, next, object_name, record, value_of};
use crate::change::{Change, CommitError, Expect, ForkSource, PlaneChange};
use crate::engine::Engine;
use crate::feed::WatchScope;
use crate::key::{Key, ObjectName, ResourceId, Revision};
use crate::list::ListQuery;
use crate::object::Record;
use crate::plane::{Limits, Plane, Profile};
use crate::store::{Store, StoreOptions};

/// Replicas of one history, by number.
pub trait Replicas: Send + Sync {
    /// Opens a replica: with nothing of its own the first time, afterwards with what it had.
    fn engine(&self, number: usize) -> Box<dyn Engine>;

    /// The same, but with nothing of its own.
    fn new_engine(&self, number: usize) -> Box<dyn Engine>;

    /// Keeps a replica from all others, or lets it back.
    fn cut_off(&self, number: usize, is_cut_off: bool);

    /// Makes a replica the one that does what only one may do.
    fn set_leader(&self, number: usize);
}

pub type MakeReplicas<'a> = &'a dyn Fn() -> Box<dyn Replicas>;

/// One `#[test]` per case. `$make` makes [`Replicas`](crate::conformance::Replicas) of an empty history in a box, `$is_ready`
/// says whether it can.
#[macro_export]
macro_rules! replica_tests {
    ($make:expr) => {
        $crate::replica_tests! { $make, || true }
    };
    ($make:expr, $is_ready:expr) => {
        $crate::replica_tests! { $make, $is_ready;
            counters_lose_no_update, limits_hold_together, all_see_the_same_events, names_are_given_once,
            random_work_ends_the_same_everywhere, who_is_cut_off_catches_up, newcomers_and_returners,
            layers_merge_once, who_asks_reads_the_newest, one_leads_and_acts,
            what_comes_and_goes_at_once
        }
    };
    ($make:expr, $is_ready:expr; $($case:ident),*) => {
        $(
            #[test]
            fn $case() {
                if ($is_ready)() {
                    $crate::conformance::replicas::run(stringify!($case), &|| $make());
                }
            }
        )*
    };
}

const REPLICAS_LEN: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);

type CaseFuture<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;
type Case = for<'a> fn(&'a mut Fleet) -> CaseFuture<'a>;

const CASES: &[(&str, Case)] = &[
    ("counters_lose_no_update", |fleet| Box::pin(counters_lose_no_update(fleet))),
    ("limits_hold_together", |fleet| Box::pin(limits_hold_together(fleet))),
    ("all_see_the_same_events", |fleet| Box::pin(all_see_the_same_events(fleet))),
    ("names_are_given_once", |fleet| Box::pin(names_are_given_once(fleet))),
    ("random_work_ends_the_same_everywhere", |fleet| Box::pin(random_work_ends_the_same_everywhere(fleet))),
    ("who_is_cut_off_catches_up", |fleet| Box::pin(who_is_cut_off_catches_up(fleet))),
    ("newcomers_and_returners", |fleet| Box::pin(newcomers_and_returners(fleet))),
    ("layers_merge_once", |fleet| Box::pin(layers_merge_once(fleet))),
    ("who_asks_reads_the_newest", |fleet| Box::pin(who_asks_reads_the_newest(fleet))),
    ("one_leads_and_acts", |fleet| Box::pin(one_leads_and_acts(fleet))),
    ("what_comes_and_goes_at_once", |fleet| Box::pin(what_comes_and_goes_at_once(fleet))),
];

/// Runs one case under every profile.
pub fn run(name: &str, make: MakeReplicas<'_>) {
    let (_, case) = CASES.iter().find(|(own, _)| *own == name).expect("a case of this suite");
    super::under_profiles(name, |options| {
        let mut fleet = Fleet::open(make(), options);
        Box::pin(async move { case(&mut fleet).await })
    });
}

/// All replicas of one history.
struct Fleet {
    replicas: Box<dyn Replicas>,
    options: StoreOptions,
    stores: Vec<Arc<Store>>,
}

impl Fleet {
    fn open(replicas: Box<dyn Replicas>, options: StoreOptions) -> Fleet {
        let stores = (0..REPLICAS_LEN).map(|number| open(replicas.engine(number), &options)).collect();
        Fleet { replicas, options, stores }
    }

    /// Closes a replica and opens it again, with what it had or with nothing.
    fn reopen(&mut self, number: usize, is_new: bool) {
        self.stores[number].close();
        let engine = match is_new {
            true => self.replicas.new_engine(number),
            false => self.replicas.engine(number),
        };
        self.stores[number] = open(engine, &self.options);
    }

    async fn plane(&self, by: usize, name: &str) -> Arc<Plane> {
        let (name, limits) = (name.parse().unwrap(), Limits::default());
        let change = PlaneChange::Create { name, limits, profile: Profile::default() };
        commit(&self.stores[by], change).await.unwrap().unwrap()
    }

    /// Waits until all have all there is, then checks that they agree about everything.
    async fn check_agreement(&self) -> Revision {
        let last = self.stores.iter().map(|store| store.current()).max().unwrap();
        for (number, store) in self.stores.iter().enumerate() {
            assert!(store.wait_for(last, PATIENCE).await, "replica {number} is at {}", store.current());
        }
        let first = contents(&self.stores[0]).await;
        for (number, store) in self.stores.iter().enumerate().skip(1) {
            assert_eq!(contents(store).await, first, "replica {number} differs from the first");
        }
        last
    }
}

fn open(engine: Box<dyn Engine>, options: &StoreOptions) -> Arc<Store> {
    let store = Store::open(engine, options.clone(), "base", |profile, resource| {
        if profile != Profile::Cluster {
            return Vec::new();
        }
        vec![(resource(&GroupResource::new("", "configs")), object_name("default/a"), record("a", 0))]
    });
    store.unwrap()
}

async fn commit(store: &Store, plane: PlaneChange) -> Result<Option<Arc<Plane>>, CommitError> {
    Ok(store.commit(Change { plane: Some(plane), ..Change::default() }).await?.plane)
}

fn resource(store: &Store, name: &str) -> ResourceId {
    store.resource_id(&GroupResource::new("", name))
}

fn pod(store: &Store, plane: PlaneId, name: &str) -> Key {
    Key { plane, resource: resource(store, "pods"), name: object_name(name) }
}

async fn put(store: &Store, plane: PlaneId, name: &str, value: i64) -> Result<Revision, CommitError> {
    let change = Change::put(pod(store, plane, name), record(name, value), Expect::Anything);
    Ok(store.commit(change).await?.revision)
}

/// What a plane is like to whoever looks: depth and numbers of layers are for each replica to know.
type Told = (PlaneId, Revision, u64, Limits, (u64, u64), Vec<(String, ObjectName, Revision, Record)>);

fn planes(store: &Store) -> Vec<Arc<Plane>> {
    let mut planes: Vec<_> = store.shared.planes.read().by_id.values().cloned().collect();
    planes.sort_by_key(|plane| plane.id);
    planes
}

async fn contents(store: &Store) -> BTreeMap<String, Told> {
    let mut told = BTreeMap::new();
    for plane in planes(store) {
        let id = plane.id;
        let mut objects = Vec::new();
        for name in ["configs", "pods", "jobs"] {
            let page = store.list(&plane, ListQuery::all(resource(store, name))).await.unwrap();
            objects.extend(
                page.objects
                    .iter()
                    .map(|own| (name.to_string(), own.name.clone(), own.revision, own.record.clone())),
            );
        }
        let usage = (plane.usage.objects(), plane.usage.bytes());
        let counted = (objects.len() as u64, objects.iter().map(|object| object.3.len() as u64).sum());
        assert_eq!(usage, counted, "usage of {}", plane.name);
        let own = (id, plane.floor, plane.version_offset, plane.limits, usage, objects);
        told.insert(plane.name.to_string(), own);
    }
    told
}

async fn counters_lose_no_update(fleet: &mut Fleet) {
    const ROUNDS: i64 = 40;
    let plane = fleet.plane(0, "shared").await.id;
    put(&fleet.stores[0], plane, "counter", 0).await.unwrap();
    let count = |store: Arc<Store>| async move {
        let mut done = 0;
        while done < ROUNDS {
            let Some(own) = store.plane_by_id(plane) else {
                tokio::task::yield_now().await;
                continue;
            };
            let key = pod(&store, plane, "counter");
            let Some(found) = store.get(&own, key.resource, &key.name).await.unwrap() else {
                tokio::task::yield_now().await;
                continue;
            };
            let next = record("counter", value_of(&found) + 1);
            match store.commit(Change::put(key, next, Expect::At(found.revision))).await {
                Ok(_) => done += 1,
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    let counting: JoinSet<()> = fleet.stores.iter().map(|store| count(store.clone())).collect();
    counting.join_all().await;
    fleet.check_agreement().await;
    for store in &fleet.stores {
        let (plane, key) = (store.plane_by_id(plane).unwrap(), pod(store, plane, "counter"));
        let found = store.get(&plane, key.resource, &key.name).await.unwrap().unwrap();
        assert_eq!(value_of(&found), ROUNDS * fleet.stores.len() as i64);
    }
}

async fn limits_hold_together(fleet: &mut Fleet) {
    const LIMIT: u64 = 25;
    let limits = Limits { objects: LIMIT, ..Limits::default() };
    let create = PlaneChange::Create { name: "small".parse().unwrap(), limits, profile: Profile::default() };
    let plane = commit(&fleet.stores[0], create).await.unwrap().unwrap();
    let (plane, begun) = (plane.id, plane.usage.objects());
    fleet.check_agreement().await;
    let mut writing = JoinSet::new();
    for (number, store) in fleet.stores.iter().enumerate() {
        for index in 0..LIMIT {
            let (store, name) = (store.clone(), format!("n/{number}-{index}"));
            writing.spawn(async move { put(&store, plane, &name, 1).await });
        }
    }
    let mut made = 0;
    for write in writing.join_all().await {
        match write {
            Ok(_) => made += 1,
            Err(CommitError::LimitReached { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(made, LIMIT - begun);
    fleet.check_agreement().await;
}

async fn all_see_the_same_events(fleet: &mut Fleet) {
    let after = fleet.check_agreement().await;
    let mut watches: Vec<_> =
        fleet.stores.iter().map(|store| store.watch(WatchScope::Everything, after).unwrap()).collect();
    // Each meets resources in an order of its own.
    for (number, store) in fleet.stores.iter().enumerate() {
        ["jobs", "pods", "others"].iter().cycle().skip(number).take(3).for_each(|name| {
            resource(store, name);
        });
    }
    let plane = fleet.plane(1, "watched").await.id;
    fleet.check_agreement().await;
    for round in 0..30 {
        let store = &fleet.stores[round % REPLICAS_LEN];
        let name = format!("n/{}", round % 4);
        let value = i64::try_from(round).unwrap();
        match round % 5 {
            4 => {
                let change = Change::delete(pod(store, plane, &name), Expect::Anything);
                store.commit(change).await.unwrap();
            }
            _ => drop(put(store, plane, &name, value).await.unwrap()),
        }
    }
    let last = fleet.check_agreement().await;
    let mut told: Vec<Vec<SeenEvent>> = Vec::new();
    for (store, watch) in fleet.stores.iter().zip(&mut watches) {
        let mut events: Vec<SeenEvent> = Vec::new();
        while events.last().is_none_or(|event| event.revision < last) {
            events.push(next(watch).await.unwrap());
        }
        // What has been forgotten in memory is replayed from the log, and is the same.
        let mut again = store.watch(WatchScope::Everything, after).unwrap();
        for event in &events {
            assert_eq!(next(&mut again).await.unwrap(), *event);
        }
        let named = |event: &SeenEvent| store.resource_name(event.resource).unwrap();
        assert!(events.iter().all(|event| named(event).resource == "pods"), "{events:?}");
        told.push(events.into_iter().map(|event| SeenEvent { resource: ResourceId(0), ..event }).collect());
    }
    assert!(told[0].len() >= 24, "{told:?}");
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0], told[2]);
}

async fn names_are_given_once(fleet: &mut Fleet) {
    let create = |store: Arc<Store>, round: usize| async move {
        let name = format!("plane-{round}").parse().unwrap();
        let change = PlaneChange::Create { name, limits: Limits::default(), profile: Profile::default() };
        commit(&store, change).await
    };
    for round in 0..10 {
        let mut made = 0;
        let creating: JoinSet<_> = fleet.stores.iter().map(|store| create(store.clone(), round)).collect();
        for created in creating.join_all().await {
            match created {
                Ok(_) => made += 1,
                Err(CommitError::PlaneExists(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(made, 1, "round {round}");
    }
    fleet.check_agreement().await;
}

/// Planes come, are forked, written, sealed, limited and go, by whichever replica; now and then one starts again.
async fn random_work_ends_the_same_everywhere(fleet: &mut Fleet) {
    let mut random = Random(seed());
    for round in 0..300 {
        let by = random.below(REPLICAS_LEN);
        if random.chance(2) {
            fleet.reopen(by, random.chance(30));
            continue;
        }
        if random.chance(5) {
            fleet.replicas.set_leader(random.below(REPLICAS_LEN));
        }
        let store = fleet.stores[by].clone();
        let planes = planes(&store);
        let plane = planes[random.below(planes.len())].id;
        let other = format!("p{}", random.below(12));
        let change = match random.below(20) {
            0..2 => Some(PlaneChange::Create {
                name: other.parse().unwrap(),
                limits: Limits::default(),
                profile: Profile::default(),
            }),
            2..4 => Some(PlaneChange::Fork {
                name: other.parse().unwrap(),
                source: ForkSource::Plane(plane),
                limits: Limits { objects: 50, ..Limits::default() },
            }),
            4 => Some(PlaneChange::Delete { plane }),
            5 => Some(PlaneChange::Seal { layer: other.into(), plane }),
            6 => Some(PlaneChange::Unseal { layer: other.into() }),
            7 => Some(PlaneChange::Fork {
                name: other.parse().unwrap(),
                source: ForkSource::Layer(format!("p{}", random.below(12)).into()),
                limits: Limits::default(),
            }),
            8 => Some(PlaneChange::SetLimits { plane, limits: Limits { objects: 30, ..Limits::default() } }),
            9 => Some(PlaneChange::RaiseVersions { plane, above: 1_000 * round }),
            _ => None,
        };
        let outcome = match change {
            Some(change) => commit(&store, change).await.map(|_| ()),
            None => {
                let name = random.pick(&["a", "n/a", "n/b", "default/a"]);
                let key = match random.chance(30) {
                    true => Key { resource: resource(&store, "configs"), ..pod(&store, plane, name) },
                    false => pod(&store, plane, name),
                };
                let change = match random.chance(25) {
                    true => Change::delete(key, Expect::Anything),
                    false => {
                        let value = i64::try_from(random.below(1_000)).unwrap();
                        Change::put(key, record(name, value), Expect::Anything)
                    }
                };
                store.commit(change).await.map(|_| ())
            }
        };
        match outcome {
            Ok(())
            | Err(
                CommitError::NoPlane
                | CommitError::PlaneExists(_)
                | CommitError::NoLayer(_)
                | CommitError::LayerExists(_)
                | CommitError::CorePlane
                | CommitError::LimitReached { .. },
            ) => {}
            Err(error) => panic!("round {round}: {error:?}"),
        }
        if round % 50 == 49 {
            fleet.check_agreement().await;
        }
    }
    fleet.check_agreement().await;
}

async fn who_is_cut_off_catches_up(fleet: &mut Fleet) {
    let plane = fleet.plane(0, "shared").await.id;
    fleet.check_agreement().await;
    fleet.replicas.cut_off(2, true);
    let seen = put(&fleet.stores[0], plane, "n/a", 1).await.unwrap();
    put(&fleet.stores[2], plane, "n/b", 1).await.unwrap_err();
    assert!(fleet.stores[2].current() < seen);
    assert!(fleet.stores[2].is_running(), "it goes on when it can");
    fleet.replicas.cut_off(2, false);
    assert!(fleet.stores[2].wait_for(seen, PATIENCE).await);
    put(&fleet.stores[2], plane, "n/b", 2).await.unwrap();
    fleet.check_agreement().await;
}

async fn newcomers_and_returners(fleet: &mut Fleet) {
    let plane = fleet.plane(0, "shared").await.id;
    for round in 0..20 {
        put(&fleet.stores[0], plane, &format!("n/{round}"), round).await.unwrap();
    }
    fleet.stores[1].close();
    put(&fleet.stores[0], plane, "n/late", 1).await.unwrap();
    fleet.reopen(1, false);
    fleet.reopen(2, true);
    fleet.check_agreement().await;
    put(&fleet.stores[1], plane, "n/back", 1).await.unwrap();
    put(&fleet.stores[2], plane, "n/new", 1).await.unwrap();
    fleet.check_agreement().await;
}

/// Layers are merged by one replica for all, and whoever leads next cleans up what the last one began.
async fn layers_merge_once(fleet: &mut Fleet) {
    let plane = fleet.plane(0, "deep").await;
    for round in 0..40 {
        put(&fleet.stores[round % REPLICAS_LEN], plane.id, &format!("n/{}", round % 7), 1).await.unwrap();
        let name = format!("fork-{round}").parse().unwrap();
        let source = ForkSource::Plane(plane.id);
        let fork = PlaneChange::Fork { name, source, limits: Limits::default() };
        let last = fleet.check_agreement().await;
        commit(&fleet.stores[(round + 1) % REPLICAS_LEN], fork).await.unwrap();
        if round % 10 == 9 {
            fleet.replicas.set_leader(round / 10 % REPLICAS_LEN);
            for store in &fleet.stores {
                store.wait_for(last, PATIENCE).await;
                store.compact(last).await.unwrap();
            }
        }
    }
    fleet.check_agreement().await;
    for number in 0..REPLICAS_LEN {
        fleet.replicas.set_leader(number);
        let last = fleet.check_agreement().await;
        fleet.stores[number].compact(last).await.unwrap();
        fleet.stores[number].settle().await.unwrap();
    }
    fleet.check_agreement().await;
    for store in &fleet.stores {
        let depth = store.plane_by_id(plane.id).unwrap().stack.len();
        assert!(depth < 30, "{depth} layers");
    }
}

/// What one replica has acknowledged, another shows to whoever asks for the newest; if it cannot know, it says so.
async fn who_asks_reads_the_newest(fleet: &mut Fleet) {
    let plane = fleet.plane(0, "shared").await.id;
    for round in 0..50 {
        let (writer, reader) = (round % REPLICAS_LEN, (round + 1) % REPLICAS_LEN);
        let (writer, reader) = (&fleet.stores[writer], &fleet.stores[reader]);
        let value = i64::try_from(round).unwrap();
        put(writer, plane, "n/a", value).await.unwrap();
        reader.fresh().await.unwrap();
        let plane = reader.plane_by_id(plane).expect("it is there for all who ask");
        let found = reader.get(&plane, resource(reader, "pods"), &object_name("n/a")).await.unwrap();
        assert_eq!(value_of(&found.unwrap()), value);
    }
    fleet.replicas.cut_off(1, true);
    put(&fleet.stores[0], plane, "n/a", -1).await.unwrap();
    fleet.stores[1].fresh().await.unwrap_err();
    fleet.replicas.cut_off(1, false);
    fleet.stores[1].fresh().await.unwrap();
}

/// What needs the lead is done by one replica, and by another when that one leads; the rest by all.
async fn one_leads_and_acts(fleet: &mut Fleet) {
    let plane = fleet.plane(0, "shared").await.id;
    fleet.check_agreement().await;
    for leader in [1, 0, 2] {
        fleet.replicas.set_leader(leader);
        for (number, store) in fleet.stores.iter().enumerate() {
            let mut leading = store.leading();
            let known = leading.wait_for(|leads| *leads == (number == leader));
            tokio::time::timeout(PATIENCE, known).await.expect("it is known in time").unwrap();
        }
        for (number, store) in fleet.stores.iter().enumerate() {
            let change = Change::put(pod(store, plane, "n/a"), record("n/a", 1), Expect::Anything);
            let acted = store.commit(Change { needs_lead: true, ..change }).await;
            match number == leader {
                true => drop(acted.unwrap()),
                false => assert!(matches!(acted, Err(CommitError::NotLeading))),
            }
            put(store, plane, "n/b", 1).await.unwrap();
        }
    }
    fleet.check_agreement().await;
}

/// Objects that are written while their plane goes, in one group or not, are no damage to anybody.
async fn what_comes_and_goes_at_once(fleet: &mut Fleet) {
    for round in 0..20 {
        let plane = fleet.plane(0, &format!("brief-{round}")).await.id;
        let store = &fleet.stores[0];
        let (_, gone) =
            tokio::join!(put(store, plane, "n/a", 1), commit(store, PlaneChange::Delete { plane }));
        gone.unwrap();
    }
    fleet.check_agreement().await;
    for store in &fleet.stores {
        assert!(store.is_running());
    }
}
