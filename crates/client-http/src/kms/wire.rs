//! The messages of `v2.KeyManagementService`, in protobuf. Unknown fields are passed over, as protobuf asks; whatever is not
//! well-formed is no message.

use std::collections::BTreeMap;

use super::Encrypted;
use crate::grpc::protobuf::{Field, Fields, put};

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
            (1, value) => found.ciphertext = value.bytes()?.to_vec(),
            (2, value) => found.key_id = text(value)?,
            (3, entry) => {
                let (mut key, mut bytes) = (String::new(), Vec::new());
                for field in Fields(entry.bytes()?) {
                    match field? {
                        (1, value) => key = text(value)?,
                        (2, value) => bytes = value.bytes()?.to_vec(),
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
            found = value.bytes()?.to_vec();
        }
    }
    Some(found)
}

fn text(field: Field<'_>) -> Option<String> {
    field.text().map(str::to_owned)
}

fn put_annotations(field: u64, annotations: &BTreeMap<String, Vec<u8>>, out: &mut Vec<u8>) {
    for (key, value) in annotations {
        let mut entry = Vec::new();
        put(1, key.as_bytes(), &mut entry);
        put(2, value, &mut entry);
        put(field, &entry, out);
    }
}
