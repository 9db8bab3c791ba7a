//! Looking for pieces of text in the files of a store, wherever they lie: in rows, in what SQLite has freed, in the WAL. Values are
//! mostly compressed there, so whatever looks like the start of a compressed one is opened and looked through as well.
//!
//! Memory is bounded by the number of pieces and a few megabytes; a file is read once, from its beginning to its end.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::value::{FRAME_MAGIC, decompress_some};

/// Shorter pieces stand everywhere.
const PIECE_LEN_MIN: usize = 12;
/// So much of a longer piece is looked for.
const PIECE_LEN_MAX: usize = 64;
/// A file is read in parts of this size. Each is looked through with the end of the one before it.
const PART_LEN: usize = 4 << 20;
/// As much of a compressed value is opened as begins here and lies in one page or a few.
const FRAME_LEN_MAX: usize = 256 << 10;
/// More are counted and not told.
const TRACES_LEN_MAX: usize = 100;
const FILTER_BITS: usize = 1 << 20;

/// Pieces of text to look for, each with a number that says where it is from.
pub struct Needles {
    by_head: HashMap<[u8; PIECE_LEN_MIN], Vec<Piece>>,
    /// Whether a piece may begin with four bytes.
    filter: Vec<u64>,
    len: usize,
}

struct Piece {
    of: u32,
    bytes: Box<[u8]>,
}

/// A place where a piece was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// What the piece is from.
    pub of: u32,
    pub file: PathBuf,
    pub offset: u64,
}

impl Default for Needles {
    fn default() -> Needles {
        Needles { by_head: HashMap::new(), filter: vec![0; FILTER_BITS / 64], len: 0 }
    }
}

impl Needles {
    /// Looks for a piece too; false when it is too short to mean anything.
    pub fn add(&mut self, of: u32, piece: &[u8]) -> bool {
        let Some(head) = piece.first_chunk::<PIECE_LEN_MIN>() else { return false };
        let (word, bit) = filter_place(head);
        self.filter[word] |= bit;
        let bytes = piece[..piece.len().min(PIECE_LEN_MAX)].into();
        self.by_head.entry(*head).or_default().push(Piece { of, bytes });
        self.len += 1;
        true
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Looks through all files in a directory and below. The first hundred places, and how many there are.
    pub fn search(&self, directory: &Path) -> Result<(Vec<Trace>, u64), OpenError> {
        let mut found = Found::default();
        self.search_below(directory, &mut found)?;
        Ok((found.traces, found.count))
    }

    fn search_below(&self, directory: &Path, found: &mut Found) -> Result<(), OpenError> {
        for entry in std::fs::read_dir(directory).map_err(OpenError::io("read", directory))? {
            let entry = entry.map_err(OpenError::io("read", directory))?;
            // Links are not followed.
            let kind = entry.file_type().map_err(OpenError::io("read", directory))?;
            if kind.is_dir() {
                self.search_below(&entry.path(), found)?;
            } else if kind.is_file() {
                self.search_file(&entry.path(), found)?;
            }
        }
        Ok(())
    }

    fn search_file(&self, path: &Path, found: &mut Found) -> Result<(), OpenError> {
        let mut file = File::open(path).map_err(OpenError::io("open", path))?;
        // The end of the part before, then this part.
        let mut bytes: Vec<u8> = Vec::with_capacity(PART_LEN + FRAME_LEN_MAX);
        let (mut offset, mut opened) = (0, Vec::new());
        loop {
            let read = (&mut file).take(PART_LEN as u64).read_to_end(&mut bytes);
            let is_last = read.map_err(OpenError::io("read", path))? < PART_LEN;
            // What begins later is looked at with the next part.
            let end = if is_last { bytes.len() } else { bytes.len() - FRAME_LEN_MAX };
            self.search_bytes(&bytes, end, |of, at| found.add(of, path, offset + at as u64));
            for at in memchr_magic(&bytes[..(end + FRAME_MAGIC.len() - 1).min(bytes.len())]) {
                let frame = &bytes[at..bytes.len().min(at + FRAME_LEN_MAX)];
                decompress_some(frame, &mut opened);
                // A piece that a value repeats is one trace.
                let mut inside = HashSet::new();
                self.search_bytes(&opened, opened.len(), |of, _| {
                    inside.insert(of);
                });
                inside.into_iter().for_each(|of| found.add(of, path, offset + at as u64));
            }
            if is_last {
                return Ok(());
            }
            bytes.drain(..end);
            offset += end as u64;
        }
    }

    /// Pieces that begin before `end`.
    fn search_bytes(&self, bytes: &[u8], end: usize, mut found: impl FnMut(u32, usize)) {
        for (at, window) in bytes.windows(PIECE_LEN_MIN).enumerate().take(end) {
            let Some(head) = window.first_chunk::<PIECE_LEN_MIN>() else { return };
            let (word, bit) = filter_place(head);
            if self.filter[word] & bit == 0 {
                continue;
            }
            let pieces = self.by_head.get(head).into_iter().flatten();
            for piece in pieces.filter(|piece| bytes[at..].starts_with(&piece.bytes)) {
                found(piece.of, at);
            }
        }
    }
}

#[derive(Default)]
struct Found {
    traces: Vec<Trace>,
    count: u64,
}

impl Found {
    fn add(&mut self, of: u32, file: &Path, offset: u64) {
        self.count += 1;
        if self.traces.len() < TRACES_LEN_MAX {
            self.traces.push(Trace { of, file: file.to_owned(), offset });
        }
    }
}

fn filter_place(head: &[u8; PIECE_LEN_MIN]) -> (usize, u64) {
    let four = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let hash = (four.wrapping_mul(0x9e37_79b1) >> 12) as usize;
    (hash / 64, 1 << (hash % 64))
}

fn memchr_magic(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let windows = bytes.windows(FRAME_MAGIC.len()).enumerate();
    windows.filter(|(_, window)| *window == FRAME_MAGIC).map(|(at, _)| at)
}
