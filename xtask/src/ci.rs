//! `cargo xtask ci`: exactly what CI runs, stopping at the first thing that is wrong.

use std::process::Command;
use std::time::Instant;

use crate::step::{has, show, step};
use crate::store::Store;
use crate::workspace::{Workspace, cargo};
use crate::{r#gen, layers, test};

pub(crate) fn run() -> anyhow::Result<()> {
    let started = Instant::now();
    step("format", || show(cargo().args(["fmt", "--all", "--check"])))?;
    step("layering", layers::run)?;
    if has("go") {
        step("generated files are fresh", r#gen::check)?;
    } else {
        eprintln!(
            "=== generated files are fresh: LEFT OUT, there is no Go here to fetch upstream's facts with"
        );
    }
    step("lints", || show(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])))?;
    step("documentation", || {
        show(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    test::all(None, Store::Embedded)?;
    step("fuzzing, a little of everything", || {
        // Built with the whole workspace: alone it would want its dependencies with other features, all anew.
        show(cargo().args(["build", "--workspace", "--bins"]))?;
        let program = Workspace::read()?.target_directory.join("debug/polder-fuzz");
        show(Command::new(program).args(["--seconds", "20"]))
    })?;
    eprintln!("=== everything passed in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}
