//! Reading through a stack of spaces: the overlay of a plane and the layers below it, as one sorted collection.

use std::sync::Arc;

use crate::engine::{EngineError, Scan, Version};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::StoredObject;
use crate::shared::Shared;

/// Objects read from the engine at once while listing.
pub(crate) const SCAN_CHUNK_LEN: usize = 512;

/// Objects of a stack of spaces in name order, upper spaces hiding lower ones.
pub(crate) struct StackScan<'a> {
    shared: &'a Shared,
    resource: ResourceId,
    namespace: Option<&'a str>,
    at: Revision,
    spaces: Vec<SpaceCursor>,
    chunk_len: usize,
}

struct SpaceCursor {
    space: SpaceId,
    /// The next objects, in reverse order.
    buffer: Vec<(ObjectName, Version)>,
    after: Option<ObjectName>,
    done: bool,
}

impl<'a> StackScan<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        stack: &[SpaceId],
        resource: ResourceId,
        namespace: Option<&'a str>,
        after: Option<ObjectName>,
        at: Revision,
    ) -> StackScan<'a> {
        let cursor = |&space| SpaceCursor { space, buffer: Vec::new(), after: after.clone(), done: false };
        let spaces = stack.iter().map(cursor).collect();
        StackScan { shared, resource, namespace, at, spaces, chunk_len: SCAN_CHUNK_LEN }
    }

    /// For whoever needs only a few objects.
    pub(crate) fn set_chunk_len(&mut self, chunk_len: usize) {
        self.chunk_len = chunk_len;
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
        let Some((name, version)) = self.spaces[index].buffer.pop() else { return Ok(None) };
        for lower in &mut self.spaces[index + 1..] {
            if lower.buffer.last().is_some_and(|(own, _)| *own == name) {
                lower.buffer.pop();
            }
        }
        Ok(Some((name, version, space)))
    }

    fn fill(&mut self, index: usize) -> Result<(), EngineError> {
        let cursor = &mut self.spaces[index];
        if cursor.done || !cursor.buffer.is_empty() {
            return Ok(());
        }
        let mut objects = self.shared.reader.scan(&Scan {
            space: cursor.space,
            resource: self.resource,
            namespace: self.namespace,
            after: cursor.after.as_ref(),
            at: self.at,
            limit: self.chunk_len,
        })?;
        cursor.done = objects.len() < self.chunk_len;
        cursor.after = objects.last().map(|(name, _)| name.clone());
        objects.reverse();
        cursor.buffer = objects;
        Ok(())
    }
}
