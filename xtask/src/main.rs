//! The one entry point for people who work on Polder.

mod bench;
mod r#gen;

use clap::Parser as _;

#[derive(clap::Parser)]
struct Bench {
    #[command(flatten)]
    arguments: bench::BenchArguments,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["gen"] => r#gen::run(),
        ["gen", "--check"] => r#gen::check(),
        ["bench", ..] => bench::run(Bench::parse_from(&arguments).arguments),
        _ => anyhow::bail!("usage: cargo xtask gen [--check] | bench ..."),
    }
}
