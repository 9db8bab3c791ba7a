//! Values as they lie on disk: one format byte, a checksum, then the record, usually compressed.
//!
//! The checksum covers the key and the revision too, so that a value in the wrong place is damage and not an answer.
//! Deletions are values as well: a lost value can never be taken for a deleted object.

use std::sync::{Arc, LazyLock};

use crc32fast::Hasher;
use polder_store::engine::EngineError;
use polder_store::{Record, Revision};
use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};

use crate::key;
use polder_store::bytes::{Input, put_number};

/// Deleted; no payload.
const FORMAT_DELETED: u8 = 0;
/// The record's bytes.
const FORMAT_RAW: u8 = 1;
/// Length of the record, then a zstd frame made with dictionary 1. A new dictionary gets a new format byte, and the
/// old one stays here for as long as stores with it may exist.
const FORMAT_DICTIONARY_1: u8 = 0x11;

/// A value that was rewritten: the format of what follows, and the checksum of what stood here first, which the log names.
const FORMAT_REWRITTEN: u8 = 0x21;
const REWRITTEN_LEN: usize = 5;

static DICTIONARY_1: &[u8] = include_bytes!("dictionary.bin");

/// The cheapest level: with a dictionary most of the saving is there already. Other levels have not been measured.
pub(crate) const LEVEL: i32 = 1;
/// Shorter records are not worth a decompression.
const COMPRESS_LEN_MIN: usize = 128;
/// Requests are limited to 3 MiB far above; this only bounds what a damaged length can ask for.
const RECORD_LEN_MAX: usize = 64 << 20;

const HEAD_LEN: usize = 5;

static ENCODER: LazyLock<EncoderDictionary<'static>> =
    LazyLock::new(|| EncoderDictionary::copy(DICTIONARY_1, LEVEL));
static DECODER: LazyLock<DecoderDictionary<'static>> =
    LazyLock::new(|| DecoderDictionary::copy(DICTIONARY_1));

/// Makes values; owned by the writer.
pub(crate) struct Sealer {
    compressor: Compressor<'static>,
}

impl Sealer {
    pub(crate) fn new() -> Result<Sealer, EngineError> {
        let compressor = Compressor::with_prepared_dictionary(&ENCODER).and_then(|mut compressor| {
            compressor.set_parameter(zstd::zstd_safe::CParameter::ContentSizeFlag(false))?;
            compressor.set_parameter(zstd::zstd_safe::CParameter::ChecksumFlag(false))?;
            compressor.set_parameter(zstd::zstd_safe::CParameter::DictIdFlag(false))?;
            Ok(compressor)
        });
        Ok(Sealer { compressor: compressor.map_err(|error| EngineError::Failed(error.into()))? })
    }

    /// Appends the value for one version to `out` and returns its checksum.
    pub(crate) fn seal(
        &mut self,
        key: &[u8],
        revision: Revision,
        record: Option<&Record>,
        out: &mut Vec<u8>,
    ) -> u32 {
        let start = out.len();
        out.extend_from_slice(&[FORMAT_DELETED, 0, 0, 0, 0]);
        if let Some(record) = record {
            // What is sealed does not get shorter.
            let compressed = !record.is_sealed() && self.compress(record.as_bytes(), start, out);
            let record = record.as_bytes();
            if compressed {
                out[start] = FORMAT_DICTIONARY_1;
            } else {
                out.truncate(start + HEAD_LEN);
                out.extend_from_slice(record);
                out[start] = FORMAT_RAW;
            }
        }
        let checksum = checksum(key, revision, out[start], &out[start + HEAD_LEN..]);
        out[start + 1..start + HEAD_LEN].copy_from_slice(&checksum.to_le_bytes());
        checksum
    }

    /// Appends a value that takes the place of one whose checksum the log has as `link`.
    pub(crate) fn reseal(
        &mut self,
        (key, revision): (&[u8], Revision),
        record: &Record,
        link: u32,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        self.seal(key, revision, Some(record), out);
        let format = out[start];
        out[start] = FORMAT_REWRITTEN;
        let [a, b, c, d] = link.to_le_bytes();
        out.splice(start + HEAD_LEN..start + HEAD_LEN, [format, a, b, c, d]);
        let checksum = checksum(key, revision, FORMAT_REWRITTEN, &out[start + HEAD_LEN..]);
        out[start + 1..start + HEAD_LEN].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Appends the compressed record if that is shorter.
    fn compress(&mut self, record: &[u8], start: usize, out: &mut Vec<u8>) -> bool {
        if record.len() < COMPRESS_LEN_MIN || record.len() > RECORD_LEN_MAX {
            return false;
        }
        put_number(record.len() as u64, out);
        let at = out.len();
        // A frame that does not get shorter does not fit either, and is then stored raw.
        out.resize(at + record.len(), 0);
        match self.compressor.compress_to_buffer(record, &mut out[at..]) {
            Ok(len) => out.truncate(at + len),
            Err(_) => return false,
        }
        out.len() - start < HEAD_LEN + record.len()
    }
}

/// Reads values back; one for each connection.
pub(crate) struct Opener {
    decompressor: Decompressor<'static>,
    buffer: Vec<u8>,
}

impl Opener {
    pub(crate) fn new() -> Result<Opener, EngineError> {
        let decompressor = Decompressor::with_prepared_dictionary(&DECODER)
            .map_err(|error| EngineError::Failed(error.into()))?;
        Ok(Opener { decompressor, buffer: Vec::new() })
    }

    /// The record in a value; `None` when it says the object was deleted.
    pub(crate) fn open(
        &mut self,
        key: &[u8],
        revision: Revision,
        value: &[u8],
    ) -> Result<Option<Record>, EngineError> {
        let damaged = |what: &str| {
            EngineError::Damaged(format!("{} at revision {revision}: {what}", key::describe(key)))
        };
        let (format, _) =
            check(key, revision, value).ok_or_else(|| damaged("the checksum does not match"))?;
        let mut payload = &value[HEAD_LEN..];
        let mut format = format;
        if format == FORMAT_REWRITTEN {
            let (head, rest) =
                payload.split_first_chunk::<REWRITTEN_LEN>().ok_or_else(|| damaged("is too short"))?;
            (format, payload) = (head[0], rest);
        }
        let bytes: Arc<[u8]> = match format {
            FORMAT_DELETED => return Ok(None),
            FORMAT_RAW => payload.into(),
            FORMAT_DICTIONARY_1 => {
                let mut input = Input(payload);
                let len = input.number().and_then(|len| usize::try_from(len).ok());
                let len = len.filter(|len| *len <= RECORD_LEN_MAX).ok_or_else(|| damaged("bad length"))?;
                self.buffer.clear();
                self.buffer.reserve(len);
                let written = self.decompressor.decompress_to_buffer(input.0, &mut self.buffer);
                if written.map_err(|_| damaged("cannot be decompressed"))? != len {
                    return Err(damaged("has another length than was written"));
                }
                let bytes = self.buffer.as_slice().into();
                // One large object must not pin its size in every connection for ever.
                if self.buffer.capacity() > 1 << 20 {
                    self.buffer = Vec::new();
                }
                bytes
            }
            _ => return Err(damaged("has an unknown format; was the store written by a newer polder?")),
        };
        Record::from_bytes(bytes).map(Some).map_err(|error| damaged(&error.to_string()))
    }
}

/// Verifies a value without decompressing it: its format, and the checksum that the log has of it.
pub(crate) fn check(key: &[u8], revision: Revision, value: &[u8]) -> Option<(u8, u32)> {
    let (head, payload) = value.split_first_chunk::<HEAD_LEN>()?;
    let found = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    if checksum(key, revision, head[0], payload) != found {
        return None;
    }
    match (head[0], payload) {
        (FORMAT_REWRITTEN, [_, a, b, c, d, ..]) => Some((head[0], u32::from_le_bytes([*a, *b, *c, *d]))),
        (format, _) => Some((format, found)),
    }
}

/// What a compressed value in a file starts with, wherever it lies, and how to read as much of it as is there.
pub(crate) const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The start of a record out of bytes that begin with a compressed one, as far as it goes; for looking through files.
pub(crate) fn decompress_some(bytes: &[u8], out: &mut Vec<u8>) {
    use std::io::Read as _;
    out.clear();
    if let Ok(decoder) = zstd::stream::read::Decoder::with_prepared_dictionary(bytes, &DECODER) {
        // What was read before it fails counts.
        let _ = decoder.single_frame().take(bytes.len() as u64 * 64).read_to_end(out);
    }
}

/// Whether a value, verified or not, says that its object was deleted.
pub(crate) fn is_deletion(value: &[u8]) -> bool {
    value.first() == Some(&FORMAT_DELETED)
}

fn checksum(key: &[u8], revision: Revision, format: u8, payload: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(key);
    hasher.update(&revision.0.to_be_bytes());
    hasher.update(&[format]);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_model::json;

    fn record(text: &str) -> Record {
        Record::encode(&json!({"metadata": {"name": "x"}, "data": {"text": text}}))
    }

    #[test]
    fn values_come_back() {
        let (mut sealer, mut opener) = (Sealer::new().unwrap(), Opener::new().unwrap());
        let noise: String =
            (0..4000u32).map(|i| char::from(33 + (i.wrapping_mul(2654435761) >> 25) as u8 % 90)).collect();
        for (text, format) in [
            ("short".to_owned(), FORMAT_RAW),
            ("aaaa ".repeat(100), FORMAT_DICTIONARY_1),
            ("b".repeat(3 << 20), FORMAT_DICTIONARY_1),
            (noise, FORMAT_DICTIONARY_1),
        ] {
            let record = record(&text);
            let mut value = Vec::new();
            sealer.seal(b"key", Revision(5), Some(&record), &mut value);
            assert_eq!(value[0], format);
            assert!(value.len() <= record.len() + HEAD_LEN);
            assert_eq!(opener.open(b"key", Revision(5), &value).unwrap(), Some(record));
        }
        let mut value = Vec::new();
        sealer.seal(b"key", Revision(5), None, &mut value);
        assert_eq!(opener.open(b"key", Revision(5), &value).unwrap(), None);
    }

    #[test]
    fn a_rewritten_value_keeps_its_link_to_the_log() {
        let (mut sealer, mut opener) = (Sealer::new().unwrap(), Opener::new().unwrap());
        let (mut first, mut again, mut third) = (Vec::new(), Vec::new(), Vec::new());
        let link = sealer.seal(b"key", Revision(5), Some(&record("one")), &mut first);
        let other = record(&"other ".repeat(100));
        sealer.reseal((b"key", Revision(5)), &other, link, &mut again);
        assert_eq!(opener.open(b"key", Revision(5), &again).unwrap(), Some(other.clone()));
        assert_eq!(check(b"key", Revision(5), &again), Some((FORMAT_REWRITTEN, link)));
        let (_, found) = check(b"key", Revision(5), &again).unwrap();
        sealer.reseal((b"key", Revision(5)), &other, found, &mut third);
        assert_eq!(third, again);
        for bit in 0..again.len() * 8 {
            let mut flipped = again.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(opener.open(b"key", Revision(5), &flipped).is_err(), "{bit}");
        }
    }

    #[test]
    fn every_flipped_bit_and_every_wrong_place_is_damage() {
        let (mut sealer, mut opener) = (Sealer::new().unwrap(), Opener::new().unwrap());
        let mut value = Vec::new();
        sealer.seal(b"key", Revision(5), Some(&record(&"aaaa ".repeat(100))), &mut value);
        for bit in 0..value.len() * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                matches!(opener.open(b"key", Revision(5), &flipped), Err(EngineError::Damaged(_))),
                "{bit}"
            );
        }
        assert!(opener.open(b"kex", Revision(5), &value).is_err());
        assert!(opener.open(b"key", Revision(6), &value).is_err());
        for len in 0..value.len() {
            assert!(opener.open(b"key", Revision(5), &value[..len]).is_err());
        }
    }
}
