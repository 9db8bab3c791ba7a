//! One file a command, one line below.

mod keys;
mod layer;
mod output;
mod plane;
pub(crate) mod serve;
mod store;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    Serve(serve::Serve),
    /// Create, list, fork, snapshot, export and delete planes.
    #[command(visible_alias = "planes")]
    Plane(plane::Plane),
    /// List and delete layers: what planes held when they were snapshotted.
    #[command(visible_alias = "layers")]
    Layer(layer::Layer),
    /// List and rotate the keys and certificates of a server.
    Keys(keys::Keys),
    /// Check and seal the files of a store, and look after its keys.
    Store(store::Store),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Serve(command) => command.run(),
            Command::Plane(command) => command.run(),
            Command::Layer(command) => command.run(),
            Command::Keys(command) => command.run(),
            Command::Store(command) => command.run(),
        }
    }
}
