//! Three replicas on three members of etcd, written, read and watched while everything fails by a seeded schedule; then
//! [`crate::history`] says whether one history explains what everybody was told.
//!
//! `POLDER_SEED` repeats a schedule (not its timing), `POLDER_FAULT_MINUTES` says how long it goes on.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use polder_model::{GroupResource, PlaneId, json};
use polder_store::engine::{Engine, EngineError};
use polder_store::memory::MemoryEngine;
use polder_store::replica::Replica;
use polder_store::{
    Change, CommitError, Expect, Key, Limits, ListQuery, ObjectName, PlaneChange, Profile, Record, Revision,
    Store, StoreOptions, StoredObject, WatchError, WatchScope,
};
use polder_store_embedded::{Options, SqliteEngine};
use polder_store_etcd::client::Client;
use polder_store_etcd::wire::{Operation as EtcdOperation, Range};
use polder_store_etcd::{EtcdJournal, JournalOptions};

use crate::cluster::{self, Way};
use crate::history::{self, Operation, Outcome, Seen, Stretch, What};
use crate::members::{MEMBERS_LEN, Members};

const REPLICAS_LEN: usize = 3;
/// Who writes and reads, at each replica.
const CLIENTS_LEN: usize = 2;
/// Half of the keys are in a plane that has room for a few of them.
const KEYS_LEN: usize = 24;
const SMALL_LIMIT: u64 = 5;
const PLANES: [&str; 2] = ["wide", "small"];
const SHORT_RUN: Duration = Duration::from_secs(25);
/// Nothing waits longer than this, or it hangs.
const PATIENCE: Duration = Duration::from_secs(90);

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).unwrap() % bound
    }

    fn millis(&mut self, from: usize, to: usize) -> Duration {
        Duration::from_millis((from + self.below(to - from)) as u64)
    }
}

fn seed() -> u64 {
    let told = std::env::var("POLDER_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = || std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64);
    told.unwrap_or_else(now).max(1)
}

/// What a replica has of its own.
enum Local {
    Memory(MemoryEngine),
    Disk(tempfile::TempDir),
}

struct Site {
    local: Mutex<Local>,
    ways: Vec<Way>,
    options: JournalOptions,
    store: Mutex<Option<Arc<Store>>>,
    /// Whether it is kept from running.
    is_down: AtomicBool,
    refilled: AtomicU64,
}

impl Site {
    fn new(number: usize, members: &Members, options: &JournalOptions) -> Site {
        let ways: Vec<Way> = members.urls().iter().map(|url| Way::to(url)).collect();
        let mut options = options.clone();
        options.client.endpoints = ways.iter().map(Way::url).collect();
        options.client.endpoints.rotate_left(number);
        let local = match number {
            0 => Local::Disk(tempfile::tempdir().unwrap()),
            _ => Local::Memory(MemoryEngine::default()),
        };
        let (store, is_down, refilled) = Default::default();
        Site { local: Mutex::new(local), ways, options, store, is_down, refilled }
    }

    fn open(&self) -> Result<Arc<Store>, EngineError> {
        let journal = EtcdJournal::open(self.options.clone()).unwrap();
        let mut local = self.local.lock();
        let engine: Box<dyn Engine> = match &mut *local {
            Local::Memory(memory) => {
                let engine = memory.clone();
                Box::new(Replica::open(engine, journal, |_| {
                    self.refilled.fetch_add(1, Ordering::Relaxed);
                    *memory = MemoryEngine::default();
                    Ok(memory.clone())
                })?)
            }
            Local::Disk(directory) => {
                let options = Options::default();
                let engine = SqliteEngine::open(directory.path(), &options).unwrap();
                Box::new(Replica::open(engine, journal, |old| {
                    self.refilled.fetch_add(1, Ordering::Relaxed);
                    Ok(old.renew(directory.path(), &options).unwrap())
                })?)
            }
        };
        let options = StoreOptions { history: Duration::from_secs(30), ..StoreOptions::default() };
        Store::open(engine, options, "", |_, _| Vec::new())
    }

    fn store(&self) -> Option<Arc<Store>> {
        self.store.lock().clone()
    }

    /// Opens it when it may run and does not, and again when it cannot go on: as whatever runs a server does.
    fn look_after(&self) {
        let current = self.store();
        let is_down = self.is_down.load(Ordering::Acquire);
        if current.as_ref().is_some_and(|store| is_down || !store.is_running()) {
            self.store.lock().take();
            let store = current.unwrap();
            store.close();
            // Whoever uses it still goes on with something else.
            let patience = Instant::now() + PATIENCE;
            while Arc::strong_count(&store) > 1 {
                assert!(Instant::now() < patience, "somebody hangs on a store that is closed");
                thread::sleep(Duration::from_millis(2));
            }
        } else if current.is_none() && !is_down {
            match self.open() {
                Ok(store) => *self.store.lock() = Some(store),
                Err(error @ EngineError::Damaged(_)) => panic!("a replica does not open: {error:?}"),
                // There may be nobody to ask.
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

struct World {
    members: Members,
    sites: Vec<Site>,
    begun: Instant,
    values: AtomicU64,
    is_over: AtomicBool,
    /// Watchers go on up to this revision.
    last: AtomicU64,
    planes: Vec<PlaneId>,
}

fn key_of(world: &World, store: &Store, key: usize) -> Key {
    let resource = store.resource_id(&GroupResource::new("", "pods"));
    let plane = world.planes[key % PLANES.len()];
    Key { plane, resource, name: ObjectName::new("n", format!("{key}")) }
}

fn record(key: usize, value: u64) -> Record {
    let (name, value) = (key.to_string(), i64::try_from(value).unwrap());
    Record::encode(&json!({"metadata": {"name": name}, "value": value}))
}

fn value_of(object: &StoredObject) -> u64 {
    let value = object.record.to_value(0).unwrap().i64_at(&["value"]).unwrap();
    u64::try_from(value).unwrap()
}

async fn read(store: &Store, key: &Key) -> Option<Option<Arc<StoredObject>>> {
    store.fresh().await.ok()?;
    let plane = store.plane_by_id(key.plane)?;
    store.get(&plane, key.resource, &key.name).await.ok()
}

/// One client: something, again and again, at one replica.
async fn client(world: Arc<World>, at: usize, mut random: Random) -> Vec<Operation> {
    let mut operations = Vec::new();
    while !world.is_over.load(Ordering::Acquire) {
        tokio::time::sleep(random.millis(1, 25)).await;
        let Some(store) = world.sites[at].store() else { continue };
        let number = random.below(KEYS_LEN);
        let key = key_of(&world, &store, number);
        let chosen = random.below(10);
        let began = world.begun.elapsed();
        let value = world.values.fetch_add(1, Ordering::Relaxed);
        let (what, outcome) = match chosen {
            0..4 => match read(&store, &key).await {
                Some(found) => (What::Read, Outcome::Saw(found.map(|object| value_of(&object)))),
                None => (What::Read, Outcome::Failed),
            },
            4..7 => {
                let change = Change::put(key, record(number, value), Expect::Anything);
                (What::Put { value, expected: None }, outcome(store.commit(change).await))
            }
            7..9 => {
                // What it expects may be old: then it is refused.
                let plane = store.plane_by_id(key.plane);
                let Some(plane) = plane else { continue };
                let Ok(Some(found)) = store.get(&plane, key.resource, &key.name).await else { continue };
                let expected = found.revision;
                let change = Change::put(key, record(number, value), Expect::At(expected));
                (What::Put { value, expected: Some(expected.0) }, outcome(store.commit(change).await))
            }
            _ => (What::Delete, outcome(store.commit(Change::delete(key, Expect::Anything)).await)),
        };
        let ended = world.begun.elapsed();
        assert!(ended - began < PATIENCE, "{what:?} took from {began:?} to {ended:?}");
        operations.push(Operation { key: number, what, began, ended, outcome });
    }
    operations
}

fn outcome(outcome: Result<polder_store::Committed, CommitError>) -> Outcome {
    match outcome {
        Ok(committed) => Outcome::Wrote(committed.revision.0),
        Err(CommitError::Unknown(_)) => Outcome::Unknown,
        Err(_) => Outcome::Failed,
    }
}

/// Watches everything; when a replica goes, at the next one, from where it was.
async fn watcher(world: Arc<World>, mut at: usize, first: u64) -> Vec<Stretch> {
    let mut stretches = vec![Stretch { after: first, up_to: first, seen: Vec::new() }];
    // How many replicas in a row have forgotten what comes next.
    let mut forgotten = 0;
    loop {
        let last = world.last.load(Ordering::Acquire);
        let stretch = stretches.last_mut().unwrap();
        if last > 0 && stretch.up_to >= last {
            return stretches;
        }
        let Some(store) = world.sites[at].store() else {
            at = (at + 1) % REPLICAS_LEN;
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let ended = match store.watch(WatchScope::Everything, Revision(stretch.up_to)) {
            Ok(mut watch) => loop {
                let next = tokio::time::timeout(Duration::from_millis(200), watch.next()).await;
                match next {
                    Ok(Ok(event)) => {
                        forgotten = 0;
                        let name = event.name().unwrap().name.parse().unwrap();
                        let value = event.new.as_ref().map(|object| value_of(object));
                        stretch.seen.push(Seen { revision: event.revision.0, key: name, value });
                        stretch.up_to = event.revision.0;
                    }
                    Ok(Err(error)) => break error,
                    // Nothing happens: perhaps it is over, or this replica is.
                    Err(_) => break WatchError::Ended,
                }
            },
            Err(error) => error,
        };
        if let WatchError::Compacted { .. } = ended {
            forgotten += 1;
        }
        if forgotten > REPLICAS_LEN {
            forgotten = 0;
            let now = store.current().0;
            stretches.push(Stretch { after: now, up_to: now, seen: Vec::new() });
        }
        at = (at + 1) % REPLICAS_LEN;
    }
}

/// Makes something fail for a while; says what.
fn fail(world: &World, random: &mut Random, client: &Client, runtime: &tokio::runtime::Runtime) -> String {
    let (member, site) = (random.below(MEMBERS_LEN), random.below(REPLICAS_LEN));
    let other = (member + 1) % MEMBERS_LEN;
    let deadline = || tokio::time::Instant::now() + Duration::from_secs(5);
    let range = Range { key: b"/faults/head", ..Range::default() };
    let compact = || {
        runtime.block_on(async {
            if let Ok(answer) = client.range(&range, deadline()).await {
                client.compact(answer.revision, deadline()).await.ok();
            }
        });
    };
    let Site { ways, is_down, .. } = &world.sites[site];
    match random.below(12) {
        0 | 1 => {
            world.members.kill(member);
            thread::sleep(random.millis(100, 3_000));
            world.members.run(member);
            format!("member {member} killed")
        }
        2 => {
            world.members.stop(member, true);
            thread::sleep(random.millis(100, 4_000));
            world.members.stop(member, false);
            format!("member {member} stopped")
        }
        3 => {
            [member, other].iter().for_each(|member| world.members.kill(*member));
            thread::sleep(random.millis(500, 5_000));
            [member, other].iter().for_each(|member| world.members.run(*member));
            format!("members {member} and {other} killed")
        }
        4 => {
            [member, other].iter().for_each(|member| world.members.stop(*member, true));
            thread::sleep(random.millis(500, 5_000));
            [member, other].iter().for_each(|member| world.members.stop(*member, false));
            format!("members {member} and {other} stopped")
        }
        5 => {
            is_down.store(true, Ordering::Release);
            thread::sleep(random.millis(100, 2_000));
            is_down.store(false, Ordering::Release);
            format!("replica {site} away")
        }
        6 => {
            is_down.store(true, Ordering::Release);
            thread::sleep(random.millis(500, 2_000));
            compact();
            is_down.store(false, Ordering::Release);
            format!("replica {site} away, and etcd forgets")
        }
        7 => {
            ways.iter().for_each(Way::cut);
            thread::sleep(random.millis(100, 6_000));
            ways.iter().for_each(Way::open);
            format!("replica {site} cut off")
        }
        8 => {
            ways.iter().for_each(|way| way.mute(true));
            thread::sleep(random.millis(100, 2_000));
            ways.iter().for_each(|way| way.mute(false));
            format!("replica {site} hears nothing")
        }
        9 => {
            let delay = random.millis(20, 700);
            ways.iter().for_each(|way| way.delay(delay));
            thread::sleep(random.millis(500, 4_000));
            ways.iter().for_each(|way| way.delay(Duration::ZERO));
            format!("replica {site} is {delay:?} away")
        }
        10 => {
            // As etcd says it when its database is full.
            let alarm = |action: &str| {
                let body = format!(r#"{{"action": "{action}", "alarm": "NOSPACE"}}"#);
                let asked =
                    cluster::try_post(&world.members.urls()[member], "/v3/maintenance/alarm", &body, "");
                asked.is_ok_and(|answer| answer.contains("200 OK"))
            };
            let is_full = alarm("ACTIVATE");
            thread::sleep(random.millis(100, 3_000));
            let patience = Instant::now() + PATIENCE;
            while !alarm("DEACTIVATE") {
                assert!(Instant::now() < patience, "the alarm stays");
                thread::sleep(Duration::from_millis(50));
            }
            format!("etcd is full: {is_full}")
        }
        _ => {
            compact();
            runtime.block_on(async {
                let leader = EtcdOperation::Delete { key: b"/faults/leader", end: &[] };
                client.txn(&[], &[leader], &[], deadline()).await.ok();
            });
            "etcd forgets, and who leads is forgotten".to_owned()
        }
    }
}

/// Makes the planes, with whichever replica is first.
async fn make_planes(store: &Store) -> Vec<PlaneId> {
    let mut planes = Vec::new();
    for name in PLANES {
        let objects = if name == "small" { SMALL_LIMIT } else { 0 };
        let limits = Limits { objects, ..Limits::default() };
        let create = PlaneChange::Create { name: name.parse().unwrap(), limits, profile: Profile::default() };
        let made = store.commit(Change { plane: Some(create), ..Change::default() }).await.unwrap();
        planes.push(made.plane.unwrap().id);
    }
    planes
}

/// All replicas have what the history says, counted right, and no plane ever had more than it may.
async fn check_contents(world: &World, history: &[Seen], last: u64) {
    let mut there = std::collections::BTreeMap::new();
    for seen in history {
        match seen.value {
            Some(value) => drop(there.insert(seen.key, value)),
            None => drop(there.remove(&seen.key)),
        }
        let small = there.keys().filter(|key| *key % PLANES.len() == 1).count() as u64;
        assert!(small <= SMALL_LIMIT, "{small} objects at revision {}", seen.revision);
    }
    for (number, site) in world.sites.iter().enumerate() {
        let store = site.store().unwrap();
        assert!(store.wait_for(Revision(last), PATIENCE).await, "replica {number} is at {}", store.current());
        let mut found = std::collections::BTreeMap::new();
        for plane in &world.planes {
            let plane = store.plane_by_id(*plane).unwrap();
            let resource = store.resource_id(&GroupResource::new("", "pods"));
            let page = store.list(&plane, ListQuery::all(resource)).await.unwrap();
            let bytes: u64 = page.objects.iter().map(|object| object.record.len() as u64).sum();
            let usage = (plane.usage.objects(), plane.usage.bytes());
            assert_eq!(usage, (page.objects.len() as u64, bytes), "replica {number}, {}", plane.name);
            found.extend(
                page.objects.iter().map(|one| (one.name.name.parse::<usize>().unwrap(), value_of(one))),
            );
        }
        assert_eq!(found, there, "replica {number}");
    }
}

#[test]
fn one_history_explains_everything() {
    let Some(members) = Members::start() else { return };
    let seed = seed();
    let minutes = std::env::var("POLDER_FAULT_MINUTES").ok().and_then(|minutes| minutes.parse::<u64>().ok());
    let duration = minutes.map_or(SHORT_RUN, |minutes| Duration::from_secs(60 * minutes));
    writeln!(std::io::stderr(), "faults: POLDER_SEED={seed}, for {duration:?}").ok();
    let mut options = JournalOptions {
        prefix: "/faults".to_owned(),
        timeout: Duration::from_secs(3),
        lease: Duration::from_secs(3),
        ..cluster::history(&members.urls()[0])
    };
    options.client.call_timeout = Duration::from_secs(1);
    options.client.connect_timeout = Duration::from_secs(1);
    options.client.endpoints = members.urls().to_vec();
    let client = Client::new(options.client.clone()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let sites: Vec<Site> = (0..REPLICAS_LEN).map(|number| Site::new(number, &members, &options)).collect();
    let patience = Instant::now() + PATIENCE;
    while sites[0].store().is_none() {
        assert!(Instant::now() < patience, "no replica opens");
        sites[0].look_after();
    }
    let (planes, first) = {
        let store = sites[0].store().unwrap();
        (runtime.block_on(make_planes(&store)), store.current().0)
    };
    let world = Arc::new(World {
        members,
        sites,
        begun: Instant::now(),
        values: AtomicU64::new(1),
        is_over: AtomicBool::new(false),
        last: AtomicU64::new(0),
        planes,
    });

    let mut random = Random(seed);
    let is_settled = Arc::new(AtomicBool::new(false));
    let keepers: Vec<_> = (0..REPLICAS_LEN)
        .map(|number| {
            let (world, is_settled) = (world.clone(), is_settled.clone());
            thread::spawn(move || {
                while !is_settled.load(Ordering::Acquire) {
                    world.sites[number].look_after();
                    thread::sleep(Duration::from_millis(5));
                }
            })
        })
        .collect();
    let clients: Vec<_> = (0..REPLICAS_LEN * CLIENTS_LEN)
        .map(|number| {
            let random = Random(seed.wrapping_add(number as u64 + 1).max(1));
            runtime.spawn(self::client(world.clone(), number % REPLICAS_LEN, random))
        })
        .collect();
    let watchers: Vec<_> =
        (0..REPLICAS_LEN).map(|number| runtime.spawn(watcher(world.clone(), number, first))).collect();

    let mut faults = 0;
    thread::sleep(Duration::from_secs(1));
    while world.begun.elapsed() < duration {
        let what = fail(&world, &mut random, &client, &runtime);
        writeln!(std::io::stderr(), "faults: {:?} {what}", world.begun.elapsed()).ok();
        faults += 1;
        thread::sleep(random.millis(100, 1_500));
    }
    // Everything is back: it goes on as if nothing had been.
    let back = world.begun.elapsed();
    let patience = Instant::now() + PATIENCE;
    let goes_on = || world.sites.iter().all(|site| site.store().is_some_and(|store| store.is_running()));
    while !goes_on() || world.begun.elapsed() < back + Duration::from_secs(2) {
        assert!(Instant::now() < patience, "not all replicas come back");
        thread::sleep(Duration::from_millis(20));
    }
    world.is_over.store(true, Ordering::Release);
    let operations: Vec<Operation> = runtime.block_on(async {
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.await.unwrap());
        }
        all
    });
    // The last event is one that everybody waits for.
    let last = runtime.block_on(async {
        let patience = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < patience, "nothing can be written any more");
            let Some(store) = world.sites[0].store() else { continue };
            let value = world.values.fetch_add(1, Ordering::Relaxed);
            let change =
                Change::put(key_of(&world, &store, KEYS_LEN), record(KEYS_LEN, value), Expect::Anything);
            let began = world.begun.elapsed();
            if let Ok(committed) = store.commit(change).await {
                let what = What::Put { value, expected: None };
                let outcome = Outcome::Wrote(committed.revision.0);
                break Operation { key: KEYS_LEN, what, began, ended: world.begun.elapsed(), outcome };
            }
        }
    });
    let Outcome::Wrote(last_revision) = last.outcome else { unreachable!("it was written") };
    world.last.store(last_revision, Ordering::Release);
    let stretches: Vec<Stretch> = runtime.block_on(async {
        let mut all = Vec::new();
        for watcher in watchers {
            all.extend(tokio::time::timeout(PATIENCE, watcher).await.expect("a watcher waits").unwrap());
        }
        all
    });
    let history = history::merged(&stretches).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let operations: Vec<Operation> = operations.into_iter().chain([last]).collect();
    history::check(&operations, &history).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    runtime.block_on(check_contents(&world, &history, last_revision));
    is_settled.store(true, Ordering::Release);
    keepers.into_iter().for_each(|keeper| keeper.join().unwrap());
    world.sites.iter().filter_map(Site::store).for_each(|store| store.close());

    let count =
        |is_so: fn(&Outcome) -> bool| operations.iter().filter(|operation| is_so(&operation.outcome)).count();
    let written = count(|outcome| matches!(outcome, Outcome::Wrote(_)));
    assert!(written > 100 && faults > 3, "{written} writes beside {faults} faults prove little");
    writeln!(
        std::io::stderr(),
        "faults: POLDER_SEED={seed}: {} operations ({written} written, {} read, {} failed, {} unknown), {faults} faults, {} refilled, \
         {} events, {} stretches of watchers, {KEYS_LEN} keys: one history",
        operations.len(),
        count(|outcome| matches!(outcome, Outcome::Saw(_))),
        count(|outcome| *outcome == Outcome::Failed),
        count(|outcome| *outcome == Outcome::Unknown),
        world.sites.iter().map(|site| site.refilled.load(Ordering::Relaxed)).sum::<u64>(),
        history.len(),
        stretches.len(),
    )
    .ok();
}
