//! The cases, group by group. Groups of API cases run on our server and on the peer, case by case in turns; groups
//! about planes run on ours alone, and those that fill a server get a fresh one.

mod apply;
mod cleanup;
mod custom;
mod fleet;
mod lists;
mod neighbor;
mod objects;
mod planes;
mod protobuf;
mod rights;
mod rollout;
mod rollouts;
mod rules;
mod watches;

use std::path::PathBuf;

use anyhow::Context as _;

use crate::connection::{Call, Connection};
use crate::load::Measured;
use crate::report::Report;
use crate::server::Server;
use crate::subject::{Peer, Subject};

/// Everything a case needs to know about the run.
pub(crate) struct Bench {
    pub(crate) quick: bool,
    pub(crate) filter: regex::Regex,
    pub(crate) binary: PathBuf,
    pub(crate) work_dir: tempfile::TempDir,
    pub(crate) peer: Option<Peer>,
    pub(crate) report: Report,
}

impl Bench {
    /// Whether a case, written `group/case`, was asked for.
    fn wants(&self, case: &str) -> bool {
        self.filter.is_match(case)
    }

    /// The full number, or the small one of a quick run.
    fn scale(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    fn server(&self, directory: &str) -> anyhow::Result<Server> {
        Server::start(&self.binary, &self.work_dir.path().join(directory))
    }
}

/// Runs all groups that were asked for.
pub(crate) async fn run(mut bench: Bench) -> anyhow::Result<Report> {
    let api = [
        objects::CASES,
        apply::CASES,
        rollouts::CASES,
        rules::CASES,
        rights::CASES,
        lists::CASES,
        protobuf::CASES,
        watches::CASES,
        cleanup::CASES,
        planes::CASES,
    ]
    .concat();
    if api.iter().any(|case| bench.wants(case)) {
        let server = bench.server("api")?;
        let kubeconfig = server.kubeconfig()?;
        plane_create(&mut Connection::open(&kubeconfig).await?, "bench", "").await?;
        let process = server.process.clone();
        let polder = Subject {
            name: "polder",
            kubeconfig: &kubeconfig,
            process: &process,
            prefix: "/clusters/bench".into(),
        };
        let peer = bench.peer.take();
        let mut subjects = vec![polder];
        subjects.extend(peer.as_ref().map(|peer| peer.subject(&peer.process)));
        objects::run(&mut bench, &subjects).await.context("objects")?;
        apply::run(&mut bench, &subjects).await.context("apply")?;
        rollouts::run(&mut bench, &subjects[0], peer.as_ref()).await.context("rollouts")?;
        rules::run(&mut bench, &subjects).await.context("rules")?;
        rights::run(&mut bench, &subjects).await.context("rights")?;
        lists::run(&mut bench, &subjects).await.context("lists")?;
        protobuf::run(&mut bench, &subjects).await.context("protobuf")?;
        watches::run(&mut bench, &subjects).await.context("watches")?;
        cleanup::run(&mut bench, &subjects[0], peer.as_ref()).await.context("cleanup")?;
        planes::run(&mut bench, &subjects[0]).await.context("planes")?;
        server.stop()?;
    }
    fleet::run(&mut bench).await.context("fleet")?;
    neighbor::run(&mut bench).await.context("neighbor")?;
    custom::run(&mut bench).await.context("custom")?;
    rollout::run(&mut bench).await.context("rollout")?;
    Ok(bench.report)
}

/// Reports one case of all subjects.
fn report(bench: &mut Bench, case: impl Into<String>, goal_cpu_ms: Option<f64>, measured: &[Measured]) {
    if let Some(polder) = measured.first() {
        bench.report.case(case, goal_cpu_ms, polder, measured.get(1));
    }
}

const PLANES: &str = "/apis/polder.dev/v1alpha1/planes";

fn plane_call(name: &str, fork_from: &str) -> Call {
    let spec = if fork_from.is_empty() { String::new() } else { format!(r#""forkFrom":"{fork_from}""#) };
    let body = format!(
        r#"{{"apiVersion":"polder.dev/v1alpha1","kind":"Plane","metadata":{{"name":"{name}"}},"spec":{{{spec}}}}}"#
    );
    Call::post(PLANES, body)
}

async fn plane_create(connection: &mut Connection, name: &str, fork_from: &str) -> anyhow::Result<()> {
    connection.send(plane_call(name, fork_from)).await?;
    Ok(())
}

/// A ConfigMap of about 1 KB as clients send it. `round` changes its contents.
fn configmap(name: &str, index: usize, round: usize) -> String {
    let mut data = format!(r#""seq":"{round}""#);
    for key in 0..8 {
        data.push_str(&format!(r#","key-{key}":"{:0>96}""#, index * 8 + key));
    }
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app":"bench","slice":"{}"}}}},"data":{{{data}}}}}"#,
        index % 16
    )
}

/// A namespace no earlier run has used: a peer keeps what it was given.
fn fresh(name: &str) -> String {
    format!("bench-{}-{name}", std::process::id())
}

#[expect(clippy::cast_precision_loss, reason = "measurements have three digits")]
fn ratio(value: u64, by: usize) -> f64 {
    value as f64 / by.max(1) as f64
}
