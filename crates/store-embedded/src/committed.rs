//! `COMMITTED`: how far the store is known to be durable, outside of the database.
//!
//! SQLite takes the first WAL frame that does not verify for the end of the WAL. That is right for a torn tail and
//! silently wrong for damage in the middle: acknowledged commits behind it would vanish, or, if a checkpoint has copied
//! some of them already, old pages from the WAL would hide newer ones in the database. So after each commit's own
//! fsync its revision and its place in the WAL are noted here, by one small write without fsync; the checkpointer
//! and a clean close sync it. The file can therefore be behind the database but never ahead of it, and a database or WAL
//! that is behind this file has lost something.
//!
//! Two slots in different sectors are written in turn, so that a torn write leaves the other one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use polder_store::Revision;

use crate::log::Chain;
use crate::wal::WalPosition;
use polder_store::bytes::Input;

pub(crate) const FILE_NAME: &str = "COMMITTED";

const MAGIC: &[u8; 8] = b"polderC1";
const SLOT_LEN: usize = 40;
const CHECKED_LEN: usize = SLOT_LEN - 4;
const SLOT_DISTANCE: usize = 512;

/// A point of the history: a commit, and the checksum of everything up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) revision: Revision,
    pub(crate) chain: Chain,
}

/// What one slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) mark: Mark,
    /// What of the WAL is needed to have all of it.
    pub(crate) wal: WalPosition,
}

/// What the file says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// There is no such file.
    Nothing,
    Note(Note),
    /// There is a file, but neither slot can be read.
    Unreadable,
}

/// Reads without writing anything.
pub(crate) fn read(directory: &Path) -> io::Result<Known> {
    let mut bytes = Vec::new();
    match File::open(directory.join(FILE_NAME)) {
        Ok(file) => file.take(4 * SLOT_DISTANCE as u64).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Known::Nothing),
        Err(error) => return Err(error),
    };
    let newest = [0, SLOT_DISTANCE]
        .into_iter()
        .filter_map(|at| decode(bytes.get(at..at + SLOT_LEN)?))
        .max_by_key(|(sequence, _)| *sequence);
    Ok(newest.map_or(Known::Unreadable, |(_, note)| Known::Note(note)))
}

/// The open file, owned by the writer.
pub(crate) struct CommittedFile {
    file: File,
    sequence: u64,
}

impl CommittedFile {
    /// Makes the file, or opens it, with `note` in both slots.
    pub(crate) fn open(directory: &Path, note: Note) -> io::Result<CommittedFile> {
        let path = directory.join(FILE_NAME);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut before = vec![0; SLOT_DISTANCE + SLOT_LEN];
        let len = file.read_at(&mut before, 0)?;
        let sequence = [0, SLOT_DISTANCE]
            .into_iter()
            .filter_map(|at| decode(before[..len].get(at..at + SLOT_LEN)?))
            .map(|(sequence, _)| sequence)
            .max()
            .unwrap_or(0);
        let mut committed = CommittedFile { file, sequence };
        committed.write(note)?;
        committed.file.sync_data()?;
        committed.write(note)?;
        committed.file.sync_all()?;
        File::open(directory)?.sync_all()?;
        Ok(committed)
    }

    /// Notes what is durable already.
    pub(crate) fn write(&mut self, note: Note) -> io::Result<()> {
        self.sequence += 1;
        let at = SLOT_DISTANCE as u64 * (self.sequence % 2);
        self.file.write_all_at(&encode(self.sequence, note), at)
    }

    /// Another handle, for syncing it from another thread.
    pub(crate) fn try_clone(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn encode(sequence: u64, note: Note) -> [u8; SLOT_LEN] {
    let mut slot = [0; SLOT_LEN];
    slot[..8].copy_from_slice(MAGIC);
    slot[8..16].copy_from_slice(&sequence.to_le_bytes());
    slot[16..24].copy_from_slice(&note.mark.revision.0.to_le_bytes());
    slot[24..28].copy_from_slice(&note.mark.chain.0.to_le_bytes());
    slot[28..32].copy_from_slice(&note.wal.generation.to_le_bytes());
    slot[32..36].copy_from_slice(&note.wal.frames.to_le_bytes());
    let checksum = crc32fast::hash(&slot[..CHECKED_LEN]);
    slot[CHECKED_LEN..].copy_from_slice(&checksum.to_le_bytes());
    slot
}

fn decode(slot: &[u8]) -> Option<(u64, Note)> {
    let (checked, checksum) = slot.split_at_checked(CHECKED_LEN)?;
    let mut input = Input(checked.strip_prefix(MAGIC)?);
    let sequence = input.fixed_u64()?;
    let mark = Mark { revision: Revision(input.fixed_u64()?), chain: Chain(input.fixed_u32()?) };
    let wal = WalPosition { generation: input.fixed_u32()?, frames: input.fixed_u32()? };
    let fits = Input(checksum).fixed_u32() == Some(crc32fast::hash(checked));
    fits.then_some((sequence, Note { mark, wal }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_readable_slot_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(read(path).unwrap(), Known::Nothing);
        let note = |revision: u32| Note {
            mark: Mark { revision: Revision(revision.into()), chain: Chain(revision) },
            wal: WalPosition { generation: 3, frames: revision },
        };
        CommittedFile::open(path, note(4)).unwrap();
        let mut file = CommittedFile::open(path, note(5)).unwrap();
        file.write(note(6)).unwrap();
        file.write(note(7)).unwrap();
        assert_eq!(read(path).unwrap(), Known::Note(note(7)));
        file.write(note(2)).unwrap();
        assert_eq!(read(path).unwrap(), Known::Note(note(2)), "the newest, not the largest");

        let newest = SLOT_DISTANCE as u64 * (file.sequence % 2);
        file.file.write_all_at(b"torn", newest + 9).unwrap();
        assert_eq!(read(path).unwrap(), Known::Note(note(7)));
        file.file.write_all_at(b"torn", SLOT_DISTANCE as u64 - newest + 9).unwrap();
        assert_eq!(read(path).unwrap(), Known::Unreadable);
        file.file.set_len(0).unwrap();
        assert_eq!(read(path).unwrap(), Known::Unreadable);
    }
}
