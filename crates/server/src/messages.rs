//! Objects in protobuf, kept for a while. They are stored as JSON, which is copied into JSON answers and must be read and
//! written anew for these; and nearly all programs that are written in Go ask for these, for the same objects again and again.
//!
//! Invariant: what is kept is of one version of one object, so it is never stale; and all of it takes a bounded room.

use bytes::Bytes;
use parking_lot::Mutex;
use polder_machinery::protobuf::envelope::encode_part;
use polder_model::{Recent, Status};
use polder_registry::{Registry, RequestContext, Target, VersionKey};
use polder_store::StoredObject;

use crate::protobuf;

/// What messages may take.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// What is longer is not kept: it would drive out all others.
const MESSAGE_BYTES_MAX: usize = BYTES_MAX / 64;
/// What a place among the others takes beside the message: its key, twice where the table grows, and its counts.
const PLACE_BYTES: usize = 2 * size_of::<(VersionKey, Bytes, usize)>() + 4 * size_of::<usize>();

pub(crate) struct Messages(Mutex<Recent<VersionKey, Bytes>>);

impl Default for Messages {
    fn default() -> Messages {
        Messages(Mutex::new(Recent::new(BYTES_MAX)))
    }
}

impl Messages {
    /// A whole object as a part of a list or an envelope. Only for kinds that have a message, whose state is all stored.
    pub(crate) fn part(
        &self,
        registry: &Registry,
        context: &RequestContext,
        target: &Target,
        stored: &StoredObject,
    ) -> Result<Bytes, Status> {
        let resource_version = context.plane.resource_version(stored.revision);
        let resource = target.definition.resource_id;
        let key = VersionKey::new(context.plane.id, resource, target.version, resource_version, stored);
        if let Some(found) = self.0.lock().get(&key) {
            return Ok(found);
        }
        let value = registry.to_client(context, target, stored)?;
        let message = protobuf::message(&value).ok_or_else(protobuf::no_message)?;
        let mut out = Vec::with_capacity(stored.record.len());
        encode_part(&value, message, &mut out);
        let part = Bytes::from(out.into_boxed_slice());
        if part.len() <= MESSAGE_BYTES_MAX {
            let weight = PLACE_BYTES + key.heap_bytes() + part.len();
            let dropped = self.0.lock().insert(key, part.clone(), weight);
            drop(dropped);
        }
        Ok(part)
    }
}
