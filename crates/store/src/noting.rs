//! A reader that remembers that something on disk was not what had been written. Whoever asks for a damaged object is told
//! so; whoever looks after the server must hear of it too, though everything else can still be read.
//!
//! **Invariant.** What was noticed once stays noticed until the store is opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::{EngineError, FilledVersion, LogEntry, Reader, Scan, SpaceKey, Version};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::Record;

pub(crate) struct Noting {
    reader: Arc<dyn Reader>,
    damaged: Arc<AtomicBool>,
}

impl Noting {
    pub(crate) fn new(reader: Arc<dyn Reader>, damaged: Arc<AtomicBool>) -> Noting {
        Noting { reader, damaged }
    }

    fn note<T>(&self, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        if let Err(EngineError::Damaged(what)) = &outcome
            && !self.damaged.swap(true, Ordering::Relaxed)
        {
            tracing::error!(what, "the store is damaged: the server is not ready any more");
        }
        outcome
    }
}

impl Reader for Noting {
    fn version(
        &self,
        space: SpaceId,
        resource: ResourceId,
        name: &ObjectName,
        at: Revision,
    ) -> Result<Option<Version>, EngineError> {
        let found = self.note(self.reader.version(space, resource, name, at))?;
        check_open(found.iter())?;
        Ok(found)
    }

    fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(ObjectName, Version)>, EngineError> {
        let found = self.note(self.reader.scan(scan))?;
        check_open(found.iter().map(|(_, version)| version))?;
        Ok(found)
    }

    fn is_empty(&self, space: SpaceId) -> Result<bool, EngineError> {
        self.note(self.reader.is_empty(space))
    }

    fn commit(&self, revision: Revision) -> Result<Vec<LogEntry>, EngineError> {
        self.note(self.reader.commit(revision))
    }

    fn log(&self, after: Revision, limit: usize) -> Result<Vec<LogEntry>, EngineError> {
        self.note(self.reader.log(after, limit))
    }

    fn versions(
        &self,
        space: SpaceId,
        resource: ResourceId,
        after: Option<(&ObjectName, Revision)>,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<FilledVersion>, EngineError> {
        let found = self.note(self.reader.versions(space, resource, after, limit, bytes_max))?;
        check_open(found.iter().map(|filled| &filled.version))?;
        Ok(found)
    }

    fn next_place(
        &self,
        space: SpaceId,
        resource: ResourceId,
        after: Option<(&ObjectName, Revision)>,
    ) -> Result<Option<(ObjectName, Revision)>, EngineError> {
        self.note(self.reader.next_place(space, resource, after))
    }

    fn next_key(&self, after: Option<SpaceId>) -> Result<Option<SpaceId>, EngineError> {
        self.note(self.reader.next_key(after))
    }

    fn key(&self, space: SpaceId) -> Result<Option<Arc<[u8]>>, EngineError> {
        self.note(self.reader.key(space))
    }

    fn keys(&self, after: Option<SpaceId>, limit: usize) -> Result<Vec<SpaceKey>, EngineError> {
        self.note(self.reader.keys(after, limit))
    }
}

/// Nothing sealed comes above this place, also when somebody opened a store with sealed records without its keys.
fn check_open<'a>(mut versions: impl Iterator<Item = &'a Version>) -> Result<(), EngineError> {
    match versions.any(|version| version.record.as_ref().is_some_and(Record::is_sealed)) {
        true => Err(EngineError::Failed("a record is sealed, and the store was opened without keys".into())),
        false => Ok(()),
    }
}
