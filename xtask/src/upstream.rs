//! A real kube-apiserver and its etcd on this machine, to be measured beside Polder. They end when the value is dropped.
//! kube-controller-manager is only fetched: the bench starts it for the cases in which it has a part.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::r#gen::KUBERNETES_VERSION;
use crate::obtain::{self, GoProgram, GoSource, Program};
use crate::step::{has, quiet};
use crate::tools::{self, module_version};

/// A server that is not ready after so long will not be.
const START_PATIENCE: Duration = Duration::from_secs(120);
const TOKEN: &str = "bench-only";
const ETCD_NEWEST_VERSION: &str = "3.6.7";

pub(crate) struct Upstream {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) controller_manager: PathBuf,
    etcd: Child,
    apiserver: Child,
    _data: tempfile::TempDir,
}

impl Upstream {
    /// Fetches all if need be, starts the two on free loopback ports and waits until they serve.
    pub(crate) fn start() -> anyhow::Result<Upstream> {
        ensure!(has("openssl"), "this machine has no openssl to make a signing key with");
        let tools = tools::directory()?;
        let etcd = etcd().ensure(&tools)?;
        let apiserver = kube_apiserver().ensure(&tools)?;
        let controller_manager = kube_controller_manager().ensure(&tools)?;
        let kubectl = tools::kubectl()?;

        let data = tempfile::tempdir().context("cannot make a directory for kube-apiserver")?;
        let directory = data.path();
        let port = free_port()?;
        let (etcd, etcd_url) = start_etcd(&etcd, directory)?;

        let (key, tokens) = (directory.join("signing.key"), directory.join("tokens.csv"));
        quiet(Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048"))?;
        fs::write(&tokens, format!("{TOKEN},admin,admin,system:masters\n"))?;
        let apiserver = Command::new(apiserver)
            .args(["--etcd-servers", &etcd_url, "--bind-address", "127.0.0.1"])
            .args(["--secure-port", &port.to_string(), "--authorization-mode", "RBAC"])
            .args(["--service-cluster-ip-range", "10.0.0.0/16", "--service-account-issuer", "https://bench"])
            // Nothing creates the default service accounts, so nothing may wait for them.
            .args(["--disable-admission-plugins", "ServiceAccount"])
            .arg("--cert-dir")
            .arg(directory)
            .arg("--token-auth-file")
            .arg(tokens)
            .arg("--service-account-key-file")
            .arg(&key)
            .arg("--service-account-signing-key-file")
            .arg(&key)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(directory.join("kube-apiserver.log"))?)
            .spawn()
            .context("cannot run kube-apiserver")?;
        let kubeconfig = directory.join("kubeconfig");
        fs::write(&kubeconfig, kubeconfig_text(port))?;
        let mut upstream = Upstream { kubeconfig, controller_manager, etcd, apiserver, _data: data };
        upstream.wait_ready(&kubectl)?;
        Ok(upstream)
    }

    /// The processes whose CPU and memory are kube-apiserver's and etcd's.
    pub(crate) fn pids(&self) -> String {
        format!("{},{}", self.apiserver.id(), self.etcd.id())
    }

    fn wait_ready(&mut self, kubectl: &Path) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            for (name, child) in [("etcd", &mut self.etcd), ("kube-apiserver", &mut self.apiserver)] {
                if let Some(exit) = child.try_wait()? {
                    let log = self.kubeconfig.with_file_name(format!("{name}.log"));
                    let said = fs::read_to_string(log).unwrap_or_default();
                    let last: Vec<&str> = said.lines().rev().take(5).collect();
                    bail!("{name} ended with {exit}; its last lines, newest first:\n{}", last.join("\n"));
                }
            }
            let mut question = Command::new(kubectl);
            question.arg("--kubeconfig").arg(&self.kubeconfig).args(["get", "--raw", "/readyz"]);
            match quiet(&mut question) {
                Ok(_) => return Ok(()),
                Err(error) if started.elapsed() > START_PATIENCE => {
                    return Err(error.context("kube-apiserver did not get ready"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(500)),
            }
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        for child in [&mut self.apiserver, &mut self.etcd] {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// A member of its own cluster on free loopback ports, and its address. Its data and its log go into a directory.
pub(crate) fn start_etcd(program: &Path, directory: &Path) -> anyhow::Result<(Child, String)> {
    let url = format!("http://127.0.0.1:{}", free_port()?);
    let peer_url = format!("http://127.0.0.1:{}", free_port()?);
    let etcd = Command::new(program)
        .arg("--data-dir")
        .arg(directory.join("etcd"))
        .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
        .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
        .args(["--initial-cluster", &format!("default={peer_url}")])
        .stdin(Stdio::null())
        .stderr(File::create(directory.join("etcd.log"))?)
        .spawn()
        .context("cannot run etcd")?;
    Ok((etcd, url))
}

fn kubeconfig_text(port: u16) -> String {
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: upstream\n\
         clusters: [{{name: upstream, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: apiserver.crt}}}}]\n\
         users: [{{name: admin, user: {{token: {TOKEN}}}}}]\n\
         contexts: [{{name: upstream, context: {{cluster: upstream, user: admin}}}}]\n"
    )
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port on loopback")?;
    Ok(listener.local_addr()?.port())
}

/// Also behind the sample API server of the tests.
pub(crate) fn etcd() -> Program {
    Program {
        name: "etcd of Debian's etcd-server",
        folder: "etcd",
        file: "etcd",
        version: "debian".into(),
        make: |folder| obtain::debian(folder, "etcd-server", "etcd").map(drop),
    }
}

/// The newest etcd that replicas are tested with; Debian's is the oldest.
pub(crate) fn etcd_newest() -> Program {
    Program {
        name: "etcd built from Go modules",
        folder: "etcd-newest",
        file: "etcd",
        version: ETCD_NEWEST_VERSION.into(),
        make: |folder| {
            const PACKAGE: &str = "go.etcd.io/etcd/server/v3";
            let version = format!("v{ETCD_NEWEST_VERSION}");
            let program = GoProgram {
                name: "etcd",
                source: GoSource::Command,
                package: PACKAGE,
                version: Some(&version),
                module: &format!("require {PACKAGE} {version}"),
                release: ETCD_NEWEST_VERSION,
            };
            obtain::go(folder, &program)
        },
    }
}

fn kube_apiserver() -> Program {
    Program {
        name: "kube-apiserver",
        folder: "kube-apiserver",
        file: "kube-apiserver",
        version: KUBERNETES_VERSION.into(),
        make: |folder| component(folder, "kube-apiserver", "NewAPIServerCommand"),
    }
}

fn kube_controller_manager() -> Program {
    Program {
        name: "kube-controller-manager",
        folder: "kube-controller-manager",
        file: "kube-controller-manager",
        version: KUBERNETES_VERSION.into(),
        make: |folder| component(folder, "kube-controller-manager", "NewControllerManagerCommand"),
    }
}

/// Builds a program of Kubernetes' own repository: its name, and the function that makes its command.
fn component(folder: &Path, name: &str, command: &str) -> anyhow::Result<()> {
    let package = format!("k8s.io/kubernetes/cmd/{name}/app");
    let main = format!(
        "package main\n\n\
        import (\n\t\"os\"\n\n\t\"k8s.io/component-base/cli\"\n\t\"{package}\"\n)\n\n\
        func main() {{ os.Exit(cli.Run(app.{command}())) }}\n"
    );
    let module = obtain::kubernetes_module(folder, KUBERNETES_VERSION, &module_version()?)?;
    let version = format!("v{KUBERNETES_VERSION}");
    let program = GoProgram {
        name,
        source: GoSource::Main(&main),
        package: &package,
        version: Some(&version),
        module: &module,
        release: KUBERNETES_VERSION,
    };
    obtain::go(folder, &program)
}
