//! The bench: starts the real server, loads it over TLS, and reports what each operation costs it.
//!
//! The measure is CPU time of the server's process, because throughput and latency on a shared machine say more
//! about the other work on it. With a peer (a real kube-apiserver), the same API cases run against both in turns,
//! in one and the same run. Nothing here asserts a time; the numbers are for people and for `docs/performance.md`.

mod cases;
mod connection;
mod controller_manager;
mod kubeconfig;
mod lines;
mod load;
mod process;
mod report;
mod server;
mod subject;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;

use crate::cases::Bench;
use crate::kubeconfig::Kubeconfig;
use crate::process::Process;
use crate::report::Report;
use crate::subject::Peer;

/// Measure what Polder costs.
#[derive(Parser)]
#[command(
    name = "cargo xtask bench",
    bin_name = "cargo xtask bench",
    after_help = "With --upstream, cargo xtask fetches and starts a real kube-apiserver and etcd, and kube-controller-manager where it has a part, and makes them the peer."
)]
struct Arguments {
    /// Small numbers, done in two minutes: shows that the bench works, not how fast the server is.
    #[arg(long)]
    quick: bool,
    /// Only groups and cases whose `group/case` matches this regular expression.
    #[arg(long, value_name = "RE", default_value = "")]
    filter: regex::Regex,
    /// Write all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run API cases against this kube-apiserver too; the default is the one its kubeconfig names.
    #[arg(long, value_name = "URL", requires = "peer_kubeconfig")]
    peer: Option<String>,
    /// Credentials for the peer.
    #[arg(long, value_name = "FILE")]
    peer_kubeconfig: Option<PathBuf>,
    /// Processes whose CPU and memory count as the peer's: kube-apiserver and etcd.
    #[arg(long, value_name = "PID", value_delimiter = ',', requires = "peer_kubeconfig")]
    peer_pid: Vec<u32>,
    /// A kube-controller-manager to start beside the peer for cases about controllers; they have no peer without it.
    #[arg(long, value_name = "FILE", requires = "peer_kubeconfig")]
    peer_controllers: Option<PathBuf>,
    /// The server to measure; the one built beside this program if not given.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where servers keep their data; removed afterwards.
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // One thread makes the load: on a small machine a second one would take the server's core.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(arguments))
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let binary = match arguments.binary {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("polder"),
    };
    anyhow::ensure!(binary.is_file(), "there is no server at {}", binary.display());
    let peer = match &arguments.peer_kubeconfig {
        Some(path) => {
            let mut kubeconfig = Kubeconfig::read(path)?;
            if let Some(url) = arguments.peer {
                kubeconfig.server = url;
            }
            let process = Process::new(arguments.peer_pid)?;
            let (kubeconfig_file, controllers) = (path.clone(), arguments.peer_controllers);
            Some(Peer { kubeconfig, kubeconfig_file, process, controllers })
        }
        None => None,
    };
    let work_dir = match &arguments.work_dir {
        Some(path) => tempfile::tempdir_in(path),
        None => tempfile::tempdir(),
    };
    let bench = Bench {
        quick: arguments.quick,
        filter: arguments.filter,
        binary,
        work_dir: work_dir.context("cannot make a directory for the server's data")?,
        peer,
        report: Report::default(),
    };
    let report = cases::run(bench).await?;
    report.print()?;
    if let Some(path) = arguments.json {
        report.write_json(&path)?;
    }
    Ok(())
}
