//! Stored objects as damaged bytes: reading the frame never panics, and labels end.

use polder_store::Record;

use crate::generate;
use crate::random::Random;

pub const WORDS: &[&str] = &["\u{4}\0\0\0", "{\"metadata\":{", "}}", "\u{1}\0\u{1}\0ab", "\0\0\0\0"];

pub fn make(random: &mut Random) -> Vec<u8> {
    let mut value = generate::json(&["a", "metadata"], 2, random);
    value.set_at(&["metadata", "labels"], generate::json(&["app", "tier"], 1, random));
    let mut bytes = Record::encode(&value).as_bytes().to_vec();
    if random.one_in(2) {
        let at = random.below(bytes.len().min(12));
        bytes[at] = random.byte();
    }
    bytes
}

pub fn run(data: &[u8]) {
    let Ok(record) = Record::from_bytes(data.into()) else { return };
    assert_eq!(record.as_bytes(), data);
    assert!(record.len() <= data.len());
    // What is sealed is opened before anybody looks at it.
    if record.is_sealed() {
        return;
    }
    assert_eq!(record.len(), data.len());
    assert!(record.labels().count() <= data.len() / 4);
    assert!(record.labels().all(|(key, _)| record.label(key).is_some()));
    let mut out = Vec::new();
    record.splice(b"", 7, &mut out);
    // Splicing trusts the body: engines checksum. It copies all of it but the head.
    assert!(out.starts_with(br#"{"metadata":{"resourceVersion":"7""#));
    assert!(out.ends_with(&record.body()[br#"{"metadata":{"#.len()..]));
    drop(record.to_value(7));
    crate::accepted();
}
