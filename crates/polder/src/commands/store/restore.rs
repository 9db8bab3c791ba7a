//! `polder store restore`: planes from a backup, where nothing is.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use polder_store::Revision;
use polder_store::copy::file::Reader;
use polder_store::copy::{Copy, Digest};
use polder_store::engine::Note;
use polder_store::replica::Kept;
use polder_store::sealed::Keyring;
use polder_store_embedded::Snapshot;

use super::{Place, Scratch, Unfinished, say, server_keys};
use crate::commands::output;
use crate::storage::{Storage, StoreSettings};

/// So many commits are passed over. Others were made after the backup: what they have told of, resource versions and numbers of planes,
/// is told of nothing else.
const PASSED_OVER: u64 = 1_000_000_000;

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
        let whose = || format!("{} cannot be restored", path.display());
        let restoring = || -> anyhow::Result<(Digest, Reader<File>)> {
            let mut reader = Reader::new(File::open(&path)?)?;
            // Before anything is written: without the key all of it would be of no use.
            let keyring = place.keyring(&storage)?;
            let keys = server_keys::opened(&reader.head().attached, &keyring)?;
            let first = reader.part()?.unwrap_or_default();
            check_key(&keyring, &first)?;

            let scratch = storage.is_shared().then(|| Scratch::new(&place.data_dir)).transpose()?;
            let directory = scratch.as_ref().map_or(own.clone(), |scratch| scratch.path("restored"));
            let mut engine = storage.bare(&directory)?;
            let mut copy = Copy::begin(&mut *engine)?;
            let unfinished = Unfinished::new(&directory);
            let (bar, mut next) = (output::counter("restoring"), Some(first));
            while let Some(part) = next {
                copy.take(part)?;
                bar.set_position(reader.digest().bytes);
                next = reader.part()?;
            }
            copy.reach(Revision(reader.head().revision.0 + PASSED_OVER))?;
            bar.finish_and_clear();
            let digest = reader.digest();
            check(&storage, &directory, scratch.as_ref(), &digest)?;
            // A store that can be used has its keys.
            keys.map_or(Ok(()), |keys| server_keys::put(&place.data_dir, &keys))?;
            copy.finish()?;
            unfinished.keep();
            Ok((digest, reader))
        };
        let (Digest { planes, objects, .. }, reader) = restoring().with_context(whose)?;
        let (revision, created) = (reader.head().revision, &reader.head().created);
        say(&format!(
            "{planes} planes and {objects} objects restored, as of revision {revision} ({created})"
        ))?;
        if storage.is_shared() && !reader.head().attached.is_empty() {
            let data_dir = place.data_dir.display();
            say(&format!("Start the first server with --data-dir {data_dir}: it has the server's keys."))?;
        }
        Ok(())
    }
}

/// Whether what is sealed can be opened. Notes come before all else.
fn check_key(keyring: &Keyring, first: &[Kept]) -> anyhow::Result<()> {
    let notes = first.iter().filter_map(|kept| match kept {
        Kept::Note(note) => Some(note.clone()),
        _ => None,
    });
    keyring.open(&notes.collect::<Vec<Note>>()).context("its encryption key is not here")
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
        None => Snapshot::unfinished(directory)?.digest()?,
        Some(scratch) => {
            let again = scratch.path("checked");
            storage.bare(&again)?.recover()?;
            Snapshot::unfinished(&again)?.digest()?
        }
    };
    bar.finish_and_clear();
    anyhow::ensure!(
        found == *expected,
        "what was written is not what was read: {} objects of {} planes with the digest {found}, instead of {} of {} with {expected}; \
         were records being sealed anew meanwhile? Then try again",
        found.objects,
        found.planes,
        expected.objects,
        expected.planes,
    );
    Ok(())
}
