//! The database file: its tables, its settings, its connections.

use std::path::Path;
use std::time::Duration;

use polder_store::Revision;
use polder_store::engine::{EngineError, Note};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, FileControl, OpenFlags, OptionalExtension};

use crate::committed::Mark;
use crate::error::{OpenError, engine_error};
use crate::log::Chain;
use crate::page::{self, CHECKSUM_LEN, PAGE_LEN};
use crate::reader::blob;
use polder_store::bytes::{Input, put_number};

pub(crate) const FILE_NAME: &str = "store.db";

/// The format this code writes; kept in `PRAGMA user_version`. Format 2 is format 1 with each plane's commits linked
/// ([`polder_store::engine::LogEntry::before`]); rows of both are read, and a store of format 1 becomes one of format 2
/// when it is opened for writing. Format 3 has keys of spaces ([`crate::keys`]), and values that were sealed or rewritten.
pub(crate) const FORMAT: i64 = 3;
const FORMAT_OLDEST: i64 = 1;
/// "Pldr", in `PRAGMA application_id`.
const APPLICATION: i64 = 0x506c_6472;

pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// `versions`: the newest version of an object comes first, so that "newest at or before a revision" is one seek.
/// `log`: see [`crate::log`]. `planes`, `spaces`, `resources`: see [`crate::row`]. `meta`: how far history has been
/// forgotten.
const TABLES: &str = "
    CREATE TABLE versions (key BLOB NOT NULL, revision INTEGER NOT NULL, value BLOB NOT NULL,
                           PRIMARY KEY (key, revision DESC)) WITHOUT ROWID;
    CREATE TABLE log (revision INTEGER PRIMARY KEY, entries BLOB NOT NULL);
    CREATE TABLE planes (id INTEGER PRIMARY KEY, row BLOB NOT NULL);
    CREATE TABLE spaces (id INTEGER PRIMARY KEY, row BLOB NOT NULL);
    CREATE TABLE resources (id INTEGER PRIMARY KEY, row BLOB NOT NULL);
    CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
";

/// `space_keys`: see [`crate::keys`]. What format 3 has in addition.
const TABLES_3: &str = "
    CREATE TABLE IF NOT EXISTS space_keys (slot INTEGER PRIMARY KEY, space BLOB NOT NULL, row BLOB NOT NULL);
    CREATE INDEX IF NOT EXISTS space_keys_by_space ON space_keys (space);
";

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Write,
    Checkpoint,
    Read,
    /// Looks at everything and changes nothing, though the file is opened for writing, as the WAL demands.
    Verify,
}

/// Makes a new database with empty tables.
pub(crate) fn create(path: &Path) -> Result<(), OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = connect(path, flags)?;
    (|| {
        connection.pragma_update(None, "page_size", PAGE_LEN as i64)?;
        connection.file_control(Some("main"), FileControl::ReserveBytes(&mut i32::from(CHECKSUM_LEN)))?;
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {TABLES} {TABLES_3} PRAGMA application_id={APPLICATION}; PRAGMA user_version={FORMAT};"
        ))?;
        set_compacted(&connection, Mark { revision: Revision(0), chain: Chain(0) })?;
        connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
    })()
    .map_err(|error| OpenError::sqlite(path, error))
}

/// Opens an existing database and makes sure that it is ours, in a format this code knows. Changes nothing.
pub(crate) fn open(path: &Path, purpose: Purpose, cache_bytes: u64) -> Result<Connection, OpenError> {
    let flags = match purpose {
        Purpose::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        _ => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    let connection = connect(path, flags)?;
    check(&connection, path)?;
    (|| {
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.pragma_update(None, "mmap_size", 0)?;
        // In KiB when negative.
        let cache = -i64::try_from(cache_bytes / 1024).unwrap_or(i64::MAX);
        // What is freed within a page that is written anyway is overwritten: that costs no I/O.
        if purpose == Purpose::Write {
            connection.pragma_update(None, "secure_delete", "FAST")?;
        }
        connection.pragma_update(None, "cache_size", cache)
    })()
    .map_err(|error| OpenError::sqlite(path, error))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::sqlite(path, error);
    if !page::register() {
        let source = "SQLite has no file layer for this system".into();
        return Err(OpenError::Failed { path: path.to_owned(), source });
    }
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags_and_vfs(path, flags, page::LAYER).map_err(failed)?;
    // Closing must not touch a database that turned out to be damaged: the WAL may hold what is left of it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map_err(failed)?;
    // Without it SQLite plans a statement anew for every new parameter, which takes longer than most reads.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    Ok(connection)
}

fn check(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let number = |name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .map_err(|error| OpenError::sqlite(path, error))
    };
    if number("application_id")? != APPLICATION {
        return Err(OpenError::NotAStore { path: path.to_owned() });
    }
    let found = number("user_version")?;
    if found > FORMAT {
        return Err(OpenError::NewerFormat { path: path.to_owned(), found, known: FORMAT });
    }
    if found < FORMAT_OLDEST || number("page_size")? != PAGE_LEN as i64 {
        let what = format!("the file header is wrong (format {found}); restore it from a backup");
        return Err(OpenError::Damaged { path: path.to_owned(), what });
    }
    Ok(())
}

/// From now on rows are written that an older version does not know.
pub(crate) fn upgrade(connection: &Connection) -> rusqlite::Result<()> {
    let found = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))?;
    if found >= FORMAT {
        return Ok(());
    }
    connection.execute_batch(&format!("BEGIN IMMEDIATE; {TABLES_3} PRAGMA user_version={FORMAT}; COMMIT"))
}

/// Small things kept under a name, beside our own.
pub(crate) fn notes(connection: &Connection) -> Result<Vec<Note>, EngineError> {
    let mut statement =
        connection.prepare("SELECT name, value FROM meta WHERE name LIKE 'note:%'").map_err(engine_error)?;
    let mut rows = statement.query([]).map_err(engine_error)?;
    let mut notes = Vec::new();
    while let Some(row) = rows.next().map_err(engine_error)? {
        let name: String = row.get(0).map_err(engine_error)?;
        let mut input = Input(blob(row, 1)?);
        if input.fixed_u32() != Some(note_checksum(&name, input.0)) {
            return Err(EngineError::Damaged(format!("{name} in meta: the checksum does not match")));
        }
        notes.push((name.trim_start_matches("note:").into(), input.0.into()));
    }
    Ok(notes)
}

pub(crate) fn write_note(connection: &Connection, name: &str, value: Option<&[u8]>) -> rusqlite::Result<()> {
    let name = format!("note:{name}");
    match value {
        Some(value) => {
            let row = [&note_checksum(&name, value).to_le_bytes(), value].concat();
            connection
                .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?
                .execute((name, row))?;
        }
        None => {
            // Overwritten where it stands before it goes.
            connection
                .prepare_cached("UPDATE meta SET value = zeroblob(length(value)) WHERE name = ?1")?
                .execute([&name])?;
            connection.prepare_cached("DELETE FROM meta WHERE name = ?1")?.execute([&name])?;
        }
    }
    Ok(())
}

fn note_checksum(name: &str, value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(name.as_bytes());
    hasher.update(&[0]);
    hasher.update(value);
    hasher.finalize()
}

/// How far history has been forgotten, and the chain at that point.
pub(crate) fn compacted(connection: &Connection) -> Result<Mark, EngineError> {
    let value: Option<Vec<u8>> = connection
        .prepare_cached("SELECT value FROM meta WHERE name = 'compacted'")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)).optional())
        .map_err(engine_error)?;
    let damaged = || EngineError::Damaged("meta: the compacted revision cannot be read".to_owned());
    let value = value.ok_or_else(damaged)?;
    let mut input = Input(&value);
    let checksum = input.fixed_u32().ok_or_else(damaged)?;
    if checksum != crc32fast::hash(input.0) {
        return Err(damaged());
    }
    let mark = input.number().zip(input.number_u32()).ok_or_else(damaged)?;
    Ok(Mark { revision: Revision(mark.0), chain: Chain(mark.1) })
}

pub(crate) fn set_compacted(connection: &Connection, mark: Mark) -> rusqlite::Result<()> {
    let mut value = vec![0; 4];
    put_number(mark.revision.0, &mut value);
    put_number(u64::from(mark.chain.0), &mut value);
    let checksum = crc32fast::hash(&value[4..]);
    value[..4].copy_from_slice(&checksum.to_le_bytes());
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES ('compacted', ?1)")?
        .execute([value])?;
    Ok(())
}

/// A revision as SQLite's signed integers have it. [`Revision::NEWEST`] becomes the largest.
pub(crate) fn revision_column(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}
