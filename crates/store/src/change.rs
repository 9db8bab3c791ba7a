//! What is asked of the store, and what comes back.

use std::fmt;
use std::sync::Arc;

use polder_model::{PlaneId, PlaneName, SmolStr};

use crate::engine::EngineError;
use crate::key::{Key, ObjectName, ResourceId, Revision};
use crate::object::{Record, StoredObject};
use crate::plane::{Limits, Profile};

/// A compare-and-commit: if every expectation holds, everything is written under one revision; else nothing is.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub writes: Vec<Write>,
    /// Objects that must be as the writer saw them, though this change does not write them.
    pub guards: Vec<(Key, Expect)>,
    /// At most one: it fails or happens as a whole, before the objects.
    pub plane: Option<PlaneChange>,
    /// What the plane that this change creates or forks has of its own.
    pub renewals: Vec<Renewal>,
    /// Made by somebody who may act only where the store leads. Checked when it is planned, and again after every replica
    /// that was first: a leader that does not know yet that it was replaced changes nothing after the new one has.
    pub needs_lead: bool,
}

impl Change {
    pub fn put(key: Key, record: Record, expect: Expect) -> Change {
        Change { writes: vec![Write { key, record: Some(record), expect }], ..Change::default() }
    }

    pub fn delete(key: Key, expect: Expect) -> Change {
        Change { writes: vec![Write { key, record: None, expect }], ..Change::default() }
    }
}

/// One object's part in a change.
#[derive(Clone, Debug)]
pub struct Write {
    pub key: Key,
    /// `None` deletes.
    pub record: Option<Record>,
    pub expect: Expect,
}

/// An object that a new plane has of its own from the start: made, in the same commit, of the one it would begin with. A
/// plane that would begin without such an object begins without it; what is not there has nothing to be known by.
#[derive(Clone)]
pub struct Renewal {
    pub resource: ResourceId,
    pub name: ObjectName,
    pub make: Arc<dyn Fn(&Record) -> Record + Send + Sync>,
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Renewal({:?} {:?})", self.resource, self.name)
    }
}

/// What must be true of an object when the change commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Anything,
    Absent,
    /// There, and last written by this revision.
    At(Revision),
}

/// A change to a plane or layer as a whole, in the same commit as the objects that describe it.
#[derive(Clone, Debug)]
pub enum PlaneChange {
    /// An empty plane over the shared base layer of its profile.
    Create {
        name: PlaneName,
        limits: Limits,
        profile: Profile,
    },
    /// A plane that starts as the source is now.
    Fork {
        name: PlaneName,
        source: ForkSource,
        limits: Limits,
    },
    SetLimits {
        plane: PlaneId,
        limits: Limits,
    },
    /// Makes every resource version of a plane from this commit on larger than `above`, for contents that come from
    /// another store. What was read before has another history: watches and lists from then are refused.
    RaiseVersions {
        plane: PlaneId,
        above: u64,
    },
    Delete {
        plane: PlaneId,
    },
    /// Seals what a plane holds now under a name.
    Seal {
        layer: SmolStr,
        plane: PlaneId,
    },
    /// Gives a layer's name up; what forks still use stays.
    Unseal {
        layer: SmolStr,
    },
}

#[derive(Clone, Debug)]
pub enum ForkSource {
    Plane(PlaneId),
    Layer(SmolStr),
}

/// A commit that happened.
#[derive(Clone, Debug)]
pub struct Committed {
    pub revision: Revision,
    /// The plane this change made.
    pub plane: Option<Arc<crate::plane::Plane>>,
}

/// Why a change did not happen. Nothing of it did, unless it is [`CommitError::Unknown`].
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("{key} is not as expected")]
    Conflict {
        key: Key,
        /// What is there instead.
        found: Option<Arc<StoredObject>>,
    },
    /// No engine has a place for it. Known before anything else, so that nobody else's change fails with it.
    #[error("{:?} cannot be the name of anything: it has a zero byte", .0.name)]
    NoName(ObjectName),
    /// The same: the engine says what it takes.
    #[error("it has {len} bytes where it is stored, and no more than {len_max} are taken at a time")]
    TooLong { len: usize, len_max: usize },
    #[error("no such plane")]
    NoPlane,
    #[error("plane {0} exists already")]
    PlaneExists(PlaneName),
    #[error("no layer {0:?}")]
    NoLayer(SmolStr),
    #[error("layer {0:?} exists already")]
    LayerExists(SmolStr),
    /// Merging them takes as long as history is kept.
    #[error("the plane was forked too often in a short time")]
    TooManyLayers,
    #[error("the plane's limit of {limit} {what} is reached")]
    LimitReached { what: &'static str, limit: u64 },
    #[error("the core plane cannot be deleted")]
    CorePlane,
    #[error("another replica leads")]
    NotLeading,
    #[error("the store is shutting down")]
    Closed,
    #[error("cannot write")]
    Engine(#[source] Arc<EngineError>),
    /// The change is there as a whole or not at all, and the next start of the store decides which.
    #[error("it is not known whether the change was made")]
    Unknown(#[source] Arc<EngineError>),
    /// It is not known what became of an earlier change, so none is made after it.
    #[error("the store takes no changes until it is opened again")]
    Stopped,
}

impl CommitError {
    /// Whether a change was refused for what the store has, which may be another thing a moment later.
    pub(crate) fn is_judgement(&self) -> bool {
        use CommitError::{Conflict, LayerExists, LimitReached, NoLayer, NoPlane, PlaneExists};
        matches!(
            self,
            Conflict { .. } | NoPlane | PlaneExists(_) | NoLayer(_) | LayerExists(_) | LimitReached { .. }
        )
    }
}
