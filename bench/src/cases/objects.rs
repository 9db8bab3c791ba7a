//! One ConfigMap of 1 KB at a time: create, get, update, merge patch, delete, with 1, 16 and 64 clients.

use super::{Bench, configmap, fresh, report};
use crate::connection::Call;
use crate::load::Load;
use crate::subject::Subject;

pub(super) const CASES: &[&str] =
    &["objects/create", "objects/get", "objects/update", "objects/patch", "objects/delete"];

/// A case: its name, the CPU milliseconds a request may cost, and whether it writes.
const STEPS: &[(&str, f64, bool)] = &[
    ("create", 0.10, true),
    ("get", 0.019, false),
    ("update", 0.15, true),
    ("patch", 0.16, true),
    ("delete", 0.10, true),
];

pub(super) async fn run(bench: &mut Bench, subjects: &[Subject<'_>]) -> anyhow::Result<()> {
    if !CASES.iter().any(|case| bench.wants(case)) {
        return Ok(());
    }
    for (clients, writes, reads) in [(1, 2_000, 10_000), (16, 10_000, 40_000), (64, 20_000, 60_000)] {
        let (writes, reads) = (bench.scale(writes, 200), bench.scale(reads, 1_000));
        let namespace = fresh(&format!("objects-{clients}"));
        for subject in subjects {
            subject.namespace(&namespace).await?;
        }
        // What each subject managed to create in time is what the other steps work on.
        let mut objects = vec![writes; subjects.len()];
        for (step, goal, is_write) in STEPS {
            let wanted = bench.wants(&format!("objects/{step}"));
            if !wanted && *step != "create" {
                continue;
            }
            let mut measured = Vec::new();
            for (subject, objects) in subjects.iter().zip(&mut objects) {
                let count = if *is_write { *objects } else { reads };
                let collection = subject.configmaps(&namespace);
                let calls = (0..count).map(|index| call(step, &collection, index, *objects)).collect();
                let done = Load::new(clients, calls).run(subject).await?;
                if *step == "create" {
                    *objects = done.done;
                }
                measured.push(done);
            }
            if wanted {
                report(bench, format!("configmap {step}"), Some(*goal), &measured);
            }
        }
    }
    Ok(())
}

fn call(step: &str, collection: &str, index: usize, objects: usize) -> Call {
    // A stride that visits every object in an order the server cannot foresee.
    let index = if step == "get" { index * 7919 % objects } else { index };
    let name = format!("object-{index:06}");
    match step {
        "create" => Call::post(collection, configmap(&name, index, 0)),
        "get" => Call::get(format!("{collection}/{name}")),
        "update" => Call::put(format!("{collection}/{name}"), configmap(&name, index, 1)),
        "patch" => Call::merge_patch(format!("{collection}/{name}"), r#"{"data":{"seq":"2"}}"#),
        _ => Call::delete(format!("{collection}/{name}")),
    }
}
