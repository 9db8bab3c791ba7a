//! Snapshots and ranges.

use super::*;

#[test]
fn old_revisions_stay_readable_while_newer_ones_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    let reader = engine.reader();
    // Objects with one version, with a few, and with so many that a scan seeks past them.
    let mut revision = 0;
    let mut expected: Vec<Vec<String>> = vec![vec![]];
    let mut state: std::collections::BTreeMap<String, String> = Default::default();
    for round in 0..40 {
        for name in ["ns/a", "ns/b", "ns/c.d", "ns-x/a", "z"] {
            let skip = match name {
                "ns/b" => round % 10 != 3,
                "ns-x/a" => round != 5,
                _ => false,
            };
            if skip {
                continue;
            }
            revision += 1;
            if name == "ns/c.d" && round % 4 == 3 {
                delete(&mut engine, revision, name);
                state.insert(name.to_owned(), format!("-{name}@{revision}"));
            } else {
                put(&mut engine, revision, name, &revision.to_string());
                state.insert(name.to_owned(), format!("{name}@{revision}"));
            }
            let mut line: Vec<(ObjectName, String)> =
                state.iter().map(|(name, text)| (object(name), text.clone())).collect();
            line.sort();
            expected.push(line.into_iter().map(|(_, text)| text).collect());
        }
    }
    for (at, expected) in expected.iter().enumerate() {
        assert_eq!(names(&*reader, &all(at as u64)), *expected, "at {at}");
    }
    for at in 0..=revision {
        let found = reader.version(SPACE, RESOURCE, &object("ns/a"), Revision(at)).unwrap();
        let found = found.map(|version| version.revision.0);
        assert!(found.is_none_or(|found| found <= at && at - found < 5));
        assert_eq!(found.is_none(), at == 0);
    }
}

#[test]
fn scans_stay_within_their_range() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    let mut writes = Vec::new();
    for (index, name) in
        ["cluster", "a/x", "a/x.y", "a/x-y", "a-b/x", "a.b/x", "ab/x", "b/a", "b/b", "b/c"].iter().enumerate()
    {
        writes.push(write(SPACE, 1 + index as u64, name, Some("1")));
    }
    engine.apply(&batch(writes)).unwrap();
    let mut others = vec![
        write(SpaceId(SPACE.0 + 1), 11, "a/other-space", Some("1")),
        write(SpaceId(SPACE.0 - 1), 12, "a/other-space", Some("1")),
        write(SPACE, 13, "a/other-resource", Some("1")),
        write(SPACE, 14, "a/other-resource", Some("1")),
    ];
    others[2].entry.resource = ResourceId(RESOURCE.0 - 1);
    others[3].entry.resource = ResourceId(RESOURCE.0 + 1);
    engine.apply(&batch(others)).unwrap();
    let reader = engine.reader();

    let check = |namespace: Option<&str>, after: Option<&str>, limit: usize, expected: &str| {
        let after = after.map(object);
        let scan = Scan { namespace, after: after.as_ref(), limit, ..all(u64::MAX) };
        let found: Vec<String> =
            reader.scan(&scan).unwrap().into_iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(found.join(" "), expected, "{scan:?}");
    };
    check(None, None, 100, "cluster a/x a/x-y a/x.y a-b/x a.b/x ab/x b/a b/b b/c");
    check(None, None, 3, "cluster a/x a/x-y");
    check(None, None, 0, "");
    check(None, Some("a/x-y"), 2, "a/x.y a-b/x");
    check(None, Some("a/x-z"), 1, "a/x.y");
    check(None, Some("b/c"), 100, "");
    check(Some("a"), None, 100, "a/x a/x-y a/x.y");
    check(Some("a"), Some("a/x"), 100, "a/x-y a/x.y");
    check(Some("a"), Some("a-b/x"), 100, "");
    check(Some("b"), Some("a/x"), 100, "b/a b/b b/c");
    check(Some(""), None, 100, "cluster");
    check(Some(""), Some("cluster"), 100, "");
    check(Some("none"), None, 100, "");
}

#[test]
fn a_scan_over_many_versions_is_not_slower_than_its_answer() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    let mut revision = 0;
    for name in ["a", "b", "c"] {
        let writes = (0..20_000).map(|_| {
            revision += 1;
            write(SPACE, revision, name, Some("1"))
        });
        let writes: Vec<ObjectWrite> = writes.collect();
        engine.apply(&batch(writes)).unwrap();
    }
    let reader = engine.reader();
    let started = std::time::Instant::now();
    for at in [10_000, 30_000, 50_000, 60_000, u64::MAX] {
        let expected = usize::try_from(at.min(60_000).div_ceil(20_000)).unwrap();
        for _ in 0..100 {
            assert_eq!(names(&*reader, &all(at)).len(), expected);
        }
    }
    // Stepping over all versions would visit 30 million rows.
    assert!(started.elapsed() < std::time::Duration::from_secs(4), "{:?}", started.elapsed());
}

#[test]
fn a_read_is_planned_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    for round in 1..20 {
        put(&mut engine, round, &format!("ns/a{round}"), "1");
        engine.reader().version(SPACE, RESOURCE, &object(&format!("ns/b{round}")), Revision::NEWEST).unwrap();
    }
    let borrowed = engine.pool.take().unwrap();
    let statement = borrowed.connection.prepare_cached(crate::reader::VERSION_QUERY).unwrap();
    assert!(statement.get_status(rusqlite::StatementStatus::Run) >= 19);
    assert_eq!(statement.get_status(rusqlite::StatementStatus::RePrepare), 0);
}
