//! The writing side: seals records of chosen resources, makes a key for a space when it gets its first one, and forgets the
//! keys of spaces that are dropped. The engine below destroys those in the same commit.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::chores::{Rewrapping, SealingPass};
use super::cipher::Cipher;
use super::keyring::{Keyring, failed};
use super::reader::SealedReader;
use super::record::{self, Place};
use super::wrapped::KeyError;
use crate::engine::{
    Batch, Bell, Bounds, Engine, EngineError, FilledVersion, Horizon, Names, Note, ObjectWrite, Reader,
    Recovered, SpaceState, Version,
};
use crate::key::{Revision, SpaceId};
use crate::object::Record;
use crate::replica::check_alone;

/// An engine around an engine.
pub struct SealedEngine<E> {
    pub(super) inner: E,
    pub(super) keyring: Arc<Keyring>,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) current: Revision,
    pub(super) rewrapping: Option<Rewrapping>,
    pub(super) sealing: Option<SealingPass>,
    /// What another replica did, kept below, that cannot be opened yet: it made a store key that its key-encryption key does not
    /// open for us now. Nothing is written until that is seen.
    unopened: Option<Batch>,
}

/// The keys that a batch makes.
type MadeKeys = HashMap<SpaceId, Arc<Cipher>>;

impl<E: Engine> SealedEngine<E> {
    pub fn new(inner: E, keyring: Arc<Keyring>) -> SealedEngine<E> {
        let reader = inner.own_reader();
        SealedEngine {
            inner,
            keyring,
            reader,
            current: Revision(0),
            rewrapping: None,
            sealing: None,
            unopened: None,
        }
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
            let resource = self.keyring.name_of(entry.resource)?;
            let resource = (entry.resource, &resource);
            let place = Place { space, resource, name: &entry.name, revision: entry.revision };
            *record = Some(record::seal(&cipher, place, plain).ok_or_else(|| failed(KeyError::NoRandom))?);
        }
        Ok(Some((sealed, made)))
    }

    /// Opens the store keys, makes one if it is needed, and looks what is left to rewrite.
    fn begin(&mut self, notes: &[Note], recovered: &Recovered) -> Result<(), EngineError> {
        self.current = recovered.current;
        self.keyring.learn(&recovered.resources);
        let dropped = recovered.spaces.iter().filter(|row| row.state == SpaceState::Dropped);
        self.keyring.dropped().extend(dropped.map(|row| row.id));
        if let Some((key, note)) = self.keyring.begin(notes).map_err(failed)? {
            self.inner.apply(&Batch { notes: vec![note], ..self.rows() })?;
            self.keyring.insert(key);
        }
        self.begin_chores(notes, recovered)
    }

    /// Whether everything that is kept below can be seen here.
    fn check_opened(&self) -> Result<(), EngineError> {
        match self.unopened {
            Some(_) => Err(EngineError::Unavailable(
                "a store key that another replica has made cannot be opened yet".into(),
            )),
            None => Ok(()),
        }
    }

    /// Opens what another replica did; keeps it for the next try when a store key does not open.
    fn open_or_wait(&mut self, mut batch: Batch) -> Result<Batch, EngineError> {
        if let Err(error) = self.keyring.take_over(&batch.notes) {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "another replica has made a store key that cannot be opened here: nothing newer is seen or written until it can, which \
                 is tried again and again. Is the key-encryption key here too?"
            );
            self.unopened = Some(batch);
            return Err(EngineError::Unavailable(Box::new(error)));
        }
        batch.notes.clear();
        // It is kept below already: whoever does not get it here has less than all.
        self.opened(&mut batch).map_err(|error| EngineError::Unknown(Box::new(error)))?;
        Ok(batch)
    }

    /// Opens what another replica has sealed.
    fn opened(&self, batch: &mut Batch) -> Result<(), EngineError> {
        self.keyring.learn(&batch.resources);
        // What was written and went with its plane at once has no key any more.
        let dropped = batch.spaces.iter().filter(|row| row.state == SpaceState::Dropped);
        let dropped: HashSet<SpaceId> = dropped.map(|row| row.id).collect();
        batch.objects.retain(|write| !dropped.contains(&write.entry.space));
        for ObjectWrite { entry, record } in &mut batch.objects {
            let Some(sealed) = record.as_ref().and_then(Record::sealed) else { continue };
            let cipher = self.keyring.data_key(&*self.reader, entry.space)?;
            let resource = self.keyring.name_of(entry.resource)?;
            let resource = (entry.resource, &resource);
            let place = Place { space: entry.space, resource, name: &entry.name, revision: entry.revision };
            let opened = cipher.and_then(|cipher| record::open(&cipher, place, sealed));
            let damaged = || {
                EngineError::Damaged(format!("what another replica wrote as {} does not open", entry.name))
            };
            *record = Some(opened.ok_or_else(damaged)?);
        }
        Ok(())
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
            let resource_name = self.keyring.name_of(*resource)?;
            let place = Place { space, resource: (*resource, &resource_name), name, revision: *revision };
            *record = Some(record::seal(&cipher, place, plain).ok_or_else(|| failed(KeyError::NoRandom))?);
        }
        Ok(sealed)
    }
}

/// Notes which spaces a batch drops, or makes anew.
fn note_dropped(keyring: &Keyring, dropped: &mut HashSet<SpaceId>, batch: &Batch) {
    for row in &batch.spaces {
        if row.state == SpaceState::Dropped {
            dropped.insert(row.id);
            keyring.forget(row.id);
        } else {
            dropped.remove(&row.id);
        }
    }
}

impl<E: Engine> Engine for SealedEngine<E> {
    fn recover(&mut self) -> Result<Recovered, EngineError> {
        loop {
            let mut recovered = self.inner.recover()?;
            let notes = std::mem::take(&mut recovered.notes);
            check_alone(&notes)?;
            match self.begin(&notes, &recovered) {
                // Another replica has begun at the same time, and perhaps made a store key.
                Err(EngineError::Overtaken) => {}
                begun => return begun.map(|()| recovered),
            }
        }
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.check_opened()?;
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
            note_dropped(&keyring, &mut held.unwrap_or_else(|| keyring.dropped()), batch);
        }
        for (space, cipher) in made.into_iter().flatten() {
            keyring.keep(*space, cipher.clone());
        }
        Ok(())
    }

    fn follow(&mut self, names: &dyn Names) -> Result<Option<Batch>, EngineError> {
        if let Some(batch) = self.unopened.take() {
            return self.open_or_wait(batch).map(Some);
        }
        let keyring = self.keyring.clone();
        let following = keyring.following();
        let Some(batch) = self.inner.follow(names)? else { return Ok(None) };
        if !batch.spaces.is_empty() {
            note_dropped(&keyring, &mut keyring.dropped(), &batch);
        }
        drop(following);
        self.current = self.current.max(batch.last);
        self.open_or_wait(batch).map(Some)
    }

    fn bounds(&self) -> Bounds {
        self.inner.bounds()
    }

    fn set_bell(&mut self, bell: Bell) {
        self.inner.set_bell(bell);
    }

    fn horizon(&self) -> Option<Arc<dyn Horizon>> {
        self.inner.horizon()
    }

    fn leads(&self) -> bool {
        self.inner.leads()
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
        self.check_opened()?;
        let sealed = self.sealed_versions(space, versions)?;
        self.inner.fill(space, &sealed)
    }

    fn rewrite(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        self.check_opened()?;
        let sealed = self.sealed_versions(space, versions)?;
        self.inner.rewrite(space, &sealed)
    }

    fn chore(&mut self) -> Result<bool, EngineError> {
        // Whatever is wrong above, what is destroyed below does not wait for it.
        let may_write = self.inner.leads() && self.unopened.is_none();
        let own = if may_write { self.rewrite_some() } else { Ok(false) };
        let below = self.inner.chore();
        Ok(own? | below?)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(SealedReader::new(self.inner.reader(), self.keyring.clone()))
    }

    fn own_reader(&self) -> Arc<dyn Reader> {
        Arc::new(SealedReader::new(self.inner.own_reader(), self.keyring.clone()))
    }
}
