//! A store to be looked at and not changed.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use polder_store::engine::{Reader, Recovered};

use crate::database::{self, Purpose};
use crate::engine::{self, lock};
use crate::error::OpenError;
use crate::pool::WriteConnection;
use crate::reader::Reads;

/// A store that is looked at.
pub struct AtRest {
    connection: WriteConnection,
    recovered: Recovered,
    _lock: Option<File>,
}

impl AtRest {
    /// A store that no server uses, nor can use meanwhile. Changes nothing. What [`crate::verify()`] finds wrong is not looked for
    /// here.
    pub fn open(directory: &Path) -> Result<AtRest, OpenError> {
        let path = directory.join(database::FILE_NAME);
        path.metadata().map_err(OpenError::io("open", &path))?;
        let lock = lock(directory)?;
        AtRest::with(&path, Purpose::Verify, Some(lock))
    }

    /// A store that a server may be using.
    pub fn peek(directory: &Path) -> Result<AtRest, OpenError> {
        let path = directory.join(database::FILE_NAME);
        path.metadata().map_err(OpenError::io("open", &path))?;
        AtRest::with(&path, Purpose::Read, None)
    }

    fn with(path: &Path, purpose: Purpose, lock: Option<File>) -> Result<AtRest, OpenError> {
        let connection = database::open(path, purpose, 16 << 20)?;
        let recovered = engine::recover(&connection).map_err(|error| OpenError::engine(path, error))?;
        let connection = WriteConnection::new(connection).map_err(|error| OpenError::engine(path, error))?;
        Ok(AtRest { connection, recovered, _lock: lock })
    }

    /// Planes, spaces, resources and notes. Of revisions it tells nothing.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    pub fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(Reads(self.connection.clone()))
    }
}
