//! Merging layers. Every fork of a plane that has changed seals one more layer below it, so a plane that is forked
//! again and again for years would read through more and more of them. In the background eight layers at a time become
//! one, and eight of those one of the next level: a stack grows with the logarithm of the number of forks, and what
//! a layer holds is copied once for each level.
//!
//! Only layers that were sealed before the oldest kept revision are merged. Whatever is read then, at any revision,
//! is the newest version in them: the merged layer needs no history, and its versions keep their revisions. While it is
//! being filled it is marked as dropped, so that a crash leaves nothing behind. Then it takes the
//! place of the others, all at once; nobody sees a difference, so that is no commit. Whoever else stands on one of those keeps it, and what nobody stands on any more is dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashSet;
use polder_model::{PlaneId, SmolStr};

use super::group::Space;
use super::planes::replaced;
use super::{Committer, chain};
use crate::engine::{EngineError, FilledVersion, SpaceRow, SpaceState};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::plane::Plane;
use crate::scan::StackScan;

/// Layers of one level that become one of the next.
const RUN_LEN: usize = 8;
/// A layer that more planes stand on is not replaced: they would all have to be written at once.
const TOP_CHILDREN_MAX: u32 = 64;
/// Versions copied between two groups of commits, and resources looked through for them.
const STEP_LEN: usize = 128;
const STEP_RESOURCES_LEN: u32 = 64;
/// Where the numbers of merged layers begin.
const MERGED_IDS: u64 = 1 << 62;
/// Planes looked at between two groups.
const STEP_PLANES_LEN: usize = 64;

/// Which planes may have layers to merge, and the merge that is under way.
#[derive(Default)]
pub(super) struct Merging {
    /// Planes with so many layers that some may be merged, now or when they are older.
    deep: HashSet<PlaneId>,
    /// Those that have to be looked at.
    queue: VecDeque<PlaneId>,
    current: Option<Merge>,
    /// Merges so far, to number them.
    count: u64,
}

struct Merge {
    plane: PlaneId,
    /// The layers, from the top down.
    run: Vec<SpaceId>,
    into: SpaceRow,
    level: u8,
    resource: u32,
    after: Option<ObjectName>,
}

impl Merging {
    /// A plane has this stack now, and it has to be looked at.
    pub(super) fn note(&mut self, plane: &Plane) {
        if self.note_quietly(plane) {
            self.queue.push_back(plane.id);
        }
    }

    /// A plane has this stack now; true when it is deep.
    pub(super) fn note_quietly(&mut self, plane: &Plane) -> bool {
        let deep = plane.stack.len() > RUN_LEN;
        if deep {
            self.deep.insert(plane.id);
        } else {
            self.deep.remove(&plane.id);
        }
        deep
    }

    pub(super) fn forget(&mut self, plane: PlaneId) {
        self.deep.remove(&plane);
    }

    /// Layers have become old enough.
    pub(super) fn look_again(&mut self) {
        self.queue.clear();
        self.queue.extend(&self.deep);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty()
    }
}

impl Committer {
    /// A bounded part of what there is to merge.
    pub(super) fn merge_a_little(&mut self) -> Result<(), EngineError> {
        let Some(mut merge) = self.merging.current.take() else {
            for _ in 0..STEP_PLANES_LEN {
                let Some(plane) = self.merging.queue.pop_front() else { break };
                if let Some((run, level)) = self.find_run(plane) {
                    let merge = self.begin_merge(plane, run, level)?;
                    self.merging.current = Some(merge);
                    break;
                }
            }
            return Ok(());
        };
        match self.copy_some(&mut merge) {
            Ok(true) => self.end_merge(merge),
            Ok(false) => {
                self.merging.current = Some(merge);
                Ok(())
            }
            Err(error) => {
                self.merging.current = Some(merge);
                Err(error)
            }
        }
    }

    /// The layers of a plane to merge next, from the top down, and their level. The lowest ones first: more planes
    /// stand on them.
    fn find_run(&self, plane: PlaneId) -> Option<(Vec<SpaceId>, u8)> {
        let plane = self.shared.planes.read().by_id.get(&plane).cloned()?;
        let levels: Vec<Option<u8>> = plane.stack[1..].iter().map(|id| self.level_if_old(*id)).collect();
        let same_level = |window: &[Option<u8>]| window.iter().all(|level| *level == window[0]);
        let fits = |index: usize| self.spaces[&plane.stack[index + 1]].children <= TOP_CHILDREN_MAX;
        let runs = levels.windows(RUN_LEN).enumerate().rev();
        let run = runs
            .filter(|(_, window)| same_level(window))
            .filter_map(|(index, window)| Some((window[0]?, index)))
            .filter(|(_, index)| fits(*index))
            .min_by_key(|(level, _)| *level);
        run.map(|(level, index)| (plane.stack[index + 1..][..RUN_LEN].to_vec(), level))
    }

    /// The level of a layer that may be merged.
    fn level_if_old(&self, id: SpaceId) -> Option<u8> {
        let Space { row, sealed_at, level, .. } = self.spaces.get(&id)?;
        let layer = row.state == SpaceState::Sealed && row.digest.is_empty() && row.layer.is_empty();
        (layer && *sealed_at <= self.history.compacted).then_some(*level)
    }

    fn begin_merge(&mut self, plane: PlaneId, run: Vec<SpaceId>, level: u8) -> Result<Merge, EngineError> {
        let mut group = self.new_group();
        let bottom = run.last().and_then(|id| self.spaces.get(id));
        let into = SpaceRow {
            id: self.merged_id(),
            parent: bottom.and_then(|space| space.row.parent),
            state: SpaceState::Dropped,
            digest: SmolStr::default(),
            ..self.spaces[&run[0]].row.clone()
        };
        group.put_space(Space::new(into.clone()));
        self.finish(group).map_err(|error| EngineError::Failed(Box::new(error)))?;
        self.merging.count = (self.merging.count + 1) % (1 << 15);
        // It is removed only if it comes to nothing.
        self.dropping.retain(|id| *id != into.id);
        Ok(Merge { plane, run, into, level, resource: 0, after: None })
    }

    /// A number for a merged layer. Merging is no commit, so it has none of the numbers that commits give.
    fn merged_id(&self) -> SpaceId {
        let first = MERGED_IDS | self.current.0 << 16;
        let taken = |id: &SpaceId| self.spaces.contains_key(id) || self.dropping.contains(id);
        let mut ids = (first + self.merging.count..).map(SpaceId);
        ids.find(|id| !taken(id)).expect("a space has one of finitely many numbers")
    }

    /// Copies the next versions; true when there are none left.
    fn copy_some(&mut self, merge: &mut Merge) -> Result<bool, EngineError> {
        let resources = u32::try_from(self.shared.resources.read().len()).unwrap_or(u32::MAX);
        for _ in 0..STEP_RESOURCES_LEN {
            if merge.resource >= resources {
                return Ok(true);
            }
            let (resource, after) = (ResourceId(merge.resource), merge.after.clone());
            let mut scan = StackScan::new(&*self.reader, &merge.run, resource, None, after, Revision::NEWEST);
            scan.set_chunk(STEP_LEN, usize::MAX);
            let mut last = None;
            let (mut found, mut versions) = (0, Vec::new());
            while found < STEP_LEN
                && let Some((name, version, _)) = scan.next_version()?
            {
                found += 1;
                last = Some(name.clone());
                // Where nothing is below there is nothing to hide.
                if version.record.is_some() || merge.into.parent.is_some() {
                    versions.push(FilledVersion { resource, name, version });
                }
            }
            if !versions.is_empty() {
                self.engine.fill(merge.into.id, &versions)?;
            }
            if found < STEP_LEN {
                (merge.resource, merge.after) = (merge.resource + 1, None);
            } else {
                merge.after = last;
            }
            if found > 0 {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Puts the merged layer in the place of those it was made of.
    fn end_merge(&mut self, merge: Merge) -> Result<(), EngineError> {
        let (top, into) = (merge.run[0], merge.into.id);
        let children = self.children(top);
        let known = self.spaces.get(&top).map_or(0, |space| space.children as usize);
        if known == 0 || known != children.len() || merge.run.iter().any(|id| !self.spaces.contains_key(id)) {
            // Somebody deleted the planes above meanwhile.
            self.dropping.push_back(into);
            return Ok(());
        }
        let mut group = self.new_group();
        self.add_space(&mut group, SpaceRow { state: SpaceState::Sealed, ..merge.into.clone() });
        let mut merged = self.space(&group, into);
        merged.level = merge.level.saturating_add(1);
        merged.children = u32::try_from(children.len()).unwrap_or(u32::MAX);
        group.put_space(merged);
        for child in children {
            let mut child = self.space(&group, child);
            child.row.parent = Some(into);
            group.put_space(child);
        }
        let mut replaced_top = self.space(&group, top);
        replaced_top.children = 0;
        group.spaces.insert(top, replaced_top);
        self.drop_if_unused(&mut group, top);
        group.restacked = self.restacked(&merge);
        let outcome = self.finish(group);
        if let Err(error) = outcome {
            tracing::error!(error = %chain(&error), "layers were not merged");
            self.dropping.push_back(into);
            return Err(EngineError::Failed(Box::new(error)));
        }
        self.merging.queue.push_back(merge.plane);
        Ok(())
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
        children
    }

    /// The planes that read through a run of layers, with the merged one instead.
    fn restacked(&self, merge: &Merge) -> Vec<Arc<Plane>> {
        let planes = self.shared.planes.read();
        let deep = self.merging.deep.iter().filter_map(|id| planes.by_id.get(id));
        deep.filter_map(|plane| {
            let at = plane.stack.iter().position(|id| *id == merge.run[0])?;
            let (above, below) = (&plane.stack[..at], plane.stack.get(at + merge.run.len()..)?);
            let stack = [above, &[merge.into.id], below].concat();
            Some(replaced(plane, stack.into(), plane.limits))
        })
        .collect()
    }
}
