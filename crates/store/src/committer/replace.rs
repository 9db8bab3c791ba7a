//! Putting a merged layer in the place of those it was made of, a bounded part at a time however many planes stand
//! on them.
//!
//! What stands on the top layer is put on the merged one, some rows at a time. Then the planes above read through the
//! merged layer, some at a time. Then the top layer is let go of; whoever else stands on one of those below keeps it.
//! In between some stand on the old layers and some on the merged one, which hold the same. That is also what a crash
//! leaves.
//!
//! Invariant: a plane reads through a merged layer only after its row leads there, and until the last one does the top
//! layer is held ([`super::merge::Merging::holds`]).

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashSet;
use polder_model::{PlaneId, SmolStr};

use super::Committer;
use super::group::Space;
use super::merge::Merge;
use super::planes::replaced;
use crate::engine::{EngineError, SpaceRow, SpaceState};
use crate::key::SpaceId;
use crate::plane::Plane;

/// A layer that has been filled, and has no name.
fn sealed(filled: &SpaceRow) -> SpaceRow {
    SpaceRow { state: SpaceState::Sealed, layer: SmolStr::default(), ..filled.clone() }
}

/// Spaces put on the merged layer between two groups of commits.
const STEP_SPACES_LEN: usize = 64;
/// Planes that read through it from then on.
const STEP_PLANES_LEN: usize = 256;

/// How far a merged layer has taken its place.
#[derive(Default)]
pub(super) struct Replacing {
    /// What stands on the top layer and has to be moved.
    children: VecDeque<SpaceId>,
    /// The planes that read through the old layers, once nothing stands on them any more.
    planes: Option<VecDeque<PlaneId>>,
}

impl Committer {
    /// Goes on putting a merged layer in its place; true when that is done.
    pub(super) fn replace_some(
        &mut self,
        merge: &Merge,
        replacing: &mut Replacing,
    ) -> Result<bool, EngineError> {
        if let Some(planes) = &mut replacing.planes {
            if planes.is_empty() {
                return self.let_go(merge).map(|()| true);
            }
            let some: Vec<PlaneId> = planes.drain(..STEP_PLANES_LEN.min(planes.len())).collect();
            self.restack(merge, &some);
            return Ok(false);
        }
        if replacing.children.is_empty() {
            replacing.children = self.children(merge.run[0]).into_iter().collect();
        }
        if replacing.children.is_empty() {
            replacing.planes = Some(self.planes_above(merge.run[0]));
            return Ok(false);
        }
        let len = STEP_SPACES_LEN.min(replacing.children.len());
        let some: Vec<SpaceId> = replacing.children.range(..len).copied().collect();
        self.move_children(merge, &some)?;
        replacing.children.drain(..len);
        Ok(false)
    }

    /// Puts spaces that stand on the top layer on the merged one. Some of them may be gone by now.
    fn move_children(&mut self, merge: &Merge, children: &[SpaceId]) -> Result<(), EngineError> {
        let (top, into) = (merge.run[0], merge.into.id);
        let mut group = self.new_group();
        group.batch.floor = self.history.compacted;
        if !self.spaces.contains_key(&into) {
            self.add_space(&mut group, sealed(&merge.into));
        }
        let (mut old, mut merged) = (self.space(&group, top), self.space(&group, into));
        merged.level = merge.level.saturating_add(1);
        for child in children {
            let Some(child) = self.spaces.get(child).filter(|child| child.row.parent == Some(top)) else {
                continue;
            };
            let row = SpaceRow { parent: Some(into), ..child.row.clone() };
            group.put_space(Space { row, ..child.clone() });
            old.children = old.children.saturating_sub(1);
            merged.children += 1;
        }
        group.spaces.insert(top, old);
        group.spaces.insert(into, merged);
        self.finish_rows(group)
    }

    /// Lets planes read through the merged layer.
    fn restack(&mut self, merge: &Merge, planes: &[PlaneId]) {
        let mut table = self.shared.planes.write();
        for id in planes {
            let Some(plane) = table.by_id.get(id).and_then(|plane| self.restacked(merge, plane)) else {
                continue;
            };
            self.merging.note_quietly(&plane);
            table.insert(plane);
        }
    }

    /// A plane with the merged layer in the place of those it was made of.
    fn restacked(&self, merge: &Merge, plane: &Plane) -> Option<Arc<Plane>> {
        let at = plane.stack.iter().position(|id| *id == merge.run[0])?;
        let above = &plane.stack[..at];
        let stands_on = self.spaces.get(above.last()?)?.row.parent;
        if stands_on != Some(merge.into.id) {
            return None;
        }
        let below = plane.stack.get(at + merge.run.len()..)?;
        let stack = [above, &[merge.into.id], below].concat();
        Some(replaced(plane, stack.into(), plane.limits))
    }

    /// Nobody needs the layers any more that were held so far, unless something new stands on them.
    fn let_go(&mut self, merge: &Merge) -> Result<(), EngineError> {
        let (top, into) = (merge.run[0], merge.into.id);
        let mut group = self.new_group();
        for id in [top, into] {
            if self.spaces.contains_key(&id) {
                self.drop_if_unused(&mut group, id);
            }
        }
        // Where there was nothing left to put on the merged layer, it is left over.
        self.finish_rows(group)
    }

    /// Everything that stands on a layer. It is below some plane or below a layer with a name; all those planes are deep.
    fn children(&self, parent: SpaceId) -> HashSet<SpaceId> {
        let mut children = HashSet::new();
        let planes = self.shared.planes.read();
        for plane in self.merging.deep.iter().filter_map(|id| planes.by_id.get(id)) {
            let at = plane.stack.iter().position(|id| *id == parent);
            children.extend(at.filter(|at| *at > 0).map(|at| plane.stack[at - 1]));
        }
        for layer in self.layers.values() {
            let mut next = Some(*layer);
            while let Some(id) = next {
                next = self.spaces.get(&id).and_then(|space| space.row.parent);
                if next == Some(parent) {
                    children.insert(id);
                }
            }
        }
        // Some are moved already, and their planes do not read that way yet.
        children.retain(|id| self.spaces.get(id).is_some_and(|space| space.row.parent == Some(parent)));
        children
    }

    fn planes_above(&self, layer: SpaceId) -> VecDeque<PlaneId> {
        let planes = self.shared.planes.read();
        let deep = self.merging.deep.iter().filter_map(|id| planes.by_id.get(id));
        deep.filter(|plane| plane.stack.contains(&layer)).map(|plane| plane.id).collect()
    }
}
