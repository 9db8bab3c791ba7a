//! The log: one row for each commit, chained by checksums.
//!
//! A row is `checksum of the row before | checksum of this row | entries`. It can be verified alone, and with its
//! neighbor: a missing, repeated or replaced commit breaks the chain. A commit that changed no object has a row too,
//! so that revisions are dense.

use crc32fast::Hasher;
use polder_model::PlaneId;
use polder_store::engine::{EngineError, LogEntry};
use polder_store::{ObjectName, ResourceId, Revision, SpaceId};

use polder_store::bytes::{Input, put_number, put_text};

/// The checksum of the last row of a history: a fingerprint of all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain(pub(crate) u32);

const DELETED: u64 = 1;
const REPLACES_SAME_SPACE: u64 = 2;
const REPLACES_OTHER_SPACE: u64 = 4;
/// The plane's commit before this one is known. Not in format 1.
const HAS_BEFORE: u64 = 8;

/// Builds one row.
pub(crate) struct CommitRow {
    revision: Revision,
    before: Chain,
    bytes: Vec<u8>,
}

impl CommitRow {
    pub(crate) fn new(revision: Revision, before: Chain, mut buffer: Vec<u8>) -> CommitRow {
        buffer.clear();
        buffer.extend_from_slice(&before.0.to_le_bytes());
        buffer.extend_from_slice(&[0; 4]);
        CommitRow { revision, before, bytes: buffer }
    }

    /// Adds an entry, with the checksum of the value it wrote.
    pub(crate) fn push(&mut self, entry: &LogEntry, value_checksum: u32) {
        let out = &mut self.bytes;
        let mut flags = if entry.deleted { DELETED } else { 0 };
        flags |= match entry.previous {
            None => 0,
            Some((space, _)) if space == entry.space => REPLACES_SAME_SPACE,
            Some(_) => REPLACES_OTHER_SPACE,
        };
        if entry.before.is_some() {
            flags |= HAS_BEFORE;
        }
        put_number(flags, out);
        put_number(entry.plane.0, out);
        put_number(entry.space.0, out);
        put_number(u64::from(entry.resource.0), out);
        if let Some((space, revision)) = entry.previous {
            if space != entry.space {
                put_number(space.0, out);
            }
            put_number(revision.0, out);
        }
        if let Some(before) = entry.before {
            // The distance is shorter than the number.
            put_number(self.revision.0.saturating_sub(before.0), out);
        }
        put_text(&entry.name.namespace, out);
        put_text(&entry.name.name, out);
        out.extend_from_slice(&value_checksum.to_le_bytes());
    }

    /// The row's bytes and the chain up to it.
    pub(crate) fn finish(mut self) -> (Vec<u8>, Chain) {
        let checksum = checksum(self.revision, self.before, &self.bytes[8..]);
        self.bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        (self.bytes, Chain(checksum))
    }
}

/// A verified row.
pub(crate) struct Commit<'a> {
    revision: Revision,
    pub(crate) before: Chain,
    pub(crate) chain: Chain,
    input: Input<'a>,
}

impl<'a> Commit<'a> {
    pub(crate) fn open(revision: Revision, row: &'a [u8]) -> Result<Commit<'a>, EngineError> {
        let mut input = Input(row);
        let head = input.fixed_u32().zip(input.fixed_u32());
        let Some((before, chain)) = head.map(|(before, chain)| (Chain(before), Chain(chain))) else {
            return Err(damaged(revision, "the row is too short"));
        };
        if checksum(revision, before, input.0) != chain.0 {
            return Err(damaged(revision, "the checksum does not match"));
        }
        Ok(Commit { revision, before, chain, input })
    }

    /// The next entry and the checksum of the value it wrote.
    pub(crate) fn next(&mut self) -> Result<Option<(LogEntry, u32)>, EngineError> {
        if self.input.end().is_some() {
            return Ok(None);
        }
        self.decode().map(Some).ok_or_else(|| damaged(self.revision, "an entry cannot be decoded"))
    }

    fn decode(&mut self) -> Option<(LogEntry, u32)> {
        let input = &mut self.input;
        let flags = input.number()?;
        let plane = PlaneId(input.number()?);
        let space = SpaceId(input.number()?);
        let resource = ResourceId(input.number_u32()?);
        let previous = match flags & (REPLACES_SAME_SPACE | REPLACES_OTHER_SPACE) {
            0 => None,
            REPLACES_SAME_SPACE => Some((space, Revision(input.number()?))),
            REPLACES_OTHER_SPACE => Some((SpaceId(input.number()?), Revision(input.number()?))),
            _ => return None,
        };
        let before = match flags & HAS_BEFORE {
            0 => None,
            _ => Some(Revision(self.revision.0.checked_sub(input.number()?)?)),
        };
        let name = ObjectName { namespace: input.text()?, name: input.text()? };
        let value_checksum = input.fixed_u32()?;
        let deleted = flags & DELETED != 0;
        let entry =
            LogEntry { revision: self.revision, plane, space, resource, name, deleted, previous, before };
        Some((entry, value_checksum))
    }
}

fn checksum(revision: Revision, before: Chain, entries: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&revision.0.to_be_bytes());
    hasher.update(&before.0.to_be_bytes());
    hasher.update(entries);
    hasher.finalize()
}

fn damaged(revision: Revision, what: &str) -> EngineError {
    EngineError::Damaged(format!("commit {revision} in the log: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_come_back_and_every_flipped_bit_is_damage() {
        let entry = |name: &str, deleted, previous| LogEntry {
            revision: Revision(300),
            plane: PlaneId(1),
            space: SpaceId(2),
            resource: ResourceId(3),
            name: ObjectName::new("default", name),
            deleted,
            previous,
            before: None,
        };
        let entries = [
            entry("a", false, None),
            entry("b", true, Some((SpaceId(2), Revision(299)))),
            entry("c", false, Some((SpaceId(1), Revision(1)))),
            LogEntry { before: Some(Revision(0)), ..entry("d", false, None) },
            LogEntry { before: Some(Revision(299)), ..entry("e", true, Some((SpaceId(1), Revision(1)))) },
        ];
        let mut row = CommitRow::new(Revision(300), Chain(77), Vec::new());
        for (index, entry) in (0..).zip(&entries) {
            row.push(entry, index);
        }
        let (bytes, chain) = row.finish();
        let mut commit = Commit::open(Revision(300), &bytes).unwrap();
        assert_eq!((commit.before, commit.chain), (Chain(77), chain));
        let mut found = Vec::new();
        while let Some((entry, checksum)) = commit.next().unwrap() {
            assert_eq!(checksum as usize, found.len());
            found.push(entry);
        }
        assert_eq!(found, entries);

        assert!(Commit::open(Revision(301), &bytes).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Commit::open(Revision(300), &flipped).is_err(), "{bit}");
        }
    }
}
