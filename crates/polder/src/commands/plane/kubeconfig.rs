//! `polder plane kubeconfig`.

use std::path::PathBuf;

use anyhow::Context as _;
use polder_client_http::Client;
use polder_model::json;

use super::{explain, plane_path};
use crate::commands::output;

#[derive(clap::Args)]
pub(crate) struct Kubeconfig {
    /// The plane it is for.
    name: String,
    /// Write to this file, which only you can read, instead of to stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Kubeconfig {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let path = format!("{}/kubeconfig", plane_path(&self.name)?);
        let answer = client.create(&path, &json!({})).await.map_err(|error| explain(client, error))?;
        let text = answer.str_at(&["kubeconfig"]).context("the server sent no kubeconfig")?;
        let Some(file) = &self.output else { return output::print(text) };
        polder_server::pki::write_private(file, text)?;
        eprintln!("kubeconfig of plane {} written to {}", self.name, file.display());
        Ok(())
    }
}
