//! What an entry does to the keys: so that all of them together, as they stand at one revision of etcd, are what there is.
//!
//! The newest version of an object has a key of its own, and the entry in the head names it without repeating what it says. An
//! object that an entry writes more than once is in the entry but for the last time. Deletions stay as values where they hide
//! what spaces below hold. What belongs to a space goes with it.

use std::collections::{BTreeMap, BTreeSet};

use polder_model::GroupResource;
use polder_store::engine::{Batch, EngineError, FilledVersion, PlaneWrite, SpaceKey, SpaceState, Version};
use polder_store::replica::{Act, Entry};
use polder_store::{ObjectName, ResourceId, Revision, SpaceId};

use crate::codec;
use crate::keys::Keys;
use crate::wire::Operation;

#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// The entry as it stands in the head.
    pub(crate) entry: Vec<u8>,
    /// Keys that get a value, or lose theirs.
    pub(crate) keys: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Ranges that are emptied; none of the keys is in one.
    pub(crate) emptied: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Layout {
    /// How much of a transaction it is: operations, and about how many bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let bytes = self.entry.len() + self.operations().map(|(_, len)| len).sum::<usize>();
        (self.keys.len() + self.emptied.len() + 2, bytes)
    }

    /// Whether each key fits into a transaction.
    pub(crate) fn check(&self, bytes_max: usize) -> Result<(), EngineError> {
        let longest = self.operations().map(|(_, len)| len).max();
        match longest {
            Some(len) if len > bytes_max => Err(EngineError::Failed(
                format!("an object of {len} bytes is longer than etcd takes ({bytes_max} bytes)").into(),
            )),
            _ => Ok(()),
        }
    }

    /// What it does to the keys, and about how many bytes each of that takes.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (Operation<'_>, usize)> {
        let keys = self.keys.iter().map(|(key, value)| {
            let operation = match value {
                Some(value) => Operation::Put { key, value, lease: 0 },
                None => Operation::Delete { key, end: &[] },
            };
            (operation, len_of(key, value.as_deref()))
        });
        let emptied = self.emptied.iter();
        keys.chain(emptied.map(|(key, end)| (Operation::Delete { key, end }, 2 * len_of(key, None))))
    }

    /// The same in parts that each fit into a transaction.
    pub(crate) fn portions(&self, operations_max: usize, bytes_max: usize) -> Vec<Vec<Operation<'_>>> {
        let mut portions: Vec<Vec<Operation<'_>>> = Vec::new();
        let mut bytes = 0;
        for (operation, len) in self.operations() {
            bytes += len;
            match portions.last_mut() {
                Some(portion) if portion.len() < operations_max && bytes <= bytes_max => {
                    portion.push(operation)
                }
                _ => {
                    bytes = len;
                    portions.push(vec![operation]);
                }
            }
        }
        portions
    }
}

/// About how much of a transaction a key with its value is.
fn len_of(key: &[u8], value: Option<&[u8]>) -> usize {
    const OVERHEAD: usize = 32;
    key.len() + value.map_or(0, <[u8]>::len) + OVERHEAD
}

/// `is_newest` says whether the key of an object has the version of this revision; only asked about what is rewritten.
pub(crate) fn layout(
    keys: &Keys,
    entry: &Entry,
    is_newest: &dyn Fn(&[u8], Revision) -> bool,
) -> Result<Layout, EngineError> {
    let mut made = Layout::default();
    // Which version of the entry has which key.
    let mut apart: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    match &entry.act {
        Act::Apply(batch) => lay_out_batch(keys, entry, batch, &mut made, &mut apart)?,
        Act::Fill(space, versions) | Act::Rewrite(space, versions) => {
            for (index, FilledVersion { resource, name, version }) in versions.iter().enumerate() {
                let key = keys.object(*space, name_of(entry, *resource)?, name);
                if matches!(entry.act, Act::Fill(..)) || is_newest(&key, version.revision) {
                    made.keys.insert(key.clone(), Some(codec::encode_version(version)));
                    apart.insert(key, index);
                }
            }
        }
    }
    let apart: BTreeSet<usize> = apart.into_values().collect();
    made.entry = codec::encode_entry(entry, &|index| apart.contains(&index));
    Ok(made)
}

fn lay_out_batch(
    keys: &Keys,
    entry: &Entry,
    batch: &Batch,
    made: &mut Layout,
    apart: &mut BTreeMap<Vec<u8>, usize>,
) -> Result<(), EngineError> {
    let states: BTreeMap<SpaceId, SpaceState> = batch.spaces.iter().map(|row| (row.id, row.state)).collect();
    let is_dropped = |space: &SpaceId| states.get(space) == Some(&SpaceState::Dropped);
    for (index, write) in
        batch.objects.iter().enumerate().filter(|(_, write)| !is_dropped(&write.entry.space))
    {
        let own = &write.entry;
        let key = keys.object(own.space, name_of(entry, own.resource)?, &own.name);
        let version = Version { revision: own.revision, record: write.record.clone() };
        let is_bare = entry.bare.binary_search(&index).is_ok();
        made.keys.insert(key.clone(), (!is_bare).then(|| codec::encode_version(&version)));
        apart.insert(key, index);
    }
    for write in &batch.planes {
        match write {
            PlaneWrite::Put(row) => {
                made.keys.insert(keys.row('p', row.id.0), Some(codec::encode_plane(row)));
            }
            PlaneWrite::Remove(plane) => drop(made.keys.insert(keys.row('p', plane.0), None)),
        }
    }
    for SpaceKey { space, wrapped } in &batch.keys {
        made.keys.insert(keys.row('k', space.0), Some(codec::encode_bytes(wrapped)));
    }
    for row in &batch.spaces {
        made.keys.insert(keys.row('s', row.id.0), Some(codec::encode_space(row)));
    }
    for space in states.keys().filter(|space| is_dropped(space)) {
        made.keys.insert(keys.row('s', space.0), None);
        made.keys.insert(keys.row('k', space.0), None);
        made.emptied.push(keys.space(*space));
    }
    for (name, value) in &batch.notes {
        made.keys.insert(keys.note(name), value.as_deref().map(codec::encode_bytes));
    }
    Ok(())
}

pub(crate) fn name_of(entry: &Entry, id: ResourceId) -> Result<&GroupResource, EngineError> {
    let found = entry.names.iter().find(|(own, _)| *own == id).map(|(_, name)| name);
    found.ok_or_else(|| EngineError::Failed(format!("nobody says what resource {} is", id.0).into()))
}

/// The keys of what an entry rewrites.
pub(crate) fn rewritten(keys: &Keys, entry: &Entry) -> Result<Vec<Vec<u8>>, EngineError> {
    let Act::Rewrite(space, versions) = &entry.act else { return Ok(Vec::new()) };
    let key = |filled: &FilledVersion| -> Result<Vec<u8>, EngineError> {
        let name: &ObjectName = &filled.name;
        Ok(keys.object(*space, name_of(entry, filled.resource)?, name))
    };
    versions.iter().map(key).collect()
}
