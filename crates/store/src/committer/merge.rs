//! Merging layers. Every fork of a plane that has changed seals one more layer below it, so a plane that is forked
//! again and again for years would read through more and more of them. In the background eight layers at a time become
//! one, and eight of those one of the next level: a stack grows with the logarithm of the number of forks, and what
//! a layer holds is copied once for each level.
//!
//! Only layers that were sealed before the oldest kept revision are merged. Whatever is read then, at any revision,
//! is the newest version in them: the merged layer needs no history, and its versions keep their revisions. While it is
//! being filled it is marked as such, so that a crash leaves nothing behind. Then it takes the place of the others
//! ([`super::replace`]); nobody sees a difference, so that is no commit.
//!
//! All of it happens in steps between two groups of commits, each bounded in what it reads, writes and holds.

use std::collections::VecDeque;

use hashbrown::HashSet;
use polder_model::{PlaneId, SmolStr};

use super::Committer;
use super::group::Space;
use super::replace::Replacing;
use crate::engine::{EngineError, FilledVersion, SpaceRow, SpaceState};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::plane::Plane;
use crate::scan::StackScan;

/// Layers of one level that become one of the next.
const RUN_LEN: usize = 8;
/// What is copied between two groups of commits, one version at least, and resources looked through for it.
const STEP_LEN: usize = 128;
const STEP_BYTES: usize = 1 << 20;
const STEP_RESOURCES_LEN: u32 = 64;
/// Where the numbers of merged layers begin.
const MERGED_IDS: u64 = 1 << 62;
/// Planes looked at between two groups.
const STEP_PLANES_LEN: usize = 64;

/// Which planes may have layers to merge, and the merge that is under way.
#[derive(Default)]
pub(super) struct Merging {
    /// Planes with so many layers that some may be merged, now or when they are older.
    pub(super) deep: HashSet<PlaneId>,
    /// Those that have to be looked at.
    queue: VecDeque<PlaneId>,
    current: Option<Merge>,
    /// Merges so far, to number them.
    count: u64,
}

pub(super) struct Merge {
    plane: PlaneId,
    /// The layers, from the top down.
    pub(super) run: Vec<SpaceId>,
    pub(super) into: SpaceRow,
    pub(super) level: u8,
    /// What is to be copied next: of which resource, and after which name.
    resource: u32,
    after: Option<ObjectName>,
    /// When everything is copied.
    replacing: Option<Replacing>,
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

    /// Whether a layer must stay, though perhaps nothing stands on it: planes that are about to read through the merged
    /// one still read through those below the top.
    pub(super) fn holds(&self, id: SpaceId) -> bool {
        self.current
            .as_ref()
            .is_some_and(|merge| merge.replacing.is_some() && (id == merge.run[0] || id == merge.into.id))
    }

    /// Whether planes may still read through a layer here though none stands on it.
    pub(super) fn reads_through(&self, id: SpaceId) -> bool {
        let merge = self.current.as_ref().filter(|merge| merge.replacing.is_some());
        merge.is_some_and(|merge| merge.run.contains(&id))
    }

    /// Another replica has dropped what is being filled here: it is for that one to go on.
    pub(super) fn give_up(&mut self, into: SpaceId) {
        self.current.take_if(|merge| merge.into.id == into);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty()
    }
}

/// What a layer is filled from, as its row says it while it is being filled: so all replicas know what is copied where.
fn filled_from(run: &[SpaceId]) -> SmolStr {
    run.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(" ").into()
}

/// The same, read.
pub(super) fn sources_of(row: &SpaceRow) -> Vec<SpaceId> {
    row.layer.split(' ').filter_map(|id| id.parse().ok()).map(SpaceId).collect()
}

impl Committer {
    /// The layers that a layer is being copied to, by this replica or another one.
    pub(super) fn copies_of(&self, id: SpaceId) -> Vec<SpaceId> {
        let copies = self.filling.iter().filter(|(_, sources)| sources.contains(&id));
        copies.map(|(copy, _)| *copy).collect()
    }

    /// Whether there is something that somebody began to fill who is not there any more.
    pub(super) fn has_left_overs(&self) -> bool {
        self.left_overs().next().is_some()
    }

    fn left_overs(&self) -> impl Iterator<Item = SpaceId> {
        let own = self.merging.current.as_ref().map(|merge| merge.into.id);
        self.filling.keys().copied().filter(move |id| Some(*id) != own)
    }

    /// A bounded part of what there is to merge.
    pub(super) fn merge_a_little(&mut self) -> Result<(), EngineError> {
        if self.has_left_overs() {
            let mut group = self.new_group();
            let left: Vec<SpaceId> = self.left_overs().take(STEP_PLANES_LEN).collect();
            for id in left {
                group.put_space(Space::new(SpaceRow::dropped(id)));
            }
            return self.finish_rows(group);
        }
        let Some(mut merge) = self.merging.current.take() else {
            for _ in 0..STEP_PLANES_LEN {
                let Some(plane) = self.merging.queue.pop_front() else { break };
                if let Some((run, level)) = self.find_run(plane) {
                    let begun = self.begin_merge(plane, run, level);
                    if begun.is_err() {
                        self.merging.queue.push_back(plane);
                    }
                    self.merging.current = Some(begun?);
                    break;
                }
            }
            return Ok(());
        };
        match self.merge_step(&mut merge) {
            Ok(true) => {
                self.merging.queue.push_back(merge.plane);
                Ok(())
            }
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

    /// One step of a merge; true when it is over.
    fn merge_step(&mut self, merge: &mut Merge) -> Result<bool, EngineError> {
        if let Some(mut replacing) = merge.replacing.take() {
            let over = self.replace_some(merge, &mut replacing);
            merge.replacing = Some(replacing);
            return over;
        }
        if !merge.run.iter().all(|id| self.spaces.contains_key(id)) {
            // Somebody deleted the planes above meanwhile. What was filled is left over.
            return Ok(true);
        }
        if self.copy_some(merge)? {
            merge.replacing = Some(Replacing::default());
        }
        Ok(false)
    }

    /// The layers of a plane to merge next, from the top down, and their level. The lowest ones first: more planes
    /// stand on them.
    fn find_run(&self, plane: PlaneId) -> Option<(Vec<SpaceId>, u8)> {
        let plane = self.shared.planes.read().by_id.get(&plane).cloned()?;
        let levels: Vec<Option<u8>> = plane.stack[1..].iter().map(|id| self.level_if_old(*id)).collect();
        let same_level = |window: &[Option<u8>]| window.iter().all(|level| *level == window[0]);
        let runs = levels.windows(RUN_LEN).enumerate().rev();
        let run = runs
            .filter(|(_, window)| same_level(window))
            .filter_map(|(index, window)| Some((window[0]?, index)))
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
            state: SpaceState::Filling,
            digest: SmolStr::default(),
            layer: filled_from(&run),
            ..self.spaces[&run[0]].row.clone()
        };
        group.put_space(Space::new(into.clone()));
        self.finish_rows(group)?;
        self.merging.count = (self.merging.count + 1) % (1 << 15);
        Ok(Merge { plane, run, into, level, resource: 0, after: None, replacing: None })
    }

    /// A number for a merged layer. Merging is no commit, so it has none of the numbers that commits give.
    fn merged_id(&self) -> SpaceId {
        let first = MERGED_IDS | self.current.0 << 16;
        let taken = |id: &SpaceId| {
            self.spaces.contains_key(id) || self.filling.contains_key(id) || self.dropping.contains(id)
        };
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
            scan.set_chunk(STEP_LEN, STEP_BYTES);
            let (mut last, mut versions) = (None, Vec::new());
            let (mut found, mut bytes) = (0, 0);
            let more = loop {
                if found == STEP_LEN || bytes >= STEP_BYTES {
                    break true;
                }
                let Some((name, version, _)) = scan.next_version()? else { break false };
                found += 1;
                bytes += version.len();
                last = Some(name.clone());
                // Where nothing is below there is nothing to hide.
                if version.record.is_some() || merge.into.parent.is_some() {
                    versions.push(FilledVersion { resource, name, version });
                }
            };
            if !versions.is_empty() {
                self.engine.fill(merge.into.id, &versions)?;
            }
            if more {
                merge.after = last;
            } else {
                (merge.resource, merge.after) = (merge.resource + 1, None);
            }
            if found > 0 {
                return Ok(false);
            }
        }
        Ok(false)
    }
}
