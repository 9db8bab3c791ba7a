//! Measures the engine: latency of commits, time of reads, size on disk.
//!
//! `cargo run --release -p polder-store-embedded --example bench -- <directory on a real disk> [objects]`

#![expect(clippy::print_stdout, reason = "it prints what it measured")]
#![expect(clippy::cast_possible_truncation, reason = "small numbers, made here")]

mod samples;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use polder_model::PlaneId;
use polder_store::engine::{
    Batch, Engine, LogEntry, ObjectWrite, PlaneRow, PlaneWrite, Scan, SpaceRow, SpaceState,
};
use polder_store::{Limits, ObjectName, Record, ResourceId, Revision, SpaceId};
use polder_store_embedded::{Options, SqliteEngine};
use samples::Random;

const OBJECTS_PER_SPACE: u64 = 100;
const SAMPLES_LEN: usize = 20_000;
const RESOURCE: ResourceId = ResourceId(7);

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().context("say where to write")?;
    let objects: u64 = arguments.next().map_or(Ok(200_000), |text| text.parse())?;
    let directory = Path::new(&directory).join("polder-bench");
    let mut random = Random::new(7);
    let records: Vec<Record> = (0..SAMPLES_LEN).map(|_| samples::record(&mut random)).collect();
    let raw: usize = records.iter().map(Record::len).sum::<usize>() / records.len();
    println!("records: {raw} bytes on average");
    let mut bench = Bench {
        engine: SqliteEngine::open(&directory, &Options::default())?,
        current: 0,
        records,
        random,
        spaces: objects / OBJECTS_PER_SPACE,
    };

    let started = Instant::now();
    let mut order: Vec<u64> = (0..objects).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, bench.random.next() as usize % (index + 1));
    }
    for chunk in order.chunks(1_000) {
        let batch = bench.batch(chunk, false);
        bench.engine.apply(&batch)?;
    }
    let size = std::fs::metadata(directory.join("store.db"))?.len();
    println!(
        "load: {objects} objects in {:.1?} ({:.0}/s), {} MB on disk, {} bytes an object",
        started.elapsed(),
        objects as f64 / started.elapsed().as_secs_f64(),
        size >> 20,
        size / objects
    );

    for (count, rounds) in [(1, 5_000u32), (64, 1_000)] {
        let started = Instant::now();
        let mut times = Vec::new();
        let mut used = Duration::ZERO;
        for _ in 0..rounds {
            let picked: Vec<u64> = (0..count).map(|_| bench.random.next() % objects).collect();
            let batch = bench.batch(&picked, true);
            let (started, cpu_started) = (Instant::now(), cpu());
            bench.engine.apply(&batch)?;
            times.push(started.elapsed());
            used += cpu() - cpu_started;
        }
        times.sort();
        println!(
            "apply, {count} a batch: p50 {:?}, p99 {:?}, max {:?}, CPU {:?}, {:.0} writes/s",
            times[times.len() / 2],
            times[times.len() * 99 / 100],
            times[times.len() - 1],
            used / rounds,
            f64::from(count) * f64::from(rounds) / started.elapsed().as_secs_f64()
        );
    }
    let wal = std::fs::metadata(directory.join("store.db-wal"))?.len();
    println!("WAL file: {} MB", wal >> 20);

    std::thread::sleep(Duration::from_millis(1_500));
    bench.read("reads, no writes", objects)?;
    let started = Instant::now();
    let (mut reached, mut calls, mut slowest) = (Revision(0), 0, Duration::ZERO);
    while reached < Revision(bench.current) {
        let call = Instant::now();
        reached = bench.engine.compact(Revision(bench.current))?;
        slowest = slowest.max(call.elapsed());
        calls += 1;
    }
    println!("compact: {:?}, {calls} calls, slowest {slowest:?}", started.elapsed());
    let started = Instant::now();
    drop(bench);
    println!("close: {:?}", started.elapsed());
    let started = Instant::now();
    SqliteEngine::open(&directory, &Options::default())?.recover()?;
    println!("open, recover and close: {:?}", started.elapsed());
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

/// Time this thread has had a processor; other processes do not disturb it. Zero where the system does not tell.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default())
}

struct Bench {
    engine: SqliteEngine,
    current: u64,
    records: Vec<Record>,
    random: Random,
    spaces: u64,
}

impl Bench {
    fn name(&self, object: u64) -> (SpaceId, ObjectName) {
        let name = object / self.spaces;
        (
            SpaceId(object % self.spaces),
            ObjectName::new(format!("ns-{}", name % 4), format!("object-{name:04x}-{name}")),
        )
    }

    /// One commit for each object, with the rows of the plane it is in.
    fn batch(&mut self, objects: &[u64], rows: bool) -> Batch {
        let mut batch = Batch { first: Revision(self.current + 1), ..Batch::default() };
        for object in objects {
            self.current += 1;
            let (space, name) = self.name(*object);
            let record = self.records[self.random.next() as usize % self.records.len()].clone();
            let entry = LogEntry {
                revision: Revision(self.current),
                plane: PlaneId(space.0),
                space,
                resource: RESOURCE,
                name,
                deleted: false,
                previous: None,
                before: Some(Revision(self.current.saturating_sub(self.spaces))),
            };
            batch.objects.push(ObjectWrite { entry, record: Some(record) });
            batch.planes.push(PlaneWrite::Put(PlaneRow {
                id: PlaneId(space.0),
                name: format!("plane-{}", space.0).into(),
                space,
                floor: Revision(1),
                version_offset: 0,
                limits: Limits::default(),
                objects: self.current,
                bytes: self.current,
                last_change: Some(Revision(self.current)),
            }));
            if !rows {
                batch.spaces.push(SpaceRow {
                    id: space,
                    parent: None,
                    state: SpaceState::Open,
                    digest: "".into(),
                    layer: "".into(),
                    objects: 0,
                    bytes: 0,
                });
            }
        }
        batch.last = Revision(self.current);
        batch
    }

    fn read(&mut self, what: &str, objects: u64) -> anyhow::Result<()> {
        const ROUNDS: u32 = 20_000;
        let reader = self.engine.reader();
        let started = cpu();
        for _ in 0..ROUNDS {
            let object = self.random.next() % objects;
            let (space, name) = self.name(object);
            reader.version(space, RESOURCE, &name, Revision::NEWEST)?.context("it is there")?;
        }
        println!("{what}: get {:?}", (cpu() - started) / ROUNDS);
        let started = cpu();
        for _ in 0..ROUNDS {
            let object = self.random.next() % objects;
            let (space, name) = self.name(object);
            reader.version(space, ResourceId(8), &name, Revision::NEWEST)?;
        }
        println!("{what}: get of nothing {:?}", (cpu() - started) / ROUNDS);
        for (limit, rounds) in [(25, 5_000u32), (100, 2_000)] {
            let (mut rows, started) = (0, cpu());
            for _ in 0..rounds {
                let space = SpaceId(self.random.next() % self.spaces);
                let at = Revision::NEWEST;
                let (resource, bytes_max) = (RESOURCE, usize::MAX);
                let scan = Scan { space, resource, namespace: None, after: None, at, limit, bytes_max };
                rows += reader.scan(&scan)?.len() as u32;
            }
            let time = cpu() - started;
            println!("{what}: scan of {limit}: {:?}, {:?} a row", time / rounds, time / rows.max(1));
        }
        let started = cpu();
        let entries = reader.log(Revision(0), 100_000)?.len() as u32;
        println!("{what}: log {:?} an entry", (cpu() - started) / entries.max(1));
        Ok(())
    }
}
