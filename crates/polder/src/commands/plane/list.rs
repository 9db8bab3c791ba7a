//! `polder plane list`.

use polder_client_http::Client;
use polder_machinery::age::human_age;
use polder_model::{Value, json};

use super::{API_VERSION, PLANES, explain};
use crate::commands::output;

#[derive(clap::Args)]
pub(crate) struct List {
    /// How to print them; a table otherwise.
    #[arg(short, long, value_name = "json|name|wide", hide_possible_values = true)]
    output: Option<Form>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    Json,
    Name,
    Wide,
}

impl List {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let planes = client.list(PLANES).await.map_err(|error| explain(client, error))?;
        match self.output {
            Some(Form::Json) => {
                output::print_json(&json!({"kind": "PlaneList", "apiVersion": API_VERSION, "items": planes}))
            }
            Some(Form::Name) => {
                let names =
                    planes.iter().map(|plane| format!("plane/{}\n", text(plane, &["metadata", "name"])));
                output::print(&names.collect::<String>())
            }
            _ if planes.is_empty() => {
                eprintln!("No planes found. Make one with `polder plane create NAME`.");
                Ok(())
            }
            form => output::print(&table(&planes, form == Some(Form::Wide))),
        }
    }
}

/// Planes as kubectl would show them.
pub(crate) fn table(planes: &[Value], wide: bool) -> String {
    let header: &[&str] = if wide {
        &["NAME", "PHASE", "OBJECTS", "BYTES", "AGE", "DISPLAY NAME", "FORKED FROM", "URL"]
    } else {
        &["NAME", "PHASE", "OBJECTS", "BYTES", "AGE"]
    };
    let mut rows: Vec<Vec<String>> = vec![header.iter().map(|cell| (*cell).to_string()).collect()];
    let now = jiff::Timestamp::now();
    rows.extend(planes.iter().map(|plane| {
        let number = |field: &str| plane.i64_at(&["status", field]).unwrap_or(0).to_string();
        let mut row = vec![
            text(plane, &["metadata", "name"]),
            text(plane, &["status", "phase"]),
            number("objectCount"),
            number("storedBytes"),
            age(plane, now),
        ];
        if wide {
            row.push(text(plane, &["spec", "displayName"]));
            row.push(text(plane, &["spec", "forkFrom"]));
            row.push(text(plane, &["status", "url"]));
        }
        row
    }));
    output::table(&rows)
}

/// How old an object is, as people say it.
pub(crate) fn age(object: &Value, now: jiff::Timestamp) -> String {
    let created = object.str_at(&["metadata", "creationTimestamp"]);
    let created = created.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    human_age(created.map(|created| now.as_second() - created.as_second()))
}

pub(crate) fn text(plane: &Value, path: &[&str]) -> String {
    match plane.str_at(path).unwrap_or_default() {
        "" => "<none>".into(),
        text => text.into(),
    }
}
