//! Secrets at rest: records of chosen resources are sealed on their way down to the engine and opened on their way up
//! (ADR 0016). Above, in caches and feeds, everything is as it was; below, in files and whatever is copied of them, the
//! contents of those records can be read only with a key.
//!
//! ```text
//! key-encryption key   outside: a key file or a KMS plugin           [`KeyEncryption`]
//!   wraps store keys   few, numbered, noted in the store             [`Keyring`]
//!     wrap data keys   one a space, kept with it, gone with it
//!       seal records   AES-256-GCM, bound to where the record stands
//! ```
//!
//! A data key is made when the first sealed record is written to a space. Planes that stand on a space share it and so its key;
//! when the last of them is deleted, the commit that drops the space destroys the key, and nothing of it can be read any more
//! whatever became of its rows.
//!
//! [`SealedEngine`] writes, [`SealedReader`] reads, both around any engine.
//!
//! **Invariant.** No record of a chosen resource goes down in plain, and none that does not open comes up. Key material is
//! overwritten in memory when it is let go of, and is in no message.

mod chores;
mod cipher;
mod data_keys;
mod engine;
mod key_file;
mod keyring;
mod reader;
mod record;
mod wrapped;

pub use cipher::Secret;
pub use engine::SealedEngine;
pub use key_file::{KeyFile, add_key};
pub use keyring::{KeyStatus, Keyring, StoreKeyStatus, noted_keys};
pub use reader::SealedReader;
pub(crate) use record::is_bound_by_name;
pub use wrapped::{KeyEncryption, KeyError, WrappedKey, store_key_of as wrapped_by};

/// How much longer a record is when it is sealed: format, nonce, tag.
pub(crate) const EXCESS: usize = 1 + cipher::EXCESS;

#[cfg(test)]
mod tests;
