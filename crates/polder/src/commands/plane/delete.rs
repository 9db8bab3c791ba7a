//! `polder plane delete`.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use polder_client_http::{Client, ClientError};
use polder_model::Value;

use super::{PLANES, explain, many, plane_path};
use crate::commands::output;

#[derive(clap::Args)]
pub(crate) struct Delete {
    #[arg(required_unless_present = "prefix")]
    names: Vec<String>,
    /// Delete all planes whose names start with this.
    #[arg(long, conflicts_with = "names")]
    prefix: Option<String>,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

impl Delete {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        if let Some(prefix) = &self.prefix {
            return self.many(client, prefix).await;
        }
        for name in &self.names {
            client.delete(&plane_path(name)?).await.map_err(|error| explain(client, error))?;
            output::print(&format!("plane/{name} deleted\n"))?;
        }
        Ok(())
    }

    async fn many(&self, client: &Client, prefix: &str) -> anyhow::Result<()> {
        anyhow::ensure!(!prefix.is_empty(), "an empty prefix would delete every plane");
        let planes = client.list(PLANES).await.map_err(|error| explain(client, error))?;
        let names = planes.iter().filter_map(|plane| plane.str_at(&["metadata", "name"]));
        let names: Vec<String> = names.filter(|name| name.starts_with(prefix)).map(String::from).collect();
        if names.is_empty() {
            eprintln!("No plane has a name that starts with {prefix:?}.");
            return Ok(());
        }
        if !self.yes && !confirmed(&names)? {
            anyhow::bail!("nothing was deleted");
        }
        let act = |client: Client, name: String| async move { deleted(remove(&client, &name).await) };
        let (outcome, result) = many::for_each(client, names, "deleting", act).await;
        if let Err(error) = result {
            let why = format!("{} planes were deleted before this", outcome.done);
            return Err(explain(client, error)).context(why);
        }
        output::print(&format!("{} planes deleted\n", outcome.done))
    }
}

pub(crate) async fn remove(client: &Client, name: &str) -> Result<Value, ClientError> {
    client.delete(&format!("{PLANES}/{name}")).await
}

fn deleted(answer: Result<Value, ClientError>) -> Result<bool, ClientError> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if error.code() == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

fn confirmed(names: &[String]) -> anyhow::Result<bool> {
    let some = names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if names.len() > 5 { ", ..." } else { "" };
    let count = names.len();
    if !std::io::stdin().is_terminal() {
        anyhow::bail!("{count} planes would be deleted ({some}{more}): say --yes if that is meant");
    }
    eprint!("Delete {count} planes ({some}{more}) and everything in them? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
