//! `polder layer`: a thin client of the `Layer` resource of the core plane. Layers are made with `polder plane snapshot` and used with
//! `polder plane fork layer/NAME`.

use polder_client_http::Client;
use polder_model::{Value, json};

use super::output;
use super::plane::connect::Connection;
use super::plane::list::{age, text};
use super::plane::{API_VERSION, LAYERS, explain};

#[derive(clap::Args)]
pub(crate) struct Layer {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List layers.
    #[command(visible_alias = "ls")]
    List {
        /// How to print them; a table otherwise.
        #[arg(short, long, value_name = "json|name", hide_possible_values = true)]
        output: Option<Form>,
    },
    /// Delete layers. Planes that were forked from them keep what they have.
    #[command(visible_alias = "rm")]
    Delete {
        /// Which layers, without `layer/`; several are deleted one after the other.
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Form {
    Json,
    Name,
}

impl Layer {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Layer { connection, command } = self;
        connection.run(async move |client| match command {
            Command::List { output } => list(&client, output).await,
            Command::Delete { names } => delete(&client, &names).await,
        })
    }
}

async fn list(client: &Client, form: Option<Form>) -> anyhow::Result<()> {
    let layers = client.list(LAYERS).await.map_err(|error| explain(client, error))?;
    match form {
        Some(Form::Json) => {
            output::print_json(&json!({"kind": "LayerList", "apiVersion": API_VERSION, "items": layers}))
        }
        Some(Form::Name) => {
            let names = layers.iter().map(|layer| format!("layer/{}\n", text(layer, &["metadata", "name"])));
            output::print(&names.collect::<String>())
        }
        None if layers.is_empty() => {
            eprintln!("No layers found. Make one with `polder plane snapshot PLANE LAYER`.");
            Ok(())
        }
        None => output::print(&table(&layers)),
    }
}

fn table(layers: &[Value]) -> String {
    let mut rows = vec![["NAME", "PLANE", "OBJECTS", "BYTES", "AGE"].map(String::from).to_vec()];
    let now = jiff::Timestamp::now();
    rows.extend(layers.iter().map(|layer| {
        let number = |field: &str| layer.i64_at(&["status", field]).unwrap_or(0).to_string();
        vec![
            text(layer, &["metadata", "name"]),
            text(layer, &["spec", "plane"]),
            number("objectCount"),
            number("storedBytes"),
            age(layer, now),
        ]
    }));
    output::table(&rows)
}

async fn delete(client: &Client, names: &[String]) -> anyhow::Result<()> {
    let mut failed = 0;
    for name in names {
        match remove(client, name.strip_prefix("layer/").unwrap_or(name)).await {
            Ok(()) => {}
            // The others are deleted nevertheless, as kubectl does it.
            Err(error) if names.len() > 1 => {
                eprintln!("error: {error:#}");
                failed += 1;
            }
            Err(error) => return Err(error),
        }
    }
    anyhow::ensure!(failed == 0, "{failed} of {} layers were not deleted", names.len());
    Ok(())
}

async fn remove(client: &Client, name: &str) -> anyhow::Result<()> {
    // Nobody's name becomes another path.
    let is_name = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || "-.".contains(char);
    anyhow::ensure!(!name.is_empty() && name.chars().all(is_name), "{name:?} is no name of a layer");
    let left = client.delete(&format!("{LAYERS}/{name}")).await.map_err(|error| explain(client, error))?;
    if left.str_at(&["kind"]) == Some("Layer") {
        return output::print(&format!("layer/{name} will be deleted when its finalizers are gone\n"));
    }
    output::print(&format!("layer/{name} deleted\n"))
}
