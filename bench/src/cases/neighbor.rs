//! What a plane at full load does to another: a quiet plane's latency, alone and beside noise.
//!
//! The noise comes from a thread of its own that comes after all others, so that it delays the quiet client as little as the
//! machine allows. On two cores they still share them with the server, so the ratios say at most how bad it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::{Bench, configmap, plane_create};
use crate::connection::{Call, Connection};
use crate::kubeconfig::Kubeconfig;
use crate::load::Measured;

const NOISY: &str = "/clusters/noisy/api/v1/namespaces/default/configmaps";
const QUIET: &str = "/clusters/quiet/api/v1/namespaces/default/configmaps";
/// A quiet tenant's client does one thing in so long.
const PACE: Duration = Duration::from_millis(10);
const CASE: &str = "neighbor/latency";
/// What others may suffer.
const GOAL: f64 = 1.5;

/// What a noisy tenant does all the time.
#[derive(Clone, Copy)]
struct Noise {
    name: &'static str,
    clients: usize,
    call: fn(client: usize, round: usize) -> Call,
}

const NOISES: [Noise; 2] = [
    Noise {
        name: "writes",
        clients: 64,
        call: |client, round| {
            Call::put(format!("{NOISY}/c-{client}"), configmap(&format!("c-{client}"), client, round))
        },
    },
    Noise { name: "lists", clients: 16, call: |_, _| Call::get(NOISY) },
];

pub(crate) async fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !bench.wants(CASE) {
        return Ok(());
    }
    let server = bench.server("neighbor")?;
    let kubeconfig = server.kubeconfig()?;
    let mut connection = Connection::open(&kubeconfig).await?;
    plane_create(&mut connection, "noisy", "").await?;
    plane_create(&mut connection, "quiet", "").await?;
    for index in 0..bench.scale(5_000, 500) {
        connection.send(Call::post(NOISY, configmap(&format!("c-{index}"), index, 0))).await?;
    }
    connection.send(Call::post(QUIET, configmap("one", 0, 0))).await?;

    let rounds = bench.scale(1_000, 100);
    for write in [false, true] {
        let verb = if write { "update" } else { "get" };
        let alone = quiet(&mut connection, write, rounds).await?;
        bench.report.figure(format!("quiet plane's {verb}, alone, p99"), milliseconds(alone.p99), "ms", None);
        for noise in NOISES {
            let stop = Arc::new(AtomicBool::new(false));
            let noisy = make_noise(noise, server.kubeconfig()?, stop.clone());
            let beside = quiet(&mut connection, write, rounds).await;
            stop.store(true, Ordering::Relaxed);
            let made = noisy.join().map_err(|_| anyhow::anyhow!("the noise ended in a panic"))?;
            anyhow::ensure!(made.context("noise")? > 0, "there was no noise");
            let beside = beside?;
            let name = format!("quiet plane's {verb}, beside a plane full of {}", noise.name);
            bench.report.figure(format!("{name}, p99"), milliseconds(beside.p99), "ms", None);
            let ratio = beside.p99.as_secs_f64() / alone.p99.as_secs_f64();
            bench.report.figure(format!("{name}, p99 over alone"), ratio, "times", Some(GOAL));
        }
    }
    server.stop()
}

/// A tenant that does a little now and then.
async fn quiet(connection: &mut Connection, write: bool, rounds: usize) -> anyhow::Result<Measured> {
    let mut took = Vec::with_capacity(rounds);
    for round in 0..rounds {
        tokio::time::sleep(PACE).await;
        let path = format!("{QUIET}/one");
        let call = if write { Call::put(path, configmap("one", 0, round)) } else { Call::get(path) };
        let sent = Instant::now();
        connection.send(call).await?;
        took.push(sent.elapsed());
    }
    Ok(Measured::new(1, took, Duration::ZERO, Duration::ZERO, 0))
}

/// Starts a tenant that does all it can until told to stop; the thread ends with the number of calls it made.
fn make_noise(
    noise: Noise,
    kubeconfig: Kubeconfig,
    stop: Arc<AtomicBool>,
) -> std::thread::JoinHandle<anyhow::Result<usize>> {
    std::thread::spawn(move || {
        // A flood comes from other machines, so it gets no core that the quiet client or the server want.
        rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut clients = tokio::task::JoinSet::new();
            for client in 0..noise.clients {
                let (mut connection, stop) = (Connection::open(&kubeconfig).await?, stop.clone());
                clients.spawn(async move {
                    let mut made = 0;
                    while !stop.load(Ordering::Relaxed) {
                        connection.send((noise.call)(client, made)).await?;
                        made += 1;
                    }
                    anyhow::Ok(made)
                });
            }
            let mut made = 0;
            while let Some(client) = clients.join_next().await {
                made += client??;
            }
            Ok(made)
        })
    })
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
