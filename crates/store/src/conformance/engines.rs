//! What the store relies on in an engine, asked of the engine itself.

use polder_model::{GroupResource, PlaneId, SmolStr};

use super::world::{object_name, record};
use super::{Fixture, Setup};
use crate::engine::{
    Batch, Engine, LogEntry, ObjectWrite, PlaneRow, PlaneWrite, Reader, Scan, SpaceRow, SpaceState, Version,
};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::plane::Limits;

const PODS: ResourceId = ResourceId(0);
const CONFIGS: ResourceId = ResourceId(1);
const ROOT: SpaceId = SpaceId(10);
const CHILD: SpaceId = SpaceId(11);
const STRANGER: SpaceId = SpaceId(12);

/// `None` deletes.
type Put<'a> = (u64, SpaceId, ResourceId, &'a str, Option<i64>);

fn batch(first: u64, last: u64, puts: &[Put<'_>]) -> Batch {
    let objects = puts.iter().map(|&(revision, space, resource, name, value)| ObjectWrite {
        entry: LogEntry {
            revision: Revision(revision),
            plane: PlaneId(7),
            space,
            resource,
            name: object_name(name),
            deleted: value.is_none(),
            previous: None,
            before: None,
        },
        record: value.map(|value| record(name, value)),
    });
    Batch { first: Revision(first), last: Revision(last), objects: objects.collect(), ..Batch::default() }
}

fn space(id: SpaceId, parent: Option<SpaceId>) -> SpaceRow {
    SpaceRow {
        id,
        parent,
        state: SpaceState::Open,
        digest: SmolStr::default(),
        layer: SmolStr::default(),
        objects: 0,
        bytes: 0,
    }
}

/// An engine with three spaces, of which one stands on another. The fixture comes along: it may own the files.
fn prepared(setup: &Setup<'_>) -> (Box<dyn Fixture>, Box<dyn Engine>) {
    let fixture = setup.fixture();
    let mut engine = fixture.engine();
    engine.recover().unwrap();
    let mut first = batch(1, 1, &[]);
    first.spaces = vec![space(ROOT, None), space(CHILD, Some(ROOT)), space(STRANGER, None)];
    first.resources =
        vec![(PODS, GroupResource::new("", "pods")), (CONFIGS, GroupResource::new("apps", "configs"))];
    engine.apply(&first).unwrap();
    (fixture, engine)
}

fn version(reader: &dyn Reader, space: SpaceId, name: &str, at: u64) -> Option<Version> {
    reader.version(space, PODS, &object_name(name), Revision(at)).unwrap()
}

fn put(revision: u64, name: &str, value: Option<i64>) -> Option<Version> {
    Some(Version { revision: Revision(revision), record: value.map(|value| record(name, value)) })
}

fn scan_all(space: SpaceId) -> Scan<'static> {
    let (at, limit, bytes_max) = (Revision::NEWEST, 1_000, usize::MAX);
    Scan { space, resource: PODS, namespace: None, after: None, at, limit, bytes_max }
}

fn names(reader: &dyn Reader, scan: &Scan<'_>) -> Vec<String> {
    reader.scan(scan).unwrap().iter().map(|(name, _)| name.to_string()).collect()
}

pub(super) async fn batches_follow_each_other(setup: &Setup<'_>) {
    let (_fixture, mut engine) = prepared(setup);
    engine.apply(&batch(2, 4, &[(3, ROOT, PODS, "a", Some(1))])).unwrap();
    for (first, last) in [(4, 4), (2, 4), (6, 6), (1, 9)] {
        let wrong = batch(first, last, &[(last, ROOT, PODS, "wrong", Some(1))]);
        assert!(engine.apply(&wrong).is_err(), "{first}..{last} does not follow 4");
    }
    assert_eq!(version(&*engine.reader(), ROOT, "wrong", u64::MAX), None, "a refused batch leaves nothing");
    // Commits without objects count too.
    engine.apply(&batch(5, 8, &[])).unwrap();
    assert_eq!(engine.recover().unwrap().current, Revision(8));
    engine.apply(&batch(9, 9, &[(9, ROOT, PODS, "a", None)])).unwrap();
}

pub(super) async fn versions_and_scans(setup: &Setup<'_>) {
    let (_fixture, mut engine) = prepared(setup);
    let reader = engine.reader();
    engine
        .apply(&batch(
            2,
            5,
            &[
                (2, ROOT, PODS, "ns/a", Some(1)),
                (2, ROOT, PODS, "ns/b", Some(1)),
                (3, ROOT, CONFIGS, "ns/a", Some(9)),
                (3, CHILD, PODS, "ns/a", Some(7)),
                (4, ROOT, PODS, "ns/a", Some(2)),
                (5, ROOT, PODS, "ns/b", None),
            ],
        ))
        .unwrap();
    engine.apply(&batch(6, 6, &[(6, ROOT, PODS, "ns/a", Some(3))])).unwrap();
    let rows = [
        (ROOT, "ns/a", 1, None),
        (ROOT, "ns/a", 2, put(2, "ns/a", Some(1))),
        (ROOT, "ns/a", 3, put(2, "ns/a", Some(1))),
        (ROOT, "ns/a", 5, put(4, "ns/a", Some(2))),
        (ROOT, "ns/a", u64::MAX, put(6, "ns/a", Some(3))),
        (ROOT, "ns/b", 4, put(2, "ns/b", Some(1))),
        (ROOT, "ns/b", u64::MAX, put(5, "ns/b", None)),
        (ROOT, "a", u64::MAX, None),
        (ROOT, "ns/", u64::MAX, None),
        (CHILD, "ns/a", u64::MAX, put(3, "ns/a", Some(7))),
        (STRANGER, "ns/a", u64::MAX, None),
    ];
    for (space, name, at, expected) in rows {
        assert_eq!(version(&*reader, space, name, at), expected, "{name} in {space:?} at {at}");
    }
    for (at, expected) in
        [(1, vec![]), (2, vec![2, 2]), (4, vec![4, 2]), (5, vec![4, 5]), (u64::MAX, vec![6, 5])]
    {
        let found = reader.scan(&Scan { at: Revision(at), ..scan_all(ROOT) }).unwrap();
        let revisions: Vec<u64> = found.iter().map(|(_, version)| version.revision.0).collect();
        assert_eq!(revisions, expected, "scan at {at}");
    }
    let deleted = reader.scan(&scan_all(ROOT)).unwrap().pop().unwrap();
    assert_eq!(deleted, (object_name("ns/b"), put(5, "ns/b", None).unwrap()), "deletions are reported");
    assert_eq!(names(&*reader, &Scan { resource: CONFIGS, ..scan_all(ROOT) }), ["ns/a"]);
}

/// Names whose order depends on comparing namespaces before names, and on no separator taking part.
const TRICKY: [&str; 13] =
    ["0", "a", "a-b", "a.b", "a0", "z", "a/a", "a/z", "a-b/a", "a-b/a-a", "a-b/a.a", "a.b/a", "a0/a"];

pub(super) async fn scans_in_name_order(setup: &Setup<'_>) {
    let (_fixture, mut engine) = prepared(setup);
    let mut puts: Vec<Put<'_>> = TRICKY.iter().map(|name| (2, ROOT, PODS, *name, Some(1))).collect();
    puts.reverse();
    puts.push((2, ROOT, CONFIGS, "a/other", Some(1)));
    puts.push((2, CHILD, PODS, "a/other", Some(1)));
    engine.apply(&batch(2, 2, &puts)).unwrap();
    let reader = engine.reader();
    let mut sorted: Vec<ObjectName> = TRICKY.iter().map(|name| object_name(name)).collect();
    sorted.sort();

    let afters: Vec<Option<ObjectName>> = std::iter::once(None)
        .chain(sorted.iter().cloned().map(Some))
        .chain([Some(object_name("a/b"))])
        .collect();
    for namespace in [None, Some(""), Some("a"), Some("a-b"), Some("a.b"), Some("b")] {
        for after in &afters {
            for limit in [1, 2, 1_000] {
                let scan = Scan { namespace, after: after.as_ref(), limit, ..scan_all(ROOT) };
                let expected: Vec<String> = sorted
                    .iter()
                    .filter(|name| namespace.is_none_or(|namespace| name.namespace == namespace))
                    .filter(|name| after.as_ref().is_none_or(|after| *name > after))
                    .take(limit)
                    .map(ToString::to_string)
                    .collect();
                assert_eq!(names(&*reader, &scan), expected, "{scan:?}");
            }
        }
    }
}

/// A scan ends with the object that makes it heavy enough, whatever stands between: deletions weigh nothing.
pub(super) async fn scans_end_at_bytes(setup: &Setup<'_>) {
    let (_fixture, mut engine) = prepared(setup);
    let text: Vec<String> = (0..20).map(|index| format!("ns/{index:02}")).collect();
    let mut puts = Vec::new();
    // Some objects have so many later versions that a scan may go around them.
    for revision in 2..14 {
        for (index, name) in (0_i64..).zip(&text).filter(|(index, _)| revision == 2 || index % 5 == 1) {
            puts.push((revision, ROOT, PODS, name.as_str(), (index % 4 != 3).then_some(index + 1)));
        }
    }
    engine.apply(&batch(2, 13, &puts)).unwrap();
    let reader = engine.reader();
    for at in [Revision(2), Revision(7), Revision::NEWEST] {
        let whole = reader.scan(&Scan { at, ..scan_all(ROOT) }).unwrap();
        assert_eq!(whole.len(), text.len());
        let all: usize = whole.iter().map(|(_, version)| version.len()).sum();
        for bytes_max in [1, 100, 101, 250, 1_000, all - 1, all, all + 1] {
            for limit in [3, 1_000] {
                let mut left = bytes_max;
                let heavy = whole.iter().position(|(_, version)| {
                    left = left.saturating_sub(version.len());
                    left == 0
                });
                let len = heavy.map_or(whole.len(), |last| last + 1).min(limit);
                let found = reader.scan(&Scan { at, limit, bytes_max, ..scan_all(ROOT) }).unwrap();
                assert_eq!(found, whole[..len], "{bytes_max} bytes, {limit} objects, at {at}");
            }
        }
    }
}

pub(super) async fn log_chunks_are_whole(setup: &Setup<'_>) {
    let (_fixture, mut engine) = prepared(setup);
    // Revision r has r writes: a limit falls into the middle of most.
    let mut all = Vec::new();
    let text: Vec<String> = (0..20).map(|index| format!("ns/{index:02}")).collect();
    for revision in 2..12 {
        for name in text.iter().take(usize::try_from(revision).unwrap()) {
            all.push((revision, CHILD, PODS, name.as_str(), (revision % 3 != 0).then_some(1)));
        }
    }
    let mut written = batch(2, 11, &all);
    for (index, write) in written.objects.iter_mut().enumerate() {
        write.entry.previous = (index % 2 == 0).then_some((ROOT, Revision(index as u64 / 7)));
        write.entry.before = (index % 3 > 0).then_some(Revision(write.entry.revision.0 / 2));
    }
    engine.apply(&written).unwrap();
    let entries: Vec<LogEntry> = written.objects.iter().map(|write| write.entry.clone()).collect();
    let reader = engine.reader();
    for after in 0..12 {
        for limit in [1, 2, 5, 11, 64, 1_000] {
            let expected: Vec<&LogEntry> = entries.iter().filter(|entry| entry.revision.0 > after).collect();
            let found = reader.log(Revision(after), limit).unwrap();
            assert!(found.len() >= limit.min(expected.len()), "log after {after}, {limit}: too short");
            assert!(found.iter().eq(expected[..found.len()].iter().copied()), "log after {after}, {limit}");
            let whole =
                expected.get(found.len()).is_none_or(|next| found.last().unwrap().revision < next.revision);
            assert!(whole, "log after {after}, {limit} ends within a revision");
        }
        let expected: Vec<LogEntry> =
            entries.iter().filter(|entry| entry.revision.0 == after).cloned().collect();
        assert_eq!(reader.commit(Revision(after)).unwrap(), expected, "commit {after}");
    }
}

pub(super) async fn rows_come_back(setup: &Setup<'_>) {
    let fixture = setup.fixture();
    let mut engine = fixture.engine();
    let empty = engine.recover().unwrap();
    assert_eq!((empty.current, empty.compacted), (Revision(0), Revision(0)));
    assert!(empty.planes.is_empty() && empty.spaces.is_empty() && empty.resources.is_empty());

    let row = |id, name: &str, objects| PlaneRow {
        id: PlaneId(id),
        name: name.into(),
        space: CHILD,
        floor: Revision(id),
        version_offset: u64::MAX / 4,
        limits: Limits { objects: 25, bytes: u64::MAX / 4, ..Limits::default() },
        objects,
        bytes: 1 << 40,
        last_change: (objects % 2 == 0).then_some(Revision(0)),
    };
    let mut layer = space(ROOT, None);
    layer.state = SpaceState::Sealed;
    layer.digest = "sha256:abc".into();
    layer.layer = "golden".into();
    (layer.objects, layer.bytes) = (3, 300);
    let resources: Vec<_> = [("", "pods"), ("apps", "deployments"), ("example.com", "widgets")]
        .into_iter()
        .enumerate()
        .map(|(index, (group, name))| {
            (ResourceId(u32::try_from(index).unwrap()), GroupResource::new(group, name))
        })
        .collect();

    let mut first = batch(1, 2, &[]);
    first.planes = vec![PlaneWrite::Put(row(1, "core", 1)), PlaneWrite::Put(row(2, "gone", 1))];
    first.spaces = vec![layer.clone(), space(CHILD, Some(ROOT))];
    first.resources = resources[..2].to_vec();
    engine.apply(&first).unwrap();
    let mut second = batch(3, 3, &[]);
    // A plane made and removed in one batch was never stored.
    second.planes = vec![
        PlaneWrite::Remove(PlaneId(2)),
        PlaneWrite::Remove(PlaneId(99)),
        PlaneWrite::Put(row(1, "core", 2)),
        PlaneWrite::Put(row(3, "gone", 5)),
    ];
    let mut dropped = space(STRANGER, Some(ROOT));
    dropped.state = SpaceState::Dropped;
    second.spaces = vec![dropped.clone()];
    second.resources = resources[2..].to_vec();
    engine.apply(&second).unwrap();
    drop(engine);

    let mut found = fixture.engine().recover().unwrap();
    found.planes.sort_by_key(|row| row.id);
    found.spaces.sort_by_key(|row| row.id);
    assert_eq!(found.current, Revision(3));
    assert_eq!(found.planes, [row(1, "core", 2), row(3, "gone", 5)]);
    assert_eq!(found.spaces, [layer, space(CHILD, Some(ROOT)), dropped]);
    assert_eq!(found.resources, resources, "resources come back in order");
}

pub(super) async fn spaces_are_dropped_whole(setup: &Setup<'_>) {
    let (_fixture, mut engine) = prepared(setup);
    let reader = engine.reader();
    let text: Vec<String> = (0..3_000).map(|index| format!("ns/{index:04}")).collect();
    let mut puts: Vec<Put<'_>> = text.iter().map(|name| (2, CHILD, PODS, name.as_str(), Some(1))).collect();
    puts.extend([(2, ROOT, PODS, "ns/a", Some(1)), (2, STRANGER, CONFIGS, "ns/a", Some(1))]);
    engine.apply(&batch(2, 2, &puts)).unwrap();
    assert!(!reader.is_empty(CHILD).unwrap());
    let mut calls = 0;
    while !engine.drop_space(CHILD).unwrap() {
        calls += 1;
        assert!(calls < 10_000, "dropping makes progress");
    }
    assert!(reader.is_empty(CHILD).unwrap());
    assert!(!reader.is_empty(ROOT).unwrap() && !reader.is_empty(STRANGER).unwrap(), "neighbors stay");
    assert_eq!(names(&*reader, &scan_all(CHILD)), [""; 0]);
    assert_eq!(names(&*reader, &scan_all(ROOT)), ["ns/a"]);
    assert!(engine.recover().unwrap().spaces.iter().all(|row| row.id != CHILD), "its row is gone");
    assert!(engine.drop_space(CHILD).unwrap(), "dropping again finds nothing to do");
}

pub(super) async fn compaction_keeps_what_is_visible(setup: &Setup<'_>) {
    let (_fixture, mut engine) = prepared(setup);
    let reader = engine.reader();
    let puts = [
        (2, ROOT, PODS, "old", Some(1)),
        (2, ROOT, PODS, "hidden", Some(1)),
        (3, CHILD, PODS, "changed", Some(1)),
        (4, CHILD, PODS, "changed", Some(2)),
        (5, CHILD, PODS, "hidden", None),
        (5, CHILD, PODS, "brief", Some(1)),
        (6, CHILD, PODS, "brief", None),
        (7, CHILD, PODS, "changed", Some(3)),
        (8, CHILD, PODS, "changed", None),
        (9, CHILD, PODS, "changed", Some(4)),
    ];
    engine.apply(&batch(2, 9, &puts)).unwrap();
    while engine.compact(Revision(7)).unwrap() < Revision(7) {}
    assert_eq!(engine.recover().unwrap().compacted, Revision(7));

    let rows = [
        (ROOT, "old", 7, put(2, "old", Some(1))),
        (ROOT, "hidden", u64::MAX, put(2, "hidden", Some(1))),
        // It hides what the parent holds, so it stays however old it is.
        (CHILD, "hidden", u64::MAX, put(5, "hidden", None)),
        (CHILD, "changed", 7, put(7, "changed", Some(3))),
        (CHILD, "changed", 8, put(8, "changed", None)),
        (CHILD, "changed", u64::MAX, put(9, "changed", Some(4))),
        // Superseded at the floor: gone.
        (CHILD, "changed", 6, None),
    ];
    for (space, name, at, expected) in rows {
        assert_eq!(version(&*reader, space, name, at), expected, "{name} in {space:?} at {at}");
    }
    let brief = version(&*reader, CHILD, "brief", u64::MAX);
    assert!(brief.is_none_or(|version| version.record.is_none()), "what was deleted stays deleted");
    let log: Vec<u64> = reader.log(Revision(0), 100).unwrap().iter().map(|entry| entry.revision.0).collect();
    assert_eq!(log, [8, 9]);
    // Asking again for what is done changes nothing.
    assert!(engine.compact(Revision(3)).unwrap() >= Revision(3));
    assert_eq!(engine.recover().unwrap().compacted, Revision(7));
}

/// Names come and go for years; a deletion with nothing below it must not stay that long.
pub(super) async fn deletions_that_hide_nothing_go(setup: &Setup<'_>) {
    let (_fixture, mut engine) = prepared(setup);
    let reader = engine.reader();
    let puts = [
        (2, ROOT, PODS, "gone", Some(1)),
        (2, ROOT, CONFIGS, "other-resource", Some(1)),
        (2, STRANGER, PODS, "elsewhere", Some(1)),
        (3, CHILD, PODS, "other-resource", Some(1)),
        (3, CHILD, PODS, "elsewhere", Some(1)),
        (4, CHILD, PODS, "other-resource", None),
        (5, CHILD, PODS, "elsewhere", None),
        (6, ROOT, PODS, "gone", None),
    ];
    engine.apply(&batch(2, 6, &puts)).unwrap();
    while engine.compact(Revision(4)).unwrap() < Revision(4) {}
    assert_eq!(version(&*reader, CHILD, "other-resource", u64::MAX), None);
    assert_eq!(version(&*reader, CHILD, "elsewhere", 4), put(3, "elsewhere", Some(1)));
    assert_eq!(version(&*reader, CHILD, "elsewhere", u64::MAX), put(5, "elsewhere", None), "not up to 4");
    while engine.compact(Revision(6)).unwrap() < Revision(6) {}
    assert!(reader.is_empty(CHILD).unwrap());
    assert_eq!(version(&*reader, ROOT, "gone", u64::MAX), None);
    assert!(!reader.is_empty(ROOT).unwrap() && !reader.is_empty(STRANGER).unwrap());
}
