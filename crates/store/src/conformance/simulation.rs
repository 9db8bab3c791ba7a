//! Thousands of random operations against the simplest possible model of the store: maps of maps, all states kept.
//!
//! The seed is printed. `POLDER_SEED` repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use imbl::OrdMap;
use polder_model::{PlaneId, SmolStr};

use super::Setup;
use super::world::{World, next, object_name, query, record};
use crate::change::{Change, CommitError, Committed, Expect, ForkSource, PlaneChange, Write};
use crate::engine::EngineError;
use crate::feed::{WatchError, WatchScope};
use crate::key::{Key, ObjectName, ResourceId, Revision};
use crate::list::ListQuery;
use crate::object::Record;
use crate::plane::{Limits, Plane, Profile};
use crate::read::ReadError;

const PLANES_MAX: usize = 6;
const NAMES: [&str; 8] = ["a", "b", "default/base-a", "n/a", "n/b", "n-m/a", "n.m/a", "base-cluster"];

type Objects = OrdMap<(ResourceId, ObjectName), (Revision, Record)>;

#[derive(Clone)]
struct ModelPlane {
    name: String,
    floor: Revision,
    limits: Limits,
    objects: Objects,
}

struct ModelEvent {
    revision: Revision,
    plane: PlaneId,
    resource: ResourceId,
    name: ObjectName,
    old: Option<(Revision, Record)>,
    new: Option<(Revision, Record)>,
}

/// What the store should be.
struct Model {
    current: Revision,
    compacted: Revision,
    planes: BTreeMap<PlaneId, ModelPlane>,
    layers: BTreeMap<String, Objects>,
    base: Objects,
    /// The objects of every plane after every commit.
    states: BTreeMap<Revision, BTreeMap<PlaneId, Objects>>,
    events: Vec<ModelEvent>,
    ids: BTreeSet<PlaneId>,
}

pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap_or_default()
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

struct Simulation {
    world: World,
    model: Model,
    random: Random,
    names_made: usize,
}

/// A number nobody has chosen, unless somebody wants a run again.
pub(super) fn seed() -> u64 {
    let given = std::env::var("POLDER_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish());
    eprintln!("conformance: POLDER_SEED={seed}");
    seed
}

pub(super) async fn random_operations_match_a_model(setup: &Setup<'_>) {
    let seed = seed();
    let world = setup.world();
    let core = world.store.plane("core").unwrap();
    let page = world.page(&core, query(world.configs)).await.unwrap();
    let base: Objects = page
        .objects
        .iter()
        .map(|object| ((world.configs, object.name.clone()), (object.revision, object.record.clone())))
        .collect();
    let plane = ModelPlane {
        name: "core".into(),
        floor: core.floor,
        limits: Limits::default(),
        objects: base.clone(),
    };
    let model = Model {
        current: world.store.current(),
        compacted: Revision(0),
        planes: BTreeMap::from([(core.id, plane)]),
        layers: BTreeMap::new(),
        base,
        states: BTreeMap::new(),
        events: Vec::new(),
        ids: BTreeSet::from([core.id]),
    };
    let len = world.simulation_len();
    let mut simulation = Simulation { world, model, random: Random(seed), names_made: 0 };
    simulation.model.keep_state();
    for _ in 0..len {
        simulation = simulation.step().await;
    }
    simulation.check_everything().await;
}

impl Model {
    fn keep_state(&mut self) {
        let planes = self.planes.iter().map(|(id, plane)| (*id, plane.objects.clone())).collect();
        self.states.insert(self.current, planes);
    }

    fn found(&self, key: &Key) -> Option<&(Revision, Record)> {
        self.planes.get(&key.plane)?.objects.get(&(key.resource, key.name.clone()))
    }

    /// What a change does, or the name of the error that refuses it.
    fn predict(&self, change: &Change) -> Result<(), &'static str> {
        let holds = |key: &Key, expect: Expect| {
            if !self.planes.contains_key(&key.plane) {
                return Err("NoPlane");
            }
            let held = match (expect, self.found(key)) {
                (Expect::Anything, _) | (Expect::Absent, None) => true,
                (Expect::At(revision), Some((own, _))) => revision == *own,
                _ => false,
            };
            if held { Ok(()) } else { Err("Conflict") }
        };
        for (key, expect) in &change.guards {
            holds(key, *expect)?;
        }
        for write in &change.writes {
            holds(&write.key, write.expect)?;
        }
        let mut after = self.planes.clone();
        for Write { key, record, .. } in &change.writes {
            let objects = &mut after.get_mut(&key.plane).expect("checked above").objects;
            let place = (key.resource, key.name.clone());
            match record {
                Some(record) => drop(objects.insert(place, (Revision(0), record.clone()))),
                None => drop(objects.remove(&place)),
            }
        }
        for (id, plane) in &self.planes {
            let (before, after) = (counts(&plane.objects), counts(&after[id].objects));
            let over = |limit: u64, before: u64, after: u64| limit > 0 && after > limit && after > before;
            if over(plane.limits.objects, before.0, after.0) || over(plane.limits.bytes, before.1, after.1) {
                return Err("LimitReached");
            }
        }
        let taken = |name: &str| self.planes.values().any(|plane| plane.name == name);
        match &change.plane {
            Some(PlaneChange::Create { name, .. } | PlaneChange::Fork { name, .. })
                if taken(name.as_str()) =>
            {
                Err("PlaneExists")
            }
            Some(
                PlaneChange::Fork { source: ForkSource::Layer(layer), .. } | PlaneChange::Unseal { layer },
            ) if !self.layers.contains_key(layer.as_str()) => Err("NoLayer"),
            Some(PlaneChange::Seal { layer, .. }) if self.layers.contains_key(layer.as_str()) => {
                Err("LayerExists")
            }
            _ => Ok(()),
        }
    }

    /// Does what the store did.
    fn apply(&mut self, change: &Change, committed: &Committed) {
        let revision = committed.revision;
        assert_eq!(revision, self.current.next(), "revisions are dense");
        self.current = revision;
        match &change.plane {
            Some(PlaneChange::Create { limits, .. }) => self.add_plane(committed, *limits, self.base.clone()),
            Some(PlaneChange::Fork { source, limits, .. }) => {
                let objects = match source {
                    ForkSource::Plane(source) => self.planes[source].objects.clone(),
                    ForkSource::Layer(layer) => self.layers[layer.as_str()].clone(),
                };
                self.add_plane(committed, *limits, objects);
            }
            Some(PlaneChange::SetLimits { plane, limits }) => {
                self.planes.get_mut(plane).expect("predicted").limits = *limits;
            }
            Some(PlaneChange::RaiseVersions { plane, .. }) => {
                self.planes.get_mut(plane).expect("predicted").floor = revision;
            }
            Some(PlaneChange::Delete { plane }) => drop(self.planes.remove(plane)),
            Some(PlaneChange::Seal { layer, plane }) => {
                self.layers.insert(layer.to_string(), self.planes[plane].objects.clone());
            }
            Some(PlaneChange::Unseal { layer }) => drop(self.layers.remove(layer.as_str())),
            None => {}
        }
        for Write { key, record, .. } in &change.writes {
            let objects = &mut self.planes.get_mut(&key.plane).expect("predicted").objects;
            let place = (key.resource, key.name.clone());
            let new = record.clone().map(|record| (revision, record));
            let old = match &new {
                Some(new) => objects.insert(place, new.clone()),
                None => objects.remove(&place),
            };
            if old.is_some() || new.is_some() {
                let Key { plane, resource, name } = key.clone();
                self.events.push(ModelEvent { revision, plane, resource, name, old, new });
            }
        }
        self.keep_state();
    }

    fn add_plane(&mut self, committed: &Committed, limits: Limits, objects: Objects) {
        let plane = committed.plane.as_ref().expect("it made a plane");
        assert!(self.ids.insert(plane.id), "ids are never reused");
        let name = plane.name.to_string();
        self.planes.insert(plane.id, ModelPlane { name, floor: committed.revision, limits, objects });
    }
}

fn counts(objects: &Objects) -> (u64, u64) {
    (objects.len() as u64, objects.values().map(|(_, record)| record.len() as u64).sum())
}

fn kind(error: &CommitError) -> &'static str {
    match error {
        CommitError::Conflict { .. } => "Conflict",
        CommitError::NoName(_) => "NoName",
        CommitError::NoPlane => "NoPlane",
        CommitError::PlaneExists(_) => "PlaneExists",
        CommitError::NoLayer(_) => "NoLayer",
        CommitError::LayerExists(_) => "LayerExists",
        CommitError::LimitReached { .. } => "LimitReached",
        CommitError::TooManyLayers => "TooManyLayers",
        CommitError::CorePlane => "CorePlane",
        CommitError::NotLeading => "NotLeading",
        CommitError::Closed => "Closed",
        CommitError::Engine(error) if matches!(**error, EngineError::Full(_)) => "Full",
        CommitError::Engine(_) => "Engine",
        CommitError::Unknown(_) => "Unknown",
        CommitError::Stopped => "Stopped",
        CommitError::TooLong { .. } => "TooLong",
    }
}

impl Simulation {
    async fn step(mut self) -> Simulation {
        match self.random.below(100) {
            0..40 => self.write().await,
            40..48 => self.change_plane().await,
            48..58 => self.get().await,
            58..72 => self.list(false).await,
            72..82 => self.list(true).await,
            82..92 => self.watch().await,
            92..94 => self.compact().await,
            94..96 => self.world.probe.fail_after(self.random.below(2)),
            96..97 => self.world = self.world.reopen(),
            97..99 => self.world.store.settle().await.unwrap(),
            _ => self.check_everything().await,
        }
        self
    }

    fn some_plane(&mut self) -> PlaneId {
        let ids: Vec<PlaneId> = self.model.planes.keys().copied().collect();
        self.random.pick(&ids)
    }

    fn plane(&self, id: PlaneId) -> Arc<Plane> {
        self.world.store.plane_by_id(id).expect("the model has it")
    }

    fn some_key(&mut self) -> Key {
        let plane = self.some_plane();
        let resource = self.random.pick(&[self.world.pods, self.world.configs]);
        Key { plane, resource, name: object_name(self.random.pick(&NAMES)) }
    }

    fn some_expect(&mut self, key: &Key) -> Expect {
        match (self.random.below(10), self.model.found(key)) {
            (0..4, _) => Expect::Anything,
            (4..9, Some((revision, _))) => Expect::At(*revision),
            (4..9, None) => Expect::Absent,
            (_, Some(_)) => Expect::Absent,
            (_, None) => Expect::At(self.model.current),
        }
    }

    fn some_writes(&mut self) -> Change {
        let mut change = Change::default();
        let len = if self.random.chance(70) { 1 } else { 2 + self.random.below(4) };
        for _ in 0..len {
            let key = self.some_key();
            if change.writes.iter().any(|write| write.key == key) {
                continue;
            }
            let expect = self.some_expect(&key);
            let value = i64::try_from(self.random.below(1_000)).unwrap_or_default();
            let record = self.random.chance(70).then(|| record(&key.name.to_string(), value));
            change.writes.push(Write { key, record, expect });
        }
        if self.random.chance(20) {
            let key = self.some_key();
            let expect = self.some_expect(&key);
            change.guards.push((key, expect));
        }
        change
    }

    async fn write(&mut self) {
        let change = self.some_writes();
        self.commit(change).await;
    }

    async fn change_plane(&mut self) {
        let source = self.some_plane();
        let crowded = self.model.planes.len() >= PLANES_MAX;
        self.names_made += 1;
        let fresh = format!("p{}", self.names_made);
        let name = if self.random.chance(10) { self.model.planes[&source].name.clone() } else { fresh };
        let name = name.parse().expect("a label");
        let layer = SmolStr::from(format!("layer-{}", self.random.below(4)));
        let usage = counts(&self.model.planes[&source].objects);
        let limits = if self.random.chance(70) {
            Limits::default()
        } else {
            Limits {
                objects: usage.0 + self.random.below(3) as u64,
                bytes: usage.1 + self.random.below(300) as u64,
                ..Limits::default()
            }
        };
        let plane = match self.random.below(10) {
            0 if !crowded => PlaneChange::Create { name, limits, profile: Profile::default() },
            1..4 if !crowded => PlaneChange::Fork { name, source: ForkSource::Plane(source), limits },
            4 if !crowded => PlaneChange::Fork { name, source: ForkSource::Layer(layer), limits },
            5 => PlaneChange::Seal { layer, plane: source },
            6 => PlaneChange::Unseal { layer },
            7 => PlaneChange::SetLimits { plane: source, limits },
            _ if source != PlaneId::CORE => PlaneChange::Delete { plane: source },
            _ => PlaneChange::SetLimits { plane: source, limits: Limits::default() },
        };
        // Objects written in the same commit, but not into a plane that goes with it, nor one whose limit changes.
        let touched = match &plane {
            PlaneChange::Delete { plane } | PlaneChange::SetLimits { plane, .. } => Some(*plane),
            _ => None,
        };
        let mut change = if self.random.chance(40) { self.some_writes() } else { Change::default() };
        change.writes.retain(|write| Some(write.key.plane) != touched);
        change.plane = Some(plane);
        self.commit(change).await;
    }

    async fn commit(&mut self, change: Change) {
        let predicted = self.model.predict(&change);
        match (self.world.store.commit(change.clone()).await, predicted) {
            (Ok(committed), Ok(())) => self.model.apply(&change, &committed),
            (Ok(_), Err(predicted)) => panic!("{change:?} should be refused: {predicted}"),
            (Err(error), predicted) => {
                let kind = kind(&error);
                // The model knows neither the probe nor depth.
                let other = kind == "Full";
                assert!(
                    Err(kind) == predicted || (other && predicted.is_ok()),
                    "{change:?}: {kind}, {predicted:?}"
                );
            }
        }
        assert_eq!(self.world.store.current(), self.model.current);
    }

    async fn get(&mut self) {
        let key = self.some_key();
        let found = self.world.store.get(&self.plane(key.plane), key.resource, &key.name).await.unwrap();
        let found = found.map(|object| (object.revision, object.record.clone()));
        assert_eq!(found.as_ref(), self.model.found(&key), "{key}");
    }

    async fn list(&mut self, past: bool) {
        let id = self.some_plane();
        let plane = self.plane(id);
        let resource = self.random.pick(&[self.world.pods, self.world.configs]);
        let oldest = self.model.current.0.saturating_sub(40);
        let at = if past { Revision(oldest + self.random.below(42) as u64) } else { self.model.current };
        let namespace = self.random.pick(&[None, None, Some(""), Some("n"), Some("n-m")]);
        let after = self.random.chance(40).then(|| object_name(self.random.pick(&NAMES)));
        let limit = self.random.below(4);
        let asked = ListQuery {
            resource,
            namespace: namespace.map(Into::into),
            after: after.clone(),
            at: past.then_some(at),
            limit,
            ..query(resource)
        };
        let floor = self.model.compacted.max(self.model.planes[&id].floor);
        let page = match self.world.page(&plane, asked).await {
            Err(ReadError::Future { .. }) => return assert!(at > self.model.current, "{at} is no future"),
            Err(ReadError::Compacted { compacted, .. }) => {
                assert!(at < floor, "{at} is kept");
                return assert_eq!(compacted, floor);
            }
            page => page.unwrap(),
        };
        assert!(at >= floor && at <= self.model.current);
        assert_eq!(page.revision, at);
        let expected: Vec<_> = self.model.states[&at][&id]
            .iter()
            .filter(|((own, name), _)| {
                *own == resource
                    && namespace.is_none_or(|namespace| name.namespace == namespace)
                    && after.as_ref().is_none_or(|after| name > after)
            })
            .map(|((_, name), (revision, record))| (name.clone(), *revision, record.clone()))
            .collect();
        let len = if limit == 0 { expected.len() } else { limit.min(expected.len()) };
        assert_eq!(super::world::seen(&page), expected[..len], "list of {} at {at}", plane.name);
        let left = expected.len() - len;
        assert_eq!((page.more, page.remaining), (left > 0, (left > 0).then_some(left as u64)));
        for object in &page.objects {
            // What is cached may be of a layer that has been merged since.
            let (plane, space) = (self.plane(id), object.space);
            let found = self.world.store.shared.find(&plane.stack, resource, &object.name, object.revision);
            assert!(
                plane.stack.contains(&space)
                    || found.unwrap().is_some_and(|found| found.record == object.record),
                "an object of another stack"
            );
        }
    }

    async fn watch(&mut self) {
        let back = self.random.below(60) as u64;
        let after = Revision(self.model.current.0.saturating_sub(back));
        let (scope, floor) = if self.random.chance(40) {
            (WatchScope::Everything, self.model.compacted)
        } else {
            let key = self.some_key();
            let floor = self.model.compacted.max(self.model.planes[&key.plane].floor);
            (WatchScope::Collection(key.plane, key.resource), floor)
        };
        let mut watch = match self.world.store.watch(scope, after) {
            Err(WatchError::Compacted { compacted }) => {
                assert!(after < floor, "{after} is kept");
                return assert_eq!(compacted, floor);
            }
            watch => watch.unwrap(),
        };
        assert!(after >= floor);
        let covered = |plane: PlaneId, resource: ResourceId| match scope {
            WatchScope::Everything => self.model.planes.contains_key(&plane),
            WatchScope::Collection(own_plane, own_resource) => (own_plane, own_resource) == (plane, resource),
        };
        for expected in &self.model.events {
            if expected.revision <= after || !covered(expected.plane, expected.resource) {
                continue;
            }
            let mut event = next(&mut watch).await.unwrap();
            while !covered(event.plane, event.resource) {
                // Planes that are gone: their events are told as long as there is something to tell.
                event = next(&mut watch).await.unwrap();
            }
            let of = |object: &crate::object::StoredObject| (object.revision, object.record.clone());
            assert_eq!(event.revision, expected.revision, "{scope:?} after {after}");
            assert_eq!((event.plane, event.resource), (expected.plane, expected.resource));
            assert_eq!(
                event.old.as_ref().map(of),
                expected.old,
                "old of {} at {}",
                expected.name,
                event.revision
            );
            assert_eq!(
                event.new.as_ref().map(of),
                expected.new,
                "new of {} at {}",
                expected.name,
                event.revision
            );
            let object = event.new.as_ref().or(event.old.as_ref()).unwrap();
            assert_eq!(object.name, expected.name);
        }
        if let Some(progress) = watch.progress() {
            assert!(progress >= self.model.current);
        }
    }

    async fn compact(&mut self) {
        let floor = Revision(self.model.current.0.saturating_sub(self.random.below(30) as u64));
        self.world.store.compact(floor).await.unwrap();
        self.model.compacted = self.model.compacted.max(floor);
        assert_eq!(self.world.store.compacted(), self.model.compacted);
        self.model.states = self.model.states.split_off(&self.model.compacted);
    }

    async fn check_everything(&mut self) {
        assert_eq!(self.world.store.planes_len(), self.model.planes.len());
        for (id, model) in &self.model.planes {
            let plane = self.plane(*id);
            assert_eq!(self.world.store.plane(&model.name).map(|plane| plane.id), Some(*id));
            assert_eq!((plane.floor, plane.limits), (model.floor, model.limits));
            assert_eq!(
                (plane.usage.objects(), plane.usage.bytes()),
                counts(&model.objects),
                "{}",
                model.name
            );
            for resource in [self.world.pods, self.world.configs] {
                let page = self.world.page(&plane, query(resource)).await.unwrap();
                let objects = model.objects.iter().filter(|((own, _), _)| *own == resource);
                let expected: Vec<_> = objects
                    .map(|((_, name), (revision, record))| (name.clone(), *revision, record.clone()))
                    .collect();
                assert_eq!(super::world::seen(&page), expected, "{}", model.name);
                assert_eq!(page.revision, self.model.current);
            }
        }
    }
}
