//! Lists of 500 and of 5,000 ConfigMaps: whole, by page, by label.

use super::{Bench, configmap, fresh, report};
use crate::connection::Call;
use crate::load::Load;
use crate::subject::Subject;

pub(super) const CASES: &[&str] = &["lists/all", "lists/limit", "lists/label"];

/// CPU milliseconds a listed object may cost.
const GOAL_PER_OBJECT: f64 = 0.0009;

pub(super) async fn run(bench: &mut Bench, subjects: &[Subject<'_>]) -> anyhow::Result<()> {
    if !CASES.iter().any(|case| bench.wants(case)) {
        return Ok(());
    }
    for (objects, calls) in [(500, 1_000), (5_000, 100)] {
        let (objects, calls) = (bench.scale(objects, objects / 5), bench.scale(calls, 20));
        let namespace = fresh(&format!("lists-{objects}"));
        for subject in subjects {
            subject.namespace(&namespace).await?;
            let collection = subject.configmaps(&namespace);
            let create =
                |index| Call::post(collection.clone(), configmap(&format!("object-{index:06}"), index, 0));
            Load::new(16, (0..objects).map(create).collect()).run(subject).await?;
        }
        let page = objects.min(bench.scale(500, 100));
        let variants = [
            ("all", "list", String::new(), objects, 1),
            ("limit", "list limit", format!("?limit={page}"), page, 5),
            ("label", "list label 1/16", "?labelSelector=slice%3D3".into(), objects.div_ceil(16), 5),
        ];
        for (case, title, query, listed, times) in variants {
            if !bench.wants(&format!("lists/{case}")) || (case == "limit" && page == objects) {
                continue;
            }
            for clients in [1, 16] {
                let mut measured = Vec::new();
                for subject in subjects {
                    let path = format!("{}{query}", subject.configmaps(&namespace));
                    // The first list may have to read the disk; what a busy server does is the question.
                    Load::new(1, vec![Call::get(&path); 2]).run(subject).await?;
                    measured
                        .push(Load::new(clients, vec![Call::get(&path); calls * times]).run(subject).await?);
                }
                #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
                let goal = listed as f64 * GOAL_PER_OBJECT;
                let title = if case == "limit" {
                    format!("{title}={page} of {objects}")
                } else {
                    format!("{title} of {objects}")
                };
                report(bench, title, Some(goal), &measured);
            }
        }
    }
    Ok(())
}
