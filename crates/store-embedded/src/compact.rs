//! Forgetting: superseded versions, old log rows, dropped spaces, and the disk space they took.
//!
//! A version is superseded when its own space holds a newer one at or before the floor; what lies in parent spaces
//! is shared and never touched from here. The newest version at the floor always stays, with one exception: a
//! deletion that hides nothing in the parent spaces means the same as no row at all, and is removed. Parents are
//! sealed, so what a deletion hides cannot change later.
//!
//! Every call is one short transaction.

use std::time::{Duration, Instant};

use polder_store::ObjectName;
use polder_store::engine::{EngineError, LogEntry};
use polder_store::{ResourceId, Revision, SpaceId};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use crate::committed::Mark;
use crate::database::{self, revision_column};
use crate::error::engine_error;
use crate::key::{self, KeyRange};
use crate::keys;
use crate::log::Commit;
use crate::reader::{blob, revision};
use crate::{row, value};

/// Log entries a call looks at, and the time it takes, before it leaves the rest for the next call. The commit
/// that crosses a limit is finished: it was written in one transaction, so it can be forgotten in one.
/// Each entry may dirty a page of its own, and the commit then writes them all: more entries would hold up writers.
const ENTRIES_MAX: usize = 500;
const TIME_MAX: Duration = Duration::from_millis(5);
/// Rows of a dropped space that one call removes.
const DROP_ROWS_MAX: i64 = 5_000;
/// Pages given back to the file system by one call.
const SHRINK_PAGES_MAX: i64 = 256;
/// Free pages that are kept for coming writes: so many, and this part of the file.
const SLACK_PAGES: i64 = 128;
const SLACK_PART: i64 = 16;
/// No chain of spaces is longer, unless it is damaged.
const DEPTH_MAX: usize = 10_000;

/// Forgets from where the last call stopped towards `target`; returns how far it got.
pub(crate) fn compact(
    connection: &mut Connection,
    compacted: Mark,
    target: Revision,
) -> Result<Mark, EngineError> {
    let transaction = begin(connection)?;
    let mut reached = compacted;
    if compacted.revision < target {
        let started = Instant::now();
        let mut entries_count = 0;
        let mut statement = transaction
            .prepare_cached(
                "SELECT revision, entries FROM log WHERE revision > ?1 AND revision <= ?2 ORDER BY revision",
            )
            .map_err(engine_error)?;
        let mut rows = statement
            .query((revision_column(compacted.revision), revision_column(target)))
            .map_err(engine_error)?;
        let may_go_on = |entries_count| entries_count < ENTRIES_MAX && started.elapsed() < TIME_MAX;
        // One commit a call at least, or on a busy machine nothing is ever forgotten.
        while reached.revision == compacted.revision || may_go_on(entries_count) {
            let Some(row) = rows.next().map_err(engine_error)? else { break };
            let revision = revision(row, 0)?;
            let mut commit = Commit::open(revision, blob(row, 1)?)?;
            while let Some((entry, _)) = commit.next()? {
                forget_before(&transaction, &entry)?;
                entries_count += 1;
            }
            reached = Mark { revision, chain: commit.chain };
        }
    }
    if reached.revision > compacted.revision {
        transaction
            .prepare_cached("DELETE FROM log WHERE revision <= ?1")
            .and_then(|mut delete| delete.execute([revision_column(reached.revision)]))
            .map_err(engine_error)?;
        database::set_compacted(&transaction, reached).map_err(engine_error)?;
    }
    shrink(&transaction)?;
    transaction.commit().map_err(engine_error)?;
    Ok(reached)
}

/// Removes a part of a space. Whether nothing was left, and whether it had a key until now.
pub(crate) fn drop_space(connection: &mut Connection, space: SpaceId) -> Result<(bool, bool), EngineError> {
    let transaction = begin(connection)?;
    // It has gone with the commit that dropped the space, unless that was a layer which came to nothing.
    let destroyed = keys::destroy(&transaction, space).map_err(engine_error)?;
    let KeyRange { low, high } = KeyRange::space(space);
    // The row after those that this call removes.
    let stop: Option<(Vec<u8>, i64)> = transaction
        .prepare_cached(
            "SELECT key, revision FROM versions WHERE key >= ?1 AND key < ?2
             ORDER BY key, revision DESC LIMIT 1 OFFSET ?3",
        )
        .and_then(|mut statement| {
            statement.query_row((&low, &high, DROP_ROWS_MAX), |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })
        .map_err(engine_error)?;
    let remove = |high: &[u8]| {
        transaction
            .prepare_cached("DELETE FROM versions WHERE key >= ?1 AND key < ?2")
            .and_then(|mut delete| delete.execute((&low, high)))
            .map_err(engine_error)
    };
    match &stop {
        Some((key, revision)) => {
            remove(key)?;
            transaction
                .prepare_cached("DELETE FROM versions WHERE key = ?1 AND revision > ?2")
                .and_then(|mut delete| delete.execute((key, revision)))
                .map_err(engine_error)?;
        }
        None => {
            remove(&high)?;
            transaction
                .prepare_cached("DELETE FROM spaces WHERE id = ?1")
                .and_then(|mut delete| delete.execute([space.0.cast_signed()]))
                .map_err(engine_error)?;
        }
    }
    shrink(&transaction)?;
    transaction.commit().map_err(engine_error)?;
    Ok((stop.is_none(), destroyed))
}

fn begin(connection: &mut Connection) -> Result<Transaction<'_>, EngineError> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(engine_error)
}

/// Removes what one change superseded, and the change itself if it says nothing any more.
fn forget_before(transaction: &Transaction<'_>, entry: &LogEntry) -> Result<(), EngineError> {
    let mut key = Vec::with_capacity(96);
    key::encode(entry.space, entry.resource, &entry.name, &mut key)?;
    // By range and not by the entry's `previous`: an object that was deleted and made again has none, but left a
    // deletion behind.
    let keeps = entry.deleted && hides(transaction, entry.space, entry.resource, &entry.name)?;
    let below = if entry.deleted && !keeps { entry.revision.next() } else { entry.revision };
    transaction
        .prepare_cached("DELETE FROM versions WHERE key = ?1 AND revision < ?2")
        .and_then(|mut delete| delete.execute((&key, revision_column(below))))
        .map_err(engine_error)?;
    Ok(())
}

/// Whether a deletion in this space hides an object of a parent.
pub(crate) fn hides(
    transaction: &Connection,
    space: SpaceId,
    resource: ResourceId,
    name: &ObjectName,
) -> Result<bool, EngineError> {
    let mut key = Vec::with_capacity(96);
    let mut space = space;
    for _ in 0..DEPTH_MAX {
        let Some(parent) = parent(transaction, space)? else { return Ok(false) };
        key::encode(parent, resource, name, &mut key)?;
        let mut statement = transaction
            .prepare_cached(
                "SELECT revision, value FROM versions WHERE key = ?1 ORDER BY revision DESC LIMIT 1",
            )
            .map_err(engine_error)?;
        let mut rows = statement.query([&key]).map_err(engine_error)?;
        if let Some(row) = rows.next().map_err(engine_error)? {
            let (revision, found) = (revision(row, 0)?, blob(row, 1)?);
            if value::check(&key, revision, found).is_none() {
                let what =
                    format!("{} at revision {revision}: the checksum does not match", key::describe(&key));
                return Err(EngineError::Damaged(what));
            }
            return Ok(!value::is_deletion(found));
        }
        space = parent;
    }
    Err(EngineError::Damaged(format!("space {} is its own ancestor", space.0)))
}

fn parent(transaction: &Connection, space: SpaceId) -> Result<Option<SpaceId>, EngineError> {
    let mut statement =
        transaction.prepare_cached("SELECT row FROM spaces WHERE id = ?1").map_err(engine_error)?;
    let mut rows = statement.query([space.0.cast_signed()]).map_err(engine_error)?;
    match rows.next().map_err(engine_error)? {
        Some(found) => Ok(row::decode_space(space.0, blob(found, 0)?)?.parent),
        None => Ok(None),
    }
}

/// Gives free pages back to the file system, unless they are few.
fn shrink(transaction: &Transaction<'_>) -> Result<(), EngineError> {
    let number = |name: &str| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (free, all) =
        (number("freelist_count").map_err(engine_error)?, number("page_count").map_err(engine_error)?);
    let excess = free - SLACK_PAGES - all / SLACK_PART;
    if excess <= 0 {
        return Ok(());
    }
    let pages = excess.min(SHRINK_PAGES_MAX);
    let mut statement =
        transaction.prepare(&format!("PRAGMA incremental_vacuum({pages})")).map_err(engine_error)?;
    let mut rows = statement.query([]).map_err(engine_error)?;
    while rows.next().map_err(engine_error)?.is_some() {}
    Ok(())
}
