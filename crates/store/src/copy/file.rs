//! A store in a file: what a backup is.
//!
//! A line says what it is; the rest is compressed, and is frames of a length, a letter and contents: a head, parts, and an end that
//! says how much there was and its digest. A file without its end, or whose end says something else, is none.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

use super::Digest;
use crate::bytes::{Input, put_bytes, put_number, put_text};
use crate::journal::codec;
use crate::key::Revision;
use crate::replica::Kept;

const FIRST_LINE: &[u8] = b"polder backup 1\n";
/// Longer frames are damage: a part has some megabytes, or one object.
const FRAME_BYTES_MAX: u32 = 64 << 20;
/// And things in it.
const PART_LEN_MAX: usize = 1 << 20;
/// No store has come so far.
const REVISION_MAX: Revision = Revision(1 << 60);
const LEVEL: i32 = 3;

/// What stands before everything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The last commit in it.
    pub revision: Revision,
    /// When it was made, for people.
    pub created: String,
    /// Something of the server's that is not in its store, sealed; empty where there is none.
    pub attached: Arc<[u8]>,
}

/// Why a file is no backup.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("it is no backup of polder, or one of a newer polder")]
    Foreign,
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error("it cannot be read or written")]
    Io(#[from] io::Error),
}

/// Writes a backup.
pub struct Writer<W: Write> {
    out: zstd::Encoder<'static, W>,
    frame: Vec<u8>,
    digest: Digest,
}

impl<W: Write> Writer<W> {
    pub fn new(mut out: W, head: &Head) -> Result<Writer<W>, FileError> {
        out.write_all(FIRST_LINE)?;
        let mut out = zstd::Encoder::new(out, LEVEL)?;
        out.include_checksum(true)?;
        let mut writer = Writer { out, frame: Vec::new(), digest: Digest::default() };
        put_number(head.revision.0, &mut writer.frame);
        put_text(&head.created, &mut writer.frame);
        put_bytes(&head.attached, &mut writer.frame);
        writer.flush(b'h')?;
        Ok(writer)
    }

    pub fn part(&mut self, part: &[Kept]) -> Result<(), FileError> {
        self.digest.add(part);
        for kept in part {
            let start = self.frame.len();
            codec::put_kept(kept, &mut self.frame);
            // One that is long stands alone, so that a frame is no longer than it must be.
            if self.frame.len() > super::PART_BYTES_MAX && start > 0 {
                let last = self.frame.split_off(start);
                self.flush(b'p')?;
                self.frame = last;
            }
        }
        if self.frame.is_empty() { Ok(()) } else { self.flush(b'p') }
    }

    /// The end, without which all before is nothing. What was written is not durable yet.
    pub fn finish(mut self) -> Result<(W, Digest), FileError> {
        let digest = self.digest;
        self.frame.extend_from_slice(&digest.sum().to_le_bytes());
        [digest.objects, digest.planes, digest.bytes]
            .into_iter()
            .for_each(|n| put_number(n, &mut self.frame));
        self.flush(b'e')?;
        Ok((self.out.finish()?, digest))
    }

    fn flush(&mut self, letter: u8) -> Result<(), FileError> {
        let len = u32::try_from(self.frame.len()).ok().filter(|len| *len <= FRAME_BYTES_MAX);
        let len = len.ok_or(FileError::Damaged("an object is too long for it"))?;
        self.out.write_all(&len.to_le_bytes())?;
        self.out.write_all(&[letter])?;
        self.out.write_all(&self.frame)?;
        self.frame.clear();
        Ok(())
    }
}

/// Reads a backup.
pub struct Reader<R: Read> {
    input: zstd::Decoder<'static, BufReader<R>>,
    head: Head,
    frame: Vec<u8>,
    digest: Digest,
}

impl<R: Read> Reader<R> {
    pub fn new(mut input: R) -> Result<Reader<R>, FileError> {
        let mut line = [0; FIRST_LINE.len()];
        match input.read_exact(&mut line) {
            Ok(()) if line == FIRST_LINE => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error.into()),
            _ => return Err(FileError::Foreign),
        }
        let input = zstd::Decoder::new(input)?;
        let (head, digest) = (Head::default(), Digest::default());
        let mut reader = Reader { input, head, frame: Vec::new(), digest };
        if reader.fill()? != b'h' {
            return Err(FileError::Damaged("it does not begin with its head"));
        }
        let mut input = Input(&reader.frame);
        let head = (|| {
            let revision = Revision(input.number()?);
            let (created, attached) = (input.text()?.to_string(), input.bytes()?.into());
            Some(Head { revision, created, attached })
        })();
        let head = head.filter(|head: &Head| head.revision <= REVISION_MAX);
        reader.head = head.ok_or(FileError::Damaged("its head cannot be read"))?;
        Ok(reader)
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The next part; `None` at the end, when all is as its writer said.
    pub fn part(&mut self) -> Result<Option<Vec<Kept>>, FileError> {
        match self.fill()? {
            b'p' => {
                let (mut input, mut part) = (Input(&self.frame), Vec::new());
                while input.end().is_none() {
                    let kept = codec::kept(&mut input);
                    let kept = kept.ok_or(FileError::Damaged("something in it cannot be read"))?;
                    if matches!(&kept, Kept::Object { version, .. } if version.revision > self.head.revision)
                    {
                        return Err(FileError::Damaged("something in it is newer than all of it"));
                    }
                    if part.len() >= PART_LEN_MAX {
                        return Err(FileError::Damaged("a part has too much in it"));
                    }
                    part.push(kept);
                }
                self.digest.add(&part);
                Ok(Some(part))
            }
            b'e' => {
                let mut input = Input(&self.frame);
                let told = (|| {
                    let (sum, rest) = input.0.split_first_chunk()?;
                    input.0 = rest;
                    let (objects, planes, bytes) = (input.number()?, input.number()?, input.number()?);
                    Some(Digest::from_parts(u128::from_le_bytes(*sum), objects, planes, bytes))
                })();
                // What comes behind is looked at too: its checksum is there.
                let behind = io::copy(&mut self.input, &mut io::sink()).map_err(cut)?;
                match told == Some(self.digest) && behind == 0 {
                    true => Ok(None),
                    false => Err(FileError::Damaged("it does not hold what its end says")),
                }
            }
            _ => Err(FileError::Damaged("a part is of no known kind")),
        }
    }

    /// Of all parts so far.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Reads a frame and says what it is.
    fn fill(&mut self) -> Result<u8, FileError> {
        let mut start = [0; 5];
        self.input.read_exact(&mut start).map_err(cut)?;
        let [a, b, c, d, letter] = start;
        let len = u32::from_le_bytes([a, b, c, d]);
        if len > FRAME_BYTES_MAX {
            return Err(FileError::Damaged("a part is too long"));
        }
        self.frame.clear();
        // As it comes, not as it is announced: nothing is set aside for what is not there.
        let read = (&mut self.input).take(len.into()).read_to_end(&mut self.frame).map_err(cut)?;
        match read as u64 == u64::from(len) {
            true => Ok(letter),
            false => Err(FileError::Damaged("its end is missing")),
        }
    }
}

fn cut(error: io::Error) -> FileError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => FileError::Damaged("its end is missing"),
        // What the decompressor finds wrong.
        io::ErrorKind::Other | io::ErrorKind::InvalidData => FileError::Damaged("it cannot be decompressed"),
        _ => FileError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use polder_model::{GroupResource, PlaneId, json};

    use super::*;
    use crate::engine::{PlaneRow, SpaceKey, SpaceRow, Version};
    use crate::key::{ObjectName, SpaceId};
    use crate::object::Record;
    use crate::plane::Limits;

    fn sample() -> Vec<Kept> {
        let object = |name: &str, record| Kept::Object {
            space: SpaceId(3),
            resource: GroupResource::new("apps", "deployments"),
            name: ObjectName::new("default", name),
            version: Version { revision: Revision(7), record },
        };
        let plane = PlaneRow {
            id: PlaneId(1),
            name: "core".into(),
            space: SpaceId(3),
            floor: Revision(2),
            version_offset: 5,
            limits: Limits::default(),
            objects: 1,
            bytes: 9,
            last_change: None,
        };
        vec![
            Kept::Plane(plane),
            Kept::Space(SpaceRow::dropped(SpaceId(3))),
            Kept::Key(SpaceKey { space: SpaceId(3), wrapped: b"wrapped"[..].into() }),
            Kept::Note(("a".into(), b"note"[..].into())),
            object("here", Some(Record::encode(&json!({"metadata": {"name": "here"}})))),
            object("gone", None),
        ]
    }

    fn written() -> Vec<u8> {
        let head = Head { revision: Revision(9), created: "today".into(), attached: b"x"[..].into() };
        let mut writer = Writer::new(Vec::new(), &head).unwrap();
        sample().chunks(4).for_each(|part| writer.part(part).unwrap());
        writer.finish().unwrap().0
    }

    fn read(bytes: &[u8]) -> Result<(Head, Vec<Kept>), FileError> {
        let mut reader = Reader::new(bytes)?;
        let mut all = Vec::new();
        while let Some(part) = reader.part()? {
            all.extend(part);
        }
        Ok((reader.head().clone(), all))
    }

    #[test]
    fn what_is_written_comes_back() {
        let (head, all) = read(&written()).unwrap();
        assert_eq!(
            (head.revision, head.created.as_str(), &*head.attached),
            (Revision(9), "today", &b"x"[..])
        );
        assert_eq!(format!("{all:?}"), format!("{:?}", sample()));
    }

    #[test]
    fn what_is_cut_or_changed_is_none() {
        let whole = written();
        assert!(matches!(read(b"something else that is long enough"), Err(FileError::Foreign)));
        for len in 0..whole.len() {
            assert!(read(&whole[..len]).is_err(), "cut after {len}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            let same = read(&changed).is_ok_and(|(_, all)| format!("{all:?}") != format!("{:?}", sample()));
            assert!(!same, "byte {at} changed what is read, and nobody noticed");
        }
        let longer = [&whole[..], b"more"].concat();
        assert!(read(&longer).is_err());
    }
}
