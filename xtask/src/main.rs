//! The one entry point for people who work on Polder: one file a subcommand, one line below.

mod bench;
mod ci;
mod conformance;
mod r#gen;
mod layers;
mod obtain;
mod specification;
mod step;
mod store;
mod test;
mod tools;
mod up;
mod upstream;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// Build, run, test and check Polder.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Build everything and run it on this machine with two sample planes, until Ctrl-C.
    Up(up::Up),
    /// Fetch the real clients the tests use and run all tests.
    Test(test::Test),
    /// Everything CI checks: format, lints, layering, generated files, documentation, tests.
    Ci,
    /// Measure the real binary: throughput, latency, server CPU per request, memory.
    Bench(bench::BenchArguments),
    /// Run upstream's own end-to-end tests against planes and write docs/conformance.md.
    Conformance(conformance::Conformance),
    /// Check that crates use each other only along the arrows of docs/STYLE.md.
    Layers,
    /// Fetch the real clients the tests use, and say where they are.
    Tools,
    /// Write the table of built-in kinds from upstream's published facts.
    Gen {
        /// Compare with the committed table instead.
        #[arg(long)]
        check: bool,
    },
}

impl Command {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Up(command) => command.run(),
            Command::Test(command) => command.run(),
            Command::Ci => ci::run(),
            Command::Bench(arguments) => bench::run(arguments),
            Command::Conformance(command) => command.run(),
            Command::Layers => layers::run(),
            Command::Tools => tools::run(),
            Command::Gen { check: false } => r#gen::run(),
            Command::Gen { check: true } => r#gen::check(),
        }
    }
}

fn main() -> ExitCode {
    match Arguments::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
