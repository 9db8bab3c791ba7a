//! Entries, one by one.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use polder_model::{GroupResource, PlaneId, json};
use polder_store::engine::{Batch, EngineError, FilledVersion, LogEntry, ObjectWrite, Version};
use polder_store::replica::{Act, Entry, IDENTITY, Journal as _, Position};
use polder_store::{ObjectName, Record, ResourceId, Revision, SpaceId};
use polder_store_postgres::{JournalOptions, PostgresJournal};

use crate::cluster;

const SPACE: SpaceId = SpaceId(7);
const RESOURCE: ResourceId = ResourceId(3);
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One that does not lead.
pub(crate) fn open(options: &JournalOptions) -> PostgresJournal {
    PostgresJournal::open(JournalOptions { is_candidate: false, ..options.clone() }).unwrap()
}

fn record(text: &str) -> Record {
    Record::encode(&json!({"metadata": {"name": "x"}, "data": {"text": text}}))
}

fn names() -> Vec<(ResourceId, GroupResource)> {
    vec![(RESOURCE, GroupResource::new("example.com", "widgets"))]
}

/// A batch of one commit for each of some objects: name and text; no text deletes.
pub(crate) fn entry(first: u64, objects: &[(&str, Option<&str>)]) -> Entry {
    let write = |(index, (name, text)): (u64, &(&str, Option<&str>))| ObjectWrite {
        entry: LogEntry {
            revision: Revision(first + index),
            plane: PlaneId(2),
            space: SPACE,
            resource: RESOURCE,
            name: ObjectName::new("n", *name),
            deleted: text.is_none(),
            previous: None,
            before: Some(Revision(1)),
        },
        record: text.map(record),
    };
    let batch = Batch {
        first: Revision(first),
        last: Revision(first + objects.len() as u64 - 1),
        objects: (0..).zip(objects).map(write).collect(),
        notes: vec![("note".into(), Some(b"value"[..].into()))],
        ..Batch::default()
    };
    Entry { revision: batch.last, act: Act::Apply(batch), names: names(), bare: Vec::new() }
}

#[track_caller]
pub(crate) fn next(journal: &mut PostgresJournal, after: Position) -> (Position, Entry) {
    let patience = Instant::now() + PATIENCE;
    loop {
        if let Some((position, entry)) = journal.next(after).unwrap() {
            return (position, (*entry).clone());
        }
        assert!(Instant::now() < patience, "nothing arrives");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Adds an entry for one object.
#[track_caller]
pub(crate) fn add(journal: &mut PostgresJournal, after: Position) -> Position {
    let text = format!("text {}", after.0);
    journal.append(after, &entry(after.0 + 1, &[("a", Some(&text))])).unwrap().unwrap()
}

#[test]
fn entries_arrive_as_they_were() {
    let Some(port) = cluster::shared() else { return };
    let version = |name: &str, revision, text: Option<&str>| FilledVersion {
        resource: RESOURCE,
        name: ObjectName::new("n", name),
        version: Version { revision: Revision(revision), record: text.map(record) },
    };
    let act = |act| Entry { act, revision: Revision(6), names: names(), bare: Vec::new() };
    let many: Vec<String> = (0..3_000).map(|index| format!("object-{index}")).collect();
    let many: Vec<(&str, Option<&str>)> = many.iter().map(|name| (name.as_str(), Some("x"))).collect();
    let long = "x".repeat(9_000_000);
    let entries = [
        entry(1, &[("a", Some("one")), ("b", Some("two")), ("a", Some("three")), ("b", None)]),
        entry(5, &[("a/../b", Some("odd")), ("%", Some("odder"))]),
        act(Act::Fill(SpaceId(1 << 63), vec![version("a", 1, Some("filled")), version("gone", 1, None)])),
        act(Act::Rewrite(SPACE, vec![version("a", 3, Some("again")), version("b", 1, Some("too old"))])),
        entry(7, &many),
        entry(3_007, &[("long", Some(&long)), ("longer", Some(&long))]),
        entry(3_009, &[("long", None)]),
    ];
    let options = cluster::history(port);
    let (mut writer, mut reader) = (open(&options), open(&options));
    assert!(reader.next(Position(0)).unwrap().is_none());
    let (mut last, mut added) = (Position(0), Vec::new());
    for entry in &entries {
        let position = writer.append(last, entry).unwrap().unwrap();
        assert_eq!(position, Position(last.0 + 1));
        assert_eq!(writer.append(last, entry).unwrap(), None, "behind what is not the last");
        last = position;
        added.push(position);
    }
    assert!(writer.next(last).unwrap().is_none(), "its own are not news to it");
    for reader in [&mut reader, &mut open(&options)] {
        let mut after = Position(0);
        for (entry, position) in entries.iter().zip(&added) {
            let (found, seen) = next(reader, after);
            assert!(found == *position && format!("{seen:?}") == format!("{entry:?}"), "entry {position:?}");
            after = found;
        }
        assert!(reader.next(after).unwrap().is_none());
        assert_eq!(reader.end().unwrap(), after);
        assert_eq!(reader.horizon().newest().unwrap(), Revision(3_009));
    }
    let mut returned = open(&options);
    assert!(returned.next(last).unwrap().is_none());
    assert_eq!(add(&mut returned, last), Position(last.0 + 1));
    let mut wrong = open(&options);
    assert!(matches!(wrong.next(Position(1 << 40)), Err(EngineError::Damaged(_))), "of another history");
}

#[test]
fn one_of_those_who_race_is_first() {
    let Some(port) = cluster::shared() else { return };
    const ROUNDS: u64 = 40;
    let options = cluster::history(port);
    let start = Barrier::new(4);
    let race = |number: u64| {
        let mut journal = open(&options);
        let (mut at, mut won) = (Position(0), 0);
        start.wait();
        while at.0 < ROUNDS {
            let text = format!("{number}");
            match journal.append(at, &entry(at.0 + 1, &[("a", Some(&text))])).unwrap() {
                Some(position) => {
                    won += 1;
                    at = position;
                }
                None => at = next(&mut journal, at).0,
            }
        }
        won
    };
    let won: u64 = std::thread::scope(|scope| {
        let racing: Vec<_> = (0..4).map(|number| scope.spawn(move || race(number))).collect();
        racing.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(won, ROUNDS);
    let rows = cluster::ask(port, &format!("SELECT count(*), max(position) FROM {}.log", options.schema));
    assert_eq!(rows, [format!("{} {ROUNDS}", ROUNDS + 1)]);
}

#[test]
fn a_journal_is_known_by_its_first_entry() {
    let Some(port) = cluster::shared() else { return };
    let options = cluster::history(port);
    let mut journal = open(&options);
    assert_eq!(journal.identity().unwrap(), None);
    let mut first = entry(1, &[("a", Some("one"))]);
    if let Act::Apply(batch) = &mut first.act {
        batch.notes.push((IDENTITY.into(), Some(b"who"[..].into())));
    }
    journal.append(Position(0), &first).unwrap().unwrap();
    for journal in [&mut journal, &mut open(&options)] {
        assert_eq!(journal.identity().unwrap().as_deref(), Some(&b"who"[..]));
    }
}

/// Whoever wants its own entries again gets them, like those of others.
#[test]
fn own_entries_are_given_to_whoever_asks() {
    let Some(port) = cluster::shared() else { return };
    let options = cluster::history(port);
    let (mut journal, mut other) = (open(&options), open(&options));
    let mut at = add(&mut journal, Position(0));
    assert_eq!(next(&mut other, Position(0)).0, at);
    at = add(&mut other, at);
    assert_eq!(next(&mut journal, Position(1)).0, at);
    at = add(&mut journal, at);
    for after in [0, 2, 1] {
        let (position, _) = next(&mut journal, Position(after));
        assert_eq!(position, Position(after + 1));
    }
    assert!(journal.next(at).unwrap().is_none());
    add(&mut journal, at);
}

/// How long it takes from when an entry is to be added until another replica has it, with a server that syncs its disk.
#[test]
fn entries_are_seen_soon() {
    let Some(server) = cluster::Postgres::start(&[]) else { return };
    let options = cluster::history(server.port());
    let (mut writer, mut reader) = (open(&options), open(&options));
    let mut at = add(&mut writer, Position(0));
    next(&mut reader, Position(0));
    let (mut added, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        let begun = Instant::now();
        let position = std::thread::scope(|scope| {
            let adding = scope.spawn(|| (add(&mut writer, at), begun.elapsed()));
            seen.push({
                next(&mut reader, at);
                begun.elapsed()
            });
            let (position, elapsed) = adding.join().unwrap();
            added.push(elapsed);
            position
        });
        at = position;
    }
    for (what, times) in [("added", &mut added), ("seen by another", &mut seen)] {
        times.sort_unstable();
        let (half, most) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        eprintln!("an entry is {what} after {half:?} (p50), {most:?} (p99)");
    }
}
