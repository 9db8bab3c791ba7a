//! Server-side apply of a Deployment with another image, and all that follows from it: a replica set and statuses.
//!
//! Both sides have their controllers here, and time and CPU run until they have nothing left to do; CPU is that of one change.
//! No pods are wanted, so no nodes are needed.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::apply::deployment;
use super::{Bench, fresh, report};
use crate::connection::{Call, Connection};
use crate::controller_manager::ControllerManager;
use crate::load::{Load, Measured};
use crate::subject::{Peer, Subject};

pub(super) const CASES: &[&str] = &["apply/rollout"];

/// Those that have something to do here, as upstream names them.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller";
/// Controllers that have just started see to everything that is there, also of other cases.
const PATIENCE: Duration = Duration::from_secs(600);
/// A server that uses less than this in a second has nothing left to do. An idle kube-apiserver with all around it uses half.
const IDLE: Duration = Duration::from_millis(150);

pub(super) async fn run(bench: &mut Bench, polder: &Subject<'_>, peer: Option<&Peer>) -> anyhow::Result<()> {
    if !CASES.iter().any(|case| bench.wants(case)) {
        return Ok(());
    }
    let manager = peer.map(|peer| ControllerManager::start(peer, CONTROLLERS)).transpose()?.flatten();
    let peer = peer.zip(manager.as_ref()).map(|(peer, manager)| peer.subject(&manager.process));
    let subjects: Vec<&Subject<'_>> = [polder].into_iter().chain(&peer).collect();
    for (clients, objects) in [(1, 300), (16, 1_000), (64, 1_000)] {
        let namespace = fresh(&format!("rollouts-{clients}"));
        let objects = bench.scale(objects, 100);
        let mut measured = Vec::new();
        for subject in &subjects {
            subject.namespace(&namespace).await?;
            rolled_out(subject, &namespace, 16, objects, 0).await.with_context(|| subject.name)?;
            measured.push(rolled_out(subject, &namespace, clients, objects, 1).await?);
        }
        report(bench, "deployment apply, changed, controllers on both sides", None, &measured);
    }
    Ok(())
}

/// Applies all Deployments and waits until their controllers have seen to them.
async fn rolled_out(
    subject: &Subject<'_>,
    namespace: &str,
    clients: usize,
    objects: usize,
    image: usize,
) -> anyhow::Result<Measured> {
    let collection = format!("{}/apis/apps/v1/namespaces/{namespace}/deployments", subject.prefix);
    let name = |index| format!("object-{index:06}");
    let call = |index| {
        let body = deployment(&name(index), index, image);
        Call::apply(format!("{collection}/{}", name(index)), body)
    };
    let cpu = subject.process.cpu()?;
    let load = Load { patience: PATIENCE, ..Load::new(clients, (0..objects).map(call).collect()) };
    let measured = load.run(subject).await?;
    anyhow::ensure!(measured.done == objects, "only {} of {objects} applied", measured.done);

    // Controllers that have just started are idle before they have begun.
    let mut connection = Connection::open(subject.kubeconfig).await?;
    let began = Instant::now();
    for index in [0, objects - 1] {
        loop {
            let path = format!("{collection}/{}", name(index));
            let found = connection.json(Call::get(path)).await?;
            if found["status"]["observedGeneration"] == found["metadata"]["generation"] {
                break;
            }
            anyhow::ensure!(began.elapsed() < PATIENCE, "{} has no controllers", subject.name);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    loop {
        let before = subject.process.cpu()?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        if subject.process.cpu()?.saturating_sub(before) < IDLE {
            break;
        }
        anyhow::ensure!(began.elapsed() < PATIENCE, "{} is never done", subject.name);
    }
    let cpu = subject.process.cpu()?.saturating_sub(cpu);
    Ok(Measured { cpu, resident: subject.process.resident()?, ..measured })
}
