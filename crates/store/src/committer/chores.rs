//! What happens between groups: forgetting old history, removing dropped spaces, merging old layers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Committer, chain};
use crate::change::CommitError;
use crate::engine::EngineError;
use crate::key::Revision;

/// When revisions were current, to know which history is old enough to forget.
pub(super) struct History {
    pub(super) marks: VecDeque<(Instant, Revision)>,
    pub(super) keep: Duration,
    pub(super) len_min: u64,
    pub(super) floor: Revision,
    /// How far the engine has got.
    pub(super) compacted: Revision,
}

impl Committer {
    pub(super) fn has_chores(&self) -> bool {
        let some = !self.dropping.is_empty()
            || self.may_merge()
            || !self.settling.is_empty()
            || self.engine_chores
            || self.history.floor > self.history.compacted;
        some && !self.chores_paused && !self.stopped
    }

    /// Whether there is something to merge, and this is the replica to do it.
    fn may_merge(&self) -> bool {
        self.engine.leads() && (!self.merging.is_idle() || self.has_left_overs())
    }

    pub(super) fn do_chore(&mut self) {
        if self.history.floor > self.history.compacted {
            if let Err(error) = self.compact_a_little() {
                tracing::error!(error = %chain(&error), "compaction failed");
                self.pause_chores(&error);
            }
        } else if let Some(&space) = self.dropping.front() {
            match self.engine.drop_space(space) {
                Ok(false) => {}
                Ok(true) => drop(self.dropping.pop_front()),
                Err(error) => {
                    tracing::error!(error = %chain(&error), space = space.0, "cannot remove a dropped space");
                    self.dropping.rotate_left(1);
                    self.pause_chores(&error);
                }
            }
        } else if self.may_merge() {
            let merged = self.merge_a_little();
            if matches!(merged, Err(EngineError::Overtaken)) {
                self.catch_up_or_log();
            } else if let Err(error) = merged {
                tracing::error!(error = %chain(&error), "merging layers failed");
                self.pause_chores(&error);
            }
        } else {
            match self.engine.chore() {
                Ok(more) => self.engine_chores = more,
                Err(error) => {
                    tracing::error!(error = %chain(&error), "the store's housekeeping failed");
                    self.pause_chores(&error);
                }
            }
        }
        if self.dropping.is_empty() && !self.may_merge() {
            for reply in self.settling.drain(..) {
                reply.send(()).ok();
            }
        }
    }

    /// A chore failed: the next tick tries again, unless nobody knows what was written.
    fn pause_chores(&mut self, error: &EngineError) {
        self.chores_paused = true;
        if matches!(error, EngineError::Unknown(_)) {
            self.stop();
        }
    }

    pub(super) fn compact_fully(&mut self) -> Result<(), CommitError> {
        while self.history.floor > self.history.compacted {
            self.compact_a_little().map_err(|error| CommitError::Engine(Arc::new(error)))?;
        }
        Ok(())
    }

    pub(super) fn compact_a_little(&mut self) -> Result<(), EngineError> {
        let floor = self.history.floor;
        // Readers are told before anything disappears, so that nobody trusts half a history.
        self.shared.set_compacted(floor);
        self.history.compacted = self.engine.compact(floor)?;
        if self.history.compacted >= floor {
            self.merging.look_again();
        }
        Ok(())
    }

    pub(super) fn tick(&mut self) {
        self.chores_paused = false;
        self.engine_chores = true;
        let now = Instant::now();
        let history = &mut self.history;
        if history.marks.back().is_none_or(|(at, _)| now.duration_since(*at) >= history.keep / 30) {
            history.marks.push_back((now, self.current));
        }
        let mut floor = history.floor;
        while let Some((at, revision)) = history.marks.front() {
            if now.duration_since(*at) < history.keep {
                break;
            }
            floor = *revision;
            history.marks.pop_front();
        }
        history.floor =
            history.floor.max(floor.min(Revision(self.current.0.saturating_sub(history.len_min))));
    }
}
