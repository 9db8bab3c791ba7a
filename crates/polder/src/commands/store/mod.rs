//! `polder store`: looks after what planes are kept in: checks and seals files, makes and restores backups, moves everything from
//! one kind of store to another.

mod backup;
mod migrate;
mod restore;
mod server_keys;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use indicatif::ProgressBar;
use polder_model::{GroupResource, Value};
use polder_store::engine::{Engine as _, FilledVersion, Reader, SpaceState};
use polder_store::sealed::{self, Keyring, SealedEngine, SealedReader};
use polder_store::{ObjectName, Record, Revision};
use polder_store_embedded::{AtRest, Needles, Snapshot, SqliteEngine};
use tempfile::TempDir;

use crate::commands::output;
use crate::config::Configuration;
use crate::storage::{Storage, StoreSettings};
use crate::stored_keys::StoredKeys;

/// Versions and bytes read at once.
const PAGE_LEN: usize = 1_000;
const PAGE_BYTES: usize = 16 << 20;
/// Pieces of text looked for in one reading of the files, and of one record.
const NEEDLES_LEN_MAX: usize = 500_000;
const PIECES_LEN_MAX: usize = 16;

#[derive(clap::Args)]
pub(crate) struct Store {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Write all planes to a file, as they are after one commit. The server may run.
    Backup(backup::Backup),
    /// Make a store from a backup, where there is none.
    Restore(restore::Restore),
    /// Copy all planes from one kind of store to another: embedded, etcd, PostgreSQL. The server may run until nearly all is copied.
    Migrate(migrate::Migrate),
    /// Check every page, row and record, that all that should be sealed is, and that nothing of it can be found in the files.
    Verify(Place),
    /// Seal what is stored in plain, and write the files anew so that nothing of it is left in them.
    Seal(Place),
    /// List which keys the store needs. The server may run.
    Keys(Place),
    /// Put a new key before those in a key file, or make one. A running server takes it within seconds.
    AddKey {
        /// The key file.
        file: PathBuf,
    },
}

/// Where the store is, and how it is sealed.
#[derive(clap::Args)]
struct Place {
    /// The data directory of `polder serve`.
    #[arg(long, value_name = "DIR", env = "POLDER_DATA_DIR")]
    data_dir: PathBuf,
    /// The configuration file of `polder serve`, if it has one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The file with the keys that records are sealed with, if it is not in the data directory.
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
}

impl Store {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Backup(command) => command.run(),
            Command::Restore(command) => command.run(),
            Command::Migrate(command) => command.run(),
            Command::Verify(place) => place.verify(),
            Command::Seal(place) => place.seal(),
            Command::Keys(place) => place.keys(),
            Command::AddKey { file } => {
                let name = sealed::add_key(&file)?;
                say(&format!("{}: added {name}", file.display()))
            }
        }
    }
}

impl Place {
    fn directory(&self) -> PathBuf {
        self.data_dir.join("store")
    }

    fn configuration(&self) -> anyhow::Result<Configuration> {
        self.config.as_deref().map_or_else(|| Ok(Configuration::default()), Configuration::read)
    }

    /// What flags, or else the configuration, say that planes are kept in.
    fn storage(&self, flags: StoreSettings) -> anyhow::Result<Storage> {
        flags.or(self.configuration()?.store).storage()
    }

    fn keyring(&self, storage: &Storage) -> anyhow::Result<Arc<Keyring>> {
        let shared = storage.is_shared().then(StoredKeys::resource);
        let encryption = self.configuration()?.encryption;
        encryption.with_key_file(self.encryption_key_file.clone()).keyring(&self.data_dir, shared)
    }

    fn keys(&self) -> anyhow::Result<()> {
        let store = AtRest::peek(&self.directory())?;
        let store_keys = sealed::noted_keys(&store.recovered().notes);
        if store_keys.is_empty() {
            return say("nothing is sealed");
        }
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        let (reader, mut after) = (store.reader(), None);
        loop {
            let keys = reader.keys(after, PAGE_LEN)?;
            let Some(last) = keys.last() else { break };
            after = Some(last.space);
            for key in &keys {
                *counts.entry(sealed::wrapped_by(&key.wrapped).unwrap_or_default()).or_default() += 1;
            }
        }
        say("STORE KEY  WRAPPED BY            DATA KEYS")?;
        for key in &store_keys {
            say(&format!("{:<9}  {:<20}  {}", key.number, key.key, counts.get(&key.number).unwrap_or(&0)))?;
        }
        match store_keys.len() {
            1 => Ok(()),
            _ => say("data keys are being wrapped anew; keep all of these keys until one is left"),
        }
    }

    fn seal(&self) -> anyhow::Result<()> {
        // Before anything is made where no store is.
        drop(AtRest::open(&self.directory())?);
        let keyring = self.keyring(&Storage::Embedded)?;
        let engine = SqliteEngine::open(&self.directory(), &polder_store_embedded::Options::default())?;
        let mut engine = SealedEngine::new(engine, keyring);
        engine.recover()?;
        while engine.is_rewriting() {
            engine.chore()?;
        }
        engine.into_inner().scrub().context("cannot write the files anew")?;
        say("sealed, and written anew")
    }

    fn verify(&self) -> anyhow::Result<()> {
        let directory = self.directory();
        let report = polder_store_embedded::verify(&directory)?;
        for problem in &report.problems {
            say(&format!("damaged: {problem}"))?;
        }
        let (versions, commits, planes) = (report.versions, report.commits, report.planes);
        say(&format!("{planes} planes, {commits} commits and {versions} versions of objects looked at"))?;

        let store = AtRest::open(&directory)?;
        let keyring = self.keyring(&Storage::Embedded)?;
        keyring.open(&store.recovered().notes)?;
        keyring.learn(&store.recovered().resources);
        let mut checked = Checked::default();
        for resource in keyring.resources() {
            checked.resource(&store, &keyring, resource, &self.data_dir)?;
        }
        checked.search(&self.data_dir)?;
        let Checked { sealed, plain, looked_for, found, damaged, .. } = checked;
        say(&format!("{sealed} records sealed, and all of them open; {plain} in plain"))?;
        say(&format!(
            "looked for {looked_for} pieces of them in {}: found {found}",
            self.data_dir.display()
        ))?;
        anyhow::ensure!(report.problems_count == 0 && damaged == 0, "the store is damaged");
        anyhow::ensure!(
            plain == 0 && found == 0,
            "there is plain text in the files: run `polder store seal`, then look again"
        );
        Ok(())
    }
}

/// What was found while records are looked at.
#[derive(Default)]
struct Checked {
    sealed: u64,
    plain: u64,
    damaged: u64,
    looked_for: u64,
    found: u64,
    needles: Needles,
    /// The record that each piece is from.
    origins: Vec<String>,
}

impl Checked {
    fn resource(
        &mut self,
        store: &AtRest,
        keyring: &Arc<Keyring>,
        resource: &GroupResource,
        directory: &Path,
    ) -> anyhow::Result<()> {
        let known = &store.recovered().resources;
        let Some((id, _)) = known.iter().find(|(_, name)| name == resource) else { return Ok(()) };
        let below = store.reader();
        let above = SealedReader::new(below.clone(), keyring.clone());
        for space in store.recovered().spaces.iter().filter(|row| row.state != SpaceState::Dropped) {
            let mut after: Option<(ObjectName, Revision)> = None;
            loop {
                let from = after.as_ref().map(|(name, revision)| (name, *revision));
                let page = below.versions(space.id, *id, from, PAGE_LEN, PAGE_BYTES)?;
                let Some(last) = page.last() else { break };
                after = Some((last.name.clone(), last.version.revision));
                for FilledVersion { name, version, .. } in page {
                    let Some(record) = version.record else { continue };
                    if record.is_sealed() {
                        self.sealed += 1;
                    } else {
                        self.plain += 1;
                    }
                    match above.version(space.id, *id, &name, version.revision) {
                        Ok(opened) => {
                            if let Some(opened) = opened.and_then(|opened| opened.record) {
                                self.add(&format!("{resource} {name}"), &opened);
                            }
                        }
                        Err(error) => {
                            self.damaged += 1;
                            say(&format!("damaged: {error}"))?;
                        }
                    }
                    if self.needles.len() >= NEEDLES_LEN_MAX {
                        self.search(directory)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks for the values of a record from now on.
    fn add(&mut self, what: &str, record: &Record) {
        let Ok(value) = record.to_value(0) else { return };
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        for member in ["data", "stringData", "binaryData"] {
            let values = value.get(member).and_then(Value::as_object);
            for text in
                values.into_iter().flat_map(|values| values.iter()).filter_map(|(_, value)| value.as_str())
            {
                // Certificates are public: the cluster's own stand in config maps, and in files of their own.
                let is_public = |text: &[u8]| text.starts_with(b"-----BEGIN CERTIFICATE");
                pieces.extend(STANDARD.decode(text).ok().filter(|raw| !is_public(raw)));
                pieces.extend(Some(text.as_bytes().to_vec()).filter(|text| !is_public(text)));
            }
        }
        pieces.sort_by_key(|piece| std::cmp::Reverse(piece.len()));
        pieces.truncate(PIECES_LEN_MAX);
        let Ok(of) = u32::try_from(self.origins.len()) else { return };
        let added = pieces.iter().filter(|piece| self.needles.add(of, piece)).count();
        if added > 0 {
            self.looked_for += added as u64;
            self.origins.push(what.to_owned());
        }
    }

    fn search(&mut self, directory: &Path) -> anyhow::Result<()> {
        let (needles, origins) = (std::mem::take(&mut self.needles), std::mem::take(&mut self.origins));
        if needles.is_empty() {
            return Ok(());
        }
        let (traces, count) = needles.search(directory)?;
        self.found += count;
        for trace in traces {
            let of = origins.get(trace.of as usize).map_or("", String::as_str);
            say(&format!("plain: {of} in {} at {}", trace.file.display(), trace.offset))?;
        }
        Ok(())
    }
}

/// A directory for what is needed only until something is copied: it may become as large as the store.
struct Scratch(TempDir);

impl Scratch {
    fn new(data_dir: &Path) -> anyhow::Result<Scratch> {
        std::fs::create_dir_all(data_dir).with_context(|| format!("cannot create {}", data_dir.display()))?;
        let made = tempfile::Builder::new().prefix("copying-").tempdir_in(data_dir);
        Ok(Scratch(made.with_context(|| format!("cannot write to {}", data_dir.display()))?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A directory that goes unless what is made in it is finished. It begins when the directory is ours.
struct Unfinished(Option<PathBuf>);

impl Unfinished {
    fn new(directory: &Path) -> Unfinished {
        Unfinished(Some(directory.to_owned()))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(directory) = &self.0 {
            std::fs::remove_dir_all(directory).ok();
        }
    }
}

/// A bar for all that a snapshot has.
fn progress(what: &'static str, snapshot: &Snapshot) -> anyhow::Result<ProgressBar> {
    Ok(output::bar(snapshot.len()?, what))
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("cannot print")
}
