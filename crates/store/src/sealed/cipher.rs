//! AES-256-GCM with random nonces: the one primitive everything here is made of.
//!
//! A sealed message is nonce, ciphertext, tag. What it belongs to is authenticated with it and not stored. With random nonces of 96 bits
//! a key may seal 2^32 messages: a space would need four thousand million writes of secrets.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroize as _;

/// How much longer a message is when it is sealed: nonce and tag.
pub(super) const EXCESS: usize = NONCE_LEN + 16;

/// A key of 256 bits that nobody prints. Overwritten when it is dropped.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// `None` when the system gives no random bytes.
    pub fn random() -> Option<Secret> {
        let mut secret = Secret([0; 32]);
        aws_lc_rs::rand::fill(&mut secret.0).ok()?;
        Some(secret)
    }

    /// `None` when it is not 32 bytes long.
    pub fn from_slice(bytes: &[u8]) -> Option<Secret> {
        bytes.try_into().ok().map(Secret)
    }

    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// A key ready for use. aws-lc overwrites what it holds when it frees it.
pub(super) struct Cipher(LessSafeKey);

impl Cipher {
    pub(super) fn new(secret: &Secret) -> Cipher {
        let key = UnboundKey::new(&AES_256_GCM, secret.expose());
        Cipher(LessSafeKey::new(key.expect("a secret has the length of an AES-256 key")))
    }

    /// Appends a message, sealed, to `out`. `None` when the system gives no random bytes.
    pub(super) fn seal(&self, belongs_to: &[u8], message: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        out.reserve(message.len() + EXCESS);
        out.extend_from_slice(&nonce);
        let at = out.len();
        out.extend_from_slice(message);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self.0.seal_in_place_separate_tag(nonce, Aad::from(belongs_to), &mut out[at..]);
        let Ok(tag) = sealed else {
            out[at..].zeroize();
            return None;
        };
        out.extend_from_slice(tag.as_ref());
        Some(())
    }

    /// What was sealed, if it was sealed with this key and belongs there.
    pub(super) fn open(&self, belongs_to: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut message = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let len = self.0.open_in_place(nonce, Aad::from(belongs_to), &mut message).ok()?.len();
        message.truncate(len);
        Some(message)
    }

    /// A key that was sealed.
    pub(super) fn open_secret(&self, belongs_to: &[u8], sealed: &[u8]) -> Option<Secret> {
        let mut opened = self.open(belongs_to, sealed)?;
        let secret = Secret::from_slice(&opened);
        opened.zeroize();
        secret
    }
}
