//! Keys as they are stored: wrapped by the key above them. And who wraps the topmost ones.

use std::sync::Arc;

use super::cipher::{self, Cipher, Secret};
use crate::key::SpaceId;

/// Why a key could not be had. Says which key and where it was looked for, and never what it is.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{0}")]
    Unusable(String),
    #[error("{what}")]
    Failed {
        what: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the system gives no random numbers")]
    NoRandom,
}

/// The key-encryption key: something outside the store that wraps a few keys and unwraps them again. Every call may take as
/// long as its own deadline, so none is made while somebody waits for a commit or a read.
pub trait KeyEncryption: Send + Sync {
    /// Called before anything is wrapped for a new store: a key may be made now.
    fn begin(&self) -> Result<(), KeyError> {
        Ok(())
    }

    /// The name of the key that wraps from now on. Looks outside: the answer changes when somebody has put a new key there.
    fn current(&self) -> Result<String, KeyError>;

    fn wrap(&self, secret: &Secret) -> Result<WrappedKey, KeyError>;

    fn unwrap(&self, wrapped: &WrappedKey) -> Result<Secret, KeyError>;
}

/// A key wrapped outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// Which key wrapped it.
    pub key: String,
    pub bytes: Vec<u8>,
}

/// Longer ones are not read.
const WRAPPED_LEN_MAX: usize = 64 << 10;
const FORMAT_1: u8 = 1;

impl WrappedKey {
    /// How it is noted in the store.
    pub(super) fn encode(&self) -> Option<Arc<[u8]>> {
        let len = u16::try_from(self.key.len()).ok()?;
        let mut out = vec![FORMAT_1];
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(&self.bytes);
        (out.len() <= WRAPPED_LEN_MAX).then(|| out.into())
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<WrappedKey> {
        let (&[FORMAT_1, low, high], rest) = bytes.split_first_chunk::<3>()? else { return None };
        let (key, bytes) = rest.split_at_checked(usize::from(u16::from_le_bytes([low, high])))?;
        Some(WrappedKey { key: std::str::from_utf8(key).ok()?.to_owned(), bytes: bytes.to_vec() })
    }
}

/// A data key, wrapped: format, number of the store key, nonce, ciphertext, tag. Always equally long, so that a new one can be
/// written over an old one.
const DATA_KEY_LEN: usize = 1 + 4 + 32 + cipher::EXCESS;

pub(super) fn wrap_data_key(
    space: SpaceId,
    (number, store_key): (u32, &Cipher),
    secret: &Secret,
) -> Option<Arc<[u8]>> {
    let mut out = Vec::with_capacity(DATA_KEY_LEN);
    out.push(FORMAT_1);
    out.extend_from_slice(&number.to_le_bytes());
    store_key.seal(&data_key_of(space, number), secret.expose(), &mut out)?;
    Some(out.into())
}

/// The number of the store key that a data key is wrapped with; `None` when it is no data key.
pub fn store_key_of(wrapped: &[u8]) -> Option<u32> {
    let &[FORMAT_1, a, b, c, d] = wrapped.first_chunk::<5>()? else { return None };
    (wrapped.len() == DATA_KEY_LEN).then(|| u32::from_le_bytes([a, b, c, d]))
}

pub(super) fn unwrap_data_key(
    space: SpaceId,
    (number, store_key): (u32, &Cipher),
    wrapped: &[u8],
) -> Option<Secret> {
    store_key.open_secret(&data_key_of(space, number), wrapped.get(5..)?)
}

fn data_key_of(space: SpaceId, number: u32) -> Vec<u8> {
    let mut out = b"data key\0".to_vec();
    out.extend_from_slice(&space.0.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out
}
