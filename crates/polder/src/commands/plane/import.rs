//! `polder plane import`: makes a plane and fills it from an export. A plane made for an import that fails goes again.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use anyhow::Context as _;
use bytes::Bytes;
use polder_client_http::{Client, ClientError, Method, Upload};
use polder_model::{Value, json};

use super::{API_VERSION, PLANES, delete, explain, plane_path};
use crate::commands::output;

/// How much is read and sent at once.
const PIECE_BYTES: usize = 128 * 1024;
/// A header that is longer is no header.
const HEADER_BYTES_MAX: u64 = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct Import {
    /// The plane to make; one that was just created and never written to will do as well.
    name: String,
    /// Read from this file instead of from stdin.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Import {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let path = format!("{}/import", plane_path(&self.name)?);
        let mut input: Box<dyn BufRead + Send> = match &self.file {
            Some(file) => {
                let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
                Box::new(BufReader::with_capacity(PIECE_BYTES, opened))
            }
            None => Box::new(BufReader::with_capacity(PIECE_BYTES, std::io::stdin())),
        };
        let (line, spec) = read_header(&mut input)?;
        // Simulated nodes come with their controllers, who must not write before all is there.
        let mut spec = spec;
        let nodes = spec.remove_at(&["simulatedNodes"]);
        let made = self.make_plane(client, spec).await?;

        let (upload, answer) = client.upload(Method::POST, &path, "application/jsonl");
        let runtime = tokio::runtime::Handle::current();
        let feeding = tokio::task::spawn_blocking(move || feed(&runtime, &upload, line, input));
        match answer.await {
            Ok(answer) => {
                let objects = answer.value().and_then(|value| value.i64_at(&["objects"])).unwrap_or(0);
                if let Some(nodes) = nodes.filter(|_| made) {
                    let patch = json!({"spec": {"simulatedNodes": nodes}});
                    let set =
                        client.patch(&plane_path(&self.name)?, "application/merge-patch+json", &patch).await;
                    set.map_err(|error| explain(client, error))?;
                }
                output::print(&format!("plane/{} imported, {objects} objects\n", self.name))
            }
            Err(error) => {
                // When the file could not be read, that is the reason, and not that the server got too little.
                if feeding.is_finished() {
                    feeding.await?.context("cannot read the export")?;
                }
                Err(self.give_up(client, error, made).await)
            }
        }
    }

    /// Makes the plane as the header describes it. False when it was there.
    async fn make_plane(&self, client: &Client, mut spec: Value) -> anyhow::Result<bool> {
        // The contents are all in the file; what they were once forked from may not be here.
        spec.remove_at(&["forkFrom"]);
        let plane = json!({
            "kind": "Plane", "apiVersion": API_VERSION, "metadata": {"name": (self.name.as_str())}, "spec": spec,
        });
        match client.create(PLANES, &plane).await {
            Ok(_) => Ok(true),
            Err(error) if error.api().is_some_and(|api| api.reason == "AlreadyExists") => Ok(false),
            Err(error) => Err(explain(client, error)),
        }
    }

    async fn give_up(&self, client: &Client, error: ClientError, made: bool) -> anyhow::Error {
        if !made {
            return explain(client, error);
        }
        let name = &self.name;
        let left = match delete::remove(client, name).await {
            Ok(_) => format!("nothing was imported, plane {name} is deleted again"),
            Err(_) => {
                format!("plane {name} is incomplete: delete it with `polder plane delete {name}`")
            }
        };
        match error.api() {
            // The server's advice is about the plane that is gone now.
            Some(api) => {
                let why = api.message.split("; plane ").next().unwrap_or_default().to_string();
                anyhow::anyhow!(why).context(left)
            }
            None => explain(client, error).context(left),
        }
    }
}

/// The first line, and the spec of the plane it names.
fn read_header(input: &mut impl BufRead) -> anyhow::Result<(Vec<u8>, Value)> {
    let mut line = Vec::new();
    input.take(HEADER_BYTES_MAX).read_until(b'\n', &mut line).context("cannot read the export")?;
    let header = Value::parse(&line).unwrap_or_default();
    anyhow::ensure!(
        header.str_at(&["kind"]) == Some("PlaneExport"),
        "this is not an export of a plane: its first line does not say so"
    );
    Ok((line, header.get("spec").cloned().unwrap_or_else(|| json!({}))))
}

/// Sends the rest of the file, as fast as the server takes it.
fn feed(
    runtime: &tokio::runtime::Handle,
    upload: &Upload,
    header: Vec<u8>,
    mut input: Box<dyn BufRead + Send>,
) -> std::io::Result<()> {
    let bar = output::counter("importing");
    let mut piece = header;
    while !piece.is_empty() {
        bar.inc(piece.len() as u64);
        if !runtime.block_on(upload.send(Bytes::from(piece))) {
            break;
        }
        piece = vec![0; PIECE_BYTES];
        let read = input.read(&mut piece)?;
        piece.truncate(read);
    }
    bar.finish_and_clear();
    Ok(())
}
