//! The writing side: seals records of chosen resources, makes a key for a space when it gets its first one, and forgets the
//! keys of spaces that are dropped. The engine below destroys those in the same commit.

use std::sync::Arc;

use hashbrown::HashMap;

use super::chores::{Rewrapping, SealingPass};
use super::cipher::Cipher;
use super::keyring::{Keyring, failed};
use super::reader::SealedReader;
use super::record::{self, Place};
use super::wrapped::KeyError;
use crate::engine::{
    Batch, Engine, EngineError, FilledVersion, ObjectWrite, Reader, Recovered, SpaceState, Version,
};
use crate::key::{Revision, SpaceId};

/// An engine around an engine.
pub struct SealedEngine<E> {
    pub(super) inner: E,
    pub(super) keyring: Arc<Keyring>,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) current: Revision,
    pub(super) rewrapping: Option<Rewrapping>,
    pub(super) sealing: Option<SealingPass>,
}

/// The keys that a batch makes.
type MadeKeys = HashMap<SpaceId, Arc<Cipher>>;

impl<E: Engine> SealedEngine<E> {
    pub fn new(inner: E, keyring: Arc<Keyring>) -> SealedEngine<E> {
        let reader = inner.own_reader();
        SealedEngine { inner, keyring, reader, current: Revision(0), rewrapping: None, sealing: None }
    }

    pub fn into_inner(self) -> E {
        self.inner
    }

    /// Whether keys or records wait to be rewritten: [`Engine::chore`] does it.
    pub fn is_rewriting(&self) -> bool {
        self.rewrapping.is_some() || self.sealing.is_some()
    }

    /// A batch that is no commit, only rows.
    pub(super) fn rows(&self) -> Batch {
        Batch { first: self.current.next(), last: self.current, ..Batch::default() }
    }

    /// The key of a space; made, and kept below, if there is none.
    pub(super) fn data_key(&mut self, space: SpaceId) -> Result<Arc<Cipher>, EngineError> {
        if let Some(cipher) = self.keyring.data_key(&*self.reader, space)? {
            return Ok(cipher);
        }
        let (cipher, key) = self.keyring.make_data_key(space)?;
        self.inner.apply(&Batch { keys: vec![key], ..self.rows() })?;
        self.keyring.keep(space, cipher.clone());
        Ok(cipher)
    }

    /// A batch with chosen records sealed, and the keys that it makes; `None` when there are no such records.
    fn sealed(&self, batch: &Batch) -> Result<Option<(Batch, MadeKeys)>, EngineError> {
        let is_chosen =
            |write: &ObjectWrite| write.record.is_some() && self.keyring.is_chosen(write.entry.resource);
        if !batch.objects.iter().any(is_chosen) {
            return Ok(None);
        }
        let mut sealed = batch.clone();
        let mut made = MadeKeys::new();
        for ObjectWrite { entry, record } in &mut sealed.objects {
            let Some(plain) = record.as_ref().filter(|_| self.keyring.is_chosen(entry.resource)) else {
                continue;
            };
            let space = entry.space;
            let cipher = match made.get(&space) {
                Some(cipher) => cipher.clone(),
                None => match self.keyring.data_key(&*self.reader, space)? {
                    Some(cipher) => cipher,
                    None => {
                        let (cipher, key) = self.keyring.make_data_key(space)?;
                        sealed.keys.push(key);
                        made.insert(space, cipher.clone());
                        cipher
                    }
                },
            };
            let place =
                Place { space, resource: entry.resource, name: &entry.name, revision: entry.revision };
            *record = Some(record::seal(&cipher, place, plain).ok_or_else(|| failed(KeyError::NoRandom))?);
        }
        Ok(Some((sealed, made)))
    }

    /// Versions as they go into a space.
    pub(super) fn sealed_versions(
        &mut self,
        space: SpaceId,
        versions: &[FilledVersion],
    ) -> Result<Vec<FilledVersion>, EngineError> {
        let mut sealed = versions.to_vec();
        for FilledVersion { resource, name, version: Version { revision, record } } in &mut sealed {
            let Some(plain) = record.as_ref().filter(|_| self.keyring.is_chosen(*resource)) else { continue };
            let cipher = self.data_key(space)?;
            let place = Place { space, resource: *resource, name, revision: *revision };
            *record = Some(record::seal(&cipher, place, plain).ok_or_else(|| failed(KeyError::NoRandom))?);
        }
        Ok(sealed)
    }
}

impl<E: Engine> Engine for SealedEngine<E> {
    fn recover(&mut self) -> Result<Recovered, EngineError> {
        let mut recovered = self.inner.recover()?;
        let notes = std::mem::take(&mut recovered.notes);
        self.current = recovered.current;
        self.keyring.learn(&recovered.resources);
        let dropped = recovered.spaces.iter().filter(|row| row.state == SpaceState::Dropped);
        self.keyring.dropped().extend(dropped.map(|row| row.id));
        if let Some((key, note)) = self.keyring.begin(&notes).map_err(failed)? {
            self.inner.apply(&Batch { notes: vec![note], ..self.rows() })?;
            self.keyring.insert(key);
        }
        self.begin_chores(&notes, &recovered)?;
        Ok(recovered)
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.keyring.learn(&batch.resources);
        let sealed = self.sealed(batch)?;
        let (batch, made) = match &sealed {
            Some((batch, made)) => (batch, Some(made)),
            None => (batch, None),
        };
        let keyring = self.keyring.clone();
        let drops = batch.spaces.iter().any(|row| row.state == SpaceState::Dropped);
        let held = drops.then(|| keyring.dropped());
        self.inner.apply(batch)?;
        self.current = self.current.max(batch.last);
        if !batch.spaces.is_empty() {
            let mut dropped = held.unwrap_or_else(|| keyring.dropped());
            for row in &batch.spaces {
                if row.state == SpaceState::Dropped {
                    dropped.insert(row.id);
                    keyring.forget(row.id);
                } else {
                    dropped.remove(&row.id);
                }
            }
        }
        for (space, cipher) in made.into_iter().flatten() {
            keyring.keep(*space, cipher.clone());
        }
        Ok(())
    }

    fn compact(&mut self, floor: Revision) -> Result<Revision, EngineError> {
        self.inner.compact(floor)
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<bool, EngineError> {
        // A merged layer that came to nothing is marked from the start and may have got a key since.
        self.keyring.dropped().insert(space);
        self.keyring.forget(space);
        let done = self.inner.drop_space(space)?;
        if done {
            self.keyring.dropped().remove(&space);
        }
        Ok(done)
    }

    fn fill(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        let sealed = self.sealed_versions(space, versions)?;
        self.inner.fill(space, &sealed)
    }

    fn rewrite(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        let sealed = self.sealed_versions(space, versions)?;
        self.inner.rewrite(space, &sealed)
    }

    fn chore(&mut self) -> Result<bool, EngineError> {
        // Whatever is wrong above, what is destroyed below does not wait for it.
        let (own, below) = (self.rewrite_some(), self.inner.chore());
        Ok(own? | below?)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(SealedReader::new(self.inner.reader(), self.keyring.clone()))
    }

    fn own_reader(&self) -> Arc<dyn Reader> {
        Arc::new(SealedReader::new(self.inner.own_reader(), self.keyring.clone()))
    }
}
