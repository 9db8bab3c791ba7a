//! Virtual resources: read-only resources whose objects are not in the store. Somebody else keeps them, in the order in which
//! they happened: a ledger.
//!
//! Everything around a resource is the same as for all others (discovery, authorization, selectors, tables, lists in pieces,
//! watches): a definition that has a ledger is read from it, and offers no verb that writes ([ADR 0015]). A resource version is the
//! number of an entry, moved by the plane's offset as revisions are.
//!
//! Invariant: nothing is read from a ledger but by the number of the plane that the request is for. A continue token is good
//! in that plane only.
//!
//! [ADR 0015]: ../../../docs/adr/0015-audit-and-the-trail-of-planes.md

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use polder_machinery::continue_token::ContinueToken;
use polder_model::{PlaneId, SmolStr, Status};
use polder_store::{Event, ObjectName, Plane, ResourceId, Revision, StoredObject, Turns, Watch, WatchError};

use crate::context::RequestContext;
use crate::definition::{ResourceDefinition, Target};
use crate::list::{ListOptions, VersionWanted};
use crate::listing::{Listing, Objects};
use crate::registry::Registry;
use crate::selection::Selection;
use crate::status::too_old;

/// What is read at once.
const PAGE_BYTES: usize = 128 * 1024;
const PAGE_LEN_MAX: usize = 256;
/// A list with a limit has no more than this in one piece, whatever its limit: it goes on with a token.
const LIMIT_MAX: usize = 1000;
const LIMIT_BYTES_MAX: usize = 1 << 20;
/// So many entries are looked at for one such piece.
const LOOKED_AT_MAX: usize = 32 * PAGE_LEN_MAX;

/// Entries of all planes, each with a number that only grows.
pub trait Ledger: std::fmt::Debug + Send + Sync {
    /// Entries of one plane after a number, oldest first. May block.
    fn read(&self, plane: PlaneId, after: Revision, most: Most) -> Result<Vec<StoredObject>, LedgerError>;

    /// The number of a plane's newest entry, or the floor if that is higher. It tells nothing of other planes.
    fn newest(&self, plane: PlaneId) -> Revision;

    /// Entries up to this number may have been forgotten.
    fn floor(&self) -> Revision;

    /// Changes when the plane gets entries.
    fn follow(&self, plane: PlaneId) -> tokio::sync::watch::Receiver<u64>;
}

/// How much is read at once: no more than this, but one entry.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    pub entries: usize,
    pub bytes: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read entries of the plane: {0}")]
pub struct LedgerError(pub String);

/// Entries that are still to be read.
#[derive(Clone)]
pub(crate) struct Rest {
    ledger: Arc<dyn Ledger>,
    plane: PlaneId,
    selection: Arc<Selection>,
    after: Revision,
    until: Revision,
}

/// New entries as they come.
pub(crate) struct LedgerWatch {
    rest: Rest,
    resource: ResourceId,
    news: tokio::sync::watch::Receiver<u64>,
    /// Ends with the plane, with the server, and when a key is dropped.
    lifeline: Watch,
    backlog: VecDeque<Arc<Event>>,
}

/// Entries that were looked at.
struct Page {
    objects: Vec<Arc<StoredObject>>,
    looked_at: usize,
    /// The last one that was looked at.
    last: Option<Revision>,
}

/// Reads of all ledgers: each has a thread while it looks through entries, so planes take turns.
static TURNS: LazyLock<Arc<Turns>> = LazyLock::new(|| Turns::new(16, PLANE_TURNS));
/// Those of one plane at a time.
const PLANE_TURNS: usize = 2;

/// Reads when it is the plane's turn, which lasts until the reading has ended, also when whoever asked hangs up.
async fn in_turn<T: Send + 'static>(
    plane: PlaneId,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    let turn = TURNS.take(plane).await;
    let read = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        read()
    });
    read.await.map_err(|error| Status::internal(error.to_string()))
}

impl Rest {
    pub(crate) fn new(
        ledger: &Arc<dyn Ledger>,
        plane: PlaneId,
        selection: &Arc<Selection>,
        after: Revision,
        until: Revision,
    ) -> Rest {
        Rest { ledger: ledger.clone(), plane, selection: selection.clone(), after, until }
    }

    /// Reads on; nothing was looked at when there is no more.
    async fn read(&self, most: Most) -> Result<Page, Status> {
        let Rest { ledger, plane, selection, after, until } = self.clone();
        let read = in_turn(plane, move || {
            let mut all = ledger.read(plane, after, most)?;
            all.retain(|entry| entry.revision <= until);
            let (looked_at, last) = (all.len(), all.last().map(|entry| entry.revision));
            let objects = all.into_iter().filter(|entry| selection.matches(entry)).map(Arc::new).collect();
            Ok::<_, LedgerError>(Page { objects, looked_at, last })
        });
        read.await?.map_err(|error| Status::internal(error.to_string()))
    }

    /// The next entries that match; none at the end.
    pub(crate) async fn page(&mut self) -> Result<Vec<Arc<StoredObject>>, Status> {
        while self.after < self.until {
            let page = self.read(Most { entries: PAGE_LEN_MAX, bytes: PAGE_BYTES }).await?;
            self.after = page.last.unwrap_or(self.until);
            if !page.objects.is_empty() {
                return Ok(page.objects);
            }
        }
        Ok(Vec::new())
    }
}

impl LedgerWatch {
    fn new(rest: Rest, definition: &ResourceDefinition, lifeline: Watch) -> LedgerWatch {
        let news = rest.ledger.follow(rest.plane);
        LedgerWatch { rest, resource: definition.resource_id, news, lifeline, backlog: VecDeque::new() }
    }

    pub(crate) fn ready(&mut self) -> Option<Arc<Event>> {
        self.backlog.pop_front()
    }

    /// The next entry. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Result<Arc<Event>, WatchError> {
        loop {
            // Looked at first: there may always be more to read.
            tokio::select! {
                biased;
                ended = self.lifeline.next() => {
                    ended?;
                }
                () = std::future::ready(()) => {}
            }
            if let Some(event) = self.backlog.pop_front() {
                return Ok(event);
            }
            // Whatever comes while this reads is news.
            self.news.borrow_and_update();
            let newest = self.rest.ledger.newest(self.rest.plane);
            let floor = self.rest.ledger.floor();
            if self.rest.after < floor {
                return Err(WatchError::Compacted { compacted: floor });
            }
            let page = self.rest.read(Most { entries: PAGE_LEN_MAX, bytes: PAGE_BYTES }).await;
            let page = page.map_err(|_| WatchError::Ended)?;
            self.rest.after = page.last.unwrap_or(newest.max(self.rest.after));
            let (plane, resource) = (self.rest.plane, self.resource);
            let event = |entry: Arc<StoredObject>| {
                Arc::new(Event::new(entry.revision, plane, resource, None, Some(entry)))
            };
            self.backlog.extend(page.objects.into_iter().map(event));
            if page.looked_at > 0 {
                continue;
            }
            tokio::select! {
                biased;
                ended = self.lifeline.next() => {
                    ended?;
                }
                changed = self.news.changed() => changed.map_err(|_| WatchError::Ended)?,
            }
        }
    }

    pub(crate) fn progress(&mut self) -> Option<Revision> {
        self.backlog.is_empty().then_some(self.rest.after)
    }
}

impl Registry {
    /// One entry, by its name.
    pub(crate) async fn ledger_get(
        &self,
        context: &RequestContext,
        target: &Target,
        ledger: &Arc<dyn Ledger>,
    ) -> Result<Arc<StoredObject>, Status> {
        let missing = || Status::not_found(&target.definition.group_resource(), &target.name);
        let number: u64 = target.name.parse().map_err(|_| missing())?;
        let before = Revision(number.checked_sub(1).ok_or_else(missing)?);
        let selection = Arc::new(Selection::from_query(&Default::default(), target)?);
        let rest = Rest::new(ledger, context.plane.id, &selection, before, Revision(number));
        let found = rest.read(Most { entries: 1, bytes: 0 }).await?.objects.pop();
        found.filter(|entry| entry.name.name == target.name).ok_or_else(missing)
    }

    pub(crate) async fn ledger_listing(
        &self,
        context: &RequestContext,
        ledger: &Arc<dyn Ledger>,
        options: &ListOptions,
    ) -> Result<Listing, Status> {
        let plane = &context.plane;
        let newest = ledger.newest(plane.id);
        let mut rest = Rest::new(ledger, plane.id, &options.selection, Revision(0), newest);
        match options.version {
            VersionWanted::Newest | VersionWanted::Any => {}
            VersionWanted::Exactly(version) => {
                ledger_reached(plane, version, newest)?;
                rest.until = plane.revision(version);
            }
            VersionWanted::NotOlderThan(version) => ledger_reached(plane, version, newest)?,
        }
        if let Some(token) = &options.continue_token {
            (rest.after, rest.until) = position(plane, token)?;
            rest.until = rest.until.min(newest);
            if rest.after < ledger.floor() {
                return Err(too_old(plane, rest.after, ledger.floor()));
            }
        }
        let resource_version = plane.resource_version(rest.until);
        if options.limit == 0 {
            let objects = Objects::of_ledger(Vec::new(), Some(rest));
            return Ok(Listing { resource_version, continue_token: None, remaining: None, objects });
        }
        let limit = options.limit.min(LIMIT_MAX);
        let (mut found, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
        let mut more = false;
        while rest.after < rest.until {
            more = found.len() >= limit || bytes >= LIMIT_BYTES_MAX || looked_at >= LOOKED_AT_MAX;
            let entries = if more { 1 } else { PAGE_LEN_MAX.min(limit - found.len()) };
            let page = rest.read(Most { entries, bytes: PAGE_BYTES }).await?;
            more &= page.looked_at > 0;
            if more {
                break;
            }
            looked_at += page.looked_at;
            rest.after = page.last.unwrap_or(rest.until);
            bytes += page.objects.iter().map(|object| object.record.len()).sum::<usize>();
            found.extend(page.objects);
        }
        let continue_token = more.then(|| token(plane, rest.after, rest.until));
        let objects = Objects::of_ledger(found, None);
        Ok(Listing { resource_version, continue_token, remaining: None, objects })
    }

    /// Entries after a number as they come.
    pub(crate) fn ledger_watch(
        &self,
        plane: &Plane,
        target: &Target,
        ledger: &Arc<dyn Ledger>,
        (selection, after): (&Arc<Selection>, Revision),
        lifeline: Watch,
    ) -> Result<LedgerWatch, Status> {
        if after < ledger.floor() {
            return Err(too_old(plane, after, ledger.floor()));
        }
        let rest = Rest::new(ledger, plane.id, selection, after, Revision::NEWEST);
        Ok(LedgerWatch::new(rest, &target.definition, lifeline))
    }
}

pub(crate) fn ledger_reached(plane: &Plane, version: u64, newest: Revision) -> Result<(), Status> {
    if plane.revision(version) <= newest {
        return Ok(());
    }
    Err(Status::version_too_large(version, plane.resource_version(newest)))
}

/// Where a list goes on, for this plane and no other.
fn token(plane: &Plane, after: Revision, until: Revision) -> String {
    let start = format!("{}/{after}", plane.id.0);
    ContinueToken::after(&start, i64::try_from(until.0).unwrap_or(i64::MAX)).encode()
}

fn position(plane: &Plane, token: &str) -> Result<(Revision, Revision), Status> {
    let invalid = |why: &str| Status::bad_request(format!("invalid continue token: {why}"));
    let token = ContinueToken::decode(token).map_err(|error| invalid(&error.to_string()))?;
    let start = token.start.strip_suffix('\0').unwrap_or(&token.start);
    let (own, after) = start.split_once('/').ok_or_else(|| invalid("it is of another list"))?;
    if own.parse() != Ok(plane.id.0) {
        return Err(invalid("it is of another plane"));
    }
    let after = after.parse().map_err(|_| invalid("it is of another list"))?;
    let until = u64::try_from(token.revision).map_err(|_| invalid("it is of another list"))?;
    Ok((Revision(after), Revision(until)))
}

/// What an entry is called: its number.
pub fn entry_name(number: u64) -> ObjectName {
    ObjectName::cluster(SmolStr::from(format!("{number:016}")))
}

#[cfg(test)]
#[expect(clippy::await_holding_lock, reason = "readers wait for it on threads of their own")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use parking_lot::RwLock;
    use tokio::task::JoinSet;

    use super::*;

    /// A plane has a few readers at a time, however many ask, and however many of those hang up.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn readers_of_a_plane_take_turns() {
        let begun = Arc::<AtomicUsize>::default();
        let may_end = Arc::new(RwLock::new(()));
        let reader = || {
            let (begun, may_end) = (begun.clone(), may_end.clone());
            in_turn(PlaneId(7_777), move || {
                begun.fetch_add(1, Ordering::SeqCst);
                drop(may_end.read());
            })
        };
        let closed = may_end.write();
        let mut readers = JoinSet::new();
        (0..8).for_each(|_| drop(readers.spawn(reader())));
        while begun.load(Ordering::SeqCst) < PLANE_TURNS {
            tokio::task::yield_now().await;
        }
        readers.shutdown().await;
        (0..8).for_each(|_| drop(readers.spawn(reader())));
        // Whoever could begin would do so now.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(begun.load(Ordering::SeqCst), PLANE_TURNS, "those who hung up still read");
        drop(closed);
        assert!(readers.join_all().await.iter().all(Result::is_ok));
        assert_eq!(begun.load(Ordering::SeqCst), PLANE_TURNS + 8);
    }
}
