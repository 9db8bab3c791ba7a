//! Polder: many Kubernetes control planes from one process. This is the one binary: the server and the command line.

mod audit;
mod authentication;
mod authorization;
mod commands;
mod config;
mod encryption;
mod extensions;
mod follow;
mod key_request;
mod keys;
mod kms;
mod log;
mod opening;
mod precedence;
mod reviewer;
mod storage;
mod stored_keys;
mod terms;
mod webhooks;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Isolated Kubernetes control planes, thousands to a process.
#[derive(Parser)]
#[command(name = "polder", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
