//! Planning a change to a plane or layer as a whole. Fails before it touches the group, or not at all.

use std::sync::Arc;

use polder_model::{PlaneId, PlaneName, SmolStr};

use super::Committer;
use super::group::Group;
use super::layers::space_id;
use crate::change::{CommitError, ForkSource, PlaneChange};
use crate::engine::{PlaneWrite, SpaceRow, SpaceState};
use crate::key::{Revision, SpaceId};
use crate::plane::{Limits, Plane, Profile, Usage};

impl Committer {
    pub(super) fn plan_plane(
        &self,
        group: &mut Group,
        change: &PlaneChange,
        revision: Revision,
    ) -> Result<Option<Arc<Plane>>, CommitError> {
        match change {
            PlaneChange::Create { name, limits, profile } => {
                self.check_name_free(group, name)?;
                let (id, parent) = (PlaneId(revision.0), self.bases.get(profile).copied());
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

    #[expect(clippy::too_many_arguments, reason = "one row's worth of facts, used in two places")]
    pub(super) fn add_plane(
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
        let bottom = stack.last().map(|bottom| self.space(group, *bottom).row);
        let profile = bottom.map_or(Profile::default(), |bottom| Profile::of_base(&bottom.digest));
        let stack = stack.into();
        let plane = Arc::new(Plane { id, name, stack, floor, version_offset, limits, profile, usage });
        group.usage.insert(id, (objects, bytes));
        group.plane_names.insert(plane.name.as_str().into(), Some(id));
        group.put_plane(plane.clone());
        plane
    }
}

pub(super) fn replaced(plane: &Plane, stack: Box<[SpaceId]>, limits: Limits) -> Arc<Plane> {
    Arc::new(Plane {
        id: plane.id,
        name: plane.name.clone(),
        stack,
        floor: plane.floor,
        version_offset: plane.version_offset,
        limits,
        profile: plane.profile,
        usage: plane.usage.clone(),
    })
}
