//! `polder plane fork`.

use polder_client_http::Client;

use super::create::Spec;
use super::{PLANES, explain, plane_path};
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
        client.create(PLANES, &plane).await.map_err(|error| explain(client, error))?;
        output::print(&format!("plane/{} forked from {}\n", self.name, self.source))
    }
}
