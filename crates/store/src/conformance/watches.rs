//! The feed: every change once, in order, to every watcher, from any revision that is kept.

use std::sync::Arc;
use std::time::Duration;

use polder_model::json;
use tokio::task::JoinSet;

use super::Setup;
use super::world::{SeenEvent, World, collect, next, record, value_of};
use crate::change::{Change, Expect, Write};
use crate::feed::{WatchError, WatchScope};
use crate::key::Revision;
use crate::object::Record;
use crate::plane::Plane;

/// A history with everything in it: several planes and resources, batches, deletions, forks, commits without
/// events. Returns the plane with most of it, and its last revision, which has one event, in that plane.
async fn eventful(world: &World) -> (Arc<Plane>, Revision) {
    let (plane, other) = (world.plane("p").await, world.plane("other").await);
    for round in 0..12 {
        let name = format!("ns/{}", round % 5);
        world.put(&plane, &name, round).await;
        world.put(&other, &name, round).await;
        let write = |resource, name: &str, value: Option<i64>| Write {
            key: world.key(&plane, resource, name),
            record: value.map(|value| record(name, value)),
            expect: Expect::Anything,
        };
        let base = super::world::BASE_NAMES[usize::try_from(round).unwrap() % 3];
        let writes = vec![
            write(world.pods, "a", Some(round)),
            write(world.configs, base, (round % 4 != 3).then_some(round)),
            write(world.pods, "b", (round % 2 == 0).then_some(round)),
            write(world.pods, "c", Some(-round)),
        ];
        world.commit(Change { writes, ..Change::default() }).await;
        match round {
            3 => drop(world.fork(&plane, "fork-one").await),
            5 => assert!(world.delete(&plane, "nowhere").await > plane.floor),
            7 => drop(world.fork(&plane, "fork-two").await),
            _ => {}
        }
        world.delete(&plane, &format!("ns/{}", (round + 2) % 5)).await;
    }
    let last = world.put(&plane, "end", 0).await;
    (plane, last)
}

fn after(events: &[SeenEvent], revision: Revision) -> Vec<SeenEvent> {
    events.iter().filter(|event| event.revision > revision).cloned().collect()
}

pub(super) async fn resume_from_every_revision(setup: &Setup<'_>) {
    let world = setup.world();
    let start = world.store.current();
    let mut live = world.watch_everything(start);
    let (plane, last) = eventful(&world).await;
    let all = collect(&mut live, last).await;
    assert!(all.is_sorted_by_key(|event| event.revision));
    for event in &all {
        // What an event says is what a read says.
        let object = event.new.as_ref().or(event.old.as_ref()).unwrap();
        if event.resource == world.pods && event.plane == plane.id {
            let listed = world.list_at(&plane, event.revision).await;
            let found = listed.into_iter().find(|(name, ..)| *name == object.name);
            let new = event.new.as_ref().map(|new| (new.name.clone(), new.revision, new.record.clone()));
            assert_eq!(found, new, "at {}", event.revision);
        }
    }
    let own: Vec<SeenEvent> =
        all.iter().filter(|event| (event.plane, event.resource) == (plane.id, world.pods)).cloned().collect();
    for revision in (start.0..last.0).map(Revision) {
        let everything = collect(&mut world.watch_everything(revision), last).await;
        assert_eq!(everything, after(&all, revision), "everything after {revision}");
        if revision >= plane.floor {
            let collection = collect(&mut world.watch(&plane, revision), last).await;
            assert_eq!(collection, after(&own, revision), "one collection after {revision}");
        }
    }
    let too_early = world.store.watch(WatchScope::Collection(plane.id, world.pods), start);
    assert!(
        matches!(too_early, Err(WatchError::Compacted { .. })),
        "a plane has no history before it was made"
    );
}

pub(super) async fn watchers_agree(setup: &Setup<'_>) {
    let world = Arc::new(setup.world());
    let planes = [world.plane("p").await, world.plane("q").await];
    let start = world.store.current();
    let mut watchers = JoinSet::new();
    let mut writers = JoinSet::new();
    for writer in 0..4_i64 {
        let (world, plane) = (world.clone(), planes[usize::try_from(writer).unwrap() % 2].clone());
        writers.spawn(async move {
            for round in 0..60 {
                world.put(&plane, &format!("w{}", round % 7), writer * 1_000 + round).await;
            }
        });
    }
    for pause in [0, 1, 3, 8] {
        let world = world.clone();
        watchers.spawn(async move {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let mut watch = world.watch_everything(start);
            let mut events = Vec::new();
            while events.last().is_none_or(|event: &SeenEvent| event.revision.0 < start.0 + 240) {
                events.push(next(&mut watch).await.unwrap());
                if pause > 0 && events.len().is_multiple_of(40) {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
            }
            events
        });
    }
    writers.join_all().await;
    let all = watchers.join_all().await;
    assert_eq!(all[0].len(), 240);
    assert!(all.iter().all(|events| *events == all[0]), "all watchers see the same");
}

pub(super) async fn slow_watchers_miss_nothing(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    let mut slow = world.watch(&plane, world.store.current());
    let mut everything = world.watch_everything(world.store.current());
    let start = world.store.current();
    // More in one commit than the live channel holds: watchers fall behind in the middle of a revision.
    let names: Vec<String> = (0..150).map(|index| format!("ns/{index}")).collect();
    let wide = |value: i64| {
        let write = |name: &String| Write {
            key: world.pod(&plane, name),
            record: Some(record(name, value)),
            expect: Expect::Anything,
        };
        Change { writes: names.iter().map(write).collect(), ..Change::default() }
    };
    let mut early = Vec::new();
    for round in 0..4 {
        for step in 0..50 {
            world.put(&plane, "one", round * 100 + step).await;
        }
        // Read into the middle of what is there, then fall behind again.
        for _ in 0..30 + round {
            early.push(next(&mut slow).await.unwrap());
        }
        world.commit(wide(round)).await;
        for _ in 0..70 + round {
            early.push(next(&mut slow).await.unwrap());
        }
    }
    let last = world.put(&plane, "end", 0).await;
    let expected = collect(&mut world.watch(&plane, start), last).await;
    assert_eq!(expected.len(), 4 * 200 + 1);
    let rest = collect(&mut slow, last).await;
    assert_eq!([early, rest].concat(), expected, "the slow watcher");
    assert_eq!(collect(&mut everything, last).await, expected, "one that never read");
}

/// What is replayed from memory and what is replayed from the engine's log, before and after a restart, is the same.
pub(super) async fn memory_equals_log(setup: &Setup<'_>) {
    let mut world = setup.world();
    // From the very beginning: the base layer is no plane's change, wherever it is read from.
    let (plane, last) = eventful(&world).await;
    let first = collect(&mut world.watch_everything(Revision(0)), last).await;
    assert!(first.iter().all(|event| world.store.plane_by_id(event.plane).is_some()));
    for recent_bytes_max in [0, 3_000, 1 << 20] {
        world.options.recent_bytes_max = recent_bytes_max;
        world = world.reopen();
        assert_eq!(
            collect(&mut world.watch_everything(Revision(0)), last).await,
            first,
            "{recent_bytes_max}"
        );
        let own: Vec<SeenEvent> = first
            .iter()
            .filter(|event| (event.plane, event.resource) == (plane.id, world.configs))
            .cloned()
            .collect();
        let scope = WatchScope::Collection(plane.id, world.configs);
        let mut watch = world.store.watch(scope, plane.floor).unwrap();
        assert_eq!(collect(&mut watch, own.last().unwrap().revision).await, own);
    }
}

pub(super) async fn watch_from_the_future(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    let after = Revision(world.store.current().0 + 3);
    let mut watch = world.watch(&plane, after);
    for value in 0..3 {
        world.put(&plane, "x", value).await;
    }
    let due = world.put(&plane, "x", 3).await;
    assert_eq!(next(&mut watch).await.unwrap().revision, due, "nothing up to the revision asked for");
    let mut late = world.watch(&plane, Revision(world.store.current().0 + 100));
    for value in 0..101 {
        world.put(&plane, "x", value).await;
    }
    assert_eq!(
        next(&mut late).await.unwrap().revision,
        world.store.current(),
        "having fallen behind meanwhile"
    );
}

pub(super) async fn cancelled_waits_lose_nothing(setup: &Setup<'_>) {
    let world = Arc::new(setup.world());
    let plane = world.plane("p").await;
    let start = world.store.current();
    let mut watch = world.watch(&plane, start);
    let writer = {
        let (world, plane) = (world.clone(), plane.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            for value in 0..200 {
                world.put(&plane, "x", value).await;
            }
        });
        tasks
    };
    let mut revisions = Vec::new();
    while revisions.len() < 200 {
        let hurry = Duration::from_micros(50 * (revisions.len() as u64 % 4));
        if let Ok(event) = tokio::time::timeout(hurry, watch.next()).await {
            revisions.push(event.unwrap().revision.0);
        } else if let Ok(event) = tokio::time::timeout(Duration::from_secs(5), watch.next()).await {
            revisions.push(event.unwrap().revision.0);
        }
    }
    writer.join_all().await;
    let dense: Vec<u64> = (start.0 + 1..=start.0 + 200).collect();
    assert_eq!(revisions, dense);
}

pub(super) async fn watches_end(setup: &Setup<'_>) {
    let world = setup.world();
    let (plane, other) = (world.plane("p").await, world.plane("other").await);
    let start = world.store.current();
    let mut ended = world.watch(&plane, start);
    let mut configs = world.store.watch(WatchScope::Collection(plane.id, world.configs), start).unwrap();
    let mut everything = world.watch_everything(start);
    let revision = world.put(&plane, "x", 1).await;
    world.store.end_watches(plane.id, world.pods);
    assert_eq!(
        next(&mut ended).await.unwrap().revision,
        revision,
        "what happened before the end is delivered"
    );
    assert!(matches!(next(&mut ended).await, Err(WatchError::Ended)));
    assert_eq!(next(&mut everything).await.unwrap().revision, revision);

    // Others go on, and the collection can be watched again.
    let mut again = world.watch(&plane, start);
    let mut other_watch = world.watch(&other, start);
    assert_eq!(next(&mut again).await.unwrap().revision, revision);
    world.delete_plane(&plane).await;
    assert!(matches!(next(&mut again).await, Err(WatchError::Ended)), "its plane is gone");
    assert!(matches!(next(&mut configs).await, Err(WatchError::Ended)));
    let gone = world.store.watch(WatchScope::Collection(plane.id, world.pods), world.store.current());
    assert!(matches!(gone, Err(WatchError::Ended)));
    let revision = world.put(&other, "x", 1).await;
    assert_eq!(next(&mut other_watch).await.unwrap().revision, revision);
    assert_eq!(next(&mut everything).await.unwrap().revision, revision);

    world.store.end_all_watches();
    assert!(matches!(next(&mut other_watch).await, Err(WatchError::Ended)));
    assert!(matches!(next(&mut everything).await, Err(WatchError::Ended)));
    // The server stops: whoever comes now is told so, too.
    world.store.close();
    for scope in [WatchScope::Everything, WatchScope::Collection(other.id, world.pods)] {
        if let Ok(mut watch) = world.store.watch(scope, world.store.current()) {
            assert!(matches!(next(&mut watch).await, Err(WatchError::Ended)), "{scope:?}");
        }
    }
}

/// A bookmark at a revision promises that everything up to it has been delivered.
pub(super) async fn progress_never_runs_ahead(setup: &Setup<'_>) {
    let world = Arc::new(setup.world());
    let plane = world.plane("p").await;
    let start = world.store.current();
    let mut watch = world.watch(&plane, start);
    assert_eq!(watch.progress(), Some(start));
    let mut writer = JoinSet::new();
    let (writing_world, writing_plane) = (world.clone(), plane.clone());
    writer.spawn(async move {
        for value in 0..300 {
            writing_world.put(&writing_plane, "x", value).await;
        }
    });
    let mut promised = start;
    let mut seen = start;
    while seen.0 < start.0 + 300 {
        let event = next(&mut watch).await.unwrap();
        assert!(event.revision > promised, "{} after a promise of {promised}", event.revision);
        seen = event.revision;
        if let Some(progress) = watch.progress() {
            assert!(progress >= seen && progress >= promised);
            promised = progress;
        }
    }
    writer.join_all().await;
    assert_eq!(watch.progress(), Some(world.store.current()), "an idle watch is up to date");
    // Commits that do not concern it move it on as well.
    let elsewhere = world.plane("elsewhere").await;
    let revision = world.put(&elsewhere, "x", 1).await;
    assert_eq!(watch.progress(), Some(revision));
}

/// Who resumes pays for the changes of the own plane, not for those of others.
pub(super) async fn resuming_reads_only_its_plane(setup: &Setup<'_>) {
    let world = setup.world();
    let (plane, busy, idle) = (world.plane("p").await, world.plane("busy").await, world.plane("idle").await);
    let start = world.store.current();
    world.put(&plane, "a", 1).await;
    let names: Vec<String> = (0..10).map(|index| format!("ns/{index}")).collect();
    for round in 0..200 {
        let write = |name: &String| Write {
            key: world.pod(&busy, name),
            record: Some(record(name, round)),
            expect: Expect::Anything,
        };
        let mut writes: Vec<Write> = names.iter().map(write).collect();
        if round % 20 == 0 {
            // Several changes of the plane in a commit that is not its own alone.
            writes.extend(["b", "c"].map(|name| Write { key: world.pod(&plane, name), ..write(&names[0]) }));
        }
        world.commit(Change { writes, ..Change::default() }).await;
        if round % 50 == 25 {
            world.fork(&plane, &format!("fork-{round}")).await;
            world
                .commit(Change::put(
                    world.key(&plane, world.configs, "x"),
                    record("x", round),
                    Expect::Anything,
                ))
                .await;
        }
    }
    for round in 0..150 {
        world.put(&busy, "one", round).await;
    }
    let last = world.put(&plane, "end", 1).await;
    let all = collect(&mut world.watch_everything(start), last).await;
    let own: Vec<SeenEvent> =
        all.into_iter().filter(|event| (event.plane, event.resource) == (plane.id, world.pods)).collect();
    assert_eq!(own.len(), 22);
    let world = world.reopen();
    for (after, expected_len) in [(start, 22), (own[4].revision, 17), (own[5].revision, 15)] {
        let read = world.probe.entries_read();
        let events = collect(&mut world.watch(&plane, after), last).await;
        assert_eq!(events, own[own.len() - events.len()..], "after {after}");
        assert!(events.len().abs_diff(expected_len) <= 1, "after {after}: {}", events.len());
        // Twice each commit: once to find it. The ten of the commits it shares with the other plane are read with it.
        let read = world.probe.entries_read() - read;
        assert!(read <= 2 * (10 * 12 + 4 + 2), "{read} log entries for {} events", events.len());
    }
    // A plane that did not change costs nothing: after a restart everybody comes back at once.
    let read = world.probe.entries_read();
    let mut watch = world.watch(&idle, start);
    assert!(tokio::time::timeout(Duration::from_millis(50), watch.next()).await.is_err());
    assert_eq!(watch.progress(), Some(world.store.current()));
    assert_eq!(world.probe.entries_read(), read);
}

/// Watchers that do not read hold no events: memory is bounded by bytes, and everything is still delivered.
pub(super) async fn heavy_events_do_not_pile_up(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    let start = world.store.current();
    let mut slow = world.watch(&plane, start);
    let mut everything = world.watch_everything(start);
    let heavy = |value: i64| {
        let text = format!("{value:08}").repeat(8_000);
        Record::encode(&json!({"metadata": {"name": "heavy"}, "value": value, "text": text}))
    };
    let mut weak = Vec::new();
    let mut last = start;
    for value in 0..60 {
        let mut watch = world.watch(&plane, world.store.current());
        let key = world.pod(&plane, &format!("n{}", value % 3));
        last = world.commit(Change::put(key, heavy(value), Expect::Anything)).await;
        weak.push(Arc::downgrade(&watch.next().await.unwrap()));
    }
    let alive = weak.iter().filter(|event| event.strong_count() > 0).count();
    let fits = world.options.recent_bytes_max / (64 << 10);
    // The newest may still be on its way out.
    assert!(alive <= fits + 1, "{alive} events are held, {fits} fit");

    // The first of them has one chunk of history now, and no more.
    let first = slow.next().await.unwrap();
    assert_eq!(first.revision, start.next());
    let mut values = vec![value_of(first.new.as_ref().unwrap())];
    while values.len() < 60 {
        let event = slow.next().await.unwrap();
        assert!(event.old.is_some() == (values.len() > 2), "what was replaced is told, too");
        values.push(value_of(event.new.as_ref().unwrap()));
    }
    assert_eq!(values, (0..60).collect::<Vec<i64>>());
    assert_eq!(collect(&mut everything, last).await.len(), 60);
}
