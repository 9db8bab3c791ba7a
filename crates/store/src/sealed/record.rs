//! A record, sealed: format byte, nonce, ciphertext, tag, behind the head that says so ([`crate::object`]).
//!
//! It is bound to space, resource, name and revision: moved to another place, or put back after a newer one, it does not open.
//! It is not compressed before: the length of what is compressed tells how alike its parts are.

use super::cipher::Cipher;
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::Record;

const FORMAT_1: u8 = 1;

/// Where a version stands.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) space: SpaceId,
    pub(super) resource: ResourceId,
    pub(super) name: &'a ObjectName,
    pub(super) revision: Revision,
}

impl Place<'_> {
    fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        out.extend_from_slice(b"record\0");
        out.extend_from_slice(&self.space.0.to_be_bytes());
        out.extend_from_slice(&self.resource.0.to_be_bytes());
        out.extend_from_slice(&self.revision.0.to_be_bytes());
        out.extend_from_slice(self.name.namespace.as_bytes());
        out.push(0);
        out.extend_from_slice(self.name.name.as_bytes());
        out
    }
}

/// `None` when the system gives no random bytes.
pub(super) fn seal(cipher: &Cipher, place: Place<'_>, record: &Record) -> Option<Record> {
    let mut out = vec![FORMAT_1];
    cipher.seal(&place.to_bytes(), record.as_bytes(), &mut out)?;
    Some(Record::from_sealed(&out))
}

/// `None` when it does not open here. `sealed` is what [`Record::sealed`] gives.
pub(super) fn open(cipher: &Cipher, place: Place<'_>, sealed: &[u8]) -> Option<Record> {
    let (&FORMAT_1, rest) = sealed.split_first()? else { return None };
    let opened = cipher.open(&place.to_bytes(), rest)?;
    Record::from_bytes(opened.into()).ok().filter(|record| !record.is_sealed())
}
