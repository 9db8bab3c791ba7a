//! The full check of a store at rest: every page, every checksum, every link between log and versions.

use std::collections::HashMap;
use std::path::Path;

use polder_model::PlaneId;
use polder_store::Revision;
use polder_store::engine::{EngineError, LogEntry, SpaceState};
use rusqlite::Connection;

use crate::committed;
use crate::database::{self, Purpose, revision_column};
use crate::engine::{lock, with_suffix};
use crate::error::{OpenError, engine_error};
use crate::history::History;
use crate::key;
use crate::keys;
use crate::log::Commit;
use crate::reader::{blob, revision};
use crate::row;
use crate::value::{self, Opener};
use crate::wal::WalFile;

/// More are counted but not described.
const PROBLEMS_MAX: usize = 100;

/// What a full check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub current: Revision,
    pub compacted: Revision,
    pub commits: u64,
    pub versions: u64,
    pub planes: u64,
    pub spaces: u64,
    pub resources: u64,
    /// Spaces that have a key.
    pub keys: u64,
    /// What is wrong, in sentences; the first hundred of it.
    pub problems: Vec<String>,
    pub problems_count: u64,
}

impl Report {
    fn problem(&mut self, what: impl Into<String>) {
        self.problems_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what.into());
        }
    }

    /// Counts damage as a problem; other errors end the check.
    fn note<T>(&mut self, result: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(EngineError::Damaged(what)) => {
                self.problem(what);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Checks the store in a directory that no server uses. Changes nothing. An error means that it could not be
/// checked at all; what the check found is in the report.
pub fn verify(directory: &Path) -> Result<Report, OpenError> {
    let path = directory.join(database::FILE_NAME);
    // Before the lock, which would make a file where no store is.
    path.metadata().map_err(OpenError::io("open", &path))?;
    let _lock = lock(directory)?;
    let known =
        committed::read(directory).map_err(OpenError::io("read", directory.join(committed::FILE_NAME)))?;
    let connection = database::open(&path, Purpose::Verify, 16 << 20)?;
    let wal_path = with_suffix(&path, "-wal");
    let wal = WalFile::open(&wal_path).map_err(OpenError::io("open", &wal_path))?;
    let mut report = Report::default();
    check(&connection, &mut report).map_err(|error| OpenError::engine(&path, error))?;

    match History::verify(&connection, &wal, directory, &known, None) {
        Ok(history) => {
            report.current = history.current.revision;
            report.compacted = history.compacted.revision;
            report.commits = history.current.revision.0 - history.compacted.revision.0;
        }
        Err(OpenError::Damaged { what, .. }) => report.problem(what),
        Err(error) => return Err(error),
    }
    Ok(report)
}

fn check(connection: &Connection, report: &mut Report) -> Result<(), EngineError> {
    let pages = check_pages(connection, report);
    report.note(pages)?;
    let rows = check_rows(connection, report);
    let rows = report.note(rows)?.unwrap_or_default();
    let keys = check_keys(connection, report);
    report.note(keys)?;
    let versions = check_versions(connection, report);
    report.note(versions)?;
    let log = check_log(connection, report, &rows);
    report.note(log)?;
    Ok(())
}

fn check_pages(connection: &Connection, report: &mut Report) -> Result<(), EngineError> {
    let mut statement = connection.prepare("PRAGMA integrity_check(100)").map_err(engine_error)?;
    let mut rows = statement.query([]).map_err(engine_error)?;
    while let Some(row) = rows.next().map_err(engine_error)? {
        let line: String = row.get(0).map_err(engine_error)?;
        if line != "ok" {
            report.problem(line);
        }
    }
    Ok(())
}

/// What planes and spaces say that the log must agree with.
#[derive(Default)]
struct Rows {
    spaces: HashMap<u64, SpaceState>,
    last_changes: HashMap<PlaneId, Revision>,
}

/// The commits of each plane lead from one to the one before it, as far as the log goes back.
struct Trails {
    compacted: Revision,
    /// The newest commit so far, and the one before it.
    newest: HashMap<PlaneId, (Revision, Option<Revision>)>,
}

impl Trails {
    /// Whether an entry names the right commit; entries come in order.
    fn pass(&mut self, entry: &LogEntry) -> bool {
        let expected = match self.newest.get(&entry.plane) {
            Some((newest, before)) if *newest == entry.revision => *before,
            Some((newest, _)) => Some(*newest),
            None => None,
        };
        self.newest.insert(entry.plane, (entry.revision, expected));
        entry.before.is_none_or(|before| self.fits(before, expected))
    }

    /// Whether this is the newest commit of a plane that has a row.
    fn ends_with(&self, plane: PlaneId, last_change: Revision) -> bool {
        self.fits(last_change, self.newest.get(&plane).map(|(newest, _)| *newest))
    }

    fn fits(&self, found: Revision, expected: Option<Revision>) -> bool {
        expected.map_or(found <= self.compacted, |expected| found == expected)
    }
}

/// Checks planes, spaces and resources.
fn check_rows(connection: &Connection, report: &mut Report) -> Result<Rows, EngineError> {
    let Rows { mut spaces, mut last_changes } = Rows::default();
    for table in ["planes", "spaces", "resources"] {
        let mut statement =
            connection.prepare(&format!("SELECT id, row FROM {table}")).map_err(engine_error)?;
        let mut rows = statement.query([]).map_err(engine_error)?;
        while let Some(row) = rows.next().map_err(engine_error)? {
            let id = row.get::<_, i64>(0).map_err(engine_error)?.cast_unsigned();
            let bytes = blob(row, 1)?;
            let checked = match table {
                "planes" => {
                    report.planes += 1;
                    row::decode_plane(id, bytes).map(|plane| {
                        last_changes.extend(plane.last_change.map(|revision| (plane.id, revision)));
                    })
                }
                "spaces" => {
                    report.spaces += 1;
                    row::decode_space(id, bytes).map(|space| {
                        spaces.insert(id, space.state);
                    })
                }
                _ => {
                    report.resources += 1;
                    row::decode_resource(id, bytes).map(drop)
                }
            };
            report.note(checked)?;
        }
    }
    Ok(Rows { spaces, last_changes })
}

fn check_keys(connection: &Connection, report: &mut Report) -> Result<(), EngineError> {
    database::notes(connection)?;
    // Earlier formats have none.
    if !connection.table_exists(None, "space_keys").map_err(engine_error)? {
        return Ok(());
    }
    let mut after = None;
    loop {
        let keys = keys::read_after(connection, after, 1_000)?;
        let Some(last) = keys.last() else { return Ok(()) };
        after = Some(last.space);
        report.keys += keys.len() as u64;
    }
}

fn check_versions(connection: &Connection, report: &mut Report) -> Result<(), EngineError> {
    let mut opener = Opener::new()?;
    let mut statement =
        connection.prepare("SELECT key, revision, value FROM versions").map_err(engine_error)?;
    let mut rows = statement.query([]).map_err(engine_error)?;
    while let Some(row) = rows.next().map_err(engine_error)? {
        report.versions += 1;
        let key = blob(row, 0)?;
        if key::decode(key).is_none() {
            report.problem(format!("{} is no name of an object", key::describe(key)));
        }
        let checked = revision(row, 1).and_then(|revision| opener.open(key, revision, blob(row, 2)?));
        report.note(checked)?;
    }
    Ok(())
}

/// Every change in the log has written the version it names, unless its space has been dropped since.
fn check_log(connection: &Connection, report: &mut Report, known: &Rows) -> Result<(), EngineError> {
    let mut written = connection
        .prepare("SELECT value FROM versions WHERE key = ?1 AND revision = ?2")
        .map_err(engine_error)?;
    let mut statement =
        connection.prepare("SELECT revision, entries FROM log ORDER BY revision").map_err(engine_error)?;
    let mut rows = statement.query([]).map_err(engine_error)?;
    let mut key = Vec::new();
    let mut trails = Trails { compacted: database::compacted(connection)?.revision, newest: HashMap::new() };
    while let Some(row) = rows.next().map_err(engine_error)? {
        let revision = revision(row, 0)?;
        // `History` reports rows that do not verify.
        let Ok(mut commit) = Commit::open(revision, blob(row, 1)?) else { continue };
        while let Some((entry, checksum)) = commit.next()? {
            if !trails.pass(&entry) {
                report.problem(format!(
                    "commit {revision} in the log does not name the commit of plane {} before it",
                    entry.plane
                ));
            }
            if matches!(known.spaces.get(&entry.space.0), None | Some(SpaceState::Dropped)) {
                continue;
            }
            key::encode(entry.space, entry.resource, &entry.name, &mut key)?;
            let mut found = written.query((&key, revision_column(revision))).map_err(engine_error)?;
            let fits = match found.next().map_err(engine_error)? {
                Some(row) => {
                    value::check(&key, revision, blob(row, 0)?).is_none_or(|(_, found)| found == checksum)
                }
                None => false,
            };
            if !fits {
                report.problem(format!(
                    "{} at revision {revision}: the log says it was written, but it is not there",
                    key::describe(&key)
                ));
            }
        }
    }
    for (plane, last_change) in &known.last_changes {
        if !trails.ends_with(*plane, *last_change) {
            report.problem(format!("plane {plane}: its newest commit is not {last_change}"));
        }
    }
    Ok(())
}
