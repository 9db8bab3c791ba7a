//! Kills a writing process again and again, and checks after each kill that every acknowledged commit is there, that
//! none is half there, and that the store can be opened.
//!
//! The process that is killed is this test binary itself, started with [`DIRECTORY`] set. What it writes is a function
//! of the seed and the revision, so the parent knows what has to be there. SIGKILL does not lose what the kernel
//! has, so this tests ordering and atomicity, not the fsync.

#![expect(clippy::cast_possible_truncation, reason = "small numbers, made here")]
#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use polder_model::{GroupResource, PlaneId, json};
use polder_store::engine::{
    Batch, Engine, LogEntry, ObjectWrite, PlaneRow, PlaneWrite, Scan, SpaceRow, SpaceState,
};
use polder_store::sealed::{KeyFile, Keyring, SealedEngine};
use polder_store::{Limits, ObjectName, Record, ResourceId, Revision, SpaceId};
use polder_store_embedded::{Options, SqliteEngine, verify};

const DIRECTORY: &str = "POLDER_KILL_TEST_DIRECTORY";
const SEED: &str = "POLDER_KILL_TEST_SEED";

const KILLS: u64 = 200;
/// After so many kills the next store starts empty, so that creation is killed too.
const KILLS_PER_STORE: u64 = 40;

const SPACE: SpaceId = SpaceId(1);
const DROPPED: SpaceId = SpaceId(2);
const RESOURCE: ResourceId = ResourceId(1);

struct Random(u64);

impl Random {
    fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.below(1);
        random
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// What one commit writes.
fn writes(seed: u64, revision: u64) -> Vec<ObjectWrite> {
    let mut random = Random::new(seed, revision);
    let space = if revision.is_multiple_of(13) { DROPPED } else { SPACE };
    let mut names: Vec<u64> = (0..random.below(4)).map(|_| random.below(150)).collect();
    names.sort_unstable();
    names.dedup();
    let entry = |name: u64, deleted: bool| LogEntry {
        revision: Revision(revision),
        plane: PlaneId(1 + revision % 3),
        space,
        resource: RESOURCE,
        name: ObjectName::new(format!("ns-{}", name % 5), format!("name-{name}")),
        deleted,
        previous: None,
        before: None,
    };
    names
        .into_iter()
        .map(|name| {
            let deleted = random.below(5) == 0;
            let text = format!("{revision} {name} ").repeat(1 + random.below(60) as usize);
            let record = Record::encode(&json!({"metadata": {"name": "x"}, "data": {"text": text}}));
            ObjectWrite { entry: entry(name, deleted), record: (!deleted).then_some(record) }
        })
        .collect()
}

/// The group commit that starts at a revision.
fn batch(seed: u64, first: u64) -> Batch {
    let mut random = Random::new(seed, first ^ (1 << 40));
    let count = if random.below(3) == 0 { 1 } else { 1 + random.below(64) };
    let last = first + count - 1;
    Batch {
        first: Revision(first),
        last: Revision(last),
        objects: (first..=last).flat_map(|revision| writes(seed, revision)).collect(),
        planes: vec![PlaneWrite::Put(PlaneRow {
            id: PlaneId(1),
            name: "plane".into(),
            space: SPACE,
            floor: Revision(0),
            version_offset: 0,
            limits: Limits::default(),
            objects: last,
            bytes: first,
            last_change: None,
        })],
        spaces: vec![
            SpaceRow {
                id: SPACE,
                parent: None,
                state: SpaceState::Open,
                digest: last.to_string().into(),
                layer: "".into(),
                objects: last,
                bytes: first,
            },
            SpaceRow {
                id: DROPPED,
                parent: None,
                state: SpaceState::Dropped,
                digest: "".into(),
                layer: "".into(),
                objects: 0,
                bytes: 0,
            },
        ],
        resources: vec![
            (RESOURCE, GroupResource::new("", "secrets")),
            (ResourceId(2), GroupResource::new("apps", format!("r{last}"))),
        ],
        ..Batch::default()
    }
}

/// A fingerprint of what a batch writes.
fn fingerprint(batch: &Batch) -> u64 {
    let mut hash = batch.last.0;
    for write in &batch.objects {
        for byte in write.record.iter().flat_map(|record| record.as_bytes()) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

/// Every other store seals its records.
fn open(directory: &Path, seed: u64, options: &Options) -> Box<dyn Engine> {
    let engine = SqliteEngine::open(directory, options).unwrap();
    let file = directory.join("encryption.key");
    if seed.is_multiple_of(2) {
        let keyring = Keyring::new(Box::new(KeyFile::made_at(file)), vec![GroupResource::new("", "secrets")]);
        Box::new(SealedEngine::new(engine, keyring))
    } else {
        Box::new(engine)
    }
}

/// The process that is killed. Without its variables this is a test that does nothing.
#[test]
fn child() {
    let (Ok(directory), Ok(seed)) = (std::env::var(DIRECTORY), std::env::var(SEED)) else { return };
    let seed: u64 = seed.parse().unwrap();
    let options = Options { checkpoint_bytes: 256 << 10, ..Options::default() };
    let mut engine = open(Path::new(&directory), seed, &options);
    let mut current = engine.recover().unwrap().current.0;
    let mut random = Random::new(seed, u64::MAX - current);
    loop {
        let batch = batch(seed, current + 1);
        engine.apply(&batch).unwrap();
        current = batch.last.0;
        // One write to the pipe is one line or nothing.
        let line = format!("ack {current} {}\n", fingerprint(&batch));
        if std::io::stdout().write_all(line.as_bytes()).and_then(|()| std::io::stdout().flush()).is_err() {
            return;
        }
        match random.below(30) {
            0..2 => {
                engine.compact(Revision(current.saturating_sub(200))).unwrap();
            }
            2 => {
                engine.drop_space(DROPPED).unwrap();
            }
            3 => {
                engine.chore().unwrap();
            }
            _ => {}
        }
    }
}

/// What the parent knows of one store.
#[derive(Default)]
struct Expected {
    seed: u64,
    /// Where a batch ended: the only revisions a crash can leave.
    current: u64,
    state: BTreeMap<ObjectName, (u64, Record)>,
    /// What was acknowledged after `current`: the end of each batch, and its fingerprint.
    acknowledged: BTreeMap<u64, u64>,
}

impl Expected {
    /// Follows the batches until the store's revision, which must be the end of one.
    fn advance(&mut self, current: u64) {
        while self.current < current {
            let batch = batch(self.seed, self.current + 1);
            if let Some(found) = self.acknowledged.remove(&batch.last.0) {
                assert_eq!(found, fingerprint(&batch), "at {}", batch.last);
            }
            for write in batch.objects.into_iter().filter(|write| write.entry.space == SPACE) {
                match write.record {
                    Some(record) => {
                        self.state.insert(write.entry.name, (write.entry.revision.0, record));
                    }
                    None => {
                        self.state.remove(&write.entry.name);
                    }
                }
            }
            self.current = batch.last.0;
        }
        assert_eq!(self.current, current, "a batch is half there");
    }

    /// Opens the store and compares all of it.
    fn check(&mut self, directory: &Path) {
        let mut engine = open(directory, self.seed, &Options::default());
        let recovered = engine.recover().unwrap();
        let current = recovered.current.0;
        self.advance(current);
        assert_eq!(self.acknowledged, BTreeMap::new(), "commits after {current} are lost");
        if current == 0 {
            return;
        }
        assert_eq!(recovered.planes[0].objects, current);
        assert_eq!(recovered.spaces[0].digest, current.to_string());
        assert_eq!(recovered.resources[1].1.resource, format!("r{current}"));

        let reader = engine.reader();
        let scan = Scan {
            space: SPACE,
            resource: RESOURCE,
            namespace: None,
            after: None,
            at: Revision::NEWEST,
            limit: usize::MAX,
            bytes_max: usize::MAX,
        };
        let found: BTreeMap<ObjectName, (u64, Record)> = reader
            .scan(&scan)
            .unwrap()
            .into_iter()
            .filter_map(|(name, version)| Some((name, (version.revision.0, version.record?))))
            .collect();
        assert_eq!(found, self.state);

        let mut log = reader.log(recovered.compacted, usize::MAX).unwrap().into_iter();
        for write in (recovered.compacted.0 + 1..=current).flat_map(|revision| writes(self.seed, revision)) {
            assert_eq!(log.next().as_ref(), Some(&write.entry));
            if write.entry.space == SPACE {
                let (name, at) = (&write.entry.name, write.entry.revision);
                let version = reader.version(SPACE, RESOURCE, name, at).unwrap().unwrap();
                assert_eq!((version.revision, version.record), (at, write.record));
            }
        }
        assert_eq!(log.next(), None);
    }
}

/// Runs the child until it is killed, and collects what it acknowledged.
fn kill_once(directory: &Path, expected: &mut Expected, random: &mut Random) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(SEED, expected.seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut output = String::new();
    // Some are killed while they start, most while they write.
    if random.below(5) == 0 {
        std::thread::sleep(Duration::from_micros(random.below(12_000)));
    } else {
        while !output.contains("ack ") && stdout.read_line(&mut output).unwrap() > 0 {}
        std::thread::sleep(Duration::from_micros(random.below(50_000)));
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    stdout.read_to_string(&mut output).unwrap();
    assert_eq!(status.code(), None, "the child ended by itself: {output}");

    for line in output.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let Some((_, line)) = line.trim_end().split_once("ack ") else { continue };
        let (revision, fingerprint) = line.split_once(' ').unwrap();
        expected.acknowledged.insert(revision.parse().unwrap(), fingerprint.parse().unwrap());
    }
}

#[test]
fn no_acknowledged_commit_is_lost_or_half_there() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        u64::from(std::process::id()) ^ (std::time::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64)
    });
    println!("SEED={seed}");
    let started = Instant::now();
    let mut random = Random::new(seed, 0);
    let mut commits = 0;
    for store in 0..KILLS / KILLS_PER_STORE {
        let directory = tempfile::tempdir().unwrap();
        let mut expected = Expected { seed: seed ^ store, ..Expected::default() };
        for _ in 0..KILLS_PER_STORE {
            kill_once(directory.path(), &mut expected, &mut random);
            // Sometimes the parent does not open the store in between, so that WALs survive several kills.
            if random.below(4) > 0 {
                expected.check(directory.path());
            }
        }
        expected.check(directory.path());
        let report = verify(directory.path()).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        commits += expected.current;
    }
    println!("{KILLS} kills, {commits} commits, {:?}", started.elapsed());
    assert!(commits > 2_000, "{commits}");
}
