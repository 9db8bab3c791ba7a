//! Opening: is everything there that was ever acknowledged, and nothing else?

use std::path::Path;

use polder_store::Revision;
use polder_store::engine::EngineError;
use rusqlite::{Connection, OptionalExtension};

use crate::committed::{self, Known, Mark, Note};
use crate::database::{self, revision_column};
use crate::engine::with_suffix;
use crate::error::{OpenError, engine_error};
use crate::log::{Chain, Commit};
use crate::reader::{blob, revision};
use crate::wal::{self, WalFile, WalPosition};

/// The extent of a verified log.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) compacted: Mark,
    pub(crate) current: Mark,
    /// What of the WAL it needs.
    pub(crate) wal: WalPosition,
}

impl History {
    /// Verifies that the WAL was read to where it was acknowledged, that the log is dense, the chain of its last
    /// `tail_len` commits or of all, and that it leads to what `COMMITTED` knows. Changes nothing.
    pub(crate) fn verify(
        connection: &Connection,
        wal: &WalFile,
        directory: &Path,
        known: &Known,
        tail_len: Option<u64>,
    ) -> Result<History, OpenError> {
        let path = directory.join(database::FILE_NAME);
        let wal_path = with_suffix(&path, "-wal");
        let frames = wal::frames(connection).map_err(|error| OpenError::sqlite(&path, error))?;
        let generation = wal.generation().map_err(OpenError::io("read", &wal_path))?;
        let wal =
            generation.map_or_else(WalPosition::default, |generation| WalPosition { generation, frames });

        let extent = extent(connection, tail_len);
        let note = match known {
            Known::Note(note) => *note,
            Known::Nothing => {
                let (compacted, current) = extent.map_err(|error| OpenError::engine(&path, error))?;
                if current.revision > Revision(0) {
                    tracing::warn!(directory = %directory.display(), "COMMITTED is missing; it is made anew");
                }
                return Ok(History { compacted, current, wal });
            }
            Known::Unreadable => {
                let what = "it cannot be read; check the store, then remove this file: it will be made anew";
                let path = directory.join(committed::FILE_NAME);
                return Err(OpenError::Damaged { path, what: what.to_owned() });
            }
        };
        let cut = wal::is_cut(note.wal, generation, frames);
        let (compacted, current) = match extent {
            // What is left of a cut WAL, and the database, need not fit together.
            Err(EngineError::Damaged(what)) if cut => return Err(cut_error(wal_path, note, frames, &what)),
            other => other.map_err(|error| OpenError::engine(&path, error))?,
        };
        if note.mark.revision > current.revision {
            let what = format!(
                "commits {}..{} are missing: they were acknowledged, but store.db and store.db-wal end before them. \
                 Put back the two files as they were, or a backup; to go on without these commits, remove COMMITTED",
                current.revision.next(),
                note.mark.revision
            );
            return Err(OpenError::Damaged { path, what });
        }
        if cut {
            return Err(cut_error(wal_path, note, frames, "the rest may be older than store.db"));
        }
        let chain = if note.mark.revision == compacted.revision {
            Some(compacted.chain)
        } else {
            chain_at(connection, note.mark.revision).map_err(|error| OpenError::engine(&path, error))?
        };
        if chain.is_some_and(|chain| chain != note.mark.chain) {
            let what = format!(
                "commit {} is another one than was acknowledged; store.db and COMMITTED are from different stores. \
                 Put back the files that belong together; if store.db is the right one, remove COMMITTED",
                note.mark.revision
            );
            return Err(OpenError::Damaged { path, what });
        }
        Ok(History { compacted, current, wal })
    }
}

fn cut_error(path: std::path::PathBuf, note: Note, frames: u32, why: &str) -> OpenError {
    let what = format!(
        "acknowledged commits are missing in it: {frames} of at least {} pages can be read ({why}). Put back the file as \
         it was, or all files of this directory from a backup",
        note.wal.frames
    );
    OpenError::Damaged { path, what }
}

/// Where the log begins and ends.
fn extent(connection: &Connection, tail_len: Option<u64>) -> Result<(Mark, Mark), EngineError> {
    let compacted = database::compacted(connection)?;
    // Counting touches every page of the log, so it also finds those that cannot be read.
    let (count, first, last): (i64, Option<i64>, Option<i64>) = connection
        .query_row(
            "SELECT (SELECT count(*) FROM log), (SELECT min(revision) FROM log), (SELECT max(revision) FROM log)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .map_err(engine_error)?;
    let (Some(first), Some(last)) = (first, last) else { return Ok((compacted, compacted)) };
    let (count, first, last) = (count.cast_unsigned(), first.cast_unsigned(), last.cast_unsigned());
    if first != compacted.revision.0 + 1 || last < first || last - first + 1 != count {
        return Err(EngineError::Damaged(format!(
            "the log has {count} commits from {first} to {last}, after commit {}; some are missing",
            compacted.revision
        )));
    }
    let start = tail_len.map_or(first, |len| first.max(last.saturating_sub(len)));
    let mut statement = connection
        .prepare("SELECT revision, entries FROM log WHERE revision >= ?1 ORDER BY revision")
        .map_err(engine_error)?;
    let mut rows = statement.query([revision_column(Revision(start))]).map_err(engine_error)?;
    let mut before = (start == first).then_some(compacted.chain);
    while let Some(row) = rows.next().map_err(engine_error)? {
        let revision = revision(row, 0)?;
        let mut commit = Commit::open(revision, blob(row, 1)?)?;
        if before.is_some_and(|before| before != commit.before) {
            let what = format!("commit {revision} in the log does not follow the one before it");
            return Err(EngineError::Damaged(what));
        }
        while commit.next()?.is_some() {}
        before = Some(commit.chain);
    }
    let chain = before.ok_or_else(|| EngineError::Damaged("the log cannot be read".to_owned()))?;
    Ok((compacted, Mark { revision: Revision(last), chain }))
}

/// The chain at a commit, if the log still has it.
fn chain_at(connection: &Connection, revision: Revision) -> Result<Option<Chain>, EngineError> {
    let row: Option<Vec<u8>> = connection
        .query_row("SELECT entries FROM log WHERE revision = ?1", [revision_column(revision)], |row| {
            row.get(0)
        })
        .optional()
        .map_err(engine_error)?;
    row.map(|row| Commit::open(revision, &row).map(|commit| commit.chain)).transpose()
}
