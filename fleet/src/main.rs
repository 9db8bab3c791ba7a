//! `polder-fleet model` prints how large a fleet has to be; `polder-fleet --planes N` lets one live through failures.

#![expect(clippy::print_stdout, reason = "a command line tool")]

use std::process::ExitCode;
use std::str::FromStr;

use polder_fleet::model::Inputs;
use polder_fleet::random::seed_from_environment;
use polder_fleet::report;
use polder_fleet::scenario::{Size, run};

const USAGE: &str = "polder-fleet model
polder-fleet [--planes N] [--cells N] [--seed N] [--ticks N] [--requests N] [--thorough]
  --planes    how many planes there are (1000000)
  --cells     how many cells carry them (30)
  --seed      repeats a run; so does POLDER_SEED
  --ticks     how many seconds each phase has failures (600)
  --requests  how many each second (500)
  --thorough  look at every plane after every second: for small fleets";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "model") {
        print!("{}", report::model(&Inputs::default()));
        return ExitCode::SUCCESS;
    }
    match size(&arguments) {
        Ok(size) => simulate(&size),
        Err(problem) => {
            println!("{problem}\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn simulate(size: &Size) -> ExitCode {
    println!("{} planes, {} cells, POLDER_SEED={}\n\n{}", size.planes, size.cells, size.seed, report::HEAD);
    let found = run(size, |row| println!("{}", report::row(row)));
    println!("\n{}", report::end(&found));
    if found.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn size(arguments: &[String]) -> Result<Size, String> {
    let mut size =
        Size { planes: 1_000_000, cells: 30, seed: 0, ticks: 600, requests_per_tick: 500, thorough: false };
    let mut seed = None;
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        if name == "--thorough" {
            size.thorough = true;
            continue;
        }
        let value = rest.next().ok_or_else(|| format!("{name} needs a number"))?;
        match name.as_str() {
            "--planes" => size.planes = number(name, value)?,
            "--cells" => size.cells = number(name, value)?,
            "--seed" => seed = Some(number(name, value)?),
            "--ticks" => size.ticks = number(name, value)?,
            "--requests" => size.requests_per_tick = number(name, value)?,
            _ => return Err(format!("{name} is no option")),
        }
    }
    if size.cells < 4 || size.planes < u32::from(size.cells) {
        return Err(
            "a fleet needs four cells, since one is lost and one drained, and a plane for each".to_owned()
        );
    }
    size.seed = seed.unwrap_or_else(seed_from_environment);
    Ok(size)
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name} needs a number, and {value:?} is none"))
}
