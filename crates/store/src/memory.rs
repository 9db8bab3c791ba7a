//! An engine that keeps everything in memory: for tests, and the plainest statement of what an engine does.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use polder_model::{GroupResource, PlaneId, SmolStr};

use crate::engine::{
    Batch, Engine, EngineError, FilledVersion, LogEntry, PlaneRow, PlaneWrite, Reader, Recovered, Scan,
    SpaceKey, SpaceRow, SpaceState, Version,
};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};

/// A store in memory. Clones share it, so that a test can "restart" on the same contents.
#[derive(Clone, Debug, Default)]
pub struct MemoryEngine {
    state: Arc<RwLock<State>>,
}

type VersionsKey = (SpaceId, ResourceId, ObjectName);

#[derive(Debug, Default)]
struct State {
    current: Revision,
    compacted: Revision,
    /// All versions of an object, oldest first.
    versions: BTreeMap<VersionsKey, Vec<Version>>,
    log: Vec<LogEntry>,
    planes: BTreeMap<PlaneId, PlaneRow>,
    spaces: BTreeMap<SpaceId, SpaceRow>,
    resources: Vec<(ResourceId, GroupResource)>,
    keys: BTreeMap<SpaceId, Arc<[u8]>>,
    notes: BTreeMap<SmolStr, Arc<[u8]>>,
}

impl State {
    /// Whether a space below knows an object.
    fn is_below(&self, (space, resource, name): &VersionsKey) -> bool {
        let mut below = self.spaces.get(space).and_then(|row| row.parent);
        while let Some(space) = below {
            if self.versions.contains_key(&(space, *resource, name.clone())) {
                return true;
            }
            below = self.spaces.get(&space).and_then(|row| row.parent);
        }
        false
    }
}

impl Engine for MemoryEngine {
    fn recover(&mut self) -> Result<Recovered, EngineError> {
        let state = self.state.read();
        Ok(Recovered {
            notes: state.notes.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            current: state.current,
            compacted: state.compacted,
            planes: state.planes.values().cloned().collect(),
            spaces: state.spaces.values().cloned().collect(),
            resources: state.resources.clone(),
        })
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), EngineError> {
        let mut state = self.state.write();
        if batch.first != state.current.next() || batch.last < state.current {
            return Err(EngineError::Damaged(format!(
                "batch {}..{} does not follow {}",
                batch.first, batch.last, state.current
            )));
        }
        for write in &batch.objects {
            let entry = &write.entry;
            let version = Version { revision: entry.revision, record: write.record.clone() };
            let versions =
                state.versions.entry((entry.space, entry.resource, entry.name.clone())).or_default();
            match versions.last_mut() {
                Some(last) if last.revision == version.revision => *last = version,
                _ => versions.push(version),
            }
            state.log.push(entry.clone());
        }
        for plane in &batch.planes {
            match plane {
                PlaneWrite::Put(row) => drop(state.planes.insert(row.id, row.clone())),
                PlaneWrite::Remove(id) => drop(state.planes.remove(id)),
            }
        }
        for SpaceKey { space, wrapped } in &batch.keys {
            state.keys.insert(*space, wrapped.clone());
        }
        for (name, value) in &batch.notes {
            match value {
                Some(value) => drop(state.notes.insert(name.clone(), value.clone())),
                None => drop(state.notes.remove(name)),
            }
        }
        for space in &batch.spaces {
            if space.state == SpaceState::Dropped {
                state.keys.remove(&space.id);
            }
            state.spaces.insert(space.id, space.clone());
        }
        state.resources.extend(batch.resources.iter().cloned());
        state.current = batch.last;
        Ok(())
    }

    fn compact(&mut self, floor: Revision) -> Result<Revision, EngineError> {
        let mut state = self.state.write();
        let state = &mut *state;
        let mut deletions = Vec::new();
        for (key, versions) in &mut state.versions {
            if let Some(index) = versions.iter().rposition(|version| version.revision <= floor) {
                versions.drain(..index);
                if versions[0].record.is_none() {
                    deletions.push(key.clone());
                }
            }
        }
        deletions.retain(|key| !state.is_below(key));
        for key in deletions {
            if let Some(versions) = state.versions.get_mut(&key) {
                versions.remove(0);
                if versions.is_empty() {
                    state.versions.remove(&key);
                }
            }
        }
        state.log.retain(|entry| entry.revision > floor);
        state.compacted = state.compacted.max(floor);
        Ok(floor)
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<bool, EngineError> {
        let mut state = self.state.write();
        state.versions.retain(|(own, ..), _| *own != space);
        state.spaces.remove(&space);
        state.keys.remove(&space);
        Ok(true)
    }

    fn fill(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        let mut state = self.state.write();
        for FilledVersion { resource, name, version } in versions {
            state.versions.insert((space, *resource, name.clone()), vec![version.clone()]);
        }
        Ok(())
    }

    fn rewrite(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        let mut state = self.state.write();
        for FilledVersion { resource, name, version } in versions {
            let found = state.versions.get_mut(&(space, *resource, name.clone()));
            let mut there = found.into_iter().flatten();
            if let Some(old) = there.find(|old| old.revision == version.revision) {
                *old = version.clone();
            }
        }
        Ok(())
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.clone())
    }
}

impl Reader for MemoryEngine {
    fn version(
        &self,
        space: SpaceId,
        resource: ResourceId,
        name: &ObjectName,
        at: Revision,
    ) -> Result<Option<Version>, EngineError> {
        let state = self.state.read();
        let versions = state.versions.get(&(space, resource, name.clone()));
        Ok(versions.and_then(|versions| newest_at(versions, at)))
    }

    fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(ObjectName, Version)>, EngineError> {
        let state = self.state.read();
        let first = ObjectName::new(scan.namespace.unwrap_or_default(), "");
        let from = match scan.after {
            // A name before the namespace says nothing about where in the namespace to begin.
            Some(after) if *after >= first => Bound::Excluded((scan.space, scan.resource, after.clone())),
            _ => Bound::Included((scan.space, scan.resource, first)),
        };
        let mut bytes = 0;
        Ok(state
            .versions
            .range((from, Bound::Unbounded))
            .take_while(|((space, resource, name), _)| {
                (*space, *resource) == (scan.space, scan.resource)
                    && scan.namespace.is_none_or(|namespace| name.namespace == namespace)
            })
            .filter_map(|((_, _, name), versions)| Some((name.clone(), newest_at(versions, scan.at)?)))
            .take(scan.limit)
            .take_while(|(_, version)| {
                let full = bytes >= scan.bytes_max.max(1);
                bytes += version.len();
                !full
            })
            .collect())
    }

    fn versions(
        &self,
        space: SpaceId,
        resource: ResourceId,
        after: Option<(&ObjectName, Revision)>,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<FilledVersion>, EngineError> {
        let state = self.state.read();
        let first = after.map_or_else(|| ObjectName::cluster(""), |(name, _)| name.clone());
        let all = state.versions.range((space, resource, first)..);
        let all = all.take_while(|((own, of, _), _)| (*own, *of) == (space, resource));
        let each = all.flat_map(|((_, _, name), versions)| {
            versions.iter().rev().map(move |version| (name.clone(), version.clone()))
        });
        let mut bytes = 0;
        Ok(each
            .filter(|(name, version)| {
                after.is_none_or(|(after, before)| name != after || version.revision < before)
            })
            .take(limit)
            .take_while(|(_, version)| {
                let full = bytes >= bytes_max.max(1);
                bytes += version.len();
                !full
            })
            .map(|(name, version)| FilledVersion { resource, name, version })
            .collect())
    }

    fn key(&self, space: SpaceId) -> Result<Option<Arc<[u8]>>, EngineError> {
        Ok(self.state.read().keys.get(&space).cloned())
    }

    fn keys(&self, after: Option<SpaceId>, limit: usize) -> Result<Vec<SpaceKey>, EngineError> {
        let state = self.state.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let keys = state.keys.range((from, Bound::Unbounded)).take(limit);
        Ok(keys.map(|(space, wrapped)| SpaceKey { space: *space, wrapped: wrapped.clone() }).collect())
    }

    fn is_empty(&self, space: SpaceId) -> Result<bool, EngineError> {
        let from = (space, ResourceId(0), ObjectName::cluster(""));
        let state = self.state.read();
        Ok(state.versions.range(from..).next().is_none_or(|((own, ..), _)| *own != space))
    }

    fn commit(&self, revision: Revision) -> Result<Vec<LogEntry>, EngineError> {
        let log = &self.state.read().log;
        let from = log.partition_point(|entry| entry.revision < revision);
        Ok(log[from..].iter().take_while(|entry| entry.revision == revision).cloned().collect())
    }

    fn log(&self, after: Revision, limit: usize) -> Result<Vec<LogEntry>, EngineError> {
        let state = self.state.read();
        let from = state.log.partition_point(|entry| entry.revision <= after);
        let rest = &state.log[from..];
        let mut end = limit.min(rest.len());
        while end > 0 && end < rest.len() && rest[end].revision == rest[end - 1].revision {
            end += 1;
        }
        Ok(rest[..end].to_vec())
    }
}

fn newest_at(versions: &[Version], at: Revision) -> Option<Version> {
    versions.iter().rev().find(|version| version.revision <= at).cloned()
}
