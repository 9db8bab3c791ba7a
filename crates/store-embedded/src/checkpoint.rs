//! Checkpoints: moving commits from the WAL into the database, beside the commit path.
//!
//! A thread with a connection of its own copies pages whenever enough of them are waiting, or a second after the
//! first one. SQLite starts the WAL over only when at some moment everything in it is copied; under a steady flood of
//! commits that moment does not come by itself. So beyond a size the thread copies smaller pieces, and the writer the last one
//! itself, when that is small; beyond twice that size it waits for the copying ([`Checkpointer::bound_wal`]).
//! An idle store is not woken.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use crate::database::{self, Purpose};
use crate::engine::Options;
use crate::error::OpenError;
use crate::page::PAGE_LEN;

/// The writer waits when the WAL has so many times the pages that start a checkpoint.
const WAL_FACTOR: i32 = 16;
/// When it has half as many, it copies the last pages itself if there are no more than this.
const LAST_PAGES_MAX: i32 = 64;

pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    wal_pages_max: i32,
    /// When a reader keeps the WAL from starting over, the next attempt waits until it has grown this far.
    next_attempt_pages: i32,
}

#[derive(Default)]
struct Shared {
    /// Pages in the WAL, not yet copied, that start a checkpoint.
    pending_pages_max: i32,
    /// Pages in the WAL from which on fewer of them do.
    wal_pages_large: i32,
    /// How long fewer of them may wait.
    delay_max: Duration,
    /// Pages in the WAL after the last commit, and how many of them were copied.
    wal_pages: AtomicI32,
    copied_pages: AtomicI32,
    /// Something is waiting to be copied, or enough of it.
    dirty: AtomicBool,
    due: AtomicBool,
    stop: AtomicBool,
    asleep: Mutex<()>,
    wake: Condvar,
    /// Held during a checkpoint.
    turn: Mutex<()>,
}

/// To what a WAL file that grew beyond it is cut when it starts over.
pub(crate) fn wal_bytes_kept(checkpoint_bytes: u64) -> i64 {
    i64::try_from(checkpoint_bytes).unwrap_or(i64::MAX).saturating_mul(i64::from(WAL_FACTOR) / 2)
}

fn pages(bytes: u64) -> i32 {
    i32::try_from(bytes / PAGE_LEN as u64).unwrap_or(i32::MAX).max(1)
}

impl Checkpointer {
    /// Starts the thread and lets `writer` report to it. `committed` is synced after each checkpoint.
    pub(crate) fn start(
        path: &Path,
        writer: &mut Connection,
        committed: File,
        options: &Options,
    ) -> Result<Checkpointer, OpenError> {
        let connection = database::open(path, Purpose::Checkpoint, 1 << 20)?;
        // What an earlier process left in the WAL is not reported by the hook.
        let shared = Arc::new(Shared {
            pending_pages_max: pages(options.checkpoint_bytes),
            wal_pages_large: pages(options.checkpoint_bytes).saturating_mul(WAL_FACTOR / 2),
            delay_max: options.checkpoint_delay,
            dirty: AtomicBool::new(true),
            ..Shared::default()
        });
        let reported = Arc::clone(&shared);
        writer
            .wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: i32| {
                reported.committed(pages);
                Ok(())
            }))
            .map_err(|error| OpenError::sqlite(path, error))?;
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || own.run(&connection, &committed))
            .map_err(|error| OpenError::Failed { path: path.to_owned(), source: error.into() })?;
        let wal_pages_max = shared.pending_pages_max.saturating_mul(WAL_FACTOR);
        Ok(Checkpointer { shared, thread: Some(thread), wal_pages_max, next_attempt_pages: wal_pages_max })
    }

    /// Called by the writer between transactions: when the WAL is large, sees to it that it starts over.
    pub(crate) fn bound_wal(&mut self, writer: &Connection) {
        let pages = self.shared.wal_pages.load(Ordering::Relaxed);
        if pages >= self.shared.wal_pages_large
            && self.shared.pending(pages) <= LAST_PAGES_MAX
            && let Some(_turn) = self.shared.turn.try_lock()
        {
            self.shared.checkpoint(writer);
            return;
        }
        if pages < self.next_attempt_pages {
            if pages < self.wal_pages_max {
                self.next_attempt_pages = self.wal_pages_max;
            }
            return;
        }
        let _turn = self.shared.turn.lock();
        self.shared.checkpoint(writer);
        self.next_attempt_pages = pages.saturating_add(self.shared.pending_pages_max);
    }

    /// Frames in the WAL after the writer's last commit; `None` before its first.
    pub(crate) fn wal_frames(&self) -> Option<u32> {
        u32::try_from(self.shared.wal_pages.load(Ordering::Relaxed)).ok().filter(|frames| *frames > 0)
    }

    /// Whether so little is left to copy that nobody would notice who waits for it.
    pub(crate) fn is_nearly_done(&self) -> bool {
        self.shared.pending(self.shared.wal_pages.load(Ordering::Relaxed)) <= LAST_PAGES_MAX
    }

    /// Copies everything while the thread may be at it too; true when that was possible.
    pub(crate) fn copy_all(&self, writer: &Connection) -> bool {
        let _turn = self.shared.turn.lock();
        self.shared.checkpoint(writer)
    }

    /// Copies everything, when no thread does any more; true when that was possible.
    pub(crate) fn finish(&self, writer: &Connection) -> bool {
        self.shared.checkpoint(writer)
    }

    pub(crate) fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.notify();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn committed(&self, pages: i32) {
        self.wal_pages.store(pages, Ordering::Relaxed);
        let dirty = self.dirty.swap(true, Ordering::AcqRel);
        let many = if pages < self.wal_pages_large { self.pending_pages_max } else { LAST_PAGES_MAX };
        let due = self.pending(pages) >= many && !self.due.swap(true, Ordering::AcqRel);
        if !dirty || due {
            self.notify();
        }
    }

    /// How many pages of a WAL of so many are not copied yet.
    fn pending(&self, pages: i32) -> i32 {
        let copied = self.copied_pages.load(Ordering::Relaxed);
        // The WAL has started over when it is shorter than what was copied of it.
        if pages < copied { pages } else { pages - copied }
    }

    fn notify(&self) {
        let _asleep = self.asleep.lock();
        self.wake.notify_one();
    }

    fn run(&self, connection: &Connection, committed: &File) {
        loop {
            {
                let mut asleep = self.asleep.lock();
                while !self.dirty.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire) {
                    self.wake.wait(&mut asleep);
                }
                while !self.due.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire) {
                    if self.wake.wait_for(&mut asleep, self.delay_max).timed_out() {
                        break;
                    }
                }
            }
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            self.dirty.store(false, Ordering::Release);
            self.due.store(false, Ordering::Release);
            if let Err(error) = committed.sync_data() {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot sync COMMITTED");
            }
            let turn = self.turn.lock();
            let complete = self.checkpoint(connection);
            drop(turn);
            if !complete {
                self.dirty.store(true, Ordering::Release);
            }
        }
    }

    /// Copies what can be copied without waiting for anyone; true when nothing is left in the WAL.
    fn checkpoint(&self, connection: &Connection) -> bool {
        let done = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)").and_then(|mut statement| {
            statement.query_row([], |row| Ok((row.get::<_, i32>(1)?, row.get::<_, i32>(2)?)))
        });
        match done {
            Ok((pages, copied)) => {
                self.copied_pages.store(copied, Ordering::Relaxed);
                copied >= pages
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot checkpoint the store");
                false
            }
        }
    }
}
