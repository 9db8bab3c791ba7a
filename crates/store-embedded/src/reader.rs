//! Reads: one version, a range, the log. Every value is verified before it is given out.

use std::sync::Arc;

use polder_store::engine::{EngineError, FilledVersion, LogEntry, Reader, Scan, SpaceKey, Version};
use polder_store::{ObjectName, ResourceId, Revision, SpaceId};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::database::revision_column;
use crate::error::engine_error;
use crate::key::{self, KeyRange};
use crate::keys;
use crate::log::Commit;
use crate::pool::{Connections, ReadConnection};
use crate::value::Opener;

/// After this many rows of one object that are of no use, seeking past the rest is cheaper than stepping over it.
const STEPS_MAX: u32 = 6;

/// The newest version of an object at or before a revision.
pub(crate) const VERSION_QUERY: &str =
    "SELECT revision, value FROM versions WHERE key = ?1 AND revision <= ?2
                                        ORDER BY revision DESC LIMIT 1";

/// Reads with connections from somewhere.
pub(crate) struct Reads<C>(pub(crate) C);

impl<C: Connections> Reader for Reads<C> {
    fn version(
        &self,
        space: SpaceId,
        resource: ResourceId,
        name: &ObjectName,
        at: Revision,
    ) -> Result<Option<Version>, EngineError> {
        let mut key = Vec::with_capacity(96);
        key::encode(space, resource, name, &mut key)?;
        let mut borrowed = self.0.take()?;
        let ReadConnection { connection, opener } = &mut *borrowed;
        version(connection, opener, &key, at)
    }

    fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(ObjectName, Version)>, EngineError> {
        if scan.limit == 0 {
            return Ok(Vec::new());
        }
        let mut borrowed = self.0.take()?;
        let ReadConnection { connection, opener } = &mut *borrowed;
        scan_range(connection, opener, scan)
    }

    fn versions(
        &self,
        space: SpaceId,
        resource: ResourceId,
        after: Option<(&ObjectName, Revision)>,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<FilledVersion>, EngineError> {
        let mut borrowed = self.0.take()?;
        let ReadConnection { connection, opener } = &mut *borrowed;
        versions(connection, opener, (space, resource), after, (limit, bytes_max))
    }

    fn next_place(
        &self,
        space: SpaceId,
        resource: ResourceId,
        after: Option<(&ObjectName, Revision)>,
    ) -> Result<Option<(ObjectName, Revision)>, EngineError> {
        let borrowed = self.0.take()?;
        let (low, high, before) = range_after(space, resource, after)?;
        let mut statement = borrowed
            .connection
            .prepare_cached(
                "SELECT key, revision FROM versions WHERE key >= ?1 AND key < ?2 AND (key > ?1 OR revision < ?3)
                 ORDER BY key, revision DESC LIMIT 1",
            )
            .map_err(engine_error)?;
        let mut rows = statement.query((&low, &high, before)).map_err(engine_error)?;
        match rows.next().map_err(engine_error)? {
            Some(row) => Ok(Some((name(blob(row, 0)?)?, revision(row, 1)?))),
            None => Ok(None),
        }
    }

    fn next_key(&self, after: Option<SpaceId>) -> Result<Option<SpaceId>, EngineError> {
        let borrowed = self.0.take()?;
        keys::next(&borrowed.connection, after)
    }

    fn key(&self, space: SpaceId) -> Result<Option<Arc<[u8]>>, EngineError> {
        let borrowed = self.0.take()?;
        keys::read(&borrowed.connection, space)
    }

    fn keys(&self, after: Option<SpaceId>, limit: usize) -> Result<Vec<SpaceKey>, EngineError> {
        let borrowed = self.0.take()?;
        keys::read_after(&borrowed.connection, after, limit)
    }

    fn is_empty(&self, space: SpaceId) -> Result<bool, EngineError> {
        let borrowed = self.0.take()?;
        let (low, high) = (space.0.to_be_bytes(), (space.0 + 1).to_be_bytes());
        let mut statement = borrowed
            .connection
            .prepare_cached("SELECT 1 FROM versions WHERE key >= ?1 AND key < ?2 LIMIT 1")
            .map_err(engine_error)?;
        let found = statement.exists((&low[..], &high[..])).map_err(engine_error)?;
        Ok(!found)
    }

    fn commit(&self, revision: Revision) -> Result<Vec<LogEntry>, EngineError> {
        let borrowed = self.0.take()?;
        commit(&borrowed.connection, revision)
    }

    fn log(&self, after: Revision, limit: usize) -> Result<Vec<LogEntry>, EngineError> {
        let borrowed = self.0.take()?;
        log(&borrowed.connection, after, limit)
    }
}

pub(crate) fn version(
    connection: &Connection,
    opener: &mut Opener,
    key: &[u8],
    at: Revision,
) -> Result<Option<Version>, EngineError> {
    let mut statement = connection.prepare_cached(VERSION_QUERY).map_err(engine_error)?;
    let mut rows = statement.query((key, revision_column(at))).map_err(engine_error)?;
    let Some(row) = rows.next().map_err(engine_error)? else { return Ok(None) };
    let revision = revision(row, 0)?;
    let record = opener.open(key, revision, blob(row, 1)?)?;
    Ok(Some(Version { revision, record }))
}

fn scan_range(
    connection: &Connection,
    opener: &mut Opener,
    scan: &Scan<'_>,
) -> Result<Vec<(ObjectName, Version)>, EngineError> {
    let KeyRange { mut low, high } =
        KeyRange::resource(scan.space, scan.resource, scan.namespace, scan.after);
    let mut statement = connection
        .prepare_cached(
            "SELECT key, revision, value FROM versions WHERE key >= ?1 AND key < ?2
             ORDER BY key, revision DESC",
        )
        .map_err(engine_error)?;

    let mut found = Vec::new();
    let mut bytes = 0;
    // The object under the cursor, whether its version was found, and how many of its rows were of no use.
    let mut current: Vec<u8> = Vec::with_capacity(96);
    let mut answered = false;
    let mut steps = 0;
    let mut snapshot = None;
    'seek: loop {
        let mut rows = statement.query((&low, &high)).map_err(engine_error)?;
        while let Some(row) = rows.next().map_err(engine_error)? {
            let key = blob(row, 0)?;
            if key != current {
                current.clear();
                current.extend_from_slice(key);
                answered = false;
                steps = 0;
            }
            let revision = revision(row, 1)?;
            if !answered && revision <= scan.at {
                let record = opener.open(key, revision, blob(row, 2)?)?;
                let version = Version { revision, record };
                bytes += version.len();
                found.push((name(key)?, version));
                if found.len() == scan.limit || bytes >= scan.bytes_max {
                    return Ok(found);
                }
                answered = true;
                steps = 0;
                continue;
            }
            steps += 1;
            if steps < STEPS_MAX {
                continue;
            }
            if snapshot.is_none() {
                snapshot = Some(Snapshot::hold(connection)?);
            }
            if !answered && let Some(version) = version(connection, opener, &current, scan.at)? {
                bytes += version.len();
                found.push((name(&current)?, version));
                if found.len() == scan.limit || bytes >= scan.bytes_max {
                    return Ok(found);
                }
            }
            low.clone_from(&current);
            low.push(0);
            continue 'seek;
        }
        return Ok(found);
    }
}

/// From which key, up to which, and of the first one before which revision.
fn range_after(
    space: SpaceId,
    resource: ResourceId,
    after: Option<(&ObjectName, Revision)>,
) -> Result<(Vec<u8>, Vec<u8>, i64), EngineError> {
    let KeyRange { mut low, high } = KeyRange::resource(space, resource, None, None);
    let mut before = i64::MAX;
    if let Some((name, revision)) = after {
        key::encode(space, resource, name, &mut low)?;
        before = revision_column(revision);
    }
    Ok((low, high, before))
}

fn versions(
    connection: &Connection,
    opener: &mut Opener,
    (space, resource): (SpaceId, ResourceId),
    after: Option<(&ObjectName, Revision)>,
    (limit, bytes_max): (usize, usize),
) -> Result<Vec<FilledVersion>, EngineError> {
    let (low, high, before) = range_after(space, resource, after)?;
    let mut statement = connection
        .prepare_cached(
            "SELECT key, revision, value FROM versions WHERE key >= ?1 AND key < ?2 AND (key > ?1 OR revision < ?3)
             ORDER BY key, revision DESC",
        )
        .map_err(engine_error)?;
    let mut rows = statement.query((&low, &high, before)).map_err(engine_error)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while found.len() < limit
        && (found.is_empty() || bytes < bytes_max)
        && let Some(row) = rows.next().map_err(engine_error)?
    {
        let (key, revision) = (blob(row, 0)?, revision(row, 1)?);
        let version = Version { revision, record: opener.open(key, revision, blob(row, 2)?)? };
        bytes += version.len();
        found.push(FilledVersion { resource, name: name(key)?, version });
    }
    Ok(found)
}

fn commit(connection: &Connection, revision: Revision) -> Result<Vec<LogEntry>, EngineError> {
    let mut statement =
        connection.prepare_cached("SELECT entries FROM log WHERE revision = ?1").map_err(engine_error)?;
    let mut rows = statement.query([revision_column(revision)]).map_err(engine_error)?;
    let Some(row) = rows.next().map_err(engine_error)? else { return Ok(Vec::new()) };
    let mut commit = Commit::open(revision, blob(row, 0)?)?;
    let mut entries = Vec::new();
    while let Some((entry, _)) = commit.next()? {
        entries.push(entry);
    }
    Ok(entries)
}

fn log(connection: &Connection, after: Revision, limit: usize) -> Result<Vec<LogEntry>, EngineError> {
    let mut statement = connection
        .prepare_cached("SELECT revision, entries FROM log WHERE revision > ?1 ORDER BY revision")
        .map_err(engine_error)?;
    let mut rows = statement.query([revision_column(after)]).map_err(engine_error)?;
    let mut entries = Vec::new();
    let mut before = None;
    while entries.len() < limit
        && let Some(row) = rows.next().map_err(engine_error)?
    {
        let revision = revision(row, 0)?;
        let mut commit = Commit::open(revision, blob(row, 1)?)?;
        if let Some((before_revision, before_chain)) = before
            && (revision != Revision::next(before_revision) || commit.before != before_chain)
        {
            let what = format!("commit {revision} in the log does not follow commit {before_revision}");
            return Err(EngineError::Damaged(what));
        }
        before = Some((revision, commit.chain));
        while let Some((entry, _)) = commit.next()? {
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// Keeps what a running statement sees for the statements after it.
struct Snapshot<'a>(&'a Connection);

impl<'a> Snapshot<'a> {
    /// SQLite lets a transaction begin around a statement that is reading already, and keeps its view.
    fn hold(connection: &'a Connection) -> Result<Snapshot<'a>, EngineError> {
        connection.prepare_cached("BEGIN").and_then(|mut begin| begin.execute([])).map_err(engine_error)?;
        Ok(Snapshot(connection))
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let ended = self.0.prepare_cached("ROLLBACK").and_then(|mut rollback| rollback.execute([]));
        if let Err(error) = ended {
            // The pool sees that the transaction is still open and throws the connection away.
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot end a read of the store");
        }
    }
}

fn name(key: &[u8]) -> Result<ObjectName, EngineError> {
    key::decode_name(key)
        .ok_or_else(|| EngineError::Damaged(format!("{} is no name of an object", key::describe(key))))
}

pub(crate) fn revision(row: &Row<'_>, column: usize) -> Result<Revision, EngineError> {
    let number: i64 = row.get(column).map_err(engine_error)?;
    u64::try_from(number)
        .map(Revision)
        .map_err(|_| EngineError::Damaged(format!("revision {number} is negative")))
}

pub(crate) fn blob<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a [u8], EngineError> {
    match row.get_ref(column).map_err(engine_error)? {
        ValueRef::Blob(bytes) => Ok(bytes),
        other => {
            Err(EngineError::Damaged(format!("a column has type {} instead of bytes", other.data_type())))
        }
    }
}
