//! Opens the store and the server's keys: each needs the other where replicas share them.
//!
//! What planes start with names the server's authorities, so the keys come first. Alone, they are in a file. Where other servers
//! have the same planes, they are in the store, and the commit that makes the first of all planes has them too: whoever comes
//! later, or at the same time, finds them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use polder_registry::bootstrap;
use polder_server::keys::{KeyFile, Keys};
use polder_server::{Pki, PkiError, ServingFiles};
use polder_store::engine::EngineError;
use polder_store::sealed::Keyring;
use polder_store::{Beginning, Store, StoreOptions};

use crate::commands::serve::now;
use crate::config::Configuration;
use crate::storage::{Resign, Storage};
use crate::stored_keys::StoredKeys;

pub(crate) struct Opening<'a> {
    pub(crate) storage: &'a Storage,
    pub(crate) data_dir: &'a Path,
    pub(crate) configuration: &'a Configuration,
    /// Where planes are told the API is.
    pub(crate) address: SocketAddr,
    pub(crate) keyring: Arc<Keyring>,
}

pub(crate) struct Opened {
    pub(crate) store: Arc<Store>,
    pub(crate) pki: Arc<Pki>,
    /// What planes start with.
    pub(crate) site: bootstrap::Site,
    pub(crate) resign: Resign,
}

impl Opening<'_> {
    pub(crate) fn open(&self, hosts: &[String], serving: &[ServingFiles]) -> anyhow::Result<Opened> {
        let directory = self.data_dir.join("pki");
        if !self.storage.is_shared() {
            return self.open_alone(&directory, hosts, serving);
        }
        let created = created()?;
        let mut first = None;
        let mut found = None;
        let (store, resign) = self.store(|core| {
            let stored = core(&StoredKeys::resource(), &StoredKeys::name())?;
            let keys = match &stored {
                Some(record) => StoredKeys::decode(record).map_err(failed)?,
                None => {
                    if first.is_none() {
                        first = Some(first_keys(&directory).map_err(failed)?);
                    }
                    first.clone().unwrap_or_default()
                }
            };
            let site = self.site(Pki::told(&keys, serving).map_err(failed)?);
            let core = match stored {
                Some(_) => None,
                None => {
                    let record = StoredKeys::encode(&keys).map_err(failed)?;
                    Some((StoredKeys::resource(), StoredKeys::name(), record))
                }
            };
            let beginning = beginning(&site, &created);
            found = Some(site);
            Ok(Beginning { core, ..beginning })
        })?;
        let site = found.context("the store did not ask what planes start with")?;
        let keys = Arc::new(StoredKeys::new(store.clone()));
        let pki = Pki::open_with(keys, &directory, hosts, now())?;
        pki.set_serving(serving.to_vec(), now()).context("tls")?;
        Ok(Opened { store, pki: Arc::new(pki), site, resign })
    }

    /// A store of this server alone. One that was shared before has the keys in it: from then on they are in the file, and only there.
    fn open_alone(
        &self,
        directory: &Path,
        hosts: &[String],
        serving: &[ServingFiles],
    ) -> anyhow::Result<Opened> {
        let (created, mut found, mut is_in_store) = (created()?, None, false);
        let (store, resign) = self.store(|core| {
            let stored = core(&StoredKeys::resource(), &StoredKeys::name())?;
            is_in_store = stored.is_some();
            if let Some(record) = stored.filter(|_| !KeyFile::is_there(directory)) {
                let keys = StoredKeys::decode(&record).map_err(failed)?;
                KeyFile::put(directory, &keys).map_err(failed)?;
            }
            let pki = Pki::open(directory, hosts, now()).map_err(failed)?;
            pki.set_serving(serving.to_vec(), now()).map_err(failed)?;
            let site = self.site([pki.ca(), pki.front_proxy_ca()]);
            let beginning = beginning(&site, &created);
            found = Some((pki, site));
            Ok(beginning)
        })?;
        let (pki, site) = found.context("the store did not ask what planes start with")?;
        if is_in_store {
            StoredKeys::new(store.clone()).forget().context("the keys in the store")?;
        }
        Ok(Opened { store, pki: Arc::new(pki), site, resign })
    }

    fn site(&self, [ca, front_proxy_ca]: [String; 2]) -> bootstrap::Site {
        bootstrap::Site { ca: ca.into(), address: Some(self.address), front_proxy_ca: front_proxy_ca.into() }
    }

    fn store(
        &self,
        begin: impl FnMut(&polder_store::CoreLookup<'_>) -> Result<Beginning<'static>, EngineError>,
    ) -> anyhow::Result<(Arc<Store>, Resign)> {
        let mut options = StoreOptions::default();
        if let Some(bytes) = self.configuration.cache_bytes {
            options.cache_bytes_max = bytes;
        }
        if let Some(seconds) = self.configuration.history_seconds {
            options.history = Duration::from_secs(seconds);
        }
        let (engine, resign) = self.storage.engine(self.data_dir, self.keyring.clone())?;
        let store = Store::open_with(engine, options, begin);
        let place = || format!("cannot open the store in {}", self.storage.name(self.data_dir));
        Ok((store.with_context(place)?, resign))
    }
}

fn created() -> anyhow::Result<String> {
    Ok(jiff::Timestamp::from_second(now())?.to_string())
}

fn beginning(site: &bootstrap::Site, created: &str) -> Beginning<'static> {
    let (own, created) = (site.clone(), created.to_owned());
    Beginning {
        digest: bootstrap::digest(site),
        base: Box::new(move |profile, ids| bootstrap::records(profile, &created, &own, ids)),
        core: None,
    }
}

/// Keys for a store that has none. A server that was alone before brings its own.
fn first_keys(directory: &Path) -> Result<Keys, PkiError> {
    match KeyFile::is_there(directory) {
        true => {
            tracing::info!("the keys in {} are put into the store for all replicas", directory.display());
            KeyFile::existing(directory)?.read()
        }
        false => Keys::first(now()),
    }
}

fn failed(error: PkiError) -> EngineError {
    EngineError::Failed(Box::new(error))
}
