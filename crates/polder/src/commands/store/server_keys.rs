//! The server's own keys when a store goes elsewhere: without them nobody's token or certificate is good there.
//!
//! Alone, a server has them in a file; where several share a store, they are in it (ADR 0020).

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use polder_model::PlaneId;
use polder_server::keys::{KeyFile, Keys};
use polder_store::Revision;
use polder_store::engine::Reader as _;
use polder_store::sealed::{Keyring, SealedReader};
use polder_store_embedded::AtRest;

use super::say;
use crate::stored_keys::StoredKeys;

const DIRECTORY: &str = "pki";

/// Those in the file of a data directory, for a backup.
pub(super) fn sealed(data_dir: &Path, keyring: &Keyring) -> anyhow::Result<Arc<[u8]>> {
    let keys = KeyFile::existing(&data_dir.join(DIRECTORY))?.read()?.to_text()?;
    Ok(keyring.seal_apart(keys.as_bytes()).context("cannot seal the server's keys")?.into())
}

/// Those of a backup, if they are beside its store.
pub(super) fn opened(attached: &[u8], keyring: &Keyring) -> anyhow::Result<Option<Keys>> {
    if attached.is_empty() {
        return Ok(None);
    }
    let text = keyring.open_apart(attached).context("its encryption key is not here")?;
    let keys = std::str::from_utf8(&text).ok().and_then(Keys::from_text);
    keys.context("the server's keys in it cannot be used: is this polder older?").map(Some)
}

/// Puts keys into the file of a data directory. What is there stays.
pub(super) fn put(data_dir: &Path, keys: &Keys) -> anyhow::Result<()> {
    let directory = data_dir.join(DIRECTORY);
    if directory.join("keys.json").exists() {
        return match KeyFile::existing(&directory)?.read()? == *keys {
            true => Ok(()),
            false => say(&format!(
                "{} has other keys than the backup, and keeps them: credentials of before are not good with them",
                directory.display()
            )),
        };
    }
    Ok(KeyFile::put(&directory, keys)?)
}

/// Puts those that are in a store into the file of a data directory.
pub(super) fn take_out(store: &Path, data_dir: &Path, keyring: &Arc<Keyring>) -> anyhow::Result<()> {
    match found(store, keyring).context("the server's keys cannot be read from the store")? {
        Some(keys) => put(data_dir, &keys),
        None => Ok(()),
    }
}

fn found(store: &Path, keyring: &Arc<Keyring>) -> anyhow::Result<Option<Keys>> {
    let store = AtRest::open(store)?;
    let recovered = store.recovered();
    keyring.open(&recovered.notes)?;
    keyring.learn(&recovered.resources);
    let resource = recovered.resources.iter().find(|(_, name)| *name == StoredKeys::resource());
    let core = recovered.planes.iter().find(|row| row.id == PlaneId::CORE);
    let (Some((resource, _)), Some(core)) = (resource, core) else { return Ok(None) };
    let reader = SealedReader::new(store.reader(), keyring.clone());
    let mut space = Some(core.space);
    while let Some(id) = space {
        if let Some(version) = reader.version(id, *resource, &StoredKeys::name(), Revision::NEWEST)? {
            return Ok(version.record.map(|record| StoredKeys::decode(&record)).transpose()?);
        }
        space = recovered.spaces.iter().find(|row| row.id == id).and_then(|row| row.parent);
    }
    Ok(None)
}
