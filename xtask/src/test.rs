//! `cargo xtask test`: every test of the workspace, with the real clients they drive.

use crate::step::{show, step};
use crate::store::Store;
use crate::tools::Tools;
use crate::workspace::cargo;

#[derive(clap::Args)]
pub(crate) struct Test {
    /// Run only tests whose names contain this.
    filter: Option<String>,
    /// What the servers of the outer tests keep their planes in.
    #[arg(long, value_enum, default_value = "embedded")]
    store: Store,
}

impl Test {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        all(self.filter.as_deref(), self.store)
    }
}

/// Runs the tests and ends with a list of what could not be tested on this machine.
pub(crate) fn all(filter: Option<&str>, store: Store) -> anyhow::Result<()> {
    let tools = step("fetch the clients the tests drive", Tools::install)?;
    let mut tests = cargo();
    match store {
        Store::Embedded => tests.args(["test", "--workspace"]),
        // Everything else is the same.
        Store::Etcd => {
            tests.args(["test", "--package", "polder", "--test", "e2e"]).env("POLDER_TEST_STORE", "etcd")
        }
    };
    let outcome = step("tests", || show(tests.args(filter).envs(tools.environment())));
    tools.summary();
    outcome
}
