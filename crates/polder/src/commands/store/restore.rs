//! `polder store restore`: planes from a backup, where nothing is.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use polder_store::copy::file::Reader;
use polder_store::copy::{Copy, Digest};
use polder_store::replica::Kept;
use polder_store_embedded::Snapshot;

use super::{Place, Scratch, say, server_keys};
use crate::commands::output;
use crate::storage::{Storage, StoreSettings};

/// What resource versions are raised by: clients have seen newer ones than the backup has, and must not take what comes for
/// something that they know.
const RAISED: u64 = 1_000_000_000;

#[derive(clap::Args)]
pub(crate) struct Restore {
    /// The backup.
    file: PathBuf,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    store: StoreSettings,
}

impl Restore {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Restore { file: path, place, store } = self;
        let storage = place.storage(store)?;
        let own = storage.directory(&place.data_dir);
        anyhow::ensure!(
            storage.is_shared() || !own.exists(),
            "{} is there already: restore into a data directory without a store",
            own.display()
        );
        let input = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let whose = || format!("{} cannot be restored", path.display());
        let mut reader = Reader::new(input).with_context(whose)?;
        // Before anything is written: without the key all of it would be of no use.
        let keyring = place.keyring(&storage)?;
        let keys = server_keys::opened(&reader.head().attached, &keyring).with_context(whose)?;

        let scratch = storage.is_shared().then(|| Scratch::new(&place.data_dir)).transpose()?;
        let directory = scratch.as_ref().map_or(own.clone(), |scratch| scratch.path("restored"));
        let restored = fill(&mut reader, &storage, &directory, scratch.as_ref());
        if restored.is_err() && !storage.is_shared() {
            // It was not there before.
            std::fs::remove_dir_all(&own).ok();
        }
        let Digest { planes, objects, .. } = restored.with_context(whose)?;
        match (keys, storage.is_shared()) {
            (Some(keys), _) => server_keys::put(&place.data_dir, &keys)?,
            (None, true) => {}
            (None, false) => server_keys::take_out(&own, &place.data_dir, &keyring)?,
        }
        let (revision, created) = (reader.head().revision, &reader.head().created);
        say(&format!(
            "{planes} planes and {objects} objects restored, as of revision {revision} ({created})"
        ))?;
        if storage.is_shared() && !reader.head().attached.is_empty() {
            say(&format!(
                "Start the first server with --data-dir {}: it has the server's keys.",
                place.data_dir.display()
            ))?;
        }
        Ok(())
    }
}

fn fill(
    reader: &mut Reader<File>,
    storage: &Storage,
    directory: &Path,
    scratch: Option<&Scratch>,
) -> anyhow::Result<Digest> {
    let mut engine = storage.bare(directory)?;
    let mut copy = Copy::begin(&mut *engine)?;
    let (bar, mut expected) = (output::counter("restoring"), Digest::default());
    while let Some(mut part) = reader.part()? {
        for kept in &mut part {
            if let Kept::Plane(row) = kept {
                row.version_offset = row.version_offset.saturating_add(RAISED);
            }
        }
        expected.add(&part);
        bar.set_position(expected.bytes);
        copy.take(part)?;
    }
    copy.reach(reader.head().revision)?;
    bar.finish_and_clear();
    check(storage, directory, scratch, &expected)?;
    copy.finish()?;
    Ok(expected)
}

/// Whether what was copied is there, as a server would find it.
pub(super) fn check(
    storage: &Storage,
    directory: &Path,
    scratch: Option<&Scratch>,
    expected: &Digest,
) -> anyhow::Result<()> {
    let bar = output::counter("checking");
    let found = match scratch {
        None => Snapshot::of(directory)?.digest()?,
        Some(scratch) => {
            let again = scratch.path("checked");
            storage.bare(&again)?.recover()?;
            Snapshot::of(&again)?.digest()?
        }
    };
    bar.finish_and_clear();
    anyhow::ensure!(
        found == *expected,
        "what was written is not what was read: {} objects of {} planes with the digest {found}, instead of {} of {} with {expected}",
        found.objects,
        found.planes,
        expected.objects,
        expected.planes,
    );
    Ok(())
}
