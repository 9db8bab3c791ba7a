//! `polder store migrate`: all planes from one store to another, with their resource versions. Servers of the first may go on
//! until nearly everything is copied.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use polder_store::copy::{Copy, Digest};
use polder_store::engine::{Engine, EngineError};
use polder_store::sealed::Keyring;
use polder_store_embedded::{OpenError, Rows, Snapshot};

use super::restore::check;
use super::{Place, Scratch, Unfinished, progress, say};
use crate::storage::{EtcdSettings, Storage, StoreSettings};

/// Between looks for what servers have written meanwhile.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
pub(crate) struct Migrate {
    /// What the planes are kept in: `embedded`, for what the data directory has, or a URL as of `polder serve --store`.
    #[arg(long, value_name = "URL")]
    from: String,
    /// What they are to be kept in. Nothing may be there yet.
    #[arg(long, value_name = "URL")]
    to: String,
    /// Servers of a shared store run on: what they write is copied too, until Enter is pressed. Stop them before that.
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    etcd: EtcdSettings,
    /// A file with the password for PostgreSQL.
    #[arg(long, value_name = "FILE")]
    postgres_password_file: Option<PathBuf>,
}

impl Migrate {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let storage = |url: &str| {
            let settings = StoreSettings::at(url, &self.etcd, self.postgres_password_file.as_deref());
            settings.storage().with_context(|| "what to migrate from, or to")
        };
        let (from, to) = (storage(&self.from)?, storage(&self.to)?);
        anyhow::ensure!(
            from.is_shared() || to.is_shared(),
            "one of them must be shared: to move a data directory, stop the server and move it"
        );
        let data_dir = &self.place.data_dir;
        let scratch = Scratch::new(data_dir)?;
        let own = to.directory(data_dir);
        let (directory, checking) = match to.is_shared() {
            true => (scratch.path("target"), Some(&scratch)),
            false => (own.clone(), None),
        };
        anyhow::ensure!(
            to.is_shared() || !own.exists(),
            "{} is there already: migrate to a data directory without a store",
            own.display()
        );
        let keyring = self.place.keyring(&from)?;
        let is_from_shared = from.is_shared();
        let mut source = Source::open(from, data_dir, &scratch, self.follow)?;
        let mut engine = to.bare(&directory)?;
        let target = Target {
            engine: &mut *engine,
            directory: &directory,
            keyring: &keyring,
            check: &|expected| check(&to, &directory, checking, expected),
        };
        let (Digest { planes, objects, .. }, revision) = source.copy(target)?;
        drop(engine);
        say(&format!("{planes} planes and {objects} objects copied and checked, as of revision {revision}"))?;
        let data_dir = data_dir.display();
        if to.is_shared() {
            return match is_from_shared {
                true => say("Start the servers with the new --store."),
                false => say(&format!(
                    "Start the first server with --data-dir {data_dir} and the new --store: the server's own keys are there."
                )),
            };
        }
        say(&format!("Start the server with --data-dir {data_dir}, without --store."))
    }
}

/// Where they go.
struct Target<'a> {
    engine: &'a mut dyn Engine,
    directory: &'a Path,
    /// What opens what is sealed.
    keyring: &'a Keyring,
    check: &'a dyn Fn(&Digest) -> anyhow::Result<()>,
}

/// Where planes come from: always a directory, since whoever shares a store keeps all of it in one.
struct Source {
    directory: PathBuf,
    /// Brings into the directory what others write; and whether they have stopped.
    shared: Option<(Box<dyn Engine>, Arc<AtomicBool>)>,
}

impl Source {
    fn open(from: Storage, data_dir: &Path, scratch: &Scratch, follow: bool) -> anyhow::Result<Source> {
        if !from.is_shared() {
            return Ok(Source { directory: from.directory(data_dir), shared: None });
        }
        let directory = scratch.path("source");
        let engine = from.bare(&directory)?;
        let has_stopped = Arc::new(AtomicBool::new(!follow));
        if follow {
            let told = has_stopped.clone();
            std::thread::spawn(move || {
                std::io::stdin().lock().read_line(&mut String::new()).ok();
                told.store(true, Ordering::Release);
            });
        }
        Ok(Source { directory, shared: Some((engine, has_stopped)) })
    }

    /// What there is now, and whether nothing can come after it.
    fn now(&mut self) -> anyhow::Result<(Snapshot, bool)> {
        if let Some((engine, has_stopped)) = &mut self.shared {
            // Asked before it is looked what there is.
            let has_stopped = has_stopped.load(Ordering::Acquire);
            engine.recover()?;
            return Ok((Snapshot::of(&self.directory)?, has_stopped));
        }
        match Snapshot::at_rest(&self.directory) {
            Ok(snapshot) => Ok((snapshot, true)),
            Err(OpenError::InUse { .. }) => Ok((Snapshot::of(&self.directory)?, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Copies until nothing more can come, checks what was copied, and lets it be used.
    fn copy(&mut self, target: Target<'_>) -> anyhow::Result<(Digest, polder_store::Revision)> {
        let (mut snapshot, mut is_last) = self.now()?;
        anyhow::ensure!(!snapshot.is_empty(), "there is nothing to migrate in it");
        // Before anything is copied that could not be used.
        target.keyring.open(&snapshot.notes()).context("what is sealed in it cannot be opened")?;
        let mut copy = Copy::begin(target.engine).context("the store to migrate to")?;
        let unfinished = Unfinished::new(target.directory);
        let bar = progress("copying", &snapshot)?;
        snapshot.all(&mut |part| {
            bar.inc(part.len() as u64);
            copy.take(part)
        })?;
        copy.reach(snapshot.rows().current)?;
        bar.finish_and_clear();
        let mut is_told = false;
        while !is_last {
            let before: Rows = snapshot.rows().clone();
            drop(snapshot);
            (snapshot, is_last) = self.now()?;
            let taken = snapshot.since(&before, &mut |entry| copy.follow(&entry));
            match taken {
                Err(EngineError::Compacted) => anyhow::bail!(
                    "the server has forgotten what it did while it was copied: let it keep more (historySeconds in its configuration), \
                     or stop it first; what was copied is of no use, remove it"
                ),
                taken => taken?,
            }
            let news = snapshot.rows().current.0 - before.current.0;
            if !is_last && !is_told {
                is_told = true;
                let how = if self.shared.is_some() {
                    "stop all servers, then press Enter"
                } else {
                    "stop the server"
                };
                say(&format!(
                    "copied up to revision {}: {how}; what is written until then is copied too",
                    snapshot.rows().current
                ))?;
            }
            if !is_last && news == 0 {
                std::thread::sleep(PAUSE);
            }
        }
        let expected = snapshot.digest()?;
        (target.check)(&expected)?;
        let current = snapshot.rows().current;
        if self.shared.is_some() {
            drop(snapshot);
            let now = self.now()?.0.rows().current;
            anyhow::ensure!(
                now == current,
                "servers of the store to migrate from still write: stop all of them, remove what was copied, and begin again"
            );
        }
        copy.finish()?;
        unfinished.keep();
        Ok((expected, current))
    }
}
