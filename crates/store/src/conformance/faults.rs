//! An engine that fails: what did not happen left no trace, and what comes next works.

use std::sync::Arc;
use std::time::Duration;

use polder_model::GroupResource;

use super::Setup;
use super::probe::{At, Unknown};
use super::world::{World, collect, poll_once, query, record, seen};
use crate::change::{Change, CommitError, Committed, Expect, ForkSource, PlaneChange, Write};
use crate::engine::EngineError;
use crate::key::Revision;
use crate::plane::{Limits, Plane, Profile};

/// Everything a reader can see.
async fn visible(world: &World, planes: &[Arc<Plane>]) -> String {
    let mut text = format!("{} {}", world.store.current(), world.store.planes_len());
    for plane in planes {
        let plane = world.store.plane(plane.name.as_str()).unwrap();
        for resource in [world.pods, world.configs] {
            text += &format!("{:?}", seen(&world.page(&plane, query(resource)).await.unwrap()));
        }
        for name in ["a", "b", "new"] {
            text += &format!("{:?}", world.get(&plane, name).await);
        }
        text += &format!("{plane:?}");
    }
    text
}

fn is_full(outcome: &Result<Committed, CommitError>) -> bool {
    matches!(outcome, Err(CommitError::Engine(error)) if matches!(**error, EngineError::Full(_)))
}

pub(super) async fn a_full_disk_changes_nothing(setup: &Setup<'_>) {
    let world = setup.world();
    let (plane, doomed) = (world.plane("p").await, world.plane("doomed").await);
    world.put(&plane, "a", 1).await;
    world.put(&plane, "b", 1).await;
    world.put(&doomed, "a", 1).await;
    world.seal(&plane, "layer").await.unwrap();
    let start = world.store.current();
    let mut live = world.watch_everything(start);
    let write = |name: &str, value: Option<i64>| Write {
        key: world.pod(&plane, name),
        record: value.map(|value| record(name, value)),
        expect: Expect::Anything,
    };
    let only = |plane| Change { plane: Some(plane), ..Change::default() };
    let fork = |name: &str, source| PlaneChange::Fork {
        name: name.parse().unwrap(),
        source,
        limits: Limits::default(),
    };
    let core = world.store.plane("core").unwrap();
    let late = world.store.resource_id(&GroupResource::new("example.com", "late"));
    let changes = [
        Change { writes: vec![write("a", Some(2))], ..Change::default() },
        Change {
            writes: vec![write("a", None), write("b", Some(3)), write("new", Some(4))],
            ..Change::default()
        },
        Change::put(world.key(&core, late, "x"), record("x", 1), Expect::Absent),
        only(PlaneChange::Create {
            name: "made".parse().unwrap(),
            limits: Limits::default(),
            profile: Profile::default(),
        }),
        only(fork("forked", ForkSource::Plane(plane.id))),
        only(fork("layered", ForkSource::Layer("layer".into()))),
        only(PlaneChange::SetLimits {
            plane: plane.id,
            limits: Limits { objects: 9, bytes: 0, ..Limits::default() },
        }),
        only(PlaneChange::Seal { layer: "sealed".into(), plane: plane.id }),
        only(PlaneChange::Unseal { layer: "layer".into() }),
        only(PlaneChange::Delete { plane: doomed.id }),
    ];
    let planes = [plane.clone(), doomed.clone()];
    for (index, change) in changes.iter().enumerate() {
        let last = index + 1 == changes.len();
        let before = visible(&world, &planes).await;
        world.probe.fail_after(0);
        let outcome = world.store.commit(change.clone()).await;
        assert!(is_full(&outcome), "change {index}: {outcome:?}");
        assert_eq!(visible(&world, &planes).await, before, "change {index} failed and left something");
        let expected = world.store.current().next();
        let committed = world.store.commit(change.clone()).await;
        assert_eq!(committed.unwrap().revision, expected, "change {index}, when there is room again");
        if !last {
            for plane in &planes {
                world.check_usage(plane).await;
            }
        }
    }
    let last = world.put(&plane, "end", 1).await;
    let events = collect(&mut live, last).await;
    let revisions: Vec<u64> = events.iter().map(|event| event.revision.0 - start.0).collect();
    assert_eq!(revisions, [1, 2, 2, 2, 3, 11], "what failed is not in the feed");
    let world = world.reopen();
    assert_eq!(world.store.resource_id(&GroupResource::new("example.com", "late")), late);
    assert_eq!(collect(&mut world.watch_everything(start), last).await, events);
    world.check_values(&plane, &[("b", 3), ("end", 1), ("new", 4)]).await;
}

/// Answers must not be based on what the failed group had decided before them.
pub(super) async fn a_failed_group_leaks_nothing(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    let base = world.now(&plane).usage.objects();
    let limits = Limits { objects: base + 1, bytes: 0, ..Limits::default() };
    world.change_plane(PlaneChange::SetLimits { plane: plane.id, limits }).await.unwrap();
    let put = |name: &str| Change::put(world.pod(&plane, name), record(name, 1), Expect::Absent);
    let create = || Change {
        plane: Some(PlaneChange::Create {
            name: "q".parse().unwrap(),
            limits: Limits::default(),
            profile: Profile::default(),
        }),
        ..Change::default()
    };
    let before = world.store.current();
    world.probe.fail_after(1);
    let answers = world.commit_group(vec![put("a"), put("a"), put("b"), create(), create()]).await;
    for (index, answer) in answers.iter().enumerate() {
        assert!(is_full(answer), "{index}: {answer:?}");
    }
    // The group before it succeeded.
    assert_eq!(world.store.current(), before.next());
    assert_eq!(world.values(&plane).await, []);
    world.check_usage(&plane).await;
    let answers = world.commit_group(vec![put("a"), put("a"), put("b"), create(), create()]).await;
    assert!(
        matches!(
            &answers[..],
            [
                Ok(_),
                Err(CommitError::Conflict { .. }),
                Err(CommitError::LimitReached { .. }),
                Ok(_),
                Err(CommitError::PlaneExists(_))
            ]
        ),
        "{answers:?}"
    );
    world.check_values(&plane, &[("a", 1)]).await;
}

/// Readers were told that the history is gone; the engine gets rid of it when it can.
pub(super) async fn failed_compaction_is_retried(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    world.put(&plane, "a", 1).await;
    let floor = world.put(&plane, "a", 2).await;
    world.probe.fail_compactions(2);
    assert!(matches!(world.store.compact(floor).await, Err(CommitError::Engine(_))));
    assert_eq!(world.store.compacted(), floor);
    world.check_values(&plane, &[("a", 2)]).await;
    world.put(&plane, "b", 1).await;
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while world.reader.log(Revision(0), 100).unwrap().len() > 1 {
        assert!(std::time::Instant::now() < deadline, "the log is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.check_values(&plane, &[("a", 2), ("b", 1)]).await;
}

/// Closing waits for what is queued, however full the queue is, and refuses what comes later.
pub(super) async fn closing_finishes_the_queue(setup: &Setup<'_>) {
    let options = crate::store::StoreOptions { queue_len_max: 3, ..setup.options.clone() };
    let world = World::open(setup.fixture(), options);
    let plane = world.plane("p").await;
    let mut stopped = world.probe.stop(At::BeforeApply);
    let put = |name: &str| {
        let put = Change::put(world.pod(&plane, name), record(name, 1), Expect::Absent);
        let store = world.store.clone();
        Box::pin(async move { store.commit(put).await })
    };
    let mut first = put("0");
    poll_once(&mut first).await;
    stopped.reached().await;
    let mut queued = Vec::new();
    for name in ["1", "2", "3", "4"] {
        let mut commit = put(name);
        poll_once(&mut commit).await;
        queued.push(commit);
    }
    let store = world.store.clone();
    let closing = tokio::task::spawn_blocking(move || store.close());
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(stopped);
    let closed = tokio::time::timeout(Duration::from_secs(10), closing).await;
    closed.expect("closing does not hang").unwrap();
    let mut kept = vec![("0", 1)];
    first.await.unwrap();
    for (name, commit) in ["1", "2", "3", "4"].into_iter().zip(queued) {
        match commit.await {
            Ok(_) => kept.push((name, 1)),
            Err(CommitError::Closed) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    assert!(kept.len() >= 4, "what was in the queue is committed: {kept:?}");
    assert!(matches!(world.store.commit(Change::default()).await, Err(CommitError::Closed)));
    world.store.close();
    let world = world.reopen();
    world.check_values(&plane, &kept).await;
}

/// An engine that does not know whether it has written: nobody is told "failed", nothing is made on top of it, and
/// what readers see agrees with both possible stores.
pub(super) async fn unknown_outcomes_are_told(setup: &Setup<'_>) {
    for unknown in [Unknown::Written, Unknown::NotWritten, Unknown::Dies] {
        let world = setup.world();
        let plane = world.plane("p").await;
        world.put(&plane, "a", 1).await;
        let start = world.put(&plane, "b", 1).await;
        let mut watch = world.watch(&plane, start);
        let planes = [plane.clone()];
        let put =
            |name: &str, value, expect| Change::put(world.pod(&plane, name), record(name, value), expect);
        let fork = PlaneChange::Fork {
            name: "fork".parse().unwrap(),
            source: ForkSource::Plane(plane.id),
            limits: Limits::default(),
        };

        let mut stopped = world.probe.stop(At::BeforeApply);
        let mut held = Box::pin(world.store.commit(Change::default()));
        poll_once(&mut held).await;
        stopped.reached().await;
        let mut queued: Vec<_> = [
            put("a", 2, Expect::Anything),
            put("a", 3, Expect::Absent),
            Change { plane: Some(fork), ..Change::default() },
        ]
        .map(|change| Box::pin(world.store.commit(change)))
        .into();
        for commit in &mut queued {
            poll_once(commit).await;
        }
        // The group that is held goes well, the one after it does not.
        world.probe.lose_track(unknown, 1);
        drop(stopped);
        held.await.unwrap();
        let before = visible(&world, &planes).await;
        let mut answers = Vec::new();
        for commit in queued {
            answers.push(commit.await);
        }
        let is_unknown =
            |answer: &Result<Committed, CommitError>| matches!(answer, Err(CommitError::Unknown(_)));
        assert!(is_unknown(&answers[0]) && is_unknown(&answers[2]), "{unknown:?}: {answers:?}");
        let dies = matches!(unknown, Unknown::Dies);
        assert!(
            matches!(&answers[1], Err(CommitError::Stopped)) || dies,
            "{unknown:?}: what was refused did not happen in either store: {answers:?}"
        );
        // A committer that dies lets go of the queue last.
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while dies && world.store.is_running() && std::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!world.store.is_running(), "{unknown:?}: somebody must restart it");
        let later = world.store.commit(put("b", 2, Expect::Anything)).await;
        assert!(matches!(later, Err(CommitError::Stopped | CommitError::Closed)), "{unknown:?}: {later:?}");
        let compacted = world.store.compact(start).await;
        assert!(matches!(compacted, Err(CommitError::Stopped | CommitError::Closed)), "{unknown:?}");
        assert_eq!(visible(&world, &planes).await, before, "{unknown:?}: reads go on");
        assert!(tokio::time::timeout(Duration::from_millis(20), watch.next()).await.is_err());
        drop(watch);

        // The next start decides, for all of it or nothing.
        let world = world.reopen();
        assert!(world.store.is_running());
        let written = !matches!(unknown, Unknown::NotWritten);
        world.check_values(&plane, &[("a", if written { 2 } else { 1 }), ("b", 1)]).await;
        assert_eq!(world.store.plane("fork").is_some(), written);
        if let Some(fork) = world.store.plane("fork") {
            world.check_values(&fork, &[("a", 2), ("b", 1)]).await;
        }
        let last = world.put(&plane, "b", 2).await;
        let events = collect(&mut world.watch(&plane, start), last).await;
        assert_eq!(events.len(), if written { 2 } else { 1 });
        world.check_usage(&plane).await;
    }
}
