//! Who is measured: our server, or a peer under the same load.

use std::path::PathBuf;

use crate::connection::{Call, Connection};
use crate::kubeconfig::Kubeconfig;
use crate::process::Process;

/// Clients that share one connection, here and for the peer.
const CLIENTS_PER_CONNECTION: usize = 16;

/// A real kube-apiserver to compare with.
pub(crate) struct Peer {
    pub(crate) kubeconfig: Kubeconfig,
    pub(crate) kubeconfig_file: PathBuf,
    pub(crate) process: Process,
    /// The kube-controller-manager to start beside it for cases about controllers.
    pub(crate) controllers: Option<PathBuf>,
}

impl Peer {
    /// The peer under load, with all whose CPU counts as its own.
    pub(crate) fn subject<'a>(&'a self, process: &'a Process) -> Subject<'a> {
        Subject { name: "peer", kubeconfig: &self.kubeconfig, process, prefix: String::new() }
    }
}

/// A server under load, and where in it the API of the plane under load begins.
pub(crate) struct Subject<'a> {
    pub(crate) name: &'static str,
    pub(crate) kubeconfig: &'a Kubeconfig,
    pub(crate) process: &'a Process,
    pub(crate) prefix: String,
}

impl Subject<'_> {
    /// Fresh connections for a number of clients: one for each 16.
    pub(crate) async fn connect(&self, clients: usize) -> anyhow::Result<Vec<Connection>> {
        let mut connections = Vec::new();
        for _ in 0..clients.div_ceil(CLIENTS_PER_CONNECTION) {
            connections.push(Connection::open(self.kubeconfig).await?);
        }
        Ok(connections)
    }

    /// Makes a namespace.
    pub(crate) async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
        let path = format!("{}/api/v1/namespaces", self.prefix);
        Connection::open(self.kubeconfig).await?.send(Call::post(path, body)).await?;
        Ok(())
    }

    pub(crate) fn configmaps(&self, namespace: &str) -> String {
        format!("{}/api/v1/namespaces/{namespace}/configmaps", self.prefix)
    }
}
