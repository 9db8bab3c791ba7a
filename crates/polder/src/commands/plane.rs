//! `polder plane`: a thin client of the `Plane` and `Layer` resources of the core plane. Whatever it does, kubectl
//! with the same kubeconfig can do too.

pub(crate) mod connect;
mod create;
mod delete;
mod export;
mod fork;
mod get;
mod import;
mod kubeconfig;
pub(crate) mod list;
mod many;
mod snapshot;

use polder_client_http::{Client, ClientError};

const PLANES: &str = "/apis/polder.dev/v1alpha1/planes";
pub(crate) const LAYERS: &str = "/apis/polder.dev/v1alpha1/layers";
pub(crate) const API_VERSION: &str = "polder.dev/v1alpha1";

#[derive(clap::Args)]
pub(crate) struct Plane {
    #[command(flatten)]
    connection: connect::Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create a plane, or many.
    Create(create::Create),
    /// List planes.
    #[command(visible_alias = "ls")]
    List(list::List),
    /// Show one plane.
    Get(get::Get),
    /// Delete planes and everything in them.
    #[command(visible_alias = "rm")]
    Delete(delete::Delete),
    /// Make a plane that starts as another one, or as a layer, is now.
    Fork(fork::Fork),
    /// Keep what a plane holds now as a layer, to fork planes from.
    Snapshot(snapshot::Snapshot),
    /// Write a kubeconfig that is good for one plane and nothing else.
    Kubeconfig(kubeconfig::Kubeconfig),
    /// Write everything a plane holds to a file.
    Export(export::Export),
    /// Make a plane from an export.
    Import(import::Import),
}

impl Plane {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Plane { connection, command } = self;
        connection.run(async move |client| command.run(&client).await)
    }
}

impl Command {
    async fn run(self, client: &Client) -> anyhow::Result<()> {
        match self {
            Command::Create(command) => command.run(client).await,
            Command::List(command) => command.run(client).await,
            Command::Get(command) => command.run(client).await,
            Command::Delete(command) => command.run(client).await,
            Command::Fork(command) => command.run(client).await,
            Command::Snapshot(command) => command.run(client).await,
            Command::Kubeconfig(command) => command.run(client).await,
            Command::Export(command) => command.run(client).await,
            Command::Import(command) => command.run(client).await,
        }
    }
}

/// A failure with what to do about it, where that is known.
pub(crate) fn explain(client: &Client, error: ClientError) -> anyhow::Error {
    let advice = match error.api() {
        Some(api) if api.code == 404 && api.message.contains("could not find the requested resource") => {
            format!(
                "{} has no planes for {}: use a kubeconfig whose context is the core plane",
                client.url(),
                client.whom()
            )
        }
        Some(api) if api.code == 401 => format!(
            "{} does not know {}: the kubeconfig is for another server, or its credential is out of date",
            client.url(),
            client.whom()
        ),
        Some(api) if api.code == 403 && api.message.contains("cannot ") => {
            format!(
                "{} may not do this at {}: a role of the core plane must allow it",
                client.whom(),
                client.url()
            )
        }
        _ => return anyhow::Error::new(error),
    };
    anyhow::Error::new(error).context(advice)
}

/// The path of one plane. Names are checked here, so that nobody's name becomes another path.
fn plane_path(name: &str) -> anyhow::Result<String> {
    let name: polder_model::PlaneName = name.parse()?;
    Ok(format!("{PLANES}/{}", name.as_str()))
}
