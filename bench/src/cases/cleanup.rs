//! What controllers remove: 10,000 dependents whose owner was deleted, and a namespace of 10,000 objects.
//!
//! Time runs from the delete until nothing is left, and is what `p50` shows; CPU is that of one object. The peer's counts
//! kube-controller-manager, which runs for these cases only.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::{Bench, configmap, fresh, report};
use crate::connection::{Call, Connection};
use crate::controller_manager::ControllerManager;
use crate::load::{Load, Measured};
use crate::subject::{Peer, Subject};

pub(super) const CASES: &[&str] = &["cleanup/dependents", "cleanup/namespace"];

/// The two that have something to do here.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller";
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two looks whether anything is left.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn run(bench: &mut Bench, polder: &Subject<'_>, peer: Option<&Peer>) -> anyhow::Result<()> {
    if !CASES.iter().any(|case| bench.wants(case)) {
        return Ok(());
    }
    let manager = peer.map(|peer| ControllerManager::start(peer, CONTROLLERS)).transpose()?.flatten();
    let peer = peer.zip(manager.as_ref()).map(|(peer, manager)| peer.subject(&manager.process));
    let objects = bench.scale(10_000, 500);
    let subjects: Vec<&Subject<'_>> = [polder].into_iter().chain(&peer).collect();
    for (case, title) in [("dependents", "garbage collection"), ("namespace", "namespace deletion")] {
        if !bench.wants(&format!("cleanup/{case}")) {
            continue;
        }
        let mut measured = Vec::new();
        for subject in &subjects {
            // A small one first: controllers that have just started are not ready yet.
            for (round, objects) in [("first", 10), ("all", objects)] {
                let namespace = fresh(&format!("cleanup-{case}-{round}"));
                let removed = match case {
                    "dependents" => dependents(subject, &namespace, objects).await,
                    _ => namespaced(subject, &namespace, objects).await,
                };
                let removed = removed.with_context(|| format!("{title} of {}", subject.name))?;
                if round == "all" {
                    measured.push(removed);
                }
            }
        }
        report(bench, format!("{title}, each of {objects}"), None, &measured);
    }
    Ok(())
}

async fn dependents(subject: &Subject<'_>, namespace: &str, objects: usize) -> anyhow::Result<Measured> {
    subject.namespace(namespace).await?;
    let collection = subject.configmaps(namespace);
    let mut connection = Connection::open(subject.kubeconfig).await?;
    let owner = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owner"}}"#;
    let owner = connection.json(Call::post(&collection, owner)).await?;
    let owner = owner["metadata"]["uid"].as_str().context("the owner has no UID")?;
    let reference = format!(
        r#""metadata":{{"ownerReferences":[{{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"{owner}"}}],"#
    );
    let body = |name: &str, index| configmap(name, index, 0).replacen(r#""metadata":{"#, &reference, 1);
    fill(subject, &collection, objects, body).await?;

    let left = Call::get(format!("{collection}?labelSelector=app%3Dbench&limit=1"));
    let delete = Call::delete(format!("{collection}/owner?propagationPolicy=Background"));
    time(subject, objects, delete, async |connection| {
        let left = connection.json(left.clone()).await?;
        Ok(left["items"].as_array().context("a list has no items")?.is_empty())
    })
    .await
}

async fn namespaced(subject: &Subject<'_>, namespace: &str, objects: usize) -> anyhow::Result<Measured> {
    subject.namespace(namespace).await?;
    fill(subject, &subject.configmaps(namespace), objects, |name, index| configmap(name, index, 0)).await?;
    let path = format!("{}/api/v1/namespaces/{namespace}", subject.prefix);
    time(subject, objects, Call::delete(&path), async |connection| {
        Ok(!connection.finds(Call::get(&path)).await?)
    })
    .await
}

async fn fill(
    subject: &Subject<'_>,
    collection: &str,
    objects: usize,
    body: impl Fn(&str, usize) -> String,
) -> anyhow::Result<()> {
    let create = |index| Call::post(collection, body(&format!("object-{index:06}"), index));
    let load = Load { patience: PATIENCE, ..Load::new(16, (0..objects).map(create).collect()) };
    let made = load.run(subject).await?.done;
    anyhow::ensure!(made == objects, "only {made} of {objects} objects could be made");
    Ok(())
}

/// Sends the delete and waits until all is gone.
async fn time(
    subject: &Subject<'_>,
    objects: usize,
    delete: Call,
    is_gone: impl AsyncFn(&mut Connection) -> anyhow::Result<bool>,
) -> anyhow::Result<Measured> {
    let mut connection = Connection::open(subject.kubeconfig).await?;
    let cpu = subject.process.cpu()?;
    let started = Instant::now();
    connection.send(delete).await?;
    while !is_gone(&mut connection).await? {
        anyhow::ensure!(started.elapsed() < PATIENCE, "not done after {} seconds", PATIENCE.as_secs());
        tokio::time::sleep(PAUSE).await;
    }
    let elapsed = started.elapsed();
    let cpu = subject.process.cpu()?.saturating_sub(cpu);
    let resident = subject.process.resident()?;
    Ok(Measured { clients: 1, done: objects, elapsed, p50: elapsed, p99: elapsed, cpu, resident })
}
