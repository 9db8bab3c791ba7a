//! The engine: one writing connection, recovery, and the commit.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use polder_store::engine::{
    Batch, Engine, EngineError, FilledVersion, ObjectWrite, PlaneWrite, Reader, Recovered, SpaceState,
};
use polder_store::{Revision, SpaceId};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior};

use crate::checkpoint::{self, Checkpointer};
use crate::committed::{self, CommittedFile, Known, Mark, Note};
use crate::database::{self, Purpose, revision_column};
use crate::error::{OpenError, commit_error, engine_error};
use crate::history::History;
use crate::log::{Chain, CommitRow};
use crate::page::PAGE_LEN;
use crate::pool::{ReadPool, WriteConnection};
use crate::reader::{Reads, blob};
use crate::row;
use crate::value::{self, Sealer};
use crate::wal::{WalFile, WalPosition};
use crate::{compact, key, keys};

const LOCK_FILE_NAME: &str = "LOCK";
/// How many times, a second apart, emptying the WAL is put off.
const PUT_OFF_MAX: u32 = 30;
/// How many commits are verified at open. All of them are by [`crate::verify()`].
const TAIL_LEN: u64 = 1_000;

/// How much an engine may use.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections for reads that run at the same time.
    pub readers_max: usize,
    /// Page cache of each of them.
    pub reader_cache_bytes: u64,
    /// Page cache of the writer.
    pub writer_cache_bytes: u64,
    /// What may wait in the WAL before a checkpoint starts. The writer waits for it at sixteen times as much.
    pub checkpoint_bytes: u64,
    /// How long less than that may wait.
    pub checkpoint_delay: Duration,
    /// The database may not grow beyond this.
    pub size_max_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            readers_max: 8,
            reader_cache_bytes: 8 << 20,
            writer_cache_bytes: 64 << 20,
            checkpoint_bytes: 8 << 20,
            checkpoint_delay: Duration::from_secs(1),
            size_max_bytes: None,
        }
    }
}

/// A store in one directory.
pub struct SqliteEngine {
    pub(crate) writer: WriteConnection,
    pub(crate) compacted: Mark,
    current: Mark,
    sealer: Sealer,
    committed: CommittedFile,
    wal: WalFile,
    /// What of the WAL the current state needs.
    wal_position: WalPosition,
    checkpointer: Checkpointer,
    pub(crate) pool: Arc<ReadPool>,
    /// A batch failed so late that only the next start can tell whether it is there. Nothing is written any more, so
    /// that the next start finds what this one left.
    lost_track: bool,
    /// The WAL may still have what was destroyed in the database.
    has_traces: bool,
    /// How often that was put off, because there was much to copy first.
    put_off: u32,
    /// Buffers of [`Engine::apply`], kept between calls.
    key: Vec<u8>,
    values: Vec<u8>,
    row: Vec<u8>,
    /// Held as long as the engine lives; released last.
    _lock: File,
}

impl SqliteEngine {
    /// Opens the store in a directory, or makes one there if it is empty or missing. On any error the directory is
    /// left as it was.
    pub fn open(directory: &Path, options: &Options) -> Result<SqliteEngine, OpenError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(OpenError::io("create", directory))?;
        let lock = lock(directory)?;
        let known = committed::read(directory)
            .map_err(OpenError::io("read", directory.join(committed::FILE_NAME)))?;
        let path = directory.join(database::FILE_NAME);
        create_if_missing(directory, &path, &known)?;

        let mut connection = database::open(&path, Purpose::Write, options.writer_cache_bytes)?;
        let wal_path = with_suffix(&path, "-wal");
        let wal = WalFile::open(&wal_path).map_err(OpenError::io("open", &wal_path))?;
        let History { compacted, current, wal: wal_position } =
            History::verify(&connection, &wal, directory, &known, Some(TAIL_LEN))?;

        database::upgrade(&connection).map_err(|error| OpenError::sqlite(&path, error))?;
        let limits = connection
            .pragma_update(None, "journal_size_limit", checkpoint::wal_bytes_kept(options.checkpoint_bytes))
            .and_then(|()| match options.size_max_bytes {
                Some(bytes) => {
                    let pages = i64::try_from(bytes / PAGE_LEN as u64).unwrap_or(i64::MAX).max(1);
                    connection.pragma_update(None, "max_page_count", pages)
                }
                None => Ok(()),
            });
        limits.map_err(|error| OpenError::sqlite(&path, error))?;
        let committed = CommittedFile::open(directory, Note { mark: current, wal: wal_position })
            .map_err(OpenError::io("write", directory.join(committed::FILE_NAME)))?;
        let synced =
            committed.try_clone().map_err(OpenError::io("open", directory.join(committed::FILE_NAME)))?;
        let checkpointer = Checkpointer::start(&path, &mut connection, synced, options)?;
        let sealer = Sealer::new().map_err(|error| OpenError::engine(&path, error))?;
        let writer = WriteConnection::new(connection).map_err(|error| OpenError::engine(&path, error))?;
        let pool = Arc::new(ReadPool::new(path, options.readers_max, options.reader_cache_bytes));
        Ok(SqliteEngine {
            writer,
            compacted,
            current,
            sealer,
            committed,
            wal,
            wal_position,
            checkpointer,
            pool,
            lost_track: false,
            // What an earlier process left in the WAL.
            has_traces: wal_position.frames > 0,
            put_off: 0,
            key: Vec::new(),
            values: Vec::new(),
            row: Vec::new(),
            _lock: lock,
        })
    }
}

impl Engine for SqliteEngine {
    fn recover(&mut self) -> Result<Recovered, EngineError> {
        let recovered = recover(&self.writer.lock().connection)?;
        let (current, compacted) = (self.current.revision, self.compacted.revision);
        Ok(Recovered { current, compacted, ..recovered })
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.check_track()?;
        let empty = batch.last < batch.first || batch.last == Revision(0);
        if !empty && batch.first != self.current.revision.next() {
            let what =
                format!("a batch starts at {}, but the store is at {}", batch.first, self.current.revision);
            return Err(EngineError::Failed(what.into()));
        }
        let mut writer = self.writer.lock();
        let connection = &mut writer.connection;
        self.checkpointer.bound_wal(connection);

        let mut commits: BTreeMap<Revision, Vec<&ObjectWrite>> = BTreeMap::new();
        for write in &batch.objects {
            let revision = write.entry.revision;
            if empty || revision < batch.first || revision > batch.last {
                let what = format!("a batch of {}..{} has a write at {revision}", batch.first, batch.last);
                return Err(EngineError::Failed(what.into()));
            }
            commits.entry(revision).or_default().push(write);
        }

        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(engine_error)?;
        let mut chain = self.current.chain;
        // Commits that nobody will ask about leave no trace but their number.
        let is_forgotten = !empty
            && batch.objects.is_empty()
            && batch.floor >= batch.last
            && self.compacted.revision == self.current.revision;
        if is_forgotten {
            database::set_compacted(&transaction, Mark { revision: batch.last, chain })
                .map_err(engine_error)?;
        } else if !empty {
            let mut writer = CommitWriter {
                transaction: &transaction,
                sealer: &mut self.sealer,
                key: &mut self.key,
                value: &mut self.values,
            };
            for revision in batch.first.0..=batch.last.0 {
                let revision = Revision(revision);
                let writes = commits.get(&revision).map_or(&[][..], Vec::as_slice);
                let row = CommitRow::new(revision, chain, std::mem::take(&mut self.row));
                (self.row, chain) = writer.commit(row, revision, writes)?;
            }
        }
        let destroyed = write_rows(&transaction, batch).map_err(engine_error)?;
        if let Err(error) = transaction.commit() {
            let error = commit_error(error);
            self.lost_track = matches!(error, EngineError::Unknown(_));
            return Err(error);
        }

        drop(writer);
        self.has_traces |= destroyed;

        if !empty {
            self.current = Mark { revision: batch.last, chain };
        }
        if is_forgotten {
            self.compacted = self.current;
        }
        self.note();
        Ok(())
    }

    fn compact(&mut self, floor: Revision) -> Result<Revision, EngineError> {
        self.check_track()?;
        let target = floor.min(self.current.revision);
        let mut writer = self.writer.lock();
        let connection = &mut writer.connection;
        self.checkpointer.bound_wal(connection);
        self.compacted = compact::compact(connection, self.compacted, target)?;
        drop(writer);
        self.note();
        Ok(if self.compacted.revision >= target { floor } else { self.compacted.revision })
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<bool, EngineError> {
        self.check_track()?;
        let mut writer = self.writer.lock();
        let connection = &mut writer.connection;
        self.checkpointer.bound_wal(connection);
        let (done, destroyed) = compact::drop_space(connection, space)?;
        drop(writer);
        self.has_traces |= destroyed;
        self.note();
        Ok(done)
    }

    fn fill(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        self.check_track()?;
        let mut writer = self.writer.lock();
        let connection = &mut writer.connection;
        self.checkpointer.bound_wal(connection);
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(engine_error)?;
        {
            let mut insert = transaction
                .prepare_cached("INSERT OR REPLACE INTO versions (key, revision, value) VALUES (?1, ?2, ?3)")
                .map_err(engine_error)?;
            for FilledVersion { resource, name, version } in versions {
                key::encode(space, *resource, name, &mut self.key)?;
                self.values.clear();
                self.sealer.seal(&self.key, version.revision, version.record.as_ref(), &mut self.values);
                let revision = revision_column(version.revision);
                insert.execute((&self.key, revision, &self.values)).map_err(engine_error)?;
            }
        }
        transaction.commit().map_err(engine_error)?;
        drop(writer);
        self.note();
        Ok(())
    }

    fn rewrite(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        self.check_track()?;
        let mut writer = self.writer.lock();
        let connection = &mut writer.connection;
        self.checkpointer.bound_wal(connection);
        // Pages that it frees are overwritten too.
        connection.pragma_update(None, "secure_delete", true).map_err(engine_error)?;
        let written = rewrite(connection, &mut self.sealer, space, versions);
        connection.pragma_update(None, "secure_delete", "FAST").map_err(engine_error)?;
        written?;
        drop(writer);
        self.has_traces = true;
        self.note();
        Ok(())
    }

    fn chore(&mut self) -> Result<bool, EngineError> {
        if self.has_traces && !self.lost_track {
            // Commits wait for it, so the thread copies first what it can. Under a flood of commits it may never be done.
            if self.checkpointer.is_nearly_done() || self.put_off >= PUT_OFF_MAX {
                self.put_off = 0;
                self.has_traces = !self.clear_wal()?;
            } else {
                self.put_off += 1;
            }
        }
        Ok(false)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(Reads(self.pool.clone()))
    }

    fn own_reader(&self) -> Arc<dyn Reader> {
        Arc::new(Reads(self.writer.clone()))
    }
}

impl SqliteEngine {
    fn check_track(&self) -> Result<(), EngineError> {
        match self.lost_track {
            true => {
                Err(EngineError::Failed("an earlier write may or may not be there; open it again".into()))
            }
            false => Ok(()),
        }
    }

    /// Notes in `COMMITTED` what the last transaction made durable. It only serves to notice damage later, so a failure
    /// does not undo anything.
    fn note(&mut self) {
        let noted = self.wal.generation().and_then(|generation| {
            if let (Some(generation), Some(frames)) = (generation, self.checkpointer.wal_frames()) {
                self.wal_position = WalPosition { generation, frames };
                self.wal.grow_ahead(self.wal_position);
            }
            self.committed.write(Note { mark: self.current, wal: self.wal_position })
        });
        if let Err(error) = noted {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot write COMMITTED");
        }
    }

    /// Empties the WAL, so that nothing that was destroyed can be found in it; true when that was possible without waiting
    /// for anybody.
    fn clear_wal(&mut self) -> Result<bool, EngineError> {
        let writer = self.writer.lock();
        let connection = &writer.connection;
        if !self.checkpointer.copy_all(connection) {
            return Ok(false);
        }
        // As at the end: everything is in the database before COMMITTED says so, and that is durable before the WAL is cut.
        self.wal_position = WalPosition::default();
        let note = Note { mark: self.current, wal: self.wal_position };
        let noted = (0..2).try_for_each(|_| self.committed.write(note).and_then(|()| self.committed.sync()));
        noted.map_err(|error| EngineError::Failed(error.into()))?;
        connection.busy_timeout(Duration::ZERO).map_err(engine_error)?;
        let cut = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        connection.busy_timeout(database::BUSY_TIMEOUT).map_err(engine_error)?;
        match cut {
            Ok(busy) => Ok(busy == 0),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(false),
            Err(error) => Err(engine_error(error)),
        }
    }

    /// Forgets everything, and begins with an empty store in the same directory.
    pub fn renew(self, directory: &Path, options: &Options) -> Result<SqliteEngine, OpenError> {
        drop(self);
        // In this order whoever is interrupted leaves what it had, which was closed and needs no WAL, or nothing.
        let database = directory.join(database::FILE_NAME);
        for path in [
            directory.join(committed::FILE_NAME),
            with_suffix(&database, "-wal"),
            with_suffix(&database, "-shm"),
            database,
        ] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(OpenError::io("remove", path)(error));
                }
                _ => {}
            }
        }
        SqliteEngine::open(directory, options)
    }

    /// Writes the whole database anew, so that no page has anything in it that was freed before, then empties the WAL. Takes as
    /// long as that takes, and as much room again.
    pub fn scrub(&mut self) -> Result<(), EngineError> {
        self.check_track()?;
        {
            let writer = self.writer.lock();
            let vacuum = "PRAGMA secure_delete=ON; PRAGMA temp_store=FILE; VACUUM; PRAGMA temp_store=MEMORY; \
                          PRAGMA secure_delete=FAST";
            writer.connection.execute_batch(vacuum).map_err(engine_error)?;
        }
        self.note();
        self.has_traces = true;
        match self.clear_wal()? {
            true => Ok(()),
            false => Err(EngineError::Failed("somebody else reads the store".into())),
        }
    }

    /// Leaves an empty WAL, so that the next start has nothing to read. In this order a kill in between is no damage:
    /// what the WAL holds is in the database before `COMMITTED` says that it is not needed.
    fn close(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        self.checkpointer.stop();
        if self.lost_track {
            return Ok(());
        }
        let writer = self.writer.lock();
        if self.checkpointer.finish(&writer.connection) {
            // Both slots: the older one must not ask for what is gone.
            for _ in 0..2 {
                self.committed.write(Note { mark: self.current, wal: WalPosition::default() })?;
                self.committed.sync()?;
            }
            writer.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        } else {
            self.committed.sync()?;
        }
        Ok(())
    }
}

impl Drop for SqliteEngine {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(error = &*error, "cannot close the store cleanly; it will be recovered");
        }
    }
}

/// Writes one commit after the other within a transaction.
struct CommitWriter<'a> {
    transaction: &'a Transaction<'a>,
    sealer: &'a mut Sealer,
    key: &'a mut Vec<u8>,
    value: &'a mut Vec<u8>,
}

impl CommitWriter<'_> {
    fn commit(
        &mut self,
        mut row: CommitRow,
        revision: Revision,
        writes: &[&ObjectWrite],
    ) -> Result<(Vec<u8>, Chain), EngineError> {
        let mut insert = self
            .transaction
            .prepare_cached("INSERT INTO versions (key, revision, value) VALUES (?1, ?2, ?3)")
            .map_err(engine_error)?;
        for ObjectWrite { entry, record } in writes {
            key::encode(entry.space, entry.resource, &entry.name, self.key)?;
            self.value.clear();
            let checksum = self.sealer.seal(self.key, revision, record.as_ref(), self.value);
            insert.execute((&*self.key, revision_column(revision), &*self.value)).map_err(engine_error)?;
            row.push(entry, checksum);
        }
        let (bytes, chain) = row.finish();
        self.transaction
            .prepare_cached("INSERT INTO log (revision, entries) VALUES (?1, ?2)")
            .and_then(|mut insert| insert.execute((revision_column(revision), &bytes)))
            .map_err(engine_error)?;
        Ok((bytes, chain))
    }
}

/// Puts other bytes in the place of versions that are there.
fn rewrite(
    connection: &mut Connection,
    sealer: &mut Sealer,
    space: SpaceId,
    versions: &[FilledVersion],
) -> Result<(), EngineError> {
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(engine_error)?;
    let (mut key, mut bytes) = (Vec::new(), Vec::new());
    for FilledVersion { resource, name, version } in versions {
        let Some(record) = &version.record else { continue };
        key::encode(space, *resource, name, &mut key)?;
        let revision = revision_column(version.revision);
        let found: Option<Vec<u8>> = transaction
            .prepare_cached("SELECT value FROM versions WHERE key = ?1 AND revision = ?2")
            .and_then(|mut select| select.query_row((&key, revision), |row| row.get(0)).optional())
            .map_err(engine_error)?;
        let Some(found) = found.filter(|found| !value::is_deletion(found)) else { continue };
        let (_, link) = value::check(&key, version.revision, &found).ok_or_else(|| {
            EngineError::Damaged(format!("{}: the checksum does not match", key::describe(&key)))
        })?;
        bytes.clear();
        sealer.reseal((&key, version.revision), record, link, &mut bytes);
        transaction
            .prepare_cached("UPDATE versions SET value = ?3 WHERE key = ?1 AND revision = ?2")
            .and_then(|mut update| update.execute((&key, revision, &bytes)))
            .map_err(engine_error)?;
    }
    transaction.commit().map_err(engine_error)
}

/// True when keys were destroyed or replaced.
fn write_rows(transaction: &Transaction<'_>, batch: &Batch) -> rusqlite::Result<bool> {
    let mut destroyed = false;
    for key in &batch.keys {
        destroyed |= keys::write(transaction, key)?;
    }
    for (name, value) in &batch.notes {
        destroyed |= value.is_none();
        database::write_note(transaction, name, value.as_deref())?;
    }
    for write in &batch.planes {
        match write {
            PlaneWrite::Put(plane) => transaction
                .prepare_cached("INSERT OR REPLACE INTO planes (id, row) VALUES (?1, ?2)")?
                .execute((plane.id.0.cast_signed(), row::encode_plane(plane)))?,
            PlaneWrite::Remove(plane) => transaction
                .prepare_cached("DELETE FROM planes WHERE id = ?1")?
                .execute([plane.0.cast_signed()])?,
        };
    }
    for space in &batch.spaces {
        transaction
            .prepare_cached("INSERT OR REPLACE INTO spaces (id, row) VALUES (?1, ?2)")?
            .execute((space.id.0.cast_signed(), row::encode_space(space)))?;
        if space.state == SpaceState::Dropped {
            destroyed |= keys::destroy(transaction, space.id)?;
        }
    }
    for (id, resource) in &batch.resources {
        transaction
            .prepare_cached("INSERT OR REPLACE INTO resources (id, row) VALUES (?1, ?2)")?
            .execute((id.0, row::encode_resource(*id, resource)))?;
    }
    Ok(destroyed)
}

/// What the tables remember; not how far the log goes.
pub(crate) fn recover(connection: &Connection) -> Result<Recovered, EngineError> {
    Ok(Recovered {
        notes: database::notes(connection)?,
        planes: rows(connection, "SELECT id, row FROM planes ORDER BY id", row::decode_plane)?,
        spaces: rows(connection, "SELECT id, row FROM spaces ORDER BY id", row::decode_space)?,
        resources: rows(connection, "SELECT id, row FROM resources ORDER BY id", row::decode_resource)?,
        ..Recovered::default()
    })
}

fn rows<T>(
    connection: &Connection,
    query: &str,
    decode: impl Fn(u64, &[u8]) -> Result<T, EngineError>,
) -> Result<Vec<T>, EngineError> {
    let mut statement = connection.prepare(query).map_err(engine_error)?;
    let mut rows = statement.query([]).map_err(engine_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(engine_error)? {
        let id: i64 = row.get(0).map_err(engine_error)?;
        found.push(decode(id.cast_unsigned(), blob(row, 1)?)?);
    }
    Ok(found)
}

/// Takes the directory for this process.
pub(crate) fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK_FILE_NAME);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(OpenError::io("write to", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { directory: directory.to_owned() }),
        Err(TryLockError::Error(error)) => Err(OpenError::io("lock", &path)(error)),
    }
}

/// A new database appears under its name only when it is complete, so that whatever stands under that name and is
/// no store was put there by someone else.
fn create_if_missing(directory: &Path, path: &Path, known: &Known) -> Result<(), OpenError> {
    if path.try_exists().map_err(OpenError::io("look at", path))? {
        return Ok(());
    }
    let wal = with_suffix(path, "-wal");
    let wal_len = wal.metadata().map_or(0, |metadata| metadata.len());
    let lost = match known {
        Known::Note(note) => note.mark.revision > Revision(0),
        Known::Unreadable => true,
        Known::Nothing => false,
    };
    if lost || wal_len > 0 {
        let what = "it is missing, though there was a store in this directory; put it back from a backup, or move \
                    the other files away to start with an empty store";
        return Err(OpenError::Damaged { path: path.to_owned(), what: what.to_owned() });
    }
    let new = with_suffix(path, ".new");
    let remove = |path: PathBuf| match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(OpenError::io("remove", path)(error))
        }
        _ => Ok(()),
    };
    let clear = || {
        ["", "-wal", "-shm", "-journal"].into_iter().try_for_each(|suffix| remove(with_suffix(&new, suffix)))
    };
    clear()?;
    if let Err(error) = database::create(&new) {
        clear()?;
        return Err(error);
    }
    let synced = File::open(&new).and_then(|file| file.sync_all());
    synced.map_err(OpenError::io("sync", &new))?;
    for suffix in ["-wal", "-shm"] {
        remove(with_suffix(&new, suffix))?;
    }
    std::fs::rename(&new, path).map_err(OpenError::io("create", path))?;
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(OpenError::io("sync", directory))
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
