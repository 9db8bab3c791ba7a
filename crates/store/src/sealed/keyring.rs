//! The keys of a store, opened: what the writing and the reading side share, and the handle by which the server looks after
//! them.
//!
//! Store keys are unwrapped when the store is opened and stay open; nobody asks outside for them again. A data key is read and
//! unwrapped when it is needed, and kept while it is used ([`super::data_keys`]).
//!
//! **Invariant.** A space that was dropped has no key: what is still found of it is taken for gone, not for damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, MutexGuard, RwLock};
use polder_model::{GroupResource, SmolStr, format_smolstr};

use super::cipher::{Cipher, Secret};
use super::data_keys::DataKeys;
use super::wrapped::{self, KeyEncryption, KeyError, WrappedKey};
use crate::bytes::{Input, put_bytes};
use crate::engine::{EngineError, Note, Reader, SpaceKey};
use crate::key::{ResourceId, SpaceId};

/// Store keys are noted under this and their number.
const STORE_KEY_NOTE: &str = "store-key/";
/// What is sealed apart from a store belongs nowhere else.
const APART: &[u8] = b"apart\0";

pub(super) type StoredNote = (SmolStr, Option<Arc<[u8]>>);

pub struct Keyring {
    encryption: Box<dyn KeyEncryption>,
    resources: Vec<GroupResource>,
    store_keys: RwLock<StoreKeys>,
    data_keys: Mutex<DataKeys>,
    dropped: Mutex<HashSet<SpaceId>>,
    chosen: RwLock<HashSet<ResourceId>>,
    /// What the numbers of resources stand for.
    names: RwLock<HashMap<ResourceId, GroupResource>>,
    /// Held while what other replicas did is taken over: spaces that were dropped there are known as such afterwards.
    following: Mutex<()>,
    /// A store key that was made outside of commits and has to be noted.
    pending: Mutex<Option<StoreKey>>,
    /// What was gone around.
    damaged: AtomicU64,
}

#[derive(Default)]
struct StoreKeys {
    /// Once opened, a key stays here: somebody may hold a data key that it wrapped.
    opened: BTreeMap<u32, Arc<StoreKey>>,
    /// The numbers that are noted in the store. The last of them wraps.
    noted: BTreeSet<u32>,
    sealing: bool,
}

pub(super) struct StoreKey {
    pub(super) number: u32,
    pub(super) cipher: Cipher,
    wrapped: WrappedKey,
}

/// What can be told about keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyStatus {
    /// In the order in which they were made. The last one is used; when there are others, data keys are being wrapped anew.
    pub store_keys: Vec<StoreKeyStatus>,
    /// Records from before are being sealed.
    pub sealing: bool,
    /// Data keys in memory.
    pub data_keys_open: usize,
    /// Records and keys that were gone around because they are damaged, since the start.
    pub damaged: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreKeyStatus {
    pub number: u32,
    /// The key-encryption key that it needs.
    pub key: String,
}

impl Keyring {
    /// Keys for a store whose records of these resources are to be sealed. With no resources nothing more is sealed, and what is
    /// can still be read.
    pub fn new(encryption: Box<dyn KeyEncryption>, resources: Vec<GroupResource>) -> Arc<Keyring> {
        Arc::new(Keyring {
            encryption,
            resources,
            store_keys: RwLock::default(),
            data_keys: Mutex::default(),
            dropped: Mutex::default(),
            chosen: RwLock::default(),
            names: RwLock::default(),
            following: Mutex::default(),
            pending: Mutex::default(),
            damaged: AtomicU64::new(0),
        })
    }

    pub fn resources(&self) -> &[GroupResource] {
        &self.resources
    }

    /// Opens the store keys that a store has noted, for reading. Asks outside, and fails if one cannot be unwrapped.
    pub fn open(&self, notes: &[Note]) -> Result<(), KeyError> {
        for (name, value) in notes.iter().filter(|(name, _)| name.starts_with(STORE_KEY_NOTE)) {
            let noted = decode_note(name, value);
            let (number, wrapped) =
                noted.ok_or_else(|| KeyError::Unusable(format!("the note of {name} cannot be read")))?;
            let secret = self.encryption.unwrap(&wrapped)?;
            self.insert(StoreKey { number, cipher: Cipher::new(&secret), wrapped });
        }
        Ok(())
    }

    /// Seals something that is not in the store, with a key of its own. Asks outside.
    pub fn seal_apart(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let secret = Secret::random().ok_or(KeyError::NoRandom)?;
        let wrapped = self.encryption.wrap(&secret)?.encode();
        let wrapped = wrapped.ok_or_else(|| KeyError::Unusable("a wrapped key is too long".into()))?;
        let mut out = Vec::new();
        put_bytes(&wrapped, &mut out);
        Cipher::new(&secret).seal(APART, message, &mut out).ok_or(KeyError::NoRandom)?;
        Ok(out)
    }

    /// Opens what was sealed so. Asks outside.
    pub fn open_apart(&self, sealed: &[u8]) -> Result<Vec<u8>, KeyError> {
        let unusable = || KeyError::Unusable("it was not sealed by polder, or is damaged".into());
        let mut input = Input(sealed);
        let wrapped = input.bytes().and_then(WrappedKey::decode).ok_or_else(unusable)?;
        let secret = self.encryption.unwrap(&wrapped)?;
        Cipher::new(&secret).open(APART, input.0).ok_or_else(unusable)
    }

    /// Looks outside whether another key is to be used from now on, and makes a store key with it if so; whoever writes will
    /// find it. Blocks. True when there is one.
    pub fn refresh(&self) -> Result<bool, KeyError> {
        let Some(newest) = self.newest() else { return Ok(false) };
        if self.encryption.current()? == newest.wrapped.key || self.pending.lock().is_some() {
            return Ok(false);
        }
        // A key that went from its place while this server had what it needs of it in memory: the next start would find nothing.
        self.encryption.unwrap(&newest.wrapped)?;
        let made = self.make(newest.number.saturating_add(1))?;
        *self.pending.lock() = Some(made);
        Ok(true)
    }

    /// Something that was to be rewritten is damaged; the log names it, unless there is much of it.
    pub(super) fn note_damage(&self, what: &str) {
        const NAMED_MAX: u64 = 100;
        if self.damaged.fetch_add(1, Ordering::Relaxed) < NAMED_MAX {
            tracing::error!(what, "is damaged: it is not rewritten, what follows it is");
        }
    }

    pub fn status(&self) -> KeyStatus {
        let store_keys = self.store_keys.read();
        let noted = store_keys.noted.iter().filter_map(|number| store_keys.opened.get(number));
        KeyStatus {
            store_keys: noted
                .map(|key| StoreKeyStatus { number: key.number, key: key.wrapped.key.clone() })
                .collect(),
            sealing: store_keys.sealing,
            data_keys_open: self.data_keys.lock().len(),
            damaged: self.damaged.load(Ordering::Relaxed),
        }
    }

    /// Opens the store keys, and makes one if there is none, or none of the present key-encryption key. Returns what has to be
    /// noted then.
    pub(super) fn begin(&self, notes: &[Note]) -> Result<Option<(StoreKey, StoredNote)>, KeyError> {
        self.open(notes)?;
        let number = match self.newest() {
            None if self.resources.is_empty() => return Ok(None),
            None => {
                self.encryption.begin()?;
                1
            }
            Some(newest) if self.encryption.current()? == newest.wrapped.key => return Ok(None),
            Some(newest) => newest.number.saturating_add(1),
        };
        self.noted(self.make(number)?).map(Some)
    }

    fn make(&self, number: u32) -> Result<StoreKey, KeyError> {
        let secret = Secret::random().ok_or(KeyError::NoRandom)?;
        let wrapped = self.encryption.wrap(&secret)?;
        let current = self.encryption.current()?;
        if wrapped.key != current {
            let what =
                format!("key {:?} has wrapped a store key, although {current:?} is in use", wrapped.key);
            return Err(KeyError::Unusable(what));
        }
        Ok(StoreKey { number, cipher: Cipher::new(&secret), wrapped })
    }

    fn noted(&self, key: StoreKey) -> Result<(StoreKey, StoredNote), KeyError> {
        let value = key.wrapped.encode();
        let value = value.ok_or_else(|| KeyError::Unusable("a wrapped store key is too long".into()))?;
        let note = (format_smolstr!("{STORE_KEY_NOTE}{}", key.number), Some(value));
        Ok((key, note))
    }

    /// A store key that waits to be noted. Put back with [`Keyring::postpone`] when that fails.
    pub(super) fn take_pending(&self) -> Result<Option<(StoreKey, StoredNote)>, KeyError> {
        let pending = self.pending.lock().take();
        pending.map(|key| self.noted(key)).transpose()
    }

    pub(super) fn postpone(&self, key: StoreKey) {
        *self.pending.lock() = Some(key);
    }

    /// A store key is noted: from now on it wraps.
    pub(super) fn insert(&self, key: StoreKey) {
        let mut store_keys = self.store_keys.write();
        store_keys.noted.insert(key.number);
        store_keys.opened.insert(key.number, Arc::new(key));
    }

    /// What another replica has noted about store keys: new ones are opened, which asks outside.
    pub(super) fn take_over(&self, notes: &[StoredNote]) -> Result<(), KeyError> {
        for (name, value) in notes.iter().filter(|(name, _)| name.starts_with(STORE_KEY_NOTE)) {
            match value {
                Some(value) => {
                    self.open(&[(name.clone(), value.clone())])?;
                    // Whatever waits here was made for the same reason.
                    *self.pending.lock() = None;
                }
                None => {
                    let number = name.strip_prefix(STORE_KEY_NOTE).and_then(|number| number.parse().ok());
                    number.and_then(|number| self.retire(number));
                }
            }
        }
        Ok(())
    }

    /// The numbers of the store keys before the newest, as they are noted.
    pub(super) fn outdated(&self) -> Vec<(u32, SmolStr)> {
        let store_keys = self.store_keys.read();
        let old = store_keys.noted.iter().rev().skip(1);
        old.map(|number| (*number, format_smolstr!("{STORE_KEY_NOTE}{number}"))).collect()
    }

    pub(super) fn retire(&self, number: u32) -> Option<String> {
        let mut store_keys = self.store_keys.write();
        store_keys.noted.remove(&number);
        store_keys.opened.get(&number).map(|key| key.wrapped.key.clone())
    }

    pub(super) fn set_sealing(&self, sealing: bool) {
        self.store_keys.write().sealing = sealing;
    }

    pub(super) fn newest(&self) -> Option<Arc<StoreKey>> {
        let store_keys = self.store_keys.read();
        store_keys.noted.last().and_then(|number| store_keys.opened.get(number)).cloned()
    }

    /// Learns what resources are called, and which of them are to be sealed.
    pub fn learn(&self, resources: &[(ResourceId, GroupResource)]) {
        for (id, resource) in resources {
            self.names.write().insert(*id, resource.clone());
            if self.resources.contains(resource) {
                self.chosen.write().insert(*id);
            }
        }
    }

    pub(super) fn name_of(&self, resource: ResourceId) -> Result<GroupResource, EngineError> {
        let name = self.names.read().get(&resource).cloned();
        name.ok_or_else(|| EngineError::Damaged(format!("nobody knows what resource {} is", resource.0)))
    }

    pub(super) fn following(&self) -> MutexGuard<'_, ()> {
        self.following.lock()
    }

    pub(super) fn is_chosen(&self, resource: ResourceId) -> bool {
        self.chosen.read().contains(&resource)
    }

    pub(super) fn chosen(&self) -> Vec<ResourceId> {
        self.chosen.read().iter().copied().collect()
    }

    /// The spaces that are dropped. Held while a commit drops some, so that nobody finds a key gone and does not know why.
    pub(super) fn dropped(&self) -> MutexGuard<'_, HashSet<SpaceId>> {
        self.dropped.lock()
    }

    pub(super) fn forget(&self, space: SpaceId) {
        self.data_keys.lock().forget(space);
    }

    /// The key of a space, if it has one.
    pub(super) fn data_key(
        &self,
        reader: &dyn Reader,
        space: SpaceId,
    ) -> Result<Option<Arc<Cipher>>, EngineError> {
        if let Some(cipher) = self.data_keys.lock().get(space) {
            return Ok(Some(cipher));
        }
        let Some(wrapped) = reader.key(space)? else { return Ok(None) };
        let cipher = Arc::new(Cipher::new(&self.unwrap(space, &wrapped)?));
        self.keep(space, cipher.clone());
        Ok(Some(cipher))
    }

    /// Keeps an open data key for the next who need it.
    pub(super) fn keep(&self, space: SpaceId, cipher: Arc<Cipher>) {
        let dropped = self.dropped.lock();
        if !dropped.contains(&space) {
            self.data_keys.lock().insert(space, cipher);
        }
    }

    /// A new key for a space, and how it is kept.
    pub(super) fn make_data_key(&self, space: SpaceId) -> Result<(Arc<Cipher>, SpaceKey), EngineError> {
        let secret = Secret::random().ok_or_else(|| failed(KeyError::NoRandom))?;
        let wrapped = self.wrap(space, &secret)?;
        Ok((Arc::new(Cipher::new(&secret)), SpaceKey { space, wrapped }))
    }

    pub(super) fn wrap(&self, space: SpaceId, secret: &Secret) -> Result<Arc<[u8]>, EngineError> {
        let key = self.newest().ok_or_else(|| EngineError::Failed("there is no store key".into()))?;
        let wrapped = wrapped::wrap_data_key(space, (key.number, &key.cipher), secret);
        wrapped.ok_or_else(|| failed(KeyError::NoRandom))
    }

    pub(super) fn unwrap(&self, space: SpaceId, wrapped: &[u8]) -> Result<Secret, EngineError> {
        let damaged = |what: &str| EngineError::Damaged(format!("the key of space {}: {what}", space.0));
        let number = wrapped::store_key_of(wrapped).ok_or_else(|| damaged("it cannot be read"))?;
        let key = self.store_keys.read().opened.get(&number).cloned();
        let key = key.ok_or_else(|| damaged(&format!("there is no store key {number}")))?;
        let secret = wrapped::unwrap_data_key(space, (number, &key.cipher), wrapped);
        secret.ok_or_else(|| damaged("it does not open"))
    }
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// The store keys that a store has noted, without opening them.
pub fn noted_keys(notes: &[Note]) -> Vec<StoreKeyStatus> {
    let noted = notes.iter().filter_map(|(name, value)| decode_note(name, value));
    let mut keys: Vec<_> =
        noted.map(|(number, wrapped)| StoreKeyStatus { number, key: wrapped.key }).collect();
    keys.sort_by_key(|key| key.number);
    keys
}

fn decode_note(name: &str, value: &[u8]) -> Option<(u32, WrappedKey)> {
    let number = name.strip_prefix(STORE_KEY_NOTE)?.parse().ok()?;
    Some((number, WrappedKey::decode(value)?))
}

pub(super) fn failed(error: KeyError) -> EngineError {
    EngineError::Failed(Box::new(error))
}
