//! What a plane under flood does to others: twenty planes work a little, alone and while one plane gets all that 64 clients
//! can send, of one kind of heavy request after the other.
//!
//! All of it is done several times in turns, and the requests of all times are judged together: a machine that is slower for a
//! while is so for all of them.
//!
//! Flood and light work stand for other machines: they have threads of their own, the flood's come after all others and
//! the light work's before. On two cores they still share them with the server, so the ratios say at most how bad it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use super::rules::Ruled;
use super::{Bench, configmap, plane_create};
use crate::connection::{Call, Connection};
use crate::kubeconfig::Kubeconfig;
use crate::load::Measured;
use crate::subject::Subject;

const CASE: &str = "neighbor/flood";
const FLOODED: &str = "/clusters/flooded";
const CONFIGMAPS: &str = "/clusters/flooded/api/v1/namespaces/default/configmaps";
/// Who floods: somebody with all rights in that plane and no others.
const FLOODER: &str = "flooder";
const CLIENTS: usize = 64;
const LIGHT_PLANES: usize = 20;
/// A light plane's client asks for something once in so long.
const PACE: Duration = Duration::from_millis(50);
/// So often is everything done in turns.
const CYCLES: usize = 5;
/// The flood is at its full strength.
const RISE: Duration = Duration::from_secs(1);
/// What others may suffer.
const GOAL: f64 = 1.5;
/// Nice values of the threads that stand for other machines.
const FIRST: i32 = -10;
const LAST: i32 = 19;

/// What the flooder asks for all the time.
#[derive(Clone, Copy, Default)]
enum Flood {
    #[default]
    Lists,
    Creates,
    WatchOpens,
    Rules,
}

impl Flood {
    const ALL: [Flood; 4] = [Flood::Lists, Flood::Creates, Flood::WatchOpens, Flood::Rules];

    fn name(self) -> &'static str {
        match self {
            Flood::Lists => "lists of 5,000",
            Flood::Creates => "creates",
            Flood::WatchOpens => "watch opens with 5,000 events",
            Flood::Rules => "creates under 10 CEL rules",
        }
    }

    fn call(self, kind: &Ruled, name: &str, round: usize) -> Call {
        let call = match self {
            Flood::Lists => Call::get(CONFIGMAPS),
            Flood::Creates => Call::post(CONFIGMAPS.replace("default", "other"), configmap(name, 0, 0)),
            Flood::WatchOpens => {
                Call::get(format!("{CONFIGMAPS}?watch=true&resourceVersion=0&timeoutSeconds=30"))
            }
            Flood::Rules => {
                let collection = format!("{FLOODED}/apis/{}/v1/namespaces/default/ruleds", kind.group);
                Call::post(collection, kind.object(name, round))
            }
        };
        call.by_user(FLOODER.into())
    }
}

pub(crate) async fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !bench.wants(CASE) {
        return Ok(());
    }
    let server = bench.server("neighbor")?;
    let kubeconfig = server.kubeconfig()?;
    let mut connection = Connection::open(&kubeconfig).await?;
    plane_create(&mut connection, "flooded", "").await?;
    connection
        .send(Call::post(format!("{FLOODED}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"), BINDING))
        .await?;
    let process = server.process.clone();
    let subject =
        Subject { name: "polder", kubeconfig: &kubeconfig, process: &process, prefix: FLOODED.into() };
    subject.namespace("other").await?;
    let kind = Arc::new(Ruled::new("flood"));
    kind.define(&[subject], "default").await?;
    let objects = bench.scale(5_000, 500);
    for index in 0..objects {
        connection.send(Call::post(CONFIGMAPS, configmap(&format!("c-{index}"), index, 0))).await?;
    }
    for plane in 0..LIGHT_PLANES {
        plane_create(&mut connection, &light(plane), "").await?;
        connection.send(Call::post(light_path(plane), configmap("one", 0, 0))).await?;
    }

    let (cycles, rounds) = (bench.scale(CYCLES, 1), bench.scale(50, 20));
    let mut alone = Light::default();
    let mut floods = Flood::ALL.map(|flood| Beside { flood, ..Beside::default() });
    for cycle in 0..cycles {
        alone.extend(light_work(server.kubeconfig()?, rounds)?);
        for beside in &mut floods {
            let stop = Arc::new(AtomicBool::new(false));
            let flooding = begin(beside.flood, kind.clone(), cycle, server.kubeconfig()?, stop.clone());
            tokio::time::sleep(RISE).await;
            let (cpu, begun) = (server.process.cpu()?, Instant::now());
            let light = light_work(server.kubeconfig()?, rounds);
            beside.cpu += server.process.cpu()? - cpu;
            beside.took += begun.elapsed();
            stop.store(true, Ordering::Relaxed);
            beside.flooded.add(&joined(flooding)?);
            beside.light.extend(light?);
        }
    }
    let alone = alone.measured();
    report(bench, "alone", &alone, None);
    for beside in floods {
        let flooded = beside.flooded;
        anyhow::ensure!(flooded.answered > 0, "there was no flood");
        let name = format!("beside {}", beside.flood.name());
        report(bench, &name, &beside.light.measured(), Some(&alone));
        bench.report.figure(
            format!("{name}: answered a second"),
            flooded.answered_per_second(),
            "requests",
            None,
        );
        bench.report.figure(format!("{name}: turned away"), flooded.refused_part(), "of all", None);
        let used = beside.cpu.as_secs_f64() / beside.took.as_secs_f64();
        bench.report.figure(format!("{name}: the server uses"), used, "cores", None);
    }
    server.stop()
}

/// What was seen beside one kind of flood, in all turns.
#[derive(Default)]
struct Beside {
    flood: Flood,
    light: Light,
    flooded: Flooded,
    /// What the server used while light work was measured, and how long that was.
    cpu: Duration,
    took: Duration,
}

/// How long reads and writes of all light planes took.
#[derive(Default)]
struct Light {
    get: Vec<Duration>,
    update: Vec<Duration>,
}

impl Light {
    fn extend(&mut self, other: Light) {
        self.get.extend(other.get);
        self.update.extend(other.update);
    }

    fn measured(self) -> [(&'static str, Measured); 2] {
        let measured = |took| Measured::new(LIGHT_PLANES, took, Duration::ZERO, Duration::ZERO, 0);
        [("get", measured(self.get)), ("update", measured(self.update))]
    }
}

fn report(
    bench: &mut Bench,
    name: &str,
    light: &[(&str, Measured); 2],
    alone: Option<&[(&str, Measured); 2]>,
) {
    for (index, (verb, own)) in light.iter().enumerate() {
        let alone = alone.map(|alone| &alone[index].1);
        let name = format!("20 light planes, {name}: {verb}");
        let milliseconds = |duration: Duration| duration.as_secs_f64() * 1000.0;
        bench.report.figure(format!("{name} p50"), milliseconds(own.p50), "ms", None);
        bench.report.figure(format!("{name} p99"), milliseconds(own.p99), "ms", None);
        if let Some(alone) = alone {
            let ratio = own.p99.as_secs_f64() / alone.p99.as_secs_f64();
            bench.report.figure(format!("{name} p99 over alone"), ratio, "times", Some(GOAL));
        }
    }
}

fn light(plane: usize) -> String {
    format!("light-{plane}")
}

fn light_path(plane: usize) -> String {
    format!("/clusters/{}/api/v1/namespaces/default/configmaps", light(plane))
}

/// Planes whose clients do a little now and then. One request that fails is one too many.
fn light_work(kubeconfig: Kubeconfig, rounds: usize) -> anyhow::Result<Light> {
    let work = on_own_thread(FIRST, async move || {
        let mut clients = JoinSet::new();
        for plane in 0..LIGHT_PLANES {
            let mut connection = Connection::open(&kubeconfig).await?;
            clients.spawn(async move {
                tokio::time::sleep(PACE * u32::try_from(plane)? / u32::try_from(LIGHT_PLANES)?).await;
                let (path, mut took) = (format!("{}/one", light_path(plane)), [Vec::new(), Vec::new()]);
                for round in 0..2 * rounds {
                    tokio::time::sleep(PACE).await;
                    let call = match round % 2 {
                        0 => Call::get(&path),
                        _ => Call::put(&path, configmap("one", 0, round)),
                    };
                    let sent = Instant::now();
                    connection.send(call).await?;
                    took[round % 2].push(sent.elapsed());
                }
                anyhow::Ok(took)
            });
        }
        let mut all = Light::default();
        while let Some(client) = clients.join_next().await {
            let [get, update] = client??;
            all.extend(Light { get, update });
        }
        Ok(all)
    });
    joined(work)
}

/// What came of a flood.
#[derive(Default)]
struct Flooded {
    answered: usize,
    refused: usize,
    took: Duration,
}

impl Flooded {
    fn add(&mut self, other: &Flooded) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.took += other.took;
    }

    #[expect(clippy::cast_precision_loss, reason = "measurements have three digits")]
    fn answered_per_second(&self) -> f64 {
        self.answered as f64 / self.took.as_secs_f64()
    }

    #[expect(clippy::cast_precision_loss, reason = "measurements have three digits")]
    fn refused_part(&self) -> f64 {
        self.refused as f64 / (self.answered + self.refused) as f64
    }
}

/// Starts a flood that goes on until told to stop.
fn begin(
    flood: Flood,
    kind: Arc<Ruled>,
    cycle: usize,
    kubeconfig: Kubeconfig,
    stop: Arc<AtomicBool>,
) -> JoinHandle<anyhow::Result<Flooded>> {
    on_own_thread(LAST, async move || {
        let (mut clients, begun) = (JoinSet::new(), Instant::now());
        let kubeconfig = Arc::new(kubeconfig);
        for client in 0..CLIENTS {
            let (kubeconfig, stop, kind) = (kubeconfig.clone(), stop.clone(), kind.clone());
            let mut connection = Connection::open(&kubeconfig).await?;
            clients.spawn(async move {
                let (mut flooded, mut round) = (Flooded::default(), 0);
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("c-{cycle}-{client}-{round}");
                    match ask(&mut connection, flood, flood.call(&kind, &name, round)).await {
                        Ok(true) => (flooded.answered, round) = (flooded.answered + 1, round + 1),
                        Ok(false) => flooded.refused += 1,
                        // A connection on which so many watches were left is not used any more.
                        Err(_) if matches!(flood, Flood::WatchOpens) => {
                            connection = Connection::open(&kubeconfig).await?;
                        }
                        Err(error) => return Err(error),
                    }
                }
                anyhow::Ok(flooded)
            });
        }
        let mut all = Flooded::default();
        while let Some(client) = clients.join_next().await {
            all.add(&client??);
        }
        Ok(Flooded { took: begun.elapsed(), ..all })
    })
}

/// Whether the server answers; it may also turn a flood away.
async fn ask(connection: &mut Connection, flood: Flood, call: Call) -> anyhow::Result<bool> {
    let answer = connection.start(call).await?;
    let status = answer.status();
    let mut body = answer.into_body();
    if !status.is_success() {
        let text = body.collect().await?.to_bytes();
        anyhow::ensure!(
            status == StatusCode::TOO_MANY_REQUESTS,
            "{status}: {}",
            String::from_utf8_lossy(&text)
        );
        return Ok(false);
    }
    while let Some(frame) = body.frame().await {
        frame?;
        if matches!(flood, Flood::WatchOpens) {
            // It is open; the next one, please.
            break;
        }
    }
    Ok(true)
}

/// Runs work that stands for another machine.
fn on_own_thread<T: Send + 'static>(
    nice: i32,
    work: impl AsyncFnOnce() -> anyhow::Result<T> + Send + 'static,
) -> JoinHandle<anyhow::Result<T>> {
    std::thread::spawn(move || {
        // Who may not come first comes with the others.
        if rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice).is_err() && nice > 0 {
            anyhow::bail!("cannot make a thread come last");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(work())
    })
}

fn joined<T>(thread: JoinHandle<anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().map_err(|_| anyhow::anyhow!("a thread ended in a panic"))?.context("a client")
}

const BINDING: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"flooder"},
    "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
    "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"flooder"}]}"#;
