//! From what an engine remembers to a committer that can go on, and the base layer new planes stand on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hashbrown::HashMap;
use polder_model::{GroupResource, PlaneId, PlaneName, SmolStr, format_smolstr};

use super::chores::History;
use super::group::{Group, Space};
use super::layers::{STACK_LEN_MAX, space_id};
use super::merge::{Merging, sources_of};
use super::waiting::Waiting;
use super::{Committer, NO_PLANE};
use crate::change::{Change, CommitError, Expect};
use crate::engine::{
    Engine, EngineError, LogEntry, Names as _, ObjectWrite, PlaneRow, Recovered, SpaceRow, SpaceState,
};
use crate::key::{Key, ObjectName, ResourceId, SpaceId};
use crate::noting::Noting;
use crate::object::Record;
use crate::plane::{Limits, Plane, Profile, Usage};
use crate::read::find;
use crate::replica::check_alone;
use crate::shared::Shared;
use crate::store::{Beginning, CoreLookup, StoreOptions};

/// The objects of a base.
type BaseObjects = Vec<(ResourceId, ObjectName, Record)>;

/// What planes that this version makes begin with, by the digest that its bases have.
pub(super) struct OwnBases {
    digest: SmolStr,
    objects: HashMap<Profile, BaseObjects>,
}

impl Committer {
    pub(crate) fn new(
        engine: Box<dyn Engine>,
        shared: Arc<Shared>,
        options: &StoreOptions,
        recovered: Recovered,
    ) -> Result<Committer, EngineError> {
        check_alone(&recovered.notes)?;
        if !recovered.notes.is_empty() {
            return Err(EngineError::Failed(
                "it has keys for sealed records, and was opened without them".into(),
            ));
        }
        let mut committer = Committer {
            reader: Arc::new(Noting::new(engine.own_reader(), shared.damaged.clone())),
            bounds: engine.bounds(),
            engine,
            waiting: Waiting::new(),
            shared,
            spaces: HashMap::with_capacity(recovered.spaces.len()),
            layers: HashMap::new(),
            bases: HashMap::new(),
            own_bases: None,
            is_baseless: false,
            current: recovered.current,
            dropping: VecDeque::new(),
            filling: HashMap::new(),
            history: History {
                marks: VecDeque::from([(Instant::now(), recovered.current)]),
                keep: options.history,
                len_min: options.history_len_min,
                floor: recovered.compacted,
                compacted: recovered.compacted,
            },
            merging: Merging::default(),
            settling: Vec::new(),
            engine_chores: true,
            chores_paused: false,
            stopped: false,
        };
        for row in recovered.spaces {
            if row.state == SpaceState::Dropped {
                committer.dropping.push_back(row.id);
            } else if row.state == SpaceState::Filling {
                committer.filling.insert(row.id, sources_of(&row));
            } else {
                if !row.layer.is_empty() {
                    committer.layers.insert(row.layer.clone(), row.id);
                }
                if !row.digest.is_empty() {
                    committer.shared.planes.write().bases.insert(row.id);
                }
                let sealed_at = recovered.current;
                committer.spaces.insert(row.id, Space { sealed_at, ..Space::new(row) });
            }
        }
        let parents: Vec<SpaceId> = committer.spaces.values().filter_map(|space| space.row.parent).collect();
        for parent in parents {
            let space = committer.spaces.get_mut(&parent);
            let space =
                space.ok_or_else(|| EngineError::Damaged(format!("layer {} is missing", parent.0)))?;
            space.children += 1;
        }
        let group = Group::default();
        for row in recovered.planes {
            let plane = committer.plane_from_row(&group, row)?;
            committer.merging.note(&plane);
            committer.shared.planes.write().insert(Arc::new(plane));
        }
        Ok(committer)
    }

    /// A plane as a row tells it, with counters of its own.
    pub(super) fn plane_from_row(&self, group: &Group, row: PlaneRow) -> Result<Plane, EngineError> {
        let damaged = |what: &str| EngineError::Damaged(format!("plane {:?}: {what}", row.name));
        let name: PlaneName = row.name.parse().map_err(|_| damaged("bad name"))?;
        let stack =
            self.stack_from(group, row.space).ok_or_else(|| damaged("its layers are not all there"))?;
        let bottom = stack.last().map(|bottom| self.space(group, *bottom).row);
        let profile = bottom.map_or(Profile::default(), |bottom| Profile::of_base(&bottom.digest));
        let usage = Usage::default();
        usage.objects.store(row.objects, Ordering::Relaxed);
        usage.bytes.store(row.bytes, Ordering::Relaxed);
        usage.set_last_change(row.last_change);
        Ok(Plane {
            id: row.id,
            name,
            stack: stack.into(),
            floor: row.floor,
            version_offset: row.version_offset,
            limits: row.limits,
            profile,
            usage: Arc::new(usage),
        })
    }

    /// A space and all it stands on, if they are there and the way has an end.
    pub(super) fn stack_from(&self, group: &Group, overlay: SpaceId) -> Option<Vec<SpaceId>> {
        let mut stack = Vec::new();
        let mut next = Some(overlay);
        while let Some(id) = next {
            let space = group.spaces.get(&id).or_else(|| self.spaces.get(&id))?;
            // A fork has one more space than its source may have.
            if stack.len() > STACK_LEN_MAX + 1 {
                return None;
            }
            stack.push(id);
            next = space.row.parent;
        }
        Some(stack)
    }

    /// Lets go of what nobody stands on: the bases of earlier versions when their last plane is gone.
    fn drop_unused(&self, group: &mut Group) {
        let unused = self.spaces.values().filter(|space| space.children == 0);
        for id in unused.map(|space| space.row.id).collect::<Vec<_>>() {
            self.drop_if_unused(group, id);
        }
    }

    /// Makes the base layers and the core plane when they are missing. An empty digest means that there is no base:
    /// new planes start empty. A profile that begins with nothing has none either, but for the first one.
    pub(crate) fn begin<'a>(
        &mut self,
        mut begin: impl FnMut(&CoreLookup<'_>) -> Result<Beginning<'a>, EngineError>,
    ) -> Result<(), EngineError> {
        let shared = self.shared.clone();
        let resource_id = |name: &GroupResource| shared.resource_id(name);
        loop {
            self.catch_up()?;
            let Beginning { digest, base, core } = begin(&|resource, name| self.core_record(resource, name))?;
            let objects = |profile: Profile| base(profile, &resource_id);
            if self.engine.horizon().is_some() && !digest.is_empty() {
                let objects = Profile::ALL.into_iter().map(|profile| (profile, objects(profile))).collect();
                self.own_bases = Some(OwnBases { digest: digest.as_str().into(), objects });
            }
            // Only at the start: two versions side by side would drop what the other makes for ever.
            let mut group = self.new_group();
            self.find_bases(&digest);
            self.drop_unused(&mut group);
            let core = core.map(|(resource, name, record)| (resource_id(&resource), name, record));
            match self.make_bases(group, &digest, &objects, core) {
                // Another replica began at the same time: perhaps it has made them.
                Err(EngineError::Overtaken) => {}
                outcome => return outcome,
            }
        }
    }

    fn core_record(
        &self,
        resource: &GroupResource,
        name: &ObjectName,
    ) -> Result<Option<Record>, EngineError> {
        let core = self.shared.planes.read().by_id.get(&PlaneId::CORE).cloned();
        let resource = self.shared.resources.read().find(resource);
        let (Some(core), Some(resource)) = (core, resource) else { return Ok(None) };
        let found = find(&*self.reader, &core.stack, resource, name, self.current)?;
        Ok(found.map(|found| found.record.clone()))
    }

    /// Makes again what another replica has dropped, because it is of another version and nothing stood on it.
    pub(super) fn remake_bases(&mut self) -> Result<(), EngineError> {
        if !self.is_baseless {
            return Ok(());
        }
        let Some(own) = self.own_bases.take() else { return Ok(()) };
        let objects = |profile: Profile| own.objects.get(&profile).cloned().unwrap_or_default();
        self.find_bases(&own.digest);
        let made = self.make_bases(self.new_group(), &own.digest, &objects, None);
        self.own_bases = Some(own);
        made?;
        self.is_baseless = false;
        Ok(())
    }

    fn find_bases(&mut self, digest: &str) {
        self.bases.clear();
        for profile in profiles_with(digest) {
            let digest = format!("{}{digest}", profile.mark());
            let found = self.spaces.values().find(|space| space.row.digest == digest);
            if let Some(found) = found.map(|space| space.row.id) {
                self.bases.insert(*profile, found);
            }
        }
    }

    /// Makes those that were not found.
    fn make_bases(
        &mut self,
        mut group: Group,
        digest: &str,
        objects: &impl Fn(Profile) -> BaseObjects,
        core: Option<(ResourceId, ObjectName, Record)>,
    ) -> Result<(), EngineError> {
        let mut made = Vec::new();
        for profile in profiles_with(digest) {
            if self.bases.contains_key(profile) {
                continue;
            }
            let objects = objects(*profile);
            if !objects.is_empty() || *profile == Profile::default() {
                made.push(self.add_base(&mut group, *profile, digest, objects));
            }
        }
        if self.shared.planes.read().by_id.get(&PlaneId::CORE).is_none() {
            let revision = self.next_revision(&group);
            let parent = self.bases.get(&Profile::default()).copied();
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
        if let Some((resource, name, record)) = core {
            let key = Key { plane: PlaneId::CORE, resource, name };
            match self.plan(&mut group, &Change::put(key, record, Expect::Absent)) {
                Ok(_) | Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(EngineError::Failed(Box::new(error))),
            }
        }
        self.finish_rows(group)?;
        self.shared.planes.write().bases.extend(made);
        Ok(())
    }

    fn add_base(
        &mut self,
        group: &mut Group,
        profile: Profile,
        digest: &str,
        objects: BaseObjects,
    ) -> SpaceId {
        let revision = self.next_revision(group);
        let row = SpaceRow {
            id: space_id(revision, 0),
            parent: None,
            state: SpaceState::Sealed,
            digest: format_smolstr!("{}{digest}", profile.mark()),
            layer: SmolStr::default(),
            objects: objects.len() as u64,
            bytes: objects.iter().map(|(_, _, record)| record.len() as u64).sum(),
        };
        for (resource, name, record) in objects {
            let (space, plane) = (row.id, NO_PLANE);
            let entry = LogEntry {
                revision,
                plane,
                space,
                resource,
                name,
                deleted: false,
                previous: None,
                before: None,
            };
            group.batch.objects.push(ObjectWrite { entry, record: Some(record) });
        }
        group.batch.last = revision;
        let id = row.id;
        self.bases.insert(profile, id);
        group.put_space(Space::new(row));
        id
    }
}

/// No digest, no base: other spaces have none either.
fn profiles_with(digest: &str) -> &'static [Profile] {
    if digest.is_empty() { &[] } else { &Profile::ALL }
}
