//! One run of upstream's end-to-end tests against one plane: ginkgo starts them in several processes, says how each
//! went as it goes, and leaves a report.

use std::fs::{self, File};
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::group::selection;
use super::outcome::{self, Outcome};

/// The programs a run needs.
#[derive(Clone)]
pub(crate) struct Programs {
    pub(crate) ginkgo: PathBuf,
    pub(crate) tests: PathBuf,
    pub(crate) kubectl: PathBuf,
}

pub(crate) struct Suite<'a> {
    pub(crate) programs: &'a Programs,
    /// The plane's name, for whoever watches.
    pub(crate) plane: &'a str,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) tests: &'a [&'static str],
    /// How many processes share the tests; at least two, because ginkgo's output has another form with one.
    pub(crate) processes: u32,
    pub(crate) nodes: u32,
    pub(crate) further: &'a [String],
    /// Where log and reports go.
    pub(crate) folder: PathBuf,
}

/// What ginkgo writes while it runs, one test at a time.
#[derive(Debug, PartialEq, Eq)]
struct Progress<'a> {
    word: &'a str,
    seconds: &'a str,
}

impl Suite<'_> {
    /// Runs the tests, in ginkgo's order: those that must be alone come last.
    pub(crate) fn run(&self) -> anyhow::Result<Vec<Outcome>> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)
                .with_context(|| format!("cannot remove {}", self.folder.display()))?;
        }
        fs::create_dir_all(&self.folder).with_context(|| format!("cannot make {}", self.folder.display()))?;
        let mut child = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(self.folder.join("stderr.log"))?)
            .spawn()
            .context("cannot run ginkgo")?;
        let out = child.stdout.take().context("ginkgo's output is not piped")?;
        let told = self.tell(BufReader::new(out));
        // That tests fail is in the report; that there is none is the only thing that matters here.
        let status = child.wait()?;
        told?;
        let report = self.folder.join("report.json");
        match outcome::read(&report, self.tests) {
            Ok(outcomes) => Ok(outcomes),
            Err(error) => bail!("ginkgo ended with {status} ({error:#}); see {}", self.folder.display()),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.programs.ginkgo);
        command
            .args(["run", "-v", "--no-color", "--silence-skips", "--timeout=4h", "--keep-going"])
            .arg(format!("--procs={}", self.processes))
            .arg(format!("--focus={}", selection(self.tests)))
            .arg(option("--output-dir", &self.folder))
            .args(["--json-report=report.json", "--junit-report=junit.xml"])
            .arg(&self.programs.tests)
            .arg("--")
            .arg(option("--kubeconfig", &self.kubeconfig))
            .arg(option("--kubectl-path", &self.programs.kubectl))
            .arg(option("--e2e-output-dir", &self.folder))
            .args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--minStartupPods=-1"])
            .args(["--dump-logs-on-failure=false", "--disable-log-dump=true"])
            .arg(format!("--num-nodes={}", self.nodes))
            .args(self.further);
        command
    }

    /// Keeps what ginkgo writes, and passes on one line a test.
    fn tell(&self, out: impl std::io::BufRead) -> anyhow::Result<()> {
        let mut log = File::create(self.folder.join("e2e.log"))?;
        let (mut done, mut pending) = (0, None);
        for line in out.lines() {
            let line = line?;
            writeln!(log, "{line}")?;
            if let Some(Progress { word, seconds }) = progress(&line) {
                pending = Some(format!("{word:>6} {seconds:>8} s"));
            } else if let Some(head) = pending.take() {
                done += 1;
                let (plane, all) = (self.plane, self.tests.len());
                eprintln!("{plane} {done:>3}/{all} {head}  {}", self.name(&line));
            }
        }
        Ok(())
    }

    /// The test a line is about: ginkgo marks the part that failed and adds labels.
    fn name(&self, line: &str) -> String {
        let name = line.replace("[It] ", "");
        let known = self.tests.iter().filter(|test| name.starts_with(**test));
        known.max_by_key(|test| test.len()).map_or(name.clone(), |test| test.to_string())
    }
}

fn option(name: &str, path: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(name);
    option.push("=");
    option.push(path);
    option
}

/// A test's first line: `• [0.123 seconds]` or `• [FAILED] [0.123 seconds]`. Its name is on the next.
fn progress(line: &str) -> Option<Progress<'_>> {
    let rest = line.strip_prefix("• ")?.trim_end();
    let rest = rest.strip_suffix(" seconds]")?;
    let (word, seconds) = rest.rsplit_once('[')?;
    let word = match word.trim_end() {
        "" => "passed",
        word => word.trim_matches(['[', ']', '!']),
    };
    Some(Progress { word, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_what_ginkgo_writes() {
        let check = |line, expected: Option<(&str, &str)>| {
            let found = progress(line).map(|Progress { word, seconds }| (word, seconds));
            assert_eq!(found, expected, "{line}");
        };
        check("• [0.123 seconds]", Some(("passed", "0.123")));
        check("• [FAILED] [61.004 seconds]", Some(("FAILED", "61.004")));
        check("• [PANICKED!] [0.1 seconds]", Some(("PANICKED", "0.1")));
        check("S [SKIPPED] [0.1 seconds]", None);
        check("  STEP: • [0.1 seconds]", None);
        check("•", None);
    }
}
