//! The messages of `v2.KeyManagementService`, in protobuf. Unknown fields are passed over, as protobuf asks; whatever is not
//! well-formed is no message.

use std::collections::BTreeMap;

use super::Encrypted;

const BYTES: u64 = 2;

/// What `Status` answers.
#[derive(Default)]
pub(super) struct StatusAnswer {
    pub(super) version: String,
    pub(super) healthz: String,
    pub(super) key_id: String,
}

pub(super) fn encrypt_request(plaintext: &[u8], uid: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put(1, plaintext, &mut out);
    put(2, uid.as_bytes(), &mut out);
    out
}

pub(super) fn decrypt_request(encrypted: &Encrypted, uid: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put(1, &encrypted.ciphertext, &mut out);
    put(2, uid.as_bytes(), &mut out);
    put(3, encrypted.key_id.as_bytes(), &mut out);
    put_annotations(4, &encrypted.annotations, &mut out);
    out
}

/// The message that `Encrypt` answers.
pub(super) fn encrypted(encrypted: &Encrypted) -> Vec<u8> {
    let mut out = Vec::new();
    put(1, &encrypted.ciphertext, &mut out);
    put(2, encrypted.key_id.as_bytes(), &mut out);
    put_annotations(3, &encrypted.annotations, &mut out);
    out
}

pub(super) fn parse_encrypted(message: &[u8]) -> Option<Encrypted> {
    let mut found = Encrypted::default();
    for field in Fields(message) {
        match field? {
            (1, value) => found.ciphertext = value.to_vec(),
            (2, value) => found.key_id = text(value)?,
            (3, entry) => {
                let (mut key, mut bytes) = (String::new(), Vec::new());
                for field in Fields(entry) {
                    match field? {
                        (1, value) => key = text(value)?,
                        (2, value) => bytes = value.to_vec(),
                        _ => {}
                    }
                }
                found.annotations.insert(key, bytes);
            }
            _ => {}
        }
    }
    Some(found)
}

pub(super) fn parse_status(message: &[u8]) -> Option<StatusAnswer> {
    let mut found = StatusAnswer::default();
    for field in Fields(message) {
        match field? {
            (1, value) => found.version = text(value)?,
            (2, value) => found.healthz = text(value)?,
            (3, value) => found.key_id = text(value)?,
            _ => {}
        }
    }
    Some(found)
}

pub(super) fn parse_decrypted(message: &[u8]) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    for field in Fields(message) {
        if let (1, value) = field? {
            found = value.to_vec();
        }
    }
    Some(found)
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn put_annotations(field: u64, annotations: &BTreeMap<String, Vec<u8>>, out: &mut Vec<u8>) {
    for (key, value) in annotations {
        let mut entry = Vec::new();
        put(1, key.as_bytes(), &mut entry);
        put(2, value, &mut entry);
        put(field, &entry, out);
    }
}

/// A field of bytes, text or a message; what is empty is left out.
pub(super) fn put(field: u64, value: &[u8], out: &mut Vec<u8>) {
    if !value.is_empty() {
        put_number(field << 3 | BYTES, out);
        put_number(value.len() as u64, out);
        out.extend_from_slice(value);
    }
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// The fields of a message: number and bytes. Fields of other types come with no bytes. `None` ends what is no message.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, &'a [u8])> {
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => {
                self.number()?;
                &[]
            }
            1 => self.skip(8)?,
            BYTES => {
                let len = usize::try_from(self.number()?).ok()?;
                return Some((tag >> 3, self.take(len)?));
            }
            5 => self.skip(4)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn skip(&mut self, len: usize) -> Option<&'a [u8]> {
        self.take(len).map(|_| &[][..])
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}
