//! Compaction and dropped spaces.

use super::*;

/// Every row of `versions`, oldest first, as `space:name@revision`.
fn rows(engine: &SqliteEngine) -> Vec<String> {
    let writer = engine.writer.lock();
    let mut statement =
        writer.connection.prepare("SELECT key, revision FROM versions ORDER BY key, revision").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, i64>(1)?))).unwrap();
    rows.map(|row| {
        let (key, revision) = row.unwrap();
        let (space, _, name) = crate::key::decode(&key).unwrap();
        format!("{}:{name}@{revision}", space.0)
    })
    .collect()
}

#[test]
fn compaction_keeps_what_can_still_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    put(&mut engine, 1, "a", "1");
    put(&mut engine, 2, "b", "1");
    put(&mut engine, 3, "a", "2");
    delete(&mut engine, 4, "b");
    put(&mut engine, 5, "c", "1");
    put(&mut engine, 6, "a", "3");
    put(&mut engine, 7, "b", "again");

    assert_eq!(engine.compact(Revision(3)).unwrap(), Revision(3));
    assert_eq!(rows(&engine), ["1:a@3", "1:a@6", "1:b@2", "1:b@4", "1:b@7", "1:c@5"]);
    assert_eq!(names(&*engine.reader(), &all(3)), ["a@3", "b@2"]);
    assert_eq!(engine.reader().log(Revision(0), 100).unwrap().first().unwrap().revision, Revision(4));
    assert_eq!(engine.compact(Revision(2)).unwrap(), Revision(2), "done before");

    assert_eq!(engine.compact(Revision(5)).unwrap(), Revision(5));
    assert_eq!(rows(&engine), ["1:a@3", "1:a@6", "1:b@7", "1:c@5"]);
    assert_eq!(names(&*engine.reader(), &all(5)), ["a@3", "c@5"]);
    drop(engine);

    let mut engine = open(directory.path());
    let recovered = engine.recover().unwrap();
    assert_eq!((recovered.compacted, recovered.current), (Revision(5), Revision(7)));
    // Beyond the newest commit: everything that there is.
    assert_eq!(engine.compact(Revision(100)).unwrap(), Revision(100));
    assert_eq!(rows(&engine), ["1:a@6", "1:b@7", "1:c@5"]);
    drop(engine);
    let mut engine = open(directory.path());
    assert_eq!(engine.recover().unwrap().current, Revision(7));
    put(&mut engine, 8, "a", "4");
    assert_eq!(crate_problems(directory.path(), engine), Vec::<String>::new());
}

fn crate_problems(directory: &Path, engine: SqliteEngine) -> Vec<String> {
    drop(engine);
    crate::verify(directory).unwrap().problems
}

#[test]
fn a_deletion_stays_exactly_as_long_as_it_hides_something() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    let (base, middle, overlay) = (SpaceId(1), SpaceId(2), SpaceId(3));
    engine
        .apply(&Batch {
            spaces: vec![
                space(base, None, SpaceState::Sealed),
                space(middle, Some(base), SpaceState::Sealed),
                space(overlay, Some(middle), SpaceState::Open),
            ],
            ..batch(vec![
                write(base, 1, "in-base", Some("1")),
                write(base, 2, "gone-in-middle", Some("1")),
                write(middle, 3, "gone-in-middle", None),
                write(overlay, 4, "in-base", Some("2")),
                write(overlay, 5, "in-base", None),
                write(overlay, 6, "gone-in-middle", Some("2")),
                write(overlay, 7, "gone-in-middle", None),
                write(overlay, 8, "only-here", Some("1")),
                write(overlay, 9, "only-here", None),
                write(overlay, 10, "made-again", Some("1")),
                write(overlay, 11, "made-again", None),
                write(overlay, 12, "made-again", Some("2")),
            ])
        })
        .unwrap();
    assert_eq!(engine.compact(Revision(12)).unwrap(), Revision(12));
    assert_eq!(
        rows(&engine),
        ["1:gone-in-middle@2", "1:in-base@1", "2:gone-in-middle@3", "3:in-base@5", "3:made-again@12"]
    );
}

#[test]
fn compaction_of_much_takes_many_short_calls() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    let writes = (0..10_000u64).map(|index| write(SPACE, index + 1, &format!("n{}", index % 100), Some("1")));
    engine.apply(&batch(writes.collect())).unwrap();
    let (mut calls, mut reached) = (0, Revision(0));
    while reached < Revision(9_950) {
        let next = engine.compact(Revision(9_950)).unwrap();
        assert!(next > reached);
        reached = next;
        calls += 1;
    }
    assert!(calls >= 5, "{calls}");
    assert_eq!(names(&*engine.reader(), &all(9_950)).len(), 100);
    assert_eq!(rows(&engine).len(), 150);
}

#[test]
fn a_dropped_space_goes_away_and_the_file_shrinks() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    let kept = SpaceId(2);
    let text: String =
        (0..1_200u32).map(|i| char::from(33 + (i.wrapping_mul(2_654_435_761) >> 24) as u8 % 90)).collect();
    let mut writes = vec![write(kept, 1, "kept", Some("1"))];
    for index in 0..12_000u64 {
        // Some objects have many versions, so that a call may end between two versions of one.
        let name = if index % 2 == 0 { "hot".to_owned() } else { format!("n{index}") };
        writes.push(write(SPACE, index + 2, &name, Some(&format!("{index}{text}"))));
    }
    let spaces = vec![space(SPACE, None, SpaceState::Dropped), space(kept, None, SpaceState::Open)];
    engine.apply(&Batch { spaces, ..batch(writes) }).unwrap();
    let file = directory.path().join("store.db");
    drop(engine);
    let before = file.metadata().unwrap().len();

    let mut engine = open(directory.path());
    let mut calls = 1;
    while !engine.drop_space(SPACE).unwrap() {
        calls += 1;
    }
    assert_eq!(calls, 3);
    assert_eq!(rows(&engine), ["2:kept@1"]);
    assert_eq!(engine.recover().unwrap().spaces.len(), 1);
    assert!(engine.drop_space(SpaceId(77)).unwrap(), "there is nothing to drop");
    for _ in 0..100 {
        engine.compact(Revision(12_001)).unwrap();
    }
    drop(engine);
    let after = file.metadata().unwrap().len();
    assert!(after * 4 < before, "{before} {after}");
    assert!(crate::verify(directory.path()).unwrap().problems.is_empty());
}
