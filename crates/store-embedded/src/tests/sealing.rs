//! What is destroyed or rewritten is gone from the files, also from what SQLite has freed and from the WAL.

use std::sync::Arc;

use polder_store::engine::{FilledVersion, SpaceKey, Version};
use polder_store::sealed::{KeyFile, Keyring, SealedEngine};

use super::*;
use crate::Needles;

/// Bytes that stand nowhere else.
fn noise(number: u64) -> Arc<[u8]> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let bytes = (0..65).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u8
    });
    bytes.collect()
}

/// Which of these stand somewhere in the files of a store.
fn found(directory: &Path, pieces: impl Iterator<Item = (u32, Vec<u8>)>) -> Vec<u32> {
    let mut needles = Needles::default();
    for (of, piece) in pieces {
        assert!(needles.add(of, &piece));
    }
    let (traces, _) = needles.search(directory).unwrap();
    let mut found: Vec<u32> = traces.into_iter().map(|trace| trace.of).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// A minute without commits.
fn rest(engine: &mut SqliteEngine) {
    for _ in 0..60 {
        engine.chore().unwrap();
    }
}

fn keys(spaces: impl Iterator<Item = u64>) -> Vec<SpaceKey> {
    spaces.map(|space| SpaceKey { space: SpaceId(space), wrapped: noise(space) }).collect()
}

#[test]
fn a_destroyed_key_leaves_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    // In an order that is not theirs, over many pages.
    for part in 0..20 {
        let spaces = (0..100).map(|index| 1 + (part * 100 + index) * 7 % 2_000);
        engine.apply(&Batch { keys: keys(spaces), ..Batch::default() }).unwrap();
    }
    let reader = engine.reader();
    assert_eq!(reader.key(SpaceId(77)).unwrap(), Some(noise(77)));
    assert_eq!(reader.key(SpaceId(5_000)).unwrap(), None);
    let listed = reader.keys(Some(SpaceId(10)), 3).unwrap();
    assert_eq!(listed.iter().map(|key| key.space.0).collect::<Vec<_>>(), [11, 12, 13]);

    let gone = |space: &u64| space.is_multiple_of(3);
    let dropped = |space| super::space(SpaceId(space), None, SpaceState::Dropped);
    for some in (1..=2_000).filter(gone).collect::<Vec<_>>().chunks(30) {
        let spaces = some.iter().map(|space| dropped(*space)).collect();
        engine.apply(&Batch { spaces, ..Batch::default() }).unwrap();
        assert_eq!(reader.key(SpaceId(some[0])).unwrap(), None);
    }
    drop(reader);
    rest(&mut engine);
    let pieces = |space: u64| (space as u32, noise(space).to_vec());
    let all_gone = || found(directory.path(), (1..=2_000).filter(gone).map(pieces));
    assert_eq!(all_gone(), Vec::<u32>::new(), "while it runs");
    assert_eq!(found(directory.path(), [1, 2, 4].into_iter().map(pieces)), [1, 2, 4], "the others are there");

    // New keys take the free places.
    let rows = |engine: &SqliteEngine| -> i64 {
        let writer = engine.writer.lock();
        writer.connection.query_row("SELECT count(*) FROM space_keys", [], |row| row.get(0)).unwrap()
    };
    let before = rows(&engine);
    engine.apply(&Batch { keys: keys(3_000..3_100), ..Batch::default() }).unwrap();
    assert_eq!(rows(&engine), before);
    // One that is wrapped anew takes the place of the old one.
    let again = vec![SpaceKey { space: SpaceId(1), wrapped: noise(9_999) }];
    engine.apply(&Batch { keys: again, ..Batch::default() }).unwrap();
    rest(&mut engine);
    assert_eq!(found(directory.path(), [1].into_iter().map(pieces)), Vec::<u32>::new());
    assert_eq!(rows(&engine), before);
    drop(engine);
    assert_eq!(all_gone(), Vec::<u32>::new());
    let report = crate::verify(directory.path()).unwrap();
    assert_eq!((report.problems, report.keys), (Vec::new(), 1_334 + 100));
    let mut engine = open(directory.path());
    put(&mut engine, 1, "a", "goes on");
}

#[test]
fn what_is_rewritten_or_was_freed_before_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    let secret = |number: u64| format!("plain-text-number-{number:04}-of-the-test");
    // Small and raw, compressed, and longer than a page; some of them replaced and deleted, and forgotten, before.
    let text = |number: u64| {
        secret(number).repeat(if number.is_multiple_of(40) { 900 } else { 1 + number as usize % 5 })
    };
    for number in 1..=400 {
        put(&mut engine, number, &format!("n/{}", number % 100), &text(number));
    }
    engine.compact(Revision(350)).unwrap();
    let pieces = || (1..=400).map(|number| (number as u32, secret(number).into_bytes()));
    assert!(!found(directory.path(), pieces()).is_empty());

    // What `sealed` does: every version there is, a piece at a time.
    let reader = engine.reader();
    let mut after: Option<(ObjectName, Revision)> = None;
    let mut seen = 0;
    loop {
        let from = after.as_ref().map(|(name, revision)| (name, *revision));
        let page = reader.versions(SPACE, RESOURCE, from, 7, 1 << 20).unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.name.clone(), last.version.revision));
        seen += page.len();
        let other = page.into_iter().map(|filled| {
            let record = filled.version.record.map(|_| record("something else"));
            FilledVersion { version: Version { record, ..filled.version }, ..filled }
        });
        engine.rewrite(SPACE, &other.collect::<Vec<_>>()).unwrap();
    }
    assert_eq!(seen, 150, "the newest of a hundred names, and what was not forgotten");
    drop(reader);
    engine.scrub().unwrap();
    assert_eq!(found(directory.path(), pieces()), Vec::<u32>::new());
    assert_eq!(names(&*engine.reader(), &all(400)).len(), 100);
    put(&mut engine, 401, "later", "goes on");
    drop(engine);
    assert_eq!(crate::verify(directory.path()).unwrap().problems, Vec::<String>::new(), "the log fits");
    let mut engine = open(directory.path());
    assert_eq!(engine.recover().unwrap().current, Revision(401));
}

#[test]
fn notes_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    let note = |name: &str, value: Option<&[u8]>| (name.into(), value.map(Into::into));
    let notes =
        vec![note("a", Some(b"one")), note("b", Some(b"")), note("c", Some(b"a note that will be gone"))];
    engine.apply(&Batch { notes, ..Batch::default() }).unwrap();
    engine.apply(&Batch { notes: vec![note("c", None), note("d", None)], ..Batch::default() }).unwrap();
    rest(&mut engine);
    let piece = (1, b"a note that will be gone".to_vec());
    assert_eq!(found(directory.path(), [piece].into_iter()), Vec::<u32>::new());
    drop(engine);
    let notes = open(directory.path()).recover().unwrap().notes;
    assert_eq!(notes, [("a".into(), (*b"one").into()), ("b".into(), (*b"").into())]);
}

#[test]
fn a_store_of_an_earlier_format_gets_its_keys() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    put(&mut engine, 1, "a", "from before");
    engine.writer.lock().connection.execute_batch("DROP TABLE space_keys; PRAGMA user_version=2").unwrap();
    drop(engine);
    assert_eq!(crate::verify(directory.path()).unwrap().problems, Vec::<String>::new());
    let mut engine = open(directory.path());
    engine.apply(&Batch { keys: keys(1..2), ..Batch::default() }).unwrap();
    assert_eq!(engine.reader().key(SpaceId(1)).unwrap(), Some(noise(1)));
    assert_eq!(names(&*engine.reader(), &all(1)), ["a@1"]);
}

/// One record and one key are not what was written: they are named and counted, and everything else is sealed and wrapped anew.
#[test]
fn damage_stops_nothing_but_itself() {
    const OTHERS: std::ops::RangeInclusive<u64> = 10..=14;
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("encryption.key");
    let secrets = GroupResource::new("", "secrets");
    let keyring = || Keyring::new(Box::new(KeyFile::made_at(&keys)), vec![secrets.clone()]);
    let mut engine = open(directory.path());
    engine.recover().unwrap();
    let others = OTHERS.map(|space| super::space(SpaceId(space), None, SpaceState::Open));
    let spaces = std::iter::once(super::space(SPACE, None, SpaceState::Open)).chain(others).collect();
    let resources = vec![(RESOURCE, secrets.clone())];
    engine.apply(&Batch { spaces, resources, ..Batch::default() }).unwrap();
    for number in 1..=400 {
        put(&mut engine, number, &format!("n/{number:03}"), "plain");
    }
    for space in OTHERS {
        let write = write(SpaceId(space), 400 + space - 9, "n/a", Some("plain"));
        engine.apply(&batch(vec![write])).unwrap();
    }
    let broken = object("n/150");
    let break_record = |engine: &SqliteEngine| {
        let mut key = Vec::new();
        crate::key::encode(SPACE, RESOURCE, &broken, &mut key).unwrap();
        let writer = engine.writer.lock();
        let mut value: Vec<u8> = writer
            .connection
            .query_row("SELECT value FROM versions WHERE key = ?1", [&key], |row| row.get(0))
            .unwrap();
        *value.last_mut().unwrap() ^= 1;
        let changed =
            writer.connection.execute("UPDATE versions SET value = ?2 WHERE key = ?1", (&key, &value));
        assert_eq!(changed.unwrap(), 1);
    };
    break_record(&engine);

    let own = keyring();
    let mut sealed = SealedEngine::new(engine, own.clone());
    sealed.recover().unwrap();
    let finish = |sealed: &mut SealedEngine<SqliteEngine>| {
        for _ in 0..2_000 {
            if !sealed.is_rewriting() {
                return;
            }
            sealed.chore().unwrap();
        }
        panic!("it does not come to an end");
    };
    finish(&mut sealed);
    assert_eq!(own.status().damaged, 1);
    let engine = sealed.into_inner();
    let reader = engine.reader();
    let mut seen = 0;
    for number in (1..=400).filter(|number| *number != 150) {
        let found = reader.version(SPACE, RESOURCE, &object(&format!("n/{number:03}")), Revision(400));
        assert!(found.unwrap().unwrap().record.unwrap().is_sealed(), "{number}");
        seen += 1;
    }
    assert_eq!(seen, 399);

    // A new key: data keys are wrapped anew, but for one that does not open.
    drop(reader);
    let changed = engine.writer.lock().connection.execute(
        "UPDATE space_keys SET row = zeroblob(length(row)) WHERE space = ?1",
        [&12_u64.to_be_bytes()[..]],
    );
    assert_eq!(changed.unwrap(), 1);
    polder_store::sealed::add_key(&keys).unwrap();
    let own = keyring();
    let mut sealed = SealedEngine::new(engine, own.clone());
    sealed.recover().unwrap();
    finish(&mut sealed);
    assert!(own.status().damaged >= 2, "{:?}", own.status());
    let newest = own.status().store_keys.last().unwrap().number;
    let engine = sealed.into_inner();
    let reader = engine.reader();
    for space in std::iter::once(1).chain(OTHERS).filter(|space| *space != 12) {
        let wrapped = reader.key(SpaceId(space)).unwrap().unwrap();
        assert_eq!(polder_store::sealed::wrapped_by(&wrapped), Some(newest), "space {space}");
    }
    assert_eq!(own.status().store_keys.len(), 2, "the older key is kept for the one that is damaged");
}
