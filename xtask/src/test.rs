//! `cargo xtask test`: every test of the workspace, with the real clients they drive.

use crate::step::{show, step};
use crate::tools::Tools;
use crate::workspace::cargo;

#[derive(clap::Args)]
pub(crate) struct Test {
    /// Run only tests whose names contain this.
    filter: Option<String>,
}

impl Test {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        all(self.filter.as_deref())
    }
}

/// Runs the tests and ends with a list of what could not be tested on this machine.
pub(crate) fn all(filter: Option<&str>) -> anyhow::Result<()> {
    let tools = step("fetch the clients the tests drive", Tools::install)?;
    let outcome =
        step("tests", || show(cargo().args(["test", "--workspace"]).args(filter).envs(tools.environment())));
    tools.summary();
    outcome
}
