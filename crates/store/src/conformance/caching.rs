//! Reads that race with writes: whatever path a read takes, it sees one whole state and names its revision.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Setup;
use super::probe::At;
use super::world::{Seen, World, object_name, poll_once, query, record, seen, value_of};
use crate::change::{Change, Expect, Write};
use crate::key::Revision;
use crate::plane::Plane;
use crate::read::ReadError;

/// Time enough for a read that does not wait for something.
const A_MOMENT: Duration = Duration::from_millis(150);

/// What a list gave is what the engine gives at its revision: a later write makes the cache useless for that.
async fn check_page(world: &World, plane: &Arc<Plane>, (revision, objects): &(Revision, Vec<Seen>)) {
    world.put(plane, "later", 0).await;
    assert_eq!(world.list_at(plane, *revision).await, *objects, "list at {revision}");
}

async fn check_newest(world: &World, plane: &Arc<Plane>) {
    let newest = world.list(plane).await;
    for (name, revision, record) in &newest {
        let object = world.get(plane, &name.to_string()).await.unwrap();
        assert_eq!((object.revision, &object.record), (*revision, record), "{name}");
    }
    check_page(world, plane, &(world.store.current(), newest)).await;
}

fn batch(world: &World, plane: &Plane, writes: &[(&str, Option<i64>)]) -> Change {
    let write = |(name, value): &(&str, Option<i64>)| Write {
        key: world.pod(plane, name),
        record: value.map(|value| record(name, value)),
        expect: Expect::Anything,
    };
    Change { writes: writes.iter().map(write).collect(), ..Change::default() }
}

pub(super) async fn loads_race_with_writers(setup: &Setup<'_>) {
    let world = Arc::new(setup.world());
    let source = world.plane("source").await;
    for index in 0..20 {
        world.put(&source, &format!("ns/{index}"), index).await;
    }
    for round in 0..25_i64 {
        // A fork is cold: its first list loads it, while it is written and while it is forked again.
        let plane = world.fork(&source, &format!("fork-{round}")).await;
        let mut writers = JoinSet::new();
        for writer in 0..2_i64 {
            let (world, plane) = (world.clone(), plane.clone());
            writers.spawn(async move {
                for step in 0..12 {
                    let name = format!("ns/{}", (step * 3 + writer) % 24);
                    match (step + round + writer) % 4 {
                        0 => drop(world.delete(&plane, &name).await),
                        1 if writer == 0 => drop(world.fork(&plane, &format!("side-{round}-{step}")).await),
                        _ => drop(world.put(&plane, &name, step).await),
                    }
                }
            });
        }
        let mut readers = JoinSet::new();
        for _ in 0..3 {
            let (world, plane) = (world.clone(), plane.clone());
            readers.spawn(async move {
                let mut pages = Vec::new();
                for _ in 0..4 {
                    let page = world.page(&plane, query(world.pods)).await.unwrap();
                    pages.push((page.revision, seen(&page)));
                    tokio::task::yield_now().await;
                }
                pages
            });
        }
        writers.join_all().await;
        for pages in readers.join_all().await {
            assert!(pages.is_sorted_by_key(|(revision, _)| *revision), "reads go forward");
            for page in pages {
                check_page(&world, &plane, &page).await;
            }
        }
        check_newest(&world, &plane).await;
    }
}

/// A commit that is durable but not yet announced may be seen by nobody, or by everybody who asks later.
pub(super) async fn reads_between_durable_and_visible(setup: &Setup<'_>) {
    for warm in [false, true] {
        let world = setup.world();
        let plane = world.plane("p").await;
        world.commit(batch(&world, &plane, &[("a", Some(1)), ("b", Some(1))])).await;
        let before = (world.store.current(), world.list_at(&plane, world.store.current()).await);
        if warm {
            world.list(&plane).await;
        }
        let mut stopped = world.probe.stop(At::AfterApply);
        let change = batch(&world, &plane, &[("a", Some(2)), ("b", None), ("c", Some(2))]);
        let mut commit = Box::pin(world.store.commit(change));
        poll_once(&mut commit).await;
        stopped.reached().await;

        let mut list = Box::pin(world.page(&plane, query(world.pods)));
        let early = tokio::time::timeout(A_MOMENT, &mut list).await;
        let mut get = Box::pin(world.get(&plane, "a"));
        let early_get = tokio::time::timeout(A_MOMENT, &mut get).await;
        let mut gone = Box::pin(world.get(&plane, "b"));
        let early_gone = tokio::time::timeout(A_MOMENT, &mut gone).await;
        assert_eq!(world.store.current(), before.0);
        if let Ok(page) = &early {
            let page = page.as_ref().unwrap();
            assert_eq!((page.revision, seen(page)), before, "warm: {warm}");
        }
        if let Ok(object) = &early_get {
            assert_eq!(object.as_ref().unwrap().revision, before.0, "warm: {warm}");
        }
        if let Ok(object) = &early_gone {
            assert!(object.is_some(), "warm: {warm}: the deletion is not visible yet");
        }
        drop(stopped);
        commit.await.unwrap();
        if early.is_err() {
            let page = list.await.unwrap();
            check_page(&world, &plane, &(page.revision, seen(&page))).await;
        }
        if early_get.is_err() {
            get.await.unwrap();
        }
        if early_gone.is_err() {
            gone.await;
        }
        assert_eq!(world.list_at(&plane, before.0).await, before.1, "warm: {warm}");
        assert_eq!(world.value(&plane, "a").await, Some(2));
        assert_eq!(world.value(&plane, "b").await, None);
        check_newest(&world, &plane).await;
    }
}

pub(super) async fn writes_during_a_load(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    // More than one chunk, so that the load can be stopped in the middle as well.
    let names: Vec<String> = (0..700).map(|index| format!("ns/{index:04}")).collect();
    let all: Vec<(&str, Option<i64>)> = names.iter().map(|name| (name.as_str(), Some(1))).collect();
    world.commit(batch(&world, &plane, &all)).await;
    let steps = |from: &'static str| {
        [
            vec![("ns/0001", Some(10)), ("ns/0699", Some(10))],
            vec![("ns/0002", None), ("ns/0698", None)],
            vec![("ns/0003", None), ("ns/new", Some(1)), (from, Some(1))],
            vec![("ns/0003", Some(20)), ("ns/new", None)],
        ]
    };
    let mut stopped = world.probe.stop(At::BeforeScan);
    let mut list = Box::pin(world.page(&plane, query(world.pods)));
    poll_once(&mut list).await;
    stopped.reached().await;
    for writes in steps("ns/first") {
        world.commit(batch(&world, &plane, &writes)).await;
    }
    let mut again = world.probe.stop(At::BeforeScan);
    drop(stopped);
    again.reached().await;
    for writes in steps("ns/second") {
        world.commit(batch(&world, &plane, &writes)).await;
    }
    world.store.compact(world.store.current()).await.unwrap();
    let kept = world.store.current();
    drop(again);
    let page = list.await.unwrap();
    if page.revision >= kept {
        check_page(&world, &plane, &(page.revision, seen(&page))).await;
    } else {
        assert_eq!(page.objects.len(), 700, "as it was before the writes");
    }
    check_newest(&world, &plane).await;
    assert_eq!(world.value(&plane, "ns/0002").await, None);
    assert_eq!(world.value(&plane, "ns/0003").await, Some(20));
}

/// A fork gives its source another overlay; a read that began before must not miss what is written there.
pub(super) async fn forks_during_a_read(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    world.commit(batch(&world, &plane, &[("a", Some(1)), ("b", Some(1))])).await;
    let mut stopped = world.probe.stop(At::BeforeScan);
    let mut list = Box::pin(world.page(&plane, query(world.pods)));
    poll_once(&mut list).await;
    stopped.reached().await;
    let fork = world.fork(&plane, "fork").await;
    world.commit(batch(&world, &plane, &[("a", None), ("b", Some(2)), ("c", Some(2))])).await;
    drop(stopped);
    let page = list.await.unwrap();
    check_page(&world, &plane, &(page.revision, seen(&page))).await;
    world.check_values(&fork, &[("a", 1), ("b", 1)]).await;

    // The same with the fork and the write durable, but not yet announced.
    let source = world.plane("source").await;
    world.commit(batch(&world, &source, &[("a", Some(1)), ("b", Some(1))])).await;
    let mut stopped = world.probe.stop(At::AfterApply);
    let plane_change = crate::change::PlaneChange::Fork {
        name: "fork-two".parse().unwrap(),
        source: crate::change::ForkSource::Plane(source.id),
        limits: crate::plane::Limits::default(),
    };
    let change = Change {
        plane: Some(plane_change),
        ..batch(&world, &source, &[("a", None), ("b", Some(2)), ("c", Some(2))])
    };
    let mut commit = Box::pin(world.store.commit(change));
    poll_once(&mut commit).await;
    stopped.reached().await;
    let mut list = Box::pin(world.page(&source, query(world.pods)));
    let early = tokio::time::timeout(A_MOMENT, &mut list).await;
    drop(stopped);
    let fork = commit.await.unwrap().plane.unwrap();
    let page = match early {
        Ok(page) => page.unwrap(),
        Err(_) => list.await.unwrap(),
    };
    check_page(&world, &source, &(page.revision, seen(&page))).await;
    world.check_values(&source, &[("b", 2), ("c", 2), ("later", 0)]).await;
    world.check_values(&fork, &[("a", 1), ("b", 1)]).await;
}

/// A plane that goes while it is read is gone or whole, never half there, and its layers do not shine through.
pub(super) async fn deletion_during_a_read(setup: &Setup<'_>) {
    let world = setup.world();
    let source = world.plane("source").await;
    world.put(&source, "a", 1).await;
    for (index, at) in [At::BeforeScan, At::BeforeVersion].into_iter().enumerate() {
        let plane = world.fork(&source, &format!("fork-{index}")).await;
        world.commit(batch(&world, &plane, &[("a", Some(2)), ("b", Some(2))])).await;
        let mut stopped = world.probe.stop(at);
        let read = async {
            if index == 0 {
                let page = world.page(&plane, query(world.pods)).await?;
                Ok(page.objects.iter().map(|object| value_of(object)).collect())
            } else {
                let object = world.store.get(&plane, world.pods, &object_name("a")).await?;
                Ok::<Vec<i64>, ReadError>(object.iter().map(|object| value_of(object)).collect())
            }
        };
        let mut read = Box::pin(read);
        poll_once(&mut read).await;
        stopped.reached().await;
        world.delete_plane(&plane).await;
        world.store.settle().await.unwrap();
        drop(stopped);
        match read.await {
            Ok(values) => assert!(values == [2, 2] || (index == 1 && values == [2]), "{at:?}: {values:?}"),
            Err(ReadError::NoPlane) => {}
            Err(error) => panic!("{error}"),
        }
    }
    world.check_values(&source, &[("a", 1)]).await;
}

/// However many slow reads a plane has, others read and everybody writes; and those that waited get their answers.
pub(super) async fn slow_reads_leave_room(setup: &Setup<'_>) {
    const READS: usize = 40;
    let world = setup.world();
    let (busy, other) = (world.plane("busy").await, world.plane("other").await);
    world.commit(batch(&world, &busy, &[("a", Some(1)), ("b", Some(1))])).await;
    world.put(&other, "a", 1).await;
    let at = world.store.current();
    // The newest state goes on, so that lists of the past are read from the engine.
    world.put(&busy, "a", 2).await;
    world.put(&other, "a", 2).await;
    world.probe.hold_scans(true);
    let mut reads = JoinSet::new();
    let list = |plane: &Arc<Plane>| {
        let (store, plane, pods) = (world.store.clone(), plane.clone(), world.pods);
        async move { store.list(&plane, crate::list::ListQuery { at: Some(at), ..query(pods) }).await }
    };
    for _ in 0..READS {
        reads.spawn(list(&busy));
    }
    let held = async |least: usize| {
        while world.probe.held_scans() < least {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    held(1).await;
    // One that gives up while it waits or reads.
    reads.spawn(list(&busy)).abort();
    world.put(&busy, "c", 1).await;
    world.delete(&other, "a").await;
    assert_eq!(world.value(&other, "a").await, None);
    let before = world.probe.held_scans();
    let mut of_other = JoinSet::new();
    of_other.spawn(list(&other));
    held(before + 1).await;
    tokio::time::sleep(A_MOMENT).await;
    let held = world.probe.held_scans();
    assert!(held <= 5, "{held} reads at a time");
    world.probe.hold_scans(false);
    assert_eq!(of_other.join_all().await.remove(0).unwrap().objects.len(), 1);
    let mut answers = 0;
    while let Some(read) = reads.join_next().await {
        let Ok(page) = read else { continue };
        assert_eq!(page.unwrap().objects.len(), 2);
        answers += 1;
    }
    assert_eq!(answers, READS);
}
