//! SQLite's WAL seen from outside: which generation it is, whether all of it could be read, and room for what comes next.
//!
//! The WAL file starts with 32 bytes: magic, version, page size, checkpoint number, two salts, two checksums, all
//! big-endian. When everything in it has been copied to the database, SQLite starts it over with the first salt one
//! higher. So the first salt numbers the generations of one WAL. SQLite reads frames up to the first whose checksum does
//! not continue the one before, so zeros after the last one mean nothing to it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rusqlite::Connection;

use crate::page::PAGE_LEN;

const HEADER_LEN: usize = 32;
const FRAME_HEADER_LEN: usize = 24;
const MAGIC: u32 = 0x377f_0682;

/// A place in the WAL. Zero frames mean that nothing in it is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalPosition {
    pub(crate) generation: u32,
    pub(crate) frames: u32,
}

/// The most that is added to a WAL at once.
const GROWTH_MAX: usize = 1 << 20;

/// The WAL file of an open database; SQLite never replaces it while a connection is open.
pub(crate) struct WalFile {
    file: File,
    /// How long the file is at least, as long as the generation lasts.
    len: u64,
    generation: u32,
}

impl WalFile {
    pub(crate) fn open(path: &Path) -> io::Result<WalFile> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(WalFile { file, len: 0, generation: 0 })
    }

    /// Adds zeros to a file that is almost full: syncing a write costs half as much when the file need not grow for
    /// it. A small WAL gets little, a failure (a full disk) is none: SQLite then lets the file grow as it needs.
    pub(crate) fn grow_ahead(&mut self, position: WalPosition) {
        let used = HEADER_LEN as u64 + u64::from(position.frames) * (FRAME_HEADER_LEN + PAGE_LEN) as u64;
        if position.generation != self.generation || self.len < used {
            // SQLite cuts a file that has become too large when it starts over.
            let Ok(metadata) = self.file.metadata() else { return };
            (self.generation, self.len) = (position.generation, metadata.len());
        }
        let growth = usize::try_from(used / 2).unwrap_or(GROWTH_MAX).min(GROWTH_MAX);
        if self.len < used + growth as u64 / 4 && self.file.write_all_at(&vec![0; growth], self.len).is_ok() {
            self.len += growth as u64;
        }
    }

    /// The generation, if there is one and the header is intact.
    pub(crate) fn generation(&self) -> io::Result<Option<u32>> {
        let mut header = [0; HEADER_LEN];
        match self.file.read_exact_at(&mut header, 0) {
            Ok(()) => Ok(generation(&header)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The frames that SQLite could read and will use. The connection must have read something before.
pub(crate) fn frames(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| {
        row.get::<_, i64>(1).map(|frames| u32::try_from(frames).unwrap_or(0))
    })
}

/// Whether a WAL lacks something that was acknowledged.
pub(crate) fn is_cut(needed: WalPosition, generation: Option<u32>, frames: u32) -> bool {
    if needed.frames == 0 {
        return false;
    }
    match generation.map(|generation| generation.wrapping_sub(needed.generation)) {
        Some(0) => frames < needed.frames,
        // A later generation: what was needed had been copied before it began.
        Some(later) => later >= 1 << 31,
        None => true,
    }
}

fn generation(header: &[u8; HEADER_LEN]) -> Option<u32> {
    let word = |index: usize, little: bool| {
        let bytes = [header[index * 4], header[index * 4 + 1], header[index * 4 + 2], header[index * 4 + 3]];
        if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    };
    let magic = word(0, false);
    if magic & !1 != MAGIC {
        return None;
    }
    // The last bit of the magic says in which byte order the checksum sums up words.
    let little = magic & 1 == 0;
    let (mut first, mut second) = (0u32, 0u32);
    for index in (0..6).step_by(2) {
        first = first.wrapping_add(word(index, little)).wrapping_add(second);
        second = second.wrapping_add(word(index + 1, little)).wrapping_add(first);
    }
    (first == word(6, false) && second == word(7, false)).then(|| word(4, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_read_as_sqlite_writes_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let connection = Connection::open(&path).unwrap();
        let execute = |sql: &str| connection.execute_batch(sql).unwrap();
        execute("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE meta (x);");
        let wal = WalFile::open(&directory.path().join("x.db-wal")).unwrap();
        let first = wal.generation().unwrap().unwrap();
        let before = frames(&connection).unwrap();
        execute("INSERT INTO meta VALUES (1)");
        assert_eq!(wal.generation().unwrap(), Some(first));
        assert_eq!(frames(&connection).unwrap(), before + 1);
        execute("PRAGMA wal_checkpoint(PASSIVE); INSERT INTO meta VALUES (2)");
        assert_eq!(wal.generation().unwrap(), Some(first.wrapping_add(1)));
        assert_eq!(frames(&connection).unwrap(), 1);

        let mut header = [0; HEADER_LEN];
        wal.file.read_exact_at(&mut header, 0).unwrap();
        assert!(generation(&header).is_some());
        for bit in 0..HEADER_LEN * 8 {
            let mut flipped = header;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(generation(&flipped), None, "{bit}");
        }
        execute("PRAGMA wal_checkpoint(TRUNCATE)");
        assert_eq!(wal.generation().unwrap(), None);
    }

    #[test]
    fn a_cut_wal_is_one_that_lacks_frames() {
        let needed = WalPosition { generation: u32::MAX, frames: 10 };
        for (generation, frames, cut) in [
            (Some(u32::MAX), 10, false),
            (Some(u32::MAX), 11, false),
            (Some(u32::MAX), 9, true),
            (Some(0), 0, false),
            (Some(5), 3, false),
            (Some(u32::MAX - 1), 100, true),
            (None, 0, true),
        ] {
            assert_eq!(is_cut(needed, generation, frames), cut, "{generation:?} {frames}");
        }
        assert!(!is_cut(WalPosition::default(), None, 0));
    }
}
