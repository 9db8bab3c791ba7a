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
        let storage = self.place.storage(self.store)?;
        let directory = storage.directory(&self.place.data_dir);
        let mut snapshot = Snapshot::of(&directory)
            .with_context(|| format!("there is nothing to back up in {}", self.place.data_dir.display()))?;
        let attached = match storage.is_shared() {
            // They are in the store.
            true => Arc::default(),
            false => server_keys::sealed(&self.place.data_dir, &*self.place.keyring(&storage)?)?,
        };
        let created = jiff::Timestamp::from_second(now())?.to_string();
        let head = Head { revision: snapshot.rows().current, created, attached };
        let mut part = self.file.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let written = write(&mut snapshot, &head, &part, &self.file);
        if written.is_err() {
            std::fs::remove_file(&part).ok();
        }
        let Digest { planes, objects, .. } = written?;
        let path = self.file.display();
        say(&format!("{path}: {planes} planes and {objects} objects, as of revision {}", head.revision))?;
        say("It can be restored only with the encryption key that this store has now: keep that elsewhere.")
    }
}

fn write(snapshot: &mut Snapshot, head: &Head, part: &Path, path: &Path) -> anyhow::Result<Digest> {
    // What somebody else laid there is not written to. If it cannot be removed, making the file says so.
    std::fs::remove_file(part).ok();
    let mut options = File::options();
    options.write(true).create_new(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(part).with_context(|| format!("cannot write {}", part.display()))?;
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 20, file), head)?;
    let bar = progress("backing up", snapshot)?;
    snapshot.all(&mut |kept| {
        bar.inc(kept.len() as u64);
        writer.part(&kept).map_err(|error| EngineError::Failed(Box::new(error)))
    })?;
    bar.finish_and_clear();
    let (out, digest) = writer.finish()?;
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error);
    file.and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(part, path))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(digest)
}
