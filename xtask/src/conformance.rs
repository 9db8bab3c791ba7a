//! `cargo xtask conformance`: upstream's own end-to-end tests against planes of a server made for it.
//!
//! The tests are upstream's at the release we serve, built from its published module and run as they are. A run of a
//! whole group writes its section of `docs/conformance.md`.

mod gateway;
mod group;
mod outcome;
mod report;
mod server;
mod suite;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::r#gen::KUBERNETES_VERSION;
use crate::obtain::{self, GoProgram, GoSource, Program};
use crate::step::{has, quiet, show, step};
use crate::store::Store;
use crate::tools::{self, module_version};
use crate::workspace::{Workspace, cargo, root};
use group::{Group, Nodes};
use outcome::Outcome;
use server::Server;
use suite::{Programs, Suite};

#[derive(clap::Args)]
pub(crate) struct Conformance {
    /// Which tests.
    #[arg(long, value_enum, default_value = "a")]
    group: Group,
    /// Only tests of the group whose names match; the report stays as it is.
    #[arg(long, value_name = "RE")]
    focus: Option<String>,
    /// Run the tests in so many planes at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    planes: u32,
    /// How many processes share the tests of a plane.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    processes: u32,
    /// Build the server with optimizations.
    #[arg(long)]
    release: bool,
    /// What the server keeps its planes in; the report is of the embedded store.
    #[arg(long, value_enum, default_value = "embedded")]
    store: Store,
    /// What else to tell upstream's tests, behind `--`; the report stays as it is.
    #[arg(last = true, value_name = "ARGUMENT")]
    further: Vec<String>,
}

impl Conformance {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let tests = self.group.tests(self.focus.as_deref())?;
        ensure!(!tests.is_empty(), "no test of group {} matches", self.group.name());
        if !has("go") {
            eprintln!(
                "LEFT OUT: all {} tests of group {}, because there is no Go here to build upstream's tests with",
                tests.len(),
                self.group.name()
            );
            return Ok(());
        }
        let programs = step("fetch upstream's tests", programs)?;
        let program = step("build the server", || self.build())?;
        let (started, commit) = (Instant::now(), commit()?);
        let outcomes = step("tests", || self.tests(&program, &programs, &tests))?;
        let mut failed = 0;
        for (plane, outcomes) in &outcomes {
            for (test, reason) in outcomes.iter().filter_map(|one| Some((one.test, one.failure.as_ref()?))) {
                eprintln!("FAILED in {plane}: {test}: {reason}");
                failed += 1;
            }
        }
        if self.focus.is_none() && self.further.is_empty() && self.store == Store::Embedded {
            let path = report::write(&report::Run {
                group: self.group,
                release: KUBERNETES_VERSION,
                date: &jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
                commit: &commit,
                build: if self.release { "release" } else { "debug" },
                processes: self.processes,
                seconds: started.elapsed().as_secs(),
                outcomes,
            })?;
            eprintln!("wrote {}", path.display());
        }
        let all = tests.len() * self.planes as usize;
        ensure!(failed == 0, "{failed} of {all} tests failed");
        eprintln!("all {all} tests passed");
        Ok(())
    }

    fn build(&self) -> anyhow::Result<PathBuf> {
        if self.release {
            show(cargo().args(["build", "--package", "polder", "--release"]))?;
        } else {
            // As CI builds it: alone it would want its dependencies with other features, all anew.
            show(cargo().args(["build", "--workspace", "--bins"]))?;
        }
        let profile = if self.release { "release" } else { "debug" };
        Ok(Workspace::read()?.target_directory.join(profile).join("polder"))
    }

    /// Runs the tests in all planes at once.
    fn tests(
        &self,
        program: &Path,
        programs: &Programs,
        tests: &[&'static str],
    ) -> anyhow::Result<Vec<(String, Vec<Outcome>)>> {
        let folder = Workspace::read()?.target_directory.join("conformance");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let log = folder.join(format!("{}-server.log", self.group.name()));
        let server = Server::start(program, &programs.kubectl, &log, self.store)?;
        let planes: Vec<String> = (1..=self.planes).map(|number| format!("plane-{number}")).collect();
        let suites = planes.iter().map(|plane| {
            let nodes = self.group.nodes();
            Ok(Suite {
                programs,
                plane,
                kubeconfig: server.plane(plane, nodes)?,
                tests,
                processes: self.processes,
                nodes: match nodes {
                    Nodes::Object => 1,
                    Nodes::Simulated(count) => count,
                },
                further: &self.further,
                folder: folder.join(format!("{}-{plane}", self.group.name())),
            })
        });
        let suites: Vec<Suite<'_>> = suites.collect::<anyhow::Result<_>>()?;
        std::thread::scope(|scope| {
            let running: Vec<_> = suites.iter().map(|suite| scope.spawn(|| suite.run())).collect();
            let outcomes = planes.iter().cloned().zip(running).map(|(plane, running)| {
                let outcomes = running.join().map_err(|_| anyhow::anyhow!("the run in {plane} panicked"))?;
                Ok((plane, outcomes?))
            });
            outcomes.collect()
        })
    }
}

/// The commit under test, and whether the sources are exactly that.
fn commit() -> anyhow::Result<String> {
    let git = |arguments: &[&str]| quiet(Command::new("git").args(arguments).current_dir(root()));
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--", "crates", "Cargo.toml", "Cargo.lock"])?;
    let note = if changed.trim().is_empty() { "" } else { " with changes" };
    Ok(format!("{}{note}", commit.trim()))
}

fn programs() -> anyhow::Result<Programs> {
    let directory = tools::directory()?;
    Ok(Programs {
        ginkgo: ginkgo().ensure(&directory)?,
        tests: end_to_end_tests().ensure(&directory)?,
        kubectl: tools::kubectl()?,
    })
}

/// What runs the tests in several processes, of the version the tests themselves use.
fn ginkgo() -> Program {
    Program {
        name: "ginkgo",
        folder: "ginkgo",
        file: "ginkgo",
        version: KUBERNETES_VERSION.into(),
        make: |folder| make(folder, "ginkgo", GoSource::Command, "github.com/onsi/ginkgo/v2/ginkgo", None),
    }
}

fn end_to_end_tests() -> Program {
    Program {
        name: "upstream's end-to-end tests",
        folder: "e2e",
        file: "e2e.test",
        version: KUBERNETES_VERSION.into(),
        make: |folder| {
            let version = format!("v{KUBERNETES_VERSION}");
            make(folder, "e2e.test", GoSource::Tests, "k8s.io/kubernetes/test/e2e", Some(&version))
        },
    }
}

fn make(
    folder: &Path,
    name: &str,
    source: GoSource<'_>,
    package: &str,
    version: Option<&str>,
) -> anyhow::Result<()> {
    let module = obtain::kubernetes_module(folder, KUBERNETES_VERSION, &module_version()?)?;
    obtain::go(
        folder,
        &GoProgram { name, source, package, version, module: &module, release: KUBERNETES_VERSION },
    )
}
