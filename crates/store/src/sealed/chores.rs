//! What is rewritten between commits, a bounded piece at a time: data keys, when there is a new store key to wrap them; and records
//! from before their resource was chosen.
//!
//! Both begin again where a restart finds them undone: store keys before the newest are noted until no data key needs them, and the
//! resources whose records are all sealed are noted when that is so.
//!
//! One record or key that is damaged stops nothing: it is named in the log, counted, and gone around. The rest is done; what it
//! was in the way of (a note, an old store key) stays until a restart finds it whole or gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::engine::SealedEngine;
use super::keyring::failed;
use super::wrapped;
use crate::engine::{Batch, Engine, EngineError, FilledVersion, Note, Recovered, SpaceKey, SpaceState};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::Record;

/// Keys wrapped anew in one piece.
const KEYS_LEN: usize = 256;
/// Versions and bytes looked at in one piece, and spaces looked into for them.
const VERSIONS_LEN: usize = 128;
const VERSIONS_BYTES: usize = 1 << 20;
const SPACES_LEN: usize = 128;

/// The resources of which nothing is stored in plain are noted under this name.
const SEALED_NOTE: &str = "sealed";

/// How far data keys have been wrapped anew.
#[derive(Default)]
pub(super) struct Rewrapping {
    after: Option<SpaceId>,
    /// One at a time: there is a damaged one among the next.
    is_careful: bool,
    damaged: u64,
}

/// How far records from before have been sealed.
pub(super) struct SealingPass {
    /// Spaces still to be looked into; those made since have nothing from before.
    spaces: Vec<SpaceId>,
    resources: Vec<ResourceId>,
    /// Where in the last of the spaces: which resource, after which version.
    resource: usize,
    after: Option<(ObjectName, Revision)>,
    rewritten: u64,
    /// So many are looked at one at a time: there is a damaged one among them.
    careful: usize,
    damaged: u64,
}

impl<E: Engine> SealedEngine<E> {
    /// Finds what an earlier run has left to do, and what the present settings ask for.
    pub(super) fn begin_chores(&mut self, notes: &[Note], recovered: &Recovered) -> Result<(), EngineError> {
        if !self.keyring.outdated().is_empty() {
            self.rewrapping = Some(Rewrapping::default());
        }
        let noted = notes.iter().find(|(name, _)| name == SEALED_NOTE);
        let text = noted.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default();
        let sealed: BTreeSet<&str> = text.lines().collect();
        let chosen = self.chosen_names();
        if chosen.iter().any(|name| !sealed.contains(name.as_str())) {
            let spaces = recovered
                .spaces
                .iter()
                .filter(|row| !matches!(row.state, SpaceState::Dropped | SpaceState::Filling));
            self.sealing = Some(SealingPass {
                spaces: spaces.map(|row| row.id).collect(),
                resources: self.keyring.chosen(),
                resource: 0,
                after: None,
                rewritten: 0,
                careful: 0,
                damaged: 0,
            });
            self.keyring.set_sealing(true);
        } else if chosen.len() < sealed.len() {
            // What is no longer chosen is written in plain from now on.
            self.note_sealed()?;
        }
        Ok(())
    }

    fn chosen_names(&self) -> BTreeSet<String> {
        self.keyring.resources().iter().map(|resource| resource.to_string()).collect()
    }

    fn note_sealed(&mut self) -> Result<(), EngineError> {
        let names: Vec<String> = self.chosen_names().into_iter().collect();
        let value: Arc<[u8]> = names.join("\n").into_bytes().into();
        self.inner.apply(&Batch { notes: vec![(SEALED_NOTE.into(), Some(value))], ..self.rows() })
    }

    /// The next piece; true when there is more.
    pub(super) fn rewrite_some(&mut self) -> Result<bool, EngineError> {
        if let Some((key, note)) = self.keyring.take_pending().map_err(failed)? {
            if let Err(error) = self.inner.apply(&Batch { notes: vec![note], ..self.rows() }) {
                self.keyring.postpone(key);
                return Err(error);
            }
            self.keyring.insert(key);
            self.rewrapping = Some(Rewrapping::default());
            tracing::info!("there is a new key-encryption key: data keys are wrapped anew");
            return Ok(true);
        }
        if self.rewrapping.is_some() {
            return self.rewrap_some().map(|()| true);
        }
        if self.sealing.is_some() {
            return self.seal_some().map(|()| true);
        }
        Ok(false)
    }

    fn rewrap_some(&mut self) -> Result<(), EngineError> {
        let Some(Rewrapping { after, is_careful, damaged }) = &self.rewrapping else { return Ok(()) };
        let (after, is_careful, mut damaged) = (*after, *is_careful, *damaged);
        let newest = self.keyring.newest().map(|key| key.number);
        let found = match self.reader.keys(after, if is_careful { 1 } else { KEYS_LEN }) {
            Err(EngineError::Damaged(_)) if !is_careful => {
                self.rewrapping = Some(Rewrapping { after, is_careful: true, damaged });
                return Ok(());
            }
            Err(EngineError::Damaged(what)) => {
                let next = match self.reader.next_key(after) {
                    Err(EngineError::Damaged(_)) => None,
                    next => next?,
                };
                self.keyring.note_damage(&what);
                let (after, damaged) = (next.or(after), damaged + 1);
                self.rewrapping = Some(Rewrapping { after, is_careful: false, damaged });
                // Nothing tells where the next one is.
                return if next.is_none() { self.end_rewrapping(damaged) } else { Ok(()) };
            }
            found => found?,
        };
        let Some(last) = found.last().map(|key| key.space) else {
            return self.end_rewrapping(damaged);
        };
        let mut keys = Vec::new();
        for SpaceKey { space, wrapped } in found {
            if wrapped::store_key_of(&wrapped) != newest {
                match self.keyring.unwrap(space, &wrapped) {
                    Ok(secret) => keys.push(SpaceKey { space, wrapped: self.keyring.wrap(space, &secret)? }),
                    Err(EngineError::Damaged(what)) => {
                        self.keyring.note_damage(&what);
                        damaged += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if !keys.is_empty() {
            self.inner.apply(&Batch { keys, ..self.rows() })?;
        }
        self.rewrapping = Some(Rewrapping { after: Some(last), is_careful, damaged });
        Ok(())
    }

    /// No data key that can be opened needs an older store key any more.
    fn end_rewrapping(&mut self, damaged: u64) -> Result<(), EngineError> {
        if damaged > 0 {
            self.rewrapping = None;
            tracing::error!(
                keys = damaged,
                "every data key is wrapped anew but for those that are damaged: older keys are kept for them"
            );
            return Ok(());
        }
        let outdated = self.keyring.outdated();
        let notes = outdated.iter().map(|(_, note)| (note.clone(), None)).collect();
        self.inner.apply(&Batch { notes, ..self.rows() })?;
        self.rewrapping = None;
        let retired: Vec<String> =
            outdated.into_iter().filter_map(|(number, _)| self.keyring.retire(number)).collect();
        tracing::info!(keys = ?retired, "every data key is wrapped anew: these key-encryption keys are not needed any more");
        Ok(())
    }

    fn seal_some(&mut self) -> Result<(), EngineError> {
        let Some(mut pass) = self.sealing.take() else { return Ok(()) };
        let outcome = self.seal_piece(&mut pass);
        let is_over = outcome.is_ok() && pass.spaces.is_empty();
        if !is_over {
            self.sealing = Some(pass);
            return outcome;
        }
        if pass.damaged > 0 {
            tracing::error!(
                damaged = pass.damaged,
                "records from before are sealed now, but for those that are damaged: see `polder store verify`"
            );
        } else if let Err(error) = self.note_sealed() {
            self.sealing = Some(pass);
            return Err(error);
        }
        self.keyring.set_sealing(false);
        if pass.rewritten > 0 {
            tracing::info!(records = pass.rewritten, "records from before are sealed now");
        }
        Ok(())
    }

    fn seal_piece(&mut self, pass: &mut SealingPass) -> Result<(), EngineError> {
        for _ in 0..SPACES_LEN {
            let Some(&space) = pass.spaces.last() else { return Ok(()) };
            let next = pass.resources.get(pass.resource).copied();
            let gone = self.keyring.dropped().contains(&space);
            let Some(resource) = next.filter(|_| !gone) else {
                pass.spaces.pop();
                (pass.resource, pass.after) = (0, None);
                continue;
            };
            let after = pass.after.as_ref().map(|(name, revision)| (name, *revision));
            let limit = if pass.careful > 0 { 1 } else { VERSIONS_LEN };
            let found = match self.reader.versions(space, resource, after, limit, VERSIONS_BYTES) {
                Err(EngineError::Damaged(what)) => return self.go_around(pass, space, resource, &what),
                found => found?,
            };
            pass.careful = pass.careful.saturating_sub(1);
            let Some(last) = found.last() else {
                (pass.resource, pass.after) = (pass.resource + 1, None);
                continue;
            };
            let last = Some((last.name.clone(), last.version.revision));
            let is_plain = |record: &Record| !record.is_sealed();
            let plain: Vec<FilledVersion> = found
                .into_iter()
                .filter(|filled| filled.version.record.as_ref().is_some_and(is_plain))
                .collect();
            if !plain.is_empty() {
                match self.rewrite(space, &plain) {
                    Err(EngineError::Damaged(what)) => return self.go_around(pass, space, resource, &what),
                    rewritten => rewritten?,
                }
                pass.rewritten += plain.len() as u64;
            }
            pass.after = last;
            return Ok(());
        }
        Ok(())
    }

    /// Something that comes next is damaged: looks for it one by one, and leaves it behind when it is found.
    fn go_around(
        &self,
        pass: &mut SealingPass,
        space: SpaceId,
        resource: ResourceId,
        what: &str,
    ) -> Result<(), EngineError> {
        if pass.careful == 0 {
            pass.careful = VERSIONS_LEN;
            return Ok(());
        }
        pass.damaged += 1;
        self.keyring.note_damage(what);
        let after = pass.after.as_ref().map(|(name, revision)| (name, *revision));
        match self.reader.next_place(space, resource, after) {
            Ok(Some(place)) => pass.after = Some(place),
            // Not even where it is can be read: what follows it is not found either.
            Ok(None) | Err(EngineError::Damaged(_)) => {
                tracing::error!(
                    space = space.0,
                    resource = resource.0,
                    "what comes after a damaged page is not sealed"
                );
                (pass.resource, pass.after) = (pass.resource + 1, None);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
