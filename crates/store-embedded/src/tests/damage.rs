//! What is on disk is not what was written: an error that names it, or the right answer. Never a wrong answer.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use polder_store::engine::EngineError;

use super::*;

const OBJECTS: u64 = 120;

/// How a store was left.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    Closed,
    /// By a kill, before any checkpoint.
    Killed,
    /// By a kill, when a checkpoint had copied everything or half of it.
    KilledAfterCheckpoint,
    KilledInCheckpoint,
}

/// A store of some objects in several versions.
fn make(directory: &Path, left: Left) {
    let work = tempfile::tempdir().unwrap();
    let options = Options { checkpoint_delay: std::time::Duration::from_secs(600), ..Options::default() };
    let mut engine = SqliteEngine::open(work.path(), &options).unwrap();
    let spaces = vec![space(SPACE, None, SpaceState::Open)];
    engine.apply(&Batch { spaces, ..Batch::default() }).unwrap();
    for revision in 1..=OBJECTS * 2 {
        put(
            &mut engine,
            revision,
            &format!("ns/n{}", revision % OBJECTS),
            &format!("{revision} ").repeat(40),
        );
    }
    // What a killed process leaves behind is what its files hold now.
    match left {
        Left::Closed => drop(engine),
        Left::Killed => return copy(work.path(), directory),
        Left::KilledAfterCheckpoint => {
            engine
                .writer
                .lock()
                .connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
                .unwrap();
            return copy(work.path(), directory);
        }
        Left::KilledInCheckpoint => {
            let before = fs::read(work.path().join("store.db")).unwrap();
            engine
                .writer
                .lock()
                .connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
                .unwrap();
            copy(work.path(), directory);
            // Pages are copied in order; the second half did not get there.
            let mut torn = fs::read(work.path().join("store.db")).unwrap();
            let half = torn.len() / 2 / 8192 * 8192;
            torn.truncate(half.max(before.len()));
            if before.len() > half {
                torn[half..before.len()].copy_from_slice(&before[half..]);
            }
            fs::write(directory.join("store.db"), torn).unwrap();
            return;
        }
    }
    copy(work.path(), directory);
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.is_file() && !path.ends_with("store.db-shm"))
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect()
}

/// Opens and reads everything. Panics if an answer is wrong; returns the error if there is one.
fn read_all(directory: &Path) -> Result<(), String> {
    let chain = |error: &dyn std::error::Error| {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        text
    };
    let before = files(directory);
    let mut engine = match SqliteEngine::open(directory, &Options::default()) {
        Ok(engine) => engine,
        Err(error) => {
            assert_eq!(files(directory), before, "a refused store was changed");
            let text = chain(&error);
            assert!(text.contains(directory.to_str().unwrap()), "{text}");
            return Err(text);
        }
    };
    let fail = |error: EngineError| chain(&error);
    let recovered = engine.recover().map_err(fail)?;
    assert_eq!(recovered.current, Revision(OBJECTS * 2));
    assert_eq!(recovered.spaces.len(), 1);
    let reader = engine.reader();
    let text = |revision: u64| record(&format!("{revision} ").repeat(40));
    for revision in 1..=OBJECTS * 2 {
        let name = object(&format!("ns/n{}", revision % OBJECTS));
        let version = reader.version(SPACE, RESOURCE, &name, Revision(revision)).map_err(fail)?;
        let version = version.unwrap_or_else(|| panic!("{name} at {revision} has vanished"));
        assert_eq!((version.revision.0, version.record), (revision, Some(text(revision))));
    }
    let found = reader.scan(&all(u64::MAX)).map_err(fail)?;
    assert_eq!(found.len() as u64, OBJECTS);
    for (_, version) in found {
        assert_eq!(version.record, Some(text(version.revision.0)));
    }
    let log = reader.log(Revision(0), usize::MAX).map_err(fail)?;
    assert_eq!(log.len() as u64, OBJECTS * 2);
    Ok(())
}

struct Case {
    source: tempfile::TempDir,
    seed: u64,
}

impl Case {
    fn new(left: Left) -> Case {
        let source = tempfile::tempdir().unwrap();
        make(source.path(), left);
        let seed = std::process::id().into();
        println!("seed {seed}");
        Case { source, seed }
    }

    fn random(&mut self, end: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % end
    }

    /// Damages one file of a copy and reads it.
    fn check(&self, file: &str, damage: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        copy(self.source.path(), directory.path());
        let path = directory.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        damage(&mut bytes);
        fs::write(&path, bytes).unwrap();
        read_all(directory.path())
    }
}

#[test]
fn undamaged_stores_are_read() {
    for left in [Left::Closed, Left::Killed, Left::KilledAfterCheckpoint, Left::KilledInCheckpoint] {
        assert_eq!(Case::new(left).check("store.db", |_| ()), Ok(()), "{left:?}");
    }
}

#[test]
fn flipped_bits_in_the_database_are_noticed() {
    let mut case = Case::new(Left::Closed);
    let len = fs::metadata(case.source.path().join("store.db")).unwrap().len() as usize;
    let mut noticed = 0;
    const ROUNDS: usize = 150;
    for round in 0..ROUNDS {
        // Page headers are small, and the worst place; half of the flips go there.
        let at =
            if round % 2 == 0 { case.random(len) } else { case.random(len) / 8192 * 8192 + case.random(64) };
        let bit = case.random(8);
        let result = case.check("store.db", |bytes| bytes[at] ^= 1 << bit);
        noticed += usize::from(result.is_err());
    }
    // What is not noticed lies in pages that nothing has to read.
    assert!(noticed > ROUNDS / 2, "{noticed}");
}

#[test]
fn a_page_in_the_wrong_place_is_noticed() {
    let mut case = Case::new(Left::Closed);
    let pages = fs::metadata(case.source.path().join("store.db")).unwrap().len() as usize / 8192;
    for _ in 0..10 {
        let (from, to) = (2 + case.random(pages - 2), 2 + case.random(pages - 2));
        let result =
            case.check("store.db", |bytes| bytes.copy_within(from * 8192..(from + 1) * 8192, to * 8192));
        // Free pages and the map of the incremental vacuum are not read.
        if result.is_err() {
            return;
        }
    }
    panic!("no misplaced page was noticed");
}

#[test]
fn a_truncated_database_is_noticed() {
    let case = Case::new(Left::Closed);
    let len = fs::metadata(case.source.path().join("store.db")).unwrap().len() as usize;
    for keep in [0, 1, 99, 100, 512, 8191, 8192, 8193, len / 2, len - 8192, len - 1] {
        assert!(case.check("store.db", |bytes| bytes.truncate(keep)).is_err(), "{keep} of {len}");
    }
}

#[test]
fn damage_in_the_wal_is_noticed() {
    for left in [Left::Killed, Left::KilledAfterCheckpoint, Left::KilledInCheckpoint] {
        let mut case = Case::new(left);
        // Behind the last frame are zeros that nobody reads.
        let wal = fs::read(case.source.path().join("store.db-wal")).unwrap();
        let last = wal.iter().rposition(|byte| *byte != 0).unwrap();
        let len = 32 + (last - 32) / (24 + 8192) * (24 + 8192) + (24 + 8192);
        assert!(len > 100_000 && len < wal.len(), "{len} of {}", wal.len());
        for at in [len, len + 24, wal.len() - 1] {
            case.check("store.db-wal", |bytes| bytes[at] ^= 4).unwrap();
        }
        case.check("store.db-wal", |bytes| bytes.truncate(len)).unwrap();
        let noticed = |result: Result<(), String>| {
            let error = result.unwrap_err();
            // What is left of the WAL and newer pages in the database may not even fit together as a database.
            let torn = left != Left::Killed && error.contains("malformed");
            assert!(torn || error.contains("are missing"), "{left:?}: {error}");
        };
        for _ in 0..20 {
            let (at, bit) = (case.random(len), case.random(8));
            noticed(case.check("store.db-wal", |bytes| bytes[at] ^= 1 << bit));
        }
        for at in [0, 8, 16, 24, 32, 40, 56, 5_000] {
            noticed(case.check("store.db-wal", |bytes| bytes[at] ^= 4));
        }
        for keep in [0, 1, 31, 32, 56, len / 2, len - 8192, len - 1] {
            noticed(case.check("store.db-wal", |bytes| bytes.truncate(keep)));
        }
    }
}

#[test]
fn a_damaged_committed_file_is_named() {
    let case = Case::new(Left::Closed);
    let error = case.check("COMMITTED", |bytes| bytes.fill(7)).unwrap_err();
    assert!(error.contains("COMMITTED") && error.contains("remove"), "{error}");
    assert_eq!(case.check("COMMITTED", |bytes| bytes[3] ^= 1), Ok(()), "the other slot is as good");
    fs::remove_file(case.source.path().join("COMMITTED")).unwrap();
    assert_eq!(read_all(case.source.path()), Ok(()));
}

#[test]
fn an_older_or_foreign_database_is_noticed() {
    let case = Case::new(Left::Closed);
    let other = tempfile::tempdir().unwrap();
    let mut engine = open(other.path());
    for revision in 1..=OBJECTS * 3 {
        put(&mut engine, revision, "a", &revision.to_string());
        if revision == OBJECTS {
            drop(engine);
            let older = fs::read(other.path().join("store.db")).unwrap();
            let error = case.check("store.db", |bytes| *bytes = older).unwrap_err();
            assert!(
                error.contains(&format!("commits {}..{} are missing", OBJECTS + 1, OBJECTS * 2)),
                "{error}"
            );
            engine = open(other.path());
        }
    }
    drop(engine);
    let foreign = fs::read(other.path().join("store.db")).unwrap();
    let error = case.check("store.db", |bytes| *bytes = foreign).unwrap_err();
    assert!(error.contains("different stores"), "{error}");
}

#[test]
fn what_is_no_store_is_left_alone() {
    let check = |prepare: &dyn Fn(&Path), expected: &str| {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        let before = files(directory.path());
        let error = SqliteEngine::open(directory.path(), &Options::default()).err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
        let mut after = files(directory.path());
        after.remove(&directory.path().join("LOCK"));
        assert_eq!(after, before);
    };
    check(&|path| fs::write(path.join("store.db"), "dear diary").unwrap(), "is not a store");
    check(&|path| fs::write(path.join("store.db"), "dear diary ".repeat(9_000)).unwrap(), "is not a store");
    check(&|path| fs::write(path.join("store.db"), "").unwrap(), "is not a store");
    check(&|path| fs::write(path.join("store.db-wal"), "left alone").unwrap(), "it is missing");
    check(&|path| fs::create_dir(path.join("store.db")).unwrap(), "cannot open");
    check(
        &|path| {
            let foreign = rusqlite::Connection::open(path.join("store.db")).unwrap();
            foreign.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
        },
        "is not a store",
    );
    check(
        &|path| {
            let mut engine = open(path);
            put(&mut engine, 1, "a", "1");
            engine.writer.lock().connection.execute_batch("PRAGMA user_version = 99").unwrap();
            drop(engine);
            fs::remove_file(path.join("LOCK")).unwrap();
        },
        "has format 99",
    );
    check(
        &|path| {
            let mut engine = open(path);
            put(&mut engine, 1, "a", "1");
            drop(engine);
            for file in ["LOCK", "store.db", "store.db-wal"] {
                fs::remove_file(path.join(file)).unwrap();
            }
        },
        "it is missing",
    );

    let file = tempfile::NamedTempFile::new().unwrap();
    let error = SqliteEngine::open(&file.path().join("sub"), &Options::default()).err().unwrap();
    assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
}

#[test]
fn a_hole_in_the_log_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path(), Left::Closed);
    let copied = tempfile::tempdir().unwrap();
    for (statement, expected) in [
        ("DELETE FROM log WHERE revision = 100", "some are missing"),
        ("DELETE FROM log WHERE revision = 1", "some are missing"),
        ("DELETE FROM log WHERE revision = 240", "commits 240..240 are missing"),
        (
            "UPDATE log SET entries = (SELECT entries FROM log WHERE revision = 8) WHERE revision = 9",
            "checksum",
        ),
        ("UPDATE meta SET value = x'00'", "meta"),
    ] {
        copy(directory.path(), copied.path());
        let engine = open(copied.path());
        engine.writer.lock().connection.execute_batch(statement).unwrap();
        drop(engine);
        let error = read_all(copied.path()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    for (statement, expected) in [
        ("DELETE FROM versions WHERE revision = 100", "it is not there"),
        ("UPDATE versions SET value = x'00' WHERE revision = 100", "checksum"),
        ("UPDATE spaces SET row = x'0000000000'", "checksum"),
    ] {
        copy(directory.path(), copied.path());
        let engine = open(copied.path());
        engine.writer.lock().connection.execute_batch(statement).unwrap();
        drop(engine);
        let report = crate::verify(copied.path()).unwrap();
        assert!(report.problems.iter().any(|problem| problem.contains(expected)), "{report:?}");
    }
    let report = crate::verify(directory.path()).unwrap();
    assert_eq!((report.versions, report.commits, report.problems_count), (OBJECTS * 2, OBJECTS * 2, 0));
}
