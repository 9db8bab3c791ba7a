//! Spaces: sealing what a plane holds, and letting go of what nobody stands on any more.

use std::sync::Arc;

use polder_model::SmolStr;

use super::Committer;
use super::group::{Group, Space};
use super::planes::replaced;
use crate::change::CommitError;
use crate::engine::{SpaceRow, SpaceState};
use crate::key::{Revision, SpaceId};
use crate::plane::Plane;

/// Spaces a plane may read through. Old layers are merged in the background ([`super::merge`]), so that only planes
/// forked about once a second get here; then they have to wait until their layers are old enough.
pub(super) const STACK_LEN_MAX: usize = 1_024;

impl Committer {
    /// Turns what a plane has written since its last seal into an immutable layer, and gives it an empty overlay.
    /// Returns the layer that now holds the plane's contents.
    pub(super) fn seal_overlay(
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
            return Err(CommitError::TooManyLayers);
        }
        let sealed = overlay.row.id;
        overlay.row.state = SpaceState::Sealed;
        overlay.sealed_at = revision;
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

    /// Whether the overlay holds any version at all: equal counts alone do not prove that nothing changed.
    pub(super) fn overlay_written(&self, group: &Group, plane: &Plane) -> bool {
        let space = plane.overlay();
        if group.batch.objects.iter().any(|write| write.entry.space == space) {
            return true;
        }
        // When in doubt, seal: that is always correct.
        !self.reader.is_empty(space).unwrap_or(false)
    }

    pub(super) fn add_space(&self, group: &mut Group, row: SpaceRow) {
        if let Some(parent) = row.parent {
            let mut parent = self.space(group, parent);
            parent.children += 1;
            group.spaces.insert(parent.row.id, parent);
        }
        group.put_space(Space::new(row));
    }

    /// Marks a space for removal, and every parent that nothing else stands on.
    pub(super) fn drop_space(&self, group: &mut Group, id: SpaceId) {
        let mut space = self.space(group, id);
        space.row.state = SpaceState::Dropped;
        let parent = space.row.parent;
        group.put_space(space);
        // What has been copied of it goes in the same commit, so that no key outlives the plane.
        for copy in self.copies_of(id) {
            group.put_space(Space::new(SpaceRow::dropped(copy)));
        }
        if let Some(parent) = parent {
            let mut parent_space = self.space(group, parent);
            parent_space.children = parent_space.children.saturating_sub(1);
            group.spaces.insert(parent, parent_space);
            self.drop_if_unused(group, parent);
        }
    }

    pub(super) fn drop_if_unused(&self, group: &mut Group, id: SpaceId) {
        let Space { row, children, .. } = self.space(group, id);
        let pinned = row.state != SpaceState::Sealed
            || !row.layer.is_empty()
            || self.bases.values().any(|base| *base == id)
            || self.merging.holds(id);
        if children == 0 && !pinned {
            self.drop_space(group, id);
        }
    }
}

/// Spaces are numbered by the commit that makes them, so that no number is ever used again. A commit makes at most
/// one overlay for an existing plane (0) and one space for a new plane or layer (1).
pub(super) fn space_id(revision: Revision, index: u64) -> SpaceId {
    SpaceId(revision.0 * 2 + index)
}
