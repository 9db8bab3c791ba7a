//! Reads in Kubernetes' protobuf instead of JSON, as client-go has them by default: get, and list of 500.

use anyhow::Context as _;

use super::{Bench, configmap, fresh, report};
use crate::connection::{Call, Connection};
use crate::load::Load;
use crate::subject::Subject;

pub(super) const CASES: &[&str] = &["protobuf/get", "protobuf/list"];

const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

pub(super) async fn run(bench: &mut Bench, subjects: &[Subject<'_>]) -> anyhow::Result<()> {
    if !CASES.iter().any(|case| bench.wants(case)) {
        return Ok(());
    }
    let objects = bench.scale(500, 100);
    let namespace = fresh("protobuf");
    for subject in subjects {
        subject.namespace(&namespace).await?;
        let collection = subject.configmaps(&namespace);
        let create = |index| Call::post(&collection, configmap(&name(index), index, 0));
        Load::new(16, (0..objects).map(create).collect()).run(subject).await?;
        check(subject, get(&collection)).await?;
    }
    for (clients, gets, lists) in [(1, 10_000, 1_000), (16, 40_000, 1_000)] {
        let variants = [
            ("protobuf/get", "configmap get, protobuf".to_string(), bench.scale(gets, 1_000)),
            ("protobuf/list", format!("list of {objects}, protobuf"), bench.scale(lists, 20)),
        ];
        for (case, title, calls) in variants {
            if !bench.wants(case) {
                continue;
            }
            let mut measured = Vec::new();
            for subject in subjects {
                let collection = subject.configmaps(&namespace);
                let call = |index: usize| match case {
                    // A stride that visits every object in an order the server cannot foresee.
                    "protobuf/get" => get(&format!("{collection}/{}", name(index * 7919 % objects))),
                    _ => get(&collection),
                };
                measured.push(Load::new(clients, (0..calls).map(call).collect()).run(subject).await?);
            }
            report(bench, title, None, &measured);
        }
    }
    Ok(())
}

fn name(index: usize) -> String {
    format!("object-{index:06}")
}

fn get(path: &str) -> Call {
    Call { accept: MEDIA_TYPE, ..Call::get(path) }
}

/// A server that answers in JSON all the same would be measured for something else.
async fn check(subject: &Subject<'_>, call: Call) -> anyhow::Result<()> {
    let answer = Connection::open(subject.kubeconfig).await?.start(call).await?;
    let given = answer.headers().get(http::header::CONTENT_TYPE).context("no content type")?;
    anyhow::ensure!(
        given.as_bytes().starts_with(MEDIA_TYPE.as_bytes()),
        "{} answers in {given:?}",
        subject.name
    );
    Ok(())
}
