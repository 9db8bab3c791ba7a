//! An engine whose next scans fail, and which counts what is read, on one that works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use polder_store::engine::{
    Batch, Engine, EngineError, FilledVersion, LogEntry, Reader, Recovered, Scan, SpaceKey, Version,
};
use polder_store::{ObjectName, ResourceId, Revision, SpaceId};

pub(crate) struct ShakyEngine<E> {
    pub(crate) inner: E,
    /// Scans that fail from now on.
    pub(crate) failing: Arc<AtomicUsize>,
    /// Whether reads of single objects fail.
    pub(crate) unreadable: Arc<AtomicBool>,
    /// Reads of objects so far.
    pub(crate) asked: Arc<AtomicUsize>,
}

struct ShakyReader {
    inner: Arc<dyn Reader>,
    failing: Arc<AtomicUsize>,
    unreadable: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl<E: Engine> Engine for ShakyEngine<E> {
    fn recover(&mut self) -> Result<Recovered, EngineError> {
        self.inner.recover()
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.inner.apply(batch)
    }

    fn compact(&mut self, floor: Revision) -> Result<Revision, EngineError> {
        self.inner.compact(floor)
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<bool, EngineError> {
        self.inner.drop_space(space)
    }

    fn fill(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        self.inner.fill(space, versions)
    }

    fn rewrite(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        self.inner.rewrite(space, versions)
    }

    fn chore(&mut self) -> Result<bool, EngineError> {
        self.inner.chore()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        let (failing, unreadable) = (self.failing.clone(), self.unreadable.clone());
        let (inner, asked) = (self.inner.reader(), self.asked.clone());
        Arc::new(ShakyReader { inner, failing, unreadable, asked })
    }
}

impl Reader for ShakyReader {
    fn version(
        &self,
        space: SpaceId,
        resource: ResourceId,
        name: &ObjectName,
        at: Revision,
    ) -> Result<Option<Version>, EngineError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.unreadable.load(Ordering::Relaxed) {
            return Err(EngineError::Failed("the test says so".into()));
        }
        self.inner.version(space, resource, name, at)
    }

    fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(ObjectName, Version)>, EngineError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let one_less = |left: usize| left.checked_sub(1);
        match self.failing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
            Ok(_) => Err(EngineError::Failed("the test says so".into())),
            Err(_) => self.inner.scan(scan),
        }
    }

    fn is_empty(&self, space: SpaceId) -> Result<bool, EngineError> {
        self.inner.is_empty(space)
    }

    fn commit(&self, revision: Revision) -> Result<Vec<LogEntry>, EngineError> {
        self.inner.commit(revision)
    }

    fn log(&self, after: Revision, limit: usize) -> Result<Vec<LogEntry>, EngineError> {
        self.inner.log(after, limit)
    }

    fn versions(
        &self,
        space: SpaceId,
        resource: ResourceId,
        after: Option<(&ObjectName, Revision)>,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<FilledVersion>, EngineError> {
        self.inner.versions(space, resource, after, limit, bytes_max)
    }

    fn key(&self, space: SpaceId) -> Result<Option<Arc<[u8]>>, EngineError> {
        self.inner.key(space)
    }

    fn keys(&self, after: Option<SpaceId>, limit: usize) -> Result<Vec<SpaceKey>, EngineError> {
        self.inner.keys(after, limit)
    }
}
