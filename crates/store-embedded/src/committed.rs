//! `COMMITTED`: how far the store is known to be durable, outside of the database.
//!
//! SQLite takes the first WAL frame that does not verify for the end of the WAL. That is right for a torn tail and
//! silently wrong for damage in the middle: acknowledged commits behind it would vanish. So each acknowledged
//! revision is also noted here, by one small write without fsync after the commit's own fsync; the checkpointer and
//! a clean close sync it. The file can therefore be behind the database but never ahead of it, and a database that is
//! behind this file has lost something.
//!
//! Two slots in different sectors are written in turn, so that a torn write leaves the other one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use polder_store::Revision;

use crate::log::Chain;

pub(crate) const FILE_NAME: &str = "COMMITTED";

const MAGIC: &[u8; 8] = b"polderC1";
const SLOT_LEN: usize = 24;
const SLOT_DISTANCE: usize = 512;

/// What one slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) revision: Revision,
    pub(crate) chain: Chain,
}

/// What the file says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// There is no such file.
    Nothing,
    Mark(Mark),
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
        .max_by_key(|mark| mark.revision);
    Ok(newest.map_or(Known::Unreadable, Known::Mark))
}

/// The open file, owned by the writer.
pub(crate) struct CommittedFile {
    file: File,
    second: bool,
}

impl CommittedFile {
    /// Opens the file, or creates it, with `mark` in both slots.
    pub(crate) fn open(directory: &Path, mark: Mark) -> io::Result<CommittedFile> {
        let path = directory.join(FILE_NAME);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut committed = CommittedFile { file, second: false };
        committed.note(mark)?;
        committed.file.sync_data()?;
        committed.note(mark)?;
        committed.file.sync_all()?;
        File::open(directory)?.sync_all()?;
        Ok(committed)
    }

    /// Notes a revision that is durable already.
    pub(crate) fn note(&mut self, mark: Mark) -> io::Result<()> {
        let at = if self.second { SLOT_DISTANCE } else { 0 };
        self.second = !self.second;
        self.file.write_all_at(&encode(mark), at as u64)
    }

    /// Another handle, for syncing it from another thread.
    pub(crate) fn try_clone(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn encode(mark: Mark) -> [u8; SLOT_LEN] {
    let mut slot = [0; SLOT_LEN];
    slot[..8].copy_from_slice(MAGIC);
    slot[8..16].copy_from_slice(&mark.revision.0.to_le_bytes());
    slot[16..20].copy_from_slice(&mark.chain.0.to_le_bytes());
    let checksum = crc32fast::hash(&slot[..20]);
    slot[20..].copy_from_slice(&checksum.to_le_bytes());
    slot
}

fn decode(slot: &[u8]) -> Option<Mark> {
    let (magic, rest) = slot.split_first_chunk::<8>()?;
    let (revision, rest) = rest.split_first_chunk::<8>()?;
    let (chain, rest) = rest.split_first_chunk::<4>()?;
    let checksum = rest.first_chunk::<4>()?;
    (magic == MAGIC && crc32fast::hash(&slot[..20]) == u32::from_le_bytes(*checksum)).then(|| Mark {
        revision: Revision(u64::from_le_bytes(*revision)),
        chain: Chain(u32::from_le_bytes(*chain)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_readable_slot_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(read(path).unwrap(), Known::Nothing);
        let mark = |revision: u32| Mark { revision: Revision(revision.into()), chain: Chain(revision) };
        let mut file = CommittedFile::open(path, mark(5)).unwrap();
        file.note(mark(6)).unwrap();
        file.note(mark(7)).unwrap();
        assert_eq!(read(path).unwrap(), Known::Mark(mark(7)));

        file.file.write_all_at(b"torn", SLOT_DISTANCE as u64 + 9).unwrap();
        assert_eq!(read(path).unwrap(), Known::Mark(mark(6)));
        file.file.write_all_at(b"torn", 9).unwrap();
        assert_eq!(read(path).unwrap(), Known::Unreadable);
        file.file.set_len(0).unwrap();
        assert_eq!(read(path).unwrap(), Known::Unreadable);
    }
}
