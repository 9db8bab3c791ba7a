//! The real clients the tests drive: fetched once into `target/tools`, at versions pinned here and nowhere else.
//!
//! Nothing here is needed to pass: on a machine that cannot provide a client, the tests that drive it are left out,
//! and the summary at the end says so and why.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::r#gen::KUBERNETES_VERSION;
use crate::step::{has, quiet, show};
use crate::workspace::Workspace;

/// The oldest kubectl we promise to work with: the one Debian 12 ships.
const KUBECTL_OLD: &str = "1.20";
/// The Python client; its major version follows Kubernetes' minor.
const PYTHON_CLIENT_VERSION: &str = "35.0.0";

/// One client: what it is called, how tests find it, how it is made.
struct Tool {
    name: &'static str,
    /// The environment variable that tells tests where it is.
    variable: &'static str,
    /// Its folder in `target/tools`, and the program in it.
    folder: &'static str,
    program: &'static str,
    /// What the folder's contents depend on: a different one means make it again.
    version: String,
    make: fn(&Path) -> anyhow::Result<()>,
}

fn all() -> Vec<Tool> {
    vec![
        Tool {
            name: "kubectl of Debian's kubernetes-client (1.20)",
            variable: "POLDER_TEST_KUBECTL_OLD",
            folder: "kubectl-1.20",
            program: "kubectl",
            version: KUBECTL_OLD.into(),
            make: kubectl_old,
        },
        Tool {
            name: "kubectl of the Kubernetes release we serve",
            variable: "POLDER_TEST_KUBECTL_CURRENT",
            folder: "kubectl-current",
            program: "kubectl",
            version: KUBERNETES_VERSION.into(),
            make: kubectl_current,
        },
        Tool {
            name: "Python client",
            variable: "POLDER_TEST_PYTHON",
            folder: "venv",
            program: "bin/python",
            version: PYTHON_CLIENT_VERSION.into(),
            make: python_client,
        },
    ]
}

/// What is there, and what is not.
#[derive(Default)]
pub(crate) struct Tools {
    present: Vec<(&'static str, PathBuf)>,
    left_out: Vec<String>,
}

pub(crate) fn run() -> anyhow::Result<()> {
    let tools = Tools::install()?;
    for (variable, path) in &tools.present {
        eprintln!("{variable}={}", path.display());
    }
    tools.summary();
    Ok(())
}

impl Tools {
    /// Makes what is missing or stale. A tool that cannot be made is left out, not an error.
    pub(crate) fn install() -> anyhow::Result<Tools> {
        let directory = Workspace::read()?.target_directory.join("tools");
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let mut tools = Tools::default();
        for tool in all() {
            match tool.ensure(&directory) {
                Ok(path) => tools.present.push((tool.variable, path)),
                Err(error) => tools.left_out.push(format!("{}: {error:#}", tool.name)),
            }
        }
        Ok(tools)
    }

    /// Tells tests where the tools are.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.present.iter().map(|(variable, path)| (*variable, path.as_path()))
    }

    pub(crate) fn summary(&self) {
        for one in &self.left_out {
            eprintln!("LEFT OUT tests with {one}");
        }
    }
}

impl Tool {
    /// Where the program is, after making it if need be.
    fn ensure(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let folder = directory.join(self.folder);
        let (program, stamp) = (folder.join(self.program), folder.join("made-from"));
        if program.exists() && fs::read_to_string(&stamp).is_ok_and(|text| text == self.version) {
            return Ok(program);
        }
        eprintln!("fetching {} {}", self.name, self.version);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        (self.make)(&folder)?;
        ensure!(program.exists(), "{} did not come out of it", program.display());
        fs::write(&stamp, &self.version).with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(program)
    }
}

/// Unpacks Debian's package without installing it, so that no root is needed.
fn kubectl_old(folder: &Path) -> anyhow::Result<()> {
    ensure!(has("apt-get") && has("dpkg-deb"), "this machine has no apt-get and dpkg-deb");
    let download =
        || quiet(Command::new("apt-get").args(["download", "kubernetes-client"]).current_dir(folder));
    if download().is_err() {
        // A fresh container has no package lists; only root can fetch them.
        quiet(Command::new("apt-get").arg("update")).context("apt-get knows no kubernetes-client")?;
        download()?;
    }
    let files = fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path());
    let package = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "deb"));
    let package = package.context("apt-get download left no package")?;
    let unpacked = folder.join("unpacked");
    quiet(Command::new("dpkg-deb").arg("-x").args([&package, &unpacked]))?;
    let program = folder.join("kubectl");
    fs::rename(unpacked.join("usr/bin/kubectl"), &program).context("the package has no usr/bin/kubectl")?;
    fs::remove_dir_all(&unpacked)?;
    fs::remove_file(&package)?;
    let version = quiet(Command::new(&program).args(["version", "--client"]))?;
    if !version.contains(&format!("v{KUBECTL_OLD}.")) {
        eprintln!("note: this distribution's kubectl is not {KUBECTL_OLD} but {}", version.trim());
    }
    Ok(())
}

/// Builds kubectl from its published modules: a main of a few lines around its command.
fn kubectl_current(folder: &Path) -> anyhow::Result<()> {
    const MAIN: &str = "package main\n\n\
        import (\n\t\"k8s.io/component-base/cli\"\n\t\"k8s.io/kubectl/pkg/cmd\"\n\t\"k8s.io/kubectl/pkg/cmd/util\"\n)\n\n\
        func main() {\n\tif err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {\n\t\tutil.CheckErr(err)\n\t}\n}\n";
    ensure!(has("go"), "this machine has no Go to build it with");
    // Kubernetes 1.x.y pairs with 0.x.y of its modules.
    let (major, rest) = KUBERNETES_VERSION.split_once('.').context("a version is 1.x.y")?;
    let (minor, _) = rest.split_once('.').context("a version is 1.x.y")?;
    let source = folder.join("source");
    fs::create_dir_all(&source)?;
    let module = format!("module kubectl\n\ngo 1.24\n\nrequire k8s.io/kubectl v0.{rest}\n");
    fs::write(source.join("go.mod"), module)?;
    fs::write(source.join("main.go"), MAIN)?;
    let version = "-X k8s.io/component-base/version.git";
    let flags =
        format!("-s -w {version}Version=v{KUBERNETES_VERSION} {version}Major={major} {version}Minor={minor}");
    // Toolchains and flags of whoever runs this must not have a say.
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(&source).env("GOFLAGS", "-mod=mod").env("GOWORK", "off");
        show(&mut command)
    };
    go(&["get", "k8s.io/kubectl/pkg/cmd"])?;
    eprintln!("building kubectl {KUBERNETES_VERSION}, some minutes");
    go(&["build", "-trimpath", "-buildvcs=false", "-ldflags", &flags, "-o", "../kubectl", "."])
}

fn python_client(folder: &Path) -> anyhow::Result<()> {
    ensure!(has("python3"), "this machine has no python3");
    quiet(Command::new("python3").args(["-m", "venv"]).arg(folder)).context("python3 cannot make a venv")?;
    let package = format!("kubernetes=={PYTHON_CLIENT_VERSION}");
    let mut pip = Command::new(folder.join("bin/python"));
    quiet(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", &package]))?;
    Ok(())
}
