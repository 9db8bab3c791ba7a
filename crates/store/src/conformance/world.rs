//! A store on a fixture, and short words for what cases do with it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use polder_model::{GroupResource, json};

use super::probe::{At, Probe, ProbedEngine};
use super::{Fixture, Setup};
use crate::change::{Change, CommitError, Committed, Expect, ForkSource, PlaneChange};
use crate::engine::{Engine, Reader};
use crate::feed::{Event, Watch, WatchError, WatchScope};
use crate::key::{Key, ObjectName, ResourceId, Revision};
use crate::list::{ListPage, ListQuery, Remaining};
use crate::object::{Record, StoredObject};
use crate::plane::{Limits, Plane, Profile};
use crate::read::ReadError;
use crate::store::{Store, StoreOptions};

pub(super) const BASE_DIGEST: &str = "base-one";
pub(super) const BASE_NAMES: [&str; 3] = ["base-cluster", "default/base-a", "kube-system/base-b"];
/// An event that is due arrives within this time, or the case fails.
const EVENT_PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct World {
    fixture: Box<dyn Fixture>,
    pub(super) options: StoreOptions,
    pub(super) probe: Probe,
    pub(super) store: Arc<Store>,
    pub(super) reader: Arc<dyn Reader>,
    /// A resource no base object has.
    pub(super) pods: ResourceId,
    /// The resource of the base objects.
    pub(super) configs: ResourceId,
}

/// One object as a reader sees it.
pub(super) type Seen = (ObjectName, Revision, Record);

/// One event, comparable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenEvent {
    pub(super) revision: Revision,
    pub(super) plane: polder_model::PlaneId,
    pub(super) resource: ResourceId,
    pub(super) old: Option<StoredObject>,
    pub(super) new: Option<StoredObject>,
}

impl SeenEvent {
    pub(super) fn of(event: &Event) -> SeenEvent {
        SeenEvent {
            revision: event.revision,
            plane: event.plane,
            resource: event.resource,
            old: event.old.as_deref().cloned(),
            new: event.new.as_deref().cloned(),
        }
    }
}

impl Setup<'_> {
    pub(super) fn world(&self) -> World {
        World::open((self.make)(), self.options.clone())
    }

    /// The engine alone, on fresh contents.
    pub(super) fn fixture(&self) -> Box<dyn Fixture> {
        (self.make)()
    }
}

impl World {
    pub(super) fn open(fixture: Box<dyn Fixture>, options: StoreOptions) -> World {
        let probe = Probe::default();
        let (store, reader) = open_store(&*fixture, &options, &probe, BASE_DIGEST);
        let (pods, configs) = resources(&store);
        World { fixture, options, probe, store, reader, pods, configs }
    }

    pub(super) fn reopen(self) -> World {
        self.reopen_with_base(BASE_DIGEST)
    }

    /// Closes the store and opens another on what it left.
    pub(super) fn reopen_with_base(self, digest: &str) -> World {
        let World { fixture, options, probe, store, reader, .. } = self;
        store.close();
        drop((store, reader));
        let (store, reader) = open_store(&*fixture, &options, &probe, digest);
        let (pods, configs) = resources(&store);
        World { fixture, options, probe, store, reader, pods, configs }
    }

    pub(super) fn simulation_len(&self) -> usize {
        self.fixture.simulation_len()
    }

    pub(super) fn key(&self, plane: &Plane, resource: ResourceId, name: &str) -> Key {
        Key { plane: plane.id, resource, name: object_name(name) }
    }

    pub(super) fn pod(&self, plane: &Plane, name: &str) -> Key {
        self.key(plane, self.pods, name)
    }

    pub(super) async fn commit(&self, change: Change) -> Revision {
        self.store.commit(change).await.unwrap().revision
    }

    /// Commits several changes in one group, in this order: they queue up while the group before them is held.
    pub(super) async fn commit_group(&self, changes: Vec<Change>) -> Vec<Result<Committed, CommitError>> {
        let mut stopped = self.probe.stop(At::BeforeApply);
        let mut first = Box::pin(self.store.commit(Change::default()));
        poll_once(&mut first).await;
        stopped.reached().await;
        let mut queued = Vec::new();
        for change in changes {
            let mut commit = Box::pin(self.store.commit(change));
            poll_once(&mut commit).await;
            queued.push(commit);
        }
        drop(stopped);
        first.await.unwrap();
        let mut answers = Vec::new();
        for commit in queued {
            answers.push(commit.await);
        }
        answers
    }

    pub(super) async fn change_plane(&self, change: PlaneChange) -> Result<Committed, CommitError> {
        self.store.commit(Change { plane: Some(change), ..Change::default() }).await
    }

    pub(super) async fn plane(&self, name: &str) -> Arc<Plane> {
        let create = PlaneChange::Create {
            name: name.parse().unwrap(),
            limits: Limits::default(),
            profile: Profile::default(),
        };
        self.change_plane(create).await.unwrap().plane.unwrap()
    }

    pub(super) async fn fork(&self, source: &Plane, name: &str) -> Arc<Plane> {
        self.try_fork(ForkSource::Plane(source.id), name).await.unwrap()
    }

    pub(super) async fn try_fork(&self, source: ForkSource, name: &str) -> Result<Arc<Plane>, CommitError> {
        let fork = PlaneChange::Fork { name: name.parse().unwrap(), source, limits: Limits::default() };
        Ok(self.change_plane(fork).await?.plane.unwrap())
    }

    pub(super) async fn delete_plane(&self, plane: &Plane) -> Revision {
        self.change_plane(PlaneChange::Delete { plane: plane.id }).await.unwrap().revision
    }

    pub(super) async fn seal(&self, plane: &Plane, layer: &str) -> Result<Committed, CommitError> {
        self.change_plane(PlaneChange::Seal { layer: layer.into(), plane: plane.id }).await
    }

    pub(super) async fn unseal(&self, layer: &str) -> Result<Committed, CommitError> {
        self.change_plane(PlaneChange::Unseal { layer: layer.into() }).await
    }

    /// The plane as it is now.
    pub(super) fn now(&self, plane: &Plane) -> Arc<Plane> {
        self.store.plane_by_id(plane.id).unwrap()
    }

    pub(super) async fn put(&self, plane: &Plane, name: &str, value: i64) -> Revision {
        self.commit(Change::put(self.pod(plane, name), record(name, value), Expect::Anything)).await
    }

    pub(super) async fn delete(&self, plane: &Plane, name: &str) -> Revision {
        self.commit(Change::delete(self.pod(plane, name), Expect::Anything)).await
    }

    pub(super) async fn get(&self, plane: &Arc<Plane>, name: &str) -> Option<Arc<StoredObject>> {
        self.store.get(plane, self.pods, &object_name(name)).await.unwrap()
    }

    pub(super) async fn value(&self, plane: &Arc<Plane>, name: &str) -> Option<i64> {
        self.get(plane, name).await.map(|object| value_of(&object))
    }

    pub(super) async fn list(&self, plane: &Arc<Plane>) -> Vec<Seen> {
        seen(&self.page(plane, query(self.pods)).await.unwrap())
    }

    pub(super) async fn list_at(&self, plane: &Arc<Plane>, at: Revision) -> Vec<Seen> {
        seen(&self.page(plane, ListQuery { at: Some(at), ..query(self.pods) }).await.unwrap())
    }

    pub(super) async fn page(&self, plane: &Arc<Plane>, query: ListQuery) -> Result<ListPage, ReadError> {
        self.store.list(plane, query).await
    }

    /// Names and values of the pods of a plane.
    pub(super) async fn values(&self, plane: &Arc<Plane>) -> Vec<(String, i64)> {
        let page = self.page(plane, query(self.pods)).await.unwrap();
        page.objects.iter().map(|object| (object.name.to_string(), value_of(object))).collect()
    }

    pub(super) async fn check_values(&self, plane: &Arc<Plane>, expected: &[(&str, i64)]) {
        let expected: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        assert_eq!(self.values(plane).await, expected, "plane {}", plane.name);
        for (name, value) in expected {
            assert_eq!(self.value(plane, &name).await, Some(value), "plane {}: {name}", plane.name);
        }
    }

    /// The counters of a plane are what listing everything in it gives.
    pub(super) async fn check_usage(&self, plane: &Arc<Plane>) {
        let (mut objects, mut bytes) = (0, 0);
        for resource in [self.pods, self.configs] {
            let page = self.page(plane, query(resource)).await.unwrap();
            objects += page.objects.len() as u64;
            bytes += page.objects.iter().map(|object| object.record.len() as u64).sum::<u64>();
        }
        let usage = &self.now(plane).usage;
        assert_eq!((usage.objects(), usage.bytes()), (objects, bytes), "usage of {}", plane.name);
    }

    pub(super) fn watch(&self, plane: &Plane, after: Revision) -> Watch {
        self.store.watch(WatchScope::Collection(plane.id, self.pods), after).unwrap()
    }

    pub(super) fn watch_everything(&self, after: Revision) -> Watch {
        self.store.watch(WatchScope::Everything, after).unwrap()
    }
}

/// Runs a future up to where it first waits.
pub(super) async fn poll_once<F: Future + Unpin>(future: &mut F) {
    let polled = std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await;
    assert!(polled.is_pending(), "it waits for something that has not happened");
}

fn open_store(
    fixture: &dyn Fixture,
    options: &StoreOptions,
    probe: &Probe,
    digest: &str,
) -> (Arc<Store>, Arc<dyn Reader>) {
    let engine = ProbedEngine::new(fixture.engine(), probe.clone());
    let reader = engine.reader();
    let store = Store::open(Box::new(engine), options.clone(), digest, |profile, resource| {
        if profile != Profile::Cluster {
            return Vec::new();
        }
        let configs = resource(&GroupResource::new("", "configs"));
        BASE_NAMES.iter().map(|name| (configs, object_name(name), record(name, 0))).collect()
    });
    (store.unwrap(), reader)
}

fn resources(store: &Store) -> (ResourceId, ResourceId) {
    let id = |name| store.resource_id(&GroupResource::new("", name));
    let configs = id("configs");
    (id("pods"), configs)
}

/// `namespace/name`, or a name without a namespace.
pub(super) fn object_name(text: &str) -> ObjectName {
    match text.split_once('/') {
        Some((namespace, name)) => ObjectName::new(namespace, name),
        None => ObjectName::cluster(text),
    }
}

pub(super) fn record(name: &str, value: i64) -> Record {
    let parity = if value % 2 == 0 { "even" } else { "odd" };
    // The length varies, so that miscounted bytes show.
    let filling = "x".repeat(usize::try_from(value.rem_euclid(13)).unwrap_or_default());
    Record::encode(&json!({
        "metadata": {"name": name, "labels": {"parity": parity}}, "value": value, "filling": filling,
    }))
}

pub(super) fn value_of(object: &StoredObject) -> i64 {
    object.record.to_value(0).unwrap().i64_at(&["value"]).unwrap()
}

pub(super) fn query(resource: ResourceId) -> ListQuery {
    ListQuery { remaining: Remaining::Count, ..ListQuery::all(resource) }
}

pub(super) fn seen(page: &ListPage) -> Vec<Seen> {
    page.objects.iter().map(|object| (object.name.clone(), object.revision, object.record.clone())).collect()
}

pub(super) async fn next(watch: &mut Watch) -> Result<SeenEvent, WatchError> {
    let event = tokio::time::timeout(EVENT_PATIENCE, watch.next()).await.expect("an event is due");
    Ok(SeenEvent::of(&*event?))
}

/// Every event up to and including the one event of revision `last`.
pub(super) async fn collect(watch: &mut Watch, last: Revision) -> Vec<SeenEvent> {
    let mut events = Vec::new();
    while events.last().is_none_or(|event: &SeenEvent| event.revision < last) {
        events.push(next(watch).await.unwrap());
    }
    events
}
