//! Two committers on one journal, step by step: what one decides while the other is in the middle of something.

use std::sync::Arc;

use polder_model::{GroupResource, PlaneId, json};
use tokio::sync::oneshot;

use super::Committer;
use super::group::Asked;
use crate::change::{Change, Committed, Expect, ForkSource, PlaneChange};
use crate::engine::{Engine, Names as _, SpaceState};
use crate::key::{Key, ObjectName, Revision, SpaceId};
use crate::memory::MemoryEngine;
use crate::object::Record;
use crate::plane::{Limits, Profile};
use crate::replica::{MemoryJournal, Replica};
use crate::shared::Shared;
use crate::store::{Beginning, CoreLookup, StoreOptions};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn committer(journal: &MemoryJournal, number: usize) -> Committer {
    let mut engine: Box<dyn Engine> =
        Box::new(Replica::new(MemoryEngine::default(), journal.replica(number)));
    let (options, recovered) = (StoreOptions::default(), engine.recover().unwrap());
    let shared = Arc::new(Shared::new(engine.reader(), &options, &recovered).unwrap());
    let mut committer = Committer::new(engine, shared, &options, recovered).unwrap();
    let nothing = |_: &CoreLookup<'_>| {
        Ok(Beginning { digest: String::new(), base: Box::new(|_, _| Vec::new()), core: None })
    };
    committer.begin(nothing).unwrap();
    committer
}

fn commit(committer: &mut Committer, change: Change) -> Committed {
    committer.catch_up().unwrap();
    let (reply, mut answer) = oneshot::channel();
    let mut group = committer.new_group();
    let planned = committer.plan(&mut group, &change);
    group.asked.push(Asked { change, reply, answer: planned });
    committer.finish(group).unwrap();
    answer.try_recv().unwrap().unwrap()
}

fn change_plane(committer: &mut Committer, change: PlaneChange) -> Option<PlaneId> {
    commit(committer, Change { plane: Some(change), ..Change::default() }).plane.map(|plane| plane.id)
}

fn put(committer: &mut Committer, plane: PlaneId, name: &str, value: i64) {
    let resource = committer.shared.resource_id(&GroupResource::new("", "pods"));
    let record = Record::encode(&json!({"metadata": {"name": name}, "value": value}));
    let key = Key { plane, resource, name: ObjectName::cluster(name) };
    commit(committer, Change::put(key, record, Expect::Anything));
}

/// What a plane shows, through the stack that it has in memory.
fn values(committer: &Committer, plane: PlaneId) -> Vec<Option<i64>> {
    let plane = committer.shared.planes.read().by_id[&plane].clone();
    let resource = committer.shared.resource_id(&GroupResource::new("", "pods"));
    let read = |name: &&str| {
        let name = ObjectName::cluster(*name);
        let found = committer.shared.find(&plane.stack, resource, &name, Revision::NEWEST).unwrap();
        found.map(|object| object.record.to_value(0).unwrap().i64_at(&["value"]).unwrap())
    };
    NAMES.iter().map(read).collect()
}

/// A plane that was forked so often that its layers are to be merged, and the one who does that.
fn deep(journal: &MemoryJournal) -> (Committer, PlaneId, Vec<PlaneId>) {
    let mut leader = committer(journal, 0);
    let (limits, profile) = (Limits::default(), Profile::default());
    let create = PlaneChange::Create { name: "deep".parse().unwrap(), limits, profile };
    let plane = change_plane(&mut leader, create).unwrap();
    let mut forks = Vec::new();
    for round in 0..12 {
        put(&mut leader, plane, NAMES[round % 3], i64::try_from(round).unwrap());
        let name = format!("fork-{round}").parse().unwrap();
        let fork = PlaneChange::Fork { name, source: ForkSource::Plane(plane), limits };
        forks.extend(change_plane(&mut leader, fork));
    }
    leader.history.floor = leader.current;
    leader.compact_fully().unwrap();
    (leader, plane, forks)
}

/// Spaces that a plane reads through, and nothing stands on.
fn bare(committer: &Committer, plane: PlaneId) -> Vec<SpaceId> {
    let plane = committer.shared.planes.read().by_id[&plane].clone();
    let is_bare = |id: &&SpaceId| committer.spaces.get(*id).is_none_or(|space| space.children == 0);
    plane.stack[1..].iter().filter(is_bare).copied().collect()
}

#[test]
fn layers_that_others_drop_are_not_read_through() {
    let journal = MemoryJournal::default();
    let (mut leader, plane, _) = deep(&journal);
    let before = values(&leader, plane);
    while bare(&leader, plane).is_empty() {
        assert!(!leader.merging.is_idle(), "the moment between two steps is missed");
        leader.merge_a_little().unwrap();
    }
    let held = bare(&leader, plane)[0];
    // Whoever starts now knows nothing of what is held, and cleans up.
    let other = committer(&journal, 1);
    assert!(!other.spaces.contains_key(&held), "it is not let go of");
    leader.catch_up().unwrap();
    assert_eq!(bare(&leader, plane), []);
    while let Some(space) = leader.dropping.pop_front() {
        while !leader.engine.drop_space(space).unwrap() {}
    }
    assert_eq!(values(&leader, plane), before);
    while !leader.merging.is_idle() {
        leader.merge_a_little().unwrap();
    }
    assert_eq!(values(&leader, plane), before);
    assert_eq!(values(&other, plane), before);
}

#[test]
fn copies_go_with_what_they_are_of() {
    let journal = MemoryJournal::default();
    let (mut leader, plane, forks) = deep(&journal);
    let mut other = committer(&journal, 1);
    for _ in 0..2 {
        leader.merge_a_little().unwrap();
    }
    other.catch_up().unwrap();
    assert_eq!(other.filling.len(), 1, "something is being copied");
    let copy = *other.filling.keys().next().unwrap();
    for plane in forks.into_iter().chain([plane]) {
        change_plane(&mut other, PlaneChange::Delete { plane });
    }
    assert!(other.filling.is_empty() && other.dropping.contains(&copy), "it goes in the same commit");
    let rows = other.engine.recover().unwrap().spaces;
    assert!(rows.iter().any(|row| row.id == copy && row.state == SpaceState::Dropped), "{rows:?}");
    leader.catch_up().unwrap();
    while !leader.merging.is_idle() {
        leader.merge_a_little().unwrap();
    }
    assert!(leader.filling.is_empty());
}
