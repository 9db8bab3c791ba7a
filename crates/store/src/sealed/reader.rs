//! The reading side: opens what is sealed, leaves the rest as it is.

use std::sync::Arc;

use super::keyring::Keyring;
use super::record::{self, Place};
use crate::engine::{EngineError, FilledVersion, LogEntry, Reader, Scan, SpaceKey, Version};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::Record;

/// A reader around a reader.
pub struct SealedReader {
    inner: Arc<dyn Reader>,
    keyring: Arc<Keyring>,
}

/// The key of the space is not there.
struct Keyless;

impl SealedReader {
    pub fn new(inner: Arc<dyn Reader>, keyring: Arc<Keyring>) -> SealedReader {
        SealedReader { inner, keyring }
    }

    fn open(
        &self,
        space: SpaceId,
        resource: ResourceId,
        name: &ObjectName,
        version: &mut Version,
    ) -> Result<Result<(), Keyless>, EngineError> {
        let Some(sealed) = version.record.as_ref().and_then(Record::sealed) else { return Ok(Ok(())) };
        let Some(cipher) = self.keyring.data_key(&*self.inner, space)? else { return Ok(Err(Keyless)) };
        let resource_name = self.keyring.name_of(resource)?;
        let place = Place { space, resource: (resource, &resource_name), name, revision: version.revision };
        let opened = record::open(&cipher, place, sealed).ok_or_else(|| {
            EngineError::Damaged(format!(
                "space {}, resource {}, {name} at revision {}: it does not open with the key of its space",
                space.0, resource.0, version.revision
            ))
        })?;
        version.record = Some(opened);
        Ok(Ok(()))
    }

    /// Reads and opens. What is found of a space without a key belongs to one that was dropped meanwhile: it is as good as gone, and
    /// soon is. Found again in a space that nobody dropped, it is damaged.
    fn read<T: Default>(
        &self,
        space: SpaceId,
        read: impl Fn() -> Result<T, EngineError>,
        open: impl Fn(&mut T) -> Result<Result<(), Keyless>, EngineError>,
    ) -> Result<T, EngineError> {
        for _ in 0..2 {
            let mut found = read()?;
            if open(&mut found)?.is_ok() {
                return Ok(found);
            }
            drop(self.keyring.following());
            if self.keyring.dropped().contains(&space) {
                return Ok(T::default());
            }
        }
        Err(EngineError::Damaged(format!("space {} has sealed records, and no key", space.0)))
    }
}

impl Reader for SealedReader {
    fn version(
        &self,
        space: SpaceId,
        resource: ResourceId,
        name: &ObjectName,
        at: Revision,
    ) -> Result<Option<Version>, EngineError> {
        self.read(
            space,
            || self.inner.version(space, resource, name, at),
            |found| match found {
                Some(version) => self.open(space, resource, name, version),
                None => Ok(Ok(())),
            },
        )
    }

    fn scan(&self, scan: &Scan<'_>) -> Result<Vec<(ObjectName, Version)>, EngineError> {
        self.read(
            scan.space,
            || self.inner.scan(scan),
            |found| {
                for (name, version) in found {
                    if let Err(keyless) = self.open(scan.space, scan.resource, name, version)? {
                        return Ok(Err(keyless));
                    }
                }
                Ok(Ok(()))
            },
        )
    }

    fn versions(
        &self,
        space: SpaceId,
        resource: ResourceId,
        after: Option<(&ObjectName, Revision)>,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<FilledVersion>, EngineError> {
        self.read(
            space,
            || self.inner.versions(space, resource, after, limit, bytes_max),
            |found| {
                for FilledVersion { name, version, .. } in found {
                    if let Err(keyless) = self.open(space, resource, name, version)? {
                        return Ok(Err(keyless));
                    }
                }
                Ok(Ok(()))
            },
        )
    }

    fn is_empty(&self, space: SpaceId) -> Result<bool, EngineError> {
        self.inner.is_empty(space)
    }

    fn commit(&self, revision: Revision) -> Result<Vec<LogEntry>, EngineError> {
        self.inner.commit(revision)
    }

    fn log(&self, after: Revision, limit: usize) -> Result<Vec<LogEntry>, EngineError> {
        self.inner.log(after, limit)
    }

    fn next_place(
        &self,
        space: SpaceId,
        resource: ResourceId,
        after: Option<(&ObjectName, Revision)>,
    ) -> Result<Option<(ObjectName, Revision)>, EngineError> {
        self.inner.next_place(space, resource, after)
    }

    fn next_key(&self, after: Option<SpaceId>) -> Result<Option<SpaceId>, EngineError> {
        self.inner.next_key(after)
    }

    fn key(&self, space: SpaceId) -> Result<Option<Arc<[u8]>>, EngineError> {
        self.inner.key(space)
    }

    fn keys(&self, after: Option<SpaceId>, limit: usize) -> Result<Vec<SpaceKey>, EngineError> {
        self.inner.keys(after, limit)
    }
}
