//! A reader that remembers that something on disk was not what had been written. Whoever asks for a damaged object is told
//! so; whoever looks after the server must hear of it too, though everything else can still be read.
//!
//! **Invariant.** What was noticed once stays noticed until the store is opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::{EngineError, LogEntry, Reader, Scan, Version};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};

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
        self.note(self.reader.version(space, resource, name, at))
    }

    fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(ObjectName, Version)>, EngineError> {
        self.note(self.reader.scan(scan))
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
}
