//! Which server, and as whom.
//!
//! The kubeconfig is the first of these that is given or there: `--kubeconfig`, `$POLDER_KUBECONFIG`, `$KUBECONFIG`
//! (several files with `:` between them are read as one), `./.polder/admin.kubeconfig`. Not `~/.kube/config`: that is
//! most likely somebody's production cluster, and not a Polder server.

use std::path::PathBuf;

use polder_client_http::{Client, ClientOptions, Kubeconfig};

const BESIDE: &str = ".polder/admin.kubeconfig";

#[derive(clap::Args)]
pub(crate) struct Connection {
    /// The kubeconfig to use [default: $POLDER_KUBECONFIG, $KUBECONFIG, ./.polder/admin.kubeconfig].
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use; it must lead to a core plane.
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
}

impl Connection {
    /// Does something with a client, to its end.
    pub(crate) fn run(self, act: impl AsyncFnOnce(Client) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let client = self.client()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let outcome = runtime.block_on(act(client));
        // A thread may still wait for a terminal or a pipe; nobody waits for it.
        runtime.shutdown_background();
        outcome
    }

    fn client(&self) -> anyhow::Result<Client> {
        let config = Kubeconfig::read_all(&self.paths()?)?;
        let access = config.access(self.context.as_deref())?;
        Ok(Client::new(&access, ClientOptions::default())?)
    }

    fn paths(&self) -> anyhow::Result<Vec<PathBuf>> {
        let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
        if let Some(path) = &self.kubeconfig {
            return Ok(vec![path.clone()]);
        }
        if let Some(path) = named("POLDER_KUBECONFIG") {
            return Ok(vec![path.into()]);
        }
        if let Some(list) = named("KUBECONFIG") {
            // As kubectl does: names of files that are not there are passed over, unless none is.
            let all: Vec<PathBuf> =
                std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
            let there: Vec<PathBuf> = all.iter().filter(|path| path.exists()).cloned().collect();
            return Ok(if there.is_empty() { all } else { there });
        }
        let beside = PathBuf::from(BESIDE);
        anyhow::ensure!(
            beside.exists(),
            "no kubeconfig: name the admin.kubeconfig in the server's data directory with --kubeconfig or \
             POLDER_KUBECONFIG, or start a server here with `polder serve --data-dir .polder`"
        );
        Ok(vec![beside])
    }
}
