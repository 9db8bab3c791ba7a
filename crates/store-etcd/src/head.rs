//! What the key `head` holds.

use polder_store::Revision;
use polder_store::bytes::{Input, put_number};
use polder_store::journal::codec::{FORMAT, byte, formatted};

/// What tells entries from each other: who wrote it, and which of its entries it is.
pub(crate) type EntryId = [u8; 16];

/// What the key `head` holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) id: EntryId,
    /// The last commit there is after this entry.
    pub(crate) current: Revision,
    pub(crate) body: HeadBody<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadBody<'a> {
    /// The entry; what its objects say may be in keys of their own.
    Entry(&'a [u8]),
    /// How long the whole entry is that stands in so many pieces.
    Pieces { count: u64, len: u64 },
}

impl Head<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.id);
        put_number(self.current.0, &mut out);
        match self.body {
            HeadBody::Entry(entry) => {
                out.push(0);
                out.extend_from_slice(entry);
            }
            HeadBody::Pieces { count, len } => {
                out.push(1);
                put_number(count, &mut out);
                put_number(len, &mut out);
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Head<'_>> {
        let mut input = Input(formatted(bytes)?);
        let (id, rest) = input.0.split_first_chunk::<16>()?;
        input.0 = rest;
        let current = Revision(input.number()?);
        let body = match byte(&mut input)? {
            0 => HeadBody::Entry(std::mem::take(&mut input.0)),
            1 => HeadBody::Pieces { count: input.number()?, len: input.number()? },
            _ => return None,
        };
        input.end()?;
        Some(Head { id: *id, current, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back() {
        for body in [HeadBody::Entry(b"entry"), HeadBody::Pieces { count: 3, len: 3_000_000 }] {
            let head = Head { id: [7; 16], current: Revision(300), body };
            let bytes = head.encode();
            assert_eq!(Head::decode(&bytes), Some(head));
            assert_eq!(Head::decode(&bytes[..17]), None);
            assert_eq!(Head::decode(&[&[2], &bytes[1..]].concat()), None, "another format");
        }
    }
}
