//! `polder plane fork`.

use polder_client_http::Client;

use super::create::{Spec, make};
use super::plane_path;
use crate::commands::output;

#[derive(clap::Args)]
pub(crate) struct Fork {
    /// A plane, or `layer/NAME`.
    source: String,
    /// The name of the new plane.
    name: String,
    #[command(flatten)]
    spec: Spec,
}

impl Fork {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        plane_path(&self.name)?;
        let plane = self.spec.plane(&self.name, Some(&self.source));
        make(client, &plane).await?;
        output::print(&format!("plane/{} forked from {}\n", self.name, self.source))
    }
}
