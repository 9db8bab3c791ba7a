//! What a trail keeps: over restarts and torn ends, plane by plane, and fairly when there is no room.

use polder_model::Value;

use super::*;

const ACME: PlaneId = PlaneId(2);
const GLOBEX: PlaneId = PlaneId(3);

fn options(bytes_max: u64) -> TrailOptions {
    TrailOptions { bytes_max, age_seconds_max: 1_000_000 }
}

fn open(directory: &Path, bytes_max: u64) -> Arc<Trail> {
    // Where time stands still, numbers are counted.
    Arc::new(Trail { clock: || 0, ..Trail::open(directory, options(bytes_max)).unwrap() })
}

fn note(trail: &Arc<Trail>, plane: PlaneId, text: &str) {
    let mut batch = Batch::default();
    trail.add(&mut batch, plane, 1_000, format!(r#""verb":"{text}"}}"#).as_bytes(), false);
    trail.write(&mut batch).unwrap();
    while trail.retaining.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

const ALL: Most = Most { entries: usize::MAX, bytes: usize::MAX };

fn values(trail: &Trail, plane: PlaneId, after: u64, most: Most) -> Vec<(u64, Value)> {
    let found = trail.read(plane, Revision(after), most).unwrap();
    found.iter().map(|entry| (entry.revision.0, entry.record.to_value(1).unwrap())).collect()
}

fn verbs(trail: &Trail, plane: PlaneId, after: u64) -> Vec<String> {
    let all = values(trail, plane, after, ALL);
    all.iter().map(|(_, value)| value.str_at(&["verb"]).unwrap().to_string()).collect()
}

#[test]
fn planes_see_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let trail = open(directory.path(), 1 << 20);
    for (plane, text) in [(ACME, "a1"), (GLOBEX, "g1"), (ACME, "a2"), (GLOBEX, "g2")] {
        note(&trail, plane, text);
    }
    assert_eq!(verbs(&trail, ACME, 0), ["a1", "a2"]);
    assert_eq!(verbs(&trail, GLOBEX, 0), ["g1", "g2"]);
    assert_eq!(verbs(&trail, GLOBEX, 2), ["g2"]);
    assert_eq!(verbs(&trail, PlaneId(4), 0), [""; 0]);
    let newest = [ACME, GLOBEX, PlaneId(4)].map(|plane| trail.newest(plane));
    assert_eq!(newest, [3, 4, 0].map(Revision), "each plane's own");
    let (number, value) = &values(&trail, ACME, 0, ALL)[0];
    assert_eq!((*number, value.str_at(&["metadata", "name"])), (1, Some("0000000000000001")));
    assert_eq!(value.str_at(&["metadata", "creationTimestamp"]), Some("1970-01-01T00:16:40Z"));
}

/// What others do is not in the numbers a plane sees: they are times. The newest is found in files that are sealed, too.
#[test]
fn numbers_tell_nothing_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let at = |clock: fn() -> u64| {
        Arc::new(Trail { clock, ..Trail::open(directory.path(), options(1 << 20)).unwrap() })
    };
    let trail = at(|| 5_000);
    note(&trail, ACME, "a1");
    let before = trail.newest(ACME);
    (0..10).for_each(|_| note(&trail, GLOBEX, "g"));
    assert_eq!((before, trail.newest(ACME)), (Revision(5_000), Revision(5_000)));
    drop(trail);
    let trail = at(|| 9_000);
    assert_eq!(trail.newest(ACME), Revision(5_000));
    note(&trail, ACME, "a2");
    assert_eq!(trail.newest(ACME), Revision(9_000));
    drop(trail);
    // A clock that goes back does not take numbers with it.
    let trail = at(|| 7_000);
    note(&trail, ACME, "a3");
    assert_eq!(trail.newest(ACME), Revision(9_001));
    assert_eq!(verbs(&trail, ACME, 5_000), ["a2", "a3"]);
}

/// A file that was not whole when the server died is good up to there, and numbers go on.
#[test]
fn a_torn_end_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let trail = open(directory.path(), 1 << 20);
    ["a1", "a2", "a3"].iter().for_each(|text| note(&trail, ACME, text));
    drop(trail);
    let path = directory.path().join(segment::file_name(0));
    let whole = std::fs::read(&path).unwrap();
    for cut in [1, 20, 40] {
        std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        let trail = open(directory.path(), 1 << 20);
        assert_eq!(verbs(&trail, ACME, 0), ["a1", "a2"], "without {cut} bytes");
        assert_eq!(trail.newest(ACME), Revision(2));
        note(&trail, ACME, "again");
        assert_eq!(verbs(&trail, ACME, 2), ["again"]);
        drop(trail);
        std::fs::remove_file(directory.path().join(segment::file_name(2))).unwrap();
    }
    // Something else where a frame should be.
    let mut spoiled = whole.clone();
    let at = spoiled.len() - 10;
    spoiled[at] ^= 1;
    std::fs::write(&path, &spoiled).unwrap();
    assert_eq!(verbs(&open(directory.path(), 1 << 20), ACME, 0), ["a1", "a2"]);
}

/// Whatever an index says, what is given out is of the plane that was asked for.
#[test]
fn a_wrong_index_gives_nothing_away() {
    let directory = tempfile::tempdir().unwrap();
    let trail = open(directory.path(), 1 << 20);
    note(&trail, GLOBEX, "hidden");
    let place = trail.files.read().active.places(GLOBEX.0, 0, 1)[0];
    let mut forged = place;
    forged.plane = ACME.0;
    let file = trail.files.read().active.file.clone();
    segment::payload(&file, &place).unwrap();
    segment::payload(&file, &forged).unwrap_err();
}

#[test]
fn many_files_read_as_one() {
    let directory = tempfile::tempdir().unwrap();
    let trail = open(directory.path(), 8 << 20);
    let long = "x".repeat(2000);
    for number in 0..600 {
        note(&trail, if number % 3 == 0 { ACME } else { GLOBEX }, &format!("{number}-{long}"));
    }
    assert!(trail.files.read().sealed.len() > 1);
    let check = |trail: &Trail| {
        assert_eq!(verbs(trail, ACME, 0).len(), 200);
        assert_eq!(verbs(trail, GLOBEX, 0).len(), 400);
        // In pieces, by where the last one ended.
        let (mut after, mut numbers) = (0, Vec::new());
        loop {
            let page = values(trail, ACME, after, Most { entries: 7, bytes: 9_000 });
            let Some((last, _)) = page.last() else { break };
            assert!(page.len() <= 7);
            after = *last;
            numbers.extend(page.into_iter().map(|(number, _)| number));
        }
        assert_eq!(numbers, (0..200).map(|number| number * 3 + 1).collect::<Vec<u64>>());
    };
    check(&trail);
    drop(trail);
    check(&open(directory.path(), 8 << 20));
}

/// A plane that floods the trail loses its own oldest entries, and is told how many; others lose nothing.
#[test]
fn who_floods_loses_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let trail = open(directory.path(), 1 << 20);
    let long = "x".repeat(2000);
    (0..20).for_each(|number| note(&trail, GLOBEX, &format!("g{number}")));
    let total = 3000;
    for number in 0..total {
        note(&trail, ACME, &format!("{number}-{long}"));
        assert!(trail.bytes() < (1 << 20) + (1 << 18), "bounded");
    }
    assert_eq!(verbs(&trail, GLOBEX, 0).len(), 20, "the quiet plane has lost nothing");
    let kept = values(&trail, ACME, 0, ALL);
    let (gap, rest) = kept.split_first().unwrap();
    let lost: usize = gap.1.str_at(&["annotations", event::LOST]).unwrap().parse().unwrap();
    assert_eq!(lost + rest.len(), total, "every entry is there or counted");
    assert!(rest.len() > 200, "{}", rest.len());
    assert!(rest.iter().all(|(_, value)| value.str_at(&["annotations", event::LOST]).is_none()));
    let newest = rest.last().unwrap().1.str_at(&["verb"]).unwrap();
    assert!(newest.starts_with("2999-"), "the newest stay");
    drop(trail);
    let trail = open(directory.path(), 1 << 20);
    assert_eq!(values(&trail, ACME, 0, ALL), kept);
    assert_eq!(verbs(&trail, GLOBEX, 0).len(), 20);
}

/// A quiet plane has an entry in every file that a loud one fills: what is left of them is not as many files.
#[test]
fn what_is_left_of_many_files_is_few() {
    let directory = tempfile::tempdir().unwrap();
    let trail = open(directory.path(), 1 << 20);
    let long = "x".repeat(4000);
    for number in 0..2_000 {
        note(&trail, ACME, &long);
        if number % 16 == 0 {
            note(&trail, GLOBEX, &format!("g{number}"));
        }
    }
    let files = || std::fs::read_dir(directory.path()).unwrap().count();
    assert!(files() < 48, "{}", files());
    let kept = verbs(&trail, GLOBEX, 0);
    assert_eq!(kept.len(), 125, "in order, and each of them: {kept:?}");
    assert!(values(&trail, GLOBEX, 0, ALL).is_sorted_by_key(|(number, _)| *number));

    // The server dies before the second of two files that became one is removed.
    let first = trail.files.read().sealed[0].clone();
    let leftover = directory.path().join(segment::file_name(first.base + 1));
    drop(trail);
    let mut bytes = std::fs::read(&first.path).unwrap();
    bytes[8..16].copy_from_slice(&(first.base + 1).to_le_bytes());
    std::fs::write(&leftover, bytes).unwrap();
    let trail = open(directory.path(), 1 << 20);
    assert_eq!(verbs(&trail, GLOBEX, 0), kept);
    assert!(!leftover.exists());
}

#[test]
fn what_is_too_old_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let trail = open(directory.path(), 1 << 20);
    note(&trail, ACME, "old");
    let later = 1_000 + 2_000_000;
    // Old enough for a file of its own, then too old for that.
    trail.tend(later).unwrap();
    while trail.retaining.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    assert_eq!(verbs(&trail, ACME, 0), [""; 0]);
    assert_eq!((trail.floor(), trail.newest(ACME)), (Revision(1), Revision(1)), "numbers go on");
}

#[tokio::test]
async fn followers_hear_of_their_plane_only() {
    let directory = tempfile::tempdir().unwrap();
    let trail = open(directory.path(), 1 << 20);
    let (mut acme, globex) = (trail.follow(ACME), trail.follow(GLOBEX));
    note(&trail, ACME, "a1");
    acme.changed().await.unwrap();
    assert!(!globex.has_changed().unwrap());
    drop((acme, globex));
    note(&trail, ACME, "a2");
    assert!(!trail.followers.lock().contains_key(&ACME), "who has gone is forgotten");
}
