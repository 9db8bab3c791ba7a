//! Watches: changes of a collection as one client sees them, through its selectors.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use polder_model::{FieldError, Status};
use polder_store::{Event, ListQuery, Revision, StoredObject, Watch, WatchError, WatchScope};

use crate::context::{Query, RequestContext, invalid_options};
use crate::conversion::Converter;
use crate::definition::Target;
use crate::ledger::{Ledger, LedgerWatch, Rest, ledger_reached};
use crate::list::{integer, resource_version};
use crate::listing::{Objects, Source};
use crate::registry::Registry;
use crate::selection::Selection;
use crate::status::too_old;

/// A watch that names no time-out ends after this, and the client starts another.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(45 * 60);

/// Changes that are converted together, if they are there already, and what they weigh: they end with the one that makes them
/// this heavy.
const PENDING_LEN_MAX: usize = 32;
const PENDING_BYTES: usize = 128 * 1024;

/// No watch is longer than this.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Debug)]
pub struct WatchOptions {
    pub selection: Arc<Selection>,
    start: Start,
    pub bookmarks: bool,
    pub timeout: Duration,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The current state as `ADDED` events, at least as new as this version; then changes.
    Snapshot { not_older_than: u64, end_bookmark: bool },
    /// Changes after a version.
    After(u64),
    /// Changes from now on.
    Now,
}

impl WatchOptions {
    pub fn from_query(query: &Query, target: &Target) -> Result<WatchOptions, Status> {
        let mut errors = Vec::new();
        integer(query, "limit")?;
        let version = query.get("resourceVersion").unwrap_or_default();
        let asked = query.get("sendInitialEvents").filter(|text| !text.is_empty());
        let initial = asked.map(|_| query.flag("sendInitialEvents"));
        let wanted_match = query.get("resourceVersionMatch").unwrap_or_default();
        let mut forbid =
            |why: &str| errors.push(FieldError::forbidden("resourceVersionMatch", why.to_string()));
        if initial.is_some() && wanted_match != "NotOlderThan" {
            forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if initial.is_none() && !wanted_match.is_empty() {
            forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        }
        // Without a version a watch is one with initial events, whose rules are these.
        let snapshot = initial.is_some() || version.is_empty();
        if snapshot && query.get("continue").is_some_and(|token| !token.is_empty()) {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if !matches!(wanted_match, "" | "NotOlderThan") {
            errors.push(FieldError::not_supported("resourceVersionMatch", wanted_match, ["NotOlderThan"]));
        }
        invalid_options("ListOptions", &errors)?;
        let bookmarks = query.flag("allowWatchBookmarks");
        let number = if version.is_empty() { Ok(0) } else { resource_version(version) };
        let number = number.map_err(|problem| Status::untyped(500, problem))?;
        let start = match (initial, version) {
            (Some(true), _) => Start::Snapshot { not_older_than: number, end_bookmark: bookmarks },
            (Some(false), "" | "0") => Start::Now,
            // Without a version a watch starts with the newest state, marked like an explicit request for it.
            (None, "") => Start::Snapshot { not_older_than: 0, end_bookmark: bookmarks },
            (None, "0") => Start::Snapshot { not_older_than: 0, end_bookmark: bookmarks },
            (_, _) => Start::After(number),
        };
        let seconds = integer(query, "timeoutSeconds")?.unwrap_or(0);
        let timeout =
            if seconds == 0 { TIMEOUT_DEFAULT } else { Duration::from_secs(seconds as u64).min(TIMEOUT_MAX) };
        Ok(WatchOptions {
            selection: Arc::new(Selection::from_query(query, target)?),
            start,
            bookmarks,
            timeout,
        })
    }
}

impl WatchOptions {
    /// Whether the watch begins with what there is, which must be read.
    pub fn begins_with_state(&self) -> bool {
        matches!(self.start, Start::Snapshot { .. })
    }
}

/// What a client is told.
#[derive(Debug)]
pub enum WatchItem {
    /// An object as it is; `event` is what it came from, if it came from a change.
    Object { change: ObjectChange, object: Arc<StoredObject>, version: u64, event: Option<Arc<Event>> },
    /// Everything up to this version has been told.
    Bookmark { version: u64, initial_end: bool },
    /// The watch cannot go on.
    Error(Box<Status>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectChange {
    Added,
    Modified,
    Deleted,
}

/// Who tells of changes.
enum Changes {
    Store(Watch),
    Ledger(Box<LedgerWatch>),
}

/// A running watch of one client.
pub struct ClientWatch {
    context: Arc<RequestContext>,
    pub target: Target,
    selection: Arc<Selection>,
    pub bookmarks: bool,
    pub timeout: Duration,
    /// What there was when the watch began, as far as it has not been told: a page of it in hand, the rest to be
    /// read when its turn comes.
    initial: Option<Objects>,
    initial_page: std::vec::IntoIter<Arc<StoredObject>>,
    initial_end: Option<u64>,
    watch: Result<Changes, Option<Box<Status>>>,
    /// Brings objects into the version that is watched, where a webhook does.
    converter: Option<Converter>,
    /// Changes that wait for the first of them to be converted before they can be told. Kept, so that whoever asks may be
    /// cancelled.
    pending: VecDeque<Arc<Event>>,
    /// Whether the webhook has been asked about all of these.
    is_prepared: bool,
    /// Why a page could not be read.
    failed: Option<Status>,
    /// Changes told so far; a bookmark that would say nothing new is not sent.
    last_bookmark: u64,
}

impl Registry {
    pub async fn watch(
        &self,
        context: Arc<RequestContext>,
        target: &Target,
        options: &WatchOptions,
    ) -> Result<ClientWatch, Status> {
        self.authorize_many(&context, "watch", target, &options.selection).await?;
        crate::write::check_verb(&Target { subresource: Default::default(), ..target.clone() }, "watch")?;
        let plane = &context.plane;
        if let Some(ledger) = target.definition.ledger.clone() {
            return self.watch_ledger(context, target, &ledger, options);
        }
        let resource = target.definition.resource_id;
        let scope = WatchScope::Collection(plane.id, resource);
        let (mut initial, mut initial_end) = (None, None);
        let after = match options.start {
            Start::Snapshot { not_older_than, end_bookmark } => {
                match not_older_than {
                    0 => self.fresh(plane).await?,
                    version => self.wait_for(plane, version).await?,
                }
                let namespace = (!target.namespace.is_empty()).then(|| target.namespace.clone());
                let query = ListQuery { namespace, ..ListQuery::all(resource) };
                let source = Source::new(&self.store, plane, &options.selection, &target.name, query)
                    .converted_by(self.converter(&context, target));
                let begun = source.begin(0).await.map_err(|error| error.status(plane))?;
                initial_end = end_bookmark.then(|| plane.resource_version(begun.revision));
                initial = Some(begun.objects);
                begun.revision
            }
            Start::After(version) => {
                self.wait_for(plane, version).await?;
                plane.revision(version)
            }
            Start::Now => {
                self.fresh(plane).await?;
                self.store.current()
            }
        };
        let watch = match self.store.watch(scope, after) {
            Ok(watch) => Ok(Changes::Store(watch)),
            Err(WatchError::Compacted { compacted }) => Err(Some(Box::new(too_old(plane, after, compacted)))),
            Err(WatchError::Ended) => Err(None),
            Err(WatchError::Engine(error)) => Err(Some(Box::new(Status::internal(error.to_string())))),
        };
        // A change of the definition ends the watches there are. One that came before this watch was there has ended
        // nothing: so it ends now, before it tells anything, and the client begins another.
        let watch = if self.is_current(plane, target).await? {
            watch
        } else {
            (initial, initial_end) = (None, None);
            Err(None)
        };
        let converter = self.converter(&context, target);
        Ok(ClientWatch::new(
            context,
            target,
            options,
            Begun { initial, initial_end, after, watch },
            converter,
        ))
    }

    /// The same for what is not in the store.
    fn watch_ledger(
        &self,
        context: Arc<RequestContext>,
        target: &Target,
        ledger: &Arc<dyn Ledger>,
        options: &WatchOptions,
    ) -> Result<ClientWatch, Status> {
        let plane = &context.plane;
        let newest = ledger.newest(plane.id);
        let (mut initial, mut initial_end) = (None, None);
        let after = match options.start {
            Start::Snapshot { not_older_than, end_bookmark } => {
                ledger_reached(plane, not_older_than, newest)?;
                let rest = Rest::new(ledger, plane.id, &options.selection, Revision(0), newest);
                initial = Some(Objects::of_ledger(Vec::new(), Some(rest)));
                initial_end = end_bookmark.then(|| plane.resource_version(newest));
                newest
            }
            Start::After(version) => {
                ledger_reached(plane, version, newest)?;
                plane.revision(version)
            }
            Start::Now => newest,
        };
        let watch = match self.store.lifeline(plane.id) {
            Ok(lifeline) => {
                let selection = (&options.selection, after);
                let watch = self.ledger_watch(plane, target, ledger, selection, lifeline);
                watch.map(|watch| Changes::Ledger(Box::new(watch))).map_err(|status| Some(Box::new(status)))
            }
            Err(_) => Err(None),
        };
        Ok(ClientWatch::new(context, target, options, Begun { initial, initial_end, after, watch }, None))
    }
}

/// Where a watch begins, and what it follows from there.
struct Begun {
    initial: Option<Objects>,
    initial_end: Option<u64>,
    after: Revision,
    watch: Result<Changes, Option<Box<Status>>>,
}

impl ClientWatch {
    fn new(
        context: Arc<RequestContext>,
        target: &Target,
        options: &WatchOptions,
        begun: Begun,
        converter: Option<Converter>,
    ) -> ClientWatch {
        ClientWatch {
            target: target.clone(),
            selection: options.selection.clone(),
            bookmarks: options.bookmarks,
            timeout: options.timeout,
            initial: begun.initial,
            initial_page: Vec::new().into_iter(),
            initial_end: begun.initial_end,
            watch: begun.watch,
            converter,
            pending: VecDeque::new(),
            is_prepared: false,
            failed: None,
            last_bookmark: context.plane.resource_version(begun.after),
            context,
        }
    }
}

impl Changes {
    fn ready(&mut self) -> Option<Arc<Event>> {
        match self {
            Changes::Store(watch) => watch.ready(),
            Changes::Ledger(watch) => watch.ready(),
        }
    }

    async fn next(&mut self) -> Result<Arc<Event>, WatchError> {
        match self {
            Changes::Store(watch) => watch.next().await,
            Changes::Ledger(watch) => watch.next().await,
        }
    }

    fn progress(&mut self) -> Option<Revision> {
        match self {
            Changes::Store(watch) => watch.progress(),
            Changes::Ledger(watch) => watch.progress(),
        }
    }
}

impl ClientWatch {
    pub fn context(&self) -> &RequestContext {
        &self.context
    }

    /// Whether the state the watch began with has been told, or there was none to tell.
    pub fn is_told_state(&self) -> bool {
        self.initial.is_none()
    }

    /// Whether a page of that state must be read to go on.
    pub fn reads_page(&self) -> bool {
        self.initial.is_some() && self.initial_page.len() == 0
    }

    /// Reads that page. A failure is told by `next`.
    pub async fn read_page(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let Some(objects) = self.initial.as_mut().filter(|_| self.initial_page.len() == 0) else { return };
        match objects.page().await {
            Ok(page) if page.is_empty() => self.initial = None,
            Ok(page) => self.initial_page = page.into_iter(),
            Err(status) => self.failed = Some(status),
        }
    }

    /// What the page in hand weighs.
    pub fn page_bytes(&self) -> usize {
        self.initial_page.as_slice().iter().map(|object| object.record.len()).sum()
    }

    /// The next thing to tell, if it is here already.
    pub fn ready(&mut self) -> Option<WatchItem> {
        if self.initial.is_some() {
            return self.initial_ready();
        }
        if let Some(item) = self.initial_ended() {
            return Some(item);
        }
        loop {
            if !self.pending.is_empty() {
                return None;
            }
            let event = self.watch.as_mut().ok()?.ready()?;
            if self.converts(&event) {
                self.pending.push_back(event);
                return None;
            }
            if let Some(item) = self.tell(event) {
                return Some(item);
            }
        }
    }

    /// The next of what there was when the watch began, if it is in hand.
    fn initial_ready(&mut self) -> Option<WatchItem> {
        let object = self.initial_page.next()?;
        let version = self.context.plane.resource_version(object.revision);
        Some(WatchItem::Object { change: ObjectChange::Added, object, version, event: None })
    }

    fn initial_ended(&mut self) -> Option<WatchItem> {
        let version = self.initial_end.take()?;
        Some(WatchItem::Bookmark { version, initial_end: true })
    }

    /// The next of what there was when the watch began; reads on when nothing is in hand.
    async fn initial(&mut self) -> Option<WatchItem> {
        loop {
            if let Some(item) = self.initial_ready() {
                return Some(item);
            }
            self.read_page().await;
            match self.failed.take() {
                None if self.initial.is_none() => break,
                None => {}
                Some(status) => {
                    // The client was so slow that the state it was being told is forgotten, or it cannot be told in
                    // this version: it must start over.
                    (self.initial, self.initial_end, self.watch) = (None, None, Err(None));
                    return Some(WatchItem::Error(Box::new(status)));
                }
            }
        }
        self.initial_ended()
    }

    /// The next thing to tell; `None` when the watch has ended. Safe to cancel.
    pub async fn next(&mut self) -> Option<WatchItem> {
        if let Some(item) = self.initial().await {
            return Some(item);
        }
        loop {
            if let Some(event) = self.pending.front().cloned() {
                self.prepare().await;
                let told = self.tell_converted(event).await;
                self.pending.pop_front();
                self.is_prepared &= !self.pending.is_empty();
                match told {
                    Ok(None) => continue,
                    Ok(item) => return item,
                    Err(status) => {
                        self.pending.clear();
                        self.watch = Err(None);
                        return Some(WatchItem::Error(Box::new(status)));
                    }
                }
            }
            let watch = match &mut self.watch {
                Ok(watch) => watch,
                Err(error) => {
                    let error = error.take()?;
                    return Some(WatchItem::Error(error));
                }
            };
            let outcome = watch.next().await;
            match outcome {
                Ok(event) if self.converts(&event) => self.pending.push_back(event),
                Ok(event) => {
                    if let Some(item) = self.tell(event) {
                        return Some(item);
                    }
                }
                Err(error) => {
                    let plane = &self.context.plane;
                    self.watch = Err(match error {
                        WatchError::Compacted { compacted } => {
                            Some(Box::new(too_old(plane, Revision(compacted.0.saturating_sub(1)), compacted)))
                        }
                        WatchError::Ended => None,
                        WatchError::Engine(error) => Some(Box::new(Status::internal(error.to_string()))),
                    });
                }
            }
        }
    }

    /// A bookmark, if there is progress to tell and nothing is waiting to be told.
    pub fn bookmark(&mut self) -> Option<WatchItem> {
        if !self.pending.is_empty() {
            return None;
        }
        let progress = self.watch.as_mut().ok()?.progress()?;
        let version = self.context.plane.resource_version(progress);
        if !self.bookmarks || self.initial.is_some() || version <= self.last_bookmark {
            return None;
        }
        self.last_bookmark = version;
        Some(WatchItem::Bookmark { version, initial_end: false })
    }

    /// What a change is for this client: an object that starts to match is added, one that stops is deleted.
    fn tell(&self, event: Arc<Event>) -> Option<WatchItem> {
        let (old, new) = (event.old.clone(), event.new.clone());
        let (change, object) = self.change(old, new)?;
        let version = self.context.plane.resource_version(event.revision);
        Some(WatchItem::Object { change, object, version, event: Some(event) })
    }

    fn change(
        &self,
        old: Option<Arc<StoredObject>>,
        new: Option<Arc<StoredObject>>,
    ) -> Option<(ObjectChange, Arc<StoredObject>)> {
        let matches = |object: Option<Arc<StoredObject>>| object.filter(|object| self.selects(object));
        match (matches(old), matches(new)) {
            (None, Some(new)) => Some((ObjectChange::Added, new)),
            (Some(_), Some(new)) => Some((ObjectChange::Modified, new)),
            (Some(old), None) => Some((ObjectChange::Deleted, old)),
            (None, None) => None,
        }
    }

    /// Whether a change can be told only after a webhook has been asked.
    fn converts(&self, event: &Event) -> bool {
        let Some(converter) = &self.converter else { return false };
        let mut both = event.old.iter().chain(&event.new);
        both.any(|object| converter.needs(object) && self.is_in_scope(object))
    }

    /// Has all changes that are there converted at once, as many as may wait.
    async fn prepare(&mut self) {
        let Some(converter) = self.converter.clone().filter(|_| !self.is_prepared) else { return };
        let weight = |event: &Event| -> usize {
            event.old.iter().chain(&event.new).map(|object| object.record.len()).sum()
        };
        let mut bytes: usize = self.pending.iter().map(|event| weight(event)).sum();
        while self.pending.len() < PENDING_LEN_MAX && bytes < PENDING_BYTES {
            let Some(event) = self.watch.as_mut().ok().and_then(Changes::ready) else { break };
            bytes += weight(&event);
            self.pending.push_back(event);
        }
        let wanted = self.pending.iter().flat_map(|event| self.wanted(event)).flatten();
        converter.prepare(wanted.collect::<Vec<_>>().into_iter()).await;
        self.is_prepared = true;
    }

    /// What of a change must be known in the version that is watched, before and after it. Selectors are about that version;
    /// without any, only what is shown.
    fn wanted(&self, event: &Event) -> [Option<Arc<StoredObject>>; 2] {
        let in_scope = |object: &Option<Arc<StoredObject>>| {
            object.as_ref().filter(|object| self.is_in_scope(object)).cloned()
        };
        let old_is_shown = event.new.is_none() || !self.selection.is_everything();
        [in_scope(&event.old).filter(|_| old_is_shown), in_scope(&event.new)]
    }

    /// The same for a change that has to be converted.
    async fn tell_converted(&self, event: Arc<Event>) -> Result<Option<WatchItem>, Status> {
        let Some(converter) = self.converter.as_ref().filter(|_| self.converts(&event)) else {
            return Ok(self.tell(event));
        };
        let mut seen = [event.old.clone(), event.new.clone()];
        for (seen, wanted) in seen.iter_mut().zip(self.wanted(&event)) {
            if let Some(object) = wanted {
                *seen = Some(converter.shared(object).await?);
            }
        }
        let [old, new] = seen;
        let Some((change, object)) = self.change(old, new) else { return Ok(None) };
        let version = self.context.plane.resource_version(event.revision);
        // Lines made of the event itself are shared by all; these are of a definition that may change.
        Ok(Some(WatchItem::Object { change, object, version, event: None }))
    }

    fn is_in_scope(&self, object: &StoredObject) -> bool {
        let Target { namespace, name, .. } = &self.target;
        let only = self.selection.only_name();
        (namespace.is_empty() || object.name.namespace == *namespace)
            && (name.is_empty() || object.name.name == *name)
            && only.is_none_or(|only| object.name.name == only)
    }

    fn selects(&self, object: &StoredObject) -> bool {
        self.is_in_scope(object) && self.selection.matches(object)
    }
}
