//! A record, sealed: format byte, nonce, ciphertext, tag, behind the head that says so ([`crate::object`]).
//!
//! It is bound to space, resource, name and revision: moved to another place, or put back after a newer one, it does not open.
//! The resource is named, since replicas number theirs each for itself; records from before have its number.
//! It is not compressed before: the length of what is compressed tells how alike its parts are.

use super::cipher::Cipher;
use polder_model::GroupResource;

use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::Record;

/// Bound to the number of its resource.
const FORMAT_1: u8 = 1;
const FORMAT_2: u8 = 2;

/// Where a version stands.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) space: SpaceId,
    pub(super) resource: (ResourceId, &'a GroupResource),
    pub(super) name: &'a ObjectName,
    pub(super) revision: Revision,
}

impl Place<'_> {
    fn to_bytes(self, format: u8) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(128);
        let (number, resource) = self.resource;
        match format {
            FORMAT_1 => {
                out.extend_from_slice(b"record\0");
                out.extend_from_slice(&self.space.0.to_be_bytes());
                out.extend_from_slice(&number.0.to_be_bytes());
            }
            FORMAT_2 => {
                out.extend_from_slice(b"named record\0");
                out.extend_from_slice(&self.space.0.to_be_bytes());
                out.extend_from_slice(resource.group.as_bytes());
                out.push(0);
                out.extend_from_slice(resource.resource.as_bytes());
                out.push(0);
            }
            _ => return None,
        }
        out.extend_from_slice(&self.revision.0.to_be_bytes());
        out.extend_from_slice(self.name.namespace.as_bytes());
        out.push(0);
        out.extend_from_slice(self.name.name.as_bytes());
        Some(out)
    }
}

/// Whether a sealed record opens where resources have other numbers.
pub(crate) fn is_bound_by_name(sealed: &[u8]) -> bool {
    sealed.first() != Some(&FORMAT_1)
}

/// `None` when the system gives no random bytes.
pub(super) fn seal(cipher: &Cipher, place: Place<'_>, record: &Record) -> Option<Record> {
    let mut out = vec![FORMAT_2];
    cipher.seal(&place.to_bytes(FORMAT_2)?, record.as_bytes(), &mut out)?;
    Some(Record::from_sealed(&out))
}

/// `None` when it does not open here. `sealed` is what [`Record::sealed`] gives.
pub(super) fn open(cipher: &Cipher, place: Place<'_>, sealed: &[u8]) -> Option<Record> {
    let (&format, rest) = sealed.split_first()?;
    let opened = cipher.open(&place.to_bytes(format)?, rest)?;
    Record::from_bytes(opened.into()).ok().filter(|record| !record.is_sealed())
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;
    use crate::sealed::cipher::Secret;

    #[test]
    fn records_open_where_they_belong_and_those_from_before_too() {
        let cipher = Cipher::new(&Secret::random().unwrap());
        let (secrets, others) = (GroupResource::new("", "secrets"), GroupResource::new("a", "secrets"));
        let name = ObjectName::new("default", "a");
        let at = |number, resource| Place {
            space: SpaceId(7),
            resource: (ResourceId(number), resource),
            name: &name,
            revision: Revision(9),
        };
        let record = Record::encode(&json!({"data": {"a": "b"}}));
        let sealed = seal(&cipher, at(1, &secrets), &record).unwrap();
        let sealed = sealed.sealed().unwrap();
        // The same resource, whatever its number is.
        assert_eq!(open(&cipher, at(2, &secrets), sealed).unwrap().as_bytes(), record.as_bytes());
        assert!(open(&cipher, at(1, &others), sealed).is_none());

        let place = at(1, &secrets);
        let mut before = vec![FORMAT_1];
        cipher.seal(&place.to_bytes(FORMAT_1).unwrap(), record.as_bytes(), &mut before).unwrap();
        assert_eq!(open(&cipher, place, &before).unwrap().as_bytes(), record.as_bytes());
        assert!(open(&cipher, at(2, &secrets), &before).is_none());
        before[0] = FORMAT_2;
        assert!(open(&cipher, place, &before).is_none());
        before[0] = 3;
        assert!(open(&cipher, place, &before).is_none());
    }
}
