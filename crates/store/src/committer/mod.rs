//! The one writer. A thread drains the queue of changes, checks each against the newest state, gives it the next
//! revision, and commits many with one fsync. Between groups it forgets old history, removes dropped spaces and merges
//! old layers.
//!
//! Planning works on what is visible plus what this group has already decided ([`Group`]); only when the engine has
//! made the group durable does any of it become visible, in this order: cache, current revision, watchers, answers.
//!
//! # When the engine fails
//!
//! An engine that says why it failed has written nothing ([`EngineError`]): the group is dropped, everybody in it is
//! told, and the next group takes the same revisions. An engine that does *not know* whether it has written (a disk
//! that fails while it syncs, a lost connection) leaves two possible stores, and only the next start can tell which
//! one there is. So the committer stops: the group is answered with [`CommitError::Unknown`], later changes with
//! [`CommitError::Stopped`], chores rest, and [`is_running`](crate::Store::is_running) turns false, which fails the
//! health checks so that the process is restarted. Reads and watches go on with what was there before the group. That
//! is a right answer in both stores: a change whose outcome is unknown is still under way for everybody who looks, and
//! no other change can take its revisions meanwhile.
//!
//! Where several stores share a history, the rest of it tells: what was added comes back as what others do
//! ([`EngineError::Doubtful`]). The group is answered in the same way, and the committer goes on.

mod absorb;
mod chores;
mod group;
mod layers;
mod merge;
mod plan;
mod planes;
mod publish;
mod recover;
mod replace;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hashbrown::HashMap;
use polder_model::{PlaneId, SmolStr};
use tokio::sync::{mpsc, oneshot};

use self::chores::History;
use self::group::{Asked, Group, Space};
use self::merge::Merging;
use self::waiting::{Shares, Waiting};
use crate::change::{Change, CommitError, Committed};
use crate::engine::{Bell, Bounds, Engine, EngineError, Reader};
use crate::key::{Revision, SpaceId};
use crate::plane::Profile;
use crate::shared::Shared;

/// Changes committed with one fsync.
const GROUP_LEN_MAX: usize = 256;
/// The log entries of a layer belong to no plane.
pub(crate) const NO_PLANE: PlaneId = PlaneId(0);
const TICK: Duration = Duration::from_secs(1);
/// How often a group is planned again because another replica was first, before its writers are told to try again.
const OVERTAKEN_MAX: usize = 64;

type Answer = Result<Committed, CommitError>;

pub(crate) enum Job {
    Commit {
        change: Change,
        reply: oneshot::Sender<Answer>,
    },
    Compact {
        floor: Revision,
        reply: oneshot::Sender<Result<(), CommitError>>,
    },
    /// Answers when no dropped space is left.
    Settle {
        reply: oneshot::Sender<()>,
    },
    Tick,
    /// Other replicas have done something.
    News,
    /// Nothing but a knock: the store is closing.
    Stop,
}

/// Wakes the committer regularly, so that housekeeping happens without traffic. Ends with the store.
pub(crate) fn start_ticks(jobs: mpsc::WeakSender<Job>) -> std::io::Result<()> {
    std::thread::Builder::new().name("polder-tick".into()).spawn(move || {
        loop {
            std::thread::sleep(TICK);
            let Some(jobs) = jobs.upgrade() else { break };
            match jobs.try_send(Job::Tick) {
                Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => {}
                Err(mpsc::error::TrySendError::Closed(_)) => break,
            }
        }
    })?;
    Ok(())
}

pub(crate) struct Committer {
    engine: Box<dyn Engine>,
    waiting: Waiting,
    /// Its own, so that writes do not wait for reads.
    reader: Arc<dyn Reader>,
    shared: Arc<Shared>,
    spaces: HashMap<SpaceId, Space>,
    layers: HashMap<SmolStr, SpaceId>,
    /// What planes are made on.
    bases: HashMap<Profile, SpaceId>,
    /// What they are made of, where another replica may drop one of them.
    own_bases: Option<recover::OwnBases>,
    /// Another replica has dropped one of them: none is made on it until there is one again.
    is_baseless: bool,
    bounds: Bounds,
    current: Revision,
    dropping: VecDeque<SpaceId>,
    /// Layers that are being filled, by this replica or another one, and what from.
    filling: HashMap<SpaceId, Vec<SpaceId>>,
    history: History,
    merging: Merging,
    settling: Vec<oneshot::Sender<()>>,
    /// The engine may have something to do by itself: asked once a second.
    engine_chores: bool,
    /// A chore failed: wait for the next tick before trying again.
    chores_paused: bool,
    /// The engine does not know what it has written.
    stopped: bool,
}

impl Committer {
    pub(crate) fn leads(&self) -> bool {
        self.engine.leads()
    }

    pub(crate) fn set_bell(&mut self, bell: Bell) {
        self.engine.set_bell(bell);
    }

    /// Runs until told to stop or until nobody can send any more.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        loop {
            if self.shared.is_closing() {
                // What is queued is still done; the loop ends when it is.
                queue.close();
            }
            if self.waiting.is_empty() {
                let first = if self.has_chores() {
                    match queue.try_recv() {
                        Ok(job) => Some(job),
                        Err(mpsc::error::TryRecvError::Empty) => {
                            self.do_chore();
                            continue;
                        }
                        Err(mpsc::error::TryRecvError::Disconnected) => None,
                    }
                } else {
                    queue.blocking_recv()
                };
                let Some(first) = first else { return };
                self.take(first);
            }
            self.run_group(&mut queue);
            // Under unbroken load the chores still get their turn, a little after each group.
            if self.has_chores() {
                self.do_chore();
            }
        }
    }

    /// Lines a change up; does anything else at once.
    fn take(&mut self, job: Job) {
        match job {
            Job::Commit { reply, .. } if self.stopped => drop(reply.send(Err(CommitError::Stopped))),
            Job::Compact { reply, .. } if self.stopped => drop(reply.send(Err(CommitError::Stopped))),
            Job::Commit { change, reply } => self.waiting.push(change, reply),
            Job::Compact { floor, reply } => {
                let floor = floor.min(self.shared.current());
                self.history.floor = self.history.floor.max(floor);
                let outcome = self.compact_fully();
                reply.send(outcome).ok();
            }
            Job::Settle { reply } => self.settling.push(reply),
            Job::Tick => self.tick(),
            // What other replicas did is looked at before each group. If that is not all, the engine says so.
            Job::News | Job::Stop => {}
        }
    }

    /// Commits what waits, as much of it as goes together.
    fn run_group(&mut self, queue: &mut mpsc::Receiver<Job>) {
        self.catch_up_or_log();
        self.shared.set_leading(!self.stopped && self.engine.leads());
        let mut group = self.new_group();
        let (mut taken, mut shares) = (0, Shares::default());
        while taken < GROUP_LEN_MAX && !group.is_long(&self.bounds) {
            while self.waiting.takes_more()
                && let Ok(job) = queue.try_recv()
            {
                self.take(job);
            }
            let Some((change, reply)) = self.waiting.pop(&mut shares) else { break };
            taken += 1;
            if self.stopped {
                reply.send(Err(CommitError::Stopped)).ok();
                continue;
            }
            let answer = self.plan(&mut group, &change);
            group.asked.push(Asked { change, reply, answer });
        }
        self.finish(group).ok();
    }

    fn stop(&mut self) {
        tracing::error!("no change is taken any more: the server must be restarted");
        self.shared.set_leading(false);
        self.stopped = true;
        self.shared.set_stopped();
    }

    /// Makes a group durable, then visible, then answers. Whoever is overtaken by another replica looks at what that one
    /// did, and plans again.
    fn finish(&mut self, mut group: Group) -> Result<(), Arc<EngineError>> {
        let mut outcome = self.write(&mut group);
        for _ in 0..OVERTAKEN_MAX {
            if !matches!(outcome, Err(EngineError::Overtaken)) || group.asked.is_empty() {
                break;
            }
            self.shared.overtaken.fetch_add(1, Ordering::Relaxed);
            outcome = self.catch_up().and_then(|()| {
                group = self.planned_again(std::mem::take(&mut group.asked));
                self.write(&mut group)
            });
        }
        let outcome = outcome.map_err(|error| {
            match error {
                // Nothing has gone wrong: whoever waits tries again.
                EngineError::Overtaken => tracing::debug!("others have committed first, again and again"),
                _ => tracing::error!(error = %chain(&error), "a group of commits failed"),
            }
            if matches!(error, EngineError::Unknown(_)) {
                self.stop();
            }
            Arc::new(error)
        });
        for Asked { reply, answer, .. } in group.asked {
            // A refusal may be due to a change of this group that has not happened either.
            let answer = match &outcome {
                Err(error) if matches!(**error, EngineError::Doubtful(_)) && answer.is_ok() => {
                    Err(CommitError::Unknown(error.clone()))
                }
                Err(error) if !self.stopped => Err(CommitError::Engine(error.clone())),
                Err(error) if answer.is_ok() => Err(CommitError::Unknown(error.clone())),
                Err(_) => Err(CommitError::Stopped),
                Ok(()) => answer,
            };
            reply.send(answer).ok();
        }
        outcome
    }

    /// The same for a group nobody asked for.
    fn finish_rows(&mut self, group: Group) -> Result<(), EngineError> {
        self.finish(group).map_err(|error| match *error {
            EngineError::Overtaken => EngineError::Overtaken,
            _ => EngineError::Failed(Box::new(error)),
        })
    }

    /// Makes a group durable and visible, if there is something in it.
    fn write(&mut self, group: &mut Group) -> Result<(), EngineError> {
        if group.batch.last < group.batch.first && group.batch.spaces.is_empty() {
            return Ok(());
        }
        self.write_usage(group);
        group.batch.resources = self.shared.resources.read().unstored();
        self.engine.apply(&group.batch)?;
        self.publish(group);
        Ok(())
    }

    fn planned_again(&self, asked: Vec<Asked>) -> Group {
        let mut group = self.new_group();
        for Asked { change, reply, .. } in asked {
            let answer = self.plan(&mut group, &change);
            group.asked.push(Asked { change, reply, answer });
        }
        group
    }
}

/// An error with its causes, for the one place that logs it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
