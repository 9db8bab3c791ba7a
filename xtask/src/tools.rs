//! The real clients the tests drive: fetched once into `target/tools`, at versions pinned here and nowhere else.
//!
//! Nothing here is needed to pass: on a machine that cannot provide a client, the tests that drive it are left out,
//! and the summary at the end says so and why.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::r#gen::KUBERNETES_VERSION;
use crate::obtain::{self, GoProgram, GoSource, Program};
use crate::step::{has, quiet};
use crate::upstream;
use crate::workspace::Workspace;

/// The oldest kubectl we promise to work with: the one Debian 12 ships.
const KUBECTL_OLD: &str = "1.20";
/// What operators are written with; the minor version that pairs with the Kubernetes release.
const CONTROLLER_RUNTIME_VERSION: &str = "v0.23.3";
/// The operator that tests run.
const OPERATOR: &str = include_str!("../../tests/controller-runtime/main.go");
/// The KMS plugin that tests run.
const KMS_PLUGIN: &str = include_str!("../../tests/kms-plugin/main.go");
/// The Python client; its major version follows Kubernetes' minor.
const PYTHON_CLIENT_VERSION: &str = "35.0.0";
/// The OpenID provider that tests sign in to, dex, and what it is built from.
const OPENID_PROVIDER: &str = include_str!("../../tests/openid-provider/main.go");
const OPENID_PROVIDER_MODULES: &str = include_str!("../../tests/openid-provider/modules.txt");

/// One client, and the environment variable that tells tests where it is.
struct Tool {
    variable: &'static str,
    program: Program,
}

fn all() -> Vec<Tool> {
    vec![
        Tool {
            variable: "POLDER_TEST_KUBECTL_OLD",
            program: Program {
                name: "kubectl of Debian's kubernetes-client (1.20)",
                folder: "kubectl-1.20",
                file: "kubectl",
                version: KUBECTL_OLD.into(),
                make: kubectl_old,
            },
        },
        Tool { variable: "POLDER_TEST_KUBECTL_CURRENT", program: current() },
        Tool {
            variable: "POLDER_TEST_OPERATOR",
            program: Program {
                name: "operator written with controller-runtime",
                folder: "operator",
                file: "operator",
                version: operator_version(),
                make: operator,
            },
        },
        Tool {
            variable: "POLDER_TEST_PYTHON",
            program: Program {
                name: "Python client",
                folder: "venv",
                file: "bin/python",
                version: PYTHON_CLIENT_VERSION.into(),
                make: python_client,
            },
        },
        Tool {
            variable: "POLDER_TEST_KMS_PLUGIN",
            program: Program {
                name: "KMS plugin served by Kubernetes' library",
                folder: "kms-plugin",
                file: "kms-plugin",
                version: text_version(KMS_PLUGIN),
                make: kms_plugin,
            },
        },
        Tool {
            variable: "POLDER_TEST_OPENID_PROVIDER",
            program: Program {
                name: "OpenID provider, dex",
                folder: "dex",
                file: "dex",
                version: text_version(&[OPENID_PROVIDER, OPENID_PROVIDER_MODULES].concat()),
                make: openid_provider,
            },
        },
        Tool { variable: "POLDER_TEST_ETCD", program: upstream::etcd() },
        Tool { variable: "POLDER_TEST_ETCD_NEWEST", program: upstream::etcd_newest() },
        Tool {
            variable: "POLDER_TEST_POSTGRES",
            program: Program {
                name: "PostgreSQL of Debian's postgresql",
                folder: "postgres",
                file: "postgres",
                version: obtain::postgres_in(Path::new("/"))
                    .map_or("unpacked".into(), |programs| programs.display().to_string()),
                make: obtain::postgres,
            },
        },
        Tool {
            variable: "POLDER_TEST_SAMPLE_APISERVER",
            program: Program {
                name: "upstream's sample API server",
                folder: "sample-apiserver",
                file: "sample-apiserver",
                version: KUBERNETES_VERSION.into(),
                make: sample_apiserver,
            },
        },
    ]
}

fn current() -> Program {
    Program {
        name: "kubectl of the Kubernetes release we serve",
        folder: "kubectl-current",
        file: "kubectl",
        version: KUBERNETES_VERSION.into(),
        make: kubectl_current,
    }
}

/// The current kubectl, made if need be.
pub(crate) fn kubectl() -> anyhow::Result<PathBuf> {
    current().ensure(&directory()?)
}

/// Where fetched programs are kept.
pub(crate) fn directory() -> anyhow::Result<PathBuf> {
    let directory = Workspace::read()?.target_directory.join("tools");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
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
        let directory = directory()?;
        let mut tools = Tools::default();
        for tool in all() {
            match tool.program.ensure(&directory) {
                Ok(path) => tools.present.push((tool.variable, path)),
                Err(error) => tools.left_out.push(format!("{}: {error:#}", tool.program.name)),
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

fn kubectl_old(folder: &Path) -> anyhow::Result<()> {
    let program = obtain::debian(folder, "kubernetes-client", "kubectl")?;
    let version = quiet(Command::new(&program).args(["version", "--client"]))?;
    if !version.contains(&format!("v{KUBECTL_OLD}.")) {
        eprintln!("note: this distribution's kubectl is not {KUBECTL_OLD} but {}", version.trim());
    }
    Ok(())
}

fn kubectl_current(folder: &Path) -> anyhow::Result<()> {
    const MAIN: &str = "package main\n\n\
        import (\n\t\"k8s.io/component-base/cli\"\n\t\"k8s.io/kubectl/pkg/cmd\"\n\t\"k8s.io/kubectl/pkg/cmd/util\"\n)\n\n\
        func main() {\n\tif err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {\n\t\tutil.CheckErr(err)\n\t}\n}\n";
    let version = module_version()?;
    let program = GoProgram {
        name: "kubectl",
        source: GoSource::Main(MAIN),
        package: "k8s.io/kubectl/pkg/cmd",
        version: Some(&version),
        module: &format!("require k8s.io/kubectl {version}"),
        release: KUBERNETES_VERSION,
    };
    obtain::go(folder, &program)
}

fn sample_apiserver(folder: &Path) -> anyhow::Result<()> {
    let version = module_version()?;
    let program = GoProgram {
        name: "sample-apiserver",
        source: GoSource::Command,
        package: "k8s.io/sample-apiserver",
        version: Some(&version),
        module: &format!("require k8s.io/sample-apiserver {version}"),
        release: KUBERNETES_VERSION,
    };
    obtain::go(folder, &program)
}

fn operator_version() -> String {
    format!("{CONTROLLER_RUNTIME_VERSION}-{}", text_version(OPERATOR))
}

/// The version of a program of ours that is written with Kubernetes' libraries.
fn text_version(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{KUBERNETES_VERSION}-{:x}", hasher.finish())
}

fn kms_plugin(folder: &Path) -> anyhow::Result<()> {
    let version = module_version()?;
    let program = GoProgram {
        name: "kms-plugin",
        source: GoSource::Main(KMS_PLUGIN),
        package: "k8s.io/kms/pkg/service",
        version: Some(&version),
        module: &format!("require k8s.io/kms {version}"),
        release: KUBERNETES_VERSION,
    };
    obtain::go(folder, &program)
}

fn operator(folder: &Path) -> anyhow::Result<()> {
    let libraries = module_version()?;
    let pins = ["api", "apiextensions-apiserver", "apimachinery", "client-go"]
        .map(|library| format!("require k8s.io/{library} {libraries}"))
        .join("\n");
    let program = GoProgram {
        name: "operator",
        source: GoSource::Main(OPERATOR),
        package: "sigs.k8s.io/controller-runtime",
        version: Some(CONTROLLER_RUNTIME_VERSION),
        module: &pins,
        release: KUBERNETES_VERSION,
    };
    obtain::go(folder, &program)
}

/// The version of Kubernetes' libraries that pairs with the release: 0.x.y with 1.x.y.
pub(crate) fn module_version() -> anyhow::Result<String> {
    let (_, rest) = KUBERNETES_VERSION.split_once('.').context("a version is 1.x.y")?;
    Ok(format!("v0.{rest}"))
}

fn python_client(folder: &Path) -> anyhow::Result<()> {
    python_package(folder, &format!("kubernetes=={PYTHON_CLIENT_VERSION}"))
}

fn openid_provider(folder: &Path) -> anyhow::Result<()> {
    let program = GoProgram {
        name: "dex",
        source: GoSource::Main(OPENID_PROVIDER),
        package: "github.com/dexidp/dex/server",
        version: None,
        module: OPENID_PROVIDER_MODULES,
        release: KUBERNETES_VERSION,
    };
    obtain::go(folder, &program)
}

/// A Python that has a package.
fn python_package(folder: &Path, package: &str) -> anyhow::Result<()> {
    ensure!(has("python3"), "this machine has no python3");
    quiet(Command::new("python3").args(["-m", "venv"]).arg(folder)).context("python3 cannot make a venv")?;
    let mut pip = Command::new(folder.join("bin/python"));
    quiet(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]))?;
    Ok(())
}
