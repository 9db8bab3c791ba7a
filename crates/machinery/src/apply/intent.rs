//! Server-side apply: merging somebody's whole intent into the live object.
//!
//! What the intent says is set and owned. What it said last time and does not say any more goes, unless somebody else
//! owns it too. What others own and want otherwise is a conflict, or is taken from them by force.

use std::borrow::Cow;

use polder_model::{SmolStr, Value};

use super::Writer;
use super::check::{Problems, check};
use super::collect::applied;
use super::compare::compare;
use super::conflict::Conflicts;
use super::entries::{self, EntriesError, Entry, Operation, Origin};
use super::last_applied::{self, MOVING_MANAGER};
use super::merge::merge;
use super::place::Place;
use super::remove::remove;
use super::set::FieldSet;
use super::settle::with_structs;
use super::update::{Versions, is_same_but_entries, put_entries, take_entries, taken_over};

/// Who owns what was there before anybody kept account.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// What to do about fields that others own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    Refuse,
    Take,
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The intent is of another kind or version than the request.
    #[error("invalid object type: {0}")]
    Kind(String),
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    #[error("failed to decode managed fields: {0}")]
    Entries(#[from] EntriesError),
    #[error("failed to create typed patch object ({object}): {problems}")]
    Unfit { object: String, problems: Problems },
    #[error("{0}")]
    Conflicts(Conflicts),
}

/// Merges an intent into an object and says who owns what afterwards. For an object that is not there, `live` and
/// `blank` are both what the kind looks like before anybody sets a field.
///
/// The result has no defaults for what is new in it, and nothing but its ownership was checked.
pub fn apply(
    writer: &Writer<'_>,
    live: &Value,
    blank: &Value,
    intent: &Value,
    force: Force,
) -> Result<Value, ApplyError> {
    check_kind(writer, intent)?;
    let root = Place::root(writer.schema);
    let mut merged = live.clone();
    let mut entries = entries::decode(take_entries(&mut merged).unwrap_or_default(), Origin::Stored)?;
    if entries.is_empty() {
        let earlier = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        let changes = compare(root, blank, live, &writer.untracked.fields);
        entries = taken_over(&earlier, entries, changes, blank, live);
    }
    if intent.at(&["metadata", "managedFields"]).is_some_and(|entries| !entries.is_null()) {
        return Err(ApplyError::ManagedFields);
    }
    check(root, intent).map_err(|problems| ApplyError::Unfit { object: described(intent), problems })?;

    let mut own = writer.entry(Operation::Apply, applied(root, intent));
    own.fields.subtract_branches(&writer.untracked.reset);
    let last = entries.iter().position(|entry| entry.has_owner_of(&own)).map(|at| entries.remove(at));
    merged = merge(root, merged, intent);
    put_entries(&mut merged, None);
    if let Some(last) = &last {
        merged = prune(writer, merged, last, &own, &entries);
    }
    if is_same_but_entries(&merged, live) {
        own.time = last.and_then(|last| last.time);
    }

    let conflicts = conflicts(writer, live, &merged, &mut entries);
    if force == Force::Refuse && !conflicts.is_empty() {
        let mut conflicts = conflicts;
        if writer.manager == MOVING_MANAGER
            && let Some(fields) = last_applied::may_take_over(root, live, writer.api_version)
        {
            conflicts.excuse(&fields);
        }
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    // Only now: what identifies the object is part of the intent, and must not be pruned.
    own.fields.subtract_branches(&writer.untracked.fields);
    if !own.fields.is_empty() {
        entries.push(own);
    }
    put_entries(&mut merged, entries::encode(entries));
    if writer.manager == MOVING_MANAGER {
        last_applied::annotate(&mut merged, intent);
    }
    Ok(merged)
}

/// Takes from others what changed, and tells what they lost by it.
fn conflicts(writer: &Writer<'_>, live: &Value, merged: &Value, entries: &mut Vec<Entry>) -> Conflicts {
    let mut conflicts = Conflicts::default();
    if entries.is_empty() {
        return conflicts;
    }
    let changes = compare(Place::root(writer.schema), live, merged, &writer.untracked.fields);
    let mut versions = Versions::new(writer, live, merged, &changes);
    entries.retain_mut(|entry| {
        let Some(changes) = versions.changes(entry) else { return false };
        if entry.fields.intersects(&changes.touched) {
            conflicts.add(entry, entry.fields.intersection(&changes.touched));
            entry.fields.subtract(&changes.touched);
        }
        entry.fields.subtract(&changes.removed);
        !entry.fields.is_empty()
    });
    conflicts
}

fn check_kind(writer: &Writer<'_>, intent: &Value) -> Result<(), ApplyError> {
    let is_of = |name: &str, expected: &str| intent.str_at(&[name]).unwrap_or_default() == expected;
    if is_of("apiVersion", writer.api_version) && is_of("kind", writer.kind) {
        return Ok(());
    }
    Err(ApplyError::Kind(kind_text(intent)))
}

/// `apps/v1, Kind=Deployment`; the core group is empty: `/v1, Kind=Pod`.
fn kind_text(object: &Value) -> String {
    let text = |name: &str| object.str_at(&[name]).unwrap_or_default();
    let slash = if text("apiVersion").contains('/') { "" } else { "/" };
    format!("{slash}{}, Kind={}", text("apiVersion"), text("kind"))
}

fn described(object: &Value) -> String {
    let text = |name: &str| object.str_at(&["metadata", name]).unwrap_or_default();
    format!("{}/{}; {}", text("namespace"), text("name"), kind_text(object))
}

/// Takes out what the owner said last time, does not say any more, and nobody else owns.
///
/// A field goes with the struct that held it when nothing else in that struct is owned; what nobody owns beside it
/// goes with it. What nobody owns in a struct that stays, stays.
fn prune(writer: &Writer<'_>, merged: Value, last: &Entry, own: &Entry, others: &[Entry]) -> Value {
    if last.api_version == own.api_version && last.fields.is_subset(&own.fields) {
        return merged;
    }
    // Of a version that is gone nothing can be said.
    let Some(seen) = writer.view(&merged, &last.api_version) else { return merged };
    let root = Place::root(seen.schema);
    let said = with_structs(root, last.fields.clone());
    let all = with_structs(root, applied(root, &seen.object));
    let mut rest = seen.object.clone().into_owned();
    remove(root, &mut rest, &said);

    // First as the last version sees it, so that what conversion needs is back before others look.
    for version in versions_of(own, others, &last.api_version) {
        let owned = others.iter().chain([own]).filter(|entry| entry.api_version == version);
        let mut kept = FieldSet::new();
        owned.for_each(|entry| kept.add(entry.fields.clone()));
        let (Some(whole), Some(part)) = (writer.view(&merged, &version), writer.view(&rest, &version)) else {
            continue;
        };
        let root = Place::root(whole.schema);
        let mut unowned = if version == last.api_version {
            all.clone()
        } else {
            with_structs(root, applied(root, &whole.object))
        };
        unowned.subtract(&with_structs(root, applied(root, &part.object)));
        unowned.subtract(&with_structs(root, kept));
        let mut with_owned = whole.object.clone().into_owned();
        remove(root, &mut with_owned, &unowned);
        rest = with_owned;
    }

    let Some(rest) = writer.view(&rest, &last.api_version) else { return merged };
    let mut gone = all;
    gone.subtract(&with_structs(root, applied(root, &rest.object)));
    let gone = gone.intersection(&said);
    let mut pruned = seen.object.clone().into_owned();
    remove(root, &mut pruned, &gone);
    match writer.view(&pruned, writer.api_version).map(|view| view.object) {
        Some(Cow::Owned(converted)) => converted,
        _ => pruned,
    }
}

fn versions_of(own: &Entry, others: &[Entry], first: &SmolStr) -> Vec<SmolStr> {
    let mut versions = vec![first.clone()];
    for entry in others.iter().chain([own]) {
        if !versions.contains(&entry.api_version) {
            versions.push(entry.api_version.clone());
        }
    }
    versions
}
