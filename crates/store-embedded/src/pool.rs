//! Connections to read with. Those of the pool are opened when first needed, never more than a few, and handed from one
//! call to the next. The committer reads with the connection it writes with, whose pages are always the newest.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use polder_store::engine::EngineError;
use rusqlite::Connection;

use crate::database::{self, Purpose};
use crate::value::Opener;

/// Calls are short; who waits this long waits for a disk that does not answer.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Where a read gets its connection.
pub(crate) trait Connections: Send + Sync {
    type Taken<'a>: DerefMut<Target = ReadConnection>
    where
        Self: 'a;

    fn take(&self) -> Result<Self::Taken<'_>, EngineError>;
}

pub(crate) struct ReadPool {
    path: PathBuf,
    cache_bytes: u64,
    connections_max: usize,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    /// The last one returned is taken first: its pages are the warmest.
    idle: Vec<ReadConnection>,
    opened: usize,
}

pub(crate) struct ReadConnection {
    pub(crate) connection: Connection,
    pub(crate) opener: Opener,
}

impl ReadConnection {
    pub(crate) fn new(connection: Connection) -> Result<ReadConnection, EngineError> {
        Ok(ReadConnection { connection, opener: Opener::new()? })
    }
}

/// The connection that writes. Only the committer uses it, so nobody ever waits for it.
#[derive(Clone)]
pub(crate) struct WriteConnection(Arc<Mutex<ReadConnection>>);

impl WriteConnection {
    pub(crate) fn new(connection: Connection) -> Result<WriteConnection, EngineError> {
        Ok(WriteConnection(Arc::new(Mutex::new(ReadConnection::new(connection)?))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ReadConnection> {
        self.0.lock()
    }
}

impl Connections for WriteConnection {
    type Taken<'a> = MutexGuard<'a, ReadConnection>;

    fn take(&self) -> Result<MutexGuard<'_, ReadConnection>, EngineError> {
        Ok(self.lock())
    }
}

/// A connection that goes back to the pool.
pub(crate) struct Borrowed<'a> {
    pool: &'a ReadPool,
    connection: Option<ReadConnection>,
}

impl ReadPool {
    pub(crate) fn new(path: PathBuf, connections_max: usize, cache_bytes: u64) -> ReadPool {
        let connections_max = connections_max.max(1);
        ReadPool { path, cache_bytes, connections_max, state: Mutex::default(), returned: Condvar::new() }
    }

    pub(crate) fn take(&self) -> Result<Borrowed<'_>, EngineError> {
        let mut state = self.state.lock();
        loop {
            if let Some(connection) = state.idle.pop() {
                return Ok(Borrowed { pool: self, connection: Some(connection) });
            }
            if state.opened < self.connections_max {
                state.opened += 1;
                drop(state);
                return match self.open() {
                    Ok(connection) => Ok(Borrowed { pool: self, connection: Some(connection) }),
                    Err(error) => {
                        self.give_up();
                        Err(error)
                    }
                };
            }
            if self.returned.wait_for(&mut state, WAIT_MAX).timed_out() {
                return Err(EngineError::Failed("no read connection became free".into()));
            }
        }
    }

    fn open(&self) -> Result<ReadConnection, EngineError> {
        let connection = database::open(&self.path, Purpose::Read, self.cache_bytes)
            .map_err(|error| EngineError::Failed(error.into()))?;
        ReadConnection::new(connection)
    }

    fn give_up(&self) {
        self.state.lock().opened -= 1;
        self.returned.notify_one();
    }
}

impl Connections for Arc<ReadPool> {
    type Taken<'a> = Borrowed<'a>;

    fn take(&self) -> Result<Borrowed<'_>, EngineError> {
        ReadPool::take(self)
    }
}

impl Deref for Borrowed<'_> {
    type Target = ReadConnection;

    fn deref(&self) -> &ReadConnection {
        self.connection.as_ref().expect("it is only taken in drop")
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut ReadConnection {
        self.connection.as_mut().expect("it is only taken in drop")
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        match self.connection.take() {
            // One that is still in a transaction would pin the WAL for ever.
            Some(connection) if connection.connection.is_autocommit() => {
                self.pool.state.lock().idle.push(connection);
                self.pool.returned.notify_one();
            }
            _ => self.pool.give_up(),
        }
    }
}
