//! `polder plane delete`.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use polder_client_http::{Client, ClientError};
use polder_model::Value;

use super::{PLANES, explain, many, plane_path};
use crate::commands::output;

#[derive(clap::Args)]
pub(crate) struct Delete {
    /// Which planes; several are deleted one after the other.
    #[arg(required_unless_present = "prefix")]
    names: Vec<String>,
    /// Delete all planes whose names start with this.
    #[arg(long, conflicts_with = "names")]
    prefix: Option<String>,
    /// Do not ask, as --prefix does.
    #[arg(short, long)]
    yes: bool,
}

impl Delete {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        if let Some(prefix) = &self.prefix {
            return self.many(client, prefix).await;
        }
        let mut failed = 0;
        for name in &self.names {
            let answer = client.delete(&plane_path(name)?).await.map_err(|error| explain(client, error));
            match answer {
                Ok(left) => output::print(&format!("plane/{name} {}\n", fate(&left)))?,
                // The others are deleted nevertheless, as kubectl does it.
                Err(error) if self.names.len() > 1 => {
                    eprintln!("error: {error:#}");
                    failed += 1;
                }
                Err(error) => return Err(error),
            }
        }
        anyhow::ensure!(failed == 0, "{failed} of {} were not deleted", output::planes(self.names.len()));
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
            let why = format!("{} deleted before this", output::planes(outcome.done));
            return Err(explain(client, error)).context(why);
        }
        let mut text = format!("{} deleted", output::planes(outcome.done));
        if outcome.unchanged > 0 {
            text.push_str(&format!(", {} wait for their finalizers or were gone", outcome.unchanged));
        }
        output::print(&(text + "\n"))
    }
}

pub(crate) async fn remove(client: &Client, name: &str) -> Result<Value, ClientError> {
    client.delete(&format!("{PLANES}/{name}")).await
}

fn deleted(answer: Result<Value, ClientError>) -> Result<bool, ClientError> {
    match answer {
        Ok(left) => Ok(!is_held(&left)),
        Err(error) if error.code() == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// A plane that finalizers hold comes back as it is; one that is gone does not.
fn is_held(left: &Value) -> bool {
    left.str_at(&["kind"]) == Some("Plane")
}

fn fate(left: &Value) -> String {
    if !is_held(left) {
        return "deleted".into();
    }
    let finalizers = left.array_at(&["metadata", "finalizers"]).iter().filter_map(Value::as_str);
    format!("will be deleted when its finalizers are gone: {}", finalizers.collect::<Vec<_>>().join(", "))
}

fn confirmed(names: &[String]) -> anyhow::Result<bool> {
    let some = names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if names.len() > 5 { ", ..." } else { "" };
    let count = output::planes(names.len());
    if !std::io::stdin().is_terminal() {
        anyhow::bail!("{count} would be deleted ({some}{more}): say --yes if that is meant");
    }
    eprint!("Delete {count} ({some}{more}) with everything inside? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
