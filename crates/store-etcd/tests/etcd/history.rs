//! What clients asked for and were told, and whether one history explains all of it.
//!
//! Every write has a value of its own, and every acknowledged one a revision: so the order of versions is known, and a key's
//! operations are linearizable if each can be put at its place in that order without going against the clock. Nobody knows what
//! became of some; those may be there once, or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Puts a value; if `expected` is there, only where that revision is the last.
    Put {
        value: u64,
        expected: Option<u64>,
    },
    Delete,
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Acknowledged, at a revision.
    Wrote(u64),
    Saw(Option<u64>),
    /// It did not happen.
    Failed,
    Unknown,
}

/// One thing that somebody did, with when it began and ended.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) key: usize,
    pub(crate) what: What,
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    pub(crate) outcome: Outcome,
}

/// A change as a watcher saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) revision: u64,
    pub(crate) key: usize,
    pub(crate) value: Option<u64>,
}

/// What a watcher saw without a gap: all after one revision, up to another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stretch {
    pub(crate) after: u64,
    pub(crate) up_to: u64,
    pub(crate) seen: Vec<Seen>,
}

/// Puts together what watchers saw. Each saw all there was in its stretches, in order and once.
pub(crate) fn merged(stretches: &[Stretch]) -> Result<Vec<Seen>, String> {
    let mut all: BTreeMap<u64, Seen> = BTreeMap::new();
    for seen in stretches.iter().flat_map(|stretch| &stretch.seen) {
        let known = *all.entry(seen.revision).or_insert(*seen);
        if known != *seen {
            return Err(format!("one saw {known:?}, another {seen:?}"));
        }
    }
    for Stretch { after, up_to, seen } in stretches {
        if after >= up_to {
            continue;
        }
        let due: Vec<Seen> = all.range(after + 1..=*up_to).map(|(_, seen)| *seen).collect();
        if due != *seen {
            let at = due.iter().zip(seen).position(|(due, seen)| due != seen);
            let at = at.unwrap_or(due.len().min(seen.len()));
            return Err(format!(
                "between {after} and {up_to} somebody saw {:?} where others saw {:?}",
                &seen[at..seen.len().min(at + 3)],
                &due[at..due.len().min(at + 3)]
            ));
        }
    }
    Ok(all.into_values().collect())
}

/// Checks all operations against the history that watchers saw.
pub(crate) fn check(operations: &[Operation], history: &[Seen]) -> Result<(), String> {
    check_commit_order(operations)?;
    let keys: BTreeSet<usize> = operations.iter().map(|operation| operation.key).collect();
    for key in keys {
        let own: Vec<&Operation> = operations.iter().filter(|operation| operation.key == key).collect();
        let versions = history.iter().filter(|seen| seen.key == key).map(|seen| (seen.revision, seen.value));
        let versions: Vec<(u64, Option<u64>)> = std::iter::once((0, None)).chain(versions).collect();
        check_key(&own, &versions).map_err(|error| format!("key {key}: {error}"))?;
    }
    Ok(())
}

/// Whatever was acknowledged before something else began has a lower revision, whatever it wrote.
fn check_commit_order(operations: &[Operation]) -> Result<(), String> {
    let mut written: Vec<(&Operation, u64)> = Vec::new();
    for operation in operations {
        if let Outcome::Wrote(revision) = operation.outcome {
            written.push((operation, revision));
        }
    }
    let mut ended = written.clone();
    ended.sort_by_key(|(operation, _)| operation.ended);
    written.sort_by_key(|(operation, _)| operation.began);
    let (mut ended, mut highest) = (ended.into_iter().peekable(), 0);
    for (operation, revision) in written {
        while let Some((_, before)) = ended.next_if(|(before, _)| before.ended < operation.began) {
            highest = highest.max(before);
        }
        if revision <= highest {
            return Err(format!("{operation:?} began after revision {highest} was acknowledged"));
        }
    }
    Ok(())
}

fn check_key(operations: &[&Operation], versions: &[(u64, Option<u64>)]) -> Result<(), String> {
    let mut places: BTreeMap<u64, usize> = BTreeMap::new();
    for (index, (_, value)) in versions.iter().enumerate() {
        if let Some(value) = value
            && places.insert(*value, index).is_some()
        {
            return Err(format!("{value} was written twice"));
        }
    }
    let writers = writers(operations);
    check_versions(operations, versions, &places, &writers)?;
    // By when something began, with the newest version that anybody had been told of by then.
    let mut order: Vec<&&Operation> = operations.iter().collect();
    order.sort_by_key(|operation| operation.began);
    let mut waiting: BTreeMap<(Duration, usize), usize> = BTreeMap::new();
    let mut known = 0;
    for (number, operation) in order.into_iter().enumerate() {
        while let Some(entry) = waiting.first_entry()
            && entry.key().0 < operation.began
        {
            known = known.max(entry.remove());
        }
        let place = match (operation.what, operation.outcome) {
            (What::Put { value, .. }, Outcome::Wrote(_)) => {
                let place = places[&value];
                if place <= known {
                    return Err(format!("{operation:?} is before {:?}, known before it", versions[known]));
                }
                place
            }
            (What::Delete, Outcome::Wrote(revision)) => {
                let place = versions.partition_point(|(own, _)| *own <= revision) - 1;
                if place < known || versions[place].1.is_some() {
                    return Err(format!("{operation:?} left {:?}", versions[place]));
                }
                place
            }
            (What::Read, Outcome::Saw(Some(value))) => {
                let place = places.get(&value).copied();
                let place = place.ok_or_else(|| format!("{operation:?}: nobody wrote that"))?;
                if place < known {
                    return Err(format!(
                        "{operation:?} is older than {:?}, known before it",
                        versions[known]
                    ));
                }
                if writers.get(&value).is_some_and(|writer| writer.began > operation.ended) {
                    return Err(format!("{operation:?} is from the future"));
                }
                place
            }
            (What::Read, Outcome::Saw(None)) => {
                // The first time from then on that it was gone, if that had begun.
                let gone = (known..versions.len()).find(|place| versions[*place].1.is_none());
                let is_early = |place: &usize| {
                    versions[known..*place].iter().all(|(_, value)| {
                        let writer = value.and_then(|value| writers.get(&value));
                        writer.is_none_or(|writer| writer.began <= operation.ended)
                    })
                };
                gone.filter(is_early).ok_or_else(|| {
                    format!("{operation:?} saw nothing, but {:?} was known before it", versions[known])
                })?
            }
            _ => continue,
        };
        waiting.insert((operation.ended, number), place);
    }
    Ok(())
}

/// Who wrote which value.
fn writers<'a>(operations: &[&'a Operation]) -> BTreeMap<u64, &'a Operation> {
    let written = operations.iter().filter_map(|operation| match operation.what {
        What::Put { value, .. } => Some((value, *operation)),
        _ => None,
    });
    written.collect()
}

/// What was acknowledged is there, as it was told; what failed is not; and nobody invented anything.
fn check_versions(
    operations: &[&Operation],
    versions: &[(u64, Option<u64>)],
    places: &BTreeMap<u64, usize>,
    writers: &BTreeMap<u64, &Operation>,
) -> Result<(), String> {
    for (value, operation) in writers {
        let place = places.get(value).copied();
        match (operation.outcome, place) {
            (Outcome::Wrote(revision), Some(place)) if versions[place].0 == revision => {}
            (Outcome::Failed, None) | (Outcome::Unknown, _) => {}
            (_, place) => return Err(format!("{operation:?} is {:?}", place.map(|place| versions[place]))),
        }
        if let (What::Put { expected: Some(expected), .. }, Some(place)) = (operation.what, place)
            && versions[place - 1].0 != expected
        {
            return Err(format!("{operation:?} came behind {:?}", versions[place - 1]));
        }
    }
    if let Some(value) = places.keys().find(|value| !writers.contains_key(value)) {
        return Err(format!("nobody wrote {value}"));
    }
    let deletions = |outcome: fn(&Outcome) -> bool| {
        operations.iter().filter(move |own| own.what == What::Delete && outcome(&own.outcome))
    };
    let told: BTreeSet<u64> = deletions(|outcome| matches!(outcome, Outcome::Wrote(_)))
        .filter_map(|own| if let Outcome::Wrote(revision) = own.outcome { Some(revision) } else { None })
        .collect();
    let untold = versions[1..].iter().filter(|(revision, value)| value.is_none() && !told.contains(revision));
    let (untold, unknown) = (untold.count(), deletions(|outcome| *outcome == Outcome::Unknown).count());
    match untold > unknown {
        true => {
            Err(format!("{untold} deletions that nobody was told of, and {unknown} of which nobody knows"))
        }
        false => Ok(()),
    }
}

fn operation(what: What, times: (u64, u64), outcome: Outcome) -> Operation {
    let (began, ended) = (Duration::from_millis(times.0), Duration::from_millis(times.1));
    Operation { key: 0, what, began, ended, outcome }
}

/// A checker that finds nothing is of no use: each of these is wrong in one way.
#[test]
fn wrong_histories_are_noticed() {
    let put = |value, times, outcome| operation(What::Put { value, expected: None }, times, outcome);
    let seen = |revision, value| Seen { revision, key: 0, value };
    let history = [seen(2, Some(20)), seen(4, Some(40)), seen(5, None), seen(7, Some(70))];
    let right = [
        put(20, (0, 10), Outcome::Wrote(2)),
        put(40, (20, 90), Outcome::Unknown),
        put(50, (20, 30), Outcome::Failed),
        operation(What::Read, (40, 50), Outcome::Saw(Some(20))),
        operation(What::Read, (60, 70), Outcome::Saw(Some(40))),
        operation(What::Delete, (65, 100), Outcome::Wrote(5)),
        operation(What::Read, (80, 110), Outcome::Saw(None)),
        operation(What::Put { value: 70, expected: Some(5) }, (120, 130), Outcome::Wrote(7)),
        operation(What::Read, (125, 140), Outcome::Saw(Some(70))),
    ];
    check(&right, &history).unwrap();
    let wrong = [
        (put(60, (0, 1), Outcome::Wrote(6)), "an acknowledged write is lost"),
        (operation(What::Read, (150, 160), Outcome::Saw(Some(20))), "a read goes back"),
        (operation(What::Read, (150, 160), Outcome::Saw(None)), "a read misses what is there"),
        (operation(What::Read, (5, 6), Outcome::Saw(Some(70))), "a read is from the future"),
        (operation(What::Read, (5, 6), Outcome::Saw(Some(1))), "a read of what nobody wrote"),
        (operation(What::Delete, (120, 125), Outcome::Wrote(3)), "a deletion that was not one, and late"),
    ];
    for (added, why) in wrong {
        let all: Vec<Operation> = right.iter().cloned().chain([added]).collect();
        assert!(check(&all, &history).is_err(), "{why}");
    }
    let failed = right.iter().cloned().map(|own| match own.what {
        What::Put { value: 20, .. } => Operation { outcome: Outcome::Failed, ..own },
        _ => own,
    });
    assert!(check(&failed.collect::<Vec<_>>(), &history).is_err(), "what failed is there");
    assert!(check(&right[1..], &history).is_err(), "nobody wrote it");
    let twice = [&history[..], &[seen(8, Some(40))]].concat();
    assert!(check(&right, &twice).is_err(), "it was applied twice");
    let conflict = right.iter().cloned().map(|own| match own.what {
        What::Put { value: 70, .. } => Operation { what: What::Put { value: 70, expected: Some(4) }, ..own },
        _ => own,
    });
    assert!(check(&conflict.collect::<Vec<_>>(), &history).is_err(), "it expected something else");
    let stretch = |after, up_to, seen: &[Seen]| Stretch { after, up_to, seen: seen.to_vec() };
    let whole = stretch(0, 7, &history);
    assert_eq!(merged(&[whole.clone(), stretch(2, 5, &history[1..3])]).unwrap(), history);
    for (wrong, why) in [
        (stretch(2, 7, &history[2..]), "one is missing"),
        (stretch(1, 4, &[history[0], history[0], history[1]]), "one came twice"),
        (stretch(1, 4, &[history[1], history[0]]), "they are out of order"),
        (stretch(6, 7, &[seen(7, None)]), "it was another"),
    ] {
        assert!(merged(&[whole.clone(), wrong]).is_err(), "{why}");
    }
}
