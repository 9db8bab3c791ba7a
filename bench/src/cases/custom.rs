//! 200 CustomResourceDefinitions of 20 fields: in one plane, in many planes by create, in 1,000 planes by fork.

use super::{Bench, plane_call, ratio, report};
use crate::connection::{Call, Connection};
use crate::kubeconfig::Kubeconfig;
use crate::load::Load;
use crate::server::Server;
use crate::subject::Subject;

const CASES: [&str; 2] = ["custom/create", "custom/fork"];
const KIB: f64 = 1024.0;
const FIELDS: usize = 20;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !CASES.iter().any(|case| bench.wants(case)) {
        return Ok(());
    }
    let crds = bench.scale(200, 20);
    let server = bench.server("custom")?;
    let kubeconfig = server.kubeconfig()?;
    let subject = subject(&server, &kubeconfig);
    let mut connection = Connection::open(&kubeconfig).await?;
    connection.send(plane_call("source", "")).await?;

    let before = server.process.resident()?;
    let served = create(&subject, "source", crds).await?;
    report(bench, "CRD create and first list", Some(1.0), &[served]);
    let grown = server.process.resident()?.saturating_sub(before);
    bench.report.figure(
        format!("resident per CRD, {crds} in one plane"),
        ratio(grown, crds) / KIB,
        "KiB",
        None,
    );

    if bench.wants("custom/create") {
        let planes = bench.scale(50, 4);
        let before = server.process.resident()?;
        let mut last = None;
        for plane in 0..planes {
            connection.send(plane_call(&format!("made-{plane}"), "")).await?;
            last = Some(create(&subject, &format!("made-{plane}"), crds).await?);
        }
        if let Some(last) = last {
            report(bench, format!("CRD create and first list, plane {planes}"), Some(1.0), &[last]);
        }
        let grown = server.process.resident()?.saturating_sub(before);
        let name = format!("resident per plane, {crds} known CRDs created in {planes} planes");
        bench.report.figure(name, ratio(grown, planes) / KIB, "KiB", None);
    }
    if bench.wants("custom/fork") {
        fork(bench, &subject, crds).await?;
    }
    server.stop()
}

/// Planes on a layer that holds the CRDs; then each is used, so that it must know its kinds.
async fn fork(bench: &mut Bench, subject: &Subject<'_>, crds: usize) -> anyhow::Result<()> {
    let planes = bench.scale(1_000, 50);
    let layer = r#"{"apiVersion":"polder.dev/v1alpha1","kind":"Layer","metadata":{"name":"kinds"},"spec":{"plane":"source"}}"#;
    Load::new(1, vec![Call::post("/apis/polder.dev/v1alpha1/layers", layer)]).run(subject).await?;
    let before = subject.process.resident()?;
    let calls = (0..planes).map(|plane| plane_call(&format!("forked-{plane}"), "layer/kinds")).collect();
    let forked = Load::new(16, calls).run(subject).await?;
    report(bench, "plane fork of a layer with CRDs", None, &[forked]);
    let per_plane = |bytes: u64| ratio(bytes.saturating_sub(before), planes) / KIB;
    let name = format!("resident per plane, {planes} forked with {crds} CRDs, idle");
    bench.report.figure(name, per_plane(subject.process.resident()?), "KiB", None);
    let list = |plane| Call::get(format!("/clusters/forked-{plane}{}", collection(plane % crds)));
    let listed = Load::new(16, (0..planes).map(list).collect()).run(subject).await?;
    report(bench, "first list of a custom resource in a fork", None, &[listed]);
    let name = format!("resident per plane, {planes} forked with {crds} CRDs, each used once");
    bench.report.figure(name, per_plane(subject.process.resident()?), "KiB", None);
    Ok(())
}

/// Creates the CRDs in a plane, and lists each right after.
async fn create(subject: &Subject<'_>, plane: &str, crds: usize) -> anyhow::Result<crate::load::Measured> {
    let path = format!("/clusters/{plane}/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    let calls = (0..crds).flat_map(|index| {
        [
            Call::post(path.clone(), definition(index)),
            Call::get(format!("/clusters/{plane}{}", collection(index))),
        ]
    });
    Load { steps: 2, ..Load::new(1, calls.collect()) }.run(subject).await
}

fn collection(index: usize) -> String {
    format!("/apis/bench.polder.dev/v1/namespaces/default/widget{index}s")
}

fn definition(index: usize) -> String {
    let field = |field: usize| match field % 4 {
        0 => format!(r#""text{field}":{{"type":"string","maxLength":64,"pattern":"^[a-z0-9-]*$"}}"#),
        1 => format!(r#""count{field}":{{"type":"integer","minimum":0,"default":{field}}}"#),
        2 => format!(r#""choice{field}":{{"type":"string","enum":["one","two","three"]}}"#),
        _ => format!(
            r#""list{field}":{{"type":"array","items":{{"type":"object","properties":{{"name":{{"type":"string"}}}}}}}}"#
        ),
    };
    let fields: Vec<String> = (0..FIELDS).map(field).collect();
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{{"name":"widget{index}s.bench.polder.dev"}},
        "spec":{{"group":"bench.polder.dev","scope":"Namespaced",
        "names":{{"kind":"Widget{index}","plural":"widget{index}s","singular":"widget{index}","listKind":"Widget{index}List"}},
        "versions":[{{"name":"v1","served":true,"storage":true,"subresources":{{"status":{{}}}},
        "schema":{{"openAPIV3Schema":{{"type":"object","properties":{{
        "spec":{{"type":"object","properties":{{{}}}}},"status":{{"type":"object","x-kubernetes-preserve-unknown-fields":true}}
        }}}}}}}}]}}}}"#,
        fields.join(",")
    )
}

fn subject<'a>(server: &'a Server, kubeconfig: &'a Kubeconfig) -> Subject<'a> {
    Subject { name: "polder", kubeconfig, process: &server.process, prefix: String::new() }
}
