//! A kube-controller-manager beside the peer, for as long as the value lives.
//!
//! It runs only while cases need it: what it watches costs kube-apiserver something in every other case.

use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use crate::process::Process;
use crate::subject::Peer;

/// Upstream's own limit is 20 requests a second, so that the limit and not the work would be measured.
const REQUESTS_PER_SECOND: &str = "100000";

pub(crate) struct ControllerManager {
    child: Child,
    /// Its CPU counts with the peer's.
    pub(crate) process: Process,
}

impl ControllerManager {
    /// Starts it with a few controllers, as upstream names them, if the peer has one. It is not ready then: whoever needs it
    /// must see it work.
    pub(crate) fn start(peer: &Peer, controllers: &str) -> anyhow::Result<Option<ControllerManager>> {
        let Some(binary) = &peer.controllers else { return Ok(None) };
        let child = Command::new(binary)
            .arg("--kubeconfig")
            .arg(&peer.kubeconfig_file)
            .args(["--controllers", controllers, "--leader-elect=false", "--secure-port=0"])
            .args(["--kube-api-qps", REQUESTS_PER_SECOND, "--kube-api-burst", REQUESTS_PER_SECOND])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let process = peer.process.with(child.id());
        Ok(Some(ControllerManager { child, process: process? }))
    }
}

impl Drop for ControllerManager {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
