//! A store on its way to another: all there is after one commit, and then what has changed since, as often as somebody wants.
//!
//! What is copied is what engines keep: records stay sealed, keys wrapped, and numbers of planes, spaces and commits are the same
//! there as here. So are resource versions: a client goes on where it was. History is not copied; it begins with the copy.
//! Where things come from and go to is for others to know: an engine of any kind is filled here, and [`mod@file`] is a store on
//! its way through a file.
//!
//! Invariant: nobody opens a store that is half a copy ([`check_whole`]).

mod digest;
pub mod file;

use hashbrown::HashMap;
use polder_model::SmolStr;

pub use self::digest::Digest;
use crate::engine::{Batch, Bounds, Engine, EngineError, FilledVersion, Note, PlaneWrite, Recovered};
use crate::key::{Revision, SpaceId};
use crate::object::Record;
use crate::replica::{Act, Entry, Kept, Numbering, is_own_note, note, rows};
use crate::sealed::is_bound_by_name;

/// The note of an engine that something is being copied into.
const COPYING: &str = "copy-unfinished";
/// What is written at one time, however much an engine takes.
const PART_LEN_MAX: usize = 1_000;
const PART_BYTES_MAX: usize = 4 << 20;

/// What takes the parts of a copy.
pub type Take<'a> = dyn FnMut(Vec<Kept>) -> Result<(), EngineError> + 'a;

/// A store that is being copied into.
pub struct Copy<'a> {
    filling: Filling<'a>,
}

impl<'a> Copy<'a> {
    /// Begins, if the engine has nothing yet.
    pub fn begin(engine: &'a mut dyn Engine) -> Result<Copy<'a>, EngineError> {
        let Recovered { notes, current, planes, spaces, .. } = engine.recover()?;
        if current > Revision(0) || !notes.is_empty() || !planes.is_empty() || !spaces.is_empty() {
            let what = match check_whole(&notes) {
                Ok(()) => "there is a store already: copies are made where nothing is",
                Err(_) => "there is half a copy: remove it, and begin again where nothing is",
            };
            return Err(EngineError::Failed(what.into()));
        }
        let filling = Filling::new(engine);
        filling.engine.apply(&Batch { notes: vec![note(COPYING, Some(&[]))], ..rows(Revision(0)) })?;
        Ok(Copy { filling })
    }

    /// Takes a part of what there is.
    pub fn take(&mut self, part: Vec<Kept>) -> Result<(), EngineError> {
        self.filling.take(part)
    }

    /// All there is has been taken, and this was the last commit in it.
    pub fn reach(&mut self, current: Revision) -> Result<(), EngineError> {
        self.filling.reach(current)
    }

    /// Takes something that has happened since.
    pub fn follow(&mut self, entry: &Entry) -> Result<(), EngineError> {
        self.filling.follow(entry)
    }

    /// From now on it is a store.
    pub fn finish(self) -> Result<(), EngineError> {
        let Filling { engine, current, .. } = self.filling;
        engine.apply(&Batch { notes: vec![note(COPYING, None)], ..rows(current) })
    }
}

/// Whether an engine has a store, and not a part of one.
pub fn check_whole(notes: &[Note]) -> Result<(), EngineError> {
    match notes.iter().any(|(name, _)| name == COPYING) {
        true => Err(EngineError::Failed(
            "something was being copied into it and did not come to an end: remove what is there, and copy again"
                .into(),
        )),
        false => Ok(()),
    }
}

/// Whether a record can be opened wherever it is copied to.
pub fn is_portable(record: &Record) -> bool {
    record.sealed().is_none_or(is_bound_by_name)
}

/// Whether a note is part of what there is, and not of where it is.
pub fn is_copied(name: &SmolStr) -> bool {
    name != COPYING && !is_own_note(name)
}

/// Puts what is kept elsewhere into an engine that had nothing.
pub(crate) struct Filling<'a> {
    engine: &'a mut dyn Engine,
    names: Numbering,
    current: Revision,
    bounds: Bounds,
}

impl<'a> Filling<'a> {
    pub(crate) fn new(engine: &'a mut dyn Engine) -> Filling<'a> {
        let bounds = engine.bounds();
        Filling { engine, names: Numbering::new(&[]), current: Revision(0), bounds }
    }

    pub(crate) fn take(&mut self, part: Vec<Kept>) -> Result<(), EngineError> {
        let (len_max, bytes_max) =
            (self.bounds.batch_len.min(PART_LEN_MAX), self.bounds.batch_bytes.min(PART_BYTES_MAX));
        let (mut piece, mut bytes) = (Vec::new(), 0);
        for kept in part {
            bytes += weight(&kept);
            piece.push(kept);
            if piece.len() >= len_max || bytes >= bytes_max {
                self.take_piece(std::mem::take(&mut piece))?;
                bytes = 0;
            }
        }
        self.take_piece(piece)
    }

    fn take_piece(&mut self, piece: Vec<Kept>) -> Result<(), EngineError> {
        use crate::engine::Names as _;
        let mut batch = rows(self.current);
        let mut filled: HashMap<SpaceId, Vec<FilledVersion>> = HashMap::new();
        for kept in piece {
            match kept {
                Kept::Object { space, resource, name, version } => {
                    let resource = self.names.resource_id(&resource);
                    filled.entry(space).or_default().push(FilledVersion { resource, name, version });
                }
                Kept::Plane(row) => batch.planes.push(PlaneWrite::Put(row)),
                Kept::Space(row) => batch.spaces.push(row),
                Kept::Key(key) => batch.keys.push(key),
                Kept::Note((name, value)) => batch.notes.push((name, Some(value))),
            }
        }
        self.apply(batch)?;
        filled.into_iter().try_for_each(|(space, versions)| self.engine.fill(space, &versions))
    }

    /// With the names that the engine has not been told yet.
    fn apply(&mut self, batch: Batch) -> Result<(), EngineError> {
        use crate::engine::Names as _;
        let batch = Batch { resources: self.names.unstored(), ..batch };
        let is_commit = batch.last >= batch.first;
        let has_rows = !(batch.planes.is_empty() && batch.spaces.is_empty() && batch.keys.is_empty());
        if is_commit || has_rows || !batch.notes.is_empty() || !batch.resources.is_empty() {
            self.engine.apply(&batch)?;
            self.names.stored();
        }
        Ok(())
    }

    /// Tells the engine of commits without saying what was in them: all there is is there already.
    pub(crate) fn reach(&mut self, current: Revision) -> Result<(), EngineError> {
        if self.current < current {
            self.engine.apply(&Batch { last: current, floor: current, ..rows(self.current) })?;
            self.current = current;
        }
        while self.engine.compact(current)? < current {}
        Ok(())
    }

    fn follow(&mut self, entry: &Entry) -> Result<(), EngineError> {
        match entry.translated(&self.names)? {
            Act::Apply(batch) => {
                self.current = self.current.max(batch.last);
                self.apply(batch)
            }
            Act::Fill(space, versions) => {
                self.apply(rows(self.current))?;
                self.engine.fill(space, &versions)
            }
            Act::Rewrite(space, versions) => {
                self.apply(rows(self.current))?;
                self.engine.rewrite(space, &versions)
            }
        }
    }
}

/// About what it takes to write it.
fn weight(kept: &Kept) -> usize {
    match kept {
        Kept::Object { name, version, .. } => 64 + name.namespace.len() + name.name.len() + version.len(),
        Kept::Plane(_) | Kept::Space(_) => 128,
        Kept::Key(key) => 16 + key.wrapped.len(),
        Kept::Note((name, value)) => name.len() + value.len(),
    }
}
