//! A server with 100,000 planes: what an idle one costs, and how long a restart takes.

use std::time::Duration;

use super::{Bench, Call, plane_call, ratio, report};
use crate::load::Load;
use crate::server::{Server, disk_bytes};
use crate::subject::Subject;

const CASE: &str = "fleet/planes";
const KIB: f64 = 1024.0;
/// How long freed memory may take to go back to the system.
const SETTLE: Duration = Duration::from_secs(5);

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<()> {
    if !bench.wants(CASE) {
        return Ok(());
    }
    let planes = bench.scale(100_000, 2_000);
    let server = bench.server("fleet")?;
    let directory = bench.work_dir.path().join("fleet");
    let empty = server.process.resident()?;
    bench.report.figure("resident, no planes", ratio(empty, 1 << 20), "MiB", None);
    {
        let kubeconfig = server.kubeconfig()?;
        let subject = subject(&server, &kubeconfig);
        let calls = (0..planes).map(|index| plane_call(&format!("tenant-{index:06}"), "")).collect();
        let load = Load { patience: Duration::from_secs(600), ..Load::new(64, calls) };
        let created = load.run(&subject).await?;
        report(bench, format!("plane create, {planes} in a row"), None, &[created]);
    }
    let settle = if bench.quick { SETTLE / 5 } else { SETTLE };
    tokio::time::sleep(settle).await;
    let full = server.process.resident()?.saturating_sub(empty);
    bench.report.figure("resident per plane, after creating", ratio(full, planes) / KIB, "KiB", Some(10.0));
    bench.report.figure("disk per plane", ratio(disk_bytes(&directory)?, planes) / KIB, "KiB", None);

    let cpu = server.process.cpu()?;
    tokio::time::sleep(settle).await;
    let idle = server.process.cpu()?.saturating_sub(cpu).as_secs_f64() * 1e3 / settle.as_secs_f64();
    bench.report.figure(format!("CPU of {planes} idle planes"), idle, "ms/s", None);

    server.stop()?;
    let server = restarted(bench, "SIGTERM", planes)?;
    server.kill()?;
    let server = restarted(bench, "SIGKILL", planes)?;
    {
        // The last plane made is there and answers.
        let kubeconfig = server.kubeconfig()?;
        let path = format!("/clusters/tenant-{:06}/api/v1/namespaces/default", planes - 1);
        let first = Load::new(1, vec![Call::get(path)]).run(&subject(&server, &kubeconfig)).await?;
        bench.report.figure("first get after a restart", first.p50.as_secs_f64() * 1e3, "ms", None);
    }
    server.stop()
}

fn restarted(bench: &mut Bench, after: &str, planes: usize) -> anyhow::Result<Server> {
    let server = bench.server("fleet")?;
    let seconds = server.ready_after.as_secs_f64();
    let cpu = server.process.cpu()?.as_secs_f64();
    bench.report.figure(format!("restart with {planes} planes after {after}"), seconds, "s", Some(2.0));
    bench.report.figure(format!("restart with {planes} planes after {after}, CPU"), cpu, "s", None);
    let resident = ratio(server.process.resident()?, planes) / KIB;
    bench.report.figure(
        format!("resident per plane after {after}, server included"),
        resident,
        "KiB",
        Some(10.0),
    );
    Ok(server)
}

fn subject<'a>(server: &'a Server, kubeconfig: &'a crate::kubeconfig::Kubeconfig) -> Subject<'a> {
    Subject { name: "polder", kubeconfig, process: &server.process, prefix: String::new() }
}
