//! `cargo xtask bench`: builds the server and the load generator as they are shipped, and runs the one on the other.
//!
//! The bench itself is a program of its own (`bench/`), so that everything else of xtask compiles without it.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::upstream::Upstream;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct BenchArguments {
    /// Profile to build with; figures of anything but `release` mean nothing.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Run the same load against a real kube-apiserver and etcd, fetched and started for it.
    #[arg(long)]
    upstream: bool,
    /// What the bench itself takes; `--help` shows it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Ours, wherever it stands among the bench's own.
const UPSTREAM: &str = "--upstream";

pub(crate) fn run(mut arguments: BenchArguments) -> anyhow::Result<()> {
    if arguments.arguments.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        let mut help = cargo();
        help.args(["run", "--quiet", "--package", "polder-bench", "--", "--help"]);
        return succeed(help);
    }
    let given = arguments.arguments.len();
    arguments.arguments.retain(|argument| argument != UPSTREAM);
    arguments.upstream |= arguments.arguments.len() < given;
    let mut build = cargo();
    // Both in one build, so that they share their dependencies.
    build.args(["build", "--package", "polder", "--package", "polder-bench"]);
    build.args(["--profile", &arguments.profile]);
    succeed(build)?;
    let directory = if arguments.profile == "dev" { "debug" } else { &arguments.profile };
    let own = std::env::current_exe().context("where is this program?")?;
    let target = own.parent().and_then(Path::parent).context("this program was not built by cargo")?;
    let upstream = arguments.upstream.then(Upstream::start).transpose()?;
    let mut bench = Command::new(target.join(directory).join("polder-bench"));
    if let Some(upstream) = &upstream {
        bench.arg("--peer-kubeconfig").arg(&upstream.kubeconfig).args(["--peer-pid", &upstream.pids()]);
        bench.arg("--peer-controllers").arg(&upstream.controller_manager);
    }
    bench.args(&arguments.arguments);
    succeed(bench)
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn succeed(mut command: Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}
