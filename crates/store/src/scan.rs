//! Reading through a stack of spaces: the overlay of a plane and the layers below it, as one sorted collection.
//!
//! However many spaces there are and however large their objects, a scan holds a few MiB: what it reads ahead is
//! divided among the spaces, and of the next object of a space too heavy for that only the name is kept.

use std::sync::Arc;

use crate::engine::{EngineError, Reader, Scan, Version};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::StoredObject;

/// Objects read from the engine at once while listing.
const SCAN_CHUNK_LEN: usize = 512;
/// Bytes read ahead at once, in all spaces together.
const SCAN_BYTES: usize = 1 << 20;
/// Bytes read ahead in one space, when there are many.
const SPACE_BYTES_MIN: usize = 8 << 10;
/// What all spaces together may hold, when even one object a space is too much.
const HELD_BYTES_MAX: usize = 4 << 20;

/// Objects of a stack of spaces in name order, upper spaces hiding lower ones.
pub(crate) struct StackScan<'a> {
    reader: &'a dyn Reader,
    resource: ResourceId,
    namespace: Option<&'a str>,
    at: Revision,
    spaces: Vec<SpaceCursor>,
    chunk_len: usize,
    chunk_bytes: usize,
    /// What the buffers weigh.
    held_bytes: usize,
}

struct SpaceCursor {
    space: SpaceId,
    /// The next objects, in reverse order.
    buffer: Vec<(ObjectName, Ahead)>,
    after: Option<ObjectName>,
    done: bool,
}

/// A version that has been read ahead.
enum Ahead {
    Here(Version),
    /// Too heavy to be kept: it is read again when its turn comes.
    Later,
}

impl<'a> StackScan<'a> {
    pub(crate) fn new(
        reader: &'a dyn Reader,
        stack: &[SpaceId],
        resource: ResourceId,
        namespace: Option<&'a str>,
        after: Option<ObjectName>,
        at: Revision,
    ) -> StackScan<'a> {
        let cursor = |&space| SpaceCursor { space, buffer: Vec::new(), after: after.clone(), done: false };
        let spaces = stack.iter().map(cursor).collect();
        let (chunk_len, chunk_bytes) = (SCAN_CHUNK_LEN, SCAN_BYTES);
        StackScan { reader, resource, namespace, at, spaces, chunk_len, chunk_bytes, held_bytes: 0 }
    }

    /// For whoever needs only a few objects, or only a few bytes.
    pub(crate) fn set_chunk(&mut self, len: usize, bytes: usize) {
        self.chunk_len = len.clamp(1, SCAN_CHUNK_LEN);
        self.chunk_bytes = bytes.clamp(1, SCAN_BYTES);
    }

    pub(crate) fn next(&mut self) -> Result<Option<Arc<StoredObject>>, EngineError> {
        while let Some((name, version, space)) = self.next_version()? {
            if let Some(record) = version.record {
                return Ok(Some(Arc::new(StoredObject { name, revision: version.revision, space, record })));
            }
        }
        Ok(None)
    }

    /// The next name that any space knows, deleted or not, and the space that decides.
    pub(crate) fn next_version(&mut self) -> Result<Option<(ObjectName, Version, SpaceId)>, EngineError> {
        loop {
            for index in 0..self.spaces.len() {
                self.fill(index)?;
            }
            // Most layers of a tall stack are small and soon read to their end.
            self.spaces.retain(|cursor| !cursor.buffer.is_empty());
            let heads = self.spaces.iter().enumerate();
            let first =
                heads.filter_map(|(index, cursor)| cursor.buffer.last().map(|(name, _)| (name, index))).min();
            let Some((_, index)) = first else { return Ok(None) };
            let space = self.spaces[index].space;
            let Some((name, ahead)) = self.take(index) else { return Ok(None) };
            for lower in index + 1..self.spaces.len() {
                if self.spaces[lower].buffer.last().is_some_and(|(own, _)| *own == name) {
                    self.take(lower);
                }
            }
            let version = match ahead {
                Ahead::Here(version) => Some(version),
                Ahead::Later => self.reader.version(space, self.resource, &name, self.at)?,
            };
            // What is gone meanwhile was being compacted away: whoever scans asks afterwards whether that matters.
            if let Some(version) = version {
                return Ok(Some((name, version, space)));
            }
        }
    }

    fn take(&mut self, index: usize) -> Option<(ObjectName, Ahead)> {
        let taken = self.spaces[index].buffer.pop();
        if let Some((_, Ahead::Here(version))) = &taken {
            self.held_bytes -= version.len();
        }
        taken
    }

    fn fill(&mut self, index: usize) -> Result<(), EngineError> {
        let share = (SCAN_BYTES / self.spaces.len()).max(SPACE_BYTES_MIN);
        let bytes_max = self.chunk_bytes.min(share);
        let cursor = &mut self.spaces[index];
        if cursor.done || !cursor.buffer.is_empty() {
            return Ok(());
        }
        let objects = self.reader.scan(&Scan {
            space: cursor.space,
            resource: self.resource,
            namespace: self.namespace,
            after: cursor.after.as_ref(),
            at: self.at,
            limit: self.chunk_len,
            bytes_max,
        })?;
        let bytes: usize = objects.iter().map(|(_, version)| version.len()).sum();
        cursor.done = objects.len() < self.chunk_len && bytes < bytes_max;
        cursor.after = objects.last().map(|(name, _)| name.clone());
        let fits = self.held_bytes + bytes <= HELD_BYTES_MAX;
        if fits {
            self.held_bytes += bytes;
        }
        let ahead = |version| if fits { Ahead::Here(version) } else { Ahead::Later };
        cursor.buffer = objects.into_iter().rev().map(|(name, version)| (name, ahead(version))).collect();
        Ok(())
    }
}
