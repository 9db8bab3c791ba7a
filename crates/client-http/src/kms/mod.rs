//! A KMS v2 plugin of Kubernetes: something on this machine that encrypts and decrypts a few bytes with a key which nobody else has.
//!
//! Three calls of gRPC over a unix socket (`call`, [`crate::grpc`]), with messages small enough to be written by hand (`wire`). A call is made on a
//! thread and a connection of its own: there are a few in the life of a server, and whoever makes one waits for it.
//!
//! **Invariant.** Every call ends in time, and everything that a plugin says is bounded and checked before it is used.

mod call;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// As upstream bounds them.
const KEY_ID_LEN_MAX: usize = 1 << 10;
const CIPHERTEXT_LEN_MAX: usize = 1 << 10;
const ANNOTATIONS_LEN_MAX: usize = 32 << 10;

/// Why a plugin did not help.
#[derive(Debug, thiserror::Error)]
pub enum KmsError {
    #[error("cannot reach {}", .path.display())]
    Connect {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} does not answer within {timeout:?}", .path.display())]
    Timeout { path: PathBuf, timeout: Duration },
    #[error("{} does not speak gRPC", .path.display())]
    Protocol {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What it says is for people: it goes no further than messages and logs.
    #[error("{} refuses, with code {code}: {message}", .path.display())]
    Refused { path: PathBuf, code: u32, message: String },
    #[error("{} answers with {what}", .path.display())]
    Answer { path: PathBuf, what: &'static str },
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// A plugin behind a socket.
#[derive(Clone, Debug)]
pub struct Plugin {
    path: PathBuf,
    timeout: Duration,
}

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The key that it encrypts with now.
    pub key_id: String,
}

/// Something that a plugin has encrypted, and what it wants to see again to decrypt it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encrypted {
    pub ciphertext: Vec<u8>,
    pub key_id: String,
    pub annotations: BTreeMap<String, Vec<u8>>,
}

impl Encrypted {
    /// To be kept somewhere.
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::encrypted(self)
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Encrypted> {
        wire::parse_encrypted(bytes)
    }

    fn check(self) -> Result<Encrypted, &'static str> {
        check_key_id(&self.key_id)?;
        let annotations_len: usize =
            self.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        match self.ciphertext.len() {
            0 => Err("an empty ciphertext"),
            len if len > CIPHERTEXT_LEN_MAX => Err("a ciphertext that is too long"),
            _ if annotations_len > ANNOTATIONS_LEN_MAX => Err("annotations that are too long"),
            _ => Ok(self),
        }
    }
}

impl Plugin {
    pub fn new(path: PathBuf, timeout: Duration) -> Plugin {
        Plugin { path, timeout }
    }

    /// Whether it is well, and its present key. Blocks.
    pub fn status(&self) -> Result<Status, KmsError> {
        let answer = self.call("Status", Vec::new())?;
        let found = wire::parse_status(&answer).ok_or("no message of its kind").and_then(|status| {
            if status.version != "v2" && status.version != "v2beta1" {
                return Err("a version that is not v2");
            }
            if status.healthz != "ok" {
                return Err("that it is not well");
            }
            check_key_id(&status.key_id)?;
            Ok(Status { key_id: status.key_id })
        });
        found.map_err(|what| self.wrong(what))
    }

    /// Blocks.
    pub fn encrypt(&self, plaintext: &[u8]) -> Result<Encrypted, KmsError> {
        let answer = self.call("Encrypt", wire::encrypt_request(plaintext, "polder"))?;
        let found = wire::parse_encrypted(&answer).ok_or("no message of its kind");
        found.and_then(Encrypted::check).map_err(|what| self.wrong(what))
    }

    /// Blocks.
    pub fn decrypt(&self, encrypted: &Encrypted) -> Result<Vec<u8>, KmsError> {
        let answer = self.call("Decrypt", wire::decrypt_request(encrypted, "polder"))?;
        wire::parse_decrypted(&answer).ok_or_else(|| self.wrong("no message of its kind"))
    }

    fn wrong(&self, what: &'static str) -> KmsError {
        KmsError::Answer { path: self.path.clone(), what }
    }

    fn call(&self, method: &str, message: Vec<u8>) -> Result<Vec<u8>, KmsError> {
        // A thread, because the caller may be in a runtime already.
        std::thread::scope(|scope| {
            let work = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.map_err(KmsError::Thread)?.block_on(call::call(
                    &self.path,
                    self.timeout,
                    method,
                    &message,
                ))
            };
            let spawned = std::thread::Builder::new().name("kms".into()).spawn_scoped(scope, work);
            spawned
                .map_err(KmsError::Thread)?
                .join()
                .unwrap_or_else(|_| Err(self.wrong("something unheard of")))
        })
    }
}

fn check_key_id(key_id: &str) -> Result<(), &'static str> {
    match key_id.len() {
        0 => Err("an empty key id"),
        len if len > KEY_ID_LEN_MAX => Err("a key id that is too long"),
        _ => Ok(()),
    }
}
