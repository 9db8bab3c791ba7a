//! The objects of a list, read page by page from one state of a collection: whoever lists holds a page in memory,
//! never the whole, however large the collection is and however slowly the client takes it.
//!
//! A page is bounded in bytes, not only in objects, and in how many objects are looked at to fill it. Reading on
//! after the state has been forgotten fails with 410. Every call may be cancelled and made again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polder_model::{SmolStr, Status};
use polder_store::{Filter, ListPage, ListQuery, Plane, ReadError, Remaining, Store, StoredObject};

use crate::conversion::Converter;
use crate::ledger::Rest;
use crate::selection::Selection;
use crate::status::read_failed;

/// Where a page ends: with the object that makes it this heavy or this long.
const PAGE_BYTES: usize = 128 * 1024;
const PAGE_LEN_MAX: usize = 512;
/// Objects that the cache holds anyway cost a pointer each, and reading on costs more once they have changed: so
/// pages of those are longer. They are still bounded: what the cache lets go of is held by whoever is slow.
const SHARED_PAGE_BYTES: usize = 1024 * 1024;
const SHARED_PAGE_LEN_MAX: usize = 4096;
/// Bytes looked at in one go for objects that match, and what looking at one costs beside its own.
const LOOKED_AT_BYTES_MAX: usize = 4 * 1024 * 1024;
const LOOK_BYTES: usize = 8 * 1024;
/// What a list with a limit keeps of what it read to find its end.
const KEPT_BYTES_MAX: usize = 2 * PAGE_BYTES;

/// What stands in front of the objects of a list, and the objects.
#[derive(Clone, Debug)]
pub struct Listing {
    pub resource_version: u64,
    pub continue_token: Option<String>,
    pub remaining: Option<u64>,
    pub objects: Objects,
}

/// Objects of one state of a collection that are still to be read.
#[derive(Clone)]
pub struct Objects {
    source: Option<Origin>,
    /// Read already.
    ready: Vec<Arc<StoredObject>>,
}

/// Who has the rest.
#[derive(Clone)]
enum Origin {
    Store(Source),
    Ledger(Rest),
}

/// Where objects come from.
#[derive(Clone)]
pub(crate) struct Source {
    store: Arc<Store>,
    plane: Arc<Plane>,
    selection: Arc<Selection>,
    /// Only the object of this name; empty for all.
    name: SmolStr,
    /// What to read next, without limit and filter.
    query: ListQuery,
    /// Brings objects into the version that is listed, where a webhook does.
    converter: Option<Converter>,
    /// Objects that may still be given out.
    left: usize,
    /// The cache has held what was read so far.
    shared: bool,
}

/// Some objects that match, and what the store said about the rest.
struct Found {
    objects: Vec<Arc<StoredObject>>,
    page: ListPage,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("ready", &self.ready.len()).finish_non_exhaustive()
    }
}

impl Objects {
    /// Objects that are here already.
    pub fn given(objects: Vec<Arc<StoredObject>>) -> Objects {
        Objects { source: None, ready: objects }
    }

    /// Entries that are here already, and those that are not.
    pub(crate) fn of_ledger(ready: Vec<Arc<StoredObject>>, rest: Option<Rest>) -> Objects {
        Objects { source: rest.map(Origin::Ledger), ready }
    }

    /// The next objects; none at the end.
    pub async fn page(&mut self) -> Result<Vec<Arc<StoredObject>>, Status> {
        if !self.ready.is_empty() {
            return Ok(std::mem::take(&mut self.ready));
        }
        while let Some(source) = &mut self.source {
            let source = match source {
                Origin::Store(source) => source,
                Origin::Ledger(rest) => return rest.page().await,
            };
            let found = source.read(false).await.map_err(|error| error.status(&source.plane))?;
            source.left -= found.objects.len();
            if source.left == 0 || !found.page.more {
                self.source = None;
            }
            if !found.objects.is_empty() {
                return Ok(found.objects);
            }
            // Looking for what matches may take long: others get a turn.
            tokio::task::yield_now().await;
        }
        Ok(Vec::new())
    }
}

impl Source {
    pub(crate) fn new(
        store: &Arc<Store>,
        plane: &Arc<Plane>,
        selection: &Arc<Selection>,
        name: &SmolStr,
        query: ListQuery,
    ) -> Source {
        Source {
            store: store.clone(),
            plane: plane.clone(),
            selection: selection.clone(),
            name: name.clone(),
            query,
            converter: None,
            left: usize::MAX,
            shared: false,
        }
    }

    /// The same in another version. Selectors are about that version.
    pub(crate) fn converted_by(self, converter: Option<Converter>) -> Source {
        Source { converter, ..self }
    }

    /// Begins a list: fixes the state it is of and, if it has a limit, finds its end. Returns the version, the
    /// objects, and with a limit that cuts something off the last object and how many follow, if that is known.
    pub(crate) async fn begin(mut self, limit: usize) -> Result<Begun, ListingError> {
        if limit > 0 {
            self.left = limit;
        }
        let first = self.read(limit > 0).await?;
        let revision = first.page.revision;
        if limit == 0 {
            let source = first.page.more.then_some(Origin::Store(self));
            return Ok(Begun { revision, objects: Objects { source, ready: first.objects }, cut: None });
        }
        let mut found = first;
        let (mut kept, mut kept_bytes) = (Vec::new(), 0);
        // Where to go on when not everything was kept: the source as it was after the last object that was.
        let mut resume = None;
        let mut last = None;
        loop {
            self.left -= found.objects.len();
            if let Some(object) = found.objects.last() {
                last = Some(object.name.clone());
            }
            if resume.is_none() {
                kept_bytes += weight(&found.objects);
                kept.append(&mut found.objects);
                if kept_bytes > KEPT_BYTES_MAX {
                    resume = Some(self.clone());
                }
            }
            if self.left == 0 || !found.page.more {
                break;
            }
            tokio::task::yield_now().await;
            found = self.read(true).await?;
        }
        let cut = match last {
            Some(last) if self.left == 0 && found.page.more && self.follows().await? => {
                Some(Cut { last, remaining: found.page.remaining })
            }
            _ => None,
        };
        let source = resume.filter(|resume| resume.left > self.left).map(|resume| {
            let left = resume.left - self.left;
            Origin::Store(Source { left, ..resume })
        });
        Ok(Begun { revision, objects: Objects { source, ready: kept }, cut })
    }

    /// Whether anything that matches follows.
    async fn follows(&self) -> Result<bool, ListingError> {
        if self.selects_all() {
            return Ok(true);
        }
        let mut rest = Source { left: 1, ..self.clone() };
        loop {
            let found = rest.read(false).await?;
            if !found.objects.is_empty() {
                return Ok(true);
            }
            if !found.page.more {
                return Ok(false);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Reads on. `count` asks how many follow, if that can be known.
    async fn read(&mut self, count: bool) -> Result<Found, ListingError> {
        let (len_max, bytes_max) = match self.shared && self.converter.is_none() {
            true => (SHARED_PAGE_LEN_MAX, SHARED_PAGE_BYTES),
            false => (PAGE_LEN_MAX, PAGE_BYTES),
        };
        let limit = len_max.min(self.left);
        let looked_at = Arc::new(AtomicUsize::new(0));
        let filter: Option<Arc<Filter>> = if self.selects_all() {
            None
        } else {
            // When it has seen enough it lets everything pass, so that the page ends; that is sorted out below.
            let (source, looked_at) = (self.matcher(), looked_at.clone());
            Some(Arc::new(move |object: &StoredObject| {
                let cost = LOOK_BYTES + object.record.len();
                looked_at.fetch_add(cost, Ordering::Relaxed) >= LOOKED_AT_BYTES_MAX || source(object)
            }))
        };
        let remaining = if count { self.query.remaining } else { Remaining::NotAsked };
        let query = ListQuery { limit, bytes_max, filter, remaining, ..self.query.clone() };
        let mut page = self.store.list(&self.plane, query).await?;
        let mut objects = std::mem::take(&mut page.objects);
        let mut last = objects.last().map(|last| last.name.clone());
        let shared = objects.iter().all(|object| Arc::strong_count(object) > 1);
        if looked_at.load(Ordering::Relaxed) > LOOKED_AT_BYTES_MAX {
            let matches = self.matcher();
            objects.retain(|object| matches(object));
        }
        if let Some(converter) = &self.converter {
            let len = objects.len();
            let converted = converter.page(objects).await;
            objects = converted.map_err(|status| ListingError::Status(Box::new(status)))?;
            let cut = len - objects.len();
            if cut > 0 {
                // What is not converted yet is read again.
                last = objects.last().map(|last| last.name.clone());
                page.more = true;
                let counts = remaining != Remaining::NotAsked && self.selects_all();
                page.remaining = counts.then(|| page.remaining.unwrap_or(0) + cut as u64);
            }
            objects.retain(|object| self.selection.matches(object));
        }
        // From here on nothing waits: whoever was cancelled before begins where it was.
        self.query.at = Some(page.revision);
        // Counted once, then carried along.
        self.query.remaining = page.remaining.map_or(remaining, Remaining::Before);
        if let Some(last) = last {
            self.query.after = Some(last);
            self.shared = shared;
        }
        Ok(Found { objects, page })
    }

    fn selects_all(&self) -> bool {
        self.name.is_empty() && self.selection.is_everything()
    }

    fn matcher(&self) -> impl Fn(&StoredObject) -> bool + Send + Sync + use<> {
        let (selection, name) = (self.selection.clone(), self.name.clone());
        let converter = self.converter.clone();
        move |object| {
            // What will be converted can be judged by its name only until it has been.
            let converts = converter.as_ref().is_some_and(|converter| converter.needs(object));
            (name.is_empty() || object.name.name == name)
                && match converts {
                    true => selection.only_name().is_none_or(|only| only == object.name.name),
                    false => selection.matches(object),
                }
        }
    }
}

/// Why a list cannot be read.
#[derive(Debug)]
pub(crate) enum ListingError {
    Read(ReadError),
    Status(Box<Status>),
}

impl From<ReadError> for ListingError {
    fn from(error: ReadError) -> ListingError {
        ListingError::Read(error)
    }
}

impl ListingError {
    pub(crate) fn status(self, plane: &Plane) -> Status {
        match self {
            ListingError::Read(error) => read_failed(plane, error),
            ListingError::Status(status) => *status,
        }
    }
}

/// A list that has been begun.
pub(crate) struct Begun {
    pub(crate) revision: polder_store::Revision,
    pub(crate) objects: Objects,
    /// Where a limit cut it off.
    pub(crate) cut: Option<Cut>,
}

pub(crate) struct Cut {
    pub(crate) last: polder_store::ObjectName,
    pub(crate) remaining: Option<u64>,
}

fn weight(objects: &[Arc<StoredObject>]) -> usize {
    objects.iter().map(|object| object.record.len()).sum()
}
