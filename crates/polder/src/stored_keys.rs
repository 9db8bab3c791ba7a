//! The server's keys where several replicas are one server: one object of the core plane, of a resource that nobody serves. It is
//! sealed with the encryption key that all replicas have, replaced by compare-and-set, and everybody reads it in the copy they have
//! of the store.

use std::sync::Arc;

use polder_model::{GroupResource, PlaneId, json};
use polder_server::PkiError;
use polder_server::keys::{KeyChange, KeyPlace, Keys};
use polder_store::{Change, CommitError, Expect, Key, ObjectName, Record, Revision, Store};
use tokio::runtime::Handle;

/// How often others may be first.
const ATTEMPTS_MAX: usize = 16;

pub(crate) struct StoredKeys {
    store: Arc<Store>,
    runtime: Handle,
}

impl StoredKeys {
    /// Within a runtime of many threads: whoever reads or changes keys waits there.
    pub(crate) fn new(store: Arc<Store>) -> StoredKeys {
        StoredKeys { store, runtime: Handle::current() }
    }

    /// No definition of a plane can have this name, so nobody comes to serve it: theirs are of small letters.
    pub(crate) fn resource() -> GroupResource {
        GroupResource::new("polder.dev", "ServerKeys")
    }

    pub(crate) fn name() -> ObjectName {
        ObjectName::cluster("server")
    }

    pub(crate) fn encode(keys: &Keys) -> Result<Record, PkiError> {
        let text = keys.to_text()?;
        Ok(Record::encode(&json!({"metadata": {"name": "server"}, "keys": (text.as_str())})))
    }

    pub(crate) fn decode(record: &Record) -> Result<Keys, PkiError> {
        let value = record.to_value(0).map_err(|error| PkiError::Kept(error.to_string().into()))?;
        let keys = value.str_at(&["keys"]).and_then(Keys::from_text);
        keys.ok_or_else(|| {
            PkiError::Kept("the store has keys that this server cannot use: is it older?".into())
        })
    }

    /// They are elsewhere from now on.
    pub(crate) fn forget(&self) -> Result<(), PkiError> {
        let resource = self.store.resource_id(&StoredKeys::resource());
        let key = Key { plane: PlaneId::CORE, resource, name: StoredKeys::name() };
        let forgotten = self.wait(self.store.commit(Change::delete(key, Expect::Anything)));
        forgotten.map(drop).map_err(|error| PkiError::Kept(Box::new(error)))
    }

    async fn stored(&self) -> Result<(Keys, Revision), PkiError> {
        let core = self.store.plane_by_id(PlaneId::CORE);
        let core = core.ok_or_else(|| PkiError::Kept("there is no core plane".into()))?;
        let resource = self.store.resource_id(&StoredKeys::resource());
        let found = self.store.get(&core, resource, &StoredKeys::name()).await;
        let found = found.map_err(|error| PkiError::Kept(Box::new(error)))?;
        let found = found.ok_or_else(|| PkiError::Kept("the store has no keys of the server".into()))?;
        Ok((StoredKeys::decode(&found.record)?, found.revision))
    }

    /// Whether the keys are these now, by our doing.
    async fn replace(&self, keys: &Keys, at: Revision) -> Result<bool, PkiError> {
        let resource = self.store.resource_id(&StoredKeys::resource());
        let key = Key { plane: PlaneId::CORE, resource, name: StoredKeys::name() };
        let change = Change::put(key, StoredKeys::encode(keys)?, Expect::At(at));
        match self.store.commit(change).await {
            Ok(_) => Ok(true),
            Err(CommitError::Conflict { .. }) => Ok(false),
            Err(error) => Err(PkiError::Kept(Box::new(error))),
        }
    }

    /// Whoever needs keys is often a thread of the runtime.
    fn wait<T>(&self, task: impl Future<Output = T>) -> T {
        tokio::task::block_in_place(|| self.runtime.block_on(task))
    }
}

impl KeyPlace for StoredKeys {
    fn read(&self) -> Result<Keys, PkiError> {
        self.wait(async { Ok(self.stored().await?.0) })
    }

    fn change(&self, change: &KeyChange<'_>) -> Result<Keys, PkiError> {
        for _ in 0..ATTEMPTS_MAX {
            let (before, at) = self.wait(self.stored())?;
            let mut keys = before.clone();
            change(&mut keys)?;
            if keys == before || self.wait(self.replace(&keys, at))? {
                return Ok(keys);
            }
        }
        Err(PkiError::Kept("others change the keys all the time".into()))
    }
}
