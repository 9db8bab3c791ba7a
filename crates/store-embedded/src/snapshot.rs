//! All there is in a store at one moment, for whoever copies it. A server may be using the store: what it writes meanwhile is not
//! seen, and stays in the WAL until the snapshot is let go.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use polder_model::{GroupResource, PlaneId, SmolStr};
use polder_store::copy::{Digest, Take, check_whole, is_copied, is_portable};
use polder_store::engine::{
    Batch, EngineError, FilledVersion, LogEntry, Note, ObjectWrite, PlaneRow, PlaneWrite, SpaceKey, SpaceRow,
    SpaceState, Version,
};
use polder_store::replica::{Act, Entry, Kept, is_half_filled};
use polder_store::{ObjectName, ResourceId, Revision, SpaceId};

use crate::compact::hides;
use crate::database::{self, Purpose, revision_column};
use crate::engine::{self, lock};
use crate::error::{OpenError, engine_error};
use crate::key::{self, KeyRange};
use crate::keys;
use crate::log::Commit;
use crate::pool::ReadConnection;
use crate::reader::{self, blob};

/// What is handed out at one time.
const PART_LEN: usize = 1_000;
const PART_BYTES: usize = 4 << 20;

/// A store as it was at one moment.
pub struct Snapshot {
    connection: ReadConnection,
    rows: Rows,
    _lock: Option<File>,
}

/// What a store has beside objects.
#[derive(Clone, Default)]
pub struct Rows {
    /// The newest commit.
    pub current: Revision,
    compacted: Revision,
    planes: BTreeMap<PlaneId, PlaneRow>,
    /// Those that are somebody's.
    spaces: BTreeMap<SpaceId, SpaceRow>,
    keys: BTreeMap<SpaceId, Arc<[u8]>>,
    notes: BTreeMap<SmolStr, Arc<[u8]>>,
    resources: HashMap<ResourceId, GroupResource>,
}

impl Snapshot {
    /// A store that a server may be using.
    pub fn of(directory: &Path) -> Result<Snapshot, OpenError> {
        Snapshot::with(directory, None)?.whole(directory)
    }

    /// A store that no server uses, nor can use before this is let go.
    pub fn at_rest(directory: &Path) -> Result<Snapshot, OpenError> {
        Snapshot::with(directory, Some(lock(directory)?))?.whole(directory)
    }

    /// What somebody is copying into a store.
    pub fn unfinished(directory: &Path) -> Result<Snapshot, OpenError> {
        Snapshot::with(directory, None)
    }

    /// Half a store is none.
    fn whole(self, directory: &Path) -> Result<Snapshot, OpenError> {
        let notes = database::notes(&self.connection.connection);
        let checked = notes.and_then(|notes| match is_half_filled(&notes) {
            true => Err(EngineError::Failed("it is being filled, or was left half filled".into())),
            false => check_whole(&notes),
        });
        checked.map_err(|error| OpenError::engine(&directory.join(database::FILE_NAME), error))?;
        Ok(self)
    }

    fn with(directory: &Path, lock: Option<File>) -> Result<Snapshot, OpenError> {
        let path = directory.join(database::FILE_NAME);
        path.metadata().map_err(OpenError::io("open", &path))?;
        let purpose = if lock.is_some() { Purpose::Verify } else { Purpose::Read };
        let connection = database::open(&path, purpose, 16 << 20)?;
        // Until the connection is closed everything is read as it is now.
        connection.execute_batch("BEGIN").map_err(|error| OpenError::sqlite(&path, error))?;
        let taken = (|| {
            let connection = ReadConnection::new(connection)?;
            let rows = Rows::read(&connection)?;
            Ok(Snapshot { connection, rows, _lock: lock })
        })();
        taken.map_err(|error| OpenError::engine(&path, error))
    }

    /// What says which keys the store needs.
    pub fn notes(&self) -> Vec<Note> {
        self.rows.notes.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// About how many parts of something there will be: versions, of which some are old.
    pub fn len(&self) -> Result<u64, EngineError> {
        let counted =
            self.connection.connection.query_row("SELECT count(*) FROM versions", [], |row| row.get(0));
        counted.map(i64::cast_unsigned).map_err(engine_error)
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.rows.current == Revision(0) && self.rows.spaces.is_empty()
    }

    /// Hands out all there is, rows before objects.
    pub fn all(&mut self, take: &mut Take<'_>) -> Result<(), EngineError> {
        let Rows { planes, spaces, keys, notes, .. } = &self.rows;
        let spaces = spaces.values().cloned().map(Kept::Space);
        let planes = planes.values().cloned().map(Kept::Plane);
        let notes = notes.iter().map(|(name, value)| Kept::Note((name.clone(), value.clone())));
        let keys = keys
            .iter()
            .map(|(space, wrapped)| Kept::Key(SpaceKey { space: *space, wrapped: wrapped.clone() }));
        // Notes first: they say which keys are needed for the rest.
        let rows: Vec<Kept> = notes.chain(spaces).chain(planes).chain(keys).collect();
        rows.chunks(PART_LEN).try_for_each(|part| take(part.to_vec()))?;
        let mut parts = Parts { part: Vec::new(), bytes: 0, take };
        self.objects(&[], &[0xff; 9], &mut |_, kept, len| parts.push(kept, len))?;
        parts.flush()
    }

    /// By what it is known to hold the same as another.
    pub fn digest(&mut self) -> Result<Digest, EngineError> {
        let mut digest = Digest::default();
        self.all(&mut |part| {
            digest.add(&part);
            Ok(())
        })?;
        Ok(digest)
    }

    /// Hands out what has happened since an earlier snapshot, in steps that make of that one this one.
    /// [`EngineError::Compacted`] when the log does not go back so far.
    pub fn since(
        &mut self,
        before: &Rows,
        take: &mut dyn FnMut(Entry) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        if before.current < self.rows.compacted {
            return Err(EngineError::Compacted);
        }
        for batch in self.rows.changes(before) {
            take(self.entry(Act::Apply(batch)))?;
        }
        let new: Vec<SpaceId> =
            self.rows.spaces.keys().filter(|space| !before.spaces.contains_key(space)).copied().collect();
        let commits = self.log(before.current)?;
        // What the log tells of is written with its commit.
        let logged: HashSet<(SpaceId, ResourceId, ObjectName, Revision)> = commits
            .values()
            .flatten()
            .filter(|entry| !before.spaces.contains_key(&entry.space))
            .map(|entry| (entry.space, entry.resource, entry.name.clone(), entry.revision))
            .collect();
        let entry = self.entry(Act::Fill(SpaceId(0), Vec::new()));
        for space in new {
            let KeyRange { low, high } = KeyRange::space(space);
            let (mut versions, mut bytes) = (Vec::new(), 0);
            let mut fill = |versions: &mut Vec<FilledVersion>| match versions.is_empty() {
                true => Ok(()),
                false => take(Entry { act: Act::Fill(space, std::mem::take(versions)), ..entry.clone() }),
            };
            self.objects(&low, &high, &mut |resource, kept, len| {
                if let Kept::Object { name, version, .. } = kept
                    && !logged.contains(&(space, resource, name.clone(), version.revision))
                {
                    versions.push(FilledVersion { resource, name, version });
                    bytes += len;
                }
                if versions.len() >= PART_LEN || bytes >= PART_BYTES {
                    bytes = 0;
                    fill(&mut versions)?;
                }
                Ok(())
            })?;
            fill(&mut versions)?;
        }
        self.commits(before.current, commits, take)
    }

    /// The commits after a revision, in order.
    fn log(&self, after: Revision) -> Result<BTreeMap<Revision, Vec<LogEntry>>, EngineError> {
        let connection = &self.connection.connection;
        let mut statement = connection
            .prepare("SELECT revision, entries FROM log WHERE revision > ?1 ORDER BY revision")
            .map_err(engine_error)?;
        let mut rows = statement.query([revision_column(after)]).map_err(engine_error)?;
        let mut commits = BTreeMap::new();
        while let Some(row) = rows.next().map_err(engine_error)? {
            let revision = reader::revision(row, 0)?;
            let (mut commit, mut entries) = (Commit::open(revision, blob(row, 1)?)?, Vec::new());
            while let Some((entry, _)) = commit.next()? {
                entries.push(entry);
            }
            commits.insert(revision, entries);
        }
        Ok(commits)
    }

    /// Hands out commits with what they wrote, some at a time.
    fn commits(
        &mut self,
        after: Revision,
        commits: BTreeMap<Revision, Vec<LogEntry>>,
        take: &mut dyn FnMut(Entry) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let batch_from = |last: Revision| Batch { first: last.next(), last, ..Batch::default() };
        let (mut batch, mut bytes) = (batch_from(after), 0);
        let last = self.rows.current;
        for (revision, entries) in commits {
            if revision != batch.last.next() {
                return Err(EngineError::Damaged(format!("commit {} is not in the log", batch.last.next())));
            }
            batch.last = revision;
            // What went with its space is not there to be copied.
            for entry in entries.into_iter().filter(|entry| self.rows.spaces.contains_key(&entry.space)) {
                let mut key = Vec::new();
                key::encode(entry.space, entry.resource, &entry.name, &mut key)?;
                let ReadConnection { connection, opener } = &mut self.connection;
                let found = reader::version(connection, opener, &key, entry.revision)?;
                let record = match found {
                    Some(version) if version.revision == entry.revision => version.record,
                    _ => {
                        let what = format!("commit {revision} wrote {}, which is not there", entry.name);
                        return Err(EngineError::Damaged(what));
                    }
                };
                bytes += record.as_ref().map_or(0, polder_store::Record::len);
                batch.objects.push(ObjectWrite { entry, record });
            }
            if batch.objects.len() >= PART_LEN || bytes >= PART_BYTES || revision == last {
                take(self.entry(Act::Apply(std::mem::replace(&mut batch, batch_from(revision)))))?;
                bytes = 0;
            }
        }
        match batch.last == last {
            true => Ok(()),
            false => Err(EngineError::Damaged(format!("commit {last} is not in the log"))),
        }
    }

    fn entry(&self, act: Act) -> Entry {
        let names = self.rows.resources.iter().map(|(id, name)| (*id, name.clone())).collect();
        Entry { act, revision: self.rows.current, names, bare: Vec::new() }
    }

    /// The newest version of each object in a range of keys, in spaces that are somebody's. Deletions that hide nothing are left out.
    fn objects(
        &mut self,
        low: &[u8],
        high: &[u8],
        take: &mut dyn FnMut(ResourceId, Kept, usize) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let ReadConnection { connection, opener } = &mut self.connection;
        let mut statement = connection
            .prepare("SELECT key, revision, value FROM versions WHERE key >= ?1 AND key < ?2 ORDER BY key, revision DESC")
            .map_err(engine_error)?;
        let mut rows = statement.query((low, high)).map_err(engine_error)?;
        let mut last: Vec<u8> = Vec::new();
        while let Some(row) = rows.next().map_err(engine_error)? {
            let found = blob(row, 0)?;
            if found == last {
                continue;
            }
            last.clear();
            last.extend_from_slice(found);
            let damaged = || EngineError::Damaged(format!("{} is no object", key::describe(found)));
            let (space, resource, name) = key::decode(found).ok_or_else(damaged)?;
            if !self.rows.spaces.contains_key(&space) {
                continue;
            }
            let revision = reader::revision(row, 1)?;
            let record = opener.open(found, revision, blob(row, 2)?)?;
            if record.is_none() && !hides(connection, space, resource, &name)? {
                continue;
            }
            if record.as_ref().is_some_and(|record| !is_portable(record)) {
                return Err(EngineError::Failed(
                    format!("{name} was sealed by an early build of polder and cannot be copied: write it anew, unchanged or not")
                        .into(),
                ));
            }
            let known = self.rows.resources.get(&resource).cloned();
            let group_resource = known.ok_or_else(|| {
                EngineError::Damaged(format!("{} is of a resource without a name", key::describe(found)))
            })?;
            let version = Version { revision, record };
            let len = version.len();
            take(resource, Kept::Object { space, resource: group_resource, name, version }, len)?;
        }
        Ok(())
    }
}

impl Rows {
    fn read(connection: &ReadConnection) -> Result<Rows, EngineError> {
        let connection = &connection.connection;
        let recovered = engine::recover(connection)?;
        let compacted = database::compacted(connection)?.revision;
        let newest: Option<i64> = connection
            .query_row("SELECT max(revision) FROM log", [], |row| row.get(0))
            .map_err(engine_error)?;
        let current = newest.map_or(compacted, |newest| Revision(newest.cast_unsigned()));
        let is_somebodys = |row: &SpaceRow| matches!(row.state, SpaceState::Open | SpaceState::Sealed);
        let spaces = recovered.spaces.into_iter().filter(is_somebodys).map(|row| (row.id, row));
        let spaces: BTreeMap<SpaceId, SpaceRow> = spaces.collect();
        let (mut keys, mut after) = (BTreeMap::new(), None);
        loop {
            let page = keys::read_after(connection, after, PART_LEN)?;
            let Some(last) = page.last() else { break };
            after = Some(last.space);
            let page = page.into_iter().filter(|key| spaces.contains_key(&key.space));
            keys.extend(page.map(|key| (key.space, key.wrapped)));
        }
        Ok(Rows {
            current,
            compacted,
            planes: recovered.planes.into_iter().map(|row| (row.id, row)).collect(),
            spaces,
            keys,
            notes: recovered.notes.into_iter().filter(|(name, _)| is_copied(name)).collect(),
            resources: recovered.resources.into_iter().collect(),
        })
    }

    /// What makes earlier rows these, in batches without a commit.
    fn changes(&self, before: &Rows) -> Vec<Batch> {
        let mut batches = Vec::new();
        let rows = || Batch { first: before.current.next(), last: before.current, ..Batch::default() };
        let spaces: Vec<SpaceRow> = self
            .spaces
            .values()
            .filter(|row| before.spaces.get(&row.id) != Some(row))
            .cloned()
            .chain(
                before
                    .spaces
                    .keys()
                    .filter(|id| !self.spaces.contains_key(id))
                    .map(|id| SpaceRow::dropped(*id)),
            )
            .collect();
        let planes: Vec<PlaneWrite> = self
            .planes
            .values()
            .filter(|row| before.planes.get(&row.id) != Some(row))
            .cloned()
            .map(PlaneWrite::Put)
            .chain(
                before
                    .planes
                    .keys()
                    .filter(|id| !self.planes.contains_key(id))
                    .map(|id| PlaneWrite::Remove(*id)),
            )
            .collect();
        let keys: Vec<SpaceKey> = self
            .keys
            .iter()
            .filter(|(space, wrapped)| before.keys.get(space) != Some(wrapped))
            .map(|(space, wrapped)| SpaceKey { space: *space, wrapped: wrapped.clone() })
            .collect();
        let notes: Vec<_> = self
            .notes
            .iter()
            .filter(|(name, value)| before.notes.get(*name) != Some(value))
            .map(|(name, value)| (name.clone(), Some(value.clone())))
            .chain(
                before
                    .notes
                    .keys()
                    .filter(|name| !self.notes.contains_key(*name))
                    .map(|name| (name.clone(), None)),
            )
            .collect();
        batches.extend(spaces.chunks(PART_LEN).map(|part| Batch { spaces: part.to_vec(), ..rows() }));
        batches.extend(planes.chunks(PART_LEN).map(|part| Batch { planes: part.to_vec(), ..rows() }));
        batches.extend(keys.chunks(PART_LEN).map(|part| Batch { keys: part.to_vec(), ..rows() }));
        batches.extend(notes.chunks(PART_LEN).map(|part| Batch { notes: part.to_vec(), ..rows() }));
        batches
    }
}

/// Objects that wait until they are many.
struct Parts<'a, 'b> {
    part: Vec<Kept>,
    bytes: usize,
    take: &'a mut Take<'b>,
}

impl Parts<'_, '_> {
    fn push(&mut self, kept: Kept, len: usize) -> Result<(), EngineError> {
        self.bytes += len;
        self.part.push(kept);
        if self.part.len() >= PART_LEN || self.bytes >= PART_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        self.bytes = 0;
        (self.take)(std::mem::take(&mut self.part))
    }
}

#[cfg(test)]
mod tests;
