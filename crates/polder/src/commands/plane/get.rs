//! `polder plane get`.

use polder_client_http::Client;

use super::{explain, list, plane_path};
use crate::commands::output;

#[derive(clap::Args)]
pub(crate) struct Get {
    /// Which plane.
    name: String,
    /// How to print it; a row of a table otherwise.
    #[arg(short, long, value_name = "json|yaml", hide_possible_values = true)]
    output: Option<Form>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Form {
    Json,
    Yaml,
}

impl Get {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let plane = client.get(&plane_path(&self.name)?).await.map_err(|error| explain(client, error))?;
        match self.output {
            Some(Form::Json) => output::print_json(&plane),
            Some(Form::Yaml) => output::print_yaml(&plane),
            None => output::print(&list::table(&[plane], true)),
        }
    }
}
