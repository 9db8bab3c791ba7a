//! A Deployment of 100 replicas in each of 100 planes at once, all with simulated nodes: how long until every plane's is
//! available, and how long a controller takes from an event to its write meanwhile.
//!
//! No metric tells the latter, so it is seen from outside, in a tenth of the planes: a watch shows a pod being made, then
//! bound, then running, and each step is one controller's answer to the step before. Both ends of a step come by the
//! same watch, so its own delay cancels out on average; a tail of ours is in the figure all the same.
//!
//! Beside them is a plane that needs little: a Deployment of nothing is made there now and then, and gets its replica set.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{Bench, PLANES, plane_create, ratio, report};
use crate::connection::{Call, Connection};
use crate::lines::Lines;
use crate::load::{Load, Measured};
use crate::subject::Subject;

const CASE: &str = "rollout/deployments";
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(50);
/// How long a new fleet may take to become quiet.
const SETTLE: Duration = Duration::from_secs(3);
/// In one plane of so many, pods are watched.
const SAMPLED: usize = 10;
/// A node has room for 110 pods.
const NODES: usize = 2;
/// The plane that needs little, and how often it does.
const LIGHT: &str = "light";
const LIGHT_EVERY: Duration = Duration::from_millis(20);
/// Milliseconds from event to write, in 99 of 100 cases.
const GOAL: f64 = 50.0;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !bench.wants(CASE) {
        return Ok(());
    }
    let (planes, replicas) = (bench.scale(100, 10), bench.scale(100, 10));
    let server = bench.server("rollout")?;
    let kubeconfig = server.kubeconfig()?;
    let subject =
        Subject { name: "polder", kubeconfig: &kubeconfig, process: &server.process, prefix: String::new() };
    prepare(&subject, planes).await?;

    let connections = subject.connect(planes).await?;
    let (go, _) = tokio::sync::watch::channel(false);
    let (mut rollouts, mut samples) = (JoinSet::new(), JoinSet::new());
    for plane in 0..planes {
        let mut connection = connections[plane % connections.len()].clone();
        let collection = format!("/clusters/tenant-{plane}/apis/apps/v1/namespaces/default/deployments");
        let deployments = watch(&mut connection, &collection).await?;
        if plane % SAMPLED == 0 {
            let path = format!("/clusters/tenant-{plane}/api/v1/namespaces/default/pods");
            samples.spawn(steps(watch(&mut connection, &path).await?, replicas));
        }
        let mut told = go.subscribe();
        rollouts.spawn(async move {
            told.wait_for(|go| *go).await?;
            let sent = Instant::now();
            connection.send(Call::post(collection, deployment("web", replicas))).await?;
            available(deployments, replicas).await?;
            anyhow::Ok(sent.elapsed())
        });
    }
    let mut light = Light::prepare(&mut Connection::open(&kubeconfig).await?).await?;
    let alone = light.deployments(|made| made >= 40).await?;
    let cpu = server.process.cpu()?;
    let started = Instant::now();
    go.send_replace(true);
    let (done, is_done) = tokio::sync::watch::channel(false);
    let mut beside = JoinSet::new();
    beside.spawn(async move { light.deployments(|_| *is_done.borrow()).await });
    let took = tokio::time::timeout(PATIENCE, joined(rollouts)).await;
    let took = took.context("some Deployments did not become available")??;
    let elapsed = started.elapsed();
    let cpu = server.process.cpu()?.saturating_sub(cpu);
    done.send_replace(true);
    let measured = Measured::new(planes, took, elapsed, cpu, server.process.resident()?);
    report(bench, format!("deployment of {replicas}, in {planes} planes at once"), None, &[measured]);
    let name = format!("{planes} deployments of {replicas}, until all are available");
    bench.report.figure(name, elapsed.as_secs_f64(), "s", None);
    let microseconds = u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
    bench.report.figure("CPU per pod meanwhile", ratio(microseconds, planes * replicas) / 1e3, "ms", None);

    let steps = tokio::time::timeout(PATIENCE, joined(samples)).await;
    let steps = steps.context("some pods were not seen running")??;
    let (bound, running): (Vec<_>, Vec<_>) =
        steps.into_iter().map(|steps| (steps.bound, steps.running)).unzip();
    let beside = tokio::time::timeout(PATIENCE, joined(beside)).await;
    let beside = beside.context("a Deployment got no replica set")??.concat();
    let rows = [
        ("meanwhile, pod created to bound", bound.concat()),
        ("meanwhile, pod bound to running", running.concat()),
        ("meanwhile, Deployment to replica set in another plane", beside),
        ("before, Deployment to replica set in another plane", alone),
    ];
    for (title, took) in rows {
        let step = Measured::new(1, took, Duration::ZERO, Duration::ZERO, 0);
        for (rank, value, goal) in [("p50", step.p50, None), ("p99", step.p99, Some(GOAL))] {
            let name = format!("event to write {title}, {rank}");
            bench.report.figure(name, value.as_secs_f64() * 1e3, "ms", goal);
        }
    }
    server.stop()
}

/// Makes the planes and waits until each has its nodes and the account that pods run as.
async fn prepare(subject: &Subject<'_>, planes: usize) -> anyhow::Result<()> {
    let create = |plane| {
        let body = format!(
            r#"{{"apiVersion":"polder.dev/v1alpha1","kind":"Plane","metadata":{{"name":"tenant-{plane}"}},"spec":{{"simulatedNodes":{NODES}}}}}"#
        );
        Call::post(PLANES, body)
    };
    Load::new(16, (0..planes).map(create).collect()).run(subject).await?;
    let mut connection = Connection::open(subject.kubeconfig).await?;
    let started = Instant::now();
    for plane in 0..planes {
        for path in
            [format!("nodes/simulated-{}", NODES - 1), "namespaces/default/serviceaccounts/default".into()]
        {
            while !connection.finds(Call::get(format!("/clusters/tenant-{plane}/api/v1/{path}"))).await? {
                anyhow::ensure!(started.elapsed() < PATIENCE, "plane {plane} has no {path}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    tokio::time::sleep(SETTLE).await;
    Ok(())
}

async fn watch(connection: &mut Connection, path: &str) -> anyhow::Result<Lines> {
    let answer = connection.start(Call::get(format!("{path}?watch=true"))).await?;
    anyhow::ensure!(answer.status().is_success(), "a watch was refused: {}", answer.status());
    Ok(Lines::new(answer.into_body()))
}

async fn joined<T: 'static>(mut tasks: JoinSet<anyhow::Result<T>>) -> anyhow::Result<Vec<T>> {
    let mut results = Vec::new();
    while let Some(result) = tasks.join_next().await {
        results.push(result??);
    }
    Ok(results)
}

/// Reads events until a Deployment has all its replicas.
async fn available(mut deployments: Lines, replicas: usize) -> anyhow::Result<()> {
    while let Some(line) = deployments.next().await? {
        let event: Value = serde_json::from_slice(line)?;
        if event["object"]["status"]["availableReplicas"].as_u64() == u64::try_from(replicas).ok() {
            return Ok(());
        }
    }
    anyhow::bail!("a watch of Deployments ended early")
}

/// How long each pod took from one state to the next.
#[derive(Default)]
struct Steps {
    bound: Vec<Duration>,
    running: Vec<Duration>,
}

/// Reads events until so many pods run.
async fn steps(mut pods: Lines, replicas: usize) -> anyhow::Result<Steps> {
    let mut steps = Steps::default();
    let mut created: HashMap<String, Instant> = HashMap::new();
    let mut bound: HashMap<String, Instant> = HashMap::new();
    while steps.running.len() < replicas {
        let line = pods.next().await?.context("a watch of pods ended early")?;
        let now = Instant::now();
        let event: Value = serde_json::from_slice(line)?;
        let pod = &event["object"];
        let name = pod["metadata"]["name"].as_str().context("a pod has no name")?;
        if event["type"] == "ADDED" {
            created.insert(name.into(), now);
        }
        if pod["spec"]["nodeName"].is_string()
            && let Some(then) = created.remove(name)
        {
            steps.bound.push(now - then);
            bound.insert(name.into(), now);
        }
        if pod["status"]["phase"] == "Running"
            && let Some(then) = bound.remove(name)
        {
            steps.running.push(now - then);
        }
    }
    Ok(steps)
}

/// A plane in which little happens.
struct Light {
    connection: Connection,
    sets: Lines,
    made: usize,
}

impl Light {
    async fn prepare(connection: &mut Connection) -> anyhow::Result<Light> {
        plane_create(connection, LIGHT, "").await?;
        let sets = watch(connection, &format!("/clusters/{LIGHT}/apis/apps/v1/replicasets")).await?;
        Ok(Light { connection: connection.clone(), sets, made: 0 })
    }

    /// Makes Deployments now and then until told to stop: how long after the answer each has its replica set.
    async fn deployments(&mut self, is_enough: impl Fn(usize) -> bool) -> anyhow::Result<Vec<Duration>> {
        let mut took = Vec::new();
        while !is_enough(took.len()) {
            tokio::time::sleep(LIGHT_EVERY).await;
            self.made += 1;
            let name = format!("light-{}", self.made);
            let path = format!("/clusters/{LIGHT}/apis/apps/v1/namespaces/default/deployments");
            self.connection.send(Call::post(path, deployment(&name, 0))).await?;
            let made = Instant::now();
            loop {
                let line = self.sets.next().await?.context("a watch of replica sets ended early")?;
                let event: Value = serde_json::from_slice(line)?;
                if event["object"]["metadata"]["ownerReferences"][0]["name"] == name.as_str() {
                    break;
                }
            }
            took.push(made.elapsed());
        }
        Ok(took)
    }
}

fn deployment(name: &str, replicas: usize) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"{name}"}},"spec":{{"replicas":{replicas},
        "selector":{{"matchLabels":{{"app":"{name}"}}}},"template":{{"metadata":{{"labels":{{"app":"{name}"}}}},
        "spec":{{"containers":[{{"name":"web","image":"registry.example/web:1"}}]}}}}}}}}"#
    )
}
