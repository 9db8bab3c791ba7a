//! Compare-and-commit: nothing lost, nothing half done, nothing seen twice or backwards.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::Setup;
use super::world::{World, collect, object_name, query, record, value_of};
use crate::change::{Change, CommitError, Expect, PlaneChange, Write};
use crate::key::{Key, Revision};
use crate::plane::Plane;

pub(super) async fn counters_lose_no_update(setup: &Setup<'_>) {
    const TASKS: i64 = 6;
    const ROUNDS: i64 = 30;
    let world = Arc::new(setup.world());
    let plane = world.plane("p").await;
    let counters = ["ns/a", "ns/b", "c"];
    let start = world.store.current();
    for name in counters {
        world.put(&plane, name, 0).await;
    }
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (world, plane) = (world.clone(), plane.clone());
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                let name = counters[usize::try_from((task + round) % 3).unwrap()];
                while !increment(&world, &plane, name).await {}
            }
        });
    }
    tasks.join_all().await;

    let mut total = 0;
    for name in counters {
        total += world.value(&plane, name).await.unwrap();
    }
    assert_eq!(total, TASKS * ROUNDS);
    let last = world.put(&plane, "end", 0).await;
    let events = collect(&mut world.watch_everything(start), last).await;
    let revisions: Vec<Revision> = events.iter().map(|event| event.revision).collect();
    let dense: Vec<Revision> = (start.0 + 1..=last.0).map(Revision).collect();
    assert_eq!(revisions, dense, "one event a commit, no revision left out");
    for event in events.iter().filter(|event| event.old.is_some()) {
        let (old, new) = (event.old.as_ref().unwrap(), event.new.as_ref().unwrap());
        assert_eq!(value_of(old) + 1, value_of(new), "{} at {}", new.name, event.revision);
        assert_eq!(new.revision, event.revision);
    }
}

/// One attempt; false when somebody else was faster.
async fn increment(world: &World, plane: &Arc<Plane>, name: &str) -> bool {
    let seen = world.get(plane, name).await.unwrap();
    let next = record(name, value_of(&seen) + 1);
    match world.store.commit(Change::put(world.pod(plane, name), next, Expect::At(seen.revision))).await {
        Ok(_) => true,
        Err(CommitError::Conflict { found, .. }) => {
            assert!(found.unwrap().revision > seen.revision, "a conflict shows what is there instead");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

pub(super) async fn expectations(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    let there = world.put(&plane, "there", 1).await;
    let gone = world.put(&plane, "gone", 1).await;
    world.delete(&plane, "gone").await;
    let earlier = Revision(there.0 - 1);
    let rows = [
        ("there", Expect::Absent, false),
        ("there", Expect::At(earlier), false),
        ("there", Expect::At(Revision(there.0 + 1)), false),
        ("gone", Expect::At(gone), false),
        ("never", Expect::At(there), false),
        ("gone", Expect::Absent, true),
        ("never", Expect::Absent, true),
        ("there", Expect::At(there), true),
        ("there", Expect::Anything, true),
    ];
    for (name, expect, holds) in rows {
        let before = (world.store.current(), world.list(&plane).await);
        let put = Change::put(world.pod(&plane, name), record(name, 5), expect);
        match world.store.commit(put).await {
            Ok(committed) => {
                assert!(holds, "{name} {expect:?}");
                assert_eq!(committed.revision, before.0.next());
                assert_eq!(world.get(&plane, name).await.unwrap().revision, committed.revision);
            }
            Err(CommitError::Conflict { key, found }) => {
                assert!(!holds, "{name} {expect:?}");
                assert_eq!(key, world.pod(&plane, name));
                assert_eq!(found, world.get(&plane, name).await);
                assert_eq!((world.store.current(), world.list(&plane).await), before, "nothing happened");
            }
            Err(error) => panic!("{name} {expect:?}: {error}"),
        }
    }
    // Deleting what is not there is no error and changes nothing but the revision.
    let before = world.list(&plane).await;
    world.delete(&plane, "nowhere").await;
    assert_eq!(world.list(&plane).await, before);
    let nowhere = Change::delete(world.pod(&plane, "nowhere"), Expect::At(there));
    assert!(matches!(world.store.commit(nowhere).await, Err(CommitError::Conflict { found: None, .. })));
    world.check_usage(&plane).await;
}

pub(super) async fn several_writes_are_one_commit(setup: &Setup<'_>) {
    let world = setup.world();
    let (one, two) = (world.plane("one").await, world.plane("two").await);
    let kept = world.put(&one, "kept", 1).await;
    let doomed = world.put(&one, "doomed", 1).await;
    let start = world.store.current();
    let write = |plane: &Plane, name: &str, value: Option<i64>, expect| Write {
        key: world.pod(plane, name),
        record: value.map(|value| record(name, value)),
        expect,
    };
    let writes = |last_expect| {
        vec![
            write(&one, "new", Some(1), Expect::Absent),
            write(&one, "doomed", None, Expect::At(doomed)),
            write(&two, "new", Some(2), Expect::Absent),
            write(&one, "nowhere", None, Expect::Anything),
            write(&one, "kept", Some(3), last_expect),
        ]
    };
    let refused = Change { writes: writes(Expect::Absent), ..Change::default() };
    assert!(matches!(world.store.commit(refused).await, Err(CommitError::Conflict { .. })));
    world.check_values(&one, &[("doomed", 1), ("kept", 1)]).await;
    world.check_values(&two, &[]).await;
    assert_eq!(world.store.current(), start);

    let revision = world.commit(Change { writes: writes(Expect::At(kept)), ..Change::default() }).await;
    world.check_values(&one, &[("kept", 3), ("new", 1)]).await;
    world.check_values(&two, &[("new", 2)]).await;
    let last = world.put(&one, "end", 0).await;
    let events = collect(&mut world.watch_everything(start), last).await;
    let seen: Vec<(Revision, String, bool)> = events
        .iter()
        .map(|event| {
            let name = event.new.as_ref().or(event.old.as_ref()).unwrap().name.to_string();
            (event.revision, name, event.new.is_some())
        })
        .collect();
    let expected = [("new", true), ("doomed", false), ("new", true), ("kept", true)];
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, there)| (revision, (*name).to_owned(), *there))
        .chain([(last, "end".to_owned(), true)])
        .collect();
    assert_eq!(seen, expected, "in the order of the change, under one revision");
    world.check_usage(&one).await;
    world.check_usage(&two).await;
}

/// One revision has one version of an object; a change that says two things about it is refused.
pub(super) async fn a_key_is_written_once(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    let start = world.put(&plane, "there", 1).await;
    for name in ["there", "new"] {
        let write = |value: Option<i64>| Write {
            key: world.pod(&plane, name),
            record: value.map(|value| record(name, value)),
            expect: Expect::Anything,
        };
        for pair in [[Some(1), Some(2)], [Some(1), None], [None, Some(1)], [None, None]] {
            let change = Change { writes: pair.map(write).into(), ..Change::default() };
            let outcome = world.store.commit(change).await;
            assert!(matches!(outcome, Err(CommitError::Conflict { .. })), "{name} {pair:?}: {outcome:?}");
        }
    }
    assert_eq!(world.store.current(), start);
    world.check_values(&plane, &[("there", 1)]).await;
    world.check_usage(&plane).await;
}

/// A plane with much waiting does not keep others waiting for all of it; what one plane asks for is done in order.
pub(super) async fn planes_take_turns(setup: &Setup<'_>) {
    let world = setup.world();
    let (busy, quiet) = (world.plane("busy").await, world.plane("quiet").await);
    let put = |plane: &Plane, index: i64| {
        Change::put(world.pod(plane, &format!("ns/{index}")), record("x", index), Expect::Absent)
    };
    let changes = (0..60).map(|index| put(&busy, index)).chain([put(&quiet, 0), put(&quiet, 1)]).collect();
    let answers = world.commit_group(changes).await;
    let revisions: Vec<Revision> = answers.into_iter().map(|answer| answer.unwrap().revision).collect();
    let (busy, quiet) = revisions.split_at(60);
    assert!(busy.is_sorted() && quiet.is_sorted(), "{revisions:?}");
    assert!(quiet[1] < busy[4], "{revisions:?}");
}

pub(super) async fn guards(setup: &Setup<'_>) {
    let world = setup.world();
    let (plane, other) = (world.plane("p").await, world.plane("other").await);
    let there = world.put(&other, "guard", 1).await;
    let rows = [
        (vec![("guard", Expect::At(there)), ("none", Expect::Absent)], true),
        (vec![("guard", Expect::Absent)], false),
        (vec![("guard", Expect::At(there)), ("none", Expect::At(there))], false),
        (vec![("guard", Expect::Anything), ("none", Expect::Anything)], true),
    ];
    for (guards, holds) in rows {
        let guards = guards.into_iter().map(|(name, expect)| (world.pod(&other, name), expect)).collect();
        let change =
            Change { guards, ..Change::put(world.pod(&plane, "x"), record("x", 1), Expect::Anything) };
        let before = world.store.current();
        let outcome = world.store.commit(change.clone()).await;
        assert_eq!(outcome.is_ok(), holds, "{:?}", change.guards);
        assert_eq!(world.store.current() > before, holds);
    }
    // A guard reads no further than a write: a plane that goes in the same group is gone for both.
    let guarded = || Change {
        guards: vec![(world.pod(&other, "guard"), Expect::At(there))],
        ..Change::put(world.pod(&plane, "x"), record("x", 2), Expect::Anything)
    };
    for _ in 0..8 {
        world.values(&other).await;
        world.value(&other, "guard").await;
    }
    let delete = Change { plane: Some(PlaneChange::Delete { plane: other.id }), ..Change::default() };
    let answers = world.commit_group(vec![guarded(), delete, guarded()]).await;
    assert!(matches!(&answers[..], [Ok(_), Ok(_), Err(CommitError::NoPlane)]), "{answers:?}");
    assert!(matches!(world.store.commit(guarded()).await, Err(CommitError::NoPlane)));
}

/// A writer changes two collections together; whoever has seen a commit in one sees it in the other.
pub(super) async fn readers_never_go_back(setup: &Setup<'_>) {
    const COMMITS: i64 = 250;
    let world = Arc::new(setup.world());
    let plane = world.plane("p").await;
    let change = |value: i64| {
        let write = |resource, name: &str| Write {
            key: world.key(&plane, resource, name),
            record: Some(record(name, value)),
            expect: Expect::Anything,
        };
        let writes = [(world.pods, "a/1"), (world.configs, "c"), (world.pods, "b/2"), (world.pods, "c/3")];
        Change { writes: writes.map(|(resource, name)| write(resource, name)).into(), ..Change::default() }
    };
    world.commit(change(0)).await;
    let mut readers = JoinSet::new();
    for reader in 0..3 {
        let (world, plane) = (world.clone(), plane.clone());
        readers.spawn(async move {
            let mut newest = 0;
            while newest < COMMITS {
                if reader == 0 {
                    let page = world.page(&plane, query(world.pods)).await.unwrap();
                    let values: Vec<i64> = page.objects.iter().map(|object| value_of(object)).collect();
                    assert_eq!(values, [values[0]; 3], "no half commit at {}", page.revision);
                    assert!(page.revision <= world.store.current(), "nobody reads the future");
                    newest = forward(newest, values[0]);
                } else {
                    newest = forward(newest, world.value(&plane, "a/1").await.unwrap());
                }
                let config =
                    world.store.get(&plane, world.configs, &object_name("c")).await.unwrap().unwrap();
                assert!(config.revision <= world.store.current(), "nobody reads the future");
                newest = forward(newest, value_of(&config));
                tokio::task::yield_now().await;
            }
        });
    }
    for value in 1..=COMMITS {
        world.commit(change(value)).await;
    }
    readers.join_all().await;
}

fn forward(newest: i64, seen: i64) -> i64 {
    assert!(seen >= newest, "saw {newest}, then {seen}");
    seen
}

/// A name that no engine has a place for is nobody's, and whoever asks for it is the only one who is refused.
pub(super) async fn names_without_a_place(setup: &Setup<'_>) {
    let world = setup.world();
    let (plane, other) = (world.plane("p").await, world.plane("q").await);
    let put =
        |plane: &Arc<Plane>, name: &str| Change::put(world.pod(plane, name), record(name, 1), Expect::Absent);
    // What is read often is in memory, and a write to it does not ask the engine first.
    for _ in 0..20 {
        world.values(&plane).await;
    }
    let before = world.store.current();
    let bad = put(&plane, "a\0b");
    let guarded =
        Change { guards: vec![(world.pod(&plane, "\0"), Expect::Absent)], ..put(&plane, "guarded") };
    let answers = world.commit_group(vec![put(&plane, "first"), bad, put(&other, "theirs"), guarded]).await;
    assert!(matches!(&answers[..], [Ok(_), Err(CommitError::NoName(_)), Ok(_), Ok(_)]), "{answers:?}");
    assert!(world.store.current() > before);
    let Key { resource, name, .. } = world.pod(&plane, "a\0b");
    assert!(world.store.get(&plane, resource, &name).await.unwrap().is_none());
    world.check_values(&other, &[("theirs", 1)]).await;
}
