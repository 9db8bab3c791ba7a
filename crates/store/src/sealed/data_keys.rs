//! The data keys that were used lately, opened. Bounded: a million planes may have secrets, and few are read at a time.
//!
//! Two generations: what is used moves to the young one, and when that is full the old one is forgotten.

use std::sync::Arc;

use hashbrown::HashMap;

use super::cipher::Cipher;
use crate::key::SpaceId;

/// Keys in a generation. One takes about a kilobyte.
const GENERATION_LEN_MAX: usize = 4_096;

#[derive(Default)]
pub(super) struct DataKeys {
    young: HashMap<SpaceId, Arc<Cipher>>,
    old: HashMap<SpaceId, Arc<Cipher>>,
}

impl DataKeys {
    pub(super) fn get(&mut self, space: SpaceId) -> Option<Arc<Cipher>> {
        if let Some(cipher) = self.young.get(&space) {
            return Some(cipher.clone());
        }
        let cipher = self.old.remove(&space)?;
        self.insert(space, cipher.clone());
        Some(cipher)
    }

    pub(super) fn insert(&mut self, space: SpaceId, cipher: Arc<Cipher>) {
        if self.young.len() >= GENERATION_LEN_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(space, cipher);
    }

    pub(super) fn forget(&mut self, space: SpaceId) {
        self.young.remove(&space);
        self.old.remove(&space);
    }

    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
