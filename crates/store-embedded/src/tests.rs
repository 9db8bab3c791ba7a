//! The engine as its callers see it. Damage has a file of its own.

#![expect(clippy::cast_possible_truncation, reason = "small numbers, made here")]

mod damage;
mod failing;
mod forgetting;
mod reading;
mod sealing;

use std::path::Path;

use polder_model::{GroupResource, PlaneId, json};
use polder_store::engine::{
    Batch, Engine, LogEntry, ObjectWrite, PlaneRow, PlaneWrite, Reader, Recovered, Scan, SpaceRow, SpaceState,
};
use polder_store::{
    Change, CommitError, Expect, Key, Limits, ObjectName, Record, ResourceId, Revision, SpaceId, Store,
    StoreOptions,
};

use crate::{OpenError, Options, SqliteEngine};

pub(super) const SPACE: SpaceId = SpaceId(1);
pub(super) const RESOURCE: ResourceId = ResourceId(2);

pub(super) fn open(directory: &Path) -> SqliteEngine {
    SqliteEngine::open(directory, &Options::default()).unwrap()
}

pub(super) fn record(text: &str) -> Record {
    Record::encode(&json!({"metadata": {"name": "x"}, "data": {"text": text}}))
}

pub(super) fn object(name: &str) -> ObjectName {
    match name.split_once('/') {
        Some((namespace, name)) => ObjectName::new(namespace, name),
        None => ObjectName::cluster(name),
    }
}

/// One write: `name` is `namespace/name` or `name`; no text deletes.
pub(super) fn write(space: SpaceId, revision: u64, name: &str, text: Option<&str>) -> ObjectWrite {
    ObjectWrite {
        entry: LogEntry {
            revision: Revision(revision),
            plane: PlaneId(1),
            space,
            resource: RESOURCE,
            name: object(name),
            deleted: text.is_none(),
            previous: None,
            before: None,
        },
        record: text.map(record),
    }
}

pub(super) fn batch(objects: Vec<ObjectWrite>) -> Batch {
    Batch {
        first: objects.iter().map(|write| write.entry.revision).min().unwrap_or_default(),
        last: objects.iter().map(|write| write.entry.revision).max().unwrap_or_default(),
        objects,
        ..Batch::default()
    }
}

pub(super) fn put(engine: &mut SqliteEngine, revision: u64, name: &str, text: &str) {
    engine.apply(&batch(vec![write(SPACE, revision, name, Some(text))])).unwrap();
}

pub(super) fn delete(engine: &mut SqliteEngine, revision: u64, name: &str) {
    engine.apply(&batch(vec![write(SPACE, revision, name, None)])).unwrap();
}

pub(super) fn space(id: SpaceId, parent: Option<SpaceId>, state: SpaceState) -> SpaceRow {
    SpaceRow { id, parent, state, digest: "".into(), layer: "".into(), objects: 0, bytes: 0 }
}

/// What a scan finds, as `name@revision` or `-name@revision` for deletions.
pub(super) fn names(reader: &dyn Reader, scan: &Scan<'_>) -> Vec<String> {
    let found = reader.scan(scan).unwrap();
    found
        .iter()
        .map(|(name, version)| {
            let sign = if version.record.is_none() { "-" } else { "" };
            format!("{sign}{name}@{}", version.revision)
        })
        .collect()
}

pub(super) fn all(at: u64) -> Scan<'static> {
    Scan {
        space: SPACE,
        resource: RESOURCE,
        namespace: None,
        after: None,
        at: Revision(at),
        limit: 1_000_000,
        bytes_max: usize::MAX,
    }
}

#[test]
fn everything_comes_back_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let plane = |id, name: &str| PlaneRow {
        id: PlaneId(id),
        name: name.into(),
        space: SPACE,
        floor: Revision(1),
        version_offset: 5,
        limits: Limits { objects: 10, bytes: 20, ..Limits::default() },
        objects: 1,
        bytes: 2,
        last_change: None,
    };
    let resources =
        vec![(ResourceId(1), GroupResource::new("", "pods")), (RESOURCE, GroupResource::new("apps", "x"))];
    let spaces =
        vec![space(SPACE, None, SpaceState::Sealed), space(SpaceId(9), Some(SPACE), SpaceState::Open)];
    let mut engine = open(directory.path());
    let Recovered { current, compacted, planes, .. } = engine.recover().unwrap();
    assert_eq!((current, compacted, planes.len()), (Revision(0), Revision(0), 0));
    engine
        .apply(&Batch {
            planes: vec![PlaneWrite::Put(plane(1, "a")), PlaneWrite::Put(plane(2, "b"))],
            spaces: spaces.clone(),
            resources: resources.clone(),
            // Revision 2 changes no object.
            last: Revision(3),
            ..batch(vec![write(SPACE, 1, "ns/one", Some("1")), write(SPACE, 1, "ns/two", Some("2"))])
        })
        .unwrap();
    engine
        .apply(&Batch {
            planes: vec![PlaneWrite::Remove(PlaneId(1)), PlaneWrite::Put(plane(2, "c"))],
            ..batch(vec![write(SPACE, 4, "ns/one", None)])
        })
        .unwrap();
    // Rows without a commit.
    engine.apply(&Batch { spaces: spaces.clone(), ..Batch::default() }).unwrap();
    let log = engine.reader().log(Revision(0), 100).unwrap();
    drop(engine);

    let mut engine = open(directory.path());
    let recovered = engine.recover().unwrap();
    assert_eq!((recovered.current, recovered.compacted), (Revision(4), Revision(0)));
    assert_eq!(recovered.planes, [plane(2, "c")]);
    assert_eq!(recovered.spaces, spaces);
    assert_eq!(recovered.resources, resources);
    let reader = engine.reader();
    assert_eq!(names(&*reader, &all(4)), ["-ns/one@4", "ns/two@1"]);
    assert_eq!(names(&*reader, &all(3)), ["ns/one@1", "ns/two@1"]);
    let version = reader.version(SPACE, RESOURCE, &object("ns/two"), Revision::NEWEST).unwrap().unwrap();
    assert_eq!(version.record, Some(record("2")));

    assert_eq!(reader.log(Revision(0), 100).unwrap(), log);
    let revisions: Vec<u64> = log.iter().map(|entry| entry.revision.0).collect();
    assert_eq!(revisions, [1, 1, 4]);
    assert_eq!(reader.log(Revision(0), 1).unwrap().len(), 2, "the last revision is complete");
    assert_eq!(reader.log(Revision(1), 100).unwrap().len(), 1);
    assert_eq!(reader.log(Revision(4), 100).unwrap().len(), 0);
}

#[test]
fn a_store_of_the_first_format_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    // Rows without links between a plane's commits are rows of format 1.
    put(&mut engine, 1, "a", "1");
    engine.writer.lock().connection.pragma_update(None, "user_version", 1).unwrap();
    drop(engine);
    assert_eq!(crate::verify(directory.path()).unwrap().problems, Vec::<String>::new());
    let mut engine = open(directory.path());
    let mut linked = write(SPACE, 2, "b", Some("2"));
    linked.entry.before = Some(Revision(1));
    engine.apply(&batch(vec![linked.clone()])).unwrap();
    let log = engine.reader().log(Revision(0), 10).unwrap();
    assert_eq!((log[0].before, &log[1]), (None, &linked.entry));
    let format: i64 =
        engine.writer.lock().connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(format, 3, "an older version must not read what it does not know");
    drop(engine);
    assert_eq!(crate::verify(directory.path()).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_plane_s_commits_are_verified_to_be_linked() {
    // The commit before, as two writes of two commits say it, and whether that is right.
    for (befores, right) in
        [([0, 1], true), ([0, 0], false), ([0, 2], false), ([1, 1], false), ([u64::MAX, 1], true)]
    {
        let directory = tempfile::tempdir().unwrap();
        let mut engine = open(directory.path());
        for (revision, before) in (1..).zip(befores) {
            let mut writes = vec![
                write(SPACE, revision, "a", Some(&format!("{before}"))),
                write(SPACE, revision, "b", Some("2")),
            ];
            for write in &mut writes {
                write.entry.before = (before <= revision).then_some(Revision(before));
            }
            engine.apply(&batch(writes)).unwrap();
        }
        drop(engine);
        let problems = crate::verify(directory.path()).unwrap().problems;
        assert_eq!(problems.is_empty(), right, "{befores:?}: {problems:?}");
    }
}

#[test]
fn a_batch_that_does_not_fit_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = open(directory.path());
    put(&mut engine, 1, "a", "1");
    for bad in [
        batch(vec![write(SPACE, 1, "b", Some("again"))]),
        batch(vec![write(SPACE, 3, "b", Some("a hole"))]),
        Batch { first: Revision(2), last: Revision(2), ..batch(vec![write(SPACE, 3, "b", Some("outside"))]) },
        batch(vec![write(SPACE, 2, "b", Some("twice")), write(SPACE, 2, "b", Some("twice"))]),
        batch(vec![write(SPACE, 2, "b", Some("1")), write(SPACE, 2, "zero\0byte", Some("2"))]),
    ] {
        assert!(engine.apply(&bad).is_err());
        assert_eq!(names(&*engine.reader(), &all(u64::MAX)), ["a@1"]);
    }
    put(&mut engine, 2, "b", "2");
    assert_eq!(names(&*engine.reader(), &all(u64::MAX)), ["a@1", "b@2"]);
}

#[test]
fn a_second_server_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let error = SqliteEngine::open(directory.path(), &Options::default()).err().unwrap();
    assert!(matches!(error, OpenError::InUse { .. }));
    let message = error.to_string();
    assert!(
        message.contains("another polder") && message.contains(directory.path().to_str().unwrap()),
        "{message}"
    );
    assert!(matches!(crate::verify(directory.path()), Err(OpenError::InUse { .. })));
    drop(first);
    open(directory.path());
}

#[test]
fn a_full_disk_refuses_writes_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { size_max_bytes: Some(288 << 10), ..Options::default() };
    let mut engine = SqliteEngine::open(directory.path(), &options).unwrap();
    engine.apply(&Batch { spaces: vec![space(SPACE, None, SpaceState::Open)], ..Batch::default() }).unwrap();
    let mut random = 1u64;
    let mut noise = || -> String {
        std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(33 + ((random >> 33) % 90) as u8)
        })
        .take(3_000)
        .collect()
    };
    let mut revision = 0;
    let error = loop {
        let write = write(SPACE, revision + 1, &format!("n{revision}"), Some(&noise()));
        match engine.apply(&batch(vec![write])) {
            Ok(()) => revision += 1,
            Err(error) => break error,
        }
        assert!(revision < 1_000, "it is never full");
    };
    assert!(matches!(error, polder_store::engine::EngineError::Full(_)), "{error:?}");
    assert!(revision > 20);
    let reader = engine.reader();
    assert_eq!(names(&*reader, &all(u64::MAX)).len() as u64, revision);
    assert_eq!(engine.recover().unwrap().current, Revision(revision));

    // Dropping makes room, and the same revision can be tried again.
    while !engine.drop_space(SPACE).unwrap() {}
    put(&mut engine, revision + 1, "again", &noise());
    drop(engine);
    let mut engine = open(directory.path());
    assert_eq!(engine.recover().unwrap().current, Revision(revision + 1));
    assert_eq!(names(&*engine.reader(), &all(u64::MAX)), [format!("again@{}", revision + 1)]);
}

#[test]
fn many_threads_read_while_one_writes() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { readers_max: 3, ..Options::default() };
    let mut engine = SqliteEngine::open(directory.path(), &options).unwrap();
    put(&mut engine, 1, "a", "1");
    let reader = engine.reader();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut newest = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let found = reader.scan(&all(u64::MAX)).unwrap();
                    // Every batch writes both objects: a scan sees both or neither.
                    if let [(_, a), (_, b)] = found.as_slice() {
                        assert_eq!(a.record, b.record);
                        assert!(a.revision.0 >= newest);
                        newest = a.revision.0;
                    }
                    assert!(reader.version(SPACE, RESOURCE, &object("a"), Revision(1)).unwrap().is_some());
                }
            });
        }
        for revision in 2..300 {
            let text = revision.to_string();
            let writes = ["a", "b"].map(|name| write(SPACE, revision, name, Some(&text)));
            engine.apply(&batch(writes.to_vec())).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Reads may take every connection there is: the committer has its own, and planes are written all the same.
#[tokio::test]
async fn writes_do_not_wait_for_readers() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { readers_max: 1, ..Options::default() };
    let engine = SqliteEngine::open(directory.path(), &options).unwrap();
    let pool = engine.pool.clone();
    let uncached = StoreOptions { cache_bytes_max: 0, ..StoreOptions::default() };
    let store = Store::open(Box::new(engine), uncached, "", |_, _| Vec::new()).unwrap();
    let (plane, resource) =
        (store.plane("core").unwrap().id, store.resource_id(&GroupResource::new("", "x")));
    let key = Key { plane, resource, name: object("a") };
    let taken = pool.take().unwrap();
    for expect in [Expect::Absent, Expect::Anything] {
        store.commit(Change::put(key.clone(), record("1"), expect)).await.unwrap();
    }
    let refused = store.commit(Change::put(key, record("2"), Expect::Absent)).await;
    assert!(matches!(refused, Err(CommitError::Conflict { .. })), "{refused:?}");
    drop(taken);
    store.close();
}
