//! Ownership after a write that is no apply: whoever changes a field owns it from then on, alone.
//!
//! A write that changes nothing leaves the entries as they lie, and one that does takes apart only the entries that own
//! something of what changed.

use std::borrow::Cow;

use polder_model::{SmolStr, Value};

use super::compare::{Comparison, compare, is_same};
use super::entries::{self, Entry, Operation, Origin};
use super::path::write_field;
use super::place::Place;
use super::set::{FieldSet, is_member};
use super::settle::settled;
use super::{View, Writer};

const MANAGED_FIELDS: [&str; 2] = ["metadata", "managedFields"];

/// Notes who owns the fields of a new object. `blank` is what the kind looks like before anybody sets a field.
pub fn created(writer: &Writer<'_>, blank: &Value, new: &mut Value) {
    let sent = take_entries(new);
    let entries = sent.and_then(|sent| entries::decode(sent, Origin::Sent).ok()).unwrap_or_default();
    let changes = compare(Place::root(writer.schema), blank, new, &writer.untracked.fields);
    let entries = taken_over(writer, entries, changes, blank, new);
    put_entries(new, entries::encode(entries));
}

/// Notes who owns the fields of an object that somebody replaced or patched. Call it with what the client wants, before
/// anything is put back, and whether or not something changed: it also puts back what clients may not set.
pub fn updated(writer: &Writer<'_>, old: &Value, new: &mut Value) {
    let base = match base(writer, old, take_entries(new)) {
        // Nobody keeps account of this object, and a write does not begin to.
        Base::Kept(entries) if entries.is_empty() => return,
        base => base,
    };
    let changes = compare(Place::root(writer.schema), old, new, &writer.untracked.fields);
    let decoded = match base {
        Base::Kept(entries) if changes.is_empty() => {
            return put_entries(new, Some(Value::Array(entries.into_owned())));
        }
        Base::Kept(entries) => entries::decode(entries.into_owned(), Origin::Stored).unwrap_or_default(),
        Base::Replaced(entries) => entries,
    };
    let entries = taken_over(writer, decoded, changes, old, new);
    put_entries(new, entries::encode(entries));
}

/// The entries a write starts from.
enum Base<'a> {
    /// As they are stored.
    Kept(Cow<'a, [Value]>),
    /// As the client wants them.
    Replaced(Vec<Entry>),
}

fn base<'a>(writer: &Writer<'_>, old: &'a Value, sent: Option<Vec<Value>>) -> Base<'a> {
    let live = old.array_at(&MANAGED_FIELDS);
    match sent {
        // Ownership is not what a subresource is for.
        Some(sent) if writer.subresource.is_empty() => match sent {
            sent if sent == live => Base::Kept(Cow::Owned(sent)),
            sent if is_reset(&sent) => Base::Kept(Cow::Owned(Vec::new())),
            // Somebody who does not understand entries must not spoil them.
            sent => entries::decode(sent, Origin::Sent).map_or(Base::Kept(live.into()), Base::Replaced),
        },
        _ => Base::Kept(Cow::Borrowed(live)),
    }
}

/// Gives the changed fields to whoever writes.
pub(super) fn taken_over(
    writer: &Writer<'_>,
    mut entries: Vec<Entry>,
    changes: Comparison,
    old: &Value,
    new: &Value,
) -> Vec<Entry> {
    let mut own = writer.entry(Operation::Update, FieldSet::new());
    let mut versions = Versions::new(writer, old, new, &changes);
    entries.retain_mut(|entry| {
        let Some(changes) = versions.changes(entry) else { return false };
        // Most writes touch what the writer owns already: that entry stays as it lies.
        if !entry.has_owner_of(&own) {
            entry.fields.subtract(&changes.touched);
        }
        entry.fields.subtract(&changes.removed);
        !entry.fields.is_empty()
    });
    if !changes.touched.is_empty() {
        match entries.iter_mut().find(|entry| entry.has_owner_of(&own)) {
            Some(entry) => {
                if !changes.touched.is_subset(&entry.fields) {
                    entry.fields.add(changes.touched);
                }
                entry.time = own.time;
            }
            None => {
                own.fields = changes.touched;
                entries.push(own);
            }
        }
    }
    entries::fold_old_updates(&mut entries, entries::UPDATES_MAX);
    entries
}

/// What a write changed, as each version of the kind sees it.
pub(super) struct Versions<'w> {
    writer: &'w Writer<'w>,
    old: &'w Value,
    new: &'w Value,
    changes: &'w Comparison,
    /// Most objects are only ever written in one version: the writer's.
    others: Vec<(SmolStr, Option<Comparison>)>,
}

impl<'w> Versions<'w> {
    pub(super) fn new(
        writer: &'w Writer<'w>,
        old: &'w Value,
        new: &'w Value,
        changes: &'w Comparison,
    ) -> Versions<'w> {
        Versions { writer, old, new, changes, others: Vec::new() }
    }

    /// The changes as the version of an entry sees them, and the entry in line with that version's schema; `None` when
    /// the version is gone.
    pub(super) fn changes(&mut self, entry: &mut Entry) -> Option<&Comparison> {
        if entry.api_version == self.writer.api_version {
            self.settle(entry, Place::root(self.writer.schema));
            return Some(self.changes);
        }
        let view = self.writer.view(self.old, &entry.api_version)?;
        self.settle(entry, Place::root(view.schema));
        let known = self.others.iter().position(|(version, _)| *version == entry.api_version);
        let at = known.unwrap_or_else(|| {
            let changes = self.compared(&view, &entry.api_version);
            self.others.push((entry.api_version.clone(), changes));
            self.others.len() - 1
        });
        self.others[at].1.as_ref()
    }

    fn settle(&self, entry: &mut Entry, root: Place<'_>) {
        if self.writer.schema_may_change
            && let Some(fields) = settled(root, &entry.fields)
        {
            entry.fields = fields;
        }
    }

    fn compared(&self, old: &View<'_>, api_version: &str) -> Option<Comparison> {
        let new = self.writer.view(self.new, api_version)?;
        Some(compare(Place::root(old.schema), &old.object, &new.object, &self.writer.untracked.fields))
    }
}

/// Whether somebody owns a field.
pub fn is_owned(object: &Value, path: &[SmolStr]) -> bool {
    let is_in = |entry: &Value| {
        let node = path.iter().try_fold(entry.get("fieldsV1")?, |node, field| node.get(&write_field(field)));
        node.and_then(Value::as_object).map(is_member)
    };
    object.array_at(&MANAGED_FIELDS).iter().any(|entry| is_in(entry) == Some(true))
}

/// Takes the entries out of an object; `None` when it says nothing about them.
pub(super) fn take_entries(object: &mut Value) -> Option<Vec<Value>> {
    match object.remove_at(&MANAGED_FIELDS) {
        Some(Value::Array(entries)) => Some(entries),
        _ => None,
    }
}

pub(super) fn put_entries(object: &mut Value, entries: Option<Value>) {
    match entries {
        Some(entries) => object.set_at(&MANAGED_FIELDS, entries),
        None => drop(object.remove_at(&MANAGED_FIELDS)),
    }
}

/// An empty list, or one empty entry: how clients throw all entries away.
fn is_reset(sent: &[Value]) -> bool {
    match sent {
        [] => true,
        [Value::Object(entry)] => entry.is_empty(),
        _ => false,
    }
}

/// Puts the old times back where nothing but times changed, so that a write without effect is one.
pub fn keep_times(new: &mut Value, old: &Value) {
    let (entries, old_entries) = (new.array_at(&MANAGED_FIELDS), old.array_at(&MANAGED_FIELDS));
    let is_same_but_time = |(new, old): (&Value, &Value)| match (new.as_object(), old.as_object()) {
        (Some(new), Some(old)) => {
            let timeless = |name: &SmolStr| name != "time";
            let new = new.iter().filter(|(name, _)| timeless(name));
            new.eq(old.iter().filter(|(name, _)| timeless(name)))
        }
        _ => false,
    };
    if entries.len() != old_entries.len()
        || entries == old_entries
        || !entries.iter().zip(old_entries).all(is_same_but_time)
    {
        return;
    }
    let Some(new_entries) = take_entries(new) else { return };
    let is_unchanged = is_same_but_entries(new, old);
    let kept = if is_unchanged { old_entries.to_vec() } else { new_entries };
    put_entries(new, Some(Value::Array(kept)));
}

/// `new` has no entries; is it otherwise as the old object?
pub(super) fn is_same_but_entries(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let is_same_member = |((name, new), (old_name, old)): ((&SmolStr, &Value), (&SmolStr, &Value))| {
        name == old_name && is_same(new, old)
    };
    let is_same_metadata = |new: &Value, old: &Value| match (new.as_object(), old.as_object()) {
        (Some(new), Some(old)) => {
            let owned = usize::from(old.contains_key("managedFields"));
            let old_rest = old.iter().filter(|(name, _)| *name != "managedFields");
            new.len() + owned == old.len() && new.iter().zip(old_rest).all(is_same_member)
        }
        _ => false,
    };
    new.len() == old.len()
        && new.iter().zip(old.iter()).all(|(new, old)| match new.0.as_str() {
            "metadata" => new.0 == old.0 && is_same_metadata(new.1, old.1),
            _ => is_same_member((new, old)),
        })
}
