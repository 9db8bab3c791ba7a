//! Steps of a longer run: each says what it does before it starts and how long it took when it is over.

use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};

/// Runs one step between two lines.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    eprintln!("=== {name}");
    let started = Instant::now();
    let outcome = work().with_context(|| format!("{name} failed"));
    let seconds = started.elapsed().as_secs_f64();
    let word = if outcome.is_ok() { "done" } else { "FAILED" };
    eprintln!("=== {name}: {word} in {seconds:.1} s");
    outcome
}

/// Runs a program whose output the reader wants to see. Its failure is ours.
pub(crate) fn show(command: &mut Command) -> anyhow::Result<()> {
    let text = describe(command);
    let status = command.status().with_context(|| format!("cannot run `{text}`"))?;
    if !status.success() {
        bail!("`{text}` ended with {status}");
    }
    Ok(())
}

/// Runs a program whose output matters only if it fails; returns what it wrote to standard output.
pub(crate) fn quiet(command: &mut Command) -> anyhow::Result<String> {
    let text = describe(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{text}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{text}` ended with {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether this machine has a program.
pub(crate) fn has(program: &str) -> bool {
    let started =
        Command::new(program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match started {
        Ok(mut child) => {
            child.kill().ok();
            child.wait().ok();
            true
        }
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// The command as one would type it.
fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
