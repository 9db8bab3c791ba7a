//! Fan-out: many watchers of one namespace, and updates that all of them must hear of.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hyper::body::Incoming;
use tokio::task::JoinSet;

use super::{Bench, configmap, fresh, report};
use crate::connection::{Call, Connection};
use crate::lines::Lines;
use crate::load::Measured;
use crate::subject::Subject;

pub(super) const CASES: &[&str] = &["watches/fan-out", "watches/paced"];

/// Watches on one connection: what kube-apiserver lets a client have.
const WATCHES_PER_CONNECTION: usize = 100;
/// CPU milliseconds one delivery may cost.
const GOAL: f64 = 0.0044;
/// Watchers that have not heard of everything by then never will.
const PATIENCE: Duration = Duration::from_secs(120);
/// Comes before the number of the update in every event.
const MARK: &[u8] = br#""seq":""#;

pub(super) async fn run(bench: &mut Bench, subjects: &[Subject<'_>]) -> anyhow::Result<()> {
    let (watchers, updates) = (bench.scale(1_000, 100), bench.scale(100, 20));
    for (case, title, pause) in [
        ("watches/fan-out", "watch delivery, back to back", Duration::ZERO),
        ("watches/paced", "watch delivery, 10 updates/s", Duration::from_millis(100)),
    ] {
        if !bench.wants(case) {
            continue;
        }
        let namespace = fresh(if pause.is_zero() { "watches" } else { "watches-paced" });
        let mut measured = Vec::new();
        for subject in subjects {
            subject.namespace(&namespace).await?;
            let fan_out = fan_out(subject, &namespace, watchers, updates, pause);
            let fan_out = tokio::time::timeout(PATIENCE, fan_out).await;
            measured
                .push(fan_out.with_context(|| format!("some watchers of {} missed events", subject.name))??);
        }
        report(bench, title, Some(GOAL), &measured);
    }
    Ok(())
}

/// When each update was sent.
struct Sent {
    origin: Instant,
    nanoseconds: Vec<AtomicU64>,
}

impl Sent {
    fn set(&self, update: usize) {
        let since = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds[update].store(since, Ordering::Relaxed);
    }

    fn get(&self, update: usize) -> Instant {
        self.origin + Duration::from_nanos(self.nanoseconds[update].load(Ordering::Relaxed))
    }
}

/// Updates one object; a delivery takes from sending the update to reading the event.
async fn fan_out(
    subject: &Subject<'_>,
    namespace: &str,
    watchers: usize,
    updates: usize,
    pause: Duration,
) -> anyhow::Result<Measured> {
    let collection = subject.configmaps(namespace);
    let mut writer = Connection::open(subject.kubeconfig).await?;
    let made = writer.json(Call::post(collection.clone(), configmap("news", 0, 0))).await?;
    let version = made["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?.to_string();

    let sent = Arc::new(Sent {
        origin: Instant::now(),
        nanoseconds: (0..updates).map(|_| AtomicU64::new(0)).collect(),
    });
    let mut readers = JoinSet::new();
    let mut connection = None;
    for watcher in 0..watchers {
        if watcher % WATCHES_PER_CONNECTION == 0 {
            connection = Some(Connection::open(subject.kubeconfig).await?);
        }
        let connection = connection.as_mut().context("no connection")?;
        let path = format!("{collection}?watch=true&resourceVersion={version}");
        let answer = connection.start(Call::get(path)).await?;
        anyhow::ensure!(answer.status().is_success(), "a watch was refused: {}", answer.status());
        readers.spawn(read(answer.into_body(), sent.clone(), updates));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;

    let cpu = subject.process.cpu()?;
    let started = Instant::now();
    for update in 0..updates {
        sent.set(update);
        writer.send(Call::put(format!("{collection}/news"), configmap("news", 0, update + 1))).await?;
        tokio::time::sleep(pause).await;
    }
    let mut took = Vec::with_capacity(watchers * updates);
    while let Some(reader) = readers.join_next().await {
        took.extend(reader??);
    }
    let elapsed = started.elapsed();
    let cpu = subject.process.cpu()?.saturating_sub(cpu);
    Ok(Measured::new(watchers, took, elapsed, cpu, subject.process.resident()?))
}

/// Reads events until the last update has come.
async fn read(body: Incoming, sent: Arc<Sent>, updates: usize) -> anyhow::Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(updates);
    let mut lines = Lines::new(body);
    while let Some(line) = lines.next().await? {
        let now = Instant::now();
        // What controllers write into a new namespace carries no number.
        let Some(update) = update_of(line) else { continue };
        if update > 0 {
            took.push(now - sent.get(update - 1));
        }
        if update == updates {
            return Ok(took);
        }
    }
    anyhow::bail!("a watch ended early")
}

fn update_of(line: &[u8]) -> Option<usize> {
    let at = line.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let digits = line[at..].split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
