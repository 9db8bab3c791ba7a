//! Pages of collections, from a loaded snapshot or from the engine.

use std::ops::Bound;
use std::sync::Arc;

use crate::cache::Snapshot;
use crate::engine::EngineError;
use crate::key::{ObjectName, ResourceId, Revision};
use crate::object::StoredObject;
use crate::plane::Plane;
use crate::scan::StackScan;
use crate::shared::Shared;

/// Which objects of one resource a list asks for.
#[derive(Clone)]
pub struct ListQuery {
    pub resource: ResourceId,
    pub namespace: Option<polder_model::SmolStr>,
    /// Only names after this one: the continuation of an earlier page.
    pub after: Option<ObjectName>,
    /// At exactly this revision; `None` reads the newest.
    pub at: Option<Revision>,
    /// Zero means all.
    pub limit: usize,
    /// The page ends with the object that makes it this heavy, so it always gets on. Zero means that it may weigh
    /// anything.
    pub bytes_max: usize,
    /// Keeps the objects it returns true for.
    pub filter: Option<Arc<Filter>>,
    pub remaining: Remaining,
}

/// Whether a list tells how many objects follow its page. Never under a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remaining {
    #[default]
    NotAsked,
    /// Known at once for the first page of a loaded collection; else what follows is walked through.
    Count,
    /// The page before this one, at the same revision, told that so many follow it. With it, all pages of a list
    /// together cost one count.
    Before(u64),
}

impl ListQuery {
    /// All of a resource.
    pub fn all(resource: ResourceId) -> ListQuery {
        ListQuery {
            resource,
            namespace: None,
            after: None,
            at: None,
            limit: 0,
            bytes_max: 0,
            filter: None,
            remaining: Remaining::NotAsked,
        }
    }

    /// Whether a page of so many objects and bytes is full.
    fn is_full(&self, len: usize, bytes: usize) -> bool {
        (self.limit > 0 && len >= self.limit) || (self.bytes_max > 0 && bytes >= self.bytes_max)
    }

    /// How many follow a page of this length, if that is known without counting.
    fn remaining_after(&self, len: usize) -> Option<u64> {
        match self.remaining {
            // The number comes back from a client. More follow this page, so a smaller one is not ours.
            Remaining::Before(before) => before.checked_sub(len as u64).filter(|remaining| *remaining > 0),
            Remaining::NotAsked | Remaining::Count => None,
        }
    }

    fn wants_remaining(&self) -> bool {
        self.filter.is_none() && self.remaining != Remaining::NotAsked
    }
}

pub type Filter = dyn Fn(&StoredObject) -> bool + Send + Sync;

/// A consistent part of a collection.
#[derive(Debug)]
pub struct ListPage {
    /// The state this is a part of.
    pub revision: Revision,
    pub objects: Vec<Arc<StoredObject>>,
    /// More objects follow the last one.
    pub more: bool,
    /// How many follow, if that was asked for and there is no filter.
    pub remaining: Option<u64>,
}

impl Shared {
    pub(crate) fn page_from_engine(
        &self,
        plane: &Plane,
        query: &ListQuery,
        at: Revision,
    ) -> Result<ListPage, EngineError> {
        let namespace = query.namespace.as_deref();
        let (reader, after) = (&*self.reader, query.after.clone());
        let mut scan = StackScan::new(reader, &plane.stack, query.resource, namespace, after, at);
        if query.filter.is_none() {
            let len = if query.limit > 0 { query.limit.saturating_add(1) } else { usize::MAX };
            let bytes = if query.bytes_max > 0 { query.bytes_max } else { usize::MAX };
            scan.set_chunk(len, bytes);
        }
        let mut page = ListPage { revision: at, objects: Vec::new(), more: false, remaining: None };
        let mut bytes = 0;
        while let Some(object) = scan.next()? {
            if query.filter.as_ref().is_some_and(|filter| !filter(&object)) {
                continue;
            }
            if query.is_full(page.objects.len(), bytes) {
                page.more = true;
                break;
            }
            bytes += object.record.len();
            page.objects.push(object);
        }
        if page.more && query.wants_remaining() {
            let mut remaining = query.remaining_after(page.objects.len());
            if remaining.is_none() {
                scan.set_chunk(usize::MAX, usize::MAX);
                let mut count = 1;
                while scan.next()?.is_some() {
                    count += 1;
                }
                remaining = Some(count);
            }
            page.remaining = remaining;
        }
        Ok(page)
    }
}

/// A page of a loaded collection; `None` when the snapshot is newer than the revision asked for.
pub(crate) fn page_from_snapshot(
    snapshot: &Snapshot,
    current: Revision,
    query: &ListQuery,
) -> Option<ListPage> {
    let revision = match query.at {
        Some(at) if snapshot.last_change > at => return None,
        Some(at) => at,
        // Everything up to `current` is in the snapshot; it may hold a commit that is about to become current.
        None => current.max(snapshot.last_change),
    };
    let first = ObjectName::new(query.namespace.clone().unwrap_or_default(), "");
    let from = match &query.after {
        // A name before the namespace says nothing about where in the namespace to begin.
        Some(after) if *after >= first => Bound::Excluded(after.clone()),
        _ => Bound::Included(first),
    };
    let in_namespace = |name: &ObjectName| match &query.namespace {
        Some(namespace) => name.namespace == *namespace,
        None => true,
    };
    let mut rest =
        snapshot.objects.range((from, Bound::Unbounded)).take_while(|(name, _)| in_namespace(name));
    let mut page = ListPage { revision, objects: Vec::new(), more: false, remaining: None };
    let mut bytes = 0;
    for (_, object) in rest.by_ref() {
        if query.filter.as_ref().is_some_and(|filter| !filter(object)) {
            continue;
        }
        if query.is_full(page.objects.len(), bytes) {
            page.more = true;
            break;
        }
        bytes += object.record.len();
        page.objects.push(object.clone());
    }
    if page.more && query.wants_remaining() {
        let len = page.objects.len();
        let counted = || match query.after {
            None => snapshot.count(query.namespace.as_deref()).checked_sub(len as u64),
            Some(_) => None,
        };
        page.remaining =
            query.remaining_after(len).or_else(counted).or_else(|| Some(1 + rest.count() as u64));
    }
    Some(page)
}
