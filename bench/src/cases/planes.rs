//! Planes through the API: create, create and use, fork, delete.

use super::{Bench, PLANES, configmap, plane_call, report};
use crate::connection::{Call, Connection};
use crate::load::Load;
use crate::subject::Subject;

pub(super) const CASES: &[&str] = &["planes/create", "planes/fork", "planes/delete"];

pub(super) async fn run(bench: &mut Bench, subject: &Subject<'_>) -> anyhow::Result<()> {
    if bench.wants("planes/create") || bench.wants("planes/delete") {
        create_and_delete(bench, subject).await?;
    }
    if bench.wants("planes/fork") {
        fork(bench, subject).await?;
    }
    Ok(())
}

async fn create_and_delete(bench: &mut Bench, subject: &Subject<'_>) -> anyhow::Result<()> {
    for (clients, planes) in [(1, 500), (64, 20_000)] {
        let planes = bench.scale(planes, 100);
        let name = |index| format!("p{clients}-{index}");
        let calls = (0..planes).map(|index| plane_call(&name(index), "")).collect();
        let created = Load::new(clients, calls).run(subject).await?;
        let planes = created.done;
        report(bench, "plane create", None, &[created]);
        let calls = (0..planes).map(|index| Call::delete(format!("{PLANES}/{}", name(index)))).collect();
        let deleted = Load::new(clients, calls).run(subject).await?;
        report(bench, "plane delete", None, &[deleted]);
    }
    let planes = bench.scale(500, 100);
    let calls = (0..planes).flat_map(|index| {
        let name = format!("used-{index}");
        [plane_call(&name, ""), first_write(&name)]
    });
    let load = Load { steps: 2, ..Load::new(1, calls.collect()) };
    let used = load.run(subject).await?;
    report(bench, "plane create and first write", None, &[used]);
    Ok(())
}

/// Forks of a plane with 10,000 objects: the first seals what is there, the others share it.
async fn fork(bench: &mut Bench, subject: &Subject<'_>) -> anyhow::Result<()> {
    let objects = bench.scale(10_000, 500);
    let mut connection = Connection::open(subject.kubeconfig).await?;
    connection.send(plane_call("fork-source", "")).await?;
    let collection = "/clusters/fork-source/api/v1/namespaces/default/configmaps";
    let create = |index| Call::post(collection, configmap(&format!("object-{index:06}"), index, 0));
    Load::new(16, (0..objects).map(create).collect()).run(subject).await?;

    let first = Load::new(1, vec![plane_call("fork-first", "fork-source")]).run(subject).await?;
    let milliseconds = first.p50.as_secs_f64() * 1e3;
    bench.report.figure(format!("first fork of {objects} objects"), milliseconds, "ms", Some(50.0));
    let forks = bench.scale(500, 50);
    let call = |index| plane_call(&format!("fork-{index}"), "fork-source");
    let forked = Load::new(1, (0..forks).map(call).collect()).run(subject).await?;
    report(bench, format!("plane fork of {objects} objects"), None, &[forked]);
    let get = |index| {
        let name = format!("object-{:06}", index * 7919 % objects);
        Call::get(format!("/clusters/fork-{index}/api/v1/namespaces/default/configmaps/{name}"))
    };
    let read = Load::new(1, (0..forks).map(get).collect()).run(subject).await?;
    report(bench, "first get in a fork", None, &[read]);
    let list = |index| Call::get(format!("/clusters/fork-{index}/api/v1/configmaps?limit=500"));
    let listed = Load::new(1, (0..forks.min(100)).map(list).collect()).run(subject).await?;
    report(bench, "first list limit=500 in a fork", None, &[listed]);
    let calls = (0..forks).map(|index| Call::delete(format!("{PLANES}/fork-{index}"))).collect();
    let deleted = Load::new(1, calls).run(subject).await?;
    report(bench, "plane delete of a fork", None, &[deleted]);

    let delete = Call::delete(format!("{PLANES}/fork-source"));
    let deleted = Load::new(1, vec![delete]).run(subject).await?;
    let milliseconds = deleted.p50.as_secs_f64() * 1e3;
    bench.report.figure(format!("delete of a plane of {objects} objects"), milliseconds, "ms", Some(5.0));
    Ok(())
}

fn first_write(plane: &str) -> Call {
    Call::post(format!("/clusters/{plane}/api/v1/namespaces/default/configmaps"), configmap("first", 0, 0))
}
