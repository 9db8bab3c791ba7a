//! The one writer. A thread drains the queue of changes, checks each against the newest state, gives it the next
//! revision, and commits many with one fsync. Between groups it forgets old history and removes dropped spaces.
//!
//! Planning works on what is visible plus what this group has already decided ([`Group`]); only when the engine has
//! made the group durable does any of it become visible, in this order: cache, current revision, watchers, answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use polder_model::{PlaneId, PlaneName, SmolStr};
use tokio::sync::{mpsc, oneshot};

use crate::cache::{CacheChange, Lookup};
use crate::change::{Change, CommitError, Committed, Expect, ForkSource, PlaneChange, Write};
use crate::engine::{
    Batch, Engine, EngineError, LogEntry, ObjectWrite, PlaneRow, PlaneWrite, Recovered, SpaceRow, SpaceState,
};
use crate::feed::Event;
use crate::key::{Key, ObjectName, ResourceId, Revision, SpaceId};
use crate::object::{Record, StoredObject};
use crate::plane::{Limits, Plane, Usage};
use crate::scan::StackScan;
use crate::store::{Shared, StoreOptions};

/// Changes committed with one fsync.
const GROUP_LEN_MAX: usize = 256;
/// Parents a plane may have: reads look through them one by one.
const STACK_LEN_MAX: usize = 24;
/// The log entries of a layer belong to no plane.
pub(crate) const NO_PLANE: PlaneId = PlaneId(0);
const TICK: Duration = Duration::from_secs(1);

type Answer = Result<Committed, CommitError>;

pub(crate) enum Job {
    Commit {
        change: Change,
        reply: oneshot::Sender<Answer>,
    },
    Compact {
        floor: Revision,
        reply: oneshot::Sender<Result<(), CommitError>>,
    },
    /// Answers when no dropped space is left.
    Settle {
        reply: oneshot::Sender<()>,
    },
    Tick,
    /// Nothing but a knock: the store is closing.
    Stop,
}

/// Wakes the committer regularly, so that housekeeping happens without traffic. Ends with the store.
pub(crate) fn start_ticks(jobs: mpsc::WeakSender<Job>) -> std::io::Result<()> {
    std::thread::Builder::new().name("polder-tick".into()).spawn(move || {
        loop {
            std::thread::sleep(TICK);
            let Some(jobs) = jobs.upgrade() else { break };
            match jobs.try_send(Job::Tick) {
                Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => {}
                Err(mpsc::error::TrySendError::Closed(_)) => break,
            }
        }
    })?;
    Ok(())
}

pub(crate) struct Committer {
    engine: Box<dyn Engine>,
    shared: Arc<Shared>,
    spaces: HashMap<SpaceId, Space>,
    layers: HashMap<SmolStr, SpaceId>,
    /// The layer every new plane stands on.
    base: Option<SpaceId>,
    current: Revision,
    dropping: VecDeque<SpaceId>,
    history: History,
    settling: Vec<oneshot::Sender<()>>,
    /// A chore failed: wait for the next tick before trying again.
    chores_paused: bool,
}

/// A space as the committer knows it.
#[derive(Clone, Debug)]
struct Space {
    row: SpaceRow,
    /// Spaces that stand on it.
    children: u32,
}

/// When revisions were current, to know which history is old enough to forget.
struct History {
    marks: VecDeque<(Instant, Revision)>,
    keep: Duration,
    len_min: u64,
    floor: Revision,
    /// How far the engine has got.
    compacted: Revision,
}

/// What one group has decided so far. Dropped whole when the engine fails.
#[derive(Default)]
struct Group {
    batch: Batch,
    objects: HashMap<Key, Option<Arc<StoredObject>>>,
    events: Vec<Arc<Event>>,
    /// `None`: deleted in this group.
    planes: HashMap<PlaneId, Option<Arc<Plane>>>,
    plane_names: HashMap<SmolStr, Option<PlaneId>>,
    usage: HashMap<PlaneId, (u64, u64)>,
    spaces: HashMap<SpaceId, Space>,
    layers: HashMap<SmolStr, Option<SpaceId>>,
    /// Planes whose resource versions are others now: whoever watches them must start again.
    raised: Vec<PlaneId>,
    replies: Vec<(oneshot::Sender<Answer>, Answer)>,
}

impl Committer {
    pub(crate) fn new(
        engine: Box<dyn Engine>,
        shared: Arc<Shared>,
        options: &StoreOptions,
        recovered: Recovered,
    ) -> Result<Committer, EngineError> {
        let mut committer = Committer {
            engine,
            shared,
            spaces: HashMap::with_capacity(recovered.spaces.len()),
            layers: HashMap::new(),
            base: None,
            current: recovered.current,
            dropping: VecDeque::new(),
            history: History {
                marks: VecDeque::from([(Instant::now(), recovered.current)]),
                keep: options.history,
                len_min: options.history_len_min,
                floor: recovered.compacted,
                compacted: recovered.compacted,
            },
            settling: Vec::new(),
            chores_paused: false,
        };
        for row in recovered.spaces {
            if row.state == SpaceState::Dropped {
                committer.dropping.push_back(row.id);
            } else {
                if !row.layer.is_empty() {
                    committer.layers.insert(row.layer.clone(), row.id);
                }
                committer.spaces.insert(row.id, Space { row, children: 0 });
            }
        }
        let parents: Vec<SpaceId> = committer.spaces.values().filter_map(|space| space.row.parent).collect();
        for parent in parents {
            let space = committer.spaces.get_mut(&parent);
            let space =
                space.ok_or_else(|| EngineError::Damaged(format!("layer {} is missing", parent.0)))?;
            space.children += 1;
        }
        for row in recovered.planes {
            let plane = committer.plane_from_row(row)?;
            committer.shared.planes.write().insert(Arc::new(plane));
        }
        Ok(committer)
    }

    fn plane_from_row(&self, row: PlaneRow) -> Result<Plane, EngineError> {
        let damaged = |what: &str| EngineError::Damaged(format!("plane {:?}: {what}", row.name));
        let name: PlaneName = row.name.parse().map_err(|_| damaged("bad name"))?;
        let mut stack = Vec::new();
        let mut next = Some(row.space);
        while let Some(id) = next {
            let space = self.spaces.get(&id).ok_or_else(|| damaged("a layer is missing"))?;
            if stack.len() > STACK_LEN_MAX {
                return Err(damaged("its layers form a loop"));
            }
            stack.push(id);
            next = space.row.parent;
        }
        let usage = Usage::default();
        usage.objects.store(row.objects, Ordering::Relaxed);
        usage.bytes.store(row.bytes, Ordering::Relaxed);
        Ok(Plane {
            id: row.id,
            name,
            stack: stack.into(),
            floor: row.floor,
            version_offset: row.version_offset,
            limits: row.limits,
            usage: Arc::new(usage),
        })
    }

    /// Makes the base layer and the core plane when they are missing.
    pub(crate) fn ensure_base(
        &mut self,
        digest: &str,
        objects: impl FnOnce() -> Vec<(ResourceId, ObjectName, Record)>,
    ) -> Result<(), EngineError> {
        self.base = self.spaces.values().find(|space| space.row.digest == digest).map(|space| space.row.id);
        let mut group = self.new_group();
        if self.base.is_none() {
            let objects = objects();
            let revision = self.next_revision(&group);
            let row = SpaceRow {
                id: space_id(revision, 0),
                parent: None,
                state: SpaceState::Sealed,
                digest: SmolStr::new(digest),
                layer: SmolStr::default(),
                objects: objects.len() as u64,
                bytes: objects.iter().map(|(_, _, record)| record.len() as u64).sum(),
            };
            for (resource, name, record) in objects {
                let (space, plane) = (row.id, NO_PLANE);
                let entry =
                    LogEntry { revision, plane, space, resource, name, deleted: false, previous: None };
                group.batch.objects.push(ObjectWrite { entry, record: Some(record) });
            }
            group.batch.last = revision;
            self.base = Some(row.id);
            group.put_space(Space { row, children: 0 });
        }
        if self.shared.planes.read().by_id.get(&PlaneId::CORE).is_none() {
            let revision = self.next_revision(&group);
            let parent = self.base;
            self.add_plane(
                &mut group,
                PlaneId::CORE,
                PlaneName::CORE,
                parent,
                Limits::default(),
                0,
                revision,
            );
            group.batch.last = revision;
        }
        if group.batch.last >= group.batch.first {
            self.finish(group).map_err(|error| EngineError::Failed(Box::new(error)))?;
        }
        Ok(())
    }

    /// Runs until told to stop or until nobody can send any more.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        loop {
            if self.shared.is_closing() {
                // What is queued is still done; the loop ends when it is.
                queue.close();
            }
            let first = if self.has_chores() {
                match queue.try_recv() {
                    Ok(job) => Some(job),
                    Err(mpsc::error::TryRecvError::Empty) => {
                        self.do_chore();
                        continue;
                    }
                    Err(mpsc::error::TryRecvError::Disconnected) => None,
                }
            } else {
                queue.blocking_recv()
            };
            let Some(first) = first else { return };
            self.run_group(first, &mut queue);
            // Under unbroken load the chores still get their turn, a little after each group.
            if self.has_chores() {
                self.do_chore();
            }
        }
    }

    /// Commits the first job and what waits behind it.
    fn run_group(&mut self, first: Job, queue: &mut mpsc::Receiver<Job>) {
        let mut group = self.new_group();
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(job) = next.take() {
            match job {
                Job::Commit { change, reply } => {
                    let answer = self.plan(&mut group, &change);
                    group.replies.push((reply, answer));
                }
                Job::Compact { floor, reply } => {
                    let floor = floor.min(self.shared.current());
                    self.history.floor = self.history.floor.max(floor);
                    let outcome = self.compact_fully();
                    reply.send(outcome).ok();
                }
                Job::Settle { reply } => self.settling.push(reply),
                Job::Tick => self.tick(),
                Job::Stop => {}
            }
            taken += 1;
            if taken < GROUP_LEN_MAX {
                next = queue.try_recv().ok();
            }
        }
        self.finish(group).ok();
    }

    /// Makes a group durable, then visible, then answers.
    fn finish(&mut self, mut group: Group) -> Result<(), Arc<EngineError>> {
        let mut outcome = Ok(());
        if group.batch.last >= group.batch.first {
            self.write_usage(&mut group);
            group.batch.resources = self.shared.resources.read().unstored();
            match self.engine.apply(&group.batch) {
                Ok(()) => self.publish(&mut group),
                Err(error) => {
                    tracing::error!(error = %chain(&error), "a group of commits failed");
                    outcome = Err(Arc::new(error));
                }
            }
        }
        for (reply, answer) in group.replies {
            // A refusal may be due to a change of this group that has not happened either.
            let answer = match &outcome {
                Err(error) => Err(CommitError::Engine(error.clone())),
                Ok(()) => answer,
            };
            reply.send(answer).ok();
        }
        outcome
    }

    fn publish(&mut self, group: &mut Group) {
        let last = group.batch.last;
        self.current = last;
        self.shared.resources.write().stored += group.batch.resources.len();
        for (id, space) in group.spaces.drain() {
            if space.row.state == SpaceState::Dropped {
                self.spaces.remove(&id);
                self.dropping.push_back(id);
            } else {
                self.spaces.insert(id, space);
            }
        }
        for (name, layer) in group.layers.drain() {
            match layer {
                Some(space) => drop(self.layers.insert(name, space)),
                None => drop(self.layers.remove(&name)),
            }
        }
        for (plane, (objects, bytes)) in group.usage.drain() {
            let planes = self.shared.planes.read();
            let pending = group.planes.get(&plane).cloned().flatten();
            if let Some(plane) = pending.or_else(|| planes.by_id.get(&plane).cloned()) {
                plane.usage.objects.store(objects, Ordering::Relaxed);
                plane.usage.bytes.store(bytes, Ordering::Relaxed);
            }
        }
        let mut gone = Vec::new();
        if !group.planes.is_empty() {
            let mut planes = self.shared.planes.write();
            for (id, plane) in group.planes.drain() {
                match plane {
                    Some(plane) => planes.insert(plane),
                    None => {
                        planes.remove(id);
                        gone.push(id);
                    }
                }
            }
        }
        // Between the planes and the cache: see `Shared::applied`.
        self.shared.set_applied(last);
        let mut changes: HashMap<(PlaneId, ResourceId), Vec<CacheChange>> = HashMap::new();
        for event in &group.events {
            if let Some(name) = event.name() {
                let change =
                    CacheChange { revision: event.revision, name: name.clone(), object: event.new.clone() };
                changes.entry((event.plane, event.resource)).or_default().push(change);
            }
        }
        for ((plane, resource), changes) in changes {
            self.shared.cache.change(plane, resource, changes);
        }
        self.shared.cache.evict();
        self.shared.feed.remember(&group.events);
        self.shared.set_current(last);
        self.shared.feed.deliver(&group.events);
        self.shared.set_delivered(last);
        for plane in group.raised.drain(..) {
            self.shared.feed.end_plane(plane);
        }
        for plane in gone {
            self.shared.feed.end_plane(plane);
            self.shared.cache.forget_plane(plane);
        }
    }

    /// Checks a change and, if it may happen, adds it to the group. Leaves the group untouched otherwise.
    fn plan(&self, group: &mut Group, change: &Change) -> Result<Committed, CommitError> {
        for (key, expect) in &change.guards {
            let found = self.latest(group, key)?;
            check(key, *expect, found.as_ref())?;
        }
        let mut planned = Vec::with_capacity(change.writes.len());
        let mut usage: HashMap<PlaneId, (u64, u64)> = HashMap::new();
        let mut keys = hashbrown::HashSet::with_capacity(change.writes.len());
        for write in &change.writes {
            let Write { key, record, expect } = write;
            let plane = self.plane(group, key.plane).ok_or(CommitError::NoPlane)?;
            if matches!(&change.plane, Some(PlaneChange::Delete { plane }) if *plane == key.plane) {
                return Err(CommitError::NoPlane);
            }
            let found = self.latest(group, key)?;
            check(key, *expect, found.as_ref())?;
            if !keys.insert(key) {
                // One revision has one version of an object.
                return Err(CommitError::Conflict { key: key.clone(), found });
            }
            if found.is_none() && record.is_none() {
                continue;
            }
            let (objects, bytes) = usage.entry(key.plane).or_insert_with(|| group.usage_of(&plane));
            if let Some(found) = &found {
                *objects = objects.saturating_sub(1);
                *bytes = bytes.saturating_sub(found.record.len() as u64);
            }
            if let Some(record) = record {
                *objects += 1;
                *bytes += record.len() as u64;
            }
            planned.push((write, plane, found));
        }
        for (id, after) in &usage {
            if let Some(plane) = self.plane(group, *id) {
                check_limits(plane.limits, group.usage_of(&plane), *after)?;
            }
        }
        // Object writes cannot fail any more, and a plane change fails before it touches the group.
        let revision = self.next_revision(group);
        let plane = match &change.plane {
            Some(plane_change) => self.plan_plane(group, plane_change, revision)?,
            None => None,
        };
        group.usage.extend(usage);
        for (write, plane, found) in planned {
            self.plan_write(group, write, &plane, found, revision);
        }
        group.batch.last = revision;
        Ok(Committed { revision, plane })
    }

    fn plan_write(
        &self,
        group: &mut Group,
        write: &Write,
        plane: &Plane,
        found: Option<Arc<StoredObject>>,
        revision: Revision,
    ) {
        // The plane may have been forked earlier in this change: its overlay is a new one then.
        let space = self.plane(group, plane.id).map_or(plane.overlay(), |plane| plane.overlay());
        let Key { plane, resource, name } = write.key.clone();
        let new = write
            .record
            .clone()
            .map(|record| Arc::new(StoredObject { name: name.clone(), revision, space, record }));
        let entry = LogEntry {
            revision,
            plane,
            space,
            resource,
            name,
            deleted: new.is_none(),
            previous: found.as_ref().map(|found| (found.space, found.revision)),
        };
        group.batch.objects.push(ObjectWrite { entry, record: write.record.clone() });
        group.events.push(Arc::new(Event::new(revision, plane, resource, found, new.clone())));
        group.objects.insert(write.key.clone(), new);
    }

    fn plan_plane(
        &self,
        group: &mut Group,
        change: &PlaneChange,
        revision: Revision,
    ) -> Result<Option<Arc<Plane>>, CommitError> {
        match change {
            PlaneChange::Create { name, limits } => {
                self.check_name_free(group, name)?;
                let (id, parent) = (PlaneId(revision.0), self.base);
                Ok(Some(self.add_plane(group, id, name.clone(), parent, *limits, 0, revision)))
            }
            PlaneChange::Fork { name, source, limits } => {
                self.check_name_free(group, name)?;
                let (parent, offset) = match source {
                    ForkSource::Plane(source) => {
                        let source = self.plane(group, *source).ok_or(CommitError::NoPlane)?;
                        (self.seal_overlay(group, &source, revision)?, source.version_offset)
                    }
                    ForkSource::Layer(layer) => {
                        let id =
                            self.layer(group, layer).ok_or_else(|| CommitError::NoLayer(layer.clone()))?;
                        // The layer's own space only carries its name: forks stand on what is below it, so that
                        // layers of layers do not deepen the stack.
                        (self.space(group, id).row.parent.unwrap_or(id), 0)
                    }
                };
                let id = PlaneId(revision.0);
                Ok(Some(self.add_plane(group, id, name.clone(), Some(parent), *limits, offset, revision)))
            }
            PlaneChange::SetLimits { plane, limits } => {
                let plane = self.plane(group, *plane).ok_or(CommitError::NoPlane)?;
                group.put_plane(replaced(&plane, plane.stack.clone(), *limits));
                Ok(None)
            }
            PlaneChange::Delete { plane: PlaneId::CORE } => Err(CommitError::CorePlane),
            PlaneChange::RaiseVersions { plane, above } => {
                let plane = self.plane(group, *plane).ok_or(CommitError::NoPlane)?;
                // This commit's own version is `above + 1`, unless versions are that large already.
                let offset = above.saturating_add(1).saturating_sub(revision.0).max(plane.version_offset);
                let raised = Plane { version_offset: offset, floor: revision, ..Plane::clone(&plane) };
                group.raised.push(plane.id);
                group.put_plane(Arc::new(raised));
                Ok(None)
            }
            PlaneChange::Delete { plane } => {
                let plane = self.plane(group, *plane).ok_or(CommitError::NoPlane)?;
                group.batch.planes.retain(|write| match write {
                    PlaneWrite::Put(row) => row.id != plane.id,
                    PlaneWrite::Remove(_) => true,
                });
                group.batch.planes.push(PlaneWrite::Remove(plane.id));
                group.usage.remove(&plane.id);
                group.plane_names.insert(plane.name.as_str().into(), None);
                group.planes.insert(plane.id, None);
                self.drop_space(group, plane.overlay());
                Ok(None)
            }
            PlaneChange::Seal { layer, plane } => {
                if self.layer(group, layer).is_some() {
                    return Err(CommitError::LayerExists(layer.clone()));
                }
                let plane = self.plane(group, *plane).ok_or(CommitError::NoPlane)?;
                let parent = self.seal_overlay(group, &plane, revision)?;
                // A layer has a space of its own, so that its name pins one thing and several may pin the same.
                let parent_row = self.space(group, parent).row;
                let row = SpaceRow {
                    id: space_id(revision, 1),
                    parent: Some(parent),
                    state: SpaceState::Sealed,
                    digest: SmolStr::default(),
                    layer: layer.clone(),
                    ..parent_row
                };
                group.layers.insert(layer.clone(), Some(row.id));
                self.add_space(group, row);
                Ok(None)
            }
            PlaneChange::Unseal { layer } => {
                let id = self.layer(group, layer).ok_or_else(|| CommitError::NoLayer(layer.clone()))?;
                group.layers.insert(layer.clone(), None);
                let mut space = self.space(group, id);
                space.row.layer = SmolStr::default();
                group.put_space(space);
                self.drop_if_unused(group, id);
                Ok(None)
            }
        }
    }

    /// Turns what a plane has written since its last seal into an immutable layer, and gives it an empty overlay.
    /// Returns the layer that now holds the plane's contents.
    fn seal_overlay(
        &self,
        group: &mut Group,
        plane: &Arc<Plane>,
        revision: Revision,
    ) -> Result<SpaceId, CommitError> {
        let (objects, bytes) = group.usage_of(plane);
        let mut overlay = self.space(group, plane.overlay());
        let untouched = (overlay.row.objects, overlay.row.bytes) == (objects, bytes)
            && !self.overlay_written(group, plane);
        if let (true, Some(parent)) = (untouched, overlay.row.parent) {
            return Ok(parent);
        }
        if plane.stack.len() >= STACK_LEN_MAX {
            return self.copy_flat(group, plane, revision);
        }
        let sealed = overlay.row.id;
        overlay.row.state = SpaceState::Sealed;
        (overlay.row.objects, overlay.row.bytes) = (objects, bytes);
        group.put_space(overlay);
        let id = space_id(revision, 0);
        self.add_space(
            group,
            SpaceRow {
                id,
                parent: Some(sealed),
                state: SpaceState::Open,
                digest: SmolStr::default(),
                layer: SmolStr::default(),
                objects,
                bytes,
            },
        );
        let stack: Vec<SpaceId> = std::iter::once(id).chain(plane.stack.iter().copied()).collect();
        group.put_plane(replaced(plane, stack.into(), plane.limits));
        Ok(sealed)
    }

    /// The plane is so deep that reading through one more layer would crawl: copies what it holds into a layer that
    /// stands on nothing. Takes as long as there are objects; the plane itself stays as it is.
    fn copy_flat(
        &self,
        group: &mut Group,
        plane: &Arc<Plane>,
        revision: Revision,
    ) -> Result<SpaceId, CommitError> {
        let failed = |error| CommitError::Engine(Arc::new(error));
        let resources = u32::try_from(self.shared.resources.read().len()).unwrap_or(u32::MAX);
        let mut visible: BTreeMap<(ResourceId, ObjectName), Record> = BTreeMap::new();
        for resource in (0..resources).map(ResourceId) {
            let mut scan = StackScan::new(&self.shared, &plane.stack, resource, None, None, Revision::NEWEST);
            while let Some(object) = scan.next().map_err(failed)? {
                visible.insert((resource, object.name.clone()), object.record.clone());
            }
        }
        for (key, object) in group.objects.iter().filter(|(key, _)| key.plane == plane.id) {
            let place = (key.resource, key.name.clone());
            match object {
                Some(object) => drop(visible.insert(place, object.record.clone())),
                None => drop(visible.remove(&place)),
            }
        }
        let row = SpaceRow {
            id: space_id(revision, 0),
            parent: None,
            state: SpaceState::Sealed,
            digest: SmolStr::default(),
            layer: SmolStr::default(),
            objects: visible.len() as u64,
            bytes: visible.values().map(|record| record.len() as u64).sum(),
        };
        let id = row.id;
        for ((resource, name), record) in visible {
            let (space, plane) = (id, NO_PLANE);
            let entry = LogEntry { revision, plane, space, resource, name, deleted: false, previous: None };
            group.batch.objects.push(ObjectWrite { entry, record: Some(record) });
        }
        self.add_space(group, row);
        Ok(id)
    }

    /// Whether the overlay holds any version at all: equal counts alone do not prove that nothing changed.
    fn overlay_written(&self, group: &Group, plane: &Plane) -> bool {
        let space = plane.overlay();
        if group.batch.objects.iter().any(|write| write.entry.space == space) {
            return true;
        }
        // When in doubt, seal: that is always correct.
        !self.shared.reader.is_empty(space).unwrap_or(false)
    }

    #[expect(clippy::too_many_arguments, reason = "one row's worth of facts, used in two places")]
    fn add_plane(
        &self,
        group: &mut Group,
        id: PlaneId,
        name: PlaneName,
        parent: Option<SpaceId>,
        limits: Limits,
        version_offset: u64,
        floor: Revision,
    ) -> Arc<Plane> {
        let mut stack = vec![space_id(floor, 1)];
        let mut next = parent;
        while let Some(space) = next {
            stack.push(space);
            next = self.space(group, space).row.parent;
        }
        let (objects, bytes) = parent.map_or((0, 0), |parent| {
            let row = self.space(group, parent).row;
            (row.objects, row.bytes)
        });
        self.add_space(
            group,
            SpaceRow {
                id: stack[0],
                parent,
                state: SpaceState::Open,
                digest: SmolStr::default(),
                layer: SmolStr::default(),
                objects,
                bytes,
            },
        );
        let usage = Arc::new(Usage::default());
        let plane = Arc::new(Plane { id, name, stack: stack.into(), floor, version_offset, limits, usage });
        group.usage.insert(id, (objects, bytes));
        group.plane_names.insert(plane.name.as_str().into(), Some(id));
        group.put_plane(plane.clone());
        plane
    }

    fn add_space(&self, group: &mut Group, row: SpaceRow) {
        if let Some(parent) = row.parent {
            let mut parent = self.space(group, parent);
            parent.children += 1;
            group.spaces.insert(parent.row.id, parent);
        }
        group.put_space(Space { row, children: 0 });
    }

    /// Marks a space for removal, and every parent that nothing else stands on.
    fn drop_space(&self, group: &mut Group, id: SpaceId) {
        let mut space = self.space(group, id);
        space.row.state = SpaceState::Dropped;
        let parent = space.row.parent;
        group.put_space(space);
        if let Some(parent) = parent {
            let mut parent_space = self.space(group, parent);
            parent_space.children = parent_space.children.saturating_sub(1);
            group.spaces.insert(parent, parent_space);
            self.drop_if_unused(group, parent);
        }
    }

    fn drop_if_unused(&self, group: &mut Group, id: SpaceId) {
        let Space { row, children } = self.space(group, id);
        let pinned = row.state != SpaceState::Sealed || !row.layer.is_empty() || Some(id) == self.base;
        if children == 0 && !pinned {
            self.drop_space(group, id);
        }
    }

    /// One row per touched plane, with its new counts.
    fn write_usage(&self, group: &mut Group) {
        let touched: Vec<PlaneId> = group.usage.keys().chain(group.planes.keys()).copied().collect();
        let mut written = hashbrown::HashSet::new();
        for id in touched {
            if !written.insert(id) {
                continue;
            }
            let Some(plane) = self.plane(group, id) else { continue };
            let (objects, bytes) = group.usage_of(&plane);
            group.batch.planes.push(PlaneWrite::Put(PlaneRow {
                id,
                name: plane.name.as_str().into(),
                space: plane.overlay(),
                floor: plane.floor,
                version_offset: plane.version_offset,
                limits: plane.limits,
                objects,
                bytes,
            }));
        }
    }

    /// The newest version of an object, this group's own decisions included.
    fn latest(&self, group: &Group, key: &Key) -> Result<Option<Arc<StoredObject>>, CommitError> {
        // The plane first: when this group deletes it, its objects are still cached.
        let plane = self.plane(group, key.plane).ok_or(CommitError::NoPlane)?;
        if let Some(decided) = group.objects.get(key) {
            return Ok(decided.clone());
        }
        if let Lookup::Found(object, _) = self.shared.cache.get(key.plane, key.resource, &key.name) {
            return Ok(object);
        }
        let found = self.shared.find(&plane.stack, key.resource, &key.name, Revision::NEWEST);
        found.map_err(|error| CommitError::Engine(Arc::new(error)))
    }

    fn plane(&self, group: &Group, id: PlaneId) -> Option<Arc<Plane>> {
        match group.planes.get(&id) {
            Some(decided) => decided.clone(),
            None => self.shared.planes.read().by_id.get(&id).cloned(),
        }
    }

    fn check_name_free(&self, group: &Group, name: &PlaneName) -> Result<(), CommitError> {
        let taken = match group.plane_names.get(name.as_str()) {
            Some(decided) => decided.is_some(),
            None => self.shared.planes.read().by_name.contains_key(name.as_str()),
        };
        if taken { Err(CommitError::PlaneExists(name.clone())) } else { Ok(()) }
    }

    fn layer(&self, group: &Group, name: &SmolStr) -> Option<SpaceId> {
        match group.layers.get(name) {
            Some(decided) => *decided,
            None => self.layers.get(name).copied(),
        }
    }

    fn space(&self, group: &Group, id: SpaceId) -> Space {
        let known = group.spaces.get(&id).or_else(|| self.spaces.get(&id));
        known.cloned().expect("a stack names only spaces that exist: checked at open, kept by every change")
    }

    fn new_group(&self) -> Group {
        let batch = Batch { first: self.current.next(), last: self.current, ..Batch::default() };
        Group { batch, ..Group::default() }
    }

    fn next_revision(&self, group: &Group) -> Revision {
        group.batch.last.next()
    }

    // Chores: what happens between groups.

    fn has_chores(&self) -> bool {
        let some = !self.dropping.is_empty()
            || !self.settling.is_empty()
            || self.history.floor > self.history.compacted;
        some && !self.chores_paused
    }

    fn do_chore(&mut self) {
        if self.history.floor > self.history.compacted {
            if let Err(error) = self.compact_a_little() {
                tracing::error!(error = %chain(&error), "compaction failed");
                self.chores_paused = true;
            }
        } else if let Some(&space) = self.dropping.front() {
            match self.engine.drop_space(space) {
                Ok(false) => {}
                Ok(true) => drop(self.dropping.pop_front()),
                Err(error) => {
                    tracing::error!(error = %chain(&error), space = space.0, "cannot remove a dropped space");
                    self.dropping.rotate_left(1);
                    self.chores_paused = true;
                }
            }
        }
        if self.dropping.is_empty() {
            for reply in self.settling.drain(..) {
                reply.send(()).ok();
            }
        }
    }

    fn compact_fully(&mut self) -> Result<(), CommitError> {
        while self.history.floor > self.history.compacted {
            self.compact_a_little().map_err(|error| CommitError::Engine(Arc::new(error)))?;
        }
        Ok(())
    }

    fn compact_a_little(&mut self) -> Result<(), EngineError> {
        let floor = self.history.floor;
        // Readers are told before anything disappears, so that nobody trusts half a history.
        self.shared.set_compacted(floor);
        self.history.compacted = self.engine.compact(floor)?;
        Ok(())
    }

    fn tick(&mut self) {
        self.chores_paused = false;
        let now = Instant::now();
        let history = &mut self.history;
        if history.marks.back().is_none_or(|(at, _)| now.duration_since(*at) >= history.keep / 30) {
            history.marks.push_back((now, self.current));
        }
        let mut floor = history.floor;
        while let Some((at, revision)) = history.marks.front() {
            if now.duration_since(*at) < history.keep {
                break;
            }
            floor = *revision;
            history.marks.pop_front();
        }
        history.floor =
            history.floor.max(floor.min(Revision(self.current.0.saturating_sub(history.len_min))));
    }
}

impl Group {
    fn usage_of(&self, plane: &Plane) -> (u64, u64) {
        self.usage.get(&plane.id).copied().unwrap_or_else(|| (plane.usage.objects(), plane.usage.bytes()))
    }

    fn put_space(&mut self, space: Space) {
        self.batch.spaces.retain(|row| row.id != space.row.id);
        self.batch.spaces.push(space.row.clone());
        self.spaces.insert(space.row.id, space);
    }

    fn put_plane(&mut self, plane: Arc<Plane>) {
        self.planes.insert(plane.id, Some(plane));
    }
}

/// Spaces are numbered by the commit that makes them, so that no number is ever used again. A commit makes at most
/// one overlay for an existing plane (0) and one space for a new plane or layer (1).
fn space_id(revision: Revision, index: u64) -> SpaceId {
    SpaceId(revision.0 * 2 + index)
}

fn replaced(plane: &Plane, stack: Box<[SpaceId]>, limits: Limits) -> Arc<Plane> {
    Arc::new(Plane {
        id: plane.id,
        name: plane.name.clone(),
        stack,
        floor: plane.floor,
        version_offset: plane.version_offset,
        limits,
        usage: plane.usage.clone(),
    })
}

fn check(key: &Key, expect: Expect, found: Option<&Arc<StoredObject>>) -> Result<(), CommitError> {
    let holds = match (expect, found) {
        (Expect::Anything, _) | (Expect::Absent, None) => true,
        (Expect::At(revision), Some(found)) => found.revision == revision,
        (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
    };
    if holds { Ok(()) } else { Err(CommitError::Conflict { key: key.clone(), found: found.cloned() }) }
}

/// Only growth is refused, over the whole change: a plane over its limit can always be cleaned up.
fn check_limits(limits: Limits, before: (u64, u64), after: (u64, u64)) -> Result<(), CommitError> {
    for (what, limit, before, after) in
        [("objects", limits.objects, before.0, after.0), ("stored bytes", limits.bytes, before.1, after.1)]
    {
        if limit > 0 && after > limit && after > before {
            return Err(CommitError::LimitReached { what, limit });
        }
    }
    Ok(())
}

/// An error with its causes, for the one place that logs it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
