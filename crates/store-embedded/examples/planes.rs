//! Measures many idle planes: time to make them, to open the store again after a close and after a kill, and memory.
//!
//! `cargo run --release -p polder-store-embedded --example planes -- <empty directory> [planes]`. Runs itself again to open
//! the store in a fresh process.

#![expect(clippy::print_stdout, reason = "it prints what it measured")]
#![expect(clippy::cast_precision_loss, reason = "for people to read")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use polder_model::{GroupResource, json};
use polder_store::{
    Change, Expect, ForkSource, Key, Limits, ObjectName, PlaneChange, Record, ResourceId, Store,
    StoreOptions, Write,
};
use polder_store_embedded::{Options, SqliteEngine};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().context("say where to write")?;
    let directory = Path::new(&directory);
    let planes: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    match arguments.next().as_deref() {
        Some("open") => return reopen(directory),
        Some("make") => return make(directory, planes).await,
        _ => {}
    }
    let again = |mode: &str| -> anyhow::Result<()> {
        let own = std::env::current_exe()?;
        let mut child =
            std::process::Command::new(own).arg(directory).arg(planes.to_string()).arg(mode).spawn()?;
        // It ends by killing itself, so that nothing is closed.
        child.wait()?;
        Ok(())
    };
    again("make")?;
    again("open")?;
    again("open")
}

fn open(directory: &Path) -> anyhow::Result<Arc<Store>> {
    let engine = SqliteEngine::open(directory, &Options::default())?;
    Ok(Store::open(Box::new(engine), StoreOptions::default(), "base", |_, resource| {
        let maps = resource(&GroupResource::new("", "configmaps"));
        (0..159).map(|index| (maps, ObjectName::new("ns", format!("base-{index}")), record(index))).collect()
    })?)
}

fn record(index: u64) -> Record {
    Record::encode(
        &json!({"metadata": {"name": (format!("o{index}"))}, "data": {"text": (format!("{index} ").repeat(60))}}),
    )
}

async fn make(directory: &Path, planes: usize) -> anyhow::Result<()> {
    let store = open(directory)?;
    let before = resident();
    let started = Instant::now();
    let maps = store.resource_id(&GroupResource::new("", "configmaps"));
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..64 {
        let store = store.clone();
        tasks.spawn(async move {
            for index in (worker..planes).step_by(64) {
                let name = format!("tenant-{index:07}").parse()?;
                let create = PlaneChange::Create {
                    name,
                    limits: Limits::default(),
                    profile: polder_store::Profile::default(),
                };
                let made = store.commit(Change { plane: Some(create), ..Change::default() }).await?;
                let plane = made.plane.context("it was made")?;
                store.commit(put(&plane, maps, index as u64)).await?;
            }
            anyhow::Ok(())
        });
    }
    for outcome in tasks.join_all().await {
        outcome?;
    }
    println!(
        "made {planes} planes with an object each in {:.1?} ({:.0}/s), {:.2} KiB resident a plane",
        started.elapsed(),
        planes as f64 / started.elapsed().as_secs_f64(),
        (resident() - before) as f64 / planes as f64 / 1024.0
    );
    forks(&store, maps).await?;
    println!("WAL: {} MB", std::fs::metadata(directory.join("store.db-wal"))?.len() >> 20);
    kill()
}

fn put(plane: &polder_store::Plane, resource: ResourceId, index: u64) -> Change {
    let key = Key { plane: plane.id, resource, name: ObjectName::new("ns", format!("o{index}")) };
    Change::put(key, record(index), Expect::Anything)
}

/// Forks of a plane of 10,000 objects, changed before each, while somebody else writes.
async fn forks(store: &Arc<Store>, maps: ResourceId) -> anyhow::Result<()> {
    let create = PlaneChange::Create {
        name: "large".parse()?,
        limits: Limits::default(),
        profile: polder_store::Profile::default(),
    };
    let made = store.commit(Change { plane: Some(create), ..Change::default() }).await?;
    let plane = made.plane.context("it was made")?;
    for chunk in 0..20 {
        let writes = (0..500).map(|index| {
            let index = chunk * 500 + index;
            let key =
                Key { plane: plane.id, resource: maps, name: ObjectName::new("ns", format!("l{index}")) };
            Write { key, record: Some(record(index)), expect: Expect::Absent }
        });
        store.commit(Change { writes: writes.collect(), ..Change::default() }).await?;
    }
    let other = store.plane("core").context("there is always one")?;
    let (mut slowest, mut slowest_other) = (Duration::ZERO, Duration::ZERO);
    for index in 0..100 {
        store.commit(put(&plane, maps, index)).await?;
        let name = format!("fork-{index}").parse()?;
        let source = ForkSource::Plane(plane.id);
        let fork = PlaneChange::Fork { name, source, limits: Limits::default() };
        let started = Instant::now();
        store.commit(Change { plane: Some(fork), ..Change::default() }).await?;
        slowest = slowest.max(started.elapsed());
        if index == 50 {
            store.compact(store.current()).await?;
        }
        let started = Instant::now();
        store.commit(put(&other, maps, index)).await?;
        slowest_other = slowest_other.max(started.elapsed());
    }
    let depth = store.plane("large").context("it is there")?.stack.len();
    println!(
        "100 forks of 10,000 objects: slowest {slowest:?}; writes beside merging: slowest {slowest_other:?}; {depth} spaces deep"
    );
    Ok(())
}

fn reopen(directory: &Path) -> anyhow::Result<()> {
    let started = Instant::now();
    let store = open(directory)?;
    let time = started.elapsed();
    let planes = store.planes_len();
    println!("opened {planes} planes in {time:?}, {:.2} KiB resident a plane, all included", {
        resident() as f64 / planes as f64 / 1024.0
    });
    store.close();
    Ok(())
}

/// Bytes of memory this process has.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or_default() * 4096
}

fn kill() -> anyhow::Result<()> {
    std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status()?;
    Ok(())
}
