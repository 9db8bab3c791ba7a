//! Layers: planes that share what they have in common and nothing else.

use std::sync::Arc;

use polder_model::json;

use super::Setup;
use super::probe::At;
use super::world::{BASE_NAMES, World, collect, object_name, query, record};
use crate::change::{Change, CommitError, Expect, ForkSource, PlaneChange, Write};
use crate::feed::{WatchError, WatchScope};
use crate::list::ListQuery;
use crate::object::Record;
use crate::plane::{Limits, Plane};
use crate::read::ReadError;

async fn config_names(world: &World, plane: &Arc<Plane>) -> Vec<String> {
    let page = world.page(plane, query(world.configs)).await.unwrap();
    page.objects.iter().map(|object| object.name.to_string()).collect()
}

pub(super) async fn overlays_and_tombstones(setup: &Setup<'_>) {
    let mut world = setup.world();
    let (one, two) = (world.plane("one").await, world.plane("two").await);
    assert_eq!(config_names(&world, &one).await, BASE_NAMES, "every plane starts with the base");
    let base = world.store.get(&one, world.configs, &object_name(BASE_NAMES[0])).await.unwrap().unwrap();
    let key = |name: &str| world.key(&one, world.configs, name);

    // What a layer holds is expected, replaced and deleted like anything else.
    let absent = Change::put(key(BASE_NAMES[0]), record("x", 1), Expect::Absent);
    assert!(matches!(world.store.commit(absent).await, Err(CommitError::Conflict { .. })));
    world.commit(Change::put(key(BASE_NAMES[0]), record("x", 1), Expect::At(base.revision))).await;
    let gone = world.commit(Change::delete(key(BASE_NAMES[1]), Expect::At(base.revision))).await;
    let again = Change::delete(key(BASE_NAMES[1]), Expect::At(base.revision));
    assert!(matches!(world.store.commit(again).await, Err(CommitError::Conflict { found: None, .. })));

    for compacted in [false, true] {
        if compacted {
            // A tombstone outlives the history around it: below it the layer still has the object.
            world.store.compact(world.store.current()).await.unwrap();
            world = world.reopen();
        }
        assert_eq!(config_names(&world, &one).await, [BASE_NAMES[0], BASE_NAMES[2]]);
        assert_eq!(config_names(&world, &two).await, BASE_NAMES);
        for _ in 0..8 {
            let hidden = world.store.get(&one, world.configs, &object_name(BASE_NAMES[1])).await.unwrap();
            assert_eq!(hidden, None);
        }
    }
    let back =
        Change::put(world.key(&one, world.configs, BASE_NAMES[1]), record(BASE_NAMES[1], 5), Expect::Absent);
    let back = world.commit(back).await;
    assert!(back > gone);
    assert_eq!(config_names(&world, &one).await, BASE_NAMES);
    world.check_usage(&one).await;
    world.check_usage(&two).await;
}

pub(super) async fn forks_are_isolated(setup: &Setup<'_>) {
    let world = setup.world();
    let source = world.plane("source").await;
    world.put(&source, "a", 1).await;
    world.put(&source, "b", 1).await;
    world.put(&source, "c", 1).await;
    let fork = world.fork(&source, "fork").await;
    world.check_values(&fork, &[("a", 1), ("b", 1), ("c", 1)]).await;

    world.put(&source, "a", 2).await;
    world.put(&source, "only-source", 2).await;
    world.delete(&source, "b").await;
    world.put(&fork, "a", 3).await;
    world.put(&fork, "only-fork", 3).await;
    world.delete(&fork, "c").await;
    world.check_values(&source, &[("a", 2), ("c", 1), ("only-source", 2)]).await;
    world.check_values(&fork, &[("a", 3), ("b", 1), ("only-fork", 3)]).await;

    let grandchild = world.fork(&fork, "grandchild").await;
    world.delete(&grandchild, "a").await;
    world.put(&grandchild, "c", 4).await;
    world.delete(&fork, "b").await;
    world.check_values(&grandchild, &[("b", 1), ("c", 4), ("only-fork", 3)]).await;
    world.check_values(&fork, &[("a", 3), ("only-fork", 3)]).await;
    world.check_values(&source, &[("a", 2), ("c", 1), ("only-source", 2)]).await;

    world.store.compact(world.store.current()).await.unwrap();
    let world = world.reopen();
    world.check_values(&grandchild, &[("b", 1), ("c", 4), ("only-fork", 3)]).await;
    world.check_values(&fork, &[("a", 3), ("only-fork", 3)]).await;
    world.check_values(&source, &[("a", 2), ("c", 1), ("only-source", 2)]).await;
    for plane in [&source, &fork, &grandchild] {
        world.check_usage(plane).await;
    }
    // An object keeps its revision in the fork, so that what a client read of the source is still current there.
    let (of_source, of_fork) = (world.get(&source, "c").await.unwrap(), world.list(&grandchild).await);
    assert!(of_fork.iter().all(|(_, revision, _)| *revision != of_source.revision));
    assert_eq!(of_fork[0].1, world.get(&grandchild, "b").await.unwrap().revision);
}

/// The plane changes first: a fork does not have what the same commit writes, and its source does.
pub(super) async fn forks_in_one_commit_with_writes(setup: &Setup<'_>) {
    let world = setup.world();
    for touched in [false, true] {
        let source = world.plane(&format!("source-{touched}")).await;
        if touched {
            world.put(&source, "a", 1).await;
        }
        let write = |value: i64| Write {
            key: world.pod(&source, "a"),
            record: Some(record("a", value)),
            expect: Expect::Anything,
        };
        let name = format!("fork-{touched}");
        let plane = PlaneChange::Fork {
            name: name.parse().unwrap(),
            source: ForkSource::Plane(source.id),
            limits: Limits::default(),
        };
        let change = Change { writes: vec![write(2)], plane: Some(plane), ..Change::default() };
        let committed = world.store.commit(change).await.unwrap();
        let fork = committed.plane.unwrap();
        world.check_values(&fork, if touched { &[("a", 1)] } else { &[] }).await;
        world.check_values(&source, &[("a", 2)]).await;
        world.check_usage(&source).await;
        world.check_usage(&fork).await;
        assert_eq!((fork.floor, fork.name.as_str()), (committed.revision, name.as_str()));
    }
    // Writes, forks and writes again within one group.
    let source = world.plane("grouped").await;
    let put =
        |name: &str, value| Change::put(world.pod(&source, name), record(name, value), Expect::Anything);
    let fork = |name: &str| Change {
        plane: Some(PlaneChange::Fork {
            name: name.parse().unwrap(),
            source: ForkSource::Plane(source.id),
            limits: Limits::default(),
        }),
        ..Change::default()
    };
    let changes = vec![
        fork("g0"),
        put("a", 1),
        put("b", 1),
        fork("g1"),
        fork("g2"),
        put("a", 2),
        fork("g3"),
        put("c", 3),
    ];
    for answer in world.commit_group(changes).await {
        answer.unwrap();
    }
    let world = world.reopen();
    let rows: [(&str, &[(&str, i64)]); 5] = [
        ("g0", &[]),
        ("g1", &[("a", 1), ("b", 1)]),
        ("g2", &[("a", 1), ("b", 1)]),
        ("g3", &[("a", 2), ("b", 1)]),
        ("grouped", &[("a", 2), ("b", 1), ("c", 3)]),
    ];
    for (name, expected) in rows {
        let plane = world.store.plane(name).unwrap();
        world.check_values(&plane, expected).await;
        world.check_usage(&plane).await;
    }
}

pub(super) async fn unchanged_planes_fork_flat(setup: &Setup<'_>) {
    let world = setup.world();
    let source = world.plane("source").await;
    world.put(&source, "a", 1).await;
    let first = world.fork(&source, "f0").await;
    let source_depth = world.now(&source).stack.len();
    let mut last = first.clone();
    for index in 1..40 {
        world.fork(&source, &format!("s{index}")).await;
        last = world.fork(&last, &format!("f{index}")).await;
    }
    assert_eq!(world.now(&source).stack.len(), source_depth, "forking what has not changed costs no layer");
    assert_eq!(last.stack.len(), first.stack.len(), "nor does forking a fork");
    world.check_values(&last, &[("a", 1)]).await;

    // Equal counts prove nothing: these planes changed.
    let swapped = world.fork(&source, "swapped").await;
    world.put(&swapped, "a", 14).await;
    let copy = world.fork(&swapped, "swapped-copy").await;
    world.check_values(&copy, &[("a", 14)]).await;
    let back = world.fork(&source, "back").await;
    world.put(&back, "b", 1).await;
    world.delete(&back, "b").await;
    world.check_values(&world.fork(&back, "back-copy").await, &[("a", 1)]).await;
}

pub(super) async fn history_runs_across_a_fork(setup: &Setup<'_>) {
    let world = setup.world();
    let source = world.plane("source").await;
    let start = world.store.current();
    let mut live = world.watch(&source, start);
    let mut states = vec![(start, world.list(&source).await)];
    for value in 0..12 {
        if value % 4 == 3 {
            world.fork(&source, &format!("fork-{value}")).await;
            states.push((world.store.current(), world.list(&source).await));
        }
        let revision = match value {
            5 => world.delete(&source, "n1").await,
            _ => world.put(&source, &format!("n{}", value % 3), value).await,
        };
        states.push((revision, world.list(&source).await));
    }
    let last = world.put(&source, "end", 1).await;
    let events = collect(&mut live, last).await;
    assert_eq!(events.len(), 13, "a watch that ran all the time");
    let world = world.reopen();
    assert_eq!(collect(&mut world.watch(&source, start), last).await, events, "and one that starts now");
    for (revision, expected) in &states {
        assert_eq!(world.list_at(&source, *revision).await, *expected, "source at {revision}");
    }
    for event in &events[1..] {
        if let (Some(old), Some(new)) = (&event.old, &event.new) {
            assert!(old.revision < new.revision && old.name == new.name);
        }
    }
    // A fork has its own history, from its beginning.
    let fork = world.store.plane("fork-7").unwrap();
    let before = crate::key::Revision(fork.floor.0 - 1);
    let listed = world.page(&fork, ListQuery { at: Some(before), ..query(world.pods) }).await;
    assert!(matches!(listed, Err(ReadError::Compacted { compacted, .. }) if compacted == fork.floor));
    let watched = world.store.watch(WatchScope::Collection(fork.id, world.pods), before);
    assert!(matches!(watched, Err(WatchError::Compacted { compacted }) if compacted == fork.floor));
    let of_source = states.iter().find(|(revision, _)| *revision == fork.floor).unwrap();
    assert_eq!(world.list_at(&fork, fork.floor).await, of_source.1);
    let revision = world.put(&fork, "n0", 99).await;
    let mut watch = world.watch(&fork, fork.floor);
    let event = collect(&mut watch, revision).await.remove(0);
    assert_eq!((event.revision, event.plane), (revision, fork.id));
    assert!(
        event.old.is_some_and(|old| old.revision < fork.floor),
        "it replaced what the source had written"
    );
}

pub(super) async fn shared_layers_outlive_planes(setup: &Setup<'_>) {
    let world = setup.world();
    let source = world.plane("source").await;
    world.put(&source, "a", 1).await;
    let fork = world.fork(&source, "fork").await;
    let layer = fork.stack[1];
    world.put(&fork, "b", 2).await;
    let grandchild = world.fork(&fork, "grandchild").await;
    let (source, fork) = (world.now(&source), world.now(&fork));
    let middle = grandchild.stack[1];

    world.delete_plane(&source).await;
    world.delete_plane(&fork).await;
    world.store.settle().await.unwrap();
    assert!(
        world.reader.is_empty(source.overlay()).unwrap() && world.reader.is_empty(fork.overlay()).unwrap()
    );
    let world = world.reopen();
    world.check_values(&grandchild, &[("a", 1), ("b", 2)]).await;
    world.check_usage(&grandchild).await;
    world.delete_plane(&grandchild).await;
    world.store.settle().await.unwrap();
    for space in [layer, middle, grandchild.overlay()] {
        assert!(world.reader.is_empty(space).unwrap(), "nobody stands on {space:?} any more");
    }
    let fresh = world.plane("fresh").await;
    assert_eq!(config_names(&world, &fresh).await, BASE_NAMES, "the base stays");
}

pub(super) async fn named_layers(setup: &Setup<'_>) {
    let world = setup.world();
    let source = world.plane("source").await;
    world.put(&source, "a", 1).await;
    world.seal(&source, "golden").await.unwrap();
    world.put(&source, "a", 2).await;
    assert!(matches!(world.seal(&source, "golden").await, Err(CommitError::LayerExists(_))));
    world.seal(&source, "second").await.unwrap();
    world.seal(&source, "second-again").await.unwrap();
    let world = world.reopen();
    let layer = |name: &str| ForkSource::Layer(name.into());
    let golden = world.try_fork(layer("golden"), "from-golden").await.unwrap();
    let second = world.try_fork(layer("second"), "from-second").await.unwrap();
    assert!(matches!(world.try_fork(layer("none"), "x").await, Err(CommitError::NoLayer(_))));
    assert!(matches!(world.unseal("none").await, Err(CommitError::NoLayer(_))));
    world.check_values(&golden, &[("a", 1)]).await;
    world.check_values(&second, &[("a", 2)]).await;

    // The name goes, what stands on the layer stays.
    let source = world.now(&source);
    world.delete_plane(&source).await;
    world.unseal("golden").await.unwrap();
    assert!(matches!(world.try_fork(layer("golden"), "y").await, Err(CommitError::NoLayer(_))));
    world.unseal("second").await.unwrap();
    world.store.settle().await.unwrap();
    let world = world.reopen();
    world.check_values(&golden, &[("a", 1)]).await;
    world.check_values(&second, &[("a", 2)]).await;
    let third = world.try_fork(layer("second-again"), "third").await.unwrap();
    world.check_values(&third, &[("a", 2)]).await;
    for plane in [&golden, &second, &third] {
        world.check_usage(plane).await;
    }
    // A freed name can be taken by something else.
    world.put(&third, "a", 3).await;
    world.seal(&third, "golden").await.unwrap();
    world.check_values(&world.try_fork(layer("golden"), "fourth").await.unwrap(), &[("a", 3)]).await;

    let spaces = [&golden, &second, &world.now(&third), &source].map(|plane| plane.stack.to_vec()).concat();
    let base = *golden.stack.last().unwrap();
    for name in ["from-golden", "from-second", "third", "fourth"] {
        world.delete_plane(&world.store.plane(name).unwrap()).await;
    }
    world.unseal("golden").await.unwrap();
    world.unseal("second-again").await.unwrap();
    world.store.settle().await.unwrap();
    for space in spaces.into_iter().filter(|space| *space != base) {
        assert!(world.reader.is_empty(space).unwrap(), "{space:?} is nobody's");
    }
}

/// Planes that are forked in a chain read through few layers, once those are old, and through no more on disk.
pub(super) async fn depth_is_bounded(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    let base = world.key(&plane, world.configs, BASE_NAMES[0]);
    world.commit(Change::delete(base, Expect::Anything)).await;
    world.put(&plane, "kept", 7).await;
    for value in 0..60 {
        world.put(&plane, "a", value).await;
        match value % 10 {
            3 => drop(world.put(&plane, "sometimes", value).await),
            7 => drop(world.delete(&plane, "sometimes").await),
            _ => {}
        }
        let fork = world.fork(&plane, &format!("f{value}")).await;
        world.check_usage(&fork).await;
    }
    world.put(&plane, "b", 1).await;
    world.seal(&plane, "deep").await.unwrap();
    let tall = world.now(&plane);
    assert!(tall.stack.len() > 60, "nothing is old enough yet");
    let start = world.store.current();
    let layer_of = |world: &World, name: &str| world.store.plane(name).unwrap().stack[1];
    let (first, early) = (layer_of(&world, "f0"), layer_of(&world, "f10"));
    for value in 10..20 {
        // Nobody stands on these any more but the plane that goes on.
        world.delete_plane(&world.store.plane(&format!("f{value}")).unwrap()).await;
    }
    let mut watch = world.watch(&plane, start);
    let replaced = world.put(&plane, "kept", 8).await;

    world.store.compact(start).await.unwrap();
    world.store.settle().await.unwrap();
    let merged = world.now(&plane);
    assert!(merged.stack.len() < 20, "{} layers", merged.stack.len());
    for spaces in [&tall.stack[20..40], &[early]] {
        let left = spaces.iter().filter(|space| !world.reader.is_empty(**space).unwrap()).count();
        assert!(left <= spaces.len() / 2 + 10, "{left} of {} layers are still there", spaces.len());
    }
    assert!(world.reader.is_empty(early).unwrap(), "what nobody stands on is returned");
    assert!(!world.reader.is_empty(first).unwrap(), "what somebody stands on is kept");
    let from_layer = world.try_fork(ForkSource::Layer("deep".into()), "from-deep").await.unwrap();
    let mut world = world;
    for reopened in [false, true] {
        if reopened {
            world = world.reopen();
        }
        world.check_values(&plane, &[("a", 59), ("b", 1), ("kept", 8)]).await;
        world.check_values(&from_layer, &[("a", 59), ("b", 1), ("kept", 7)]).await;
        world.check_values(&world.store.plane("f0").unwrap(), &[("a", 0), ("kept", 7)]).await;
        world
            .check_values(&world.store.plane("f45").unwrap(), &[("a", 45), ("kept", 7), ("sometimes", 43)])
            .await;
        for name in ["p", "f0", "f9", "f45", "f59", "from-deep"] {
            let plane = world.store.plane(name).unwrap();
            assert!(plane.stack.len() < 24, "{name}: {} layers", plane.stack.len());
            assert_eq!(config_names(&world, &plane).await, BASE_NAMES[1..], "{name}: deleted stays deleted");
            world.check_usage(&plane).await;
        }
        if !reopened {
            assert_eq!(collect(&mut watch, replaced).await.len(), 1);
        }
        // What was replaced is told though its layer was merged away.
        let event = collect(&mut world.watch(&plane, start), replaced).await.remove(0);
        assert_eq!(event.old.map(|old| old.record), Some(record("kept", 7)), "reopened: {reopened}");
    }

    // Layers of unchanged planes, one from the other, do not pile up.
    let mut last = world.plane("layered").await;
    let depth = last.stack.len();
    for index in 0..60 {
        let layer = format!("layer-{index}");
        world.seal(&last, &layer).await.unwrap();
        last = world.try_fork(ForkSource::Layer(layer.into()), &format!("l{index}")).await.unwrap();
    }
    assert!(last.stack.len() <= depth + 1, "{}", last.stack.len());
    world.put(&plane, "a", -1).await;
    world.check_values(&plane, &[("a", -1), ("b", 1), ("kept", 8)]).await;
    world.check_values(&world.store.plane("f0").unwrap(), &[("a", 0), ("kept", 7)]).await;
}

pub(super) async fn usage_is_exact(setup: &Setup<'_>) {
    let mut world = setup.world();
    let source = world.plane("source").await;
    let mut planes = vec![source.clone()];
    for step in 0..24_i64 {
        let plane = planes[usize::try_from(step).unwrap() % planes.len()].clone();
        world.put(&plane, &format!("n{}", step % 5), step).await;
        world.put(&plane, &format!("n{}", (step + 1) % 7), step * 3).await;
        world.delete(&plane, &format!("n{}", (step + 2) % 5)).await;
        let base = world.key(&plane, world.configs, BASE_NAMES[usize::try_from(step % 3).unwrap()]);
        world
            .commit(match step % 2 {
                0 => Change::delete(base, Expect::Anything),
                _ => Change::put(base, record("base", step), Expect::Anything),
            })
            .await;
        match step % 6 {
            1 => planes.push(world.fork(&plane, &format!("fork-{step}")).await),
            2 => drop(world.seal(&plane, &format!("layer-{step}")).await.unwrap()),
            3 => {
                let layer = ForkSource::Layer(format!("layer-{}", step - 1).into());
                planes.push(world.try_fork(layer, &format!("layered-{step}")).await.unwrap());
            }
            4 => world = world.reopen(),
            _ => {}
        }
        for plane in &planes {
            world.check_usage(plane).await;
        }
    }
}

/// A plane with so many layers that they are merged when they are old.
async fn tall_plane(world: &World) -> Arc<Plane> {
    let plane = world.plane("tall").await;
    // More than is copied at once.
    let write = |index: i64| Write {
        key: world.key(&plane, world.configs, &format!("x{index}")),
        record: Some(record("x", index)),
        expect: Expect::Absent,
    };
    world.commit(Change { writes: (0..400).map(write).collect(), ..Change::default() }).await;
    for value in 0..20 {
        world.put(&plane, &format!("n{value:02}"), value).await;
        world.put(&plane, "a", value).await;
        world.fork(&plane, &format!("tall-{value}")).await;
    }
    world.now(&plane)
}

async fn check_tall(world: &World, plane: &Arc<Plane>) {
    let names: Vec<String> = (0..20).map(|value| format!("n{value:02}")).collect();
    let mut expected = vec![("a", 19)];
    expected.extend((0..).zip(&names).map(|(value, name)| (name.as_str(), value)));
    world.check_values(plane, &expected).await;
}

/// A read that began before the layers it reads were merged away finds everything all the same.
pub(super) async fn merging_under_readers(setup: &Setup<'_>) {
    for at in [At::BeforeScan, At::BeforeVersion] {
        let world = setup.world();
        let plane = tall_plane(&world).await;
        for index in 0..19 {
            world.delete_plane(&world.store.plane(&format!("tall-{index}")).unwrap()).await;
        }
        world.store.settle().await.unwrap();
        let mut stopped = world.probe.stop(at);
        let (store, reader, pods) = (world.store.clone(), plane.clone(), world.pods);
        let mut reading = tokio::task::JoinSet::new();
        reading.spawn(async move {
            match at {
                At::BeforeScan => store.list(&reader, query(pods)).await.map(|page| page.objects.len()),
                _ => store.get(&reader, pods, &object_name("n00")).await.map(|found| found.iter().len() * 21),
            }
        });
        stopped.reached().await;
        world.store.compact(world.store.current()).await.unwrap();
        world.store.settle().await.unwrap();
        assert!(world.now(&plane).stack.len() < plane.stack.len());
        assert!(world.reader.is_empty(plane.stack[10]).unwrap(), "merged and gone");
        drop(stopped);
        assert_eq!(reading.join_all().await.remove(0).unwrap(), 21, "{at:?}");
        check_tall(&world, &plane).await;
    }
}

pub(super) async fn interrupted_merges_leave_nothing(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = tall_plane(&world).await;
    let mut stopped = world.probe.stop(At::BeforeFill);
    world.store.compact(world.store.current()).await.unwrap();
    stopped.reached().await;
    let store = world.store.clone();
    let closing = tokio::task::spawn_blocking(move || store.close());
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    drop(stopped);
    closing.await.unwrap();
    let world = world.reopen();
    // Half a merge is none; the next one begins at once.
    check_tall(&world, &plane).await;
    world.put(&plane, "a", 19).await;
    world.store.compact(world.store.current()).await.unwrap();
    world.store.settle().await.unwrap();
    assert!(world.now(&plane).stack.len() < plane.stack.len());
    check_tall(&world, &plane).await;

    // A plane that is deleted while its layers are being merged takes all of them with it.
    let doomed = world.plane("doomed").await;
    for value in 0..12 {
        world.put(&doomed, "a", value).await;
        let fork = world.fork(&doomed, &format!("doomed-{value}")).await;
        world.delete_plane(&fork).await;
    }
    let doomed = world.now(&doomed);
    let mut stopped = world.probe.stop(At::BeforeFill);
    world.store.compact(world.store.current()).await.unwrap();
    stopped.reached().await;
    let (store, id) = (world.store.clone(), doomed.id);
    let mut deleting = tokio::task::JoinSet::new();
    deleting.spawn(async move {
        let plane = Some(PlaneChange::Delete { plane: id });
        store.commit(Change { plane, ..Change::default() }).await
    });
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    drop(stopped);
    deleting.join_all().await.remove(0).unwrap();
    // Also the key of the layer they were being merged into, in the same commit: nothing of the plane can be opened any more.
    let planes: Vec<_> = world.store.shared.planes.read().by_id.values().cloned().collect();
    for key in world.reader.keys(None, 1_000).unwrap() {
        assert!(planes.iter().any(|plane| plane.stack.contains(&key.space)), "{:?} has a key", key.space);
    }
    world.store.settle().await.unwrap();
    for space in &doomed.stack[..12] {
        assert!(world.reader.is_empty(*space).unwrap(), "{space:?}");
    }
    check_tall(&world.reopen(), &plane).await;
}

/// A plane cannot be forked faster than its layers are merged for ever; others do not notice.
pub(super) async fn forks_without_pause_are_refused(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    let mut commits = Vec::new();
    for index in 0..1_100 {
        let fork = PlaneChange::Fork {
            name: format!("f{index}").parse().unwrap(),
            source: ForkSource::Plane(plane.id),
            limits: Limits::default(),
        };
        let write =
            Write { key: world.pod(&plane, "a"), record: Some(record("a", index)), expect: Expect::Anything };
        let change = Change { writes: vec![write], plane: Some(fork), ..Change::default() };
        let store = world.store.clone();
        commits.push(Box::pin(async move { store.commit(change).await }));
    }
    let mut tasks = tokio::task::JoinSet::new();
    for commit in commits {
        tasks.spawn(commit);
    }
    let answers = tasks.join_all().await;
    let refused = answers.iter().filter(|answer| matches!(answer, Err(CommitError::TooManyLayers))).count();
    let made = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!(refused > 50 && made > 1_000 && refused + made == 1_100, "{refused} refused, {made} made");
    assert!(world.value(&plane, "a").await.is_some());
    let other = world.plane("other").await;
    world.fork(&other, "other-fork").await;

    // It is a matter of time.
    let mut tasks = tokio::task::JoinSet::new();
    for index in (0..1_100).filter(|index| index % 20 != 0) {
        if let Some(fork) = world.store.plane(&format!("f{index}")) {
            let plane = Some(PlaneChange::Delete { plane: fork.id });
            let store = world.store.clone();
            tasks.spawn(async move { store.commit(Change { plane, ..Change::default() }).await });
        }
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    world.store.compact(world.store.current()).await.unwrap();
    world.store.settle().await.unwrap();
    let fork = world.fork(&plane, "again").await;
    assert!(fork.stack.len() < 64, "{}", fork.stack.len());
}

/// Merging holds a little at a time, however heavy the objects are.
pub(super) async fn heavy_layers_are_merged_in_steps(setup: &Setup<'_>) {
    const HEAVY: usize = 300 << 10;
    let world = setup.world();
    let plane = world.plane("p").await;
    for index in 0..10 {
        for name in [format!("own-{index}-a"), format!("own-{index}-b"), "same".to_owned()] {
            let object =
                json!({"metadata": {"name": (name.as_str())}, "value": index, "text": ("x".repeat(HEAVY))});
            let put = Change::put(world.pod(&plane, &name), Record::encode(&object), Expect::Anything);
            world.commit(put).await;
        }
        let fork = world.fork(&plane, &format!("f{index}")).await;
        world.delete_plane(&fork).await;
    }
    let before = world.list(&plane).await;
    let tall = world.now(&plane).stack.len();
    world.store.compact(world.store.current()).await.unwrap();
    world.store.settle().await.unwrap();
    assert!(world.now(&plane).stack.len() < tall);
    let (read, written) = (world.probe.scan_bytes_max(), world.probe.fill_bytes_max());
    assert!(written > 0 && written < (1 << 20) + 2 * HEAVY, "{written} bytes copied at once");
    assert!(read < (1 << 20) + 2 * HEAVY, "{read} bytes read at once");
    assert_eq!(world.list(&plane).await, before);
    assert_eq!(world.reopen().list(&plane).await, before);
}

/// More forks of each version than change hands at once.
const FORKS: i64 = 70;

/// A plane that changes and is forked many times a version.
async fn template(world: &World, name: &str, versions: i64) -> Arc<Plane> {
    let plane = world.plane(name).await;
    for version in 0..versions {
        world.put(&plane, "a", version).await;
        world.put(&plane, &format!("n{version:02}"), version).await;
        let mut forks = tokio::task::JoinSet::new();
        for index in 0..FORKS {
            let fork = PlaneChange::Fork {
                name: format!("{name}-{version}-{index}").parse().unwrap(),
                source: ForkSource::Plane(plane.id),
                limits: Limits::default(),
            };
            let store = world.store.clone();
            forks.spawn(async move { store.commit(Change { plane: Some(fork), ..Change::default() }).await });
        }
        assert!(forks.join_all().await.iter().all(Result::is_ok));
    }
    plane
}

async fn check_template(world: &World, name: &str, version: i64, plane: &Arc<Plane>) {
    let names: Vec<String> = (0..=version).map(|version| format!("n{version:02}")).collect();
    let mut expected = vec![("a", version)];
    expected.extend((0..).zip(&names).map(|(version, name)| (name.as_str(), version)));
    world.check_values(plane, &expected).await;
    world.check_usage(plane).await;
    assert!(world.store.plane(name).is_some());
}

/// However many planes stand on each version of a template, its layers are merged, and what is left is returned.
pub(super) async fn templates_are_merged(setup: &Setup<'_>) {
    let mut world = setup.world();
    let plane = template(&world, "template", 12).await;
    let tall = world.now(&plane);
    // A step that fails is taken again.
    world.probe.fail_after(2);
    world.store.compact(world.store.current()).await.unwrap();
    world.store.settle().await.unwrap();
    for reopened in [false, true] {
        if reopened {
            world = world.reopen();
            world.store.settle().await.unwrap();
        }
        let depth = world.now(&plane).stack.len();
        assert!(depth < 8, "{depth} of {} layers are left", tall.stack.len());
        check_template(&world, "template", 11, &plane).await;
        for version in [0, 3, 6, 7, 11] {
            for index in [0, FORKS / 2, FORKS - 1] {
                let fork = world.store.plane(&format!("template-{version}-{index}")).unwrap();
                check_template(&world, "template", version, &fork).await;
            }
        }
    }
    let planes: Vec<Arc<Plane>> = (0..12)
        .flat_map(|version| (0..FORKS).map(move |index| format!("template-{version}-{index}")))
        .filter_map(|name| world.store.plane(&name))
        .chain([world.now(&plane)])
        .collect();
    let mut deletions = tokio::task::JoinSet::new();
    for plane in &planes {
        let (store, plane) = (world.store.clone(), Some(PlaneChange::Delete { plane: plane.id }));
        deletions.spawn(async move { store.commit(Change { plane, ..Change::default() }).await });
    }
    assert!(deletions.join_all().await.iter().all(Result::is_ok));
    world.store.settle().await.unwrap();
    let base = *plane.stack.last().unwrap();
    for space in planes.iter().chain([&tall]).flat_map(|plane| plane.stack.iter()) {
        assert!(*space == base || world.reader.is_empty(*space).unwrap(), "{space:?} is nobody's");
    }
}

/// Planes are made, forked, written and deleted while the layers below them are being replaced, and the server stops
/// in the middle of it.
pub(super) async fn layers_change_hands_in_steps(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = template(&world, "t", 10).await;
    let mut filling = world.probe.stop(At::BeforeFill);
    world.store.compact(world.store.current()).await.unwrap();
    filling.reached().await;
    // The next thing written is that the first planes stand on the merged layer.
    let mut moved = world.probe.stop(At::AfterApply);
    drop(filling);
    moved.reached().await;
    let mut changes = tokio::task::JoinSet::new();
    for index in 0..FORKS {
        for version in [0, 7, 9] {
            let source = world.store.plane(&format!("t-{version}-{index}")).unwrap();
            let change = match (index + version) % 4 {
                0 => PlaneChange::Delete { plane: source.id },
                1 => PlaneChange::Fork {
                    name: format!("late-{version}-{index}").parse().unwrap(),
                    source: ForkSource::Plane(source.id),
                    limits: Limits::default(),
                },
                _ => continue,
            };
            let write = Write {
                key: world.pod(&source, "late"),
                record: Some(record("late", index)),
                expect: Expect::Absent,
            };
            let writes = if index % 3 == 0 && (index + version) % 4 == 1 { vec![write] } else { Vec::new() };
            let (store, plane) = (world.store.clone(), Some(change));
            changes.spawn(async move { store.commit(Change { writes, plane, ..Change::default() }).await });
        }
    }
    drop(moved);
    assert!(changes.join_all().await.iter().all(Result::is_ok));
    let check = async |world: &World| {
        check_template(world, "t", 9, &plane).await;
        for version in [0, 5, 7, 9] {
            for index in 0..FORKS {
                for name in ["t", "late"] {
                    let Some(fork) = world.store.plane(&format!("{name}-{version}-{index}")) else {
                        continue;
                    };
                    assert_eq!(world.value(&fork, "a").await, Some(version), "{}", fork.name);
                    assert_eq!(world.value(&fork, "n00").await, Some(0), "{}", fork.name);
                }
            }
        }
    };
    check(&world).await;
    // Whatever is half done now stays so until the next start.
    let world = world.reopen();
    check(&world).await;
    world.put(&plane, "a", 9).await;
    world.store.compact(world.store.current()).await.unwrap();
    world.store.settle().await.unwrap();
    check(&world).await;
    let depth = world.now(&plane).stack.len();
    assert!(depth < 8, "{depth} layers");
    check(&world.reopen()).await;
}
