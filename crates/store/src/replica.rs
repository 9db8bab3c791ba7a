//! Several stores with one history. Each keeps all of it with an engine of its own and reads only there; a [`Journal`] that
//! they share says what comes next.
//!
//! An entry is added only behind the last one, so whoever adds it has seen all before it: that alone makes commits of several
//! replicas one sequence, limits exact and numbers unique. What was added is then made durable here. A replica that dies in
//! between finds it in the journal when it comes back, as the others do.
//!
//! Resources have names in a journal: each replica numbers them as it meets them.
//!
//! Invariant: what the engine below has is what the entries up to `position` say, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use polder_model::{GroupResource, SmolStr};

use crate::copy::{Filling, check_whole};
use crate::engine::{
    Batch, Bell, Bounds, Engine, EngineError, FilledVersion, Horizon, LogEntry, Names, Note, ObjectWrite,
    PlaneRow, Reader, Recovered, SpaceKey, SpaceRow, Version,
};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::sealed::Secret;

/// The note under which an engine keeps how much of a journal it has.
const POSITION: &str = "journal-position";
/// The note by which a journal is known. It is the same in all replicas, and random.
pub const IDENTITY: &str = "journal-identity";
/// How long to wait for an entry that is on its way, before looking again.
const ARRIVAL: Duration = Duration::from_millis(2);
/// The note of an engine that is being filled with what a journal has kept.
const RESTORING: &str = "journal-restoring";

/// How many entries there are before a place in a journal; what that means is for the journal to say, but it grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

/// What replicas tell each other, in one order.
pub trait Journal: Send {
    /// Adds an entry if the last one is at `after`; durable for all when this returns. `None`: somebody else was first.
    /// [`EngineError::Unknown`] when it may or may not be there: then it is among the entries that follow, whole and like
    /// those of others, or never will be; the replica goes on and may add another behind the same position.
    /// [`EngineError::Unavailable`] when nobody was there to take it, and none of it will be.
    fn append(&mut self, after: Position, entry: &Entry) -> Result<Option<Position>, EngineError>;

    /// Where the last entry is that anybody has added by now.
    fn end(&mut self) -> Result<Position, EngineError>;

    /// The first entry behind a position, if it has arrived here.
    fn next(&mut self, after: Position) -> Result<Option<(Position, Arc<Entry>)>, EngineError>;

    /// Tells how far it is, by [`Entry::revision`] of its last entry.
    fn horizon(&self) -> Arc<dyn Horizon>;

    /// Rung when an entry arrives.
    fn set_bell(&mut self, bell: Bell);

    /// Whether this replica does what only one may do.
    fn leads(&self) -> bool;

    /// What it takes at one time.
    fn bounds(&self) -> Bounds {
        Bounds::default()
    }

    /// The note [`IDENTITY`], which the first entry of every journal makes, as the journal has it now: by this a replica finds out
    /// that what it has belongs to another. `None` when there is no entry yet; or always, where a journal cannot tell.
    fn identity(&mut self) -> Result<Option<Arc<[u8]>>, EngineError> {
        Ok(None)
    }

    /// All there is after one of the entries, part by part: for a replica that has nothing, where the entries before it have been
    /// forgotten ([`EngineError::Compacted`]). Says which entry it was.
    fn snapshot(
        &mut self,
        take: &mut dyn FnMut(Vec<Kept>) -> Result<(), EngineError>,
    ) -> Result<Snapshot, EngineError> {
        let _ = take;
        Err(EngineError::Compacted)
    }
}

/// What a snapshot was taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub position: Position,
    /// The last commit in it.
    pub current: Revision,
}

/// Something that is there. Of an object it is the newest version in one space, also when that is its deletion.
#[derive(Clone, Debug)]
pub enum Kept {
    Object { space: SpaceId, resource: GroupResource, name: ObjectName, version: Version },
    Plane(PlaneRow),
    Space(SpaceRow),
    Key(SpaceKey),
    Note(Note),
}

/// One step of a history.
#[derive(Clone, Debug)]
pub struct Entry {
    pub act: Act,
    /// The newest commit, this one included.
    pub revision: Revision,
    /// What the numbers of resources in it stand for.
    pub names: Vec<(ResourceId, GroupResource)>,
    /// Deletions that hide nothing in the spaces below, by their places among the objects of the batch, in order: whoever keeps
    /// only what there is need not keep these.
    pub bare: Vec<usize>,
}

/// See the methods of [`Engine`].
#[derive(Clone, Debug)]
pub enum Act {
    Apply(Batch),
    Fill(SpaceId, Vec<FilledVersion>),
    Rewrite(SpaceId, Vec<FilledVersion>),
}

/// How resources are numbered while there is no store yet.
pub(crate) struct Numbering(Mutex<Numbers>);

struct Numbers {
    ids: HashMap<GroupResource, ResourceId>,
    next: u32,
    unstored: Vec<(ResourceId, GroupResource)>,
}

impl Numbering {
    pub(crate) fn new(known: &[(ResourceId, GroupResource)]) -> Numbering {
        let next = known.iter().map(|(id, _)| id.0 + 1).max().unwrap_or(0);
        let ids = known.iter().map(|(id, name)| (name.clone(), *id)).collect();
        Numbering(Mutex::new(Numbers { ids, next, unstored: Vec::new() }))
    }

    /// The engine has been given those it had not.
    pub(crate) fn stored(&self) {
        self.0.lock().unstored.clear();
    }
}

impl Names for Numbering {
    fn resource_id(&self, name: &GroupResource) -> ResourceId {
        let mut numbers = self.0.lock();
        if let Some(id) = numbers.ids.get(name) {
            return *id;
        }
        let id = ResourceId(numbers.next);
        numbers.next += 1;
        numbers.ids.insert(name.clone(), id);
        numbers.unstored.push((id, name.clone()));
        id
    }

    fn unstored(&self) -> Vec<(ResourceId, GroupResource)> {
        self.0.lock().unstored.clone()
    }
}

/// An engine whose history is shared.
pub struct Replica<E, J> {
    local: E,
    journal: J,
    position: Position,
    revision: Revision,
    names: HashMap<ResourceId, GroupResource>,
    /// What each space stands on.
    parents: HashMap<SpaceId, SpaceId>,
}

impl<E: Engine, J: Journal> Replica<E, J> {
    pub fn new(local: E, journal: J) -> Replica<E, J> {
        let (position, names, parents) = Default::default();
        Replica { local, journal, position, revision: Revision(0), names, parents }
    }

    /// The same for an engine that may be of no use any more: where the journal has forgotten how to go on from what it has, or where
    /// it was left half filled. Then `anew` makes one of it that has nothing, which is filled when the store is opened.
    pub fn open(
        mut local: E,
        mut journal: J,
        anew: impl FnOnce(E) -> Result<E, EngineError>,
    ) -> Result<Replica<E, J>, EngineError> {
        let recovered = local.recover()?;
        let position = check_belonging(&recovered, &mut journal)?;
        let is_half_filled = noted(&recovered.notes, RESTORING).is_some();
        let mut is_behind = || {
            let next = position.map(|position| journal.next(position));
            matches!(next, Some(Err(EngineError::Compacted)))
        };
        if is_half_filled || is_behind() {
            let why = if is_half_filled {
                "it was left half filled"
            } else {
                "the journal has forgotten what came after it"
            };
            tracing::warn!(
                "what this replica has is of no use any more ({why}): it is filled from the journal"
            );
            local = anew(local)?;
        }
        Ok(Replica::new(local, journal))
    }

    /// Gives a journal that has no entry its first one, by which it is known. What becomes of it is seen as with any other.
    fn name_journal(&mut self) -> Result<(), EngineError> {
        if self.journal.end()? > Position(0) {
            return Ok(());
        }
        let identity = Secret::random().ok_or_else(|| EngineError::Failed("no random bytes".into()))?;
        let notes = vec![note(IDENTITY, Some(&identity.expose()[..16]))];
        let act = Act::Apply(Batch { notes, ..rows(Revision(0)) });
        let entry = Entry { act, revision: Revision(0), names: Vec::new(), bare: Vec::new() };
        // Whoever was first has done the same.
        self.journal.append(Position(0), &entry).map(drop)
    }

    /// See [`Entry::bare`]. Spaces below are sealed: what they do not know now they never will.
    fn bare(&self, act: &Act) -> Result<Vec<usize>, EngineError> {
        let Act::Apply(batch) = act else { return Ok(Vec::new()) };
        // Where spaces change, what is below one may be in this batch.
        if !batch.spaces.is_empty() || batch.objects.iter().all(|write| write.record.is_some()) {
            return Ok(Vec::new());
        }
        let reader = self.local.own_reader();
        let is_bare = |write: &ObjectWrite| {
            let LogEntry { space, resource, name, .. } = &write.entry;
            let mut below = self.parents.get(space);
            while let Some(space) = below {
                if reader.version(*space, *resource, name, Revision::NEWEST)?.is_some() {
                    return Ok(false);
                }
                below = self.parents.get(space);
            }
            Ok(true)
        };
        let mut bare = Vec::new();
        for (index, write) in batch.objects.iter().enumerate().filter(|(_, write)| write.record.is_none()) {
            if is_bare(write)? {
                bare.push(index);
            }
        }
        Ok(bare)
    }

    fn note_spaces(&mut self, rows: &[SpaceRow]) {
        for row in rows {
            match row.parent {
                Some(parent) => drop(self.parents.insert(row.id, parent)),
                None => drop(self.parents.remove(&row.id)),
            }
        }
    }

    /// Adds an act of our own to what all have done.
    fn append(&mut self, act: Act) -> Result<Act, EngineError> {
        let mut used: Vec<ResourceId> = act.resources().collect();
        used.sort_unstable();
        used.dedup();
        let names = used.into_iter().filter_map(|id| Some((id, self.names.get(&id)?.clone()))).collect();
        let revision = match &act {
            Act::Apply(batch) => self.revision.max(batch.last),
            Act::Fill(..) | Act::Rewrite(..) => self.revision,
        };
        let bare = self.bare(&act)?;
        let entry = Entry { act, revision, names, bare };
        let added = self.journal.append(self.position, &entry).map_err(|error| match error {
            // Nothing was done here yet: if it is there, it comes as what others do.
            EngineError::Unknown(source) => EngineError::Doubtful(source),
            error => error,
        });
        self.position = added?.ok_or(EngineError::Overtaken)?;
        self.revision = revision;
        Ok(entry.act)
    }

    /// Takes all that others have added by now, however long that takes.
    fn take_all(&mut self, recovered: &mut Recovered) -> Result<(), EngineError> {
        let names = Numbering::new(&recovered.resources);
        let end = self.journal.end()?;
        while self.position < end {
            match self.follow(&names)? {
                Some(_) => names.stored(),
                None if self.position < end => std::thread::sleep(ARRIVAL),
                None => {}
            }
        }
        *recovered = self.local.recover()?;
        Ok(())
    }

    /// Fills an engine that has nothing with all there is. What led there is not known here: history begins with it.
    fn restore(&mut self) -> Result<(), EngineError> {
        self.local.apply(&Batch { notes: vec![note(RESTORING, Some(&[]))], ..rows(Revision(0)) })?;
        let mut filling = Filling::new(&mut self.local);
        let snapshot = self.journal.snapshot(&mut |part| filling.take(part))?;
        filling.reach(snapshot.current)?;
        let position = snapshot.position.0.to_le_bytes();
        let notes = vec![note(RESTORING, None), note(POSITION, Some(&position))];
        self.local.apply(&Batch { notes, ..rows(snapshot.current) })
    }

    /// Makes a batch durable here that is in the journal.
    fn keep(&mut self, mut batch: Batch) -> Result<Batch, EngineError> {
        batch.notes.push((SmolStr::new_static(POSITION), Some(self.position.0.to_le_bytes().into())));
        // All others have it: there is no way but to read it again at the next start.
        self.local.apply(&batch).map_err(|error| EngineError::Unknown(Box::new(error)))?;
        batch.notes.pop();
        self.note_spaces(&batch.spaces);
        Ok(batch)
    }
}

/// Whether what an engine has is of this journal, and where in it that ends. `None`: it has nothing, or nothing whole.
fn check_belonging(
    recovered: &Recovered,
    journal: &mut impl Journal,
) -> Result<Option<Position>, EngineError> {
    let is_empty = recovered.current == Revision(0) && recovered.notes.is_empty();
    if is_empty || noted(&recovered.notes, RESTORING).is_some() {
        return Ok(None);
    }
    let Some(position) = noted(&recovered.notes, POSITION) else {
        return Err(EngineError::Failed(
            "it has a history of its own, and none of a journal: give this replica an empty directory, and copy what is here with \
             `polder store migrate`"
                .into(),
        ));
    };
    let position = (**position).try_into();
    let position = position.map_err(|_| EngineError::Damaged("the position in the journal".into()))?;
    let position = Position(u64::from_le_bytes(position));
    let own = noted(&recovered.notes, IDENTITY);
    match journal.identity()? {
        Some(identity) if own.is_some_and(|own| *own != identity) => Err(EngineError::Failed(
            "it belongs to another journal: name the journal it was filled from (address and prefix), or give this replica an empty \
             directory, which is then filled from this one"
                .into(),
        )),
        None if journal.end()? < position => Err(EngineError::Failed(
            "the journal has less than this replica has read of it: it was emptied or put back, or is another one. Bring back the \
             journal; or begin with what it has, with an empty directory"
                .into(),
        )),
        _ => Ok(Some(position)),
    }
}

/// Whoever opens an engine without its journal would give it a history of its own.
pub(crate) fn check_alone(notes: &[Note]) -> Result<(), EngineError> {
    check_whole(notes)?;
    match noted(notes, POSITION).or(noted(notes, RESTORING)) {
        Some(_) => Err(EngineError::Failed(
            "it is a replica's, and was opened without the journal it belongs to".into(),
        )),
        None => Ok(()),
    }
}

fn noted<'a>(notes: &'a [Note], name: &str) -> Option<&'a Arc<[u8]>> {
    notes.iter().find(|(own, _)| own == name).map(|(_, value)| value)
}

/// Whether an engine was left half filled with what a journal has.
pub fn is_half_filled(notes: &[Note]) -> bool {
    noted(notes, RESTORING).is_some()
}

/// Whether a note says where an engine stands to a journal, and not what it has.
pub(crate) fn is_own_note(name: &str) -> bool {
    [POSITION, IDENTITY, RESTORING].contains(&name)
}

pub(crate) fn note(name: &'static str, value: Option<&[u8]>) -> (SmolStr, Option<Arc<[u8]>>) {
    (SmolStr::new_static(name), value.map(Into::into))
}

/// A batch with no commit, for an engine that is at a revision.
pub(crate) fn rows(current: Revision) -> Batch {
    Batch { first: current.next(), last: current, ..Batch::default() }
}

impl Act {
    fn resources(&self) -> Box<dyn Iterator<Item = ResourceId> + '_> {
        match self {
            Act::Apply(batch) => Box::new(batch.objects.iter().map(|write| write.entry.resource)),
            Act::Fill(_, versions) | Act::Rewrite(_, versions) => {
                Box::new(versions.iter().map(|version| version.resource))
            }
        }
    }

    fn resources_mut(&mut self) -> Box<dyn Iterator<Item = &mut ResourceId> + '_> {
        match self {
            Act::Apply(batch) => Box::new(batch.objects.iter_mut().map(|write| &mut write.entry.resource)),
            Act::Fill(_, versions) | Act::Rewrite(_, versions) => {
                Box::new(versions.iter_mut().map(|version| &mut version.resource))
            }
        }
    }
}

impl Entry {
    /// The act in the numbers of the store that follows.
    pub(crate) fn translated(&self, names: &dyn Names) -> Result<Act, EngineError> {
        let ids: HashMap<ResourceId, ResourceId> =
            self.names.iter().map(|(id, name)| (*id, names.resource_id(name))).collect();
        let mut act = self.act.clone();
        for resource in act.resources_mut() {
            *resource = *ids.get(resource).ok_or_else(|| {
                EngineError::Damaged(format!("a journal entry does not say what resource {} is", resource.0))
            })?;
        }
        Ok(act)
    }
}

impl<E: Engine, J: Journal> Engine for Replica<E, J> {
    fn recover(&mut self) -> Result<Recovered, EngineError> {
        let mut recovered = self.local.recover()?;
        if noted(&recovered.notes, RESTORING).is_some() {
            return Err(EngineError::Failed(
                "it was being filled from the journal when it stopped: it must begin with nothing again"
                    .into(),
            ));
        }
        let mut position = check_belonging(&recovered, &mut self.journal)?;
        if position.is_none() {
            self.name_journal()?;
            if matches!(self.journal.next(Position(0)), Err(EngineError::Compacted)) {
                self.restore()?;
                recovered = self.local.recover()?;
                position = check_belonging(&recovered, &mut self.journal)?;
            }
        }
        self.position = position.unwrap_or_default();
        self.note_spaces(&recovered.spaces);
        self.take_all(&mut recovered)?;
        self.revision = recovered.current;
        self.names = recovered.resources.iter().cloned().collect();
        recovered.notes.retain(|(name, _)| name != POSITION && name != IDENTITY);
        Ok(recovered)
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.names.extend(batch.resources.iter().cloned());
        let resources = batch.resources.clone();
        let shared = Batch { resources: Vec::new(), ..batch.clone() };
        let Act::Apply(shared) = self.append(Act::Apply(shared))? else { return Ok(()) };
        self.keep(Batch { resources, ..shared })?;
        Ok(())
    }

    fn follow(&mut self, names: &dyn Names) -> Result<Option<Batch>, EngineError> {
        while let Some((position, entry)) = self.journal.next(self.position)? {
            self.revision = entry.revision;
            match entry.translated(names)? {
                // These mean the same when they are done again: how far we are is noted with the next batch.
                Act::Fill(space, versions) => self.local.fill(space, &versions)?,
                Act::Rewrite(space, versions) => self.local.rewrite(space, &versions)?,
                Act::Apply(batch) => {
                    self.position = position;
                    let resources = names.unstored();
                    self.names.extend(resources.iter().cloned());
                    return self.keep(Batch { resources, ..batch }).map(Some);
                }
            }
            self.position = position;
        }
        Ok(None)
    }

    fn set_bell(&mut self, bell: Bell) {
        self.journal.set_bell(bell);
    }

    fn horizon(&self) -> Option<Arc<dyn Horizon>> {
        Some(self.journal.horizon())
    }

    fn leads(&self) -> bool {
        self.journal.leads()
    }

    fn bounds(&self) -> Bounds {
        self.journal.bounds()
    }

    fn compact(&mut self, floor: Revision) -> Result<Revision, EngineError> {
        self.local.compact(floor)
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<bool, EngineError> {
        self.local.drop_space(space)
    }

    fn fill(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        self.append(Act::Fill(space, versions.to_vec()))?;
        self.local.fill(space, versions).map_err(|error| EngineError::Unknown(Box::new(error)))
    }

    fn rewrite(&mut self, space: SpaceId, versions: &[FilledVersion]) -> Result<(), EngineError> {
        self.append(Act::Rewrite(space, versions.to_vec()))?;
        self.local.rewrite(space, versions).map_err(|error| EngineError::Unknown(Box::new(error)))
    }

    fn chore(&mut self) -> Result<bool, EngineError> {
        self.local.chore()
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.local.reader()
    }

    fn own_reader(&self) -> Arc<dyn Reader> {
        self.local.own_reader()
    }
}

impl Horizon for MemoryJournal {
    fn newest(&self) -> Result<Revision, EngineError> {
        let shared = self.shared.lock();
        if shared.cut_off.contains(&self.number) {
            return Err(EngineError::Unavailable("the journal cannot be reached".into()));
        }
        Ok(shared.entries.last().map_or(Revision(0), |entry| entry.revision))
    }
}

/// A journal in memory, for tests: clones are what each replica has of it.
#[derive(Clone, Default)]
pub struct MemoryJournal {
    shared: Arc<Mutex<Shared>>,
    /// Which replica this is.
    number: usize,
}

#[derive(Default)]
struct Shared {
    entries: Vec<Arc<Entry>>,
    bells: Vec<Option<Bell>>,
    leader: usize,
    /// Replicas that nothing arrives at.
    cut_off: Vec<usize>,
    /// Whose next answer gets lost, and whether its entry is added.
    lost: Option<(usize, bool)>,
    bounds: Bounds,
}

impl MemoryJournal {
    /// The same journal as another replica has it.
    #[must_use]
    pub fn replica(&self, number: usize) -> MemoryJournal {
        MemoryJournal { shared: self.shared.clone(), number }
    }

    /// Says which replica leads.
    pub fn set_leader(&self, number: usize) {
        self.shared.lock().leader = number;
    }

    /// The answer to the next entry of a replica gets lost; the entry is added or is not.
    pub fn lose_answer(&self, number: usize, is_added: bool) {
        self.shared.lock().lost = Some((number, is_added));
    }

    /// Says what it takes. Known to replicas that are opened from then on.
    pub fn set_bounds(&self, bounds: Bounds) {
        self.shared.lock().bounds = bounds;
    }

    /// Keeps a replica from the journal, or lets it back.
    pub fn cut_off(&self, number: usize, is_cut_off: bool) {
        let mut shared = self.shared.lock();
        shared.cut_off.retain(|own| *own != number);
        if is_cut_off {
            shared.cut_off.push(number);
        }
        let bell = shared.bells.get(number).cloned().flatten();
        drop(shared);
        if let Some(bell) = bell {
            bell();
        }
    }
}

impl Journal for MemoryJournal {
    fn end(&mut self) -> Result<Position, EngineError> {
        let shared = self.shared.lock();
        if shared.cut_off.contains(&self.number) {
            return Err(EngineError::Unavailable("the journal cannot be reached".into()));
        }
        Ok(Position(shared.entries.len() as u64))
    }

    fn append(&mut self, after: Position, entry: &Entry) -> Result<Option<Position>, EngineError> {
        let mut shared = self.shared.lock();
        if shared.cut_off.contains(&self.number) {
            return Err(EngineError::Unavailable("the journal cannot be reached".into()));
        }
        if shared.entries.len() as u64 != after.0 {
            return Ok(None);
        }
        let lost = shared.lost.take_if(|(number, _)| *number == self.number);
        if lost.is_none_or(|(_, is_added)| is_added) {
            shared.entries.push(Arc::new(entry.clone()));
        }
        let bells: Vec<Bell> = shared.bells.iter().flatten().cloned().collect();
        drop(shared);
        bells.iter().for_each(|bell| bell());
        match lost {
            Some(_) => Err(EngineError::Unknown("the answer of the journal is lost".into())),
            None => Ok(Some(Position(after.0 + 1))),
        }
    }

    fn next(&mut self, after: Position) -> Result<Option<(Position, Arc<Entry>)>, EngineError> {
        let shared = self.shared.lock();
        if shared.cut_off.contains(&self.number) {
            return Ok(None);
        }
        let at = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(shared.entries.get(at).map(|entry| (Position(after.0 + 1), entry.clone())))
    }

    fn horizon(&self) -> Arc<dyn Horizon> {
        Arc::new(self.clone())
    }

    fn set_bell(&mut self, bell: Bell) {
        let mut shared = self.shared.lock();
        if shared.bells.len() <= self.number {
            shared.bells.resize(self.number + 1, None);
        }
        shared.bells[self.number] = Some(bell);
    }

    fn leads(&self) -> bool {
        self.shared.lock().leader == self.number
    }

    fn bounds(&self) -> Bounds {
        self.shared.lock().bounds
    }

    fn identity(&mut self) -> Result<Option<Arc<[u8]>>, EngineError> {
        let shared = self.shared.lock();
        let Some(Act::Apply(first)) = shared.entries.first().map(|entry| &entry.act) else { return Ok(None) };
        Ok(first.notes.iter().find(|(name, _)| name == IDENTITY).and_then(|(_, value)| value.clone()))
    }
}
