//! `polder plane snapshot`.

use polder_client_http::Client;
use polder_model::json;

use super::{API_VERSION, LAYERS, explain};
use crate::commands::output;

#[derive(clap::Args)]
pub(crate) struct Snapshot {
    /// The plane to keep as it is now.
    plane: String,
    /// The name of the new layer; fork from it with `layer/NAME`.
    layer: String,
}

impl Snapshot {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let layer = json!({
            "kind": "Layer", "apiVersion": API_VERSION,
            "metadata": {"name": (self.layer.as_str())}, "spec": {"plane": (self.plane.as_str())},
        });
        client.create(LAYERS, &layer).await.map_err(|error| explain(client, error))?;
        output::print(&format!("layer/{} made of plane {}\n", self.layer, self.plane))
    }
}
