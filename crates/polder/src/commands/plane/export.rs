//! `polder plane export`: what comes out is described in `docs/export-format.md`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use polder_client_http::{ApiError, Client};
use polder_model::Value;

use super::{explain, plane_path};
use crate::commands::output;

#[derive(clap::Args)]
pub(crate) struct Export {
    /// Which plane.
    name: String,
    /// Write to this file instead of to stdout. It appears when it is complete.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Export {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let Some(path) = &self.file else {
            let mut out = BufWriter::new(std::io::stdout().lock());
            write_export(client, &self.name, &mut out).await?;
            return out.flush().context("cannot write to stdout");
        };
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let outcome = self.to_file(client, &part, path).await;
        if outcome.is_err() {
            std::fs::remove_file(&part).ok();
        }
        let objects = outcome?;
        eprintln!("plane {} exported to {}: {objects} objects", self.name, path.display());
        Ok(())
    }

    async fn to_file(&self, client: &Client, part: &Path, path: &Path) -> anyhow::Result<i64> {
        // What somebody else laid there is not written to. If it cannot be removed, making the file says so.
        std::fs::remove_file(part).ok();
        let mut options = File::options();
        options.write(true).create_new(true);
        // An export holds secrets.
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(part).with_context(|| format!("cannot write {}", part.display()))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let objects = write_export(client, &self.name, &mut out).await?;
        let file = out.into_inner().map_err(std::io::IntoInnerError::into_error);
        file.and_then(|file| file.sync_all())
            .and_then(|()| std::fs::rename(part, path))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(objects)
    }
}

/// Copies an export line by line; the last line must say that it is the last. Returns how many objects there were.
async fn write_export(client: &Client, name: &str, out: &mut impl Write) -> anyhow::Result<i64> {
    let path = format!("{}/export", plane_path(name)?);
    let mut lines = client.stream(&path).await.map_err(|error| explain(client, error))?;
    let bar = output::counter("exporting");
    let mut last = None;
    while let Some(line) = lines.next().await.map_err(|error| explain(client, error))? {
        out.write_all(&line).and_then(|()| out.write_all(b"\n")).context("cannot write the export")?;
        bar.inc(line.len() as u64 + 1);
        last = Some(line);
    }
    bar.finish_and_clear();
    let last = last.and_then(|line| Value::parse(&line).ok()).unwrap_or_default();
    match last.str_at(&["kind"]) {
        Some("PlaneExportEnd") => Ok(last.i64_at(&["objects"]).unwrap_or(0)),
        Some("Status") => Err(ApiError::from_status(500, &last)).context("the export broke off: try again"),
        _ => anyhow::bail!("the export ends early: the server went away, try again"),
    }
}
