//! Planes as a whole: made, limited, deleted, found again after a restart.

use std::sync::Arc;

use polder_model::{GroupResource, PlaneId};
use tokio::task::JoinSet;

use super::Setup;
use super::world::{BASE_NAMES, World, object_name, query, record, seen, value_of};
use crate::change::{Change, CommitError, Expect, ForkSource, PlaneChange, Renewal, Write};
use crate::key::{Key, Revision, SpaceId};
use crate::object::{Record, StoredObject};
use crate::plane::{Limits, Plane, Profile};
use crate::read::ReadError;

pub(super) async fn deletion_returns_space(setup: &Setup<'_>) {
    let world = setup.world();
    let (plane, other) = (world.plane("p").await, world.plane("other").await);
    let write = |index: i64| Write {
        key: world.pod(&plane, &format!("ns/{index}")),
        record: Some(record("x", index)),
        expect: Expect::Absent,
    };
    world.commit(Change { writes: (0..1_500).map(write).collect(), ..Change::default() }).await;
    world.put(&other, "kept", 1).await;
    world.list(&plane).await;
    let overlay = plane.overlay();
    assert!(!world.reader.is_empty(overlay).unwrap());

    world.delete_plane(&plane).await;
    assert!(world.store.plane("p").is_none() && world.store.plane_by_id(plane.id).is_none());
    assert!(matches!(world.page(&plane, query(world.pods)).await, Err(ReadError::NoPlane)));
    let got = world.store.get(&plane, world.pods, &object_name("ns/1")).await;
    assert!(matches!(got, Err(ReadError::NoPlane)), "{got:?}");
    let put = Change::put(world.pod(&plane, "x"), record("x", 1), Expect::Anything);
    assert!(matches!(world.store.commit(put).await, Err(CommitError::NoPlane)));
    let again = world.change_plane(PlaneChange::Delete { plane: plane.id }).await;
    assert!(matches!(again, Err(CommitError::NoPlane)));
    world.store.settle().await.unwrap();
    assert!(world.reader.is_empty(overlay).unwrap(), "the space has been returned");
    world.check_values(&other, &[("kept", 1)]).await;

    // A restart in the middle goes on with the removal.
    let overlay = other.overlay();
    world.delete_plane(&other).await;
    let world = world.reopen();
    world.store.settle().await.unwrap();
    assert!(world.reader.is_empty(overlay).unwrap());
    assert!(world.store.plane("other").is_none());
    world.store.compact(world.store.current()).await.unwrap();
    world.reopen().plane("other").await;
}

pub(super) async fn ids_are_never_reused(setup: &Setup<'_>) {
    let mut world = setup.world();
    let core = world.store.plane("core").unwrap();
    assert_eq!(core.id, PlaneId::CORE);
    let mut ids = vec![core.id];
    let mut spaces = core.stack.to_vec();
    for round in 0..6 {
        let plane = world.plane("p").await;
        assert!(!ids.contains(&plane.id) && !spaces.contains(&plane.overlay()), "round {round}");
        assert_eq!(world.list(&plane).await, [], "nothing of the one before it");
        assert_eq!(world.store.plane("p").unwrap().id, plane.id);
        ids.push(plane.id);
        world.put(&plane, "x", round).await;
        world.fork(&plane, "fork").await;
        let (plane, fork) = (world.now(&plane), world.store.plane("fork").unwrap());
        ids.push(fork.id);
        spaces.extend([plane.overlay(), fork.overlay(), fork.stack[1]]);
        let old = plane.clone();
        world.delete_plane(&plane).await;
        world.delete_plane(&fork).await;
        if round % 2 == 0 {
            world.store.settle().await.unwrap();
            world = world.reopen();
        }
        assert!(matches!(world.page(&old, query(world.pods)).await, Err(ReadError::NoPlane)));
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 1 + 2 * 6);
}

pub(super) async fn names_in_one_group(setup: &Setup<'_>) {
    let world = setup.world();
    let create = |name: &str| Change {
        plane: Some(PlaneChange::Create {
            name: name.parse().unwrap(),
            limits: Limits::default(),
            profile: Profile::default(),
        }),
        ..Change::default()
    };
    let delete = |id| Change { plane: Some(PlaneChange::Delete { plane: id }), ..Change::default() };
    let mut plane = world.plane("p").await;
    for round in 0..20 {
        let changes = vec![create("p"), delete(plane.id), create("p"), create("p"), delete(plane.id)];
        let answers = world.commit_group(changes).await;
        let expected = matches!(
            &answers[..],
            [
                Err(CommitError::PlaneExists(_)),
                Ok(_),
                Ok(_),
                Err(CommitError::PlaneExists(_)),
                Err(CommitError::NoPlane)
            ]
        );
        assert!(expected, "round {round}: {answers:?}");
        let new = answers[2].as_ref().unwrap().plane.clone().unwrap();
        assert_ne!(new.id, plane.id);
        assert_eq!(world.store.plane("p").map(|found| found.id), Some(new.id), "round {round}");
        assert!(world.store.plane_by_id(plane.id).is_none());
        plane = new;
    }
    let world = Arc::new(world);
    let mut creators = JoinSet::new();
    for _ in 0..30 {
        let world = world.clone();
        creators.spawn(async move {
            let create = PlaneChange::Create {
                name: "q".parse().unwrap(),
                limits: Limits::default(),
                profile: Profile::default(),
            };
            world.change_plane(create).await.is_ok()
        });
    }
    let made = creators.join_all().await.into_iter().filter(|made| *made).count();
    assert_eq!(made, 1, "one of many gets the name");
    assert!(matches!(world.store.commit(create("core")).await, Err(CommitError::PlaneExists(_))));
    assert_eq!(world.store.planes_len(), 3);
}

/// What a new plane has of its own is made of what it would begin with, hides that, and is counted: in planes made on the base,
/// in forks of planes and of layers, and of whatever their sources have become in the same group.
pub(super) async fn planes_begin_with_something_of_their_own(setup: &Setup<'_>) {
    let mut world = setup.world();
    let name = object_name(BASE_NAMES[0]);
    let renewal = |plus: i64, name: &str| {
        let (object, own) = (object_name(name), name.to_string());
        let make = move |old: &Record| record(&own, number(old) + plus);
        Renewal { resource: world.configs, name: object, make: Arc::new(make) }
    };
    let made = |plane: PlaneChange, plus: i64| Change {
        plane: Some(plane),
        // One that is there, and one that is not: a plane that begins without it begins without it.
        renewals: vec![renewal(plus, BASE_NAMES[0]), renewal(plus, "nowhere")],
        ..Change::default()
    };
    let create = |plane: &str| PlaneChange::Create {
        name: plane.parse().unwrap(),
        limits: Limits::default(),
        profile: Profile::default(),
    };
    let fork = |source: ForkSource, plane: &str| PlaneChange::Fork {
        name: plane.parse().unwrap(),
        source,
        limits: Limits::default(),
    };
    let plain = world.plane("plain").await;
    let base = world.store.get(&plain, world.configs, &name).await.unwrap().unwrap();
    let base = value_of(&base);
    let golden = world.plane("golden").await;
    let put = |value| {
        let key = Key { plane: golden.id, resource: world.configs, name: name.clone() };
        Change::put(key, record(BASE_NAMES[0], value), Expect::Anything)
    };
    let seal = |layer: &str| Change {
        plane: Some(PlaneChange::Seal { layer: layer.into(), plane: golden.id }),
        ..Change::default()
    };
    let layer = |name: &str| ForkSource::Layer(name.into());
    // Nothing is made where no plane is.
    let nowhere = Change { renewals: vec![renewal(1, BASE_NAMES[0])], ..Change::default() };
    let changes = vec![
        made(create("one"), 1),
        made(create("two"), 2),
        seal("before"),
        put(100),
        made(fork(ForkSource::Plane(golden.id), "three"), 3),
        seal("after"),
        put(200),
        made(fork(layer("before"), "four"), 4),
        made(fork(layer("after"), "five"), 5),
        made(fork(ForkSource::Plane(golden.id), "six"), 6),
        nowhere,
    ];
    let mut answers = world.commit_group(changes).await;
    assert!(matches!(answers.pop(), Some(Err(CommitError::NoPlane))));
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    // And later, of what is durable.
    for (plane, plus) in
        [(fork(layer("after"), "seven"), 7), (fork(ForkSource::Plane(golden.id), "eight"), 8)]
    {
        world.commit(made(plane, plus)).await;
    }
    let expected = [
        ("plain", base),
        ("one", base + 1),
        ("two", base + 2),
        ("three", 103),
        ("four", base + 4),
        ("five", 105),
        ("six", 206),
        ("seven", 107),
        ("eight", 208),
        ("golden", 200),
    ];
    for _ in 0..2 {
        for (plane, value) in expected {
            let plane = world.store.plane(plane).unwrap();
            let found = world.store.get(&plane, world.configs, &name).await.unwrap().unwrap();
            assert_eq!(value_of(&found), value, "{}", plane.name);
            assert_eq!(plane.usage.objects(), BASE_NAMES.len() as u64, "{}", plane.name);
            world.check_usage(&plane).await;
            let twin = world.fork(&plane, &format!("fork-of-{}", plane.name)).await;
            let found = world.store.get(&twin, world.configs, &name).await.unwrap().unwrap();
            assert_eq!(value_of(&found), value, "what is not made anew is the source's");
            world.delete_plane(&twin).await;
        }
        world = world.reopen();
    }
}

fn number(record: &Record) -> i64 {
    let (name, revision, space) = (object_name("n"), Revision(1), SpaceId(1));
    value_of(&StoredObject { name, revision, space, record: record.clone() })
}

async fn limited(world: &World, name: &str, limits: Limits) -> Arc<Plane> {
    let create = PlaneChange::Create { name: name.parse().unwrap(), limits, profile: Profile::default() };
    world.change_plane(create).await.unwrap().plane.unwrap()
}

pub(super) async fn limits_under_concurrency(setup: &Setup<'_>) {
    let world = Arc::new(setup.world());
    let base = BASE_NAMES.len() as u64;
    let by_count =
        limited(&world, "by-count", Limits { objects: base + 25, bytes: 0, ..Limits::default() }).await;
    let by_bytes = limited(&world, "by-bytes", Limits::default()).await;
    // All records are of one length: room for ten of them, and a bit.
    let len = record("000", 0).len() as u64;
    let bytes = by_bytes.usage.bytes() + len * 10 + len / 2;
    world
        .change_plane(PlaneChange::SetLimits {
            plane: by_bytes.id,
            limits: Limits { objects: 0, bytes, ..Limits::default() },
        })
        .await
        .unwrap();
    for (plane, room, what) in [(&by_count, 25, "objects"), (&by_bytes, 10, "stored bytes")] {
        let mut creators = JoinSet::new();
        for index in 0..100 {
            let (world, plane) = (world.clone(), plane.clone());
            creators.spawn(async move {
                let name = format!("{index:03}");
                let put = Change::put(world.pod(&plane, &name), record(&name, 0), Expect::Absent);
                match world.store.commit(put).await {
                    Ok(_) => true,
                    Err(CommitError::LimitReached { what: own, .. }) if own == what => false,
                    Err(error) => panic!("{error}"),
                }
            });
        }
        let made = creators.join_all().await.into_iter().filter(|made| *made).count();
        assert_eq!(made, room, "{what}");
        assert_eq!(world.list(plane).await.len(), room);
        world.check_usage(plane).await;
    }
}

pub(super) async fn only_growth_is_refused(setup: &Setup<'_>) {
    let world = setup.world();
    let base = BASE_NAMES.len() as u64;
    let plane = world.plane("p").await;
    for name in ["a", "b", "c"] {
        world.put(&plane, name, 12).await;
    }
    let bytes = plane.usage.bytes();
    let write = |name: &str, value: Option<i64>| Write {
        key: world.pod(&plane, name),
        record: value.map(|value| record(name, value)),
        expect: Expect::Anything,
    };
    // (limit of objects, limit of bytes, writes, allowed); the plane holds a, b, c with long records.
    let rows: [(u64, u64, Vec<Write>, bool); 12] = [
        (base + 2, 0, vec![write("d", Some(0))], false),
        (base + 2, 0, vec![write("a", Some(12))], true),
        (base + 3, 0, vec![write("d", Some(0))], false),
        (base + 3, 0, vec![write("d", Some(12)), write("a", None)], true),
        (base + 3, 0, vec![write("d", None), write("a", Some(12))], true),
        (base + 3, 0, vec![write("d", Some(0)), write("e", Some(0)), write("a", None)], false),
        (base + 1, 0, vec![write("d", Some(12)), write("a", None), write("b", None)], true),
        (0, bytes, vec![write("b", Some(12))], true),
        (0, bytes - 100, vec![write("c", Some(12 + 13))], true),
        (0, 1, vec![write("c", Some(0))], true),
        (0, 1, vec![write("c", Some(12))], false),
        (base + 9, bytes, vec![write("c", None)], true),
    ];
    for (index, (objects, bytes, writes, allowed)) in rows.into_iter().enumerate() {
        let limits = Limits { objects, bytes, ..Limits::default() };
        world.change_plane(PlaneChange::SetLimits { plane: plane.id, limits }).await.unwrap();
        assert_eq!(world.now(&plane).limits, limits);
        let before = (world.store.current(), world.list(&plane).await);
        let outcome = world.store.commit(Change { writes, ..Change::default() }).await;
        match outcome {
            Ok(_) => assert!(allowed, "row {index}"),
            Err(CommitError::LimitReached { limit, .. }) => {
                assert!(!allowed, "row {index}");
                assert!(limit == objects || limit == bytes);
                assert_eq!((world.store.current(), world.list(&plane).await), before);
            }
            Err(error) => panic!("row {index}: {error}"),
        }
        world.check_usage(&plane).await;
    }
    // Limits are a plane's own: a fork has those it was made with, and starts with all it inherits.
    let fork = world.fork(&plane, "fork").await;
    assert_eq!(fork.limits, Limits::default());
    world.put(&fork, "more", 1).await;
    world.check_usage(&fork).await;
}

/// The plane changes before the objects: what the same change writes into a plane it deletes has no place to be.
pub(super) async fn deleted_with_its_writes(setup: &Setup<'_>) {
    let world = setup.world();
    let (plane, other) = (world.plane("p").await, world.plane("other").await);
    let start = world.put(&plane, "a", 1).await;
    let delete = |key| Change {
        plane: Some(PlaneChange::Delete { plane: plane.id }),
        ..Change::put(key, record("x", 1), Expect::Anything)
    };
    let refused = world.store.commit(delete(world.pod(&plane, "x"))).await;
    assert!(matches!(refused, Err(CommitError::NoPlane)), "{refused:?}");
    assert_eq!(world.store.current(), start);
    world.check_values(&plane, &[("a", 1)]).await;
    let revision = world.commit(delete(world.pod(&other, "x"))).await;
    assert!(world.store.plane("p").is_none());
    assert_eq!(world.get(&other, "x").await.unwrap().revision, revision);
    // Its history leaves nothing behind that looks like a change.
    world.store.settle().await.unwrap();
    let mut everything = world.watch_everything(start);
    assert_eq!(super::world::next(&mut everything).await.unwrap().plane, other.id);
    let mut world = world;
    world.options.recent_bytes_max = 0;
    let world = world.reopen();
    let last = world.put(&other, "end", 1).await;
    for event in super::world::collect(&mut world.watch_everything(Revision(0)), last).await {
        assert!(event.old.is_some() || event.new.is_some(), "an event is about something: {event:?}");
        assert!(event.plane == other.id, "what is gone is not told any more: {event:?}");
    }
}

pub(super) async fn reopening_keeps_everything(setup: &Setup<'_>) {
    let world = setup.world();
    let limits = Limits { objects: 100, bytes: 1 << 20, ..Limits::default() };
    let one = limited(&world, "one", limits).await;
    world.put(&one, "a", 1).await;
    world.put(&one, "ns/b", 1).await;
    let two = world.fork(&one, "two").await;
    world.put(&one, "a", 2).await;
    world.delete(&two, "ns/b").await;
    world.seal(&two, "layer").await.unwrap();
    world.store.compact(one.floor).await.unwrap();
    // Known by name only, and then by an object: both are the same afterwards or free.
    let unused = GroupResource::new("example.com", "unused");
    let widgets = GroupResource::new("example.com", "widgets");
    world.store.resource_id(&unused);
    let widgets_id = world.store.resource_id(&widgets);
    let key = world.key(&one, widgets_id, "w");
    world.commit(Change::put(key, record("w", 1), Expect::Absent)).await;

    let describe = |world: &World| {
        let planes: Vec<String> = ["core", "one", "two"]
            .iter()
            .map(|name| {
                let plane = world.store.plane(name).unwrap();
                assert_eq!(world.store.plane_by_id(plane.id).unwrap().name, plane.name);
                format!("{plane:?}")
            })
            .collect();
        let resources = [&unused, &widgets].map(|name| world.store.resource_id(name));
        let revisions = (world.store.current(), world.store.compacted());
        (planes, resources, revisions, world.pods, world.configs, world.store.planes_len())
    };
    let lists = async |world: &World| {
        let mut all = Vec::new();
        for name in ["core", "one", "two"] {
            for resource in [world.pods, world.configs, widgets_id] {
                let plane = world.store.plane(name).unwrap();
                all.push(seen(&world.page(&plane, query(resource)).await.unwrap()));
            }
        }
        all
    };
    let before = (describe(&world), lists(&world).await);
    let world = world.reopen();
    assert_eq!((describe(&world), lists(&world).await), before);
    let world = world.reopen();
    assert_eq!((describe(&world), lists(&world).await), before, "opening alone changes nothing");

    let revision = world.put(&one, "c", 1).await;
    assert_eq!(revision, before.0.2.0.next());
    let three = world.try_fork(crate::change::ForkSource::Layer("layer".into()), "three").await.unwrap();
    world.check_values(&three, &[("a", 1)]).await;
    world.check_usage(&world.now(&two)).await;
}

pub(super) async fn another_base_for_new_planes(setup: &Setup<'_>) {
    let world = setup.world();
    let old = world.plane("old").await;
    world.put(&old, "a", 1).await;
    let old_base = *old.stack.last().unwrap();
    let world = world.reopen_with_base("base-two");
    let new = world.plane("new").await;
    assert_ne!(*new.stack.last().unwrap(), old_base);
    for plane in [&old, &new] {
        let configs = world.page(plane, query(world.configs)).await.unwrap();
        assert_eq!(configs.objects.len(), BASE_NAMES.len());
        world.check_usage(plane).await;
    }
    world.delete_plane(&old).await;
    world.store.settle().await.unwrap();
    assert!(!world.reader.is_empty(old_base).unwrap(), "the core plane still stands on it");
    let count = world.store.current();
    let world = world.reopen_with_base("base-two");
    assert_eq!(world.store.current(), count, "the same base is not made again");
    world.check_usage(&new).await;
}

/// An empty digest is that of no space, though most spaces have none.
pub(super) async fn no_base_at_all(setup: &Setup<'_>) {
    let world = setup.world();
    let old = world.plane("old").await;
    world.put(&old, "a", 1).await;
    world.fork(&old, "old-fork").await;
    let world = world.reopen_with_base("");
    let bare = world.plane("bare").await;
    assert_eq!(bare.stack.len(), 1, "it stands on nothing");
    world.check_values(&bare, &[]).await;
    assert!(world.page(&bare, query(world.configs)).await.unwrap().objects.is_empty());
    assert!(world.store.is_untouched(&bare).await.unwrap());
    world.put(&bare, "b", 1).await;
    let fork = world.fork(&bare, "bare-fork").await;
    assert!(!world.store.is_untouched(&fork).await.unwrap(), "it has what its source had");
    let count = world.store.current();
    let world = world.reopen_with_base("");
    assert_eq!(world.store.current(), count);
    world.check_values(&old, &[("a", 1)]).await;
    world.check_usage(&old).await;
    world.check_values(&fork, &[("b", 1)]).await;

    // A base that is replaced goes with its last plane.
    let world = world.reopen_with_base("base-three");
    let short = world.plane("short").await;
    let base = *short.stack.last().unwrap();
    assert!(world.store.is_untouched(&short).await.unwrap());
    world.delete_plane(&short).await;
    world.store.settle().await.unwrap();
    assert!(!world.reader.is_empty(base).unwrap(), "new planes will stand on it");
    let world = world.reopen_with_base(super::world::BASE_DIGEST);
    world.store.settle().await.unwrap();
    assert!(world.reader.is_empty(base).unwrap(), "nobody ever will");
    world.check_usage(&old).await;
}
