//! Runs the fuzz targets on stable Rust: `polder-fuzz --seconds 20`, `polder-fuzz --target route --seed 7`.

#![expect(clippy::print_stdout, reason = "a command line tool")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use clap::Parser;
use polder_fuzz::campaign::{Budget, Campaign, Failure, quiet_panics, run_one};
use polder_fuzz::{Target, corpus, targets};

/// Longer than this on a few kilobytes is a hang.
const INPUT_SECONDS_MAX: u64 = 20;
/// What a worker thread of the server has: deep recursion must fail here if it fails there.
const STACK_BYTES: usize = 2 * 1024 * 1024;

/// Feeds hostile inputs to every parser of outside input.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long, over all targets together.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Only this target.
    #[arg(long)]
    target: Option<String>,
    /// Where the random inputs start; the default is the time.
    #[arg(long)]
    seed: Option<u64>,
    /// Write every input to `fuzz/failures/` before it runs: for runs that end without a panic (stack, memory).
    #[arg(long)]
    trace: bool,
    /// Run this file only; needs --target.
    #[arg(long)]
    input: Option<PathBuf>,
}

/// The input that runs now, and since when.
type Current = Arc<Mutex<Option<(Instant, &'static str, Vec<u8>)>>>;

fn main() -> ExitCode {
    match start(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: Arguments) -> anyhow::Result<()> {
    let chosen: Vec<Target> = targets::ALL
        .iter()
        .filter(|target| arguments.target.as_ref().is_none_or(|name| name == target.name))
        .copied()
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = targets::ALL.iter().map(|target| target.name).collect();
        bail!("no such target; there are {}", names.join(", "));
    }
    quiet_panics();
    let worker = std::thread::Builder::new().stack_size(STACK_BYTES);
    match worker.spawn(move || run(&arguments, &chosen))?.join() {
        Ok(outcome) => outcome,
        Err(_) => bail!("the runner itself panicked"),
    }
}

fn run(arguments: &Arguments, chosen: &[Target]) -> anyhow::Result<()> {
    if let Some(path) = &arguments.input {
        let input = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        return chosen
            .iter()
            .try_for_each(|target| run_one(*target, &input).map_err(|message| anyhow::anyhow!(message)));
    }
    let seed = arguments.seed.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::from(since.subsec_nanos()) ^ since.as_secs()
    });
    println!("seed {seed}");
    let current = watch_for_hangs();
    let share = Duration::from_secs(arguments.seconds) / u32::try_from(chosen.len())?;
    let mut failed = 0;
    for target in chosen {
        let seeds: Vec<Vec<u8>> = corpus::seeds(target.name)?.into_iter().map(|(_, bytes)| bytes).collect();
        let campaign = Campaign { target: *target, seed, seeds: &seeds };
        polder_fuzz::take_accepted();
        let outcome = campaign.run(Budget::Time(share), |input| {
            if let Ok(mut current) = current.lock() {
                *current = Some((Instant::now(), target.name, input.to_vec()));
            }
            if arguments.trace {
                keep(&format!("{}.current", target.name), input);
            }
        });
        if let Ok(mut current) = current.lock() {
            *current = None;
        }
        match outcome {
            Ok(runs) => {
                println!(
                    "{:<24} {runs:>9} inputs, {:>9} accepted",
                    target.name,
                    polder_fuzz::take_accepted()
                );
            }
            Err(failure) => {
                failed += 1;
                report(target.name, seed, &failure);
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} targets failed", chosen.len());
    }
    Ok(())
}

fn report(target: &str, seed: u64, failure: &Failure) {
    println!("{target}: FAILED at input {} of seed {seed}", failure.number);
    println!("  {}", failure.message.replace('\n', "\n  "));
    println!("  input: {}", failure.input.escape_ascii());
    keep(&format!("{target}-{seed}-{}", failure.number), &failure.input);
}

/// Writes an input where people look for it.
fn keep(name: &str, input: &[u8]) {
    let folder = corpus::home().join("failures");
    let path = folder.join(name);
    if let Err(error) = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input)) {
        println!("  cannot write {}: {error}", path.display());
    }
}

/// Ends the process when one input takes too long: nothing else can stop a loop.
fn watch_for_hangs() -> Current {
    let current = Current::default();
    let watched = current.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let Ok(current) = watched.lock() else { return };
            if let Some((since, target, input)) = &*current
                && since.elapsed() > Duration::from_secs(INPUT_SECONDS_MAX)
            {
                println!(
                    "{target}: an input takes more than {INPUT_SECONDS_MAX} s: {}",
                    input.escape_ascii()
                );
                keep(&format!("{target}-hang"), input);
                std::process::exit(1);
            }
        }
    });
    current
}
