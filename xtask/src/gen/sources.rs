//! Where upstream's facts lie on this machine: the Go module cache, filled on demand.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// The unpacked modules of one Kubernetes release.
pub(crate) struct Sources {
    /// `k8s.io/kubernetes`: published specifications and generated definitions.
    pub(crate) kubernetes: PathBuf,
    /// The modules whose structs define the API, by import path.
    pub(crate) api_modules: Vec<(&'static str, PathBuf)>,
}

const API_MODULES: [&str; 4] =
    ["k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator"];

impl Sources {
    /// Asks Go for the modules. Kubernetes 1.x.y pairs with 0.x.y of the API modules.
    pub(crate) fn obtain(kubernetes_version: &str) -> anyhow::Result<Sources> {
        let (_, minor) = kubernetes_version.split_once('.').context("a version is 1.x.y")?;
        let kubernetes = module_download("k8s.io/kubernetes", &format!("v{kubernetes_version}"))?;
        let api_modules = API_MODULES
            .into_iter()
            .map(|path| Ok((path, module_download(path, &format!("v0.{minor}"))?)))
            .collect::<anyhow::Result<_>>()?;
        Ok(Sources { kubernetes, api_modules })
    }

    /// A JSON document of `k8s.io/kubernetes`.
    pub(crate) fn json(&self, path: &str) -> anyhow::Result<Value> {
        let text = self.text(path)?;
        serde_json::from_str(&text).with_context(|| format!("{path} is not JSON"))
    }

    pub(crate) fn text(&self, path: &str) -> anyhow::Result<String> {
        let path = self.kubernetes.join(path);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

fn module_download(module: &str, version: &str) -> anyhow::Result<PathBuf> {
    // An empty directory: whatever go.mod lies around here must not have a say.
    let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
    let output = Command::new("go")
        .args(["mod", "download", "-json", &format!("{module}@{version}")])
        .current_dir(directory.path())
        .output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("cannot regenerate: this needs Go to download {module}, and there is no `go` in PATH")
        }
        other => other.context("cannot run go")?,
    };
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match answer["Dir"].as_str() {
        Some(directory) => Ok(Path::new(directory).to_owned()),
        None => bail!(
            "cannot regenerate: go did not download {module}@{version}: {}{}",
            answer["Error"].as_str().unwrap_or_default(),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}
