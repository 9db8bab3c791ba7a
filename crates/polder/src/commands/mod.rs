//! One file a command, one line below.

mod output;
mod plane;
mod serve;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    Serve(serve::Serve),
    /// Create, list, fork, snapshot, export and delete planes.
    #[command(visible_alias = "planes")]
    Plane(plane::Plane),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Serve(command) => command.run(),
            Command::Plane(command) => command.run(),
        }
    }
}
