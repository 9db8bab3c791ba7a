//! Reads of the past: exact while it is kept, refused when it is not, the same whatever is written meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use polder_model::json;
use tokio::task::JoinSet;

use super::Setup;
use super::world::{collect, object_name, query, record, seen};
use crate::change::{Change, Expect, Write};
use crate::feed::{WatchError, WatchScope};
use crate::key::{ObjectName, Revision};
use crate::list::{ListQuery, Remaining};
use crate::object::Record;
use crate::read::ReadError;

pub(super) async fn compaction_forgets_only_the_past(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    let mut states = BTreeMap::new();
    states.insert(world.store.current(), world.list(&plane).await);
    for value in 0..30 {
        if value % 5 == 4 {
            world.delete(&plane, &format!("ns/{}", (value + 1) % 4)).await;
        } else {
            world.put(&plane, &format!("ns/{}", value % 4), value).await;
        }
        states.insert(world.store.current(), world.list(&plane).await);
    }
    let last = world.put(&plane, "end", 0).await;
    let events = collect(&mut world.watch(&plane, plane.floor), last).await;
    let mut world = world;
    for floor in [plane.floor.0 + 7, plane.floor.0 + 3, plane.floor.0 + 20, last.0] {
        let floor = Revision(floor);
        world.store.compact(floor).await.unwrap();
        for reopened in [false, true] {
            let kept = world.store.compacted();
            assert!(kept >= floor, "compacting never goes back");
            for (&at, expected) in &states {
                let listed = world.page(&plane, ListQuery { at: Some(at), ..query(world.pods) }).await;
                let scope = WatchScope::Collection(plane.id, world.pods);
                let watched = world.store.watch(scope, at);
                let everything = world.store.watch(WatchScope::Everything, at);
                if at < kept {
                    let refused =
                        |compacted| assert_eq!(compacted, kept, "the error says how far history is gone");
                    match listed {
                        Err(ReadError::Compacted { at: own, compacted }) if own == at => refused(compacted),
                        other => panic!("list at {at}, kept after {kept}: {other:?}"),
                    }
                    for watch in [watched, everything] {
                        match watch {
                            Err(WatchError::Compacted { compacted }) => refused(compacted),
                            other => panic!("watch after {at}, kept after {kept}: {other:?}"),
                        }
                    }
                } else {
                    assert_eq!(seen(&listed.unwrap()), *expected, "list at {at}, compacted {kept}");
                    let due: Vec<_> = events.iter().filter(|event| event.revision > at).cloned().collect();
                    if !due.is_empty() {
                        assert_eq!(collect(&mut watched.unwrap(), last).await, due, "watch after {at}");
                    }
                }
            }
            let newest = world.list(&plane).await;
            assert_eq!(newest.len(), states.values().last().unwrap().len() + 1, "the newest state is whole");
            assert_eq!(newest, world.list_at(&plane, last).await);
            if !reopened {
                world = world.reopen();
            }
        }
    }
    let future = Revision(world.store.current().0 + 1);
    let asked = world.page(&plane, ListQuery { at: Some(future), ..query(world.pods) }).await;
    assert!(matches!(asked, Err(ReadError::Future { .. })));
    // Compaction beyond the newest revision stops there.
    world.store.compact(Revision(u64::MAX / 2)).await.unwrap();
    assert_eq!(world.store.compacted(), world.store.current());
    let next_revision = world.put(&plane, "more", 1).await;
    assert_eq!(next_revision, last.next());
}

/// Readers of the newest state never notice that history disappears under them.
pub(super) async fn compaction_spares_the_newest(setup: &Setup<'_>) {
    let world = Arc::new(setup.world());
    let plane = world.plane("p").await;
    for index in 0..40 {
        world.put(&plane, &format!("still/{index}"), index).await;
    }
    world.put(&plane, "moving", 0).await;
    let mut tasks = JoinSet::new();
    for reader in 0..2 {
        let (world, plane) = (world.clone(), plane.clone());
        tasks.spawn(async move {
            loop {
                if reader == 0 {
                    let listed = world.list(&plane).await;
                    assert_eq!(listed.len(), 41);
                } else {
                    assert!(world.get(&plane, "moving").await.is_some());
                }
                tokio::task::yield_now().await;
            }
        });
    }
    for value in 1..150 {
        world.put(&plane, "moving", value).await;
        world.store.compact(world.store.current()).await.unwrap();
        if let Some(Err(error)) = tasks.try_join_next() {
            std::panic::resume_unwind(error.into_panic());
        }
    }
    tasks.shutdown().await;
}

pub(super) async fn pages_are_one_state(setup: &Setup<'_>) {
    let world = Arc::new(setup.world());
    let plane = world.plane("p").await;
    for index in 0..120 {
        world.put(&plane, &format!("n{}/{:03}", index % 3, index), index).await;
    }
    let mut writers = JoinSet::new();
    for writer in 0..2_i64 {
        let (world, plane) = (world.clone(), plane.clone());
        writers.spawn(async move {
            for round in 0_i64.. {
                let index = (round * 7 + writer * 31) % 160;
                let name = format!("n{}/{index:03}", index % 3);
                if (round + writer) % 3 == 0 {
                    world.delete(&plane, &name).await;
                } else {
                    world.put(&plane, &name, round).await;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    for limit in [1, 7, 50, 119] {
        for namespace in [None, Some("n1")] {
            let query = || ListQuery { namespace: namespace.map(Into::into), ..query(world.pods) };
            let first = world.page(&plane, ListQuery { limit, ..query() }).await.unwrap();
            let at = first.revision;
            let whole = world.page(&plane, ListQuery { at: Some(at), ..query() }).await.unwrap();
            assert_eq!((whole.revision, whole.more, whole.remaining), (at, false, None));
            let whole = seen(&whole);
            let mut paged = Vec::new();
            let mut page = first;
            loop {
                assert_eq!(page.revision, at);
                paged.extend(seen(&page));
                let left = whole.len() - paged.len();
                assert_eq!(page.more, left > 0);
                assert_eq!(
                    page.remaining,
                    (left > 0).then_some(left as u64),
                    "remaining after {}",
                    paged.len()
                );
                if !page.more {
                    break;
                }
                assert_eq!(page.objects.len(), limit);
                let after = page.objects.last().map(|object| object.name.clone());
                page = world.page(&plane, ListQuery { limit, after, at: Some(at), ..query() }).await.unwrap();
            }
            assert_eq!(paged, whole, "pages of {limit} at {at}");
        }
    }
    writers.shutdown().await;
}

pub(super) async fn ranges_and_continuations(setup: &Setup<'_>) {
    let world = setup.world();
    let source = world.plane("source").await;
    let names =
        ["0", "a", "a-b", "a.b", "z", "a/a", "a/b", "a/z", "a-b/a", "a-b/a-a", "a.b/a", "a0/a", "b/a", "b/c"];
    // Part of the names in a layer, part hidden, part in the overlay.
    for (index, name) in names.iter().enumerate().filter(|(index, _)| index % 3 != 1) {
        world.put(&source, name, i64::try_from(index).unwrap()).await;
    }
    world.put(&source, "a/hidden", 1).await;
    let plane = world.fork(&source, "fork").await;
    for (index, name) in names.iter().enumerate().filter(|(index, _)| index % 3 != 0) {
        world.put(&plane, name, i64::try_from(index).unwrap() + 100).await;
    }
    world.delete(&plane, "a/hidden").await;
    let mut sorted: Vec<ObjectName> = names.iter().map(|name| object_name(name)).collect();
    sorted.sort();
    let at = world.store.current();
    let afters = sorted.iter().cloned().map(Some).chain([None, Some(object_name("a/hidden"))]);
    for after in afters {
        for namespace in [None, Some(""), Some("a"), Some("a-b"), Some("b"), Some("none")] {
            for limit in [0, 1, 3] {
                for at in [None, Some(at)] {
                    let namespace_text = namespace.map(Into::into);
                    let query = ListQuery {
                        namespace: namespace_text,
                        after: after.clone(),
                        at,
                        limit,
                        ..query(world.pods)
                    };
                    let page = world.page(&plane, query).await.unwrap();
                    let rest: Vec<&ObjectName> = sorted
                        .iter()
                        .filter(|name| namespace.is_none_or(|namespace| name.namespace == namespace))
                        .filter(|name| after.as_ref().is_none_or(|after| *name > after))
                        .collect();
                    let len = if limit == 0 { rest.len() } else { limit.min(rest.len()) };
                    let found: Vec<&ObjectName> = page.objects.iter().map(|object| &object.name).collect();
                    let what = format!("{namespace:?} after {after:?} limit {limit} at {at:?}");
                    assert_eq!(found, rest[..len], "{what}");
                    let left = (rest.len() - len) as u64;
                    assert_eq!((page.more, page.remaining), (left > 0, (left > 0).then_some(left)), "{what}");
                }
            }
        }
    }
}

pub(super) async fn filters(setup: &Setup<'_>) {
    let world = setup.world();
    let plane = world.plane("p").await;
    for index in 0..20 {
        world.put(&plane, &format!("{index:02}"), index).await;
    }
    let at = world.store.current();
    let odd = |limit, after: Option<&str>, at| ListQuery {
        limit,
        after: after.map(object_name),
        at,
        filter: Some(Arc::new(|object| object.record.label("parity") == Some("odd"))),
        ..query(world.pods)
    };
    for at in [None, Some(at)] {
        for (limit, after, expected, more) in [
            (3, None, &["01", "03", "05"][..], true),
            (3, Some("15"), &["17", "19"], false),
            (2, Some("15"), &["17", "19"], false),
            (1, Some("15"), &["17"], true),
            (0, Some("12"), &["13", "15", "17", "19"], false),
        ] {
            let page = world.page(&plane, odd(limit, after, at)).await.unwrap();
            let names: Vec<String> = page.objects.iter().map(|object| object.name.to_string()).collect();
            assert!(names == expected && page.more == more, "{limit} {after:?}: {names:?}");
            assert_eq!(page.remaining, None, "not counted under a filter");
        }
        let put = Change::put(world.pod(&plane, "zz"), record("zz", 0), Expect::Anything);
        world.commit(put).await;
    }
}

/// Each page of a list knows how many follow, and all of them together read the collection a few times, not as often as
/// there are pages.
pub(super) async fn pages_count_once(setup: &Setup<'_>) {
    const LEN: usize = 600;
    let world = setup.world();
    let plane = world.plane("p").await;
    let key = |index: usize| world.pod(&plane, &format!("n{}/{index:03}", index % 2));
    let write =
        |index: usize| Write { key: key(index), record: Some(record("x", 1)), expect: Expect::Anything };
    world.commit(Change { writes: (0..LEN).map(write).collect(), ..Change::default() }).await;
    for namespace in [None, Some("n1")] {
        let len = if namespace.is_some() { LEN / 2 } else { LEN };
        let all = ListQuery { namespace: namespace.map(Into::into), limit: 20, ..query(world.pods) };
        let scanned = world.probe.rows_scanned();
        let mut page = world.page(&plane, all.clone()).await.unwrap();
        let at = page.revision;
        let mut seen = page.objects.len();
        let mut told = Vec::new();
        while let Some(remaining) = page.remaining {
            told.push(remaining);
            assert_eq!((page.more, seen + usize::try_from(remaining).unwrap()), (true, len));
            if seen % 100 == 0 {
                // The newest state goes on, so that pages are not read from it any more.
                world.delete(&plane, &key(seen).name.to_string()).await;
            }
            let after = page.objects.last().map(|object| object.name.clone());
            let next =
                ListQuery { after, at: Some(at), remaining: Remaining::Before(remaining), ..all.clone() };
            page = world.page(&plane, next).await.unwrap();
            seen += page.objects.len();
        }
        assert_eq!((seen, page.more, told.len()), (len, false, len / 20 - 1));
        let scanned = world.probe.rows_scanned() - scanned;
        assert!(scanned < 6 * LEN, "{scanned} rows for {len} objects");
        let newest = world.page(&plane, all.clone()).await.unwrap();
        let whole = world.page(&plane, ListQuery { limit: 0, ..all.clone() }).await.unwrap();
        assert_eq!(newest.remaining, Some(whole.objects.len() as u64 - 20), "counted anew after deletions");

        // A number that cannot be is counted again; nobody who does not ask is told.
        for (remaining, expected) in [
            (Remaining::Before(0), newest.remaining),
            (Remaining::Before(20), newest.remaining),
            (Remaining::NotAsked, None),
        ] {
            let page = world.page(&plane, ListQuery { remaining, ..all.clone() }).await.unwrap();
            assert_eq!((page.more, page.remaining), (true, expected), "{remaining:?}");
        }
        world.commit(Change { writes: (0..LEN).map(write).collect(), ..Change::default() }).await;
    }
}

/// Heavy objects come a few at a time, whatever reads them: pages end, and the engine is not asked for more at once.
pub(super) async fn pages_end_at_bytes(setup: &Setup<'_>) {
    const HEAVY: usize = 300 << 10;
    let world = setup.world();
    let source = world.plane("source").await;
    let heavy = |plane: &crate::plane::Plane, name: &str| {
        let object = json!({"metadata": {"name": name}, "value": 1, "text": ("x".repeat(HEAVY))});
        Change::put(world.pod(plane, name), Record::encode(&object), Expect::Anything)
    };
    // Heavy objects in so many layers that not even one of each is held.
    for index in 0..20 {
        world.commit(heavy(&source, &format!("n/{index:02}"))).await;
        world.put(&source, &format!("n/{index:02}-light"), index).await;
        world.fork(&source, &format!("fork-{index}")).await;
    }
    let plane = world.fork(&source, "plane").await;
    for index in 20..30 {
        world.commit(heavy(&plane, &format!("n/{index:02}"))).await;
    }
    world.delete(&plane, "n/03").await;
    let mut expected: Vec<String> = (0..30).map(|index| format!("n/{index:02}")).collect();
    expected.extend((0..20).map(|index| format!("n/{index:02}-light")));
    expected.retain(|name| name != "n/03");
    expected.sort();
    let at = world.store.current();
    world.put(&plane, "z", 1).await;
    let some: Arc<crate::list::Filter> = Arc::new(|object| object.name.name != "07");
    for (bytes_max, filter) in [(1, None), (HEAVY * 2, None), (HEAVY * 2, Some(some)), (0, None)] {
        let mut names = Vec::new();
        let mut all = ListQuery { at: Some(at), bytes_max, filter: filter.clone(), ..query(world.pods) };
        loop {
            let page = world.page(&plane, all.clone()).await.unwrap();
            let weights: Vec<usize> = page.objects.iter().map(|object| object.record.len()).collect();
            let before_last: usize = weights[..weights.len() - 1].iter().sum();
            assert!(bytes_max == 0 || before_last < bytes_max, "{weights:?} in a page of {bytes_max}");
            names.extend(page.objects.iter().map(|object| object.name.to_string()));
            let left = expected.len() - names.len();
            if filter.is_none() {
                assert_eq!(page.remaining, (left > 0).then_some(left as u64), "after {}", names.len());
            }
            if !page.more {
                break;
            }
            all.after = page.objects.last().map(|object| object.name.clone());
        }
        let passed = |name: &&String| filter.is_none() || *name != "n/07";
        assert!(names.iter().eq(expected.iter().filter(passed)), "pages of {bytes_max}: {names:?}");
    }
    let newest = world.page(&plane, query(world.pods)).await.unwrap();
    assert_eq!(newest.objects.len(), expected.len() + 1);
    let heaviest = world.probe.scan_bytes_max();
    assert!(heaviest < (1 << 20) + 2 * HEAVY, "{heaviest} bytes at once");
}
