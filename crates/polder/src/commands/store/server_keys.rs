//! The server's own keys when a store goes elsewhere: without them nobody's token or certificate is good there.
//!
//! Alone, a server has them in a file, and a backup has them beside the store, sealed. Where several share a store, they are in it
//! (ADR 0020); a server that finds them there and is alone takes them out (`polder::opening`).

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use polder_server::keys::{KeyFile, Keys};
use polder_store::sealed::Keyring;

use super::say;

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
    if !KeyFile::is_there(&directory) {
        return Ok(KeyFile::put(&directory, keys)?);
    }
    match KeyFile::existing(&directory)?.read()? == *keys {
        true => Ok(()),
        false => say(&format!(
            "{} has other keys than the backup, and keeps them: credentials of before are not good with them",
            directory.display()
        )),
    }
}
