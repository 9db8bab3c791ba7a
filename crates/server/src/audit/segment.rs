//! One file of the trail: frames in the order in which they came, and, once it is sealed, an index of them by plane.
//!
//! A frame is length, checksum, plane, number, and the entry as JSON. A file that is not sealed ends where its last good frame
//! does: what follows was being written when the server died. A sealed file never changes.
//!
//! Invariant: a frame is given out only if it is of the plane that was asked for, whatever the index says.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"PLDAUD01";
const MAGIC_END: [u8; 8] = *b"PLDAUDX1";
const HEADER_LEN: usize = 16;
const FRAME_HEAD_LEN: usize = 24;
const ENTRY_LEN: usize = 24;
const FOOTER_LEN: usize = 40;
/// Says that a frame tells of entries that are missing.
const GAP: u32 = 1 << 31;
/// No entry is longer: what is noted of bodies is bounded.
pub(super) const PAYLOAD_LEN_MAX: usize = 4 << 20;
/// Index entries read at once.
const ENTRIES_AT_ONCE: usize = 256;

/// Where one entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) plane: u64,
    pub(super) number: u64,
    at: u32,
    len: u32,
}

impl Place {
    pub(super) fn is_gap(&self) -> bool {
        self.len & GAP != 0
    }

    fn payload_len(&self) -> usize {
        (self.len & !GAP) as usize
    }

    /// What it takes in the file, with its place in the index.
    pub(super) fn bytes(&self) -> u64 {
        (self.payload_len() + FRAME_HEAD_LEN + ENTRY_LEN) as u64
    }
}

/// A file that never changes again.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) path: PathBuf,
    file: File,
    /// Entries in it have higher numbers.
    pub(super) base: u64,
    pub(super) last: u64,
    pub(super) bytes: u64,
    /// When its newest entry was made, in seconds since 1970.
    pub(super) newest_seconds: i64,
    index_at: u64,
    count: u64,
}

/// The file that is written.
#[derive(Debug)]
pub(super) struct Active {
    path: PathBuf,
    pub(super) file: Arc<File>,
    pub(super) base: u64,
    pub(super) last: u64,
    pub(super) len: u64,
    pub(super) first_seconds: Option<i64>,
    newest_seconds: i64,
    places: BTreeMap<(u64, u64), Place>,
}

/// What was opened.
pub(super) enum Opened {
    Sealed(Sealed),
    /// It was not sealed; so much of its end was no frame.
    Unsealed(Active, u64),
}

pub(super) fn file_name(base: u64) -> String {
    format!("trail-{base:020}.seg")
}

/// Adds a frame to what is about to be written.
pub(super) fn write_frame(plane: u64, number: u64, gap: bool, payload: &[u8], out: &mut Vec<u8>) {
    let len = u32::try_from(payload.len()).unwrap_or_default() | if gap { GAP } else { 0 };
    out.extend_from_slice(&len.to_le_bytes());
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&plane.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(payload);
    let sum = checksum(&out[at + 4..]);
    out[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn number_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|piece| piece.try_into().ok()).unwrap_or([0; N])
}

fn damaged(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
}

/// Reads the entry at a place, if it is what the place says it is.
pub(super) fn payload(file: &File, place: &Place) -> io::Result<Vec<u8>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a frame of the trail is damaged");
    let len = place.payload_len();
    if len > PAYLOAD_LEN_MAX {
        return Err(wrong());
    }
    let mut frame = vec![0; FRAME_HEAD_LEN + len];
    file.read_exact_at(&mut frame, u64::from(place.at))?;
    let head = (u32::from_le_bytes(number_at(&frame, 0)), u32::from_le_bytes(number_at(&frame, 4)));
    let whose = (u64::from_le_bytes(number_at(&frame, 8)), u64::from_le_bytes(number_at(&frame, 16)));
    if head != (place.len, checksum(&frame[8..])) || whose != (place.plane, place.number) {
        return Err(wrong());
    }
    frame.drain(..FRAME_HEAD_LEN);
    Ok(frame)
}

/// Opens a file of the trail, or says that it is none.
pub(super) fn open(path: &Path) -> io::Result<Opened> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let len = file.metadata()?.len();
    let mut header = [0; HEADER_LEN];
    file.read_exact_at(&mut header, 0)?;
    if header[..8] != MAGIC {
        return Err(damaged(path, "is no file of an audit trail"));
    }
    let base = u64::from_le_bytes(number_at(&header, 8));
    match sealed(path, &file, base, len) {
        Some((newest_seconds, index_at, count, last)) => Ok(Opened::Sealed(Sealed {
            path: path.to_path_buf(),
            file,
            base,
            last,
            bytes: len,
            newest_seconds,
            index_at,
            count,
        })),
        None => unsealed(path, file, base, len).map(|(active, cut)| Opened::Unsealed(active, cut)),
    }
}

/// The footer, if there is a good one: seconds, where the index is, its length, the last number.
fn sealed(path: &Path, file: &File, base: u64, len: u64) -> Option<(i64, u64, u64, u64)> {
    let at = len.checked_sub(FOOTER_LEN as u64).filter(|at| *at >= HEADER_LEN as u64)?;
    let mut footer = [0; FOOTER_LEN];
    file.read_exact_at(&mut footer, at).ok()?;
    if footer[..8] != MAGIC_END {
        return None;
    }
    let index_at = u64::from_le_bytes(number_at(&footer, 8));
    let count = u64::from_le_bytes(number_at(&footer, 16));
    let seconds = i64::from_le_bytes(number_at(&footer, 24));
    let sum = u32::from_le_bytes(number_at(&footer, 32));
    let index_len = count.checked_mul(ENTRY_LEN as u64)?;
    if index_at.checked_add(index_len) != Some(at) || index_at < HEADER_LEN as u64 {
        return None;
    }
    let mut index = vec![0; usize::try_from(index_len).ok()?];
    file.read_exact_at(&mut index, index_at).ok()?;
    if checksum(&index) != sum {
        tracing::warn!(path = %path.display(), "the index of a file of the audit trail is damaged: it is made anew");
        return None;
    }
    let last = index.chunks_exact(ENTRY_LEN).map(|entry| u64::from_le_bytes(number_at(entry, 8))).max();
    Some((seconds, index_at, count, last.unwrap_or(base)))
}

/// Reads frames to the first that is none, and cuts the file there.
fn unsealed(path: &Path, mut file: File, base: u64, len: u64) -> io::Result<(Active, u64)> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut places = BTreeMap::new();
    let (mut at, mut last) = (HEADER_LEN, base);
    while let Some(head) = bytes.get(at..at + FRAME_HEAD_LEN) {
        let len = u32::from_le_bytes(number_at(head, 0));
        let end = at + FRAME_HEAD_LEN + (len & !GAP) as usize;
        let Some(frame) = bytes.get(at..end) else { break };
        let (plane, number) =
            (u64::from_le_bytes(number_at(head, 8)), u64::from_le_bytes(number_at(head, 16)));
        if u32::from_le_bytes(number_at(head, 4)) != checksum(&frame[8..]) || number <= base {
            break;
        }
        let place = Place { plane, number, at: u32::try_from(at).unwrap_or(u32::MAX), len };
        places.insert((plane, number), place);
        last = last.max(number);
        at = end;
    }
    let cut = len - at as u64;
    if cut > 0 {
        file.set_len(at as u64)?;
    }
    let seconds = file.metadata()?.modified().ok().and_then(|time| {
        time.duration_since(std::time::UNIX_EPOCH).ok().and_then(|age| i64::try_from(age.as_secs()).ok())
    });
    let newest_seconds = seconds.unwrap_or_default();
    let active = Active {
        path: path.to_path_buf(),
        file: Arc::new(file),
        base,
        last,
        len: at as u64,
        first_seconds: (!places.is_empty()).then_some(newest_seconds),
        newest_seconds,
        places,
    };
    Ok((active, cut))
}

impl Active {
    pub(super) fn create(path: PathBuf, base: u64) -> io::Result<Active> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&base.to_le_bytes());
        file.write_all_at(&header, 0)?;
        Ok(Active {
            path,
            file: Arc::new(file),
            base,
            last: base,
            len: HEADER_LEN as u64,
            first_seconds: None,
            newest_seconds: 0,
            places: BTreeMap::new(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// What the file will take when it is sealed.
    pub(super) fn bytes(&self) -> u64 {
        self.len + (self.places.len() * ENTRY_LEN + FOOTER_LEN) as u64
    }

    /// Notes frames that have been written at the end of the file.
    pub(super) fn wrote(&mut self, frames: &[u8], seconds: i64) {
        let mut at = 0;
        while let Some(head) = frames.get(at..at + FRAME_HEAD_LEN) {
            let len = u32::from_le_bytes(number_at(head, 0));
            let (plane, number) =
                (u64::from_le_bytes(number_at(head, 8)), u64::from_le_bytes(number_at(head, 16)));
            let place =
                Place { plane, number, at: u32::try_from(self.len + at as u64).unwrap_or(u32::MAX), len };
            self.places.insert((plane, number), place);
            self.last = self.last.max(number);
            at += FRAME_HEAD_LEN + (len & !GAP) as usize;
        }
        self.len += frames.len() as u64;
        self.first_seconds.get_or_insert(seconds);
        self.newest_seconds = self.newest_seconds.max(seconds);
    }

    pub(super) fn places(&self, plane: u64, after: u64, entries: usize) -> Vec<Place> {
        let range = self.places.range((plane, after.saturating_add(1))..=(plane, u64::MAX));
        range.take(entries).map(|(_, place)| *place).collect()
    }

    /// The newest number of a plane.
    pub(super) fn last_of(&self, plane: u64) -> Option<u64> {
        self.places.range((plane, 0)..=(plane, u64::MAX)).next_back().map(|(_, place)| place.number)
    }

    pub(super) fn all_places(&self) -> impl Iterator<Item = &Place> {
        self.places.values()
    }

    /// Writes the index. Nothing is added afterwards.
    pub(super) fn seal(&self) -> io::Result<Sealed> {
        let mut index = Vec::with_capacity(self.places.len() * ENTRY_LEN + FOOTER_LEN);
        for place in self.places.values() {
            index.extend_from_slice(&place.plane.to_le_bytes());
            index.extend_from_slice(&place.number.to_le_bytes());
            index.extend_from_slice(&place.at.to_le_bytes());
            index.extend_from_slice(&place.len.to_le_bytes());
        }
        let (sum, count) = (checksum(&index), self.places.len() as u64);
        index.extend_from_slice(&MAGIC_END);
        index.extend_from_slice(&self.len.to_le_bytes());
        index.extend_from_slice(&count.to_le_bytes());
        index.extend_from_slice(&self.newest_seconds.to_le_bytes());
        index.extend_from_slice(&sum.to_le_bytes());
        index.extend_from_slice(&[0; 4]);
        self.file.write_all_at(&index, self.len)?;
        self.file.sync_data()?;
        Ok(Sealed {
            path: self.path.clone(),
            file: self.file.try_clone()?,
            base: self.base,
            last: self.last,
            bytes: self.len + index.len() as u64,
            newest_seconds: self.newest_seconds,
            index_at: self.len,
            count,
        })
    }
}

impl Sealed {
    fn places_at(&self, from: u64, count: usize) -> io::Result<Vec<Place>> {
        let count = usize::try_from(self.count.saturating_sub(from)).unwrap_or(usize::MAX).min(count);
        let mut bytes = vec![0; count * ENTRY_LEN];
        self.file.read_exact_at(&mut bytes, self.index_at + from * ENTRY_LEN as u64)?;
        let place = |entry: &[u8]| Place {
            plane: u64::from_le_bytes(number_at(entry, 0)),
            number: u64::from_le_bytes(number_at(entry, 8)),
            at: u32::from_le_bytes(number_at(entry, 16)),
            len: u32::from_le_bytes(number_at(entry, 20)),
        };
        Ok(bytes.chunks_exact(ENTRY_LEN).map(place).collect())
    }

    /// Where entries of a plane after a number are.
    pub(super) fn places(&self, plane: u64, after: u64, entries: usize) -> io::Result<Vec<Place>> {
        let first = self.first_after(plane, after)?;
        let mut found = self.places_at(first, entries.min(ENTRIES_AT_ONCE))?;
        found.retain(|place| place.plane == plane);
        Ok(found)
    }

    /// The newest number of a plane.
    pub(super) fn last_of(&self, plane: u64) -> io::Result<Option<u64>> {
        let Some(last) = self.first_after(plane, u64::MAX)?.checked_sub(1) else { return Ok(None) };
        let found = self.places_at(last, 1)?;
        Ok(found.first().filter(|place| place.plane == plane).map(|place| place.number))
    }

    /// The place in the index behind everything up to a number of a plane.
    fn first_after(&self, plane: u64, after: u64) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.places_at(middle, 1)?.first() {
                Some(place) if (place.plane, place.number) <= (plane, after) => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Everything, plane by plane.
    pub(super) fn each_place(&self, mut see: impl FnMut(&Place)) -> io::Result<()> {
        let mut from = 0;
        while from < self.count {
            let places = self.places_at(from, ENTRIES_AT_ONCE * 16)?;
            places.iter().for_each(&mut see);
            from += places.len() as u64;
        }
        Ok(())
    }

    pub(super) fn payload(&self, place: &Place) -> io::Result<Vec<u8>> {
        payload(&self.file, place)
    }
}
