//! `polder store backup`: all planes in a file, as they are after one commit. The server may run.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use polder_store::copy::Digest;
use polder_store::copy::file::{Head, Writer};
use polder_store::engine::EngineError;
use polder_store_embedded::Snapshot;
use tempfile::NamedTempFile;

use super::{Place, progress, say, server_keys};
use crate::commands::serve::now;
use crate::storage::StoreSettings;

#[derive(clap::Args)]
pub(crate) struct Backup {
    /// The file to write. It appears when it is complete.
    file: PathBuf,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    store: StoreSettings,
}

impl Backup {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let is_told = self.store.is_told() || self.place.configuration()?.store.is_told();
        let storage = self.place.storage(self.store)?;
        anyhow::ensure!(
            is_told
                || !(storage.is_begun(&self.place.data_dir) && self.place.data_dir.join("replica").exists()),
            "{} has two stores: one of its own and one that it shares with others. Say which with --store (`--store embedded` is the \
             first), or remove the one that is not used any more",
            self.place.data_dir.display()
        );
        let directory = storage.directory(&self.place.data_dir);
        let mut snapshot = Snapshot::of(&directory)
            .with_context(|| format!("there is nothing to back up in {}", self.place.data_dir.display()))?;
        let keyring = self.place.keyring(&storage)?;
        keyring.open(&snapshot.notes()).context("what is sealed in the store cannot be opened")?;
        let attached = match storage.is_shared() {
            // They are in the store.
            true => Arc::default(),
            false => server_keys::sealed(&self.place.data_dir, &keyring)?,
        };
        let created = jiff::Timestamp::from_second(now())?.to_string();
        let head = Head { revision: snapshot.rows().current, created, attached };
        let Digest { planes, objects, .. } = write(&mut snapshot, &head, &self.file)?;
        let path = self.file.display();
        say(&format!("{path}: {planes} planes and {objects} objects, as of revision {}", head.revision))?;
        say("It can be restored only with the encryption key that this store has now: keep that elsewhere.")
    }
}

fn write(snapshot: &mut Snapshot, head: &Head, path: &Path) -> anyhow::Result<Digest> {
    let cannot = || format!("cannot write {}", path.display());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Nobody else's, with mode 0600, and gone if it does not come to its end.
    let mut part = NamedTempFile::new_in(directory).with_context(cannot)?;
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 20, part.as_file_mut()), head)?;
    let bar = progress("backing up", snapshot)?;
    snapshot.all(&mut |kept| {
        bar.inc(kept.len() as u64);
        writer.part(&kept).map_err(|error| EngineError::Failed(Box::new(error)))
    })?;
    bar.finish_and_clear();
    let (out, digest) = writer.finish()?;
    out.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(cannot)?;
    part.as_file().sync_all().with_context(cannot)?;
    part.persist(path).with_context(cannot)?;
    File::open(directory).and_then(|directory| directory.sync_all()).with_context(cannot)?;
    Ok(digest)
}
