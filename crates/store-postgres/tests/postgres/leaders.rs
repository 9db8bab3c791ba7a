//! Who leads, and what is forgotten.

use std::time::{Duration, Instant};

use polder_store::engine::EngineError;
use polder_store::replica::{Journal as _, Position};
use polder_store_postgres::{JournalOptions, PostgresJournal};

use crate::appending::{PATIENCE, add, next, open};
use crate::cluster::{self, Way};

#[track_caller]
fn wait(what: &str, is_so: &mut dyn FnMut() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One leads; when it leaves, another does, and need not wait for its lease to end.
#[test]
fn one_leads_and_another_follows() {
    let Some(port) = cluster::shared() else { return };
    // Longer than anybody waits here: a leader that leaves says so.
    let options = JournalOptions { lease: PATIENCE * 2, ..cluster::history(port) };
    let mut journals: Vec<PostgresJournal> = (0..3)
        .map(|_| {
            let mut journal = PostgresJournal::open(options.clone()).unwrap();
            journal.next(Position(0)).unwrap();
            journal
        })
        .collect();
    for left in [3, 2, 1] {
        wait("nobody leads", &mut || journals.iter().any(|journal| journal.leads()));
        assert_eq!(journals.iter().filter(|journal| journal.leads()).count(), 1, "of {left}");
        journals.retain(|journal| !journal.leads());
    }
}

/// A leader that is cut off stops by itself before another begins.
#[test]
fn who_is_cut_off_does_not_lead() {
    let Some(port) = cluster::shared() else { return };
    let options = JournalOptions { lease: Duration::from_secs(2), ..cluster::history(port) };
    let way = Way::to(&format!("127.0.0.1:{port}"));
    let first = PostgresJournal::open(cluster::through(way.port(), &options)).unwrap();
    wait("nobody leads", &mut || first.leads());
    let second = PostgresJournal::open(options).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert!(first.leads() && !second.leads(), "whoever leads goes on");
    way.cut();
    wait("nobody else leads", &mut || {
        // Asked in this order, the other cannot have begun in between.
        let second_leads = second.leads();
        assert!(!(second_leads && first.leads()), "both lead");
        second_leads
    });
    way.open();
    std::thread::sleep(Duration::from_millis(500));
    assert!(second.leads() && !first.leads());
}

/// What is old is carried out of the log, and whoever needs it is told; nobody else notices.
#[test]
fn old_entries_are_forgotten() {
    let Some(port) = cluster::shared() else { return };
    let (history, lease) = (Some(Duration::from_millis(300)), Duration::from_millis(800));
    let options = JournalOptions { history, lease, ..cluster::history(port) };
    let leader = PostgresJournal::open(options.clone()).unwrap();
    let (mut writer, mut reader) = (open(&options), open(&options));
    let mut at = Position(0);
    for _ in 0..20 {
        let position = add(&mut writer, at);
        assert_eq!(next(&mut reader, at).0, position);
        at = position;
    }
    let ask = |what: &str| cluster::ask(port, &format!("SELECT {what}").replace('@', &options.schema));
    wait("nothing is forgotten", &mut || ask("position FROM @.state") == ["20"]);
    assert_eq!(ask("min(position), max(position) FROM @.log"), ["20 20"], "the last one stays");
    assert_eq!(ask("key, revision FROM @.object"), ["widgets/example.com/n/a 20"]);
    for after in [0, 7, 19] {
        let outcome = open(&options).next(Position(after));
        assert!(matches!(outcome, Err(EngineError::Compacted)), "{outcome:?}");
    }
    assert!(open(&options).next(at).unwrap().is_none(), "nothing of what was forgotten is missed");
    assert_eq!(writer.append(Position(7), &crate::appending::entry(8, &[("a", None)])).unwrap(), None);
    let position = add(&mut writer, at);
    assert_eq!(next(&mut reader, at).0, position);
    drop(leader);
}
