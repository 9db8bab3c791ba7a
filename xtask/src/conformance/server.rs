//! The server under test, with its planes. It ends when the value is dropped, and its data with it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, thread};

use anyhow::Context as _;

use super::gateway;
use super::group::Nodes;
use crate::step::quiet;
use crate::store::{Started, Store};

/// A server that says nothing for so long will not start.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How often a kubelet says that its node is well.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The node that nobody stands behind.
const NODE: &str = "node-1";

pub(crate) struct Server {
    program: PathBuf,
    kubectl: PathBuf,
    child: Child,
    address: SocketAddr,
    gateway: String,
    /// Ends after the server.
    _store: Started,
    data: tempfile::TempDir,
}

impl Server {
    /// Starts it on a free loopback port; its log goes to a file.
    pub(crate) fn start(program: &Path, kubectl: &Path, log: &Path, store: Store) -> anyhow::Result<Server> {
        let data = tempfile::tempdir().context("cannot make a directory for the server")?;
        let store = store.start(program, &data.path().join("shared"))?;
        let log = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data.path())
            .args(&store.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let address = ready(&mut child);
        if address.is_err() {
            child.kill().ok();
            child.wait().ok();
        }
        let address = address?;
        let gateway = gateway::start(address)?;
        let (program, kubectl) = (program.into(), kubectl.into());
        Ok(Server { program, kubectl, child, address, gateway, _store: store, data })
    }

    /// Makes a plane and returns a kubeconfig that reaches it by its host name.
    pub(crate) fn plane(&self, name: &str, nodes: Nodes) -> anyhow::Result<PathBuf> {
        let admin = self.data.path().join("admin.kubeconfig");
        let simulated = match nodes {
            Nodes::Object => 0,
            Nodes::Simulated(count) => count,
        };
        let plane = serde_json::json!({
            "apiVersion": "polder.dev/v1alpha1", "kind": "Plane", "metadata": {"name": name},
            "spec": if simulated == 0 { serde_json::json!({}) } else { serde_json::json!({"simulatedNodes": simulated}) },
        });
        self.create(&admin, &plane)?;
        let kubeconfig = self.data.path().join(format!("{name}.kubeconfig"));
        let mut write = Command::new(&self.program);
        write
            .args(["plane", "kubeconfig", name, "--kubeconfig"])
            .arg(&admin)
            .arg("--output")
            .arg(&kubeconfig);
        quiet(&mut write)?;
        let server = format!("--server=https://{name}.localhost:{}", self.address.port());
        let proxy = format!("--proxy-url={}", self.gateway);
        quiet(self.kubectl(&kubeconfig).args(["config", "set-cluster", name, &server, &proxy]))?;
        if nodes == Nodes::Object {
            self.node(&kubeconfig)?;
        }
        Ok(kubeconfig)
    }

    /// A node that looks healthy and has room, so that tests that count nodes find one.
    fn node(&self, kubeconfig: &Path) -> anyhow::Result<()> {
        let room = serde_json::json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
        let node = serde_json::json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}},
            "status": {
                "capacity": room, "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        });
        let lease = serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": NODE, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": now()},
        });
        self.create(kubeconfig, &lease)?;
        self.create(kubeconfig, &node)?;
        // A new node is tainted until somebody has seen it well.
        let taints = r#"{"spec":{"taints":null}}"#;
        quiet(self.kubectl(kubeconfig).args(["patch", "node", NODE, "--type=merge", "--patch", taints]))?;
        self.keep_well(kubeconfig);
        Ok(())
    }

    /// Says what a kubelet says, for as long as this process lives or until the plane is no longer there.
    fn keep_well(&self, kubeconfig: &Path) {
        let (program, kubeconfig) = (self.kubectl.clone(), kubeconfig.to_path_buf());
        thread::spawn(move || {
            while kubeconfig.exists() {
                thread::sleep(HEARTBEAT);
                let spec = serde_json::json!({"spec": {"renewTime": now()}}).to_string();
                let mut patch = Command::new(&program);
                patch.arg("--kubeconfig").arg(&kubeconfig).args(["--namespace", "kube-node-lease"]);
                patch.args(["patch", "lease", NODE, "--type=merge", "--patch", &spec]);
                // One that is not heard is no harm; the next will be.
                quiet(&mut patch).ok();
            }
        });
    }

    fn create(&self, kubeconfig: &Path, object: &serde_json::Value) -> anyhow::Result<()> {
        let file = self.data.path().join("object.json");
        fs::write(&file, object.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
        quiet(self.kubectl(kubeconfig).args(["create", "--filename"]).arg(&file)).map(drop)
    }

    fn kubectl(&self, kubeconfig: &Path) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(kubeconfig);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The time as leases have it.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Waits until the server says where it is.
fn ready(child: &mut Child) -> anyhow::Result<SocketAddr> {
    let out = child.stdout.take().context("the server's output is not piped")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // To the end, so that the server never writes into a closed pipe.
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Some(rest) = line.strip_prefix("polder: ready at https://") {
                sender.send(rest.split(' ').next().unwrap_or_default().to_string()).ok();
            }
        }
    });
    let address = receiver.recv_timeout(START_PATIENCE).context("the server did not get ready")?;
    address.parse().with_context(|| format!("the server is at {address}, which is no address"))
}
