//! An engine around an engine: fails on demand, and stops at chosen moments so that a case can look into the gap
//! between two steps instead of hoping to hit it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::engine::{
    Batch, Bell, Bounds, Engine, EngineError, FilledVersion, LogEntry, Names, Reader, Recovered, Scan,
    SpaceKey, Version,
};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};

/// A stop that is never released ends by itself, so that a wrong case fails instead of hanging.
const STOP_MAX: Duration = Duration::from_secs(20);

/// Where a probed engine can be stopped.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    BeforeApply,
    /// Durable, not yet visible.
    AfterApply,
    BeforeScan,
    BeforeVersion,
    BeforeFill,
}

/// What an apply whose outcome is unknown has done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unknown {
    Written,
    NotWritten,
    /// It dies, and the committer with it, after it has written.
    Dies,
}

/// The remote control of a probed engine; survives reopening.
#[derive(Clone, Default)]
pub(super) struct Probe {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Applies that still succeed, then applies that fail.
    failures: Mutex<(usize, usize)>,
    /// Compactions that fail from now on.
    compactions: Mutex<usize>,
    /// How the next apply goes wrong without saying whether it wrote.
    unknown: Mutex<Option<(Unknown, usize)>>,
    stops: [Mutex<Option<Stop>>; 5],
    /// Log entries read so far.
    entries: AtomicUsize,
    /// Objects scanned so far.
    rows: AtomicUsize,
    /// Bytes of the heaviest scan so far.
    scan_bytes: AtomicUsize,
    /// Bytes of the heaviest fill so far.
    fill_bytes: AtomicUsize,
    /// Whether scans are held, and how many are.
    held: Mutex<(bool, usize)>,
    released: Condvar,
}

struct Stop {
    reached: mpsc::Sender<()>,
    released: mpsc::Receiver<()>,
}

/// A stop as the case sees it. Dropping it lets the engine go on.
pub(super) struct Stopped {
    reached: Option<mpsc::Receiver<()>>,
    _release: mpsc::Sender<()>,
}

impl Stopped {
    /// Waits until the engine stands still.
    pub(super) async fn reached(&mut self) {
        let reached = self.reached.take().expect("waited for once");
        let outcome = tokio::task::spawn_blocking(move || reached.recv_timeout(STOP_MAX)).await.unwrap();
        outcome.expect("the engine reaches the stop");
    }
}

impl Probe {
    /// The next apply fails after `passing` others went well.
    pub(super) fn fail_after(&self, passing: usize) {
        *self.state.failures.lock() = (passing, 1);
    }

    pub(super) fn fail_compactions(&self, len: usize) {
        *self.state.compactions.lock() = len;
    }

    /// Log entries that readers have got so far.
    pub(super) fn entries_read(&self) -> usize {
        self.state.entries.load(Ordering::Relaxed)
    }

    /// Objects that scans have found so far.
    pub(super) fn rows_scanned(&self) -> usize {
        self.state.rows.load(Ordering::Relaxed)
    }

    /// What the heaviest scan so far has found at once.
    pub(super) fn scan_bytes_max(&self) -> usize {
        self.state.scan_bytes.load(Ordering::Relaxed)
    }

    /// What the heaviest fill so far was given at once.
    pub(super) fn fill_bytes_max(&self) -> usize {
        self.state.fill_bytes.load(Ordering::Relaxed)
    }

    /// Holds every scan, or lets all of them go.
    pub(super) fn hold_scans(&self, hold: bool) {
        self.state.held.lock().0 = hold;
        self.state.released.notify_all();
    }

    /// Scans that are being held.
    pub(super) fn held_scans(&self) -> usize {
        self.state.held.lock().1
    }

    fn pass_held(&self) {
        let mut held = self.state.held.lock();
        held.1 += 1;
        self.state.released.wait_while_for(&mut held, |(hold, _)| *hold, STOP_MAX);
        held.1 -= 1;
    }

    fn count_entries(
        &self,
        read: impl FnOnce() -> Result<Vec<LogEntry>, EngineError>,
    ) -> Result<Vec<LogEntry>, EngineError> {
        let entries = read()?;
        self.state.entries.fetch_add(entries.len(), Ordering::Relaxed);
        Ok(entries)
    }

    /// The next apply, after `passing` others, does not know what it has done.
    pub(super) fn lose_track(&self, unknown: Unknown, passing: usize) {
        *self.state.unknown.lock() = Some((unknown, passing));
    }

    fn loses_track(&self) -> Option<Unknown> {
        let mut unknown = self.state.unknown.lock();
        match &mut *unknown {
            Some((_, passing @ 1..)) => {
                *passing -= 1;
                None
            }
            _ => unknown.take().map(|(unknown, _)| unknown),
        }
    }

    fn fails_now(&self) -> bool {
        let mut failures = self.state.failures.lock();
        match &mut *failures {
            (0, 0) => false,
            (0, failing) => {
                *failing -= 1;
                true
            }
            (passing, _) => {
                *passing -= 1;
                false
            }
        }
    }

    /// Stops the engine the next time it comes to a point.
    pub(super) fn stop(&self, at: At) -> Stopped {
        let (reached_sender, reached) = mpsc::channel();
        let (release, released) = mpsc::channel();
        *self.state.stops[at as usize].lock() = Some(Stop { reached: reached_sender, released });
        Stopped { reached: Some(reached), _release: release }
    }

    fn pass(&self, at: At) {
        let stop = self.state.stops[at as usize].lock().take();
        if let Some(stop) = stop {
            stop.reached.send(()).ok();
            stop.released.recv_timeout(STOP_MAX).ok();
        }
    }
}

pub(super) struct ProbedEngine {
    inner: Box<dyn Engine>,
    probe: Probe,
}

impl ProbedEngine {
    pub(super) fn new(inner: Box<dyn Engine>, probe: Probe) -> ProbedEngine {
        ProbedEngine { inner, probe }
    }
}

impl Engine for ProbedEngine {
    fn recover(&mut self) -> Result<Recovered, EngineError> {
        self.inner.recover()
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.probe.pass(At::BeforeApply);
        if self.probe.fails_now() {
            return Err(EngineError::Full("the probe says so".into()));
        }
        if let Some(unknown) = self.probe.loses_track() {
            if !matches!(unknown, Unknown::NotWritten) {
                self.inner.apply(batch)?;
            }
            assert!(!matches!(unknown, Unknown::Dies), "the probe says so");
            return Err(EngineError::Unknown("the probe says so".into()));
        }
        let outcome = self.inner.apply(batch);
        self.probe.pass(At::AfterApply);
        outcome
    }

    fn compact(&mut self, floor: Revision) -> Result<Revision, EngineError> {
        let mut failing = self.probe.state.compactions.lock();
        if let Some(left) = failing.checked_sub(1) {
            *failing = left;
            return Err(EngineError::Failed("the probe says so".into()));
        }
        self.inner.compact(floor)
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<bool, EngineError> {
        self.inner.drop_space(space)
    }

    fn fill(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        self.probe.pass(At::BeforeFill);
        let bytes = versions.iter().map(|filled| filled.version.len()).sum();
        self.probe.state.fill_bytes.fetch_max(bytes, Ordering::Relaxed);
        self.inner.fill(space, versions)
    }

    fn rewrite(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        self.inner.rewrite(space, versions)
    }

    fn chore(&mut self) -> Result<bool, EngineError> {
        self.inner.chore()
    }

    fn follow(&mut self, names: &dyn Names) -> Result<Option<Batch>, EngineError> {
        self.inner.follow(names)
    }

    fn set_bell(&mut self, bell: Bell) {
        self.inner.set_bell(bell);
    }

    fn leads(&self) -> bool {
        self.inner.leads()
    }

    fn bounds(&self) -> Bounds {
        self.inner.bounds()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(ProbedReader { inner: self.inner.reader(), probe: self.probe.clone() })
    }

    fn own_reader(&self) -> Arc<dyn Reader> {
        Arc::new(ProbedReader { inner: self.inner.own_reader(), probe: self.probe.clone() })
    }
}

struct ProbedReader {
    inner: Arc<dyn Reader>,
    probe: Probe,
}

impl Reader for ProbedReader {
    fn version(
        &self,
        space: SpaceId,
        resource: ResourceId,
        name: &ObjectName,
        at: Revision,
    ) -> Result<Option<Version>, EngineError> {
        self.probe.pass(At::BeforeVersion);
        self.inner.version(space, resource, name, at)
    }

    fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(ObjectName, Version)>, EngineError> {
        self.probe.pass(At::BeforeScan);
        self.probe.pass_held();
        let found = self.inner.scan(scan)?;
        self.probe.state.rows.fetch_add(found.len(), Ordering::Relaxed);
        let bytes = found.iter().map(|(_, version)| version.len()).sum();
        self.probe.state.scan_bytes.fetch_max(bytes, Ordering::Relaxed);
        Ok(found)
    }

    fn is_empty(&self, space: SpaceId) -> Result<bool, EngineError> {
        self.inner.is_empty(space)
    }

    fn commit(&self, revision: Revision) -> Result<Vec<LogEntry>, EngineError> {
        self.probe.count_entries(|| self.inner.commit(revision))
    }

    fn log(&self, after: Revision, limit: usize) -> Result<Vec<LogEntry>, EngineError> {
        self.probe.count_entries(|| self.inner.log(after, limit))
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
