//! What an engine must do: keep versions durably, in order, and give them back.
//!
//! An engine knows spaces, resources, names and revisions; planes are opaque rows to it. One thread, the committer,
//! owns the [`Engine`] and writes; any number of threads read through [`Reader`]. [`crate::conformance`] is the test
//! of every engine.

use std::sync::Arc;

use polder_model::{GroupResource, PlaneId, SmolStr};

use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::Record;
use crate::plane::Limits;

/// Why an engine could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No room on the disk. Nothing was written; reads go on.
    #[error("no space left for the store")]
    Full(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What is on disk is not what was written.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// Nothing was written.
    #[error("the store failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It failed so late that nobody knows whether it was written: whoever opens the store next will see.
    #[error("it is not known whether the store was written")]
    Unknown(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What several stores share cannot be reached. Nothing was written; it can be tried again.
    #[error("what replicas share cannot be reached")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Several stores share this history, and it is not known whether what was to be added is there: it is among what
    /// [`Engine::follow`] gives, now or later, or it never will be. The engine may be written to: what is added behind the
    /// same place keeps the other away.
    #[error("it is not known whether the history that replicas share was written")]
    Doubtful(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Another store that shares this history has committed first. Nothing was written; after [`Engine::follow`] it can be
    /// tried again.
    #[error("another replica has committed first")]
    Overtaken,
    /// What other stores that share this history have done has been forgotten before this one took it. Nothing was written; it
    /// must begin with what there is now.
    #[error("this replica was away for so long that its place in the journal has been forgotten")]
    Compacted,
}

/// The writing side of an engine.
pub trait Engine: Send {
    /// Everything the store keeps in memory, read at start. Verifies that the log is dense.
    fn recover(&mut self) -> Result<Recovered, EngineError>;

    /// Writes a batch: all of it or nothing, durable when this returns. Every error but [`EngineError::Unknown`]
    /// promises that none of it is there, now and after a restart; the same revisions are then tried again. After
    /// `Unknown` the engine is not written to any more.
    fn apply(&mut self, batch: &Batch) -> Result<(), EngineError>;

    /// Forgets versions that were already superseded at `floor`, deletions up to it that hide nothing in the spaces
    /// below (those are sealed, so that cannot change), and the log up to it. Does a bounded amount of work a call
    /// and returns how far it got; `floor` when it is done.
    fn compact(&mut self, floor: Revision) -> Result<Revision, EngineError>;

    /// Removes a bounded part of what a dropped space holds; true when nothing is left and its row is gone.
    fn drop_space(&mut self, space: SpaceId) -> Result<bool, EngineError>;

    /// Adds versions to a space that nobody reads yet, without a commit: they have happened already, in other spaces.
    /// Called again with the same versions after a failure.
    fn fill(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError>;

    /// Puts other bytes in the place of versions that are there; they mean the same to whoever opens them. A version that
    /// is gone stays gone. What was there before is overwritten, not only freed.
    fn rewrite(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError>;

    /// Where several stores share one history: takes the next thing that another one has done, makes it durable here, and
    /// tells what it was. `None` when nothing is left to take, or nobody else is there.
    fn follow(&mut self, names: &dyn Names) -> Result<Option<Batch>, EngineError> {
        let _ = names;
        Ok(None)
    }

    /// Whoever rings the bell says that there is something to follow.
    fn set_bell(&mut self, bell: Bell) {
        drop(bell);
    }

    /// Where several stores share one history: how to ask how far it is. `None` where nobody else writes.
    fn horizon(&self) -> Option<Arc<dyn Horizon>> {
        None
    }

    /// What it takes at one time. Does not change.
    fn bounds(&self) -> Bounds {
        Bounds::default()
    }

    /// Whether this store does what only one of several may do: merge layers.
    fn leads(&self) -> bool {
        true
    }

    /// A bounded piece of what an engine does by itself between commits; true when there is more to do now. Called about
    /// once a second, and again as long as there is more.
    fn chore(&mut self) -> Result<bool, EngineError> {
        Ok(false)
    }

    fn reader(&self) -> Arc<dyn Reader>;

    /// A reader for the committer alone: it does not wait for the reads of others, however many there are.
    fn own_reader(&self) -> Arc<dyn Reader> {
        self.reader()
    }
}

/// What an engine takes at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Rows and bytes of a batch that costs no more than a short one: a group of changes ends when it is so long. One change
    /// may be longer.
    pub batch_len: usize,
    pub batch_bytes: usize,
    /// A longer record is refused.
    pub record_bytes_max: usize,
    /// The records of a change must not be longer together.
    pub change_bytes_max: usize,
}

impl Default for Bounds {
    /// Whatever there is.
    fn default() -> Bounds {
        let max = usize::MAX;
        Bounds { batch_len: max, batch_bytes: max, record_bytes_max: max, change_bytes_max: max }
    }
}

/// How far a history is that several stores share.
pub trait Horizon: Send + Sync {
    /// The revision of the newest commit that any of them was told of before this was called. Blocks, within bounds.
    fn newest(&self) -> Result<Revision, EngineError>;
}

/// Called when there is something to follow. Does not block.
pub type Bell = Arc<dyn Fn() + Send + Sync>;

/// How one store numbers resources. The numbers are its own; what stores share says names.
pub trait Names {
    /// The number of a resource, made on first use.
    fn resource_id(&self, name: &GroupResource) -> ResourceId;

    /// Numbers that the engine has not been given yet, in order: they belong into its next batch.
    fn unstored(&self) -> Vec<(ResourceId, GroupResource)>;
}

/// The reading side of an engine. Blocking; calls are short.
pub trait Reader: Send + Sync {
    /// The newest version of an object in one space at or before a revision.
    fn version(
        &self,
        space: SpaceId,
        resource: ResourceId,
        name: &ObjectName,
        at: Revision,
    ) -> Result<Option<Version>, EngineError>;

    /// The newest version at or before a revision of each object in a range, in name order. Deleted objects are
    /// included as such, because they hide what parent spaces hold.
    fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(ObjectName, Version)>, EngineError>;

    /// Whether a space holds no version at all.
    fn is_empty(&self, space: SpaceId) -> Result<bool, EngineError>;

    /// The log entries of one commit, in order: none when it changed no object, or is forgotten.
    fn commit(&self, revision: Revision) -> Result<Vec<LogEntry>, EngineError>;

    /// All versions of the objects of one resource in one space, by name and then from the newest to the oldest, after
    /// one of them. Ends as a scan does: with the version that makes it `limit` long or `bytes_max` heavy.
    fn versions(
        &self,
        space: SpaceId,
        resource: ResourceId,
        after: Option<(&ObjectName, Revision)>,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<FilledVersion>, EngineError>;

    /// Where the first of those versions is, without looking at what it says: for whoever goes around one that is damaged.
    fn next_place(
        &self,
        space: SpaceId,
        resource: ResourceId,
        after: Option<(&ObjectName, Revision)>,
    ) -> Result<Option<(ObjectName, Revision)>, EngineError> {
        let found = self.versions(space, resource, after, 1, 1)?;
        Ok(found.into_iter().next().map(|filled| (filled.name, filled.version.revision)))
    }

    /// The key that is kept with a space.
    fn key(&self, space: SpaceId) -> Result<Option<Arc<[u8]>>, EngineError>;

    /// Such keys, in the order of their spaces, after one of them.
    fn keys(&self, after: Option<SpaceId>, limit: usize) -> Result<Vec<SpaceKey>, EngineError>;

    /// Whose key the first of those is, without looking at it.
    fn next_key(&self, after: Option<SpaceId>) -> Result<Option<SpaceId>, EngineError> {
        Ok(self.keys(after, 1)?.first().map(|key| key.space))
    }

    /// Log entries after a revision, in order. Several entries may share a revision; the last revision of the
    /// answer is always complete.
    fn log(&self, after: Revision, limit: usize) -> Result<Vec<LogEntry>, EngineError>;
}

/// A version of an object in one space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub revision: Revision,
    /// `None`: deleted in this space.
    pub record: Option<Record>,
}

impl Version {
    /// What it counts for against [`Scan::bytes_max`].
    pub fn len(&self) -> usize {
        self.record.as_ref().map_or(0, Record::len)
    }

    /// Whether it counts for nothing: a deletion.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A version that is copied into a space.
#[derive(Clone, Debug)]
pub struct FilledVersion {
    pub resource: ResourceId,
    pub name: ObjectName,
    pub version: Version,
}

/// A range of one resource in one space.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    pub space: SpaceId,
    pub resource: ResourceId,
    /// Only this namespace.
    pub namespace: Option<&'a str>,
    /// Only names after this one.
    pub after: Option<&'a ObjectName>,
    pub at: Revision,
    pub limit: usize,
    /// The answer ends with the object whose record makes it this heavy, so there is always one. An answer with fewer
    /// objects than `limit` and fewer bytes than this ends the range.
    pub bytes_max: usize,
}

/// One change, as the log remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub revision: Revision,
    pub plane: PlaneId,
    pub space: SpaceId,
    pub resource: ResourceId,
    pub name: ObjectName,
    pub deleted: bool,
    /// The version this change replaced, if the object was there.
    pub previous: Option<(SpaceId, Revision)>,
    /// The plane's commit before this one; revision zero when it has none. `None` in logs from before this was
    /// written: then nobody knows.
    pub before: Option<Revision>,
}

/// What one group commit writes. Revisions run from `first` to `last` without a hole; when `last` is before `first` there
/// is no commit, only rows.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub first: Revision,
    pub last: Revision,
    pub objects: Vec<ObjectWrite>,
    pub planes: Vec<PlaneWrite>,
    pub spaces: Vec<SpaceRow>,
    pub resources: Vec<(ResourceId, GroupResource)>,
    /// Keys to keep with spaces, wrapped: the engine does not know what they open. All are equally long. What stood in their
    /// place is overwritten. A space that this batch writes as dropped loses its key in this batch, without a trace.
    pub keys: Vec<SpaceKey>,
    /// What is read through these rows is right after this revision only: other replicas forget history up to it first. A batch without
    /// objects that has all its commits behind this has them forgotten already, however many they are.
    pub floor: Revision,
    /// Small things to keep under a name; without a value, to forget.
    pub notes: Vec<(SmolStr, Option<Arc<[u8]>>)>,
}

/// Something kept under a name.
pub type Note = (SmolStr, Arc<[u8]>);

/// The key of a space as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceKey {
    pub space: SpaceId,
    pub wrapped: Arc<[u8]>,
}

#[derive(Clone, Debug)]
pub struct ObjectWrite {
    pub entry: LogEntry,
    /// `None` when deleted.
    pub record: Option<Record>,
}

#[derive(Clone, Debug)]
pub enum PlaneWrite {
    Put(PlaneRow),
    /// The plane is gone; its spaces are written as dropped in the same batch.
    Remove(PlaneId),
}

/// A plane as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneRow {
    pub id: PlaneId,
    pub name: SmolStr,
    /// The overlay that takes the plane's writes.
    pub space: SpaceId,
    /// Reads before this revision are refused: the plane did not exist, or has another history.
    pub floor: Revision,
    /// Added to revisions to make resource versions.
    pub version_offset: u64,
    pub limits: Limits,
    pub objects: u64,
    pub bytes: u64,
    /// The newest commit with a change of the plane; the others can be found from it by [`LogEntry::before`].
    /// `None` in rows from before this was written.
    pub last_change: Option<Revision>,
}

/// A space as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRow {
    pub id: SpaceId,
    pub parent: Option<SpaceId>,
    pub state: SpaceState,
    /// Content address of a shared layer; empty for others.
    pub digest: SmolStr,
    /// Name of a `Layer` that keeps the space; empty for others. While it is being filled, the numbers of the spaces that it is
    /// filled from.
    pub layer: SmolStr,
    /// What a plane made on top of it starts with.
    pub objects: u64,
    pub bytes: u64,
}

impl SpaceRow {
    /// What is left of a space that nobody needs.
    pub fn dropped(id: SpaceId) -> SpaceRow {
        let (digest, layer) = (SmolStr::default(), SmolStr::default());
        SpaceRow { id, parent: None, state: SpaceState::Dropped, digest, layer, objects: 0, bytes: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceState {
    /// Takes writes.
    Open,
    /// Immutable, may be shared.
    Sealed,
    /// Unreachable; its contents are being removed.
    Dropped,
    /// Being filled, and nobody stands on it yet. Comes to nothing when whoever fills it dies.
    Filling,
}

/// What an engine remembers at start.
#[derive(Debug, Default)]
pub struct Recovered {
    /// See [`Batch::notes`].
    pub notes: Vec<Note>,
    pub current: Revision,
    /// History up to here has been forgotten.
    pub compacted: Revision,
    pub planes: Vec<PlaneRow>,
    pub spaces: Vec<SpaceRow>,
    pub resources: Vec<(ResourceId, GroupResource)>,
}
